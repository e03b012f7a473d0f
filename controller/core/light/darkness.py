"""Receivers that saw no packet of a path, and what is to blame for that.

Each word of a sender's agent (who had light, who had none) is one observation. Whatever lies on the way to a receiver
that had light works; what is left on the ways of the dark ones is under suspicion, the part that explains most of them
first. One observation condemns no part of the circuit network: a receiver alone behind its fibre may as well filter
multicast. Observations meet: a part is avoided when transfers through it with different receivers, and other partners
in the circuit, stayed dark, and none had light there since.

A server that was dark is expected to be dark again: senders do not wait for its light, and a transfer for such servers
alone takes no circuit. That costs it nothing if it has light after all, which clears it.

What one agent says counts for its own requests alone, until another agent says it too: one that lies harms itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rostrum.controller.core.circuits.splitters import Cascade
from rostrum.controller.core.model import Pair, PathKind
from rostrum.controller.core.text import listed, seconds
from rostrum.topologies.model import Ocs

if TYPE_CHECKING:
    from rostrum.controller.core.requests.paths import Path
    from rostrum.controller.core.state import Core

Part = tuple[str, str, Pair | int | str]  # OCS; "input", "output", "pair" or "splitter"; which
Place = tuple[str, Part | tuple[str, str]]  # what is remembered; of whom

SERVERS_TOLD: Final = 8  # dark receivers that an observation names
SIGHTS_MAX: Final = 8  # observations of one part by one agent
ORIGINS_MAX: Final = 8  # agents that are believed together
PARTS_MAX: Final = 4096
DOUBLINGS_MAX: Final = 5


@dataclass(frozen=True)
class Sight:
    """One path on which everybody behind a part was dark. `partner`: what the part was joined to."""

    at: int
    path: str
    partner: int
    servers: frozenset[str]


@dataclass
class DarkServer:
    """What one agent saw of a server on one kind of path. `beside`: receivers at the same port of the fabric that had
    light; `elsewhere`: others that had.
    """

    at: int
    times: int
    path: str
    beside: tuple[str, ...] = ()
    elsewhere: int = 0


@dataclass(frozen=True)
class Suspect:
    """For people: a server and the best evidence about it."""

    server: str
    kind: PathKind
    origins: tuple[str, ...]
    seen: DarkServer
    until: int


@dataclass
class Way:
    """From a sender's uplink to one rack."""

    rack: str
    parts: list[tuple[Part, int]] = field(default_factory=list)  # each with its partner


class Darkness:
    """The evidence, bounded. Times in ns; `hold_ns`: how long one observation counts, doubled with each repetition."""

    def __init__(self, hold_ns: int) -> None:
        self._hold_ns = hold_ns
        self._parts: OrderedDict[Part, dict[str, list[Sight]]] = OrderedDict()
        self._servers: dict[tuple[str, PathKind], dict[str, DarkServer]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts or self._servers)

    # ---------------------------------------------------------------------------------------------------- servers

    def server_dark(self, server: str, kind: PathKind, origin: str, seen: DarkServer) -> None:
        of = self._servers.setdefault((server, kind), {})
        before = of.pop(origin, None)
        if before is not None:
            seen.times = before.times + (before.path != seen.path)
            seen.beside = seen.beside or before.beside
            seen.elsewhere = seen.elsewhere or before.elsewhere
        of[origin] = seen
        while len(of) > ORIGINS_MAX:
            del of[next(iter(of))]

    def server_lit(self, server: str, kind: PathKind) -> None:
        """Light by a circuit shows that the server takes multicast; light by packets says nothing of its circuits."""
        self._servers.pop((server, kind), None)
        if kind is PathKind.CIRCUIT:
            self._servers.pop((server, PathKind.PACKET), None)

    def expected(self, server: str, kind: PathKind, asker: str | None, now: int) -> int | None:
        """Until when a server is expected to be dark on such a path; None if it is not. Who does not hear the packet
        network hears no circuit. `asker` None: by any word.
        """
        origins = dict(self._servers.get((server, PathKind.PACKET), {}))
        if kind is PathKind.CIRCUIT:
            origins |= self._servers.get((server, kind), {})
        return _believed({origin: self._until(one) for origin, one in origins.items()}, asker, now)

    def suspects(self, now: int) -> Iterator[Suspect]:
        for (server, kind), of in self._servers.items():
            held = {origin: one for origin, one in of.items() if self._until(one) > now}
            if held:
                best = max(held.values(), key=lambda one: (bool(one.beside), one.elsewhere > 0, one.times))
                until = max(self._until(one) for one in held.values())
                yield Suspect(server, kind, tuple(sorted(held)), best, until)

    def dark_servers(self, now: int) -> set[str]:
        """Those that are expected to be dark on some kind of path, by anybody's report."""
        return {name for (name, _), of in self._servers.items() if any(self._until(one) > now for one in of.values())}

    def _until(self, one: DarkServer) -> int:
        return one.at + self._held(one.times)

    def _held(self, times: int) -> int:
        return self._hold_ns << min(max(times - 1, 0), DOUBLINGS_MAX)

    # ------------------------------------------------------------------------------------------------------ parts

    def part_dark(self, part: Part, origin: str, sight: Sight) -> None:
        of = self._parts.setdefault(part, {})
        self._parts.move_to_end(part)
        of[origin] = [*of.pop(origin, []), sight][-SIGHTS_MAX:]
        while len(of) > ORIGINS_MAX:
            del of[next(iter(of))]
        while len(self._parts) > PARTS_MAX:
            self._parts.popitem(last=False)

    def parts_lit(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._parts.pop(part, None)

    def forget_path(self, parts: Iterable[Part], path_id: str) -> None:
        """What was concluded about a path's parts before more was known."""
        self._keep(parts, lambda sight: sight.path != path_id)

    def acquit(self, servers: Collection[str]) -> None:
        """These do not hear the packet network either: no part of the circuit network is to blame for them."""
        names = set(servers)
        self._keep(list(self._parts), lambda sight: not sight.servers <= names)

    def _keep(self, parts: Iterable[Part], keeps: Callable[[Sight], bool]) -> None:
        for part in parts:
            of = self._parts.get(part, {})
            for origin, sights in list(of.items()):
                of[origin] = [sight for sight in sights if keeps(sight)]
                if not of[origin]:
                    del of[origin]
            if not of:
                self._parts.pop(part, None)

    def suspected(self, part: Part, asker: str, now: int) -> bool:
        """Dark for more than one server: worth trying without it."""
        of = self._parts.get(part)
        if of is None:
            return False
        held = {origin: self._sights_until(sights) for origin, sights in of.items() if len(_servers(sights)) > 1}
        return _believed(held, asker, now) is not None

    def verdict(self, part: Part, asker: str | None, now: int) -> tuple[str, int] | None:
        """(cause, until) if the part is to be left alone by requests of `asker`; None: of anybody's."""
        of = self._parts.get(part)
        if not of:
            return None
        held = {origin: self._sights_until(sights) for origin, sights in of.items() if _agree(part, sights)}
        until = _believed(held, asker, now)
        if until is None:
            return None
        sights = [sight for origin in held for sight in of[origin]]
        who = listed(_servers(sights), 6)
        paths = len({sight.path for sight in sights})
        return f"out of use for {seconds(until - now)} more after: no light at {who} on {paths} paths through it", until

    def _sights_until(self, sights: list[Sight]) -> int:
        return sights[-1].at + self._held(len({sight.path for sight in sights}) - 1)

    def expire(self, now: int) -> None:
        """What is over is remembered as long again, so that what comes back lasts longer."""
        for key, of in list(self._servers.items()):
            for origin, one in list(of.items()):
                if self._until(one) + self._held(one.times) <= now:
                    del of[origin]
            if not of:
                del self._servers[key]
        for part, seen in list(self._parts.items()):
            for origin, sights in list(seen.items()):
                until = self._sights_until(sights)
                if until + (until - sights[-1].at) <= now:
                    del seen[origin]
            if not seen:
                del self._parts[part]


def _believed(until: dict[str, int], asker: str | None, now: int) -> int | None:
    """Of several agents' text, each good until then: one's own, or two others'; until when."""
    held = {origin: at for origin, at in until.items() if at > now}
    if not held:
        return None
    if asker is None or asker in held or len(held) > 1:
        return max(held.values())
    return None


def _servers(sights: Iterable[Sight]) -> frozenset[str]:
    return frozenset(name for sight in sights for name in sight.servers)


def _agree(part: Part, sights: list[Sight]) -> bool:
    """Whether observations leave the part alone in common: several paths, more than one server, and for a fibre
    different partners, since with one and the same it may be that one's fault.
    """
    paths = {sight.path for sight in sights}
    partners = {sight.partner for sight in sights}
    return len(paths) > 1 and len(_servers(sights)) > 1 and (part[1] not in ("input", "output") or len(partners) > 1)


def ways(ocs: Ocs, cascade: Cascade) -> list[Way]:
    """The parts between the uplink and each rack, those nearest to the rack first."""
    by_output = {pair.output: pair for pair in cascade.pairs}
    feeds = {output: one for one in ocs.splitters.values() for output in one.outputs}
    found = []
    for port in cascade.downlinks:
        way = Way(port.tor)
        pair = by_output.get(port.ocs_port)
        while pair is not None:
            way.parts.append(((ocs.name, "output", pair.output), pair.input))
            way.parts.append(((ocs.name, "pair", pair), 0))
            way.parts.append(((ocs.name, "input", pair.input), pair.output))
            splitter = feeds.get(pair.input)
            if splitter is None:
                break
            way.parts.append(((ocs.name, "splitter", splitter.name), 0))
            pair = by_output.get(splitter.input)
        found.append(way)
    return found


def note_dark(core: Core, path: Path, dark: Collection[str], lit: Collection[str], now: int) -> None:
    """One observation: of a path's receivers, those known to be dark and those known to have light."""
    servers, darkness, request = core.topology.servers, core.resources.health.darkness, path.request
    kind = path.kind or PathKind.PACKET
    core.schedule_check("unclaimed", now + core.settings.quarantine_ns)
    lit_at: dict[str, list[str]] = {}
    for name in lit:
        lit_at.setdefault(servers[name].tor, []).append(name)
    dark_at: dict[str, list[str]] = {}
    for name in dark:
        rack = servers[name].tor
        dark_at.setdefault(rack, []).append(name)
        beside = tuple(lit_at.get(rack, ())[:2])
        # Else something that it shares with the others is the likelier cause; of some of them nothing may be known yet.
        if kind is PathKind.PACKET or lit or len(request.receivers) == 1:
            seen = DarkServer(now, 1, path.id, beside, len(lit))
            darkness.server_dark(name, kind, request.origin, seen)
    if kind is PathKind.PACKET:
        darkness.acquit(dark)
    if kind is not PathKind.CIRCUIT or path.cascade is None:
        return
    found = ways(core.topology.ocs[path.ocs], path.cascade)
    darkness.forget_path([part for way in found for part, _ in way.parts], path.id)
    work = {part for way in found if way.rack in lit_at for part, _ in way.parts}
    darkness.parts_lit(work)
    for part, partner, racks in _most_common([way for way in found if way.rack in dark_at], work, lit_at):
        filtering = {n for rack in racks for n in dark_at[rack] if darkness.expected(n, PathKind.PACKET, None, now)}
        names = [name for rack in racks for name in dark_at[rack] if name not in filtering]
        if names:
            darkness.part_dark(part, request.origin, Sight(now, path.id, partner, frozenset(names[:SERVERS_TOLD])))


def _most_common(dark: list[Way], work: set[Part], lit_at: Collection[str]) -> list[tuple[Part, int, list[str]]]:
    """Parts that are left of the dark racks' ways, each with its partner and the racks behind it: for each rack those
    that explain most racks.
    """
    behind: dict[Part, tuple[int, list[str]]] = {}
    for way in dark:
        if way.rack in lit_at:
            continue  # others there had light: it is the server's own
        for part, partner in way.parts:
            if part not in work:
                behind.setdefault(part, (partner, []))[1].append(way.rack)
    most: dict[str, int] = {}
    for _, racks in behind.values():
        for rack in racks:
            most[rack] = max(most.get(rack, 0), len(racks))
    return [
        (part, partner, racks)
        for part, (partner, racks) in behind.items()
        if all(len(racks) == most[rack] for rack in racks)
    ]


def note_light(core: Core, path: Path, lit: Collection[str]) -> None:
    """These receivers have light of a path that was not moved: it and they work."""
    darkness, servers = core.resources.health.darkness, core.topology.servers
    if not darkness or path.kind is None:
        return
    for name in lit:
        darkness.server_lit(name, path.kind)
    if path.kind is PathKind.CIRCUIT and path.cascade is not None:
        racks = {servers[name].tor for name in lit}
        found = ways(core.topology.ocs[path.ocs], path.cascade)
        darkness.parts_lit(part for way in found if way.rack in racks for part, _ in way.parts)
