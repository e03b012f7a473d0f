"""A small P4Runtime client for the vectors: one primary controller, synchronous, names by p4info.

It is not the manager's southbound, so that a target is judged by a second opinion.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from finsy import P4CounterEntry, P4DigestEntry, P4DirectCounterEntry, P4Schema, P4TableEntry
from finsy.p4entity import P4DigestList, P4PacketIn, P4PacketOut, decode_entity, encode_entities, encode_updates
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

CALL_S = 20.0
DIGEST = "first_light_t"


class Refused(Exception):
    """A target did not do what was written; the text says which updates, and what it answered."""


def said(error: Any, updates: Sequence[Any]) -> str:
    fields = [f"{error.code().name}: {error.details()}"]
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for update, packed in zip(updates, rpc_status.Status.FromString(value).details, strict=False):
                one = p4r.Error()
                if packed.Unpack(one) and one.canonical_code:
                    fields.append(f"{one.canonical_code} {one.message} (code {one.code}): {update}")
    return "\n".join(fields)


class Control:
    """A connection to a target that listens on `address` (gRPC's notation). Digests are acknowledged as they come."""

    def __init__(self, address: str, device_id: int, info: Path, program: Path) -> None:
        self.schema = P4Schema(info, program)
        self.device_id = device_id
        self.election_id = U128.encode(1)
        self.digests: queue.Queue[Any] = queue.Queue()
        self.packets: queue.Queue[P4PacketIn] = queue.Queue()
        self._outgoing: queue.Queue[Any] = queue.Queue()
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._primary = threading.Event()
        self._said = ""
        self._reader: threading.Thread | None = None

    def connect(self) -> None:
        """Waits for the target, becomes primary."""
        grpc.channel_ready_future(self._channel).result(timeout=CALL_S)
        arbitration = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=self.election_id)
        self._outgoing.put(p4r.StreamMessageRequest(arbitration=arbitration))
        stream = self._stub.StreamChannel(iter(self._outgoing.get, None))
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()
        assert self._primary.wait(CALL_S), f"the target does not make us primary: {self._said or 'it says nothing'}"

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()
        if self._reader is not None:
            self._reader.join(CALL_S)

    def push(self) -> None:
        """Loads the program; tables, counters and registers begin empty."""
        config = p4r.ForwardingPipelineConfig(p4info=self.schema.p4info, p4_device_config=self.schema.p4blob)
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.device_id,
                election_id=self.election_id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            ),
            timeout=CALL_S,
        )
        self.write([+P4DigestEntry(DIGEST, max_list_size=1, max_timeout_ns=0, ack_timeout_ns=1_000_000_000)])

    def write(self, updates: Iterable[Any]) -> None:
        """Updates (+insert, -delete, ~modify; plain is refused) in one request. Raises Refused."""
        encoded = encode_updates(updates, self.schema)
        if not encoded:
            return
        request = p4r.WriteRequest(device_id=self.device_id, election_id=self.election_id, updates=encoded)
        try:
            self._stub.Write(request, timeout=CALL_S)
        except grpc.RpcError as error:
            raise Refused(said(error, encoded)) from None

    def read(self, *entities: Any) -> Iterator[Any]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=encode_entities(entities, self.schema))
        for reply in self._stub.Read(request, timeout=CALL_S):
            for entity in reply.entities:
                yield decode_entity(entity, self.schema)

    def send(self, port: int, frame: bytes) -> None:
        """Packet-out."""
        self._outgoing.put(P4PacketOut(frame, egress_port=port, padding=0).encode_update(self.schema))

    def counter(self, name: str) -> dict[int, tuple[int, int]]:
        """Index -> (packets, bytes), those that counted something."""
        entries = self.read(P4CounterEntry(name))
        return {e.index or 0: (e.packet_count, e.byte_count) for e in entries if e.packet_count or e.byte_count}

    def counter_at(self, name: str, index: int) -> tuple[int, int]:
        (entry,) = self.read(P4CounterEntry(name, index=index))
        return entry.packet_count, entry.byte_count

    def direct(self, entry: P4TableEntry) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter."""
        (found,) = self.read(P4DirectCounterEntry(entry.table_id, table_entry=entry))
        return found.packet_count, found.byte_count

    def _read(self, stream: Any) -> None:
        try:
            for message in stream:
                kind = message.WhichOneof("update")
                if kind == "arbitration":
                    self._said = f"status {message.arbitration.status.code} {message.arbitration.status.message}"
                    if message.arbitration.status.code == 0:
                        self._primary.set()
                elif kind == "digest":
                    digest = message.digest
                    ack = p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id)
                    self._outgoing.put(p4r.StreamMessageRequest(digest_ack=ack))
                    for one in P4DigestList.decode(message, self.schema):
                        self.digests.put(one)
                elif kind == "packet":
                    self.packets.put(P4PacketIn.decode(message, self.schema))
        except grpc.RpcError as error:
            self._said = str(error)
