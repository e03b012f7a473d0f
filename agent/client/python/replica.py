"""State that all members of a group keep alike: what changes it goes to the group, who joins gets it as an object.

class Counter(Replica):
    value = 0

    def deliver(self, message): self.value += int(message.data)
    def get_state(self): return str(self.value).encode()
    def set_state(self, state): self.value = int(bytes(state))

with Agent() as agent, Counter(agent, "visits") as visits:
    visits.wait_ready(60)          # the first one begins with what it has, others get the state
    visits.publish(b"1")
    while True:
        visits.dispatch()          # calls deliver, with every message in the same order everywhere

How a replica gets the state: its WANT goes through the group as any message. One who has the state (a holder) keeps it
as it is when WANT comes, says OFFER, and sends it as an object; messages behind that point are applied after it. All
holders know who holds and who wants, as all see the same stream: if the one who is to give crashes, the view that says
so makes another one give, as its state is then. A holder that does not answer is passed over with the next WANT.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from .agent import Agent, SendHandle
from .groups import Group, Message, View
from .objects import Buffer
from .values import Busy, Code, NotFound, RostrumError, TimedOut, TransferFailed

CONTROL = b"\0rostrum"  # a message that begins so is ours
_CONTROL = struct.Struct("<8scQI")  # kind, nonce of the replica, attempt
_STATE = struct.Struct("<QQII")  # messages before it, its lineage, holders, wanting
_ROW = struct.Struct("<QIQB")  # nonce, attempt, the giver's nonce, length of a server's name
CLAIM, WANT, OFFER, READY, FAILED = b"C", b"W", b"O", b"R", b"F"
LOOK_S = 0.05  # whether the object is there
ATTEMPT_S = 10.0  # then the next holder is asked; twice as long each time
ATTEMPTS = 8
UNWANTED_S = 60.0  # an object that came too late is looked for so long
BUFFER_BYTES = 256 << 20

Who = tuple[str, int]  # a replica: its server's name, a nonce


@dataclass
class _Wanting:
    attempt: int
    giver: Who


class Replica(ABC):
    """One of the members that keep the same state. Subclasses say what it is: `deliver`, `get_state`, `set_state`.

    One thread calls `dispatch` (and `wait_ready`), which calls all that; any may `publish`.

    Args:
        agent: stays in use until `close`.
        group: made with order `total` if it is not there. Its first members must be replicas.
        protocol, options, slow: of a group that is not there yet.

    Raises:
        RostrumError: as Agent.join; INVALID: the group has no total order, or tells no views.
    """

    def __init__(
        self, agent: Agent, group: str, protocol: str | None = None, options: str = "", slow: str = ""
    ) -> None:
        order = "total" + (f",slow={slow}" if slow else "")
        self._agent = agent
        self._group: Group = agent.join(group, protocol or "plain", order, options)
        if self._group.order.split(",")[0] != "total" or "guarantee=reliable" in self._group.order:
            has = self._group.order
            self._group.close()
            raise RostrumError(f"{group} has order {has}: state needs order total with views", Code.INVALID)
        self.view: View | None = None  # that holds, as `confchg` was told
        self.is_ready = False  # it has the state
        self._me: Who = (agent.server, secrets.randbits(63))
        self._number = 0  # messages before this point of the stream
        self._holders: set[Who] = set()
        self._lineage = 0  # of their state: the number of the CLAIM that it began with
        self._mine = 0  # of this one's state
        self._wanting: dict[Who, _Wanting] = {}
        self._knows = False  # who holds: it saw all since somebody claimed the state
        self._may: set[Who] = set()  # while it does not: who may hold; nonce 0: whoever runs on that server
        self._claims = False  # its CLAIM is on its way
        self._attempt = 0
        self._ask_at = float("inf")  # again
        self._heard = False  # its own WANT has come: what comes from there on counts
        self._buffer: list[Message] = []
        self._buffered = 0
        self._last_view: Message | None = None
        self._offers: list[str] = []  # objects that may bring the state
        self._why = "no member that has the state answered"
        self._out: deque[bytes] = deque()
        self._sends: list[tuple[SendHandle, str, Who, int]] = []
        self._added: dict[Who, str] = {}  # for replicas of this server
        self._unwanted: dict[str, float] = {}  # objects, and until when they may still come

    # -- what subclasses say --------------------------------------------------------------------------------------

    @abstractmethod
    def deliver(self, message: Message) -> None:
        """A message, in the same order at all."""

    @abstractmethod
    def get_state(self) -> Buffer:
        """The state as it is now: what all messages delivered so far have made it."""

    @abstractmethod
    def set_state(self, state: memoryview) -> None:
        """Takes another one's state instead of its own. `state` is valid during the call."""

    def confchg(self, view: View) -> None:  # noqa: B027 - a program may pass it over
        """Who is in the group has changed; messages from here on are of this view."""

    def primary(self, is_primary: bool) -> None:  # noqa: B027
        """This server is cut off from the group's primary part, or back."""

    # -- what programs call ---------------------------------------------------------------------------------------

    def publish(self, data: Buffer) -> None:
        """To all, this one too. Raises as Group.publish, and INVALID: it begins as this class's own messages do."""
        view = memoryview(data).cast("B")
        if view[: len(CONTROL)] == CONTROL:
            raise RostrumError(f"a message to replicas must not begin with {CONTROL!r}", Code.INVALID)
        self._group.publish(view)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Dispatches until the state is here. Raises as `dispatch`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_ready:
            self._step(deadline)

    def dispatch(self, timeout: float | None = None) -> None:
        """Takes what comes until one message was delivered.

        Raises:
            TimedOut: none came within `timeout` seconds.
            RostrumError: there will be no more, or no member gives its state.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._step(deadline):
            pass

    def fileno(self) -> int:
        return self._group.fileno()

    def close(self) -> None:
        """Leaves the group. States that are being sent go on."""
        self._group.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- turns ----------------------------------------------------------------------------------------------------

    def _step(self, deadline: float | None) -> bool:
        """Takes one message, or waits for it; whether `deliver` was called."""
        self._say_pending()
        self._look_at_objects()
        delivered = not self.is_ready and self._look_for_state()
        if delivered:
            return True
        busy = not self.is_ready or self._out or self._sends or self._unwanted
        now = time.monotonic()
        until = min(x for x in (deadline, now + LOOK_S if busy else None, now + 3600) if x is not None)
        try:
            message = self._group.next(until - now)
        except TimedOut:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            return False
        return self._take(message)

    def _say(self, kind: bytes, nonce: int, attempt: int = 0, rest: bytes = b"") -> None:
        self._out.append(_CONTROL.pack(CONTROL, kind, nonce, attempt) + rest)
        self._say_pending()

    def _say_pending(self) -> None:
        """Never waits: whoever publishes may wait for this thread to read."""
        while self._out and self._group.try_publish(self._out[0]):
            self._out.popleft()

    def _take(self, message: Message) -> bool:
        if message.primary is not None:
            self.primary(message.primary)
            return False
        if message.lost is not None:
            if self.is_ready or self._heard:
                self._begin_want()  # it lacks messages: its state counts no more
            return False
        if message.view and message.view.anew:
            self._joined(message)
            return False
        if not self.is_ready:
            return self._hear(message)
        return self._process(message)

    # -- of one who lacks the state -------------------------------------------------------------------------------

    def _joined(self, message: Message) -> None:
        """What was before does not count: others go on with the state, or all begin."""
        view = message.view
        assert view is not None
        self._last_view = message
        if set(view.members) <= set(view.joined):
            self._holders, self._wanting, self._knows = set(), {}, True
            self._claim()
        else:
            self._knows = False
            self._may = {(one, 0) for one in view.members if one not in view.joined and one != self._me[0]}
            if not view.joined:  # another program of this server may be one
                self._may.add((self._me[0], 0))
            self._begin_want()

    def _claim(self) -> None:
        before = self._renew()
        self._claims = True
        self._say(CLAIM, self._me[1], 0, struct.pack("<Q", before))

    def _renew(self) -> int:
        """Another replica from here on, for all; its nonce before."""
        before = self._me[1]
        self._me = (self._me[0], secrets.randbits(63))
        self.is_ready = self._heard = self._claims = False
        self._attempt, self._ask_at = 0, float("inf")
        self._offers, self._buffer, self._buffered = [], [], 0
        return before

    def _begin_want(self) -> None:
        self._want(self._renew())

    def _want(self, before: int = 0) -> None:
        self._attempt += 1
        if self._attempt > ATTEMPTS:
            raise RostrumError(f"{self._group.name}: {self._why}", Code.UNAVAILABLE)
        self._ask_at = time.monotonic() + ATTEMPT_S * 2 ** min(self._attempt - 1, 6)
        self._say(WANT, self._me[1], self._attempt, struct.pack("<Q", before))

    def _hear(self, message: Message) -> bool:
        control = _control(message)
        if message.view:
            self._last_view = message if not self._heard else self._last_view
        if not self._knows:
            self._follow_unknowing(message, control)
        if self._knows:
            self._follow(message)
        if control and control[0] == WANT and (message.sender, control[1]) == self._me:
            self._heard = True
        elif control and control[1] == self._me[1] and control[0] in (OFFER, FAILED):
            target, _, text = control[3].partition(b"\n")
            if target.decode() == self._me[0] and control[0] == OFFER:
                self._offers.append(text.decode())
            elif target.decode() == self._me[0] and control[2] == self._attempt:
                self._why = f"{message.sender} did not give its state: {text.decode()}"
                self._ask_at = 0.0
        elif control and control[0] == CLAIM and (message.sender, control[1]) == self._me:
            self._claims = False
            if self._holders == {self._me}:
                self._number, self._mine, self.is_ready = message.sn, self._lineage, True
                self._tell_view()
            else:
                self._begin_want()
        if self._heard:
            self._buffer.append(message)
            self._buffered += len(message.data) + 256
            if self._buffered > BUFFER_BYTES:
                raise RostrumError(f"{self._group.name}: too much came before the state", Code.LIMIT)
        return False

    def _follow_unknowing(self, message: Message, control: tuple[bytes, int, int, bytes] | None) -> None:
        """Until none of those who may hold is left: then nobody does."""
        if message.view:
            here = set(message.view.members) - {*message.view.left, *message.view.joined}
            self._may = {one for one in self._may if one[0] in here}
            if not self._may:
                self._knows, self._holders, self._wanting = True, set(), {}
        elif control and control[0] in (CLAIM, WANT, READY):
            if control[0] != READY and (before := _number(control[3])):
                self._may.discard((message.sender, before))
            if control[0] != WANT:
                self._may.add((message.sender, control[1]))
            if control[0] == CLAIM and self._heard:
                self._ask_at = 0.0  # it knows nothing of this one's WANT

    def _look_for_state(self) -> bool:
        """Whether a message was delivered: what had to wait for the state is behind it."""
        if time.monotonic() >= self._ask_at:
            self._want()
        for name in self._offers if self._heard else ():
            with contextlib.suppress(NotFound, Busy, TransferFailed), self._agent.read(name, wait=0) as found:
                return self._take_state(memoryview(found), name)
        return False

    def _take_state(self, state: memoryview, name: str) -> bool:
        try:
            number, rest = self._read_table(state)
        except RostrumError as error:  # its giver is passed over
            self._why = str(error)
            self._offers.remove(name)
            self._unwanted[name] = time.monotonic() + UNWANTED_S
            self._ask_at = 0.0
            return False
        self.set_state(rest)
        rest.release()
        state.release()
        with contextlib.suppress(RostrumError):
            self._agent.delete(name)
        buffered, self._buffer, self._buffered = self._buffer, [], 0
        self._number, self.is_ready, self._knows = number, True, True
        self._mine = self._lineage
        self._unwanted |= {one: time.monotonic() + UNWANTED_S for one in self._offers if one != name}
        self._offers = []
        self._say(READY, self._me[1], self._attempt, struct.pack("<Q", self._mine))
        self._tell_view()
        delivered = False
        for one in buffered:
            if (one.view and one.view.number >= number) or (not one.view and one.sn > number):
                delivered |= self._process(one) if self.is_ready else self._hear(one)
        return delivered

    def _tell_view(self) -> None:
        if self._last_view and self._last_view.view:
            self.view = self._last_view.view
            self.confchg(self.view)

    # -- of all ---------------------------------------------------------------------------------------------------

    def _process(self, message: Message) -> bool:
        if message.view:
            self._number = message.view.number
            self._follow(message)
            self.view = message.view
            self.confchg(message.view)
            return False
        self._number = message.sn
        if message.data.startswith(CONTROL):
            self._follow(message)
            if self._holders and self._lineage != self._mine:
                self._begin_want()  # all who had this one's state crashed, and another one began anew
            return False
        self.deliver(message)
        return True

    def _follow(self, message: Message) -> None:
        """Who holds and who wants: the same at all who know, as all see the same messages."""
        if message.view:
            gone = {*message.view.left, *message.view.joined}
            self._holders = {one for one in self._holders if one[0] in message.view.members and one[0] not in gone}
            for one in [one for one in self._wanting if one[0] not in message.view.members or one[0] in gone]:
                del self._wanting[one]
            for who, wanting in self._wanting.items():
                if wanting.giver not in self._holders:
                    self._appoint(who, wanting)
            self._claim_if_none()
            return
        if (control := _control(message)) is None:
            return
        kind, nonce, attempt, rest = control
        who = (message.sender, nonce)
        if kind in (CLAIM, WANT):  # it was another one before
            self._holders.discard((message.sender, _number(rest)))
            self._wanting.pop((message.sender, _number(rest)), None)
            self._claim_if_none()
        if kind == CLAIM and not self._holders:
            self._holders, self._lineage = {who}, message.sn
        elif kind == WANT:
            self._holders.discard(who)
            self._wanting[who] = wanting = _Wanting(attempt, ("", 0))
            self._appoint(who, wanting)
        elif kind == READY:
            self._wanting.pop(who, None)
            if not self._holders:  # those that it has it of are gone
                self._lineage = _number(rest)
            if self._lineage == _number(rest):
                self._holders.add(who)
            if name := self._added.pop(who, ""):
                self._forget(name)
        elif kind == OFFER and nonce == self._me[1] and self.is_ready:  # too late
            target, _, late = rest.partition(b"\n")
            if target.decode() == self._me[0]:
                self._unwanted[late.decode()] = time.monotonic() + UNWANTED_S

    def _claim_if_none(self) -> None:
        if not self._holders and not self.is_ready and not self._claims:
            self._claim()  # the first one to claim begins anew

    def _appoint(self, who: Who, wanting: _Wanting) -> None:
        holders = sorted(self._holders)
        wanting.giver = holders[(wanting.attempt - 1) % len(holders)] if holders else ("", 0)
        if wanting.giver == self._me and self.is_ready:
            self._give(who, wanting.attempt)

    # -- of one who gives it --------------------------------------------------------------------------------------

    def _give(self, who: Who, attempt: int) -> None:
        name = f"rostrum.state/{self._group.name}/{who[0]}/{who[1]:x}/{attempt}/{self._me[1]:x}"
        state = self._table() + bytes(self.get_state())
        try:
            if who[0] == self._me[0]:
                self._agent.add(name, state)
                self._added[who] = name
            else:
                self._sends.append((self._agent.send(name, [who[0]], source=state), name, who, attempt))
        except RostrumError as error:
            self._say(FAILED, who[1], attempt, f"{who[0]}\n{error}".encode()[:500])
            return
        self._say(OFFER, who[1], attempt, f"{who[0]}\n{name}".encode())

    def _look_at_objects(self) -> None:
        for one in [one for one in self._sends if one[0].done]:
            self._sends.remove(one)
            handle, name, who, attempt = one
            try:
                handle.wait(0).raise_for_failure()
            except RostrumError as error:
                self._say(FAILED, who[1], attempt, f"{who[0]}\n{error}".encode()[:500])
            self._forget(name)
        for name in list(self._unwanted):
            if self._forget(name) or time.monotonic() > self._unwanted[name]:
                del self._unwanted[name]

    def _forget(self, name: str) -> bool:
        with contextlib.suppress(RostrumError):
            self._agent.delete(name)
            return True
        return False

    def _table(self) -> bytes:
        """Where in the stream it is, who holds and who wants: in front of the state."""
        rows = [(who, 0, ("", 0)) for who in sorted(self._holders)]
        rows += [(who, one.attempt, one.giver) for who, one in self._wanting.items()]
        parts = [_STATE.pack(self._number, self._mine, len(self._holders), len(self._wanting))]
        for (server, nonce), attempt, (giver, giver_nonce) in rows:
            parts += [_ROW.pack(nonce, attempt, giver_nonce, len(server.encode())), server.encode()]
            parts += [bytes([len(giver.encode())]), giver.encode()]
        return b"".join(parts)

    def _read_table(self, state: memoryview) -> tuple[int, memoryview]:
        try:
            number, lineage, holders, wanting = _STATE.unpack_from(state)
            at, rows = _STATE.size, list[tuple[Who, int, Who]]()
            for _ in range(holders + wanting):
                nonce, attempt, giver_nonce, length = _ROW.unpack_from(state, at)
                at += _ROW.size
                server, at = str(state[at : at + length], "utf-8"), at + length
                length = state[at]
                giver, at = str(state[at + 1 : at + 1 + length], "utf-8"), at + 1 + length
                rows.append(((server, nonce), attempt, (giver, giver_nonce)))
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise RostrumError(f"{self._group.name}: a malformed state came", Code.PROTOCOL) from error
        self._lineage = lineage
        self._holders = {who for who, _, _ in rows[:holders]}
        self._wanting = {who: _Wanting(attempt, giver) for who, attempt, giver in rows[holders:]}
        return number, state[at:]


def _control(message: Message) -> tuple[bytes, int, int, bytes] | None:
    """Kind, nonce, attempt, the rest; None: it is the application's."""
    if len(message.data) < _CONTROL.size or not message.data.startswith(CONTROL):
        return None
    _, kind, nonce, attempt = _CONTROL.unpack_from(message.data)
    return kind, nonce, attempt, message.data[_CONTROL.size :]


def _number(rest: bytes) -> int:
    """Of a CLAIM or WANT: the nonce that a replica had before; of READY the lineage of its state."""
    return int(struct.unpack("<Q", rest)[0]) if len(rest) == 8 else 0
