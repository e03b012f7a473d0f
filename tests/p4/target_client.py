"""A P4Runtime client of plain messages, and a target in this process for it."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_status
from rostrum.lab.p4target.service import Service, serve
from rostrum.lab.p4target.switch import Switch

from tests.p4.target_json import Builder
from tests.p4.target_p4info import p4info

DEVICE = 3
BOUND_S = 60.0
INSERT, MODIFY, DELETE = p4r.Update.Type.INSERT, p4r.Update.Type.MODIFY, p4r.Update.Type.DELETE
REFUSED_MOST = 5  # times in a row that a call is tried again, after a pause
REFUSED_PAUSE_S = 0.05
SetAction = p4r.SetForwardingPipelineConfigRequest.Action


class Failed(Exception):
    """An RPC's error: its code, its text, and the details of a batch as (code, text)."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.code, self.text = error.code().name, error.details()
        self.details: list[tuple[int, str]] = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for packed in rpc_status.Status.FromString(value).details:
                    one = p4r.Error()
                    assert packed.Unpack(one)
                    self.details.append((one.canonical_code, one.message))
        super().__init__(f"{self.code}: {self.text} {self.details or ''}")


class Session:
    """A StreamChannel: what came is in `messages`, its end last, as an error or None."""

    def __init__(self, stub: Any) -> None:
        self._outgoing: queue.Queue[Any] = queue.Queue()
        self.messages: queue.Queue[Any] = queue.Queue()
        self._call = stub.StreamChannel(iter(self._outgoing.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self._call:
                self.messages.put(message)
            self.messages.put(None)
        except grpc.RpcError as error:
            self.messages.put(Failed(error))

    def send(self, **parts: Any) -> None:
        self._outgoing.put(p4r.StreamMessageRequest(**parts))

    def arbitrate(self, election_id: int | None, role: str = "", device: int = DEVICE) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=device)
        if election_id is not None:
            update.election_id.CopyFrom(U128.encode(election_id))
        if role:
            update.role.name = role
        self.send(arbitration=update)

    def next(self, kind: str) -> Any:
        """The next message, which must be of the kind."""
        message = self.messages.get(timeout=BOUND_S)
        assert message is not None and not isinstance(message, Failed), f"the stream ended: {message}"
        assert message.WhichOneof("update") == kind, message
        return getattr(message, kind)

    def told(self) -> tuple[int, int]:
        """Status code and election id of the next arbitration message."""
        update = self.next("arbitration")
        return update.status.code, U128.decode(update.election_id)

    def ended(self) -> Failed | None:
        while True:
            message = self.messages.get(timeout=BOUND_S)
            if message is None or isinstance(message, Failed):
                return message

    def close(self) -> None:
        self._outgoing.put(None)

    def cancel(self) -> None:
        self._call.cancel()


class Client:
    """A controller's connection to a target."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id = 1
        self.session: Session | None = None

    def primary(self) -> Session:
        self.session = Session(self.stub)
        self.session.arbitrate(self.election_id)
        assert self.session.told() == (0, self.election_id)
        return self.session

    def call(self, name: str, request: Any) -> Any:
        for left in range(REFUSED_MOST, -1, -1):
            try:
                return getattr(self.stub, name)(request, timeout=BOUND_S)
            except grpc.RpcError as error:
                # The target never says so itself: the connection did, where the machine was busy (RFC 9113, 8.7).
                if not left or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise Failed(error) from None
                time.sleep(REFUSED_PAUSE_S * 2 ** (REFUSED_MOST - left))
        raise AssertionError

    def push(self, built: Builder, action: int = SetAction.VERIFY_AND_COMMIT, **more: Any) -> None:
        config = p4r.ForwardingPipelineConfig(p4info=more.pop("info", None) or p4info(built))
        config.p4_device_config = built.text.encode()
        config.cookie.cookie = more.pop("cookie", 0)
        self.set_pipeline(action, config, **more)

    def set_pipeline(self, action: int, config: Any = None, **more: Any) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            **{"device_id": DEVICE, "election_id": U128.encode(self.election_id), "action": action, **more}
        )
        if config is not None:
            request.config.CopyFrom(config)
        self.call("SetForwardingPipelineConfig", request)

    def write(self, *updates: tuple[int, Any], **more: Any) -> None:
        """Updates as (type, message of an entity)."""
        request = p4r.WriteRequest(
            **{"device_id": DEVICE, "election_id": U128.encode(self.election_id), **more},
            updates=[p4r.Update(type=kind, entity=entity(message)) for kind, message in updates],
        )
        self.call("Write", request)

    def read(self, *messages: Any) -> list[Any]:
        request = p4r.ReadRequest(device_id=DEVICE, entities=[entity(message) for message in messages])
        try:
            replies = list(self.stub.Read(request, timeout=BOUND_S))
        except grpc.RpcError as error:
            raise Failed(error) from None
        return [getattr(each, each.WhichOneof("entity")) for reply in replies for each in reply.entities]

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        self.channel.close()


class Target(Client):
    """A switch and its service in this process, and a client of it."""

    def __init__(self, address: str, **options: Any) -> None:
        self.switch = Switch(**{key: value for key, value in options.items() if key != "cpu_port"})
        self.service = Service(self.switch, DEVICE, options.get("cpu_port"))
        self.server, _ = serve(self.service, address)
        super().__init__(address)

    def close(self) -> None:
        super().close()
        self.server.stop(0).wait(BOUND_S)
        self.service.close()


def entity(message: Any) -> Any:
    """An Entity of a message, by the message's type."""
    made = p4r.Entity()
    for field in made.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.name == message.DESCRIPTOR.name:
            getattr(made, field.name).CopyFrom(message)
            return made
    assert message.DESCRIPTOR.name in ("MulticastGroupEntry", "CloneSessionEntry")
    kind = "multicast_group_entry" if message.DESCRIPTOR.name == "MulticastGroupEntry" else "clone_session_entry"
    getattr(made.packet_replication_engine_entry, kind).CopyFrom(message)
    return made


@contextlib.contextmanager
def running(folder: Path, **options: Any) -> Iterator[Target]:
    """A target on a unix socket of its own."""
    target = Target(f"unix:{folder / 'p4.sock'}", **options)
    try:
        yield target
    finally:
        target.close()
