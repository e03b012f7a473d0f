"""Multicast addresses of message groups, and the switch rules they cost, within a budget of rules for each switch.

While rules are plentiful every group has an address and a tree of its own, and nobody gets what he did not join. Beyond
that, groups share an address whose tree reaches the receivers of all of them: agents pass over what is not theirs, and
`waste` says how much that is. Which groups share: those whose receivers are in the same racks, and of them where the
fewest deliveries are added. A part of every switch's budget is kept for addresses that can reach everybody, so that
there is always a place for a group, however full the switches are.

A tree never changes its root, and a group that gets another address keeps its place at the old one for `linger_ns`:
what is on its way, and what senders still send there, arrives. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address

from rostrum.controller.core.groups.addresses import Exhausted
from rostrum.controller.core.groups.trees import Places, Ports, Spanning, packet_ports, roots
from rostrum.controller.core.model import ANY_PORT, MulticastRule
from rostrum.topologies.model import Topology

OWN_SHARE = 0.8  # of the budget for groups with an address of their own; what shared ones may grow by is the rest
LATELY_SHARE = 0.5  # of a switch's budget: beyond, the rules of who left go at once
EVERYBODY_MAX = 2  # addresses that may reach everybody: one in use, one left because its root failed
LOOKED_AT = 64  # shared addresses compared for a group that needs one: of the same racks, and as many others
TRIED = 8  # of them, the best first
COUNTERS_PER_ENTRY = 8
Masks = tuple[int, int]  # receivers, senders


@dataclass(eq=False)
class Shared:
    """An address, its tree, and the groups at it; `leaving`: groups that have another address by now -> until when."""

    address: IPv4Address
    root: str
    tree: Spanning  # it is a part of; the same all its life
    everybody: bool = False
    broken: bool = False  # a link of its tree is dead
    groups: dict[int, Masks] = field(default_factory=dict)
    leaving: dict[int, tuple[Masks, int]] = field(default_factory=dict)
    receivers: int = 0
    senders: int = 0
    racks: int = 0  # of both
    ports: Ports = field(default_factory=dict)

    def sum_up(self) -> Masks:
        """Everybody who has to be reached, or sends."""
        receivers = senders = 0
        for masks in self.groups.values():
            receivers |= masks[0]
            senders |= masks[1]
        for masks, _ in self.leaving.values():
            receivers |= masks[0]
            senders |= masks[1]
        return receivers, senders


class NoRoom(Exception):
    """No address can be had; the text says why."""


class Sharing:
    """Places groups at addresses. `take`, `give_back`: the range of addresses; `budget`: rules on each switch."""

    def __init__(
        self,
        topology: Topology,
        places: Places,
        budget: int,
        level: int,
        take: Callable[[], IPv4Address],
        give_back: Callable[[IPv4Address], None],
        addresses_max: int,
    ) -> None:
        self._topology, self._places, self.budget, self._level = topology, places, budget, level
        self._take, self._give_back, self._addresses_max = take, give_back, addresses_max
        self._spannings: dict[str, Spanning] = {}
        self._dead: frozenset[tuple[str, int]] = frozenset()
        self._roots = roots(topology)
        self.cost = {name: rule_cost(topology, name) for name in topology.switches}
        self.used: Counter[str] = Counter()  # rules on each switch, those of addresses for everybody not among them
        self.at: dict[int, Shared] = {}  # group -> where it is
        self.all: dict[IPv4Address, Shared] = {}
        self._everybody: list[Shared] = []
        self._by_racks: dict[int, dict[IPv4Address, Shared]] = {}
        self._turn: list[IPv4Address] = []
        self._dirty: dict[IPv4Address, Shared] = {}
        self._lingering: dict[IPv4Address, Shared] = {}
        self._installed: dict[IPv4Address, Ports] = {}
        self._of_tenants: dict[str, list[tuple[int, str]]] = {}

    @cached_property
    def wrong_budget(self) -> str:
        """Why no group can be, as text; empty = they can."""
        short = [name for name, cost in sorted(self.cost.items()) if EVERYBODY_MAX * cost > self.budget]
        if not short:
            return ""
        need = EVERYBODY_MAX * self.cost[short[0]]
        return f"a budget of {self.budget} group rules per switch is too small: {short[0]} needs {need}"

    def place(
        self, group: int, masks: Masks, now: int, linger_ns: int, bad_roots: Collection[str] = (), lately: int = 0
    ) -> Shared:
        """Where a group with these receivers and senders (those who do not receive) is from now on. `lately`: who left
        it a moment ago; while rules are plentiful its tree still leads out of their racks. Raises NoRoom.
        """
        here = self.at.get(group)
        if here and not here.broken and here.root not in bad_roots:
            kept = (masks[0], masks[1] | lately & ~masks[0]) if lately and self._is_roomy(here) else masks
            if self._grow(here, group, kept):
                return here
        there = (
            self._own(group, masks, bad_roots)
            or self._with_others(group, masks, bad_roots, here)
            or self._with_everybody(group, masks, bad_roots)
        )
        if here and here is not there:
            self._leave(here, group, now + linger_ns)
        self.at[group] = there
        return there

    def place_at(self, group: int, address: IPv4Address, root: str, masks: Masks, everybody: bool = False) -> None:
        """As an earlier manager had it, where that fits; otherwise the group has no place yet."""
        shared = self.all.get(address)
        if shared is None:
            if root not in self._roots or (everybody and len(self._everybody) >= EVERYBODY_MAX):
                return
            shared = self._new(address, root, everybody)
        if self._grow(shared, group, masks):
            self.at[group] = shared
        elif not shared.groups:
            self._drop(shared)

    def remove(self, group: int) -> None:
        here = self.at.pop(group, None)
        if here:
            del here.groups[group]
            self._dirty[here.address] = here

    def end(self, group: int, until: int) -> None:
        """As `remove`, but while rules are plentiful its own stay until then: what was sent there comes yet."""
        here = self.at.get(group)
        if here is None or not self._is_roomy(here):
            self.remove(group)
        else:
            del self.at[group]
            self._leave(here, group, until)

    def links_changed(self, dead: Collection[tuple[str, int]]) -> list[int]:
        """`dead`: ends (switch, port) of links that carry nothing. Returns the groups that need another tree: over a
        dead link, or around one that lives again and leads to racks that theirs does not reach.
        """
        self._dead = frozenset(dead)
        self._spannings.clear()
        for shared in self.all.values():
            over = any((switch, port) in self._dead for switch, ports in shared.ports.items() for port in ports)
            missing = self._spanning(shared.root).reached & shared.racks & ~shared.tree.reached
            shared.broken = shared.broken or over or missing != 0
        return self.badly_placed()

    def badly_placed(self) -> list[int]:
        """Groups with a tree over a dead link, or one that does not reach who could be reached."""
        return [group for group, shared in self.at.items() if shared.broken]

    def tidy(self, now: int) -> None:
        """Ends what has lingered long enough."""
        for shared in list(self._lingering.values()):
            for group in [one for one, (_, until) in shared.leaving.items() if until <= now]:
                del shared.leaving[group]
                self._dirty[shared.address] = shared
            if not shared.leaving:
                del self._lingering[shared.address]

    def lingers_until(self) -> int | None:
        """When to call `tidy`."""
        return min((until for one in self._lingering.values() for _, until in one.leaving.values()), default=None)

    @property
    def all_roots(self) -> frozenset[str]:
        return frozenset(self._roots)

    def is_root(self, switch: str) -> bool:
        return switch in self._roots

    def root_of(self, address: IPv4Address) -> str:
        """A root for an address whose own is not known."""
        return self._roots[int(address) % len(self._roots)]

    def settle(self) -> tuple[list[MulticastRule], list[MulticastRule]]:
        """Rules to set, and rules to take out, since the last call."""
        put: list[MulticastRule] = []
        gone: list[MulticastRule] = []
        for address, shared in self._dirty.items():
            if not shared.groups and not shared.leaving:
                self._drop(shared)
            elif (shared.receivers, shared.senders) != shared.sum_up():
                self._set(shared, *shared.sum_up())
            old = self._installed.pop(address, {})
            new = shared.ports if address in self.all else {}
            put += [self._rule(switch, address, out) for switch, out in new.items() if old.get(switch) != out]
            gone += [self._rule(switch, address, out) for switch, out in old.items() if switch not in new]
            if new:
                self._installed[address] = dict(new)
            if address not in self.all:
                self._give_back(address)
        self._dirty.clear()
        return put, gone

    def relieve(self, now: int, linger_ns: int, moves: int, bad_roots: Collection[str] = ()) -> list[int]:
        """Groups that share and waste, and get an address of their own now that there is room; at most `moves`."""
        moved: list[int] = []
        for shared in self._some(LOOKED_AT):
            for group in list(shared.groups)[:LOOKED_AT] if len(shared.groups) > 1 else ():
                if len(moved) >= moves:
                    return moved
                masks = shared.groups[group]
                if self.waste(group) and self._room_for_own(masks, bad_roots):
                    own = self._own(group, masks, bad_roots)
                    if own:
                        self._leave(shared, group, now + linger_ns)
                        self.at[group] = own
                        moved.append(group)
        return moved

    def waste(self, group: int) -> int:
        """Deliveries of each of its messages to servers that are not in the group."""
        here = self.at.get(group)
        if here is None or not here.ports:
            return 0
        return (here.receivers & ~here.groups[group][0]).bit_count()

    def rules_on(self, switch: str) -> list[MulticastRule]:
        """What should be on a switch."""
        return [
            self._rule(switch, address, ports[switch]) for address, ports in self._installed.items() if switch in ports
        ]

    def entries(self, switch: str) -> int:
        """What a switch's tables hold for groups; never more than the budget."""
        return self.used[switch] + sum(self.cost[switch] for one in self._everybody if switch in one.ports)

    # Ways to place a group; each says no by None or False and has changed nothing then.

    def _grow(self, shared: Shared, group: int, masks: Masks) -> bool:
        """The group gets, or changes, its place at an address that exists."""
        receivers, senders = shared.receivers | masks[0], shared.senders | masks[1]
        if (receivers, senders) != (shared.receivers, shared.senders):
            racks = self._places.racks(receivers | senders)
            tree = shared.tree
            if racks & ~tree.reached and not shared.everybody:
                return False
            ports = tree.ports(receivers, senders)
            if not shared.everybody and not self._fits(shared.ports, ports, self.budget):
                return False
            self._set(shared, receivers, senders, ports)
        shared.leaving.pop(group, None)
        shared.groups[group] = masks
        self._dirty[shared.address] = shared
        return True

    def _own(self, group: int, masks: Masks, bad_roots: Collection[str]) -> Shared | None:
        if len(self.all) >= self._addresses_max - EVERYBODY_MAX:
            return None
        for root in self._best_roots(masks, bad_roots):
            ports = self._spanning(root).ports(*masks)
            if self._fits({}, ports, int(self.budget * OWN_SHARE)):
                try:
                    shared = self._new(self._take(), root)
                except Exhausted:
                    return None
                self._grow(shared, group, masks)
                return shared
        return None

    def _is_roomy(self, shared: Shared) -> bool:
        return all(self.used[one] <= self.budget * LATELY_SHARE for one in shared.ports)

    def _room_for_own(self, masks: Masks, bad_roots: Collection[str]) -> bool:
        """Not at the brink: what is freed and filled at once would send groups to and fro."""
        limit = int(self.budget * OWN_SHARE * 0.9)
        found = self._best_roots(masks, bad_roots)[:1]
        return bool(found) and self._fits({}, self._spanning(found[0]).ports(*masks), limit)

    def _with_others(self, group: int, masks: Masks, bad_roots: Collection[str], here: Shared | None) -> Shared | None:
        """The address where the fewest deliveries are added."""
        wanted, racks = masks[0].bit_count(), self._places.racks(masks[0] | masks[1])
        full = sum(1 << i for i, tor in enumerate(self._places.tors) if not self._fits({}, {tor: ()}, self.budget))
        same = list(self._by_racks.get(self._places.racks(masks[0]), {}).values())[-LOOKED_AT:]
        found: list[tuple[int, int, Shared]] = []
        for i, shared in enumerate({one.address: one for one in (*same, *self._some(LOOKED_AT))}.values()):
            if self._tenants(masks[0] | masks[1]) != self._tenants(shared.receivers | shared.senders):
                continue
            if shared.everybody or shared.broken or shared is here or shared.root in bad_roots or not shared.groups:
                continue
            if racks & ~shared.racks & full:
                continue  # its tree cannot grow there
            all_of = (shared.receivers | masks[0]).bit_count()
            added = len(shared.groups) * (all_of - shared.receivers.bit_count()) + all_of - wanted
            found.append((added, i, shared))
        found.sort(key=lambda one: one[:2])
        return next((shared for _, _, shared in found[:TRIED] if self._grow(shared, group, masks)), None)

    def _with_everybody(self, group: int, masks: Masks, bad_roots: Collection[str]) -> Shared:
        if self._topology.tenants:
            raise NoRoom("the switches have no room for another tree, and tenants share none")
        in_use = [one for one in self._everybody if one.groups or one.leaving]  # others go when all is settled
        good = [one for one in in_use if one.root not in bad_roots and not one.broken]
        usable = good or in_use[EVERYBODY_MAX - 1 :]
        if not usable:
            everyone = (1 << len(self._places.names)) - 1
            found = self._best_roots((everyone, 0), bad_roots) or self._roots
            try:
                usable = [self._new(self._take(), found[0], everybody=True)]
            except Exhausted as error:
                raise NoRoom(str(error)) from error
        self._grow(usable[0], group, masks)
        return usable[0]

    def _leave(self, shared: Shared, group: int, until: int) -> None:
        shared.leaving[group] = (shared.groups.pop(group), until)
        self._dirty[shared.address] = self._lingering[shared.address] = shared

    def _best_roots(self, masks: Masks, bad_roots: Collection[str]) -> list[str]:
        """Of the roots that reach everybody, the one with the fewest rules first."""
        racks = self._places.racks(masks[0] | masks[1])
        good = [one for one in self._roots if one not in bad_roots and not racks & ~self._spanning(one).reached]
        return sorted(good, key=lambda one: (self.used[one], one))[:4]

    def _some(self, count: int) -> list[Shared]:
        """The next ones in turn."""
        if not self._turn:
            self._turn = list(self.all)
        names, self._turn = self._turn[:count], self._turn[count:]
        return [self.all[name] for name in names if name in self.all]

    def _fits(self, old: Ports, new: Ports, limit: int) -> bool:
        kept = EVERYBODY_MAX + 1
        return all(self.used[one] + kept * self.cost[one] <= limit for one in new if one not in old)

    def _new(self, address: IPv4Address, root: str, everybody: bool = False) -> Shared:
        shared = self.all[address] = Shared(address, root, self._spanning(root), everybody)
        if everybody:
            self._everybody.append(shared)
        self._by_racks.setdefault(0, {})[address] = shared
        return shared

    def _set(self, shared: Shared, receivers: int, senders: int, ports: Ports | None = None) -> None:
        new = shared.tree.ports(receivers, senders) if ports is None else ports
        if not shared.everybody:
            for switch in new.keys() - shared.ports.keys():
                self.used[switch] += self.cost[switch]
            for switch in shared.ports.keys() - new.keys():
                self.used[switch] -= self.cost[switch]
        before, after = self._places.racks(shared.receivers), self._places.racks(receivers)
        if before != after:
            self._forget_racks(shared, before)
            self._by_racks.setdefault(after, {})[shared.address] = shared
        shared.receivers, shared.senders, shared.ports = receivers, senders, new
        shared.racks = self._places.racks(receivers | senders)

    def _forget_racks(self, shared: Shared, racks: int) -> None:
        bucket = self._by_racks.get(racks, {})
        bucket.pop(shared.address, None)
        if not bucket:
            self._by_racks.pop(racks, None)

    def _drop(self, shared: Shared) -> None:
        self._set(shared, 0, 0, {})
        self._forget_racks(shared, 0)
        del self.all[shared.address]
        if shared.everybody:
            self._everybody.remove(shared)

    def _spanning(self, root: str) -> Spanning:
        if root not in self._spannings:
            self._spannings[root] = Spanning(self._places, root, self._dead)
        return self._spannings[root]

    def _rule(self, switch: str, address: IPv4Address, out_ports: Iterable[int]) -> MulticastRule:
        barred: tuple[int, ...] = ()
        if self._topology.tenants:
            shared = self.all.get(address)
            here = self._tenants(shared.receivers | shared.senders) if shared else frozenset()
            barred = tuple(port for port, tenant in self._server_ports(switch) if tenant not in here)
        return MulticastRule(switch, ANY_PORT, address, tuple(out_ports), level=self._level, barred=barred)

    def _server_ports(self, switch: str) -> list[tuple[int, str]]:
        """Ports that lead to servers, with these servers' tenants."""
        found = self._of_tenants.get(switch)
        if found is None:
            ends = sorted(self._topology.switches[switch].neighbours.items())
            at = self._topology.servers
            found = [(port, self._topology.tenant_of(end.node)) for port, end in ends if end.node in at]
            self._of_tenants[switch] = found
        return found

    def _tenants(self, servers: int) -> frozenset[str]:
        """Of these; none where there are none."""
        if not self._topology.tenants:
            return frozenset()
        return frozenset(self._topology.tenant_of(name) for name in self._places.named(servers))


def rule_cost(topology: Topology, switch: str) -> int:
    """What a rule for any port takes of a switch's budget. P4's tables match the port exactly, so it is an entry for
    each port there, and a delivery counter for each entry and out port, of which there are fewer.
    """
    if topology.switches[switch].southbound != "p4runtime":
        # An entry for each port of a server of another tenant, at most.
        ends = topology.switches[switch].neighbours.values() if topology.tenants else ()
        return 1 + sum(end.node in topology.servers for end in ends)
    ports = len(packet_ports(topology, switch))
    return max(ports, -(-ports * ports // COUNTERS_PER_ENTRY))
