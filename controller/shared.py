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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rostrum.controller.core.durable import Change, Json
from rostrum.controller.etcd import Etcd, Row, Turn
from rostrum.controller.keyvalue import line
from rostrum.controller.store import StoreError

log = logging.getLogger("rostrum.manager")

POLL_S = 0.25  # how often a standby looks whether there is a leader
RETRY_S = 0.5  # after an etcd that does not answer
RENEWALS = 6  # of the lease in its life: etcd's members may need two seconds to agree on a leader of their own
COMPACT_S = 300.0  # etcd keeps what was before for so long, and twice that at most
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
        self._etcd, self._key, self._facts, self._ttl_s = etcd, f"{prefix}/leader", facts, ttl_s
        self._lease = 0
        self._seen = 0
        self._until = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self.leader: Facts | None = None
        self.guard: Row | None = None
        self.lost: asyncio.Future[StoreError] | None = None
        self.on_leader: Callable[[int], None] | None = None  # another one leads, in this term

    @property
    def term(self) -> int:
        return self.guard.created if self.guard else 0

    def leads(self) -> bool:
        """By this machine's clock the lease cannot be over yet."""
        return self.guard is not None and time.monotonic() < self._until

    async def campaign(self) -> None:
        """Returns once this member leads."""
        said = ""
        while True:
            try:
                if await self._stand():
                    return
                said = ""
            except StoreError as error:
                if str(error) != said:
                    log.warning(line("no election", cause=error))
                said = str(error)
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
        asked = time.monotonic()
        lease = await self._etcd.grant(self._ttl_s)
        mine = json.dumps({**vars(self._facts), "lease": lease})
        await self._etcd.create(self._key, mine, lease)
        row = await self._etcd.get(self._key)
        if row is None or row.value != mine:
            await self._etcd.revoke(lease)
            self.leader = _facts(row.value) if row else None
            return False
        self._lease, self._until, self.guard, self.leader = lease, asked + self._ttl_s, row, self._facts
        self.lost = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())
        return True

    async def _keep(self) -> None:
        """Renews the lease while it lasts; ends when it is over."""
        cause = "its lease at etcd ended"
        while time.monotonic() < self._until:
            asked = time.monotonic()
            try:
                left = await self._etcd.keep_alive(self._lease, self._ttl_s / RENEWALS)
                if left <= 0:
                    break
                self._until = asked + min(left, self._ttl_s)
            except StoreError as error:
                cause = f"its lease could not be renewed: {error}"
            left_s = self._until - time.monotonic()
            await asyncio.sleep(max(0.0, min(self._ttl_s / RENEWALS, left_s)))
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
        self._whole, self._written = f"{prefix}/whole", f"{prefix}/written"
        self._turn: int | None = None  # of the change that was written last; None: not read yet
        self.complete = False

    async def load(self) -> dict[str, dict[str, Json]]:
        """What the leader before remembered. Raises StoreError."""
        records: dict[str, dict[str, Json]] = {}
        for row in await self._etcd.under(self._prefix):
            part, _, key = row.key[len(self._prefix) :].partition("/")
            records.setdefault(part, {})[key] = json.loads(row.value)
        self.complete = await self._etcd.get(self._whole) is not None
        return records

    async def tend(self, grace_s: float) -> None:
        """While this manager leads: `whole` (journal.py) once the grace time is over; and what etcd remembers of
        before is bounded.
        """
        old = 0
        await asyncio.sleep(grace_s)
        while True:
            try:
                self.complete = self.complete or await self._etcd.change({self._whole: "1"}, (), self._guard)
                if old:
                    await self._etcd.compact(old)
            except StoreError as error:
                log.info(line("shared records not tended", cause=error))
            old = self._etcd.revision
            await asyncio.sleep(COMPACT_S)

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        ordered = sorted(changes, key=lambda one: ORDER.index(one.part) if one.part in ORDER else len(ORDER))
        rows = [(self._name(one), None if one.value is None else json.dumps(one.value)) for one in ordered]
        return asyncio.ensure_future(self._write(rows))

    async def _write(self, rows: Sequence[tuple[str, str | None]]) -> None:
        for at in range(0, len(rows), OPERATIONS_MAX):
            some = rows[at : at + OPERATIONS_MAX]
            puts = {name: value for name, value in some if value is not None}
            gone = [name for name, value in some if value is None]
            if not await self._change(puts, gone):
                raise StoreError("another manager leads by now; this one writes nothing any more")

    async def _change(self, puts: dict[str, str], gone: list[str]) -> bool:
        """Again and again while this manager leads and no etcd answers. Raises StoreError."""
        while True:
            try:
                turn = await self._next_turn()
                done = await self._etcd.change(puts, gone, self._guard, turn)
                self._turn = int(turn.after)
                return done
            except StoreError as error:
                if not self._election.leads():
                    raise
                log.warning(line("records not written yet", cause=error))
                await asyncio.sleep(POLL_S)

    async def _next_turn(self) -> Turn:
        if self._turn is None:
            row = await self._etcd.get(self._written)
            self._turn = int(row.value) if row else 0
        return Turn(self._written, str(self._turn) if self._turn else "", str(self._turn + 1))

    def _name(self, change: Change) -> str:
        return f"{self._prefix}{change.part}/{change.key}"


def _facts(text: str) -> Facts | None:
    try:
        value = json.loads(text)
        return Facts(value["member"], value["rest"], value["thrift"])
    except (ValueError, KeyError, TypeError):
        return None
