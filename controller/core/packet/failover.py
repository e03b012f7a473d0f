"""Ways that switches take by themselves when a port goes down, before the manager hears of it (`--fast-failover`).

For each port of a tree that leads to another switch, another port of the same switch is looked for from which the same
racks are reached over as few links, around the switch behind the first. The rule gets that port as the backup; the
switches on the other way get the group's rule too, for the port by which its packets would come in. No packets take it
unless the first port is down, so nothing comes twice. Not guarded: the last links, to racks with one way in from there,
and to servers; what the manager does then is reroute.py's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rostrum.controller.core.model import MulticastRule
from rostrum.controller.core.packet.fabric import Fabric, Link, Port
from rostrum.controller.core.packet.steiner import SteinerTree, Unreachable

Entry = tuple[str, int]  # switch, in port


def guarded(
    fabric: Fabric, rules: Sequence[MulticastRule], dead: Collection[Port] = (), failed: Collection[Link] = ()
) -> tuple[MulticastRule, ...]:
    """A path's rules with backups where there are any, and the rules that these need. `dead`, `failed`: what is out of
    use anyway."""
    made = {(rule.switch, rule.in_port): rule for rule in rules}
    if len(rules) < 2:
        return tuple(rules)
    avoid = {*failed, *fabric.links_at(dead)}
    others: dict[Entry, MulticastRule] = {}
    for rule in rules:
        backups = []
        for port in rule.out_ports:
            found = _another_way(fabric, made, rule, port, dead, avoid)
            if found is None:
                continue
            backup, more = found
            if all((held := made.get(key, others.get(key))) is None or held == one for key, one in more.items()):
                others.update({key: one for key, one in more.items() if key not in made})
                backups.append((port, backup))
        if backups:
            made[rule.switch, rule.in_port] = replace(rule, backups=tuple(backups))
    return (*made.values(), *others.values())


def _another_way(
    fabric: Fabric,
    made: dict[Entry, MulticastRule],
    rule: MulticastRule,
    port: int,
    dead: Collection[Port],
    avoid: Collection[Link],
) -> tuple[int, dict[Entry, MulticastRule]] | None:
    """(port, rules of the switches behind it) that do what `port` of the rule does."""
    end = fabric.topology.switches[rule.switch].neighbours.get(port)
    if end is None or end.node not in fabric.topology.switches:
        return None
    behind = _behind(fabric, made, (end.node, end.port))
    racks = {one.switch: _to_servers(fabric, one) for one in behind}
    racks = {tor: ports for tor, ports in racks.items() if ports}
    if not racks or end.node in racks:
        return None  # the way is over there already: a detour would come back
    near = (rule.switch, end.node)
    here = {fabric.topology.switches[rule.switch].neighbours[one].node for one in rule.out_ports}
    tree = SteinerTree(
        rule.switch,
        fabric.neighbours,
        lambda node: fabric.is_switch(node) and node not in here,
        {*avoid, near, near[::-1]},
    )
    try:
        tree.join_all(sorted(racks))
    except Unreachable:
        return None
    first = tree.children[rule.switch]
    if len(first) != 1 or len(tree.links) > len(behind):
        return None
    more: dict[Entry, MulticastRule] = {}
    for name in _downwards(tree, first):
        parent = tree.parents[name]
        in_port = fabric.far[parent, fabric.port(parent, name, dead)][0]
        out = [fabric.port(name, child, dead) for child in tree.children[name]]
        out_ports = tuple(sorted([*out, *racks.get(name, ())]))
        more[name, in_port] = replace(rule, switch=name, in_port=in_port, out_ports=out_ports, confirm=0, backups=())
    return fabric.port(rule.switch, first[0], dead), more


def _behind(fabric: Fabric, made: dict[Entry, MulticastRule], at: Entry) -> list[MulticastRule]:
    """The rules that packets meet from an entry on; one for each link behind it."""
    found, todo = [], [at]
    seen = {at}
    while todo:
        rule = made.get(todo.pop())
        if rule is None:
            continue
        found.append(rule)
        for port in rule.out_ports:
            end = fabric.topology.switches[rule.switch].neighbours.get(port)
            if end is not None and end.node in fabric.topology.switches and (end.node, end.port) not in seen:
                seen.add((end.node, end.port))
                todo.append((end.node, end.port))
    return found


def _to_servers(fabric: Fabric, rule: MulticastRule) -> list[int]:
    ends = fabric.topology.switches[rule.switch].neighbours
    return [port for port in rule.out_ports if port in ends and ends[port].node in fabric.topology.servers]


def _downwards(tree: SteinerTree, first: Iterable[str]) -> list[str]:
    found = list(first)
    for name in found:  # and those behind it, as they are added
        found += tree.children[name]
    return found
