"""First light told by switches, who may use a path's rules, and at which priority."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import ANY_SOURCE, Light, MulticastRule, PathKind
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import Settings, State, Wanted
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import FOLDER, load_text
from rostrum.topologies.model import Topology

from tests.controller.timeline import Timeline, live_path

SIX = ("h3", "h4", "h5", "h6", "h7", "h8")
RACKS = {"tor2", "tor3", "tor4"}


def topology(kind: str) -> Topology:
    return load_text(with_kind((FOLDER / "hybrid-4x2.yaml").read_text(), kind))


def timeline(kind: str = "p4", **settings: object) -> Timeline:
    return Timeline(topology(kind), Settings(**settings))  # type: ignore[arg-type]


def agent(line: Timeline, server: str = "h1", wants_light: bool = True) -> None:
    line.do(ev.AgentUp(server, 1, 7071, (), wants_light))


def shine(line: Timeline, path: Path, rack: str, sn: int = 40) -> None:
    """The switch of a rack tells light of the path, at the port its rule there has."""
    assert path.group is not None
    port = next(rule.in_port for rule in path.rules if rule.switch == rack)
    line.do(ev.FirstLight(Light(rack, port, path.group, 0, sn)))


def told(line: Timeline) -> list[act.Action]:
    return line.of(act.NotifyLight)


def test_circuit__its_rules_are_the_senders_alone_and_receivers_racks_watch() -> None:
    line = timeline()
    path = line.ask("h1", *SIX)
    assert {rule.source for rule in path.rules} == {IPv4Address("10.0.1.1")}
    assert {rule.switch: rule.confirm for rule in path.rules} == {"tor1": 0, "tor2": 3, "tor3": 3, "tor4": 3}
    assert {rule.level for rule in path.rules} == {5}


def test_packet_path__the_core_does_not_watch_and_one_packet_is_enough() -> None:
    line = timeline()
    path = line.ask("h1", "h2", "h3", wanted=Wanted.PACKET)
    assert {rule.switch: rule.confirm for rule in path.rules} == {"tor1": 0, "core": 0, "tor2": 1}


def test_priority_setting__is_in_every_rule() -> None:
    assert {rule.level for rule in timeline(level=0).ask("h1", *SIX).rules} == {0}


def test_first_light__the_agent_hears_when_every_rack_has_it() -> None:
    line = timeline()
    agent(line)
    path = line.ask("h1", *SIX, origin="h1")
    line.wait(70)
    for rack in ("tor3", "tor2"):
        shine(line, path, rack)
    assert not told(line) and set(path.light) == {"tor2", "tor3"}
    line.wait(1)
    shine(line, path, "tor4", sn=44)
    assert told(line) == [act.NotifyLight("h1", path.id)]
    assert (path.light["tor4"].port, path.light["tor4"].sn) == (50, 44)
    assert path.light["tor4"].at - path.light["tor3"].at == 1_000_000
    shine(line, path, "tor4")
    assert len(told(line)) == 1, "once is enough"


def test_first_light__nobody_is_told_who_does_not_want_it() -> None:
    line = timeline()
    agent(line, wants_light=False)
    path = line.ask("h1", *SIX, origin="h1")
    for rack in RACKS:
        shine(line, path, rack)
    by_rest = line.ask("h2", "h3", wanted=Wanted.PACKET)
    shine(line, by_rest, "tor2")
    assert not told(line) and by_rest.light


def test_mixed_fabric__racks_that_cannot_tell_leave_it_to_the_receivers() -> None:
    mixed = topology("mixed")
    plain = topology("openflow").switches["tor3"]
    line = Timeline(replace(mixed, switches={**mixed.switches, "tor3": plain}))
    agent(line)
    path = line.ask("h1", *SIX, origin="h1")
    for rack in ("tor2", "tor4"):
        shine(line, path, rack)
    assert set(path.light) == {"tor2", "tor4"} and not told(line)


def test_light_of_somewhere_else__is_not_the_paths() -> None:
    line = timeline()
    agent(line)
    path = line.ask("h1", *SIX, origin="h1")
    assert path.group is not None
    line.do(ev.FirstLight(Light("tor2", 49, path.group, 0, 1)))
    line.do(ev.FirstLight(Light("tor1", 1, path.group, 0, 1)))
    line.do(ev.FirstLight(Light("tor9", 1, path.group, 0, 1)))
    line.do(ev.FirstLight(Light("tor2", 50, IPv4Address("239.192.255.1"), 0, 1)))
    assert path.light == {}
    line.release(path)
    line.do(ev.FirstLight(Light("tor2", 50, path.group, 0, 1)))
    assert path.light == {}


def test_path_that_comes_again__its_light_is_watched_anew() -> None:
    line = timeline()
    agent(line)
    first = line.ask("h1", *SIX, origin="h1")
    for rack in RACKS:
        shine(line, first, rack)
    line.release(first)
    line.actions.clear()
    again = line.ask("h1", *SIX, origin="h1")
    (rearmed,) = line.of(act.RearmRules)
    assert isinstance(rearmed, act.RearmRules)
    assert {rule.switch: rule.confirm for rule in rearmed.rules} == dict.fromkeys(RACKS, 1)
    assert again.light == {} and not line.of(act.InstallRules)
    for rack in RACKS:
        shine(line, again, rack)
    assert told(line) == [act.NotifyLight("h1", again.id)]


def test_path_that_moved__its_light_is_told_again() -> None:
    line = timeline()
    agent(line)
    path = line.ask("h1", *SIX, origin="h1")
    line.wait(300)
    line.do(ev.NoLight(path.id, ("h3", "h5", "h7"), "h1"))
    assert path.kind is PathKind.PACKET and path.light == {}
    for rack in RACKS:
        shine(line, path, rack)
    assert [row.port for row in path.light.values()] == [49, 49, 49]
    assert told(line) == [act.NotifyLight("h1", path.id)]


def test_openflow_fabric__nothing_is_rearmed() -> None:
    line = Timeline()
    path = line.ask("h1", *SIX)
    line.release(path)
    line.actions.clear()
    line.ask("h1", *SIX)
    assert not line.of(act.RearmRules)


def test_switch_that_comes_back_without_its_rules__gets_them_again() -> None:
    line = timeline()
    path = line.ask("h1", *SIX)
    line.do(ev.SwitchDown("tor3", "killed"))
    line.network.tables["tor3"].clear()
    line.do(ev.SwitchUp("tor3"))
    line.assert_delivers(path)
    assert path.state is State.ACTIVE


def test_manager_comes_back__rules_found_are_adopted_whatever_their_switches_say_of_sources() -> None:
    line = timeline()
    path = line.ask_as_agent("h1", *SIX)
    successor = Timeline(line.topology, Settings(boot_id=2), up=False)
    successor.network = line.network
    successor.now = line.now
    # An OpenFlow switch does not look at sources, and reports none.
    table = successor.network.tables["tor2"]
    for key, rule in table.items():
        table[key] = replace(rule, source=ANY_SOURCE)
    successor.all_up()
    successor.hello("h1", live=(live_path(path),))
    adopted = successor.path(path.id)
    successor.assert_delivers(adopted)
    assert {rule.source for rule in adopted.rules} == {IPv4Address("10.0.1.1")}


def test_holds__ports_level_and_source_decide() -> None:
    wanted = MulticastRule("tor1", 1, IPv4Address("239.192.0.5"), (2, 3), IPv4Address("10.0.1.1"), 5, confirm=3)
    assert rule_making.holds(replace(wanted, confirm=0), wanted)
    assert rule_making.holds(replace(wanted, source=ANY_SOURCE), wanted)
    assert not rule_making.holds(replace(wanted, source=IPv4Address("10.0.1.2")), wanted)
    assert not rule_making.holds(replace(wanted, level=0), wanted)
    assert not rule_making.holds(replace(wanted, out_ports=(2,)), wanted)
    assert not rule_making.holds(None, wanted)
