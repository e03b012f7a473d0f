"""Keys with which agents seal what they send each other (docs/security.md).

Each agent has a key of its own, for what others send to it alone; of that one each other agent is given what is made
for it, and can neither read with it nor write as another. Each group, and each region of groups, has a key for those
who are in its view; whenever somebody leaves it the others get the next one. Keys of transfers are no business of the
manager's: their senders draw them.

Keys live in this process's memory only: a manager that starts draws others, and agents go on with those they have until
they have heard of it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any

from rostrum.controller.core.groups.values import GroupPeer, GroupRegion, GroupView
from rostrum.controller.northbound.thrift.codec import idl

EPOCHS = 1 << 16
KEY_BYTES = 32
SIGNER_BYTES = 32  # a public key of Ed25519 (RFC 8032)
NUMBERS = 256  # of each agent: it goes on to the next one when a key has sealed enough
NUMBERS_END = 1 << 32
REKEY_S = 3600.0
HEAD_START_S = 2.0  # in which all have heard of a key, before anybody seals with it
WISHES_MAX = 16384  # servers whose keys one agent may ask for
DUE_MAX = 4096  # keys that are made at a time, some 20 ms: those of all servers for all others become old at once

Told = list[tuple[str, list[Any]]]  # to the agents of these servers: keys, as rostrum.thrift has them


@dataclass
class Epoch:
    number: int
    key: bytes = field(repr=False)
    from_s: float
    next_number: int = NUMBERS

    def take(self, count: int) -> int:
        number, self.next_number = self.next_number, self.next_number + count
        return number

    @property
    def used_up(self) -> bool:
        return self.next_number >= NUMBERS_END - NUMBERS

    def transmitter(self, name: int, number: int) -> bytes:
        """The key of one transmitter."""
        made = self._extracted.copy()
        made.update(_info(name, number))
        return made.digest()

    @cached_property
    def _extracted(self) -> hmac.HMAC:
        """HKDF's first step, the same for all transmitters."""
        return hmac.new(_extract(self.key), digestmod="sha256")


def first_epoch(now: float) -> Epoch:
    return Epoch(1 + secrets.randbelow(EPOCHS - 1), secrets.token_bytes(KEY_BYTES), now)


def next_epoch(before: Epoch, from_s: float) -> Epoch:
    return Epoch(before.number % (EPOCHS - 1) + 1, secrets.token_bytes(KEY_BYTES), from_s)


def transmitter_key(key: bytes, name: int, number: int) -> bytes:
    """HKDF with SHA-256 (RFC 5869), as rs_seal_transmitter_key of the agent makes it."""
    return hmac.digest(_extract(key), _info(name, number), "sha256")


def _extract(key: bytes) -> bytes:
    return hmac.digest(bytes(hashlib.sha256().digest_size), key, "sha256")


def _info(name: int, number: int) -> bytes:
    return b"rostrum seal 2" + name.to_bytes(4, "little") + number.to_bytes(4, "little") + b"\x01"


@dataclass
class Scope:
    """A group, or a region of groups."""

    purpose: int
    id: int
    epoch: Epoch
    before: Epoch | None = None
    version: int = 0  # of the view that was seen last
    holders: set[str] = field(default_factory=set)  # who were given its keys
    members: set[str] = field(default_factory=set)  # by views, as far as they were seen
    regions: tuple[int, ...] = ()  # of a group

    def for_agent(self, now: float) -> list[Any]:
        """Those that are in use now or soon; each time with other numbers."""
        if self.before and now >= self.epoch.from_s:
            self.before = None
        return [
            idl.SealKey(
                epoch=one.number,
                key=one.key,
                transmitter=one.take(NUMBERS),
                in_ms=max(0, round((one.from_s - now) * 1000)),
                purpose=self.purpose,
                id=self.id,
            )
            for one in (self.before, self.epoch)
            if one
        ]

    def rekey(self, now: float) -> Told:
        """Whoever is no holder can neither read nor make what is sealed with the next key."""
        self.before = self.before if self.before and now < self.epoch.from_s else self.epoch
        self.epoch = next_epoch(self.epoch, now + HEAD_START_S)
        return [(server, self.for_agent(now)) for server in sorted(self.holders)]


class Keys:
    """`now`: seconds of a clock that does not go back. `addresses`: of servers. `rekey_s`: how old a key becomes."""

    def __init__(
        self,
        now: Callable[[], float],
        addresses: Mapping[str, IPv4Address],
        rekey_s: float = REKEY_S,
        tenant_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._now, self._addresses, self._rekey_s = now, addresses, rekey_s
        self._tenant_of = tenant_of
        self._own: dict[str, Epoch] = {}
        self._wishes: dict[str, set[str]] = {}  # who asked for a server's
        self._given: dict[str, dict[str, int]] = {}  # to an agent: of which servers' keys, and their epochs
        self._scopes: dict[tuple[int, int], Scope] = {}
        self._names: dict[int, str] = {}  # of peers that views name
        self._signers: dict[str, bytes] = {}  # public keys of agents that sign

    def hello(self, server: str, signer: bytes | None = None) -> Told:
        """Its agent is here (again): another key of its own, for those who write to it too, and those of its groups. It
        signs by `signer`: who is given a key for it hears that, too."""
        now = self._now()
        if signer is not None and len(signer) == SIGNER_BYTES:
            self._signers[server] = signer
        else:
            self._signers.pop(server, None)
        before = self._own.get(server)
        self._own[server] = next_epoch(before, now) if before else first_epoch(now)
        self._given.pop(server, None)
        mine = [self._self(server)]
        for scope in self._scopes.values():
            if server in scope.holders:
                mine += scope.for_agent(now)
        mine += [
            self._peer(server, other) for other, who in self._wishes.items() if server in who and other in self._own
        ]
        return [(server, mine), *((other, [self._peer(other, server)]) for other in self._wishers(server))]

    def wish(self, server: str, others: Sequence[str]) -> list[Any]:
        """Keys for others; of those whose agent is not here they follow when it is."""
        known = [other for other in others[:WISHES_MAX] if other in self._addresses and other != server]
        known = [other for other in known if self._tenant_of(other) == self._tenant_of(server)]
        for other in known:
            self._wishes.setdefault(other, set()).add(server)
        return [self._peer(server, other) for other in known if other in self._own]

    def named(self, server: str, others: Iterable[str]) -> Told:
        """It is told of these next: with what it writes to them, as far as it was not given that."""
        given = self._given.get(server, {})
        fresh = [one for one in others if one not in self._own or given.get(one) != self._own[one].number]
        keys = self.wish(server, fresh)
        return [(server, keys)] if keys else []

    def views(
        self, server: str, peers: Sequence[GroupPeer], views: Sequence[GroupView], regions: Sequence[GroupRegion]
    ) -> Told:
        """These views are told to that server next: it, and whoever else has to, is told of keys before."""
        for peer in peers:
            self._names[peer.id] = peer.server
        told = self.named(server, [peer.server for peer in peers])
        for view in views:
            if self._changed(told, idl.KeyFor.GROUP, view, (*view.members, *view.senders), view.facts is not None):
                self._scopes[idl.KeyFor.GROUP, view.id].regions = self._regions_of(view)
            self._give(
                told, server, (idl.KeyFor.GROUP, view.id), bool(view.members or view.senders or view.base_version)
            )
        for region in regions:
            self._changed(told, idl.KeyFor.REGION, region, region.nodes, region.base_version is None)
            there = bool(region.nodes or region.base_version)
            self._give(told, server, (idl.KeyFor.REGION, region.region), there)
        return told

    def due(self) -> Told:
        """What is too old, or has no numbers left, is another from now on: some of it at each call."""
        now, told = self._now(), list[tuple[str, list[Any]]]()
        for scope in self._scopes.values():
            if len(told) >= DUE_MAX:
                return told
            if now - scope.epoch.from_s >= self._rekey_s or scope.epoch.used_up:
                told += scope.rekey(now)
        for server, epoch in list(self._own.items()):
            if len(told) >= DUE_MAX:
                break
            if now - epoch.from_s >= self._rekey_s or epoch.used_up:
                self._own[server] = next_epoch(epoch, now)
                told.append((server, [self._self(server)]))
                told += [(other, [self._peer(other, server)]) for other in self._wishers(server)]
        return told

    def rekey(self) -> None:
        """All agents are to come again: who does not has none of the next keys."""
        for scope in self._scopes.values():
            scope.rekey(self._now())
        self._own.clear()
        self._given.clear()

    def _wishers(self, server: str) -> list[str]:
        return sorted(other for other in self._wishes.get(server, ()) if other in self._own)

    def _self(self, server: str) -> Any:
        epoch = self._own[server]
        return idl.SealKey(
            epoch=epoch.number, key=epoch.key, transmitter=0, in_ms=0, purpose=idl.KeyFor.SELF, id=self._shown(server)
        )

    def _peer(self, server: str, other: str) -> Any:
        """What `server` seals for `other`."""
        epoch = self._own[other]
        number, shown = epoch.take(1), self._shown(server)
        self._given.setdefault(server, {})[other] = epoch.number
        key = epoch.transmitter(shown, number)
        return idl.SealKey(
            epoch=epoch.number,
            key=key,
            transmitter=number,
            in_ms=0,
            purpose=idl.KeyFor.PEER,
            id=shown,
            server=other,
            signer=self._signers.get(other),
        )

    def _shown(self, server: str) -> int:
        return int(self._addresses[server])

    def _scope(self, purpose: int, number: int) -> Scope:
        found = self._scopes.get((purpose, number))
        if found is None:
            found = self._scopes[purpose, number] = Scope(purpose, number, first_epoch(self._now()))
        return found

    def _regions_of(self, view: GroupView) -> tuple[int, ...]:
        before = self._scopes[idl.KeyFor.GROUP, view.id].regions
        return before if view.facts is None or view.facts.regions is None else tuple(view.facts.regions)

    def _changed(self, told: Told, purpose: int, view: Any, ids: Iterable[int], full: bool) -> bool:
        """A version that was not seen yet: who is gone by it gets no further key. False: it was seen."""
        number = view.id if purpose == idl.KeyFor.GROUP else view.region
        scope = self._scope(purpose, number)
        if view.version <= scope.version:
            return False
        scope.version = view.version
        now_in = {self._names[one] for one in ids if one in self._names}
        gone = {self._names[one] for one in view.gone if one in self._names}
        full = full and view.base_version is None
        if full:
            gone |= scope.members - now_in
        scope.members = now_in if full else (scope.members - gone) | now_in
        self._leave(told, scope, gone - scope.members)
        for region in scope.regions:
            still = {one for one in gone if self._reaches(one, region)}
            self._leave(told, self._scope(idl.KeyFor.REGION, region), gone - still)
        return True

    def _reaches(self, server: str, region: int) -> bool:
        return any(region in scope.regions and server in scope.members for scope in self._scopes.values())

    def _leave(self, told: Told, scope: Scope, gone: set[str]) -> None:
        if gone & scope.holders:
            scope.holders -= gone
            told += scope.rekey(self._now())

    def _give(self, told: Told, server: str, which: tuple[int, int], there: bool) -> None:
        scope = self._scope(*which)
        if not there:
            scope.holders.discard(server)
            if not scope.holders:
                del self._scopes[which]
        elif server not in scope.holders:
            scope.holders.add(server)
            told.append((server, scope.for_agent(self._now())))
