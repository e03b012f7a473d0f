"""One P4Runtime connection to one switch: its stream, who is primary, and calls whose errors are text.

A connection lives until its stream ends; another one is made then (switch.py). Errors are SouthboundError.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from finsy import P4Schema
from finsy.proto import U128, p4r, p4r_grpc, rpc_code
from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.runtime.run_clock import Within
from rostrum.controller.southbound.p4runtime import errors
from rostrum.controller.southbound.p4runtime.pipeline import Pipeline
from rostrum.controller.southbound.tls import TlsWay

CONNECT_S = 3.0
CONFIRM_S = 3.0  # a switch answers a write or a read within this
PIPELINE_S = 15.0
MESSAGE_BYTES_MAX = 64 << 20
ENTITIES_MAX = 200_000  # of one read
# Every connection its own: gRPC would share one, and its backoff, among all to the same address.
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)

HALF = 1 << 64  # of an election id, which has 128 bits

OnMastership = Callable[[], None]
OnDigest = Callable[[p4r.DigestList], None]
OnPacket = Callable[[p4r.PacketIn], None]


def raised(own: int, highest: int, vacant: bool) -> int | None:
    """The election id with which a manager whose own is `own` may become primary of a switch that has seen `highest`;
    None = it has to wait. `vacant`: nobody is primary.

    The specification lets nobody be primary whose id is below the highest ever seen, also when that one is gone. Own
    ids are the lower half. Above them stands how often managers had to go past somebody else's; so among managers the
    own ids (terms, in a cluster) go on to decide, and one that was deposed cannot lock out its successor.
    """
    above, below = divmod(highest, HALF)
    if above and 0 < below < own:
        return above * HALF + own  # past a manager's with a lower id, whether it is there or not
    if not vacant:
        return None
    if (above and below == own) or above == HALF - 1:
        return highest  # its own of before; or there is no higher one
    return (above + 1) * HALF + own


class Connection:
    """`primary`: this manager may write. `vacant`: nobody may. `leader`: the election id of who may, or might before it
    left, as the switch says it.
    """

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        election_id: int,
        on_mastership: OnMastership,
        on_digest: OnDigest,
        tls: Trust | None = None,
        on_packet: OnPacket | None = None,
    ) -> None:
        self.name = name
        self.schema: P4Schema | None = None  # to name things in errors
        self.primary = self.vacant = False
        self.leader = 0
        self.standing = ""  # why it is not primary
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the cause
        self._address, self._device_id, self._election_id = address, device_id, election_id
        self._on_mastership, self._on_digest, self._on_packet = on_mastership, on_digest, on_packet
        self._speaking = asyncio.Lock()  # the stream takes one message at a time
        host, _, port = address.rpartition(":")
        self._way = TlsWay(tls, name, host, int(port)) if tls else None
        self._channel: Any = None
        self._stub: Any = None
        self._stream: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._arbitrated = asyncio.Event()

    async def open(self) -> None:
        """Connects and takes part in the election; `primary` says with what result. Raises SouthboundError."""
        target = await self._way.start() if self._way else self._address
        self._channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        try:
            async with Within(CONNECT_S):
                self._stream = self._stub.StreamChannel(wait_for_ready=True)
                await self._stream.write(self._candidacy())
                self._reader = asyncio.create_task(self._read())
                arbitrated = asyncio.create_task(self._arbitrated.wait())
                await asyncio.wait((arbitrated, self.ended), return_when=asyncio.FIRST_COMPLETED)
                arbitrated.cancel()
        except TimeoutError:
            why = f": {self._way.trouble}" if self._way and self._way.trouble else ""
            raise SouthboundError(f"{self._address} does not answer within {CONNECT_S:g} s{why}") from None
        except grpc.aio.AioRpcError as error:
            raise SouthboundError(f"{self._address}: {errors.text(error)}") from None
        except asyncio.InvalidStateError:  # the stream broke under the write; reading it tells why
            raise SouthboundError(f"{self._address}: the connection broke at once") from None
        if self.ended.done() and not self._arbitrated.is_set():
            raise SouthboundError(f"{self._address}: {self.ended.result()}")

    async def close(self, cause: str = "closed") -> None:
        """Ends the connection; the switch keeps what it has."""
        self._end(cause)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._stream is not None:
            self._stream.cancel()
        if self._channel is not None:
            await self._channel.close()
        if self._way is not None:
            await self._way.close()

    async def write(self, updates: Sequence[p4r.Update], what: str) -> None:
        """One batch. Raises SouthboundError that names each update that failed; the others are made."""
        request = p4r.WriteRequest(
            device_id=self._device_id, election_id=U128.encode(self._election_id), updates=updates
        )
        await self._call("Write", request, what, CONFIRM_S, updates)

    async def read(self, entities: Sequence[p4r.Entity], what: str) -> list[p4r.Entity]:
        """What there is of these (wildcards allowed)."""
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        found: list[p4r.Entity] = []
        try:
            async with Within(CONFIRM_S):
                async for part in self._stub.Read(request):
                    found.extend(part.entities)
                    if len(found) > ENTITIES_MAX:
                        raise SouthboundError(f"{self.name}: cannot {what}: it has more than {ENTITIES_MAX} entities")
        except TimeoutError:
            raise SouthboundError(f"{self.name} did not answer within {CONFIRM_S:g} s: {what}") from None
        except grpc.aio.AioRpcError as error:
            raise SouthboundError(f"{self.name} refused to {what}: {errors.text(error, self.schema)}") from None
        return found

    async def version(self, bound_s: float) -> tuple[int, ...]:
        """Of P4Runtime, as the switch says; (0,) if it does not. Raises SouthboundError."""
        try:
            reply = await self._stub.Capabilities(p4r.CapabilitiesRequest(device_id=self._device_id), timeout=bound_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return (0,)
            raise SouthboundError(f"{self.name} does not tell its capabilities: {errors.text(error)}") from None
        fields = str(reply.p4runtime_api_version).split("-")[0].split(".")[:3]
        return tuple(int(word) for word in fields) if fields and all(word.isdecimal() for word in fields) else (0,)

    async def cookie(self, bound_s: float) -> int | None:
        """The cookie of the running pipeline; None if there is none. Raises SouthboundError."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        try:
            reply = await self._stub.GetForwardingPipelineConfig(request, timeout=bound_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise SouthboundError(f"{self.name} does not tell its pipeline: {errors.text(error)}") from None
        return int(reply.config.cookie.cookie) if reply.config.HasField("cookie") else None

    async def push(self, pipeline: Pipeline) -> None:
        """Replaces the running pipeline; what was in its tables is gone. Raises SouthboundError."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=U128.encode(self._election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=pipeline.config(),
        )
        await self._call("SetForwardingPipelineConfig", request, f"run the P4 program {pipeline.name}", PIPELINE_S)

    async def acknowledge(self, digest: p4r.DigestList) -> None:
        """Says that a digest list arrived: until then the switch withholds equal ones."""
        ack = p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id)
        await self._say(p4r.StreamMessageRequest(digest_ack=ack))

    async def send(self, packet: p4r.PacketOut) -> None:
        """A frame for the switch to send; nobody confirms it."""
        await self._say(p4r.StreamMessageRequest(packet=packet))

    async def stand(self, election_id: int) -> None:
        """Takes part in the election again, with another id."""
        self._election_id = election_id
        await self._say(self._candidacy())

    async def _say(self, message: p4r.StreamMessageRequest) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with self._speaking:
                await self._stream.write(message)

    async def _call(
        self, method: str, request: Any, what: str, bound_s: float, updates: Sequence[p4r.Update] = ()
    ) -> None:
        try:
            await getattr(self._stub, method)(request, timeout=bound_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise SouthboundError(f"{self.name} did not confirm within {bound_s:g} s: {what}") from None
            cause = errors.text(error, self.schema, updates)
            raise SouthboundError(f"{self.name} refused to {what}: {cause}") from None

    def _candidacy(self) -> p4r.StreamMessageRequest:
        return p4r.StreamMessageRequest(
            arbitration=p4r.MasterArbitrationUpdate(
                device_id=self._device_id, election_id=U128.encode(self._election_id)
            )
        )

    async def _read(self) -> None:
        """The stream's messages, until it ends."""
        cause = "it ended the stream"
        try:
            async for message in self._stream:
                match message.WhichOneof("update"):
                    case "arbitration":
                        self._elected(message.arbitration)
                    case "digest":
                        self._on_digest(message.digest)
                    case "packet" if self._on_packet:
                        self._on_packet(message.packet)
                    case _:  # no idle timeouts: nothing of this manager's
                        continue
        except grpc.aio.AioRpcError as error:
            cause = errors.text(error)
        except asyncio.CancelledError:
            cause = "closed"
        self._end(cause)

    def _elected(self, update: p4r.MasterArbitrationUpdate) -> None:
        self.leader = U128.decode(update.election_id)
        code = update.status.code
        self.primary, self.vacant = code == rpc_code.OK, code == rpc_code.NOT_FOUND
        if self.primary:
            self.standing = ""
        elif self.vacant:
            self.standing = (
                f"no controller is its primary since the one with election id {self.leader} left; this manager "
                f"(election id {self._election_id}) is about to take over"
            )
        else:
            self.standing = (
                f"another controller (election id {self.leader}) is its primary, and this manager's election id is "
                f"{self._election_id}; it is a backup and writes nothing"
            )
        self._arbitrated.set()
        self._on_mastership()

    def _end(self, cause: str) -> None:
        self.primary = False
        if not self.ended.done():
            self.ended.set_result(cause)
