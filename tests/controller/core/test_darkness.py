"""Receivers without light: who is blamed for that, and who is not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.diagnostics.diagnosis import Evidence, diagnose
from rostrum.controller.core.diagnostics.findings import Finding
from rostrum.controller.core.light.health import Health
from rostrum.controller.core.model import Pair, PathKind
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import ReceiverReport, S, State, TransferReport, Wanted

from tests.controller.timeline import Timeline

SIX = ("h3", "h4", "h5", "h6", "h7", "h8")


class World:
    """Senders' agents that tell the truth about what arrives. `deaf`: servers whose hosts drop multicast."""

    def __init__(self) -> None:
        self.line = Timeline()
        self.deaf: set[str] = set()
        self.expected: list[tuple[str, ...]] = []  # by grant: whose light need not be waited for

    def send(self, sender: str, *receivers: str, wanted: Wanted = Wanted.AUTO, release: bool = True) -> Path:
        """A transfer from request to release."""
        line = self.line
        path = line.ask_as_agent(sender, *receivers, size=1 << 30, wanted=wanted)
        line.wait(2_001 if path.state is State.QUEUED else 0)
        self.expected.append(line.responses()[-1].dark)
        for _ in range(2):  # on the circuit; on the packet network, if it was moved there
            line.wait(420)
            for name in line.manager.core.agents:
                line.do(ev.KeepAlive(name))
            if path.state is not State.ACTIVE:
                break
            kind = path.kind
            self.tell(path, self.lit(path))
            if path.kind is kind:
                break
        if release:
            line.release(path)
        return path

    def lit(self, path: Path) -> set[str]:
        assert path.group is not None
        copies = self.line.network.deliver(path.request.sender, path.group)
        return {name for name in path.request.receivers if copies[name] and name not in self.deaf}

    def tell(self, path: Path, lit: Collection[str]) -> None:
        request = path.request
        rows = tuple(
            ReceiverReport(name, "receiving", "", 1, 0, 10**18 if name in lit else 0, 0) for name in request.receivers
        )
        report = TransferReport(request.request_id, path.id, "attempt", "", 1 << 30, 9, 0, 0, rows)
        self.line.do(ev.ReportReceived(report, request.origin))
        dark = tuple(name for name in request.receivers if name not in lit)
        if dark:
            self.line.do(ev.NoLight(path.id, dark, request.origin))

    def condemned(self, asker: str | None = None) -> set[str]:
        """Parts left alone; by requests of `asker`, or by anybody's."""
        health, now = self.line.manager.core.resources.health, self.line.now
        found = set()
        for ocs in self.line.topology.ocs.values():
            found |= {name for name in ocs.splitters if health.splitter(ocs, name, now, asker)}
            found |= {f"input {port}" for port in ocs.attached if health.input(ocs, port, now, asker)}
            found |= {f"output {port}" for port in ocs.attached if health.output(ocs, port, now, asker)}
            pairs = [Pair(one, other) for one in range(1, 41) for other in range(1, 41)]
            found |= {f"{pair.input}>{pair.output}" for pair in pairs if health.pair(ocs, pair, now, asker)}
        return found

    def doctor(self) -> list[Finding]:
        found = diagnose(self.line.manager.core, Evidence("0.1.0"), self.line.now)
        return [one for one in found if one.check in ("dark", "optics", "light")]


def test_dark_receiver__among_others_of_its_rack_is_blamed_alone() -> None:
    world = World()
    world.deaf = {"h5"}
    for _ in range(6):
        path = world.send("h1", *SIX)
        assert path.kind is PathKind.CIRCUIT and not path.stamps.moved
    assert not world.condemned()
    assert world.expected == [(), *[("h5",)] * 5]
    assert world.send("h2", "h3", "h7").kind is PathKind.CIRCUIT
    assert not world.line.manager.core.counts["circuits_lost"]
    (finding,) = world.doctor()
    assert finding.subject == "h5" and "h6 behind the same switch did" in finding.what
    assert "firewall of h5" in finding.mend and "IGMP" in finding.mend


def test_dark_receiver__where_nobody_drives_the_switches_the_querier_is_named() -> None:
    world = World()
    world.deaf = {"h5"}
    world.send("h1", "h3", "h5", wanted=Wanted.PACKET)
    (driven,) = world.doctor()
    core = world.line.manager.core
    switches = {name: replace(one, southbound="none") for name, one in core.topology.switches.items()}
    core.topology = replace(core.topology, switches=switches)
    (plain,) = world.doctor()
    assert plain.subject == driven.subject == "h5"
    assert "no querier asks" in plain.mend and "querier" not in driven.mend


def test_dark_receiver__alone_behind_its_fibre_condemns_nothing() -> None:
    world = World()
    world.deaf = {"h5"}
    for _ in range(6):
        path = world.send("h1", "h3", "h5", "h7")
        assert path.kind is PathKind.CIRCUIT and not path.stamps.moved
    assert not world.condemned()
    assert world.send("h1", "h3", "h7").kind is PathKind.CIRCUIT
    assert world.send("h3", "h6").kind is PathKind.CIRCUIT
    (finding,) = world.doctor()
    assert finding.subject == "h5" and "2 others did" in finding.what


def test_dark_receiver__as_the_only_one_takes_no_circuit_for_a_while_and_blames_none() -> None:
    world = World()
    world.deaf = {"h5"}
    first = world.send("h1", "h5")
    assert first.kind is PathKind.PACKET and first.reason == "no light at h5 within 420 ms"
    again = world.send("h1", "h5")
    assert again.kind is PathKind.PACKET and not again.stamps.moved
    assert again.reason.startswith("no circuit in time: h5 saw no light of earlier circuits")
    assert not world.condemned()
    assert world.send("h1", "h6").kind is PathKind.CIRCUIT
    demanded = world.line.ask_as_agent("h1", "h5", wanted=Wanted.CIRCUIT)
    assert demanded.kind is PathKind.CIRCUIT
    assert world.doctor()[0].subject == "h5"


def test_dark_receiver__that_has_light_again_is_cleared() -> None:
    world = World()
    world.deaf = {"h5"}
    world.send("h1", *SIX)
    world.deaf = set()
    world.send("h1", *SIX)
    world.send("h1", *SIX)
    assert world.expected == [(), ("h5",), ()]
    assert not world.doctor()


def test_late_receiver__that_got_all_by_multicast_is_cleared_by_the_last_report() -> None:
    """Its host was busy: the packets waited at its socket when the sender told that it was dark."""
    world = World()
    line = world.line
    for kind in (Wanted.AUTO, Wanted.PACKET):
        path = line.ask_as_agent("h1", "h3", "h5", "h6", size=1 << 30, wanted=kind)
        line.wait(100)
        world.tell(path, ("h3", "h6"))
        line.release(path)
        assert world.doctor()
        rows = tuple(ReceiverReport(name, "done", "", 1, 0, 10**18 * (name != "h5"), 10**18) for name in ("h3", "h5"))
        report = TransferReport(path.request.request_id, path.id, "done", "", 1 << 30, 9, 0, 0, rows)
        line.do(ev.ReportReceived(report, "h1"))
        assert not world.doctor()


def test_dark_receiver__is_expected_longer_each_time_and_forgotten_in_the_end() -> None:
    world = World()
    world.deaf = {"h5"}
    for _ in range(3):
        world.send("h1", *SIX)
    darkness = world.line.manager.core.resources.health.darkness
    until = darkness.expected("h5", PathKind.CIRCUIT, "h1", world.line.now)
    assert until is not None and 110 * S < until - world.line.now <= 120 * S
    world.line.wait(4 * 60 * 1000)
    assert darkness.expected("h5", PathKind.CIRCUIT, "h1", world.line.now) is None
    world.line.do(ev.Tick())
    world.line.wait(4 * 60 * 1000)
    assert not darkness


def test_two_filtering_hosts_of_a_rack__clear_its_fibre_once_the_packet_network_shows_them() -> None:
    world = World()
    world.deaf = {"h5", "h6"}
    kinds = [world.send("h1", "h3", "h5", "h6", "h7").kind for _ in range(6)]
    assert kinds[:2] == [PathKind.CIRCUIT] * 2 and kinds[-1] is PathKind.CIRCUIT
    assert kinds.count(PathKind.PACKET) <= 1
    assert not world.condemned()
    assert {one.subject for one in world.doctor()} == {"h5", "h6"}


def test_dead_fibre__to_a_rack_is_found_by_two_receivers_and_two_partners() -> None:
    world = World()
    world.line.network.blind = {("output", 3)}
    for _ in range(2):
        assert world.send("h1", "h3", "h5", "h6", "h7").kind is PathKind.CIRCUIT
    assert world.condemned("h1") == {"output 3"}
    around = world.send("h1", "h3", "h5", "h6", "h7")
    assert around.kind is PathKind.PACKET and "output 3" in around.reason and "no light at h5, h6" in around.reason
    assert world.send("h1", "h3", "h7").kind is PathKind.CIRCUIT
    world.line.network.blind = set()
    world.line.wait(130_000)
    assert world.send("h1", "h3", "h5", "h6", "h7").kind is PathKind.CIRCUIT
    assert not world.condemned()


def test_dead_splitter__another_is_preferred_after_the_first_time_and_it_alone_is_condemned() -> None:
    world = World()
    world.line.network.blind = {("splitter", "s1")}
    first = world.send("h1", *SIX)
    assert first.kind is PathKind.PACKET and not world.condemned()
    second = world.send("h1", *SIX[:-1])
    assert second.kind is PathKind.CIRCUIT and second.cascade and second.cascade.splitters == ("s2",)
    assert world.condemned() <= {"s1"}


def test_filtering_hosts__that_are_all_of_a_transfer_clear_the_circuit_network() -> None:
    world = World()
    world.deaf = {"h5", "h7"}
    for _ in range(3):
        assert world.send("h1", "h5", "h7").kind is PathKind.PACKET
    assert world.expected == [(), ("h5", "h7"), ("h5", "h7")]
    assert not world.condemned()
    assert {one.subject for one in world.doctor()} == {"h5", "h7"}
    assert world.send("h1", "h3", "h6", "h8").kind is PathKind.CIRCUIT


def test_dead_uplink__is_found_by_two_splitters() -> None:
    world = World()
    world.line.network.blind = {("input", 1)}
    for _ in range(2):
        path = world.line.ask_as_agent("h1", *SIX, size=1 << 30, wanted=Wanted.CIRCUIT)
        world.tell(path, ())
        assert path.state is State.FAILED
    assert world.condemned("h1") >= {"input 1"}
    assert not {one for one in world.condemned("h1") if one.startswith("output")}
    assert world.send("h3", "h1", "h5", "h7").kind is PathKind.CIRCUIT


def test_lying_sender__harms_its_own_requests_alone() -> None:
    world = World()
    for _ in range(12):
        path = world.line.ask_as_agent("h1", *SIX, size=1 << 30)
        world.line.do(ev.NoLight(path.id, SIX, "h1"))
        world.line.release(path)
    for sender, receivers in (("h2", SIX), ("h3", ("h1", "h5", "h6", "h7")), ("h5", ("h3", "h4"))):
        path = world.send(sender, *receivers)
        assert path.kind is PathKind.CIRCUIT and path.state is State.RELEASED
        assert world.expected[-1] == ()
    health, ocs = world.line.manager.core.resources.health, world.line.topology.ocs["ocs"]
    assert not any(health.suspected(ocs, name, world.line.now, "h2") for name in ocs.splitters)


def test_lying_sender__on_a_shared_circuit_moves_its_own_path_alone() -> None:
    world = World()
    line = world.line
    mine = line.ask_as_agent("h1", "h3", size=1 << 30)
    circuit = mine.circuit_id
    assert circuit is not None
    other = line.ask_as_agent("h2", "h3", size=1 << 30, wanted=Wanted.PACKET)
    core = line.manager.core
    core.resources.circuits.use(circuit, other.id, line.now, 1, share=True)
    line.wait(420)
    line.do(ev.NoLight(mine.id, ("h3",), "h1"))
    assert mine.kind is PathKind.PACKET
    kept = core.resources.circuits.get(circuit)
    assert kept is not None and kept.users == (other.id,)


def test_unshared_dark_circuit__is_taken_down() -> None:
    world = World()
    path = world.line.ask_as_agent("h1", "h3", size=1 << 30)
    world.line.wait(420)
    world.line.do(ev.NoLight(path.id, ("h3",), "h1"))
    assert path.kind is PathKind.PACKET and not world.line.network.pairs()
    assert world.line.of(act.NotifyMoved)


def test_evidence__is_bounded_whatever_is_said() -> None:
    world = World()
    line = world.line
    for turn in range(300):
        path = line.ask_as_agent(f"h{1 + turn % 2}", *SIX, size=1 << 30)
        for name in SIX:
            line.do(ev.NoLight(path.id, (name,) * 50, path.request.origin))
        line.release(path)
    darkness = line.manager.core.resources.health.darkness
    sights = [one for of in darkness._parts.values() for many in of.values() for one in many]
    assert len(darkness._parts) <= 200 and all(len(one.servers) <= 8 for one in sights)
    assert max(len(many) for of in darkness._parts.values() for many in of.values()) <= 8
    line.wait(40 * 60_000)
    assert not darkness


def test_steady_circuit__clears_what_the_switch_said_of_its_splitter_not_what_receivers_saw() -> None:
    world = World()
    ocs = world.line.topology.ocs["ocs"]
    health = Health(30 * S)
    health.fault(ocs, Pair(6, 3), "mirror stuck", 0)
    assert health.splitter(ocs, "s1", 1)
    health.works(ocs, Pair(6, 3))
    assert not health.splitter(ocs, "s1", 1)
    world.line.network.blind = {("output", 3)}
    for _ in range(2):
        world.send("h1", "h3", "h5", "h6", "h7")
    for pair in (Pair(1, 5), Pair(6, 3), Pair(9, 3)):
        world.line.manager.core.resources.health.works(ocs, pair)
    assert world.condemned("h1") == {"output 3"}


# -------------------------------------------------------------------------------------- a circuit switch that lies


def test_lying_switch__success_without_light_at_one_rack() -> None:
    """Both splitters' cross-connects to a rack are said to be steady, with power, and pass nothing."""
    world = World()
    line = world.line
    line.network.astray = {Pair(one, 3): None for one in range(1, 41)}
    for _ in range(2):
        path = world.send("h1", "h3", "h5", "h6", "h7")
        assert path.kind is PathKind.CIRCUIT and not path.stamps.moved, "the others have light: they go on"
    assert world.condemned("h1") == {"output 3"}
    around = world.send("h1", "h3", "h5", "h6", "h7")
    assert around.kind is PathKind.PACKET and "no light at h5, h6" in around.reason, "its cause is told"
    for sender, receivers in (("h3", ("h1", "h7")), ("h7", ("h1", "h3")), ("h5", ("h1", "h3", "h8"))):
        path = world.send(sender, *receivers)
        assert path.kind is PathKind.CIRCUIT and not path.stamps.moved, "nothing else was condemned"
    line.network.astray = {}
    line.wait(130_000)
    assert world.send("h1", "h3", "h5", "h6", "h7").kind is PathKind.CIRCUIT and not world.condemned()


def test_lying_switch__success_without_light_blames_no_server_that_is_told_of_first() -> None:
    """The other receiver came late to the transfer: of it nothing is known yet."""
    line = Timeline()
    line.network.astray = {Pair(1, other): None for other in range(1, 41)}
    for _ in range(2):
        path = line.ask_as_agent("h1", "h3", "h4", size=1 << 30)
        line.wait(420)
        line.do(ev.NoLight(path.id, ("h4",), "h1"))
        assert path.kind is PathKind.PACKET
        line.release(path)
        darkness = line.manager.core.resources.health.darkness
        assert not list(darkness.suspects(line.now))


def test_lying_switch__light_at_a_wrong_port_reaches_nobody_and_harms_nobody() -> None:
    """The mirror for one rack shines into another's fibre, where others' light arrives, too."""
    world = World()
    line = world.line
    servers = line.topology.servers
    wrong = {name for name, server in servers.items() if server.tor == servers["h7"].tor}
    other = line.ask_as_agent("h5", "h7", size=1 << 30)
    assert other.kind is PathKind.CIRCUIT and other.group is not None
    line.network.astray = {Pair(one, 3): 4 for one in range(1, 41)}
    for _ in range(6):
        path = line.ask_as_agent("h1", "h3", "h5", "h6", size=1 << 30)
        line.wait(420)
        assert path.group is not None
        copies = line.network.deliver("h1", path.group)
        assert not wrong & copies.keys() and set(copies.values()) <= {1}
        world.tell(path, world.lit(path))
        line.release(path)
        assert line.network.deliver("h5", other.group) == {"h7": 1}, "the other's transfer goes on"
        for name in line.manager.core.agents:
            line.do(ev.KeepAlive(name))
    assert other.kind is PathKind.CIRCUIT and not other.stamps.moved
    assert world.condemned() <= {"output 3"} and world.condemned("h1") == {"output 3"}
    assert any("output 3" in one.subject + one.what for one in world.doctor())


def test_lying_switch__that_passes_no_light_at_all_costs_each_sender_few_tries() -> None:
    world = World()
    line = world.line
    line.network.astray = {Pair(one, other): None for one in range(1, 41) for other in range(1, 41)}
    paths = [world.send(f"h{1 + turn % 2}", *SIX) for turn in range(8)]
    assert {path.kind for path in paths} == {PathKind.PACKET}, "all of them went on by packets"
    assert sum(bool(path.stamps.moved) for path in paths) == 4, "two each, then none is tried"
    assert "(ocs input 1) is out of use" in paths[-1].reason and "no light at h3..h8 on 4 paths" in paths[-1].reason
    assert [one.subject for one in world.doctor()] == ["ocs input 1"]
    darkness = line.manager.core.resources.health.darkness
    assert not any(darkness.expected(name, PathKind.PACKET, None, line.now) for name in SIX), "no server is blamed"
    line.network.astray = {}
    line.wait(600_000)
    assert world.send("h1", *SIX).kind is PathKind.CIRCUIT


def test_lying_switch__lists_cross_connects_that_nobody_made_and_keeps_them() -> None:
    """Its fibres are left alone; whoever needs them goes by packets, with the cause; the others have circuits."""
    line = Timeline()
    ghosts = (Pair(6, 3), Pair(10, 3))
    line.network.ghosts = ghosts
    line.do(ev.CrossConnectsFound("ocs", line.network.found(), line.now))
    orders = len(line.of(act.Disconnect))
    for _ in range(120):
        line.wait(1000)
        line.do(ev.CrossConnectsFound("ocs", line.network.found(), line.now))
        for name in line.manager.core.agents:
            line.do(ev.KeepAlive(name))
    assert len(line.of(act.Disconnect)) - orders <= 30, "it is not told for ever, as fast as it lies"
    assert len(line.manager.core.resources.circuits.foreign()) <= len(ghosts)
    path = line.ask_as_agent("h1", "h7", size=1 << 30)
    assert path.kind is PathKind.CIRCUIT
    line.assert_delivers(path)
    other = line.ask_as_agent("h3", "h5", size=1 << 30)
    assert other.kind is PathKind.PACKET and "held by cross-connect 6>3" in other.reason
    line.assert_delivers(other)


@pytest.mark.parametrize("late_s", [1, 6, 30])
def test_lying_switch__whose_answers_come_late_grants_no_fibre_twice(late_s: int) -> None:
    """It has carried out what it was told, and says so when others have been told otherwise. (The network fails a test
    that connects a fibre twice.)"""
    line = Timeline()
    paths = []
    for turn in range(6):
        line.devices_answer = False
        sender = f"h{1 + 2 * (turn % 4)}"
        paths.append(line.ask_as_agent(sender, *(name for name in SIX if name != sender), size=1 << 30))
        rules = [one for one in line.held if not isinstance(one, ev.CircuitResult | ev.DisconnectResult)]
        late = [one for one in line.held if isinstance(one, ev.CircuitResult | ev.DisconnectResult)]
        line.held.clear()
        line.devices_answer = True
        for event in rules:
            line.do(event)
        for _ in range(late_s):
            line.wait(1000)
            for name in line.manager.core.agents:
                line.do(ev.KeepAlive(name))
        for event in late:
            line.do(event)
        lit = [one.circuit_id for one in paths if one.state is State.ACTIVE and one.kind is PathKind.CIRCUIT]
        assert len(lit) == len(set(lit))
        for path in paths:
            if path.state is State.ACTIVE:
                line.assert_delivers(path)
    assert any(path.state is State.ACTIVE for path in paths)
    for path in paths:
        if path.state in (State.ACTIVE, State.QUEUED, State.CONFIGURING):
            line.release(path)
    line.wait(60_000)
    for name in line.manager.core.agents:
        line.do(ev.KeepAlive(name))
    again = line.ask_as_agent("h1", *SIX, size=1 << 30)
    assert again.kind is PathKind.CIRCUIT, again.reason
    line.assert_delivers(again)


@pytest.mark.parametrize("answers", ["never", "just before"])
@pytest.mark.parametrize("slow", ["circuit switch", "top-of-rack switches"])
def test_slow_device__is_named_and_no_fibre_nor_server_is_taken_for_dark(slow: str, answers: str) -> None:
    """What has not been made has no light: that is no word against who would carry it, or hear it."""
    world = World()
    line = world.line
    kind = ev.CircuitResult if slow == "circuit switch" else ev.RulesInstalled
    for receivers in (("h3", "h4"), ("h5", "h6", "h7"), ("h3", "h5", "h8"), ("h7",)) * 2:
        line.devices_answer = False
        path = line.ask_as_agent("h1", *receivers, size=1 << 30)
        late = [one for one in line.held if isinstance(one, kind)]
        others = [one for one in line.held if not isinstance(one, kind)]
        line.held.clear()
        line.devices_answer = True
        for event in others:
            line.do(event)
        assert late and path.kind is PathKind.CIRCUIT
        line.wait(410)
        for event in late if answers == "just before" else ():
            line.do(event)
        line.wait(10)
        line.do(ev.NoLight(path.id, receivers, "h1"))
        assert path.kind is PathKind.PACKET, "the transfer goes on"
        who, what = ("ocs", "the circuit") if slow == "circuit switch" else ("switches", "the rules")
        told = f"{who} did not confirm {what}" if answers == "never" else f"{who} confirmed {what} only after 410 ms"
        assert told in path.reason
        line.wait(1)
        line.release(path)
        for name in line.manager.core.agents:
            line.do(ev.KeepAlive(name))
    assert not world.condemned("h1") and not world.doctor()
    assert not line.manager.core.resources.health.darkness
    world.expected.clear()
    assert world.send("h1", *SIX).kind is PathKind.CIRCUIT and world.expected == [()]
