"""What the doctor says first: causes, then what follows from them; and who is blamed when nobody is known to be ill."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rostrum.controller.commands import diagnostics
from rostrum.controller.commands.paths import Api
from rostrum.controller.core import events as ev
from rostrum.controller.core.diagnostics.diagnosis import Evidence, Unreached, diagnose
from rostrum.controller.core.diagnostics.findings import Finding, ordered
from rostrum.controller.core.model import Sighting
from rostrum.controller.core.packet import cabling
from rostrum.topologies.model import End

from tests.controller.timeline import Timeline

LATE_MS = cabling.STALE_NS // 1_000_000 + 1_000


def tried(line: Timeline, works: Iterable[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """As the doctor has agents try: each three others."""
    names = sorted(line.topology.servers)
    tries = [(name, names[(at + step) % len(names)]) for at, name in enumerate(names) for step in (1, 2, 4)]
    return [one for one in tries if one not in set(works)]


def doctor(line: Timeline, failed: Iterable[tuple[str, str]]) -> list[Finding]:
    unreached = [Unreached(one, to, "no answer") for one, to in failed]
    found = diagnose(line.manager.core, Evidence("0.1.0", unreached=unreached), line.now)
    return [one for one in found if one.severity != "note"]


def living() -> Timeline:
    """Everybody is there, and frames are heard on every link."""
    line = Timeline()
    line.wait(LATE_MS)
    for server in line.topology.servers:
        line.do(ev.AgentUp(server, 1, 7071, ()))
    hear(line)
    return line


def hear(line: Timeline, without: Iterable[tuple[str, int]] = ()) -> None:
    """Frames on every link but those at the ports of `without`, both ways."""
    topology = line.topology
    deaf = set(without) | {
        (end.node, end.port) for one, port in without for end in [topology.switches[one].neighbours[port]]
    }
    for name, switch in topology.switches.items():
        for port, end in switch.neighbours.items():
            if end.node in topology.switches and (name, port) not in deaf:
                line.do(ev.Sighted(Sighting(name, port, End(end.node, end.port))))


def uplink(line: Timeline, tor: str) -> int:
    return next(port for port, end in line.topology.switches[tor].neighbours.items() if end.node == "core")


def rack(line: Timeline, name: str) -> str:
    return line.topology.servers[name].tor


def across(line: Timeline, tor: str) -> list[tuple[str, str]]:
    """What was tried into and out of a rack."""
    return [(one, to) for one, to in tried(line) if (rack(line, one) == tor) != (rack(line, to) == tor)]


def test_link_that_passes_nothing__is_told_first_and_all_else_follows() -> None:
    """There were ten lines of connections that failed, as errors, above two warnings that a port hears nothing."""
    line = living()
    assert not doctor(line, [])
    port = uplink(line, "tor1")
    line.wait(LATE_MS)
    hear(line, [("tor1", port)])
    failed = across(line, "tor1")
    assert len(failed) > 5
    first, *rest = doctor(line, failed)
    assert first.check == "cabling" and not first.because
    assert {one.because for one in rest} == {first.subject}
    assert sorted(one.check for one in rest) == ["cabling", "reachability"]  # the other end; all connections in one
    said = next(one for one in rest if one.check == "reachability")
    assert f"and {len(failed) - 1} other connections" in said.what and first.subject in said.mend


def test_switch_that_is_gone__explains_what_goes_by_it() -> None:
    line = living()
    line.do(ev.SwitchDown("core", "it did not answer 3 echo requests"))
    found = doctor(line, across(line, "tor2"))
    assert [(one.check, one.because) for one in found] == [("switch", ""), ("reachability", "core")]


def test_port_of_a_server__explains_its_connections_and_no_others() -> None:
    line = living()
    server = line.topology.servers["h3"]
    line.do(ev.PortChanged(server.tor, server.tor_port, False))
    subject = f"{server.tor} port {server.tor_port}"
    found = doctor(line, [pair for pair in tried(line) if "h3" in pair] + [("h7", "h8")])
    assert [(one.check, one.subject, one.because) for one in found if one.because != subject] == [
        ("port", subject, ""),
        ("reachability", "h8", ""),
    ]
    assert found[1].because == subject and found[1].check == "reachability"


def test_server_that_nobody_reaches__is_one_finding() -> None:
    """It cannot reach others, and others cannot reach it: that was six findings, about five servers."""
    line = living()
    found = doctor(line, [pair for pair in tried(line) if "h5" in pair])
    assert [(one.check, one.subject) for one in found] == [("reachability", "h5")]
    assert found[0].what.startswith("no connection works between h5 and h")


def test_agents_that_are_not_there__are_not_told_twice() -> None:
    line = living()
    line.do(ev.AgentDown("h5", 1, "closed"))
    found = doctor(line, [(one, to) for one, to in tried(line) if to == "h5"])
    assert [(one.check, one.subject) for one in found] == [("agent", "h5")]


def test_causes__come_before_symptoms_that_they_do_not_explain_and_notes_last() -> None:
    found = [
        Finding("error", "reachability", "h3", "unreached"),
        Finding("warning", "cabling", "tor1 port 49", "silent"),
        Finding("note", "cabling", "tor9", "not looked at"),
        Finding("error", "switch", "tor2", "gone"),
        Finding("error", "reachability", "h4", "unreached", because="tor1 port 49"),
        Finding("error", "reachability", "h5", "unreached", because="tor7"),  # of which nothing is said
    ]
    assert [one.subject for one in ordered(found)] == ["tor2", "tor1 port 49", "h4", "h3", "h5", "tor9"]


def test_blame__any_failures_among_any_faults_lose_no_finding() -> None:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(60):
        line = living()
        topology = line.topology
        ports = [(name, port) for name, one in topology.switches.items() for port in one.neighbours]
        for switch, port in rng.sample(ports, rng.randrange(4)):
            line.do(ev.PortChanged(switch, port, False))
        if rng.random() < 0.3:
            line.do(ev.SwitchDown(rng.choice(sorted(topology.switches)), "gone"))
        line.wait(LATE_MS if rng.random() < 0.5 else 0)
        failed = rng.sample(tried(line), rng.randrange(12))
        found = doctor(line, failed)
        subjects = {one.subject for one in found if not one.because}
        assert all(one.because in subjects for one in found if one.because)
        said = [one for one in found if one.check == "reachability"]
        assert bool(said) == bool([to for _, to in failed if line.manager.core.agents[to].connected])
        assert len(found) == len(set(found))


def test_command__shows_symptoms_below_their_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ordered(
        [
            Finding("error", "reachability", "h4", "h1 cannot connect to h4", "mend that", "tor1 port 49"),
            Finding("warning", "cabling", "tor1 port 49", "it hears nothing", "check the cable"),
        ]
    )
    answer = {"healthy": False, "findings": [vars(one) for one in rows]}
    monkeypatch.setattr(Api, "call", lambda self, *_, **__: answer)
    result = CliRunner().invoke(diagnostics.doctor, [])
    assert result.exit_code == 2
    assert [row.split() for row in result.output.splitlines()] == [
        ["warning", "it", "hears", "nothing"],
        ["check", "the", "cable"],
        ["so:", "h1", "cannot", "connect", "to", "h4"],
    ]


def test_plain_switches__doctor_says_what_they_keep_from_being_promised() -> None:
    driven = Timeline().topology
    plain = {name: replace(switch, southbound="none") for name, switch in driven.switches.items()}
    for topology, told in ((driven, False), (replace(driven, switches=plain), True)):
        line = Timeline(topology, up=False)
        found = [one for one in diagnose(line.manager.core, Evidence("0.1.0"), line.now) if one.check == "capability"]
        assert [one.severity for one in found] == ["note"] * told
        assert all("priority" in one.what and "admission" in one.what and "querier" in one.what for one in found)
