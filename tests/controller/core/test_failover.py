"""Backups of ports: which rules a path gets, and where its packets go while a port is down, before the manager acts."""

from __future__ import annotations

from collections import Counter

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.diagnostics.diagnosis import Evidence, diagnose
from rostrum.controller.core.model import MulticastRule, Remark, SwitchFacts
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import Settings
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.controller.timeline import Timeline

RECEIVERS = ("h0-0-1", "h0-1-0", "h1-0-0", "h1-1-1", "h3-0-0")


def reached(topology: Topology, rules: tuple[MulticastRule, ...], sender: str, down: tuple[str, int]) -> Counter[str]:
    """Copies that servers get, while the link at this port is down and nobody has told the manager."""
    table = {(rule.switch, rule.in_port): rule for rule in rules}
    far = topology.switches[down[0]].neighbours[down[1]]
    dead = {down, (far.node, far.port)}
    server = topology.servers[sender]
    got: Counter[str] = Counter()
    packets = [(server.tor, server.tor_port)]
    for at in packets:
        rule = table.get(at)
        if rule is None:
            continue
        assert len(packets) < 1000, "packets go round"
        backups = dict(rule.backups)
        for out in rule.out_ports:
            port = backups.get(out, out) if (rule.switch, out) in dead else out
            end = topology.switches[rule.switch].neighbours[port]
            if (rule.switch, port) in dead:
                continue
            if end.node in topology.servers:
                got[end.node] += 1
            else:
                packets.append((end.node, end.port))
    return got


def granted(line: Timeline, *receivers: str) -> Path:
    path = line.ask("h0-0-0", *receivers)
    assert path.rules_in
    return path


def test_fat_tree__any_port_on_the_way_up_may_go_down() -> None:
    topology = loader.load("fat-tree-4")
    line = Timeline(topology, Settings(fast_failover=True))
    path = granted(line, *RECEIVERS)
    whole = Counter(RECEIVERS)
    guarded = [(rule.switch, port) for rule in path.rules for port, _ in rule.backups]
    assert guarded[0][0] == "edge0-0", guarded  # the sender's own uplink
    for port in guarded:
        assert reached(topology, path.rules, "h0-0-0", port) == whole, port
    plain = granted(Timeline(topology), *RECEIVERS)
    assert not any(rule.backups for rule in plain.rules)
    assert reached(topology, plain.rules, "h0-0-0", guarded[0]) != whole


def test_the_manager_acts_then__and_nothing_is_left_at_the_end() -> None:
    topology = loader.load("fat-tree-4")
    line = Timeline(topology, Settings(fast_failover=True, idle_rule_sets=0))
    path = granted(line, *RECEIVERS)
    down = next((rule.switch, port) for rule in path.rules for port, _ in rule.backups)
    line.do(ev.PortChanged(*down, False))
    assert path.rules_in
    assert reached(topology, path.rules, "h0-0-0", down) == Counter(RECEIVERS)
    there = {(name, *key) for name, table in line.network.tables.items() for key in table}
    assert there == {(rule.switch, rule.in_port, rule.group) for rule in path.rules}
    line.release(path)
    assert not any(line.network.tables.values())


def test_one_core__has_no_backup_and_no_more_rules() -> None:
    hybrid = loader.load("hybrid-4x2")
    line, plain = Timeline(hybrid, Settings(fast_failover=True)), Timeline(hybrid)
    one, other = line.ask("h1", "h3", size=1000), plain.ask("h1", "h3", size=1000)
    assert one.rules == other.rules and not any(rule.backups for rule in one.rules)


@pytest.mark.parametrize("failover", [True, False])
def test_doctor__tells_what_switches_cannot_do(failover: bool) -> None:
    line = Timeline(settings=Settings(fast_failover=True))
    remark = Remark("warning", "tor1 cannot set DSCP", "name a queue")
    facts = {"tor1": SwitchFacts("x", failover=failover, remarks=(remark,))}
    found = [
        one for one in diagnose(line.manager.core, Evidence("1", switches=facts), line.now) if one.subject == "tor1"
    ]
    fields = [one.what for one in found if one.check == "capability"]
    assert "tor1 cannot set DSCP" in fields
    assert any("by itself" in one for one in fields) is not failover
