"""Several managers, one at work: who leads, and the records all of them share, in etcd.

The leader is who made the key `<prefix>/leader`, which lives by a lease. Its *term* is the revision at which the key
was made: a number that only grows, and that all its writes, P4 switches (election id) and OpenFlow switches (generation
id) know it by. So whoever was deposed can write nothing: etcd compares the term in the same transaction, the switches
refuse, and its own clock tells it to stop (`leads`) before its lease can be over at etcd.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rostrum.controller.core.persistence.persistence import Change, Json
from rostrum.controller.keyvalue import line
from rostrum.controller.runtime.etcd import Etcd, Row, Turn
from rostrum.controller.runtime.store import StoreError, StoreRefused, encode_each

log = logging.getLogger("rostrum.manager")

POLL_S = 0.25  # how often a standby looks whether there is a leader
RETRY_S = 0.5  # after an etcd that does not answer
RENEWALS = 6  # of the lease in its life: etcd's members may need two seconds to agree on a leader of their own
COMPACT_S = 300.0  # etcd keeps what was before for so long, and twice that at most
WRITE_LEASES = 5  # a write that no etcd takes for so many lives of the lease, while it is renewed, ends the lead
RECORD_BYTES_MAX = 1 << 20  # etcd takes requests of 1.5 MiB unless told otherwise
OPERATIONS_MAX = 120  # of one transaction; etcd takes 128 unless told otherwise
ORDER = ("circuit", "leaving", "agent")  # parts that others rest on go first, should a large change take two


@dataclass(frozen=True)
class Facts:
    """Where a member is found, for agents and people."""

    member: str
    rest: str
    thrift: str


class Election:
    """One member's part in it. `leader`: what is known of who leads. `term`: of this member, once it leads."""

    def __init__(self, etcd: Etcd, prefix: str, facts: Facts, ttl_s: int = 3) -> None:
        self._etcd, self._key, self._facts, self.ttl_s = etcd, f"{prefix}/leader", facts, ttl_s
        self._lease = 0
        self._seen = 0
        self._until = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self.leader: Facts | None = None
        self.guard: Row | None = None
        self.lost: asyncio.Future[StoreError] | None = None
        self.obstacle = ""  # why there is no election, as text
        self.on_leader: Callable[[int], None] | None = None  # another one leads, in this term

    @property
    def term(self) -> int:
        return self.guard.created if self.guard else 0

    def leads(self, margin_s: float = 0.0) -> bool:
        """By this machine's clock the lease cannot be over yet, nor will it be for `margin_s`."""
        return self.guard is not None and _clock() + margin_s < self._until

    async def campaign(self) -> None:
        """Returns once this member leads."""
        said = ""
        while True:
            try:
                if await self._stand():
                    self.obstacle = ""
                    return
                said = self.obstacle = ""
            except StoreError as error:
                if str(error) != said:
                    log.warning(line("no election", cause=error))
                said = self.obstacle = str(error)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(POLL_S)

    async def resign(self) -> None:
        """The next one need not wait for the lease's end."""
        if self._keeper:
            self._keeper.cancel()
        self.guard, lease, self._lease = None, self._lease, 0
        if lease:
            with contextlib.suppress(StoreError):
                await self._etcd.revoke(lease)

    async def _stand(self) -> bool:
        row = await self._etcd.get(self._key)
        if row is not None:
            if self.leader is None or row.created != self._seen:
                self.leader, self._seen = _facts(row.value), row.created
                log.info(line("leader", member=self.leader.member if self.leader else "?", term=row.created))
                if self.on_leader:
                    self.on_leader(row.created)
            return False
        asked = _clock()
        lease = await self._etcd.grant(self.ttl_s)
        mine = json.dumps({**vars(self._facts), "lease": lease})
        await self._etcd.create(self._key, mine, lease)
        row = await self._etcd.get(self._key)
        if row is None or row.value != mine:
            await self._etcd.revoke(lease)
            self.leader = _facts(row.value) if row else None
            return False
        self._lease, self._until, self.guard, self.leader = lease, asked + self.ttl_s, row, self._facts
        self.lost = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())
        return True

    async def _keep(self) -> None:
        """Renews the lease while it lasts; ends when it is over."""
        cause = "its lease at etcd ended"
        while _clock() < self._until:
            asked = _clock()
            try:
                left = await self._etcd.keep_alive(self._lease, self.ttl_s / RENEWALS)
                if left <= 0:
                    break
                self._until = asked + min(left, self.ttl_s)
            except StoreError as error:
                cause = f"its lease could not be renewed: {error}"
            left_s = self._until - _clock()
            await asyncio.sleep(max(0.0, min(self.ttl_s / RENEWALS, left_s)))
        self.guard, self._until = None, 0.0
        if self.lost and not self.lost.done():
            self.lost.set_result(StoreError(f"this manager no longer leads: {cause}"))


class SharedStore:
    """The records at etcd, written by the leader only. Implements `store.Store`."""

    way_out = "delete the keys under the prefix with etcdctl; the manager then takes over what agents and devices tell"

    def __init__(self, etcd: Etcd, prefix: str, election: Election) -> None:
        assert election.guard is not None
        self._etcd, self._prefix = etcd, f"{prefix}/record/"
        self._election, self._guard = election, election.guard
        self._complete_key, self._written = f"{prefix}/whole", f"{prefix}/written"
        self.retries = 0  # of writes that nobody answered
        self._turn: int | None = None  # of the change that was written last; None: not read yet
        self.complete = False

    async def load(self) -> dict[str, dict[str, Json]]:
        """What the leader before remembered. Raises StoreError."""
        records: dict[str, dict[str, Json]] = {}
        for row in await self._etcd.under(self._prefix):
            part, _, key = row.key[len(self._prefix) :].partition("/")
            records.setdefault(part, {})[key] = json.loads(row.value)
        self.complete = await self._etcd.get(self._complete_key) is not None
        return records

    async def tend(self, grace_s: float) -> None:
        """While this manager leads: `whole` (journal.py) once the grace time is over; and what etcd remembers of
        before is bounded.
        """
        old = 0
        await asyncio.sleep(grace_s)
        while True:
            try:
                self.complete = self.complete or await self._etcd.change({self._complete_key: "1"}, (), self._guard)
                if old:
                    await self._etcd.compact(old)
            except StoreError as error:
                log.info(line("shared records not tended", cause=error))
            old = self._etcd.revision
            await asyncio.sleep(COMPACT_S)

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        ordered = sorted(changes, key=lambda one: ORDER.index(one.part) if one.part in ORDER else len(ORDER))
        values = encode_each(ordered, json.dumps, RECORD_BYTES_MAX)
        return asyncio.ensure_future(
            self._write([(self._name(one), value) for one, value in zip(ordered, values, strict=True)])
        )

    async def _write(self, rows: Sequence[tuple[str, str | None]]) -> None:
        for some in _transactions(rows):
            puts = {name: value for name, value in some if value is not None}
            gone = [name for name, value in some if value is None]
            if not await self._change(puts, gone):
                raise StoreError("another manager leads by now; this one writes nothing any more")

    async def _change(self, puts: dict[str, str], gone: list[str]) -> bool:
        """Again and again while this manager leads and no etcd answers; not when one refuses. Raises StoreError."""
        give_up = _clock() + WRITE_LEASES * self._election.ttl_s
        while True:
            try:
                turn = await self._next_turn()
                done = await self._etcd.change(puts, gone, self._guard, turn)
                self._turn = int(turn.after)
                return done
            except StoreRefused:
                raise  # it would be refused again, with the lease renewed for nothing: the next one may do better
            except StoreError as error:
                if not self._election.leads() or _clock() >= give_up:
                    raise
                self.retries += 1
                log.warning(line("records not written yet", cause=error))
                await asyncio.sleep(POLL_S)

    async def _next_turn(self) -> Turn:
        if self._turn is None:
            row = await self._etcd.get(self._written)
            self._turn = int(row.value) if row else 0
        return Turn(self._written, str(self._turn) if self._turn else "", str(self._turn + 1))

    def _name(self, change: Change) -> str:
        return f"{self._prefix}{change.part}/{change.key}"


def _transactions(rows: Sequence[tuple[str, str | None]]) -> Iterator[list[tuple[str, str | None]]]:
    """In order, as many at a time as etcd takes."""
    some: list[tuple[str, str | None]] = []
    size = 0
    for name, value in rows:
        more = len(name) + len(value or "")
        if some and (len(some) >= OPERATIONS_MAX or size + more > RECORD_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append((name, value))
        size += more
    if some:
        yield some


def _clock() -> float:
    """Seconds; of a clock that goes on while the machine sleeps, as etcd's does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _facts(text: str) -> Facts | None:
    try:
        value = json.loads(text)
        return Facts(value["member"], value["rest"], value["thrift"])
    except (ValueError, KeyError, TypeError):
        return None
