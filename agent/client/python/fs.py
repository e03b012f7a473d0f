"""Objects as files of fsspec, so that pandas, Arrow and Dask read them by `rostrum://NAME`.

    pandas.read_parquet("rostrum://table.parquet", storage_options={"wait": 30})

fsspec finds it by itself where rostrum is installed; otherwise `rostrum.client.fs.register()`.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any, BinaryIO

try:
    from fsspec.registry import register_implementation
    from fsspec.spec import AbstractFileSystem
except ImportError as error:
    raise ImportError("rostrum:// needs fsspec, 2022.11 or later: pip install rostrum-client[fsspec]") from error

from .agent import READ_WAIT_S, Agent
from .names import data_id_of, servers_of
from .objects import ReadObject
from .values import NotFound, RostrumError, StoredObject, TimedOut

BUFFER = 1 << 20


def register() -> None:
    """Makes `rostrum://` known to fsspec; more than once does nothing."""
    register_implementation("rostrum", RostrumFileSystem, clobber=True)


class RostrumFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Objects of an application, by name or number; there are no folders.

    Args:
        socket: of the agent; None: as of `Agent`.
        app_id: the application; None: the one of the `rostrum` command.
        wait: seconds for an object that is not here yet.
        holders: servers to get it from, if it does not come by itself ("h1,h3"); "*": ask the manager who has it.
        to: servers to which what is written is sent ("h3,h5"); none: it stays here.
    """

    protocol = "rostrum"
    root_marker = ""
    cachable = True

    def __init__(
        self,
        socket: str | None = None,
        app_id: str | None = None,
        wait: float = READ_WAIT_S,
        holders: str | None = None,
        to: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.socket, self.app_id, self.wait_s = socket, app_id, float(wait)
        self.holders, self.to = holders, servers_of(to) if to else []
        self._lock = threading.Lock()
        self._connected: tuple[int, Agent] | None = None

    @property
    def agent(self) -> Agent:
        """A connection of this process (Dask's workers fork, and get this by pickle), again when the agent was away."""
        with self._lock:
            if self._connected is None or self._connected[0] != os.getpid() or self._connected[1].closed:
                self._connected = os.getpid(), Agent(self.socket, self.app_id, process="fsspec")
            return self._connected[1]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        return (text[len("rostrum://") :] if text.startswith("rostrum://") else text).strip("/")

    def _read(self, path: str, wait: float) -> ReadObject:
        name = self._strip_protocol(path)
        try:
            try:
                return self.agent.read(name, wait=0)
            except NotFound:
                if self.holders and wait:
                    return self.agent.fetch(name, [] if self.holders == "*" else self.holders, wait=wait)
                raise
        except RostrumError:
            if wait and not self.holders:
                try:
                    return self.agent.read(name, wait=wait)
                except (NotFound, TimedOut) as late:
                    error = late
            if isinstance(error, NotFound | TimedOut):
                raise FileNotFoundError(f"rostrum://{name}: {error}") from error
            raise OSError(f"rostrum://{name}: {error}") from error

    def _stored(self) -> list[StoredObject]:
        agent = self.agent
        return [row for row in agent.status().objects if row.app == agent.app_id and row.complete]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if not name:
            return {"name": "", "size": 0, "type": "directory"}
        with self._read(path, self.wait_s) as data:
            return {"name": name, "size": data.size, "type": "file", "digest": data.digest}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether it is here, without waiting for it."""
        name = self._strip_protocol(path)
        return not name or any(row.data_id == data_id_of(name) for row in self._stored())

    def isfile(self, path: str) -> bool:
        return bool(self._strip_protocol(path)) and self.exists(path)

    def isdir(self, path: str) -> bool:
        return not self._strip_protocol(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What is here, by number: names are known to the manager only (rostrum objects)."""
        if self._strip_protocol(path):
            found = [self.info(path)]
        else:
            found = [{"name": str(row.data_id), "size": row.size, "type": "file", "digest": row.digest}
                     for row in self._stored()]  # fmt: skip
        return found if detail else [row["name"] for row in found]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """Of an object itself; Arrow and Dask ask so for what belongs to a path."""
        rows = self.ls(path)
        return {row["name"]: row for row in rows} if detail else [row["name"] for row in rows]

    def glob(self, path: str, **options: Any) -> Any:
        """Only of whole names."""
        name = self._strip_protocol(path)
        if any(sign in name for sign in "*?["):
            raise ValueError(f"rostrum://{name}: objects have no list of names to search: name each")
        rows = [self.info(name)]
        return {row["name"]: row for row in rows} if options.get("detail") else [row["name"] for row in rows]

    def ukey(self, path: str) -> str:
        """What Dask tells versions apart by."""
        return str(self.info(path)["digest"])

    checksum = ukey

    def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
        if mode == "rb":
            with self._read(path, self.wait_s) as data:
                return io.BufferedReader(_raw(data.file()), BUFFER)
        if mode in ("wb", "xb"):
            return _Written(self, self._strip_protocol(path))
        raise ValueError(f"mode {mode}: objects are read (rb) or written whole (wb)")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with self._read(path, self.wait_s) as data:
            first, last, _step = slice(start, end).indices(data.size)
            return (
                os.pread(data.fd, max(0, last - first), first) if last - first < 1 << 30 else data.bytes()[first:last]
            )

    def memory(self, path: str) -> ReadObject:
        """The object as memory, without a copy: pyarrow.py_buffer, numpy.frombuffer."""
        return self._read(path, self.wait_s)

    def rm_file(self, path: str) -> None:
        try:
            self.agent.delete(self._strip_protocol(path))
        except NotFound as error:
            raise FileNotFoundError(f"rostrum://{self._strip_protocol(path)}: {error}") from error

    _rm = rm_file

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """There are no folders: nothing is to be made."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """There are no folders: nothing is to be made."""


def _raw(file: BinaryIO) -> Any:
    return file


class _Written(io.FileIO):
    """What is written becomes an object when it is closed without an error."""

    def __init__(self, fs: RostrumFileSystem, name: str) -> None:
        if not name:
            raise ValueError("rostrum:// names no object")
        self._fs, self._name = fs, name
        super().__init__(os.memfd_create("rostrum-fsspec"), "w+b")

    def write(self, data: Any, /) -> int:
        """All of it: a raw file may take a part only."""
        view, total = memoryview(data).cast("B"), 0
        while total < len(view):
            total += super().write(view[total:]) or 0
        return total

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._name:
                if self._fs.to:
                    handle = self._fs.agent.send(self._name, self._fs.to, source=self.fileno())
                    handle.wait().raise_for_failure()
                else:
                    self._fs.agent.add(self._name, self.fileno())
        except RostrumError as error:
            raise OSError(f"rostrum://{self._name}: {error}") from error
        finally:
            super().close()

    def discard(self) -> None:
        self._name = ""
        self.close()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self._name = ""
        self.close()

    def __del__(self) -> None:
        self._name = ""
        super().__del__()
