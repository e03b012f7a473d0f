"""Rules of message groups on switches: what changes is ordered, what a switch lacks is set again, and trees leave roots
that are down.
"""

from __future__ import annotations

from collections.abc import Iterable

from rostrum.controller.core import actions as act
from rostrum.controller.core.groups.state import Flush
from rostrum.controller.core.model import ANY_PORT, MulticastRule
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import S

RULES_PER_ORDER = 256
RELIEF_NS = 1 * S  # how often groups that share are given addresses of their own, when there is room
RELIEF_MOVES = 8
LINGER_NS = 5 * S  # an address that a group has left still reaches its members


def rules_changed(core: Core, flush: Flush, now: int) -> None:
    """Orders what follows from where groups are now; `flush` waits for it."""
    m = core.members
    put, gone = m.sharing.settle()
    due = m.sharing.lingers_until()
    if due is not None and (m.tidy_at is None or due < m.tidy_at):
        m.tidy_at = due
        core.members.wake_at(due)
    if m.relieve_at is None and len(m.sharing.at) > len(m.sharing.all):
        m.relieve_at = now + RELIEF_NS
        core.members.wake_at(m.relieve_at)
    down = core.resources.switches_down
    for some in _chunks([rule for rule in gone if rule.switch not in down]):
        core.remove(some, "", now)  # before what is put: a switch never holds more than its budget
    flush.ops = set_rules(core, [rule for rule in put if rule.switch not in down])
    m.ops |= flush.ops
    starting = now < m.since + core.settings.grace
    flush.away = {rule.switch for rule in put if rule.switch in down and (starting or rule.switch in m.down)}


def set_rules(core: Core, rules: list[MulticastRule]) -> set[int]:
    ops = set()
    for some in _chunks(rules):
        for rule in some:
            core.foreign_rules.pop(rule_making.key(rule), None)
        core.resources.stale_rules.gone([rule_making.key(rule) for rule in some])
        op = core.next_serial()
        ops.add(op)
        core.emit(act.InstallRules(op, some, ""))
    return ops


def rules_found(core: Core, switch: str, found: dict[rule_making.RuleKey, MulticastRule], now: int) -> None:
    """A switch was read: what it lacks is set. What was to go while it was away goes, and is taken out of `found`;
    not just after the start, when agents have not told their groups yet.
    """
    wanted = core.members.sharing.rules_on(switch)
    if core.remembers_all or now >= core.members.since + core.settings.grace:
        stale = {key for key in found if key[1] == ANY_PORT} - {rule_making.key(rule) for rule in wanted}
        for some in _chunks([found.pop(key) for key in sorted(stale)]):
            core.remove(some, "", now)
    lacking = [rule for rule in wanted if not rule_making.holds(found.get(rule_making.key(rule)), rule)]
    ops = set_rules(core, lacking)
    core.members.ops |= ops
    if not lacking:
        core.members.unsure.pop(switch, None)
    if (flush := core.members.flush) and switch in flush.away:
        flush.away.discard(switch)
        flush.ops |= ops


def switch_up(core: Core, switch: str) -> None:
    m = core.members
    m.down.pop(switch, None)
    m.bad_roots -= {switch}


def switch_down(core: Core, switch: str, now: int) -> None:
    """Rules stay on a switch that lost its controller. One that does not come back loses its trees, if it is a root."""
    core.members.down[switch] = now + core.settings.grace
    core.members.wake_at(core.members.down[switch])


def links_changed(core: Core, now: int) -> None:
    """Ports between switches went down or came up: trees over dead links are left for others."""
    topology, dead = core.topology, set[tuple[str, int]]()
    for switch, port in core.resources.ports_down:
        end = topology.switches[switch].neighbours.get(port)
        if end and end.node in topology.switches:
            dead |= {(switch, port), (end.node, end.port)}
    for a, b in core.resources.failed.links:
        if a in topology.switches and b in topology.switches:
            dead |= {(a, port) for port, end in topology.switches[a].neighbours.items() if end.node == b}
    moved = core.members.sharing.links_changed(dead)
    if moved:
        core.warn("group trees leave links", dead=len(dead) // 2, groups=len(moved))
    _look_again(core, moved, now)


def expire_rules(core: Core, now: int) -> None:
    m = core.members
    for switch, (at, wait) in list(m.unsure.items()):
        if at <= now:
            m.unsure[switch] = (now + 30 * S, wait)
            if switch not in core.resources.switches_down:
                core.emit(act.ReadRules(switch))
    for switch, at in list(m.down.items()):
        if at <= now:
            del m.down[switch]
            _leave_root(core, switch, now)
    if m.tidy_at is not None and m.tidy_at <= now:
        m.tidy_at = None
        m.sharing.tidy(now)
        m.flush_at = min(m.flush_at or now, now)
        _look_again(core, m.sharing.badly_placed(), now)  # there may be room for a better tree now
    if m.relieve_at is not None and m.relieve_at <= now:
        m.relieve_at = None
        moved = m.sharing.relieve(now, LINGER_NS, RELIEF_MOVES, m.bad_roots)
        core.counts["group_moves"] += len(moved)
        _look_again(core, moved, now)


def _leave_root(core: Core, switch: str, now: int) -> None:
    m = core.members
    bad = m.bad_roots | {switch}
    if not m.sharing.is_root(switch) or m.sharing.all_roots <= bad:
        return  # nowhere to go
    m.bad_roots = bad
    moved = [group for group, shared in m.sharing.at.items() if shared.root == switch]
    core.warn("group trees leave their root", root=switch, groups=len(moved))
    _look_again(core, moved, now)


def _look_again(core: Core, ids: Iterable[int], now: int) -> None:
    m, wanted = core.members, set(ids)
    if not wanted:
        return
    m.moved_regions |= {-one for one in wanted if one < 0}
    for group in m.groups.values():
        if group.id in wanted:
            m.dirty[group.name] = None
    m.flush_at = min(m.flush_at or now, now)
    core.members.wake_at(m.flush_at)


def _chunks(rules: list[MulticastRule]) -> list[tuple[MulticastRule, ...]]:
    return [tuple(rules[i : i + RULES_PER_ORDER]) for i in range(0, len(rules), RULES_PER_ORDER)]
