"""What of message groups survives a crash: each group with its id, version, options, members and address, and regions.

Members come back by themselves: their agents tell their groups again. Until then they are remembered, so that the first
view after a restart is not one of those who were quickest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address

from rostrum.controller.core.groups.membership import EMPTY_NS, mark
from rostrum.controller.core.groups.regional import NO_ADDRESS
from rostrum.controller.core.groups.regions import RegionView
from rostrum.controller.core.groups.sharing import Masks
from rostrum.controller.core.groups.state import Group, ToldRegion
from rostrum.controller.core.groups.trees import bits
from rostrum.controller.core.groups.values import GroupFacts, GroupOptions, wrong_name, wrong_options
from rostrum.controller.core.persistence.persistence import Json
from rostrum.controller.core.state import Core


class GroupsPart:
    """Key: the group's name."""

    name = "group"

    def dump(self, core: Core, key: str) -> Json | None:
        m = core.members
        group = m.groups.get(key)
        if group is None:
            return None
        of, shared = group.options, m.sharing.at.get(group.id)
        record = {
            "id": group.id,
            "version": group.version,
            "options": [of.protocol, of.order, of.options],
            "kept": group.kept,
            "members": m.places.named(group.members),
            "uses": m.places.named(group.uses),
        }
        if group.regional:
            record["regions"] = list(m.regions.of.get(key, ()))
        if group.more:
            record["more"] = [str(address) for address in group.more]
        if shared:
            record |= {"address": str(shared.address), "root": shared.root, "everybody": shared.everybody}
        return record

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            try:
                _restore(core, key, record, now)
            except (AttributeError, KeyError, TypeError, ValueError, AddressValueError) as error:
                core.warn("group not restored", group=key[:128], cause=f"{type(error).__name__}: {error}"[:200])
        m, until = core.members, now + core.settings.grace
        for server, names in m.of_server.items():
            m.unconfirmed[server] = (set(names), until)
        if m.of_server:
            core.members.wake_at(until)


def _restore(core: Core, key: str, record: Mapping[str, Json], now: int) -> None:
    m = core.members
    of = _options(record["options"])
    wrong = wrong_name(key) or wrong_options(of)
    if wrong:
        raise ValueError(wrong)
    group = Group(key, m.take_id(int(record["id"])), of, kept=bool(record["kept"]))
    m.groups[key] = group
    group.version = int(record["version"])
    group.more = tuple(map(IPv4Address, record.get("more", ())))
    group.members, group.uses = _mask(core, record["members"]), _mask(core, record["uses"])
    for server in bits(group.everybody):
        m.of_server.setdefault(server, {})[key] = None
    if not group.everybody and not group.kept:
        m.empty[key] = now + EMPTY_NS
        core.members.wake_at(now + EMPTY_NS)
    masks = (group.members, group.senders)
    if isinstance(record.get("regions"), list):
        group.regional = True
        group.told_members, group.told_senders = masks
        regions = tuple(int(number) for number in record["regions"])
        group.told_facts = GroupFacts(key, NO_ADDRESS, core.topology.data_port, of, group.more, regions)
    elif "address" in record and _at(core, group.id, record, masks):
        # As it was told, as far as is known: who held that view hears only of what changes.
        group.told_members, group.told_senders = masks
        address = m.sharing.at[group.id].address
        group.told_facts = GroupFacts(key, address, core.topology.data_port, of, group.more)
    mark(core, group, now)


def _options(record: Sequence[str | int]) -> GroupOptions:
    """Older journals spell out r, c and stagger, which only Ricochet has."""
    protocol, order, *rest = record
    names = ("r", "c", "stagger")
    if len(rest) != len(names):
        return GroupOptions(str(protocol), str(order), str(rest[0]))
    named = (f"{name}={int(value)}" for name, value in zip(names, rest, strict=True) if value)
    return GroupOptions(str(protocol), str(order), ",".join(named))


class RegionsPart:
    """Key: the region's number."""

    name = "region"

    def dump(self, core: Core, key: str) -> Json | None:
        m = core.members
        view, shared = m.regions.views.get(int(key)), m.sharing.at.get(-int(key))
        if view is None:
            return None
        record: dict[str, Json] = {
            "version": view.version,
            "kind": view.kind,
            "nodes": m.places.named(view.nodes),
        }
        if shared:
            record |= {"address": str(shared.address), "root": shared.root, "everybody": shared.everybody}
        return record

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            try:
                number, nodes = int(key), _mask(core, record["nodes"])
                version, kind = int(record["version"]), str(record["kind"])
                if not 0 < number < 1 << 31 or not nodes:
                    raise ValueError(f"region {number} with {len(record['nodes'])} servers")
                core.members.regions.restore(RegionView(number, version, kind, nodes))
                at = "address" in record and _at(core, -number, record, (nodes, 0))
                address = core.members.sharing.at[-number].address if at else None
                core.members.told_regions[number] = ToldRegion(version, address, kind, nodes)
            except (AttributeError, KeyError, TypeError, ValueError, AddressValueError) as error:
                core.warn("region not restored", region=key[:20], cause=f"{type(error).__name__}: {error}"[:200])


def _at(core: Core, group: int, record: Mapping[str, Json], masks: Masks) -> bool:
    m, address = core.members, IPv4Address(record["address"])
    ours = address in m.sharing.all
    if not ours and (not core.groups.contains(address) or not core.groups.adopt(address)):
        return False
    m.sharing.place_at(group, address, record["root"], masks, record["everybody"])
    placed = group in m.sharing.at
    if not placed and not ours:
        core.groups.give_back(address)
    return placed


def _mask(core: Core, names: Iterable[str]) -> int:
    """Servers that left the topology are dropped."""
    number = core.members.places.number
    return sum(1 << number[name] for name in set(names) if name in number)
