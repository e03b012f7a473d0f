"""Groups whose protocol has regions (regions.py): which of them change in a flush, the addresses and rules these have,
and what each server is told of them. A region's place among the groups of sharing.py is its number, negative.

All groups that changed go into one flush, however many: a server that left a thousand of them leaves one region once,
and does not pass through those of the groups that it has not left yet.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core.groups.regions import RegionView
from rostrum.controller.core.groups.rules import LINGER_NS, RELIEF_MOVES, RELIEF_NS
from rostrum.controller.core.groups.sharing import NoRoom
from rostrum.controller.core.groups.state import Flush, Group, ToldRegion, ids
from rostrum.controller.core.groups.trees import bits
from rostrum.controller.core.groups.values import GroupOptions, GroupRegion
from rostrum.controller.core.state import Core

NO_ADDRESS = IPv4Address(0)
SETTLE_MOST = 20  # times region_settle_ns: servers whose groups change all the time have other regions that often


TENANT_MARK = "\0"  # in a kind: what follows is the tenant, and no word for agents


def kind_of(options: GroupOptions, tenant: str = "") -> str:
    """Groups share regions if this is the same."""
    return f"{options.protocol} {options.options}" + (TENANT_MARK + tenant if tenant else "")


def _tenant(core: Core, group: Group) -> str:
    """All that are in a group are of one."""
    first = next(iter(bits(group.everybody)), None) if core.topology.tenants else None
    return "" if first is None else core.topology.tenant_of(core.members.places.names[first])


def forget(core: Core, server: int) -> None:
    """A new connection: its agent is told all regions again."""
    for told in core.members.told_regions.values():
        told.knows &= ~(1 << server)


def forget_group(core: Core, group: Group) -> None:
    m = core.members
    if group.regional:
        group.regional = False
        m.moved_regions |= set(m.regions.of.get(group.name, ()))
        m.regions.remove(group.name)


def start(core: Core, flush: Flush, now: int) -> None:
    """Takes all groups with regions out of those that changed; new regions get their places."""
    m = core.members
    names = [name for name in m.dirty if m.groups[name].regional]
    for name in names:
        del m.dirty[name]
        group = m.groups[name]
        m.regions.put(name, kind_of(group.options, _tenant(core, group)), group.members)
    if not names and not m.moved_regions and not m.regions.changed:
        return
    m.regions.first = max(m.regions.first, core.persistence.wall(now) // 1000)
    batch = m.regions.batch(_staying(core, now))
    core.counts["group_region_views"] += len(batch.views)
    for name in sorted({*names, *batch.groups} & m.groups.keys()):
        group = m.groups[name]
        flush.groups[name] = (group.members, group.senders, NO_ADDRESS)
        flush.regions |= set(m.regions.of.get(name, ()))
    flush.regions |= {view.region for view in batch.views} | set(batch.gone) | m.moved_regions
    m.moved_regions = set()
    for number in sorted(flush.regions):
        _place(core, number, now)


def _staying(core: Core, now: int) -> set[tuple[str, int]]:
    """Servers that keep their regions until no server's groups have changed for a while. A program that enters a
    thousand groups, or ends, changes its server's for seconds, and those of many servers never at the same moment:
    regions would split and merge all the time under the messages of all other groups."""
    m, settle = core.members, core.settings.region_settle_ns
    for kind in {kind for kind, _ in m.regions.touched}:
        m.settling[kind] = (m.settling.get(kind, (now, now))[0], now)
    may = m.regions.may_stay()
    until = {
        kind: min(m.settling[kind][1] + settle, m.settling[kind][0] + SETTLE_MOST * settle)
        for kind in {kind for kind, _ in may} & m.settling.keys()
    }
    until = {kind: end for kind, end in until.items() if end > now}
    m.settling = {kind: times for kind, times in m.settling.items() if kind in until}
    m.settle_at = min(until.values(), default=None)
    if m.settle_at is not None:
        m.wake_at(m.settle_at)
    return {one for one in may if one[0] in until}


def _place(core: Core, number: int, now: int) -> None:
    """One of a single server is sent to by unicast, and so is one for which there is no address."""
    m = core.members
    view = m.regions.views.get(number)
    m.unplaced_regions.pop(number, None)
    if view is None or view.nodes.bit_count() == 1:
        m.sharing.end(-number, now + LINGER_NS)
    elif why := _no_address(core, number, view, now):
        # Nor does the one that it had reach all of its servers now.
        m.sharing.end(-number, now + LINGER_NS)
        _place_later(core, number, now)
        core.warn("a region is sent to by unicast: no address for it", region=number, cause=why)
    told = m.told_regions.get(number)
    if view and told and told.version == view.version and told.address != _address(core, number):
        m.regions.next_version(number)
    core.persistence.mark("region", str(number))


def _no_address(core: Core, number: int, view: RegionView, now: int) -> str:
    """Gives it an address; or why there is none for it."""
    m = core.members
    try:
        m.sharing.place(-number, (view.nodes, _senders(core, view)), now, LINGER_NS, m.bad_roots)
    except NoRoom as error:
        return str(error)
    return ""


def _place_later(core: Core, number: int, now: int) -> None:
    m = core.members
    m.unplaced_regions[number] = None
    if m.place_at is None:
        m.place_at = now + RELIEF_NS
        m.wake_at(m.place_at)


def expire(core: Core, now: int) -> None:
    """Servers whose groups do not change any more get their regions. Regions without an address are tried again, some
    at a time: there may be room now."""
    m = core.members
    if m.settle_at is not None and m.settle_at <= now:
        m.settle_at, m.flush_at = None, min(m.flush_at or now, now)
    if m.place_at is None or m.place_at > now:
        return
    m.place_at = None
    for number in list(m.unplaced_regions)[:RELIEF_MOVES]:
        del m.unplaced_regions[number]
        view = m.regions.views.get(number)
        if view is None:
            continue
        if _no_address(core, number, view, now):
            m.unplaced_regions[number] = None
            continue
        m.moved_regions.add(number)
        m.flush_at = min(m.flush_at or now, now)
    if m.unplaced_regions:
        m.place_at = now + RELIEF_NS
        m.wake_at(m.place_at)


def _address(core: Core, number: int) -> IPv4Address | None:
    place = core.members.sharing.at.get(-number)
    return place.address if place else None


def _senders(core: Core, view: RegionView) -> int:
    """Who publishes to the region's groups from outside of it."""
    m, everybody = core.members, 0
    for name in m.regions.within.get(view.region, ()):
        everybody |= m.groups[name].everybody if name in m.groups else 0
    return everybody & ~view.nodes


def finish(core: Core, flush: Flush) -> None:
    """Tells regions before the groups that name them."""
    m = core.members
    fresh: dict[int, int] = {}
    for name in flush.groups:
        group = m.groups.get(name)
        for number in m.regions.of.get(name, ()) if group and group.fresh else ():
            assert group is not None
            fresh[number] = fresh.get(number, 0) | group.fresh
    for number in sorted(flush.regions):
        _tell(core, number, fresh.get(number, 0))


def _tell(core: Core, number: int, fresh: int) -> None:
    m = core.members
    view, told = m.regions.views.get(number), m.told_regions.get(number)
    kind = view.kind if view else told.kind if told else " "
    protocol, options = kind.partition(TENANT_MARK)[0].split(" ", 1)
    empty = GroupRegion(number, told.version if told else 1, None, core.topology.data_port, protocol, options, ())
    if view is None:
        if told:
            m.outbox.add_regions(told.knows, empty)
            del m.told_regions[number]
        return
    address = _address(core, number)
    concerned = view.nodes | _senders(core, view)
    knows = told.knows & ~fresh if told else 0
    full = replace(empty, version=view.version, address=address, nodes=ids(view.nodes))
    if told and told.version != view.version:
        if (told.address, told.kind) == (address, view.kind):
            joined, gone = view.nodes & ~told.nodes, told.nodes & ~view.nodes
            delta = replace(full, nodes=ids(joined), base_version=told.version, gone=ids(gone))
            m.outbox.add_regions(concerned & knows, delta)
        else:
            m.outbox.add_regions(concerned & knows, full)
    m.outbox.add_regions(concerned & ~knows, full)
    if told:
        m.outbox.add_regions(told.knows & ~concerned, empty)
    m.told_regions[number] = ToldRegion(view.version, address, view.kind, view.nodes, concerned)
