"""The P4Runtime service of a switch, over gRPC.

Every request runs in a thread of gRPC's. `_requests` serializes them; what they change in the switch they change under
the switch's own lock, update by update, between packets.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_status
from rostrum.lab.p4target.arbitration import STREAMS_MAX, Arbitration, Stream
from rostrum.lab.p4target.array_entries import ArrayEntries
from rostrum.lab.p4target.digests import Digests
from rostrum.lab.p4target.info import Info
from rostrum.lab.p4target.packet_io import from_controller, to_controller
from rostrum.lab.p4target.pipeline import Pipeline
from rostrum.lab.p4target.program import ProgramError, load_program
from rostrum.lab.p4target.replication_entries import ReplicationEntries
from rostrum.lab.p4target.status import Code, Refused, denied, invalid, missing, too_early, unsupported
from rostrum.lab.p4target.switch import Switch
from rostrum.lab.p4target.table_entries import TableEntries

log = logging.getLogger("p4target")

API_VERSION = "1.5.0"
MESSAGE_BYTES_MAX = 64 << 20
STREAM_MESSAGES_MAX = 4096  # to a controller that does not read
READ_ENTITIES = 512  # in one ReadResponse
THREADS = 4 * STREAMS_MAX
STATUS = {code.value[0]: code for code in grpc.StatusCode}
Action = p4r.SetForwardingPipelineConfigRequest.Action
Answer = p4r.GetForwardingPipelineConfigRequest.ResponseType


class Configuration:
    """A pipeline with its p4info: everything that requests for it need."""

    def __init__(self, config: Any, pipeline: Pipeline, service: Service) -> None:
        self.config, self.pipeline = config, pipeline
        self.info = info = Info(config.p4info, pipeline)
        self.digests = Digests(info, service.send_digest, service.wake)
        self.replication = replication = ReplicationEntries()
        tables, arrays = TableEntries(info), ArrayEntries(info)
        self.handlers: dict[str, tuple[Callable[[int, Any], None], Callable[[Any], Iterator[Any]]]] = {
            "table_entry": (tables.write, tables.read),
            "direct_counter_entry": (tables.write_direct_counter, tables.read_direct_counter),
            "direct_meter_entry": (tables.write_direct_meter, tables.read_direct_meter),
            "counter_entry": (arrays.write_counter, arrays.read_counter),
            "meter_entry": (arrays.write_meter, arrays.read_meter),
            "register_entry": (arrays.write_register, arrays.read_register),
            "packet_replication_engine_entry": (replication.write, replication.read),
            "digest_entry": (self.digests.write, self.digests.read),
        }

    def handler(self, entity: Any) -> tuple[Any, tuple[Callable[[int, Any], None], Callable[[Any], Iterator[Any]]]]:
        """The entity's message and what writes and reads such."""
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise invalid("an entity is empty")
        if kind not in self.handlers:
            raise unsupported(f"{kind} is not supported")
        return getattr(entity, kind), self.handlers[kind]


class Service(p4r_grpc.P4RuntimeServicer):
    def __init__(self, switch: Switch, device_id: int, cpu_port: int | None = None) -> None:
        self.switch, self.device_id, self.cpu_port = switch, device_id, cpu_port
        self.active: Configuration | None = None
        self._saved: Configuration | None = None
        self._requests = threading.RLock()
        self._arbitration = Arbitration(device_id, self._primary_changed)
        self._timer = threading.Condition()
        self._woken = self._closed = False
        switch.on_digest = self._learn
        if cpu_port is not None:
            switch.add_port(cpu_port, self._packet_in)
        threading.Thread(target=self._tick, name="p4target digests", daemon=True).start()

    def close(self) -> None:
        with self._timer:
            self._closed = True
            self._timer.notify()

    # -- unary calls --------------------------------------------------------------------------------------------

    def Capabilities(self, request: Any, context: Any) -> Any:
        if request.device_id not in (0, self.device_id):
            abort(context, missing(f"there is no device {request.device_id}"))
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        with self._requests:
            try:
                self._check_writer(request)
                self._set_pipeline(request)
            except Refused as refused:
                log.info("pipeline refused: %s", refused.text)
                abort(context, refused)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        with self._requests:
            if request.device_id != self.device_id:
                abort(context, missing(f"there is no device {request.device_id}"))
            response = p4r.GetForwardingPipelineConfigResponse()
            if self.active is None:
                return response
            config, wanted = self.active.config, request.response_type
            if config.HasField("cookie"):
                response.config.cookie.CopyFrom(config.cookie)
            if wanted in (Answer.ALL, Answer.P4INFO_AND_COOKIE):
                response.config.p4info.CopyFrom(config.p4info)
            if wanted in (Answer.ALL, Answer.DEVICE_CONFIG_AND_COOKIE):
                response.config.p4_device_config = config.p4_device_config
            return response

    def Write(self, request: Any, context: Any) -> Any:
        with self._requests:
            try:
                self._check_writer(request)
                active = self._pipeline()
                if request.atomicity != p4r.WriteRequest.Atomicity.CONTINUE_ON_ERROR:
                    raise unsupported("the only atomicity is CONTINUE_ON_ERROR")
            except Refused as refused:
                abort(context, refused)
            errors = [self._update(active, update) for update in request.updates]
        if any(error is not None for error in errors):
            abort_batch(context, errors, "write")
        return p4r.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        errors: list[Refused | None] = []
        answers: list[list[Any]] = []
        with self._requests:
            try:
                if request.device_id != self.device_id:
                    raise missing(f"there is no device {request.device_id}")
                active = self._pipeline()
            except Refused as refused:
                abort(context, refused)
            for entity in request.entities:
                try:
                    message, (_, read) = active.handler(entity)
                    with self.switch.lock:
                        answers.append(list(read(message)))
                    errors.append(None)
                except Refused as refused:
                    errors.append(refused.with_traceback(None))
        for found in answers:
            for start in range(0, len(found), READ_ENTITIES):
                yield p4r.ReadResponse(entities=found[start : start + READ_ENTITIES])
        if any(error is not None for error in errors):
            abort_batch(context, errors, "read")

    # -- parts of them --------------------------------------------------------------------------------------------

    def _check_writer(self, request: Any) -> None:
        role = request.role or (str(request.role_id) if request.role_id else "")
        if request.device_id != self.device_id:
            raise missing(f"there is no device {request.device_id}, this is {self.device_id}")
        if not self._arbitration.knows(role):
            raise missing(f"there is no role {role!r}")
        if not self._arbitration.is_primary(role, U128.decode(request.election_id)):
            raise denied("only the primary controller writes; this election id is not the primary's")

    def _pipeline(self) -> Configuration:
        current = self._saved or self.active
        if current is None:
            raise too_early("no forwarding pipeline is set")
        return current

    def _update(self, active: Configuration, update: Any) -> Refused | None:
        try:
            if update.type not in (p4r.Update.Type.INSERT, p4r.Update.Type.MODIFY, p4r.Update.Type.DELETE):
                raise invalid("an update is an INSERT, a MODIFY or a DELETE")
            message, (write, _) = active.handler(update.entity)
            with self.switch.lock:
                write(update.type, message)
        except Refused as refused:
            return refused.with_traceback(None)  # which leads to the call, and with it to the connection's stream
        return None

    def _set_pipeline(self, request: Any) -> None:
        action = request.action
        if action == Action.COMMIT:
            if request.HasField("config"):
                raise invalid("COMMIT comes without a config")
            if self._saved is None:
                raise missing("no config is saved")
            self._commit(self._saved)
            return
        if action == Action.RECONCILE_AND_COMMIT and self._same(request):
            return
        if action not in (Action.VERIFY, Action.VERIFY_AND_SAVE, Action.VERIFY_AND_COMMIT):
            raise unsupported("of another program the state cannot be kept") if action else invalid("no action is set")
        if not request.HasField("config"):
            raise invalid("a config is needed")
        made = self.prepare(request.config)
        if action == Action.VERIFY_AND_SAVE:
            self._saved = made
        elif action == Action.VERIFY_AND_COMMIT:
            self._commit(made)

    def _same(self, request: Any) -> bool:
        """Reconciling with what runs already is done before it begins."""
        if self.active is None or self._saved is not None:
            return False
        ours, theirs = self.active.config, request.config
        return bool(ours.p4info == theirs.p4info and ours.p4_device_config == theirs.p4_device_config)

    def prepare(self, config: Any) -> Configuration:
        """A configuration that could be committed."""
        try:
            pipeline = self.switch.compile(load_program(config.p4_device_config))
            return Configuration(type(config).FromString(config.SerializeToString()), pipeline, self)
        except ProgramError as error:
            raise invalid(f"this target cannot run the program: {error}") from error

    def _commit(self, made: Configuration) -> None:
        with self.switch.lock:
            self.switch.commit(made.pipeline, made.replication.groups, made.replication.backups)
        self.active, self._saved = made, None
        log.info("a pipeline was committed: %d tables", len(made.pipeline.tables))

    def load(self, config: Any) -> None:
        """A pipeline from the command line."""
        self._commit(self.prepare(config))

    # -- streams ------------------------------------------------------------------------------------------------

    def StreamChannel(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        outgoing: queue.Queue[Any] = queue.Queue(STREAM_MESSAGES_MAX)

        def send(message: Any) -> bool:
            try:
                outgoing.put_nowait(message)
            except queue.Full:
                return False
            return True

        stream = Stream(send)
        reader = threading.Thread(target=self._read_stream, args=(stream, requests, outgoing), daemon=True)
        context.add_callback(lambda: self._end(stream, outgoing))
        reader.start()
        while True:
            message = outgoing.get()
            if message is None:
                return
            if isinstance(message, Refused):
                abort(context, message)
            yield message

    def _end(self, stream: Stream, outgoing: queue.Queue[Any]) -> None:
        with self._requests:
            self._arbitration.leave(stream)
        finish(outgoing, None)

    def _read_stream(self, stream: Stream, requests: Iterator[Any], outgoing: queue.Queue[Any]) -> None:
        end: Refused | None = None
        try:
            for request in requests:
                with self._requests:
                    self._stream_message(stream, request)
        except Refused as refused:
            end = refused
        except Exception as error:  # whatever gRPC raises when a stream breaks
            log.debug("a controller's stream ended: %r", error)
        with self._requests:
            self._arbitration.leave(stream)
        finish(outgoing, end)

    def _stream_message(self, stream: Stream, request: Any) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitration.update(stream, request.arbitration)
            return
        error = p4r.StreamError()
        try:
            if not self._arbitration.is_primary_stream(stream):
                raise denied("only the primary controller sends packets and acknowledgements")
            if kind == "packet":
                error.packet_out.packet_out.CopyFrom(request.packet)
                self._packet_out(request.packet)
            elif kind == "digest_ack":
                error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
                self._pipeline().digests.acknowledge(request.digest_ack)
            else:
                error.other.SetInParent()
                raise unsupported(f"stream messages of kind {kind}")
        except Refused as refused:
            error.canonical_code, error.message = refused.code, refused.text
            stream.send(p4r.StreamMessageResponse(error=error))

    def _packet_out(self, packet: Any) -> None:
        active = self._pipeline()
        if self.cpu_port is None:
            raise too_early("this target was started without a CPU port")
        frame = from_controller(active.info.packet_out, packet)
        with self.switch.lock:
            self.switch.receive(self.cpu_port, frame)

    def _packet_in(self, frame: bytes) -> bool:
        """What the program sends to the CPU port. Without a reader it is lost; the port is never busy."""
        active = self.active
        packet = to_controller(active.info.packet_in, frame) if active is not None else None
        if packet is not None:
            for stream in self._arbitration.primaries():
                stream.send(p4r.StreamMessageResponse(packet=packet))
        return True

    # -- digests --------------------------------------------------------------------------------------------------

    def _learn(self, number: int, values: tuple[int, ...]) -> None:
        active = self.active
        if active is not None:
            active.digests.learn(number, values)

    def send_digest(self, digest: Any) -> bool:
        sent = [stream.send(p4r.StreamMessageResponse(digest=digest)) for stream in self._arbitration.primaries()]
        return any(sent)

    def _primary_changed(self) -> None:
        if self.active is not None:
            self.active.digests.forget()

    def wake(self) -> None:
        with self._timer:
            self._woken = True
            self._timer.notify()

    def _tick(self) -> None:
        """Digest lists that are due, and acknowledgements that are overdue."""
        while True:
            active = self.active
            deadline = active.digests.deadline() if active is not None else None
            with self._timer:
                if self._closed:
                    return
                wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._woken:
                    self._timer.wait(wait_s)
                self._woken = False
                if self._closed:
                    return
            if active is not None:
                active.digests.tick()


def finish(outgoing: queue.Queue[Any], last: Refused | None) -> None:
    """The last of a stream; room for it is made if there is none."""
    while True:
        try:
            outgoing.put_nowait(last)
            return
        except queue.Full:
            try:
                outgoing.get_nowait()
            except queue.Empty:
                continue


def abort(context: Any, refused: Refused) -> None:
    context.abort(STATUS[refused.code], refused.text)


def abort_batch(context: Any, errors: list[Refused | None], what: str) -> None:
    """UNKNOWN, with a p4.v1.Error for every element of the batch (specification, chapter 10)."""
    first = next(error for error in errors if error is not None)
    count = sum(error is not None for error in errors)
    text = f"{count} of {len(errors)} {what}s failed; the first: {first.text}"
    status = rpc_status.Status(code=Code.UNKNOWN, message=text)
    for error in errors:
        detail = status.details.add()
        if error is None:
            detail.Pack(p4r.Error(canonical_code=Code.OK))
        else:
            detail.Pack(p4r.Error(canonical_code=error.code, message=error.text, space="rostrum-p4target"))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, text)


def serve(service: Service, address: str, credentials: grpc.ServerCredentials | None = None) -> tuple[grpc.Server, int]:
    """Starts to serve at an address in gRPC's notation, by TLS with `credentials`; the server and its TCP
    port (0 on a unix socket).
    """
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", 2 * STREAMS_MAX),
    ]
    server = grpc.server(ThreadPoolExecutor(THREADS, thread_name_prefix="p4runtime"), options=options)
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"{address}: {error}") from error
    server.start()
    return server, port
