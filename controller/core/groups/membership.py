"""The group membership service: who receives and who publishes which group's messages, told in versioned views.

Changes are gathered for a short window (`group_window_ns`), so that a storm of joins makes few views. Then the groups
that changed are placed (sharing.py), the rules that follow are set, and when the switches have confirmed them
(or after RULES_WAIT_NS) each agent concerned gets one call with all its views. One such flush is under way at a time:
while switches are slow, windows become longer.

An agent that is silent for its lease is out of its groups. One that comes back before that tells its groups again and
nobody else notices; one that was restarted is a new peer by the same name.
"""

from __future__ import annotations

import heapq

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups import regional
from rostrum.controller.core.groups.rules import LINGER_NS, expire_rules, rules_changed
from rostrum.controller.core.groups.sharing import NoRoom
from rostrum.controller.core.groups.state import Flush, Group
from rostrum.controller.core.groups.trees import bits
from rostrum.controller.core.groups.trouble import REMEMBERED_NS, Trouble
from rostrum.controller.core.groups.values import (
    Engine,
    GroupFacts,
    GroupOptions,
    GroupUse,
    WrongOptions,
    agreed,
    completed,
    wrong_name,
    wrong_options,
)
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import MS, S

FLUSH_MAX = 256  # groups changed in one step; others wait for the next, so that paths get their turn
STORM, STORM_NS = 256, S // 2  # so many changed groups are a storm; it is gathered that long at most
RULES_WAIT_NS = 1 * S  # views do not wait longer for switches
EMPTY_NS = 30 * S  # a group that nobody is in keeps its id and address that long
# The way out of a rack stays that long after a publisher, which may come again. Switches confirm a rule before their
# caches follow (Open vSwitch: those of the last 10 s): a way that is taken out and set again drops the first packets.
LATELY_NS = 15 * S


def joined(core: Core, event: ev.GroupJoined, now: int) -> None:
    m, use = core.members, event.use
    server = m.places.number.get(event.server)
    if server is None:
        return
    group = m.groups.get(use.group)
    try:
        reason = _refusal(core, event, server, group)
        options = _options(core, event, group)
    except WrongOptions as wrong:
        options, reason = GroupOptions(), str(wrong)
    if reason:
        core.counts["groups_refused"] += 1
        core.emit(act.RefuseGroup(event.server, use.group, reason))
        return
    if group is None:
        group = _make(core, use, options, now)
    group.options = options
    if not group.everybody:
        _take_kind(core, group, m.engines.get(options.protocol))
    group.version = max(group.version, use.version)
    bit = 1 << server
    if not (group.uses if event.sends_only else group.members) & bit:
        core.counts["group_joins"] += 1
    if event.sends_only:
        group.uses |= bit
    else:
        group.members |= bit
    group.fresh |= bit
    group.lately &= ~bit
    m.lately.pop((group.name, server), None)
    m.of_server.setdefault(server, {})[group.name] = None
    m.empty.pop(group.name, None)
    if server in m.unconfirmed:
        m.unconfirmed[server][0].discard(group.name)
    mark(core, group, now)


def left(core: Core, event: ev.GroupLeft, now: int) -> None:
    m = core.members
    group, server = m.groups.get(event.group), m.places.number.get(event.server)
    if group is None or server is None:
        return
    bit = 1 << server
    if not (group.uses if event.sends_only else group.members) & bit:
        return
    if event.sends_only:
        group.uses &= ~bit
    else:
        group.members &= ~bit
        group.fresh |= group.uses & bit  # a sender from now on
    core.counts["group_leaves"] += 1
    if not group.everybody >> server & 1:
        _out(core, group, server, now)
    mark(core, group, now)


def troubled(core: Core, event: ev.GroupTroubled, now: int) -> None:
    """Slow programs are shown; a member that others hear nothing of, or that alone says so, is put out (trouble.py)."""
    m = core.members
    group, server = m.groups.get(event.group), m.places.number.get(event.server)
    if group is None or server is None or not group.members >> server & 1:
        return
    trouble = m.trouble.setdefault(group.name, Trouble())
    silent = frozenset(m.places.number[one] for one in event.silent if one in m.places.number)
    if any(one.state == "put-out" for one in event.slow):
        m.wake_at(now + REMEMBERED_NS)
    if trouble.take(server, event.slow, silent, now):
        for one in event.slow:
            core.warn("slow program", group=group.name, server=event.server, program=one.program, state=one.state)
        core.emit(act.GroupsChanged((group.name,)))
    found = trouble.put_out(_by_address(core, group), now) if silent else None
    if found is not None:
        name, reason = m.places.names[found[0]], f"{m.places.names[found[0]]} is put out of {group.name}: {found[1]}"
        core.warn("put out of a group", group=group.name, server=name, cause=found[1])
        trouble.told.clear()  # what is seen from now on counts
        _drop(core, found[0], {group.name}, now)
        core.emit(act.RefuseGroup(name, group.name, reason))


def _by_address(core: Core, group: Group) -> tuple[int, ...]:
    """Members: the first one coordinates (agent/core/order). Whose agent is away goes by its lease: if that is the
    coordinator, or half of them, nobody is judged.
    """
    names, members = core.members.places.names, list(bits(group.members))
    members.sort(key=lambda one: core.topology.servers[names[one]].address)
    here = tuple(one for one in members if names[one] in core.agents and core.agents[names[one]].connected)
    return here if here[:1] == tuple(members[:1]) and 2 * len(here) > len(members) else ()


def made(core: Core, event: ev.GroupMade, now: int) -> None:
    """What is wrong was checked by REST."""
    group = core.members.groups.get(event.group)
    if group is None:
        group = _make(core, GroupUse(event.group), event.options, now)
    group.kept, group.options = True, event.options
    core.members.empty.pop(group.name, None)
    core.emit(act.GroupsChanged((group.name,)))
    mark(core, group, now)


def deleted(core: Core, event: ev.GroupDeleted, now: int) -> None:
    m = core.members
    group = m.groups.get(event.group)
    if group is None:
        return
    for server in bits(group.everybody):
        _out(core, group, server, now)
        core.emit(act.RefuseGroup(m.places.names[server], group.name, event.reason))
    group.members = group.uses = 0
    _forget(core, group)
    core.log("group deleted", group=group.name)
    _wake(core, now)


def agent_up(core: Core, event: ev.AgentUp, restarted: bool, moved: bool, now: int) -> None:
    """A new connection. What its agent does not tell again within a lease it has left meanwhile."""
    m = core.members
    server = m.places.number[event.server]
    m.outbox.forget(server)
    regional.forget(core, server)
    m.lapsed.pop(server, None)
    m.engines |= {one.name: one for one in event.group_engines}
    if restarted or moved:
        m.outbox.moved(server)
        m.regions.renew(server)
    names = m.of_server.get(server)
    if not names:
        return
    bit = 1 << server
    for name in names:
        group = m.groups[name]
        if restarted:
            group.reborn |= bit
        elif moved:
            group.fresh |= group.members
        if restarted or moved:
            mark(core, group, now)
    m.unconfirmed[server] = (set(names), now + core.settings.lease_ns)
    core.members.wake_at(now + core.settings.lease_ns)


def agent_silent(core: Core, name: str, now: int) -> None:
    """Its lease is over: it is out of all groups. If it speaks again it is in them again."""
    m = core.members
    server = m.places.number[name]
    if server in m.of_server:
        m.lapsed[server] = [
            ev.GroupJoined(name, GroupUse(group.name, group.options), sends_only)
            for group in (m.groups[one] for one in m.of_server[server])
            for sends_only, those in ((False, group.members), (True, group.uses))
            if those >> server & 1
        ]
        core.log("out of its groups", agent=name, groups=len(m.of_server[server]), cause="its agent is silent")
        _drop(core, server, set(m.of_server[server]), now)


def agent_back(core: Core, name: str, now: int) -> None:
    """It was silent for its lease, and on the same connection: it does not know that it was out of its groups."""
    m = core.members
    server = m.places.number[name]
    m.outbox.forget(server)
    regional.forget(core, server)
    for event in m.lapsed.pop(server, ()):
        joined(core, event, now)


def mark(core: Core, group: Group, now: int) -> None:
    """The group is to be looked at in the next flush."""
    core.members.dirty[group.name] = None
    core.members.changed_at = now
    core.persistence.mark("group", group.name)
    _wake(core, now)


def expire(core: Core, now: int) -> None:
    """Whatever is due."""
    m = core.members
    if not m.timers or m.timers[0] > now:
        return
    while m.timers and m.timers[0] <= now:
        heapq.heappop(m.timers)
    for server, (names, until) in list(m.unconfirmed.items()):
        if until <= now:
            del m.unconfirmed[server]
            _drop(core, server, names, now)
    for trouble in m.trouble.values():
        trouble.expire(now)
    while m.lately and next(iter(m.lately.values())) <= now:
        name, server = next(iter(m.lately))
        del m.lately[name, server]
        if name in m.groups:
            m.groups[name].lately &= ~(1 << server)
            m.dirty[name] = None
            _wake(core, now)
    while m.empty and next(iter(m.empty.values())) <= now:
        _forget(core, m.groups[next(iter(m.empty))])
        _wake(core, now)
    for name, until in list(m.held.items()):
        if until <= now:
            del m.held[name]
            if name in m.groups:
                m.groups[name].held_until = 0
                mark(core, m.groups[name], now)
    expire_rules(core, now)
    regional.expire(core, now)
    if m.flush and m.flush.until <= now:
        away = listed(m.flush.away) or "none"
        core.warn("group views do not wait for switches", orders=len(m.flush.ops), away=away)
        _finish(core, now)
    if m.flush_at is not None and m.flush_at <= now and m.flush is None:
        if (storm := _storm_until(core)) > now:
            m.flush_at = storm
            core.members.wake_at(storm)
        else:
            _start(core, now)


def rules_answered(core: Core, op: int, failures: tuple[tuple[str, str], ...], now: int) -> None:
    """An order of ours was carried out, or not; others' orders are none of ours."""
    m = core.members
    if op not in m.ops:
        return
    m.ops.discard(op)
    for switch, cause in failures:
        wait = min(2 * m.unsure.get(switch, (0, S // 2))[1], 30 * S)
        m.unsure[switch] = (now + wait, wait)
        core.members.wake_at(now + wait)
        core.warn("group rules not set", switch=switch, cause=cause, again_ms=wait // MS)
    if failures:  # perhaps of full tables
        core.discard(core.idle_rules.of_switches([switch for switch, _ in failures]), now)
    if m.flush and op in m.flush.ops:
        m.flush.ops.discard(op)
        finish_if_done(core, now)


def finish_if_done(core: Core, now: int) -> None:
    """The rules of what changed are on the switches: all concerned are told."""
    if (flush := core.members.flush) and not flush.ops and not flush.away:
        _finish(core, now)


def _options(core: Core, event: ev.GroupJoined, group: Group | None) -> GroupOptions:
    """Those of the group that is joined, of a new one all of them. Raises WrongOptions: they cannot be had."""
    use, asked = event.use, event.use.options
    settled = group is not None and (group.everybody != 0 or group.kept)
    wanted = group.options if group and (settled or not asked) else asked or GroupOptions(core.settings.group_protocol)
    if asked and (wrong := wrong_options(asked)):
        raise WrongOptions(wrong)
    if asked and settled and (asked.protocol, asked.order) != (wanted.protocol, wanted.order):
        raise _other(use.group, wanted, asked)
    agent = core.agents.get(event.server)
    engines = agent.group_engines if agent else ()
    engine = next((one for one in engines if one.name == wanted.protocol), None)
    if engine is None:
        has = f"has {', '.join(one.name for one in engines)}" if engines else "knows no groups"
        raise WrongOptions(f"{use.group} runs {wanted.protocol}; the agent of {event.server} {has}")
    if settled and group is not None and group.everybody and group.regional and not engine.regions:
        raise WrongOptions(f"{use.group} travels in regions; install this release on {event.server}")
    if asked and settled and not agreed(engine, asked.options, wanted.options):
        raise _other(use.group, wanted, asked)
    complete = completed(engine, wanted.options)
    return wanted if settled else GroupOptions(wanted.protocol, wanted.order, complete)


def _other(group: str, has: GroupOptions, asked: GroupOptions) -> WrongOptions:
    return WrongOptions(f"{group} is there with other options: {described(has)}, not {described(asked)}")


def _refusal(core: Core, event: ev.GroupJoined, server: int, group: Group | None) -> str:
    """Why a join cannot be, whatever its options; empty = it can."""
    m, use, settings = core.members, event.use, core.settings
    wrong = wrong_name(use.group) or m.sharing.wrong_budget
    if wrong:
        return wrong
    if group is None and len(m.groups) >= settings.groups_max:
        return f"{settings.groups_max} groups are there already, the most that this manager takes (--groups)"
    if foreign := _foreign(core, event.server, use.group, group):
        return foreign
    names = m.of_server.get(server, {})
    if use.group not in names and len(names) >= settings.groups_per_server:
        return f"{event.server} is in {len(names)} groups, the most that a server may be in"
    if group and not group.everybody >> server & 1 and group.everybody.bit_count() >= settings.group_members_max:
        return f"{group.name} has {settings.group_members_max} members and senders, the most that a group may have"
    return ""


def _foreign(core: Core, server: str, name: str, group: Group | None) -> str:
    """Why a group is not for this server's tenant; empty = it is."""
    topology = core.topology
    if not topology.tenants:
        return ""
    mine, owner = topology.tenant_of(server), topology.tenant_of_group(name)
    if not owner and group is not None and group.everybody:
        first = core.members.places.names[next(iter(bits(group.everybody)))]
        owner = topology.tenant_of(first)
    if owner and owner != mine:
        return f"{name} is a group of another tenant than {server}'s, {mine}; take another name"
    return ""


def described(one: GroupOptions) -> str:
    chosen = f" ({one.options.replace(',', ', ')})" if one.options else ""
    return f"{one.protocol}{chosen}, order {one.order}"


def _make(core: Core, use: GroupUse, of: GroupOptions, now: int) -> Group:
    m = core.members
    group = m.groups[use.group] = Group(use.group, m.take_id(use.id), of, kept=False)
    if use.version:
        # An earlier manager's, and its members are just coming back: no view that lacks most of them.
        group.held_until = m.held[group.name] = now + core.settings.grace
        core.members.wake_at(group.held_until)
    if use.address and use.address not in m.sharing.all and core.groups.adopt(use.address):
        m.sharing.place_at(group.id, use.address, m.sharing.root_of(use.address), (0, 0))
        if group.id not in m.sharing.at:
            core.groups.give_back(use.address)
    core.log("group", group=group.name, id=group.id, runs=described(of))
    return group


def _take_kind(core: Core, group: Group, engine: Engine | None) -> None:
    """Of a group that nobody is in: its next protocol may have regions, or not."""
    if group.regional and not (engine and engine.regions):
        regional.forget_group(core, group)
    group.regional = engine is not None and engine.regions
    if group.regional:
        core.members.sharing.remove(group.id)


def _out(core: Core, group: Group, server: int, now: int) -> None:
    """The server is in the group in no way any more."""
    m = core.members
    names = m.of_server[server]
    names.pop(group.name, None)
    if not names:
        del m.of_server[server]
    # A view under way may have it, and it may be back before that is told: then it is new in the next one all the same.
    # What others published before is not for it, and packets of earlier views that come again are not taken there.
    group.reborn |= group.told_members & 1 << server
    group.fresh &= ~(1 << server)
    if group.name in m.trouble:
        m.trouble[group.name].told.pop(server, None)
    group.lately |= 1 << server
    m.lately.pop((group.name, server), None)  # the newest is last
    m.lately[group.name, server] = now + LATELY_NS
    core.members.wake_at(now + LATELY_NS)
    if not group.everybody and not group.kept:
        m.empty[group.name] = now + EMPTY_NS
        core.members.wake_at(now + EMPTY_NS)


def _drop(core: Core, server: int, names: set[str], now: int) -> None:
    m = core.members
    m.unconfirmed.pop(server, None)
    for name in sorted(names):
        group = m.groups.get(name)
        if group is None or not group.everybody >> server & 1:
            continue
        core.counts["group_members_lost"] += 1
        group.members &= ~(1 << server)
        group.uses &= ~(1 << server)
        _out(core, group, server, now)
        mark(core, group, now)


def _forget(core: Core, group: Group) -> None:
    m = core.members
    m.sharing.remove(group.id)
    regional.forget_group(core, group)
    m.ids.discard(group.id)
    for table in (m.groups, m.empty, m.held, m.dirty, m.trouble):
        table.pop(group.name, None)
    core.persistence.mark("group", group.name)
    core.emit(act.GroupsChanged((group.name,)))


def _wake(core: Core, now: int) -> None:
    m = core.members
    if m.flush_at is None:
        m.flush_at, m.gathered_from = now + core.settings.group_window_ns, now
        core.members.wake_at(m.flush_at)


def _storm_until(core: Core) -> int:
    """While hundreds change and more come, they are gathered for longer: what a flush costs grows with all groups."""
    m = core.members
    if len(m.dirty) < STORM:
        return 0
    return min(m.changed_at + core.settings.group_window_ns, m.gathered_from + STORM_NS)


def _start(core: Core, now: int) -> None:
    """Places what changed and orders the rules."""
    m = core.members
    m.flush_at = None
    flush = m.flush = Flush(now + RULES_WAIT_NS)
    regional.start(core, flush, now)
    names = [name for _, name in zip(range(FLUSH_MAX), m.dirty, strict=False)]
    for name in names:
        del m.dirty[name]
        group = m.groups[name]
        before = m.sharing.at.get(group.id)
        if before is None and not group.everybody:
            continue  # made by REST: its address comes with whoever is the first in it
        try:
            masks = (group.members, group.senders)
            here = m.sharing.place(group.id, masks, now, LINGER_NS, m.bad_roots, group.lately)
        except NoRoom as error:
            _no_room(core, group, str(error), now)
            continue
        if before and before is not here:
            core.counts["group_moves"] += 1
        flush.groups[name] = (group.members, group.senders, here.address)
    rules_changed(core, flush, now)
    if m.dirty:
        _wake(core, now - max(core.settings.group_window_ns, STORM_NS))
    core.members.wake_at(flush.until)
    finish_if_done(core, now)


def _no_room(core: Core, group: Group, cause: str, now: int) -> None:
    m = core.members
    core.warn("no address for a group", group=group.name, cause=cause)
    for server in bits(group.everybody):
        core.counts["groups_refused"] += 1
        core.emit(act.RefuseGroup(m.places.names[server], group.name, cause))
        _out(core, group, server, now)
    group.members = group.uses = 0
    m.empty[group.name] = now + EMPTY_NS
    core.members.wake_at(now + EMPTY_NS)


def _finish(core: Core, now: int) -> None:
    """Tells everybody concerned."""
    m = core.members
    flush, m.flush = m.flush, None
    assert flush is not None
    port, changed = core.topology.data_port, list[str]()
    regional.finish(core, flush)
    for name, (members, senders, address) in flush.groups.items():
        group = m.groups.get(name)
        if group is None or group.held_until:
            continue
        regions = m.regions.of.get(name, ()) if group.regional else None
        facts = GroupFacts(name, address, port, group.options, group.more, regions)
        version = group.version
        views = group.view(members, senders, facts)
        for server, (names, _) in m.unconfirmed.items():
            if name in names:  # perhaps it left while it was away; when it tells the group again it gets the whole view
                views.pop(server, None)
        m.outbox.add(views)
        if group.version != version:
            core.counts["group_versions"] += 1
            core.persistence.mark("group", name)
            changed.append(name)
    if changed:
        core.emit(act.GroupsChanged(tuple(changed)))
    agents = {name: (one.control_port, one.boot_id) for name, one in core.agents.items()}
    for push in m.outbox.take(agents, core.topology.control_port):
        core.counts["group_pushes"] += 1
        core.counts["group_views"] += len(push.views)
        core.emit(push)
    if m.flush_at is not None:
        core.members.wake_at(max(m.flush_at, now))
