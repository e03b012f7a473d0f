"""P4Runtime servers for tests: one in memory that can be told to misbehave, and real programs where they are."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as Packed

DEVICE = 1
STOP_BOUND_S = 5.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Stream:
    """A controller's stream; what is put into `out` is sent."""

    def __init__(self) -> None:
        self.election = 0
        self.out: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()


class FakeServer(p4r_grpc.P4RuntimeServicer):
    """A device in memory, by the P4Runtime specification: elections, entities, direct and indexed counters, digests.

    `refuse`: called with each update; a non-zero code and a text make it fail. `hold`: answers to these calls wait
    until it is set. `writes`: every batch received.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.entities: dict[bytes, p4r.Entity] = {}
        self.counters: dict[tuple[int, int], p4r.CounterData] = {}
        self.direct: dict[bytes, p4r.CounterData] = {}
        self.writes: list[list[p4r.Update]] = []
        self.pushes = 0
        self.acks: list[int] = []
        self.packets: list[p4r.PacketOut] = []
        self.refuse: Callable[[p4r.Update], tuple[int, str]] = lambda _: (0, "")
        self.details: Callable[[list[p4r.Error]], bytes] | None = None
        self.hold: dict[str, asyncio.Event] = {}
        self.garbage: list[p4r.Entity] = []  # told besides what there is
        self.status: dict[int, int] = {}  # election status told instead of the true one
        self._streams: list[_Stream] = []
        self._highest = 0
        self._lists = 0
        self._server: Any = None
        self.tls: Any = None  # grpc's server credentials

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        address = f"127.0.0.1:{self.port}"
        server, tls = self._server, self.tls
        port = server.add_secure_port(address, tls) if tls else server.add_insecure_port(address)
        assert port == self.port
        await self._server.start()

    async def stop(self) -> None:
        """As if it were killed: streams break, nothing is said. What it held is gone."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)
        self.config, self.entities, self._streams, self._highest = None, {}, [], 0

    def digest(self, digest_id: int, *rows: Any) -> None:
        """To the primary."""
        self._lists += 1
        message = p4r.StreamMessageResponse(
            digest=p4r.DigestList(digest_id=digest_id, list_id=self._lists, data=list(rows))
        )
        for stream in self._streams:
            if stream is self._primary():
                stream.out.put_nowait(message)

    def say(self, message: p4r.StreamMessageResponse) -> None:
        """Anything, to everybody."""
        for stream in self._streams:
            stream.out.put_nowait(message)

    # -- calls ---------------------------------------------------------------------------------------------------

    async def StreamChannel(self, requests: Any, context: Any) -> Any:
        stream = _Stream()
        reader = asyncio.create_task(self._listen(requests, stream, context))
        try:
            while True:
                message = asyncio.create_task(stream.out.get())
                await asyncio.wait((message, reader), return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                    break
                yield message.result()
            if reader.exception():
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(reader.exception()))
        finally:
            reader.cancel()
            if stream in self._streams:
                self._streams.remove(stream)
                self._tell()

    async def _listen(self, requests: Any, stream: _Stream, context: Any) -> None:
        async for message in requests:
            if message.WhichOneof("update") == "arbitration":
                election = U128.decode(message.arbitration.election_id)
                if any(other.election == election for other in self._streams if other is not stream):
                    raise ValueError("Election id already exists")
                if message.arbitration.device_id != DEVICE:
                    raise ValueError(f"there is no device {message.arbitration.device_id}")
                stream.election = election
                self._highest = max(self._highest, election)
                if stream not in self._streams:
                    self._streams.append(stream)
                self._tell()
            elif message.WhichOneof("update") == "digest_ack":
                self.acks.append(message.digest_ack.list_id)
            elif message.WhichOneof("update") == "packet":
                self.packets.append(message.packet)

    def _primary(self) -> _Stream | None:
        return next((one for one in self._streams if one.election == self._highest), None)

    def _tell(self) -> None:
        primary = self._primary()
        for stream in self._streams:
            code = rpc_code.OK if stream is primary else rpc_code.ALREADY_EXISTS if primary else rpc_code.NOT_FOUND
            stream.out.put_nowait(
                p4r.StreamMessageResponse(
                    arbitration=p4r.MasterArbitrationUpdate(
                        device_id=DEVICE,
                        election_id=U128.encode(self._highest),
                        status=rpc_status.Status(code=self.status.get(stream.election, code)),
                    )
                )
            )

    async def _begin(self, name: str, context: Any, election: p4r.Uint128 | None = None) -> None:
        if name in self.hold:
            await self.hold[name].wait()
        primary = self._primary()
        if election is not None and (primary is None or primary.election != U128.decode(election)):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "Not primary")

    async def Write(self, request: Any, context: Any) -> Any:
        await self._begin("Write", context, request.election_id)
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
        self.writes.append(list(request.updates))
        errors = [self._update(update) for update in request.updates]
        if any(error.canonical_code for error in errors):
            raw = self.details(errors) if self.details else _details(errors)
            context.set_trailing_metadata((("grpc-status-details-bin", raw),))
            await context.abort(grpc.StatusCode.UNKNOWN, "")
        return p4r.WriteResponse()

    def _update(self, update: p4r.Update) -> p4r.Error:
        code, text = self.refuse(update)
        if code:
            return p4r.Error(canonical_code=code, message=text)
        entity = update.entity
        if entity.HasField("counter_entry"):
            counter = entity.counter_entry
            self.counters[counter.counter_id, counter.index.index] = counter.data
            return p4r.Error()
        key = identity(entity)
        default = entity.table_entry.is_default_action or entity.HasField("meter_entry")  # always there
        if update.type == p4r.Update.INSERT and key in self.entities:
            return p4r.Error(canonical_code=rpc_code.ALREADY_EXISTS, message="Match entry exists, use MODIFY")
        if update.type != p4r.Update.INSERT and key not in self.entities and not default:
            return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="Cannot find match entry")
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
        else:
            self.entities[key] = entity
        return p4r.Error()

    async def Read(self, request: Any, context: Any) -> Any:
        await self._begin("Read", context)
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
        found = [one for question in request.entities for one in self._answer(question)]
        yield p4r.ReadResponse(entities=[*found, *self.garbage])

    def _answer(self, question: p4r.Entity) -> list[p4r.Entity]:
        match question.WhichOneof("entity"):
            case "counter_entry":
                counter = question.counter_entry
                data = self.counters.get((counter.counter_id, counter.index.index), p4r.CounterData())
                return [p4r.Entity(counter_entry=p4r.CounterEntry(
                    counter_id=counter.counter_id, index=counter.index, data=data))]  # fmt: skip
            case "direct_counter_entry":
                entry = question.direct_counter_entry.table_entry
                data = self.direct.get(identity(p4r.Entity(table_entry=entry)), p4r.CounterData())
                return [p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry, data=data))]
            case "table_entry":
                wanted = question.table_entry.table_id
                rows = [one for one in self.entities.values() if one.HasField("table_entry")]
                return [
                    one for one in rows if one.table_entry.table_id == wanted and not one.table_entry.is_default_action
                ]
            case kind:
                return [one for one in self.entities.values() if one.WhichOneof("entity") == kind]

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        await self._begin("SetForwardingPipelineConfig", context, request.election_id)
        assert request.action == p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        self.config, self.entities, self.counters = request.config, {}, {}
        self.pushes += 1
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        await self._begin("GetForwardingPipelineConfig", context)
        if self.config is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device."
            )
        assert self.config is not None
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(cookie=self.config.cookie))


def identity(entity: p4r.Entity) -> bytes:
    """An entity without what an update can change."""
    bare = p4r.Entity()
    bare.CopyFrom(entity)
    if bare.HasField("table_entry"):
        bare.table_entry.ClearField("action")
        matches = sorted(bare.table_entry.match, key=lambda one: one.field_id)
        del bare.table_entry.match[:]
        bare.table_entry.match.extend(matches)
    elif bare.HasField("packet_replication_engine_entry"):
        bare.packet_replication_engine_entry.multicast_group_entry.ClearField("replicas")
    elif bare.HasField("digest_entry"):
        bare.digest_entry.ClearField("config")
    elif bare.HasField("meter_entry"):
        bare.meter_entry.ClearField("config")
    return bare.SerializeToString(deterministic=True)


def _details(errors: list[p4r.Error]) -> bytes:
    status = rpc_status.Status(code=rpc_code.UNKNOWN)
    for error in errors:
        packed = Packed()
        packed.Pack(error)
        status.details.append(packed)
    return status.SerializeToString()


class ProgramServer:
    """A program that takes simple_switch_grpc's options, in a process of its own, without ports."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self.port = free_port()
        self._argv, self._log = argv, log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        options = ["--no-p4", "--device-id", str(DEVICE), "--thrift-port", str(free_port()), "--log-level", "warn"]
        options += ["--", "--grpc-server-addr", f"127.0.0.1:{self.port}", "--priority-queues", "8", "--cpu-port", "510"]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, *options, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait_for(process.wait(), STOP_BOUND_S)


Server = FakeServer | ProgramServer


def reference_argv() -> list[str]:
    return [sys.executable, "-m", "rostrum.lab.p4target"]


def bmv2_argv() -> list[str]:
    """Empty if it is not installed."""
    program = shutil.which("simple_switch_grpc")
    return [program] if program else []
