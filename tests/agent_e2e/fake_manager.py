"""A scriptable manager for agents' tests: speaks controller/rostrum.thrift, grants groups, writes down all it hears.

It sets no switch and no circuit: the groups it grants must reach the receivers by themselves (loopback, a bridge).
Framing and connection handling are its own, apart from the real manager's, so that the agent meets two of them.

As a program it prints every call as a JSON line::

    python fake_manager.py --listen 10.0.0.9:9090 --servers h1=10.0.0.1,h2=10.0.0.2:7071 --accept-bytes 1000000

In a test::

    with running(FakeManager({"h1": ("10.0.0.1", 7071)})) as manager:
        manager.answer = lambda request: Answer(deny="no splitter free")
        ...
        manager.wait_for(lambda calls: any(c.name == "release" for c in calls), "a release")
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import itertools
import json
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftpy2
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

IDL = Path(__file__).resolve().parents[2] / "controller" / "rostrum.thrift"
rostrum_thrift: Any = thriftpy2.load(str(IDL), module_name="fake_manager_thrift")
FRAME_MAX = 1 << 20


@dataclass
class Answer:
    """What to say to one request, and when (from its arrival, or from the step before). Times in seconds."""

    delay_s: float = 0.0
    queued: list[str] = field(default_factory=list)
    """Reasons of QUEUED responses, `delay_s` apart, before the final one."""
    silent: bool = False
    """Say nothing more after those."""
    deny: str | None = None
    accept_bytes: int | None = None
    """Partial acceptance: at most this many bytes."""
    serve: int | None = None
    """Accept for so many of the receivers only, the first named."""
    kind: str = "circuit"
    protocol: str | None = None
    """None: not said, which is Republic."""
    reason: str = ""
    reconfiguration_ms: float = 0.0
    rate_bps: int = 1_000_000_000
    lease_ms: int = 3000
    light_bound_ms: int = 500
    moved_after_s: float | None = None
    moved_kind: str = "packet"
    moved_reason: str = "cross-connect in FAULT"
    failed_after_s: float | None = None
    failed_reason: str = "the path is gone"


@dataclass(frozen=True)
class Call:
    """One call an agent made: `args` are plain values (dicts, lists, bytes)."""

    at: float
    server: str
    name: str
    args: dict[str, Any]


def plain(value: Any) -> Any:
    """A Thrift struct as a dict, all the way down."""
    if hasattr(value, "thrift_spec"):
        names = [spec[1] for _, spec in sorted(value.thrift_spec.items())]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value


def encode(service: str, name: str, **args: Any) -> bytes:
    """A oneway call of the service as a frame, length prefix included."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.write_message_begin(name, TMessageType.ONEWAY, 0)
    protocol.write_struct(getattr(getattr(rostrum_thrift, service), f"{name}_args")(**args))
    protocol.write_message_end()
    body = buffer.getvalue()
    return struct.pack(">I", len(body)) + body


def decode(service: str, frame: bytes) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call of the service; raises on anything else."""
    protocol = TBinaryProtocol(TMemoryBuffer(frame))
    name, _type, _sequence = protocol.read_message_begin()
    if name not in getattr(rostrum_thrift, service).thrift_services:
        raise ValueError(f"unknown call {name!r}")
    args = getattr(getattr(rostrum_thrift, service), f"{name}_args")()
    protocol.read_struct(args)
    return name, plain(args)


@dataclass
class GrantedPath:
    """A path granted and not released."""

    request_id: str
    response_id: str
    group: str
    server: str


class FakeManager:
    """`servers`: name -> (address, control port).

    Attributes:
        answer: scripts what a request (as a dict) gets.
        calls: every call heard, in order.
        paths: live paths by response id.
        welcome: False to say nothing to hello.
        refuse: a reason to answer hello with goodbye.
    """

    def __init__(
        self,
        servers: dict[str, tuple[str, int]],
        listen: tuple[str, int] = ("127.0.0.1", 0),
        *,
        data_port: int = 7070,
        groups: str = "239.192.1.0/24",
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        self.servers = servers
        self.listen = listen
        self.data_port = data_port
        self.answer: Callable[[dict[str, Any]], Answer] = lambda request: Answer()
        self.welcome = True
        self.stopped = False  # keepalives are not answered
        self.refuse: str | None = None
        self.calls: list[Call] = []
        self.paths: dict[str, GrantedPath] = {}
        self.on_call = on_call
        self._groups = [str(address) for address in ipaddress.ip_network(groups).hosts()]
        self._numbers = itertools.count(1)
        self._last_response: dict[str, Any] = {}
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._jobs: dict[asyncio.Task[None], str] = {}
        self._server: asyncio.Server | None = None
        self._heard = threading.Condition()
        self.loop: asyncio.AbstractEventLoop | None = None

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens; the port chosen is in `listen` afterwards. May be called again after `stop`: a manager's restart."""
        self.loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, *self.listen)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.listen = (host, port)

    async def stop(self) -> None:
        """Stops listening and drops every agent, as a manager that is killed does. Live paths stay known."""
        for job in list(self._jobs):
            job.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop_agents()

    def drop_agents(self) -> None:
        """Breaks every connection."""
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = "?"
        self._writers.add(writer)
        try:
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                if not 0 < length <= FRAME_MAX:
                    raise ValueError(f"frame of {length} bytes")
                name, args = decode("Manager", await reader.readexactly(length))
                if name == "hello":
                    server = args["info"]["server"]
                    self._connections[server] = writer
                self._write_down(Call(time.monotonic(), server, name, args))
                self._handle(server, name, args)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:
            self._write_down(Call(time.monotonic(), server, "garbage", {"error": repr(error)}))
        finally:
            self._writers.discard(writer)
            if self._connections.get(server) is writer:
                del self._connections[server]
            writer.close()

    # -- what it says --------------------------------------------------------------------------------------------

    def say(self, server: str, name: str, **args: Any) -> bool:
        """Calls the agent of the server; False if it is not connected. On the manager's own loop only."""
        writer = self._connections.get(server)
        if writer is None or writer.is_closing():
            return False
        writer.write(encode("Agent", name, **args))
        return True

    def say_raw(self, data: bytes) -> None:
        """Bytes as they are to every agent. On the manager's own loop only."""
        for writer in self._connections.values():
            writer.write(data)

    def moved(self, response_id: str, kind: str, reason: str) -> bool:
        """The path changes its kind ("circuit" or "packet")."""
        path = self.paths[response_id]
        return self.say(path.server, "moved", response_id=response_id, kind=self._kind(kind), reason=reason)

    def failed(self, response_id: str, reason: str) -> bool:
        """The path is gone."""
        path = self.paths.pop(response_id)
        return self.say(path.server, "failed", response_id=response_id, reason=reason)

    def goodbye(self, server: str, reason: str) -> bool:
        """Refuses the agent and closes."""
        said = self.say(server, "goodbye", reason=reason)
        if said:
            self._connections[server].close()
        return said

    @staticmethod
    def _kind(kind: str) -> int:
        return int(getattr(rostrum_thrift.PathKind, kind.upper()))

    # -- what it hears -------------------------------------------------------------------------------------------

    def _write_down(self, call: Call) -> None:
        with self._heard:
            self.calls.append(call)
            self._heard.notify_all()
        if self.on_call:
            self.on_call(call)

    def _handle(self, server: str, name: str, args: dict[str, Any]) -> None:
        if name == "hello":
            for live in args["info"]["live_paths"]:
                path = GrantedPath(live["request_id"], live["response_id"], live["group"], server)
                self.paths.setdefault(path.response_id, path)
            if self.refuse is not None:
                self.goodbye(server, self.refuse)
            elif self.welcome:
                self.say(server, "welcome", manager="fake", manager_boot_id=1)
        elif name == "request":
            self._start(server, args["request"])
        elif name == "keepalive" and not self.stopped:
            self.say(server, "alive")
        elif name == "release":
            self.paths.pop(args["response_id"], None)
        elif name == "cancel":
            for job, request_id in list(self._jobs.items()):
                if request_id == args["request_id"]:
                    job.cancel()

    def _start(self, server: str, request: dict[str, Any]) -> None:
        request_id = request["request_id"]
        if request_id in self._last_response:
            self.say(server, "response", response=self._last_response[request_id])
            return
        if request_id in self._jobs.values():
            return
        job = asyncio.get_running_loop().create_task(self._respond(server, request))
        self._jobs[job] = request_id
        job.add_done_callback(lambda done: self._jobs.pop(done, None))

    async def _respond(self, server: str, request: dict[str, Any]) -> None:
        answer = self.answer(request)
        request_id = request["request_id"]
        decision = rostrum_thrift.Decision

        def respond(**fields: Any) -> None:
            response = rostrum_thrift.PathResponse(request_id=request_id, **fields)
            if fields["decision"] != decision.QUEUED:
                self._last_response[request_id] = response
            self.say(server, "response", response=response)

        for reason in answer.queued:
            await asyncio.sleep(answer.delay_s)
            respond(response_id="", decision=decision.QUEUED, reason=reason)
        await asyncio.sleep(answer.delay_s)
        if answer.silent:
            return
        unknown = [name for name in request["receivers"] if name not in self.servers]
        if unknown and answer.deny is None:
            answer.deny = f"unknown receivers: {', '.join(unknown)}"
        if answer.deny is not None:
            respond(response_id="", decision=decision.DENIED, reason=answer.deny)
            return
        path = self._grant(server, request_id)
        respond(**self._granted(path, request, answer))
        await self._afterwards(path, answer)

    def _grant(self, server: str, request_id: str) -> GrantedPath:
        number = next(self._numbers)
        used = {path.group for path in self.paths.values()}
        group = next(group for group in self._groups if group not in used)
        path = GrantedPath(request_id, f"path-{number}", group, server)
        self.paths[path.response_id] = path
        return path

    def _granted(self, path: GrantedPath, request: dict[str, Any], answer: Answer) -> dict[str, Any]:
        remaining = request["remaining_size"]
        addresses = [
            rostrum_thrift.ServerAddress(server=name, address=self.servers[name][0], control_port=self.servers[name][1])
            for name in request["receivers"][: answer.serve]
        ]
        return {
            "response_id": path.response_id,
            "decision": rostrum_thrift.Decision.ACCEPTED,
            "reason": answer.reason,
            "accepted_size": remaining if answer.accept_bytes is None else min(remaining, answer.accept_bytes),
            "kind": self._kind(answer.kind),
            "group": path.group,
            "data_port": self.data_port,
            "reconfiguration_ns": int(answer.reconfiguration_ms * 1e6),
            "rate_bps": answer.rate_bps,
            "lease_ms": answer.lease_ms,
            "light_bound_ms": answer.light_bound_ms,
            "receivers": addresses,
            "protocol": answer.protocol and getattr(rostrum_thrift.Protocol, answer.protocol.upper()),
        }

    async def _afterwards(self, path: GrantedPath, answer: Answer) -> None:
        if answer.moved_after_s is not None:
            await asyncio.sleep(answer.moved_after_s)
            if path.response_id in self.paths:
                self.moved(path.response_id, answer.moved_kind, answer.moved_reason)
        if answer.failed_after_s is not None:
            await asyncio.sleep(answer.failed_after_s)
            if path.response_id in self.paths:
                self.failed(path.response_id, answer.failed_reason)

    # -- for tests -----------------------------------------------------------------------------------------------

    def heard(self, name: str, server: str | None = None) -> list[Call]:
        """The calls of that name so far."""
        with self._heard:
            return [call for call in self.calls if call.name == name and server in (None, call.server)]

    def wait_for(self, condition: Callable[[list[Call]], bool], what: str, timeout_s: float = 60.0) -> None:
        """Waits, from another thread than the manager's, until the calls fulfil the condition.

        Raises:
            TimeoutError: with `what` was waited for and the last calls.
        """
        with self._heard:
            if not self._heard.wait_for(lambda: condition(self.calls), timeout_s):
                last = [f"{call.server}.{call.name}" for call in self.calls[-8:]]
                raise TimeoutError(f"no {what} in {timeout_s} s; the last calls: {last}")


@contextlib.contextmanager
def running(manager: FakeManager) -> Iterator[FakeManager]:
    """The manager on a loop of its own in a thread; `on_loop` reaches it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-manager", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(manager.start(), loop).result(10)
        yield manager
    finally:
        asyncio.run_coroutine_threadsafe(manager.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def on_loop(manager: FakeManager, call: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Runs `call` on the manager's loop (a coroutine it returns is awaited) and gives its result."""

    async def run() -> Any:
        result = call()
        return await result if asyncio.iscoroutine(result) else result

    assert manager.loop is not None, "the manager was not started"
    return asyncio.run_coroutine_threadsafe(run(), manager.loop).result(timeout_s)


# -- as a program --------------------------------------------------------------------------------------------------


def parse_servers(text: str, control_port: int) -> dict[str, tuple[str, int]]:
    """ "h1=10.0.0.1,h2=10.0.0.2:7072" -> {"h1": ("10.0.0.1", control_port), "h2": ("10.0.0.2", 7072)}"""
    servers = {}
    for entry in filter(None, text.split(",")):
        name, _, where = entry.partition("=")
        address, _, port = where.partition(":")
        servers[name] = (str(ipaddress.IPv4Address(address)), int(port) if port else control_port)
    return servers


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The program's options."""
    parser = argparse.ArgumentParser(description="A scriptable manager for agents' tests; prints every call as JSON.")
    parser.add_argument("--listen", default="127.0.0.1:9090", help="ADDRESS:PORT")
    parser.add_argument("--servers", required=True, help="NAME=ADDRESS[:CONTROL_PORT],...")
    parser.add_argument("--control-port", type=int, default=7071)
    parser.add_argument("--data-port", type=int, default=7070)
    parser.add_argument("--groups", default="239.192.1.0/24")
    parser.add_argument("--kind", choices=["circuit", "packet"], default="circuit")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--queued", action="append", default=[], help="answer QUEUED with this reason first")
    parser.add_argument("--deny", help="deny every request with this reason")
    parser.add_argument("--accept-bytes", type=int, help="partial acceptance")
    parser.add_argument("--reconfiguration-ms", type=float, default=0.0)
    parser.add_argument("--rate-bps", type=int, default=1_000_000_000)
    parser.add_argument("--lease-ms", type=int, default=3000)
    parser.add_argument("--light-bound-ms", type=int, default=500)
    parser.add_argument("--moved-after-ms", type=float)
    parser.add_argument("--failed-after-ms", type=float)
    return parser.parse_args(arguments)


def answer_of(options: argparse.Namespace) -> Answer:
    """The answer the program's options describe."""
    return Answer(
        delay_s=options.delay_ms / 1e3,
        queued=list(options.queued),
        deny=options.deny,
        accept_bytes=options.accept_bytes,
        kind=options.kind,
        reconfiguration_ms=options.reconfiguration_ms,
        rate_bps=options.rate_bps,
        lease_ms=options.lease_ms,
        light_bound_ms=options.light_bound_ms,
        moved_after_s=None if options.moved_after_ms is None else options.moved_after_ms / 1e3,
        failed_after_s=None if options.failed_after_ms is None else options.failed_after_ms / 1e3,
    )


async def serve(options: argparse.Namespace) -> None:
    """Runs until SIGTERM or SIGINT."""
    address, _, port = options.listen.rpartition(":")

    def show(call: Call) -> None:
        line = {"at": round(call.at, 6), "server": call.server, "call": call.name, **call.args}
        print(
            json.dumps(line, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)), flush=True
        )

    servers = parse_servers(options.servers, options.control_port)
    manager = FakeManager(
        servers, (address, int(port)), data_port=options.data_port, groups=options.groups, on_call=show
    )
    manager.answer = lambda request: answer_of(options)
    await manager.start()
    print(json.dumps({"listening": f"{manager.listen[0]}:{manager.listen[1]}"}), flush=True)
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    await done.wait()
    await manager.stop()


if __name__ == "__main__":
    asyncio.run(serve(parse_arguments(sys.argv[1:])))
