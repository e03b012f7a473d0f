"""Receivers without light: who is blamed for that, and who is not."""

from __future__ import annotations

from collections.abc import Collection

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
