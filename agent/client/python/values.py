"""What the agent tells: results, events, status; and errors by its names.

Times are wall clock, ns since the epoch, 0 = has not happened.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any
from uuid import UUID


class Code(IntEnum):
    """Why a request failed (agent/include/rostrum/types.h)."""

    INVALID = 1
    NOT_REGISTERED = 2
    EXISTS = 3
    UNKNOWN = 4
    BUSY = 5
    NO_ROOM = 6
    TIMEOUT = 7
    DENIED = 8
    CANCELLED = 9
    LIMIT = 10
    UNAVAILABLE = 11
    IO = 12
    PROTOCOL = 13
    FAILED = 14


class RostrumError(Exception):
    """A request failed; the message is the agent's text."""

    code: Code = Code.FAILED

    def __init__(self, text: str, code: Code | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class NotFound(RostrumError):
    """No such object, transfer or server."""

    code = Code.UNKNOWN


class AlreadyThere(RostrumError):
    """That object, transfer or registration exists."""

    code = Code.EXISTS


class Busy(RostrumError):
    """Held by a transfer, or not finished yet."""

    code = Code.BUSY


class NoRoom(RostrumError):
    """The store's quota is reached, or its tmpfs is full."""

    code = Code.NO_ROOM


class TimedOut(RostrumError):
    """A bound on waiting passed."""

    code = Code.TIMEOUT


class Denied(RostrumError):
    """The manager said no."""

    code = Code.DENIED


class Cancelled(RostrumError):
    """It was stopped by its program, or by another of the application."""

    code = Code.CANCELLED


class Unavailable(RostrumError):
    """The agent, or the manager behind it, cannot be reached."""

    code = Code.UNAVAILABLE


class TransferFailed(RostrumError):
    """A send did not reach every receiver; `result` has the whole story."""

    code = Code.FAILED

    def __init__(self, text: str, result: SendResult) -> None:
        super().__init__(text)
        self.result = result


_BY_CODE: dict[int, type[RostrumError]] = {
    kind.code: kind for kind in (NotFound, AlreadyThere, Busy, NoRoom, TimedOut, Denied, Cancelled, Unavailable)
}


def error_of(code: int, text: str) -> RostrumError:
    """The exception for an error of the agent."""
    known = Code(code) if code in Code._value2member_map_ else Code.FAILED
    return _BY_CODE.get(code, RostrumError)(text, known)


RECEIVER_STATES = ("waiting", "receiving", "done", "failed", "left")
PATHS = ("none", "circuit", "packet")
PROTOCOLS = ("auto", "republic", "rdcm", "wan")
EVENT_KINDS = {1: "phase", 2: "receiver", 3: "progress", 4: "log"}
DIGESTS = {0: "", 1: "xxh3-128-tree", 2: "sha256-tree"}


def name_of(names: tuple[str, ...] | dict[int, str], number: int) -> str:
    """The name of a number on the wire; a number that a newer agent may have sent stays visible."""
    known = dict(enumerate(names)) if isinstance(names, tuple) else names
    return known.get(number, f"unknown-{number}")


@dataclasses.dataclass(frozen=True)
class Receiver:
    """One receiver's outcome."""

    name: str
    state: str  # waiting | receiving | done | failed | left
    digest_ok: bool
    initial_sn: int | None  # first fragment it got; None = no light
    patched_fragments: int
    first_light_ns: int
    complete_ns: int
    cause: str
    had_it: bool = False  # the object was there before; the agent's report, no guess


@dataclasses.dataclass(frozen=True)
class SendResult:
    """What a send came to. With several sessions: requested and accepted of the first, the other times of the last."""

    ok: bool  # every receiver is done with the right digest
    data_id: int
    size: int
    cause: str
    requested_ns: int
    accepted_ns: int
    attempt_ns: int
    high_rate_ns: int
    data_done_ns: int
    released_ns: int
    done_ns: int
    path: str  # circuit | packet | none
    protocol: str  # republic | rdcm | wan; auto: no path was granted
    reason: str  # why this kind of path
    response_id: str
    reconfiguration_ns: int  # what the manager told to expect; 0 = a live circuit or a packet path
    sessions: int
    fragment_size: int
    packets_sent: int
    packets_attempt: int
    packets_redundant: int
    packets_patched: int  # sent again on the control channel
    packets_repair: int  # repair packets by multicast, not in packets_sent
    losses_repaired: int  # losses they mended, all receivers together
    acks_received: int  # rdcm: acknowledgements, packets
    bytes_sent: int
    rate_bps: int
    receivers: tuple[Receiver, ...] = ()

    @property
    def total_ms(self) -> float | None:
        """From the request to the end; None if one of them did not happen."""
        return (self.done_ns - self.requested_ns) / 1e6 if self.done_ns and self.requested_ns else None

    @property
    def goodput_bps(self) -> float | None:
        """The object's bits over the time from the request to the last receiver; None if it failed or all had it."""
        last = max((one.complete_ns for one in self.receivers if not one.had_it), default=0)
        duration_ns = last - self.requested_ns
        return self.size * 8e9 / duration_ns if self.ok and last and duration_ns > 0 else None

    def raise_for_failure(self) -> SendResult:
        """Itself if every receiver is right.

        Raises:
            TransferFailed: naming the receivers that are not.
        """
        if self.ok:
            return self
        failed = [f"{one.name}: {one.cause or one.state}" for one in self.receivers if not one.digest_ok]
        raise TransferFailed("; ".join(filter(None, [self.cause, *failed])) or "the transfer failed", self)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a transfer. What says nothing about the kind is 0 or empty."""

    kind: str  # phase | receiver | progress | log
    data_id: int
    time_ns: int
    sending: bool  # seen at the sender, or at a receiver
    subject: str  # phase: its name; receiver: the server
    state: str  # receiver: its state
    session: int
    bytes: int  # sender: payload bytes sent at least once; receiver: bytes present
    size: int
    sn: int
    rate_bps: int
    receivers: int
    receivers_done: int
    receivers_failed: int
    text: str


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A running transfer, in the agent's status."""

    app: UUID
    data_id: int
    sending: bool
    phase: str
    peer: str
    path: str
    protocol: str  # republic | rdcm | wan
    size: int
    bytes: int
    rate_bps: int
    receivers: int
    receivers_done: int
    receivers_failed: int
    requested_ns: int
    view: int  # rdcm: version of the overlay's newest view; 0 = none yet
    acks_sent: int
    acks_received: int
    repairs_sent: int  # to peers
    repairs_received: int  # from peers
    repairs_old: int  # of these: had been here already
    window: int  # packets: receiver: congestion window; sender: may be under way
    ack_timeout_ns: int
    name: str = ""  # of the object; empty: it has none, or is another application's


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """An object in the agent's store."""

    app: UUID
    data_id: int
    complete: bool
    received: bool  # by a transfer; otherwise an application here wrote it
    holds: int  # transfers using it
    size: int
    digest: str  # "xxh3-128-tree:<hex>"; empty = not known yet
    pinned: bool = False  # it stays when room is made
    goes: bool = False  # soon, to make room
    name: str = ""  # by which programs know it; empty: it has none, or is another application's


@dataclasses.dataclass(frozen=True)
class GroupStatus:
    """A message group at this server. `subscribers`, `publishers`: programs here; `lost`: packets not recovered;
    `lost_slow`: messages that programs here did not take in time; `by_repair`, `by_request`: messages delivered that
    were lost on the way, by how they came after all."""

    name: str
    protocol: str
    order: str
    address: str
    id: int
    version: int
    joined: bool
    members: int
    subscribers: int
    publishers: int
    published: int
    delivered: int
    lost: int
    lost_slow: int
    by_repair: int
    by_request: int


@dataclasses.dataclass(frozen=True)
class Status:
    """The agent as it is now."""

    server: str
    version: str
    boot_id: int
    started_ns: int
    manager_up: bool
    manager: str
    store: str
    store_used: int
    store_quota: int
    clients: int
    packets_bad: int
    transfers: tuple[Transfer, ...] = ()
    objects: tuple[StoredObject, ...] = ()
    groups: tuple[GroupStatus, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: UUIDs become text."""
        value = dataclasses.asdict(self)
        for row in (*value["transfers"], *value["objects"]):
            row["app"] = str(row["app"])
        return value
