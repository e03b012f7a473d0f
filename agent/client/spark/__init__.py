"""Values of PySpark that executors' Python processes map: one copy of a server for all of them.

`SparkContext.broadcast` goes by rostrum too where Spark has the plugin; its value is then unpickled in each process, as
ever. Here the large parts of a value (NumPy arrays, bytearrays: what pickles out of band) are views of the agent's
memory.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
import threading
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rostrum.client import Agent, Busy, NotFound, ReadObject, RostrumError
from rostrum.client.values import Code

if TYPE_CHECKING:
    from pyspark import SparkContext

MAGIC = b"rsb1"
ALIGNED = 64
PARTS_MOST = 1_000_000
WAIT_S = 120.0
FETCH_S = 30.0
KEPT_MOST = 4  # values that a process keeps mapped

_kept: OrderedDict[tuple[bytes, int], Any] = OrderedDict()
_lock = threading.Lock()


def pack(value: Any) -> tuple[int, list[tuple[int, Any]]]:
    """An object's size, and what lies where in it: an index, the pickle, and what it left out of band."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts: list[Any] = [stream, *(one.raw() for one in buffers)]
    at = len(MAGIC) + 4 + 16 * len(parts)
    index = bytearray(MAGIC + struct.pack("<I", len(parts)))
    places: list[tuple[int, Any]] = []
    for part in parts:
        at = -(-at // ALIGNED) * ALIGNED
        size = memoryview(part).nbytes
        index += struct.pack("<QQ", at, size)
        places.append((at, part))
        at += size
    return at, [(0, bytes(index)), *places]


def unpack(data: Any) -> Any:
    """The value of an object; its arrays are read-only views. Raises RostrumError if it is none of these."""
    view = memoryview(data).cast("B").toreadonly()
    try:
        if bytes(view[: len(MAGIC)]) != MAGIC:
            raise ValueError("it does not begin as one")
        (count,) = struct.unpack_from("<I", view, len(MAGIC))
        if not 1 <= count <= PARTS_MOST:
            raise ValueError(f"it has {count} parts")
        parts = []
        for number in range(count):
            at, size = struct.unpack_from("<QQ", view, len(MAGIC) + 4 + 16 * number)
            if at + size > len(view):
                raise ValueError(f"part {number} ends at {at + size} of {len(view)} bytes")
            parts.append(view[at : at + size])
        return pickle.loads(parts[0], buffers=parts[1:])
    except (ValueError, struct.error, EOFError, pickle.UnpicklingError) as error:
        raise RostrumError(
            f"an object of {len(view)} bytes is no value of rostrum.spark: {error}", Code.PROTOCOL
        ) from error


class RostrumBroadcast:
    """A value for all executors: made in the driver; what goes with tasks is its number.

    It needs Spark's plugin (docs/applications.md). Without, and where an executor has no agent, it is one of
    `SparkContext.broadcast`: `way` says so, "spark" rather than "rostrum", and a warning says why.
    """

    def __init__(self, context: SparkContext, value: Any) -> None:
        self.way = "rostrum"
        self._value = value
        self._spark: Any = None
        self._where: tuple[bytes, int, str] | None = None
        try:
            self._plugin: Any = _plugin(context)
            self._where = self._send(context, value)
        except RostrumError as error:
            warnings.warn(f"a value of rostrum.spark goes by Spark's own means: {error}", RuntimeWarning, stacklevel=2)
            self.way = "spark"
            self._spark = context.broadcast(value)

    def _send(self, context: SparkContext, value: Any) -> tuple[bytes, int, str]:
        without = self._plugin.executorsWithoutAgents()
        if without:
            raise RostrumError(f"{without} of the executors have no agent", Code.UNAVAILABLE)
        app = UUID(self._plugin.app())
        socket = context.getConf().get("spark.rostrum.socket", "") or ""
        size, parts = pack(value)
        number = int(self._plugin.newObject())
        with Agent(socket or None, app_id=app, process="pyspark") as agent, agent.create(size) as made:
            for at, part in parts:
                made.write(part, at)
            agent.add(number, made)
        self._plugin.send(number)
        return app.bytes, number, socket

    @property
    def value(self) -> Any:
        """In tasks: its arrays are read-only. Raises RostrumError if it does not come here."""
        if self._spark is not None:
            return self._spark.value
        if self._value is not None:
            return self._value
        if self._where is None:
            raise RostrumError("this value was destroyed", Code.INVALID)
        app, number, socket = self._where
        with _lock:
            if (app, number) in _kept:
                _kept.move_to_end((app, number))
            else:
                _kept[app, number] = unpack(_object(UUID(bytes=app), number, socket))
                while len(_kept) > KEPT_MOST:
                    _kept.popitem(last=False)
            return _kept[app, number]

    def destroy(self) -> None:
        """Frees it on all servers, within seconds; processes that have it mapped keep it as long."""
        if self._spark is not None:
            self._spark.destroy()
        elif self._where is not None and self._plugin is not None:
            self._plugin.free(self._where[1])
        self._value = self._where = None

    unpersist = destroy

    def __reduce__(self) -> tuple[Any, ...]:
        if self._spark is None and self._where is None:
            raise RostrumError("this value was destroyed", Code.INVALID)
        return _restore, (self.way, self._spark, self._where)


def _restore(way: str, spark: Any, where: tuple[bytes, int, str] | None) -> RostrumBroadcast:
    """In a task."""
    one = RostrumBroadcast.__new__(RostrumBroadcast)
    one.way, one._spark, one._where, one._value, one._plugin = way, spark, where, None, None
    return one


def _plugin(context: SparkContext) -> Any:
    """The plugin in the driver's JVM. Raises RostrumError: Spark has none, or it does nothing."""
    jvm = context._jvm
    try:
        plugin: Any = jvm.org.rostrum.spark.RostrumPlugin
        plugin.servers()
        return plugin
    except Exception as error:  # whatever py4j makes of it
        why = "does nothing, see the driver's log" if "IllegalStateException" in str(error) else "is not there"
        raise RostrumError(f"spark.plugins=org.rostrum.spark.RostrumPlugin {why}", Code.UNAVAILABLE) from error


def _object(app: UUID, number: int, socket: str) -> ReadObject:
    """Of this server's agent. One that is not here is fetched, or comes, as the plugin sends it to late executors."""
    with Agent(socket or None, app_id=app, process="pyspark task") as agent:
        try:
            return agent.read(number, wait=0)
        except Busy:
            pass
        except NotFound:
            with contextlib.suppress(RostrumError):
                return agent.fetch(number, wait=FETCH_S)
        return agent.read(number, wait=WAIT_S)
