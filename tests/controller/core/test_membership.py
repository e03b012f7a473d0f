"""Message groups: who is told what, when, and what switches do for it."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.sharing import Shared
from rostrum.controller.core.groups.values import Engine, EngineOption, GroupOptions, GroupUse, WrongOptions
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.persistence import parts
from rostrum.controller.core.values import MS, Settings

from tests.controller.group_network import ENGINES, GroupLine, fat_tree, spine

QUARTER_S = 250


def test_join__members_know_one_another_and_get_each_others_packets() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3", "h8")
    line.wait(QUARTER_S)
    assert line.members("news") == {"h1", "h3", "h8"}
    line.assert_told()
    line.assert_delivered()


def test_join__in_a_window_make_one_view_and_one_call_for_each_agent() -> None:
    line = GroupLine()
    line.up(*line.topology.servers)
    for group in range(50):
        line.join(f"g{group}", *line.topology.servers)
    line.wait(QUARTER_S)
    assert {one.calls for one in line.listeners.values()} == {1}
    assert {held.version for one in line.listeners.values() for held in one.groups.values()} == {1}
    line.assert_told()


def test_join__later_ones_are_told_as_deltas_to_those_concerned_only() -> None:
    line = GroupLine()
    line.join("a", "h1", "h2")
    line.join("b", "h5", "h6")
    line.wait(QUARTER_S)
    line.actions.clear()
    line.join("a", "h3")
    line.wait(QUARTER_S)
    pushes = {one.server: one for one in line.of(act.PushGroups)}
    assert pushes.keys() == {"h1", "h2", "h3"}
    told = pushes["h1"].views[0]
    assert told.base_version == 1 and told.version == 2 and len(told.members) == 1 and told.facts is None
    assert [peer.server for peer in pushes["h1"].peers] == ["h3"]
    assert pushes["h3"].views[0].base_version is None
    line.assert_told()


def test_view__is_told_when_the_rules_are_in() -> None:
    line = GroupLine()
    line.up("h1", "h3")
    line.devices_answer = False
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    assert not line.of(act.PushGroups)
    line.let()
    assert line.listeners["h1"].groups.keys() == {"news"}


def test_view__tells_of_a_restart_though_the_server_left_and_came_back_while_rules_were_set() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    line.devices_answer = False
    line.join("news", "h7")
    line.wait(QUARTER_S)
    line.up("h3", boot=2)
    line.leave("news", "h3")
    line.join("news", "h3")
    line.devices_answer = True
    line.let()
    line.wait(QUARTER_S)
    line.assert_told()


def test_view__has_another_version_for_a_member_that_left_and_is_back_before_that_was_told() -> None:
    """It keeps nothing of what came before, and takes nothing of earlier views: recorded packets may come again."""
    line = GroupLine()
    line.join("news", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    before = line.listeners["h3"].groups["news"].version
    line.leave("news", "h3")
    line.join("news", "h3")
    line.wait(QUARTER_S)
    assert line.listeners["h3"].groups["news"].version > before
    line.assert_told()


@pytest.mark.parametrize("since_start", [True, False])
def test_view__waits_for_a_switch_that_comes_back_within_a_second(since_start: bool) -> None:
    line = GroupLine()
    line.up("h1", "h3")
    if not since_start:
        line.wait_alive(60_000)
    line.do(ev.SwitchDown("tor2", "the manager was restarted"))
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    assert not line.of(act.PushGroups)
    line.do(ev.SwitchUp("tor2"))
    line.let()
    line.assert_told()
    line.assert_delivered()


def test_view__does_not_wait_for_a_switch_that_stays_away() -> None:
    line = GroupLine()
    line.up("h1", "h3")
    line.do(ev.SwitchDown("tor2", "pulled"))
    line.join("news", "h1", "h3")
    line.wait(1500)
    line.assert_told()
    line.wait_alive(60_000)
    line.join("olds", "h1", "h3")
    line.wait(QUARTER_S)
    line.assert_told()


def test_view__does_not_wait_for_a_switch_that_does_not_answer() -> None:
    line = GroupLine()
    line.up("h1", "h3")
    line.devices_answer = False
    line.join("news", "h1", "h3")
    line.wait(1500)
    line.assert_told()


def test_rules__a_switch_that_refuses_is_tried_again() -> None:
    line = GroupLine()
    line.network.refusing.add("tor2")
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    line.assert_told()
    line.network.refusing.clear()
    line.wait_alive(3000)
    line.assert_delivered()


def test_use__a_publisher_reaches_the_members_and_gets_nothing() -> None:
    line = GroupLine()
    line.join("news", "h3", "h5")
    line.use("news", "h1")
    line.wait(QUARTER_S)
    line.assert_told()
    line.assert_delivered()
    group = line.manager.core.members.groups["news"]
    copies = line.network.deliver("h3", line.manager.core.members.sharing.at[group.id].address)
    assert copies.keys() == {"h5"}, "the publisher's rack has a tree that leads out of it only"


def rule_orders(line: GroupLine) -> list[act.Action]:
    return [*line.of(act.InstallRules), *line.of(act.RemoveRules)]


def test_use__a_publisher_that_comes_again_seconds_later_finds_its_way_as_it_was() -> None:
    """A switch confirms a rule before what it caches follows: the first packet by a way that was taken out and set
    again can be dropped."""
    line = GroupLine()
    line.join("news", "h3")
    line.use("news", "h1")
    line.wait(QUARTER_S)
    before = line.network.rules()
    line.actions.clear()
    for pause_ms in (100, 2_000, 13_000):
        line.leave("news", "h1", sends_only=True)
        line.wait_alive(pause_ms)
        line.assert_told()
        assert not line.senders("news"), "nobody believes it, nor waits for it"
        line.use("news", "h1")
        line.wait(QUARTER_S)
        line.assert_told()
        line.assert_delivered()
    assert not rule_orders(line) and line.network.rules() == before
    line.leave("news", "h1", sends_only=True)
    line.wait_alive(20_000)
    assert line.of(act.RemoveRules) and not line.network.rules(), "not for ever"
    assert not line.manager.core.members.lately


def test_use__a_publisher_that_left_takes_no_rules_from_others() -> None:
    line = GroupLine(settings=Settings(group_rules=16))
    for group in "abcdefghij":
        line.join(group, "h3")
        line.use(group, "h1")
    line.wait(QUARTER_S)
    held = len(line.network.rules())
    for group in "abcdefghij":
        line.leave(group, "h1", sends_only=True)
    line.wait(QUARTER_S)
    assert len(line.network.rules()) < held, "where rules are scarce they go at once"
    line.assert_within_budget()


def test_use__a_publisher_hears_who_the_members_are() -> None:
    line = GroupLine()
    line.join("news", "h3")
    line.use("news", "h1")
    line.wait(QUARTER_S)
    line.join("news", "h5")
    line.wait(QUARTER_S)
    joined = line.listeners["h5"].groups["news"].version
    assert line.listeners["h1"].groups["news"].version == joined
    line.assert_told()
    line.leave("news", "h3")
    line.wait(QUARTER_S)
    line.assert_told()  # who left is not answered any more


def test_use__subscribers_hear_of_a_publisher_before_it_may_publish() -> None:
    line = GroupLine()
    line.join("news", "h3", "h5")
    line.wait(QUARTER_S)
    line.use("news", "h1")
    line.actions.clear()
    line.wait(QUARTER_S)
    assert [push.server for push in line.of(act.PushGroups)][-1] == "h1"
    line.assert_told()


def test_use__a_publisher_whose_clock_was_set_back_is_told_with_its_new_boot_id() -> None:
    line = GroupLine()
    line.join("news", "h3", "h5")
    line.up("h1", boot=1000)
    line.use("news", "h1")
    line.wait(QUARTER_S)
    for boot in (500, 501, 2):
        line.up("h1", boot=boot)
        line.use("news", "h1")
        line.wait(QUARTER_S)
        for name in ("h3", "h5"):
            assert ("h1", boot) in line.listeners[name].peers.values()
        line.assert_told()


def test_use__and_join_and_leave_in_any_order() -> None:
    line = GroupLine()
    line.join("news", "h3", "h5")
    line.use("news", "h1")
    line.wait(QUARTER_S)
    line.join("news", "h1")
    line.wait(QUARTER_S)
    assert line.members("news") == {"h1", "h3", "h5"} and not line.senders("news")
    line.assert_told()
    line.leave("news", "h1")
    line.wait(QUARTER_S)
    assert line.senders("news") == {"h1"}
    line.assert_told()
    line.leave("news", "h1", sends_only=True)
    line.wait(QUARTER_S)
    assert not line.senders("news")
    line.assert_told()


def test_join__without_an_engine_for_the_protocol_is_refused_with_a_reason() -> None:
    line = GroupLine()
    line.up("h1", knows=(Engine("plain"),))
    line.up("h2", knows=())
    line.join("fast", "h3", options=GroupOptions("ricochet"))
    line.join("fast", "h1", "h2")
    line.join("odd", "h3", options=GroupOptions("telepathy"))
    line.wait(QUARTER_S)
    assert line.listeners["h1"].refused == {"fast": "fast runs ricochet; the agent of h1 has plain"}
    assert line.listeners["h2"].refused == {"fast": "fast runs ricochet; the agent of h2 knows no groups"}
    assert line.listeners["h3"].refused["odd"] == "odd runs telepathy; the agent of h3 has plain, ricochet"
    assert line.members("fast") == {"h3"}
    assert "odd" not in line.manager.core.members.groups


def test_join__with_other_options_than_the_groups_is_refused() -> None:
    line = GroupLine()
    line.join("news", "h1")
    line.join("news", "h2", options=GroupOptions("ricochet"))
    line.join("news", "h3", options=GroupOptions())
    expected = "news is there with other options: plain, order none, not ricochet, order none"
    assert line.listeners["h2"].refused["news"] == expected
    assert line.members("news") == {"h1", "h3"}


def test_join__options_are_checked_by_what_the_agent_told__the_rest_is_as_the_group_has_it() -> None:
    line = GroupLine()
    line.join("news", "h1", options=GroupOptions("ricochet", "none", "stagger=2,r=4"))
    line.join("news", "h2", options=GroupOptions("ricochet", "none", "r=4.000"))
    line.join("news", "h3", options=GroupOptions("ricochet", "none", "c=4"))
    line.join("odd", "h4", options=GroupOptions("ricochet", "none", "r=33"))
    line.wait(QUARTER_S)
    assert line.listeners["h1"].groups["news"].facts.options.options == "r=4,c=5,stagger=2"
    assert line.members("news") == {"h1", "h2"}
    refused = line.listeners["h3"].refused["news"]
    assert refused.startswith("news is there with other options: ricochet (r=4, c=5, stagger=2), order none, not ")
    assert line.listeners["h4"].refused["odd"].startswith("r 33 is out of range")
    line.up("h5", knows=(Engine("plain"), Engine("ricochet")))  # of another release
    line.join("news", "h5")
    assert line.listeners["h5"].refused["news"] == "ricochet has no option 'r'; it has none"


@pytest.mark.parametrize("text", ["r", "r=", "=8", "r=8,", ",r=8", "r=-1", "r=8.5", "c=1.2345", "c=.5", "c=5.",
                                  "r=8,r=8", "r= 8", "r=٨", "c=99999999999999", "lambda=3", "r=8,c"])  # fmt: skip
def test_options__that_no_engine_would_take_are_refused(text: str) -> None:
    with pytest.raises(WrongOptions):
        ENGINES[1].complete(text)


@pytest.mark.parametrize(("text", "expected"), [
    ("", "r=8,c=5,stagger=1"), ("stagger=10,c=2.50,r=08", "r=8,c=2.5,stagger=10"), ("c=0.001", "r=8,c=0.001,stagger=1"),
])  # fmt: skip
def test_options__are_completed_as_agents_write_them(text: str, expected: str) -> None:
    assert ENGINES[1].complete(text) == expected


def test_options__that_came_later_are_left_out_while_as_usual() -> None:
    before = ENGINES[1]
    later = (EngineOption("flush", 0, 1_000_000, 0, True, later=True), EngineOption("most", 0, 9000, 5000, later=True))
    engine = Engine("ricochet", before.options + later)
    assert engine.complete("most=5,flush=0.0") == before.complete("")
    assert engine.complete("flush=0.40") == "r=8,c=5,stagger=1,flush=0.4"
    assert engine.complete("most=0") == "r=8,c=5,stagger=1,most=0"
    assert engine.agree("flush=0,most=5", "r=4,c=5,stagger=1") and not engine.agree("flush=1", "r=4,c=5,stagger=1")
    assert not engine.agree("flush=0", "r=4,c=5,stagger=1,flush=0.4")
    line = GroupLine()
    line.up("h1", knows=(Engine("plain"), engine))
    line.up("h2", knows=(Engine("plain"), before))  # an agent from before
    for name, options in (("news", ""), ("fast", "flush=0.4")):
        line.join(name, "h1", options=GroupOptions("ricochet", "none", options))
        line.join(name, "h2", options=GroupOptions("ricochet"))
    line.wait(QUARTER_S)
    assert line.members("news") == {"h1", "h2"}
    assert line.listeners["h2"].groups["news"].facts.options.options == "r=8,c=5,stagger=1"
    assert line.listeners["h2"].refused["fast"] == "ricochet has no option 'flush'; it has r, c, stagger"


def test_join__bounds_are_told() -> None:
    line = GroupLine(settings=Settings(groups_max=3, group_members_max=2, groups_per_server=2))
    line.join("a", "h1", "h2", "h3")
    line.join("b", "h1")
    line.join("c", "h1", "h2")
    line.join("d", "h3")
    line.join("no spaces", "h4")
    refused = {(name, group) for name, one in line.listeners.items() for group in one.refused}
    assert refused == {("h3", "a"), ("h1", "c"), ("h3", "d"), ("h4", "no spaces")}
    assert "the most that a group may have" in line.listeners["h3"].refused["a"]
    assert "the most that a server may be in" in line.listeners["h1"].refused["c"]
    assert "3 groups are there already" in line.listeners["h3"].refused["d"]


def test_leave__by_who_is_not_in_the_group_changes_nothing() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3")
    line.up("h5")
    line.wait(QUARTER_S)
    line.leave("news", "h5")
    line.leave("news", "h1", sends_only=True)
    line.leave("olds", "h1")
    line.wait(QUARTER_S)
    assert line.listeners["h1"].calls == 1
    assert line.members("news") == {"h1", "h3"}


def test_leave__the_last_one_and_the_group_goes_after_a_while() -> None:
    line = GroupLine()
    used = line.manager.core.groups.used
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    line.leave("news", "h1", "h3")
    line.wait_alive(20_000)
    assert "news" in line.manager.core.members.groups
    assert not line.network.rules()
    line.wait_alive(20_000)
    assert not line.manager.core.members.groups
    assert line.manager.core.groups.used == used


def test_agent__silent_for_its_lease_is_out_of_its_groups() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    line.do(ev.AgentDown("h5", 1, "closed"))
    line.wait(2000)
    for name in ("h1", "h3"):
        line.do(ev.KeepAlive(name))
    assert line.members("news") == {"h1", "h3", "h5"}
    line.wait(1500)
    assert line.members("news") == {"h1", "h3"}
    line.assert_told()
    line.assert_delivered()


def test_agent__put_out_and_back_is_told_that_it_rejoined() -> None:
    """It may not know that it was out, and would wait for what nobody sends it again. Others miss nothing."""
    line = GroupLine()
    line.join("news", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    line.do(ev.AgentDown("h5", 1, "closed"))
    for _ in range(4):
        line.wait(1000)
        for name in ("h1", "h3"):
            line.do(ev.KeepAlive(name))
    assert line.members("news") == {"h1", "h3"}
    line.up("h5")
    line.join("news", "h5")
    line.join("news", "h1")  # asks for it again
    line.wait(QUARTER_S)
    line.assert_told()
    assert {name: one.groups["news"].rejoined for name, one in line.listeners.items()} == {
        "h1": False,
        "h3": False,
        "h5": True,
    }
    line.do(ev.AgentDown("h3", 1, "closed"))
    line.wait(500)
    line.up("h3")
    line.join("news", "h3")  # within its lease
    line.join("news", "h7")
    line.wait(QUARTER_S)
    assert not line.listeners["h3"].groups["news"].rejoined


def test_agent__back_within_its_lease_disturbs_nobody() -> None:
    line = GroupLine()
    line.join("a", "h1", "h3", "h5")
    line.join("b", "h1", "h5")
    line.wait(QUARTER_S)
    line.do(ev.AgentDown("h5", 1, "closed"))
    line.wait(500)
    calls = {name: one.calls for name, one in line.listeners.items()}
    line.up("h5")
    line.join("a", "h5")
    line.join("b", "h5")
    line.wait_alive(6000)
    assert line.listeners["h5"].calls == 1, "both groups in one call"
    assert {name: one.calls for name, one in line.listeners.items() if name != "h5"} == {
        name: count for name, count in calls.items() if name != "h5"
    }
    line.assert_told()


def test_agent__back_without_telling_a_group_has_left_it() -> None:
    line = GroupLine()
    line.join("a", "h1", "h5")
    line.join("b", "h1", "h5")
    line.wait(QUARTER_S)
    line.do(ev.AgentDown("h5", 1, "closed"))
    line.up("h5")
    line.join("a", "h5")
    line.wait_alive(4000)
    assert line.members("a") == {"h1", "h5"}
    assert line.members("b") == {"h1"}


def test_agent__restarted_is_a_new_peer_by_the_same_name() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    line.up("h3", boot=2)
    line.join("news", "h3")
    line.wait(QUARTER_S)
    assert ("h3", 2) in line.listeners["h1"].peers.values()
    assert line.listeners["h1"].groups["news"].version == 2
    line.assert_told()


def test_made_by_rest__stays_empty_and_gives_its_options() -> None:
    line = GroupLine()
    line.do(ev.GroupMade("ticks", GroupOptions("ricochet", "fifo", "r=4,c=2,stagger=6")))
    line.wait_alive(60_000)
    line.join("ticks", "h1", "h2")
    line.wait(QUARTER_S)
    assert line.listeners["h1"].groups["ticks"].facts.options == GroupOptions("ricochet", "fifo", "r=4,c=2,stagger=6")


def test_deleted__its_members_hear_why() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3")
    line.use("news", "h5")
    line.wait(QUARTER_S)
    line.do(ev.GroupDeleted("news", "deleted by alice"))
    line.wait(QUARTER_S)
    for name in ("h1", "h3", "h5"):
        assert line.listeners[name].refused == {"news": "deleted by alice"}
    assert not line.network.rules()


def test_switch__back_with_an_empty_table_gets_its_rules() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3", "h8")
    line.wait(QUARTER_S)
    line.do(ev.SwitchDown("tor2", "power"))
    line.network.tables["tor2"].clear()
    line.do(ev.SwitchUp("tor2"))
    line.assert_delivered()


def test_switch__a_root_that_stays_away_loses_its_trees() -> None:
    line = GroupLine(spine(4, 2, 2))
    for number in range(8):
        line.join(f"g{number}", "h1", "h3", "h8")
    line.wait(QUARTER_S)
    sharing = line.manager.core.members.sharing
    assert {shared.root for shared in sharing.at.values()} == {"core0", "core1"}, "roots share the load"
    line.do(ev.SwitchDown("core0", "power"))
    line.wait_alive(10_000)
    assert {shared.root for shared in sharing.at.values()} == {"core1"}
    line.assert_told()
    line.assert_delivered()
    line.wait_alive(10_000)
    line.do(ev.SwitchUp("core0"))
    line.wait_alive(10_000)
    assert not any(switch == "core0" and in_port == 0 for switch, in_port, _ in _keys(line)), "nothing is left there"


@pytest.mark.parametrize(
    "trouble",
    [
        lambda tor, port: ev.PortChanged("core0", port, False),
        lambda tor, port: ev.LinkSuspected((tor, "core0"), "nothing comes out of it"),
        lambda tor, port: ev.LinkDrained((tor, "core0"), "new cable"),
    ],
    ids=["its port goes down", "it passes nothing", "it is drained"],
)
def test_link__a_tree_over_one_that_goes_down_is_left(trouble: Callable[[str, int], ev.Event]) -> None:
    line = GroupLine(spine(4, 2, 2))
    for number in range(4):
        line.join(f"g{number}", "h1", "h3", "h8")
    line.wait(QUARTER_S)
    sharing = line.manager.core.members.sharing
    tor = line.topology.servers["h3"].tor
    port = next(port for port, end in line.topology.switches[tor].neighbours.items() if end.node == "core0")
    end = line.topology.switches[tor].neighbours[port]
    over = {name for name, shared in sharing.at.items() if shared.root == "core0"}
    assert 0 < len(over) < 4
    line.do(trouble(tor, end.port))
    line.wait_alive(10_000)
    assert all((tor, port) not in _links(line, shared) for shared in sharing.at.values())
    line.assert_told()
    line.assert_delivered()


def test_link__the_only_one_of_a_rack_comes_back() -> None:
    line = GroupLine(spine(3, 2, 1))
    line.join("news", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    line.do(ev.PortChanged("core0", 2, False))
    line.wait_alive(7_000)
    address = line.manager.core.members.sharing.at[1].address
    assert line.network.deliver("h1", address) == {"h5": 1}
    line.do(ev.PortChanged("core0", 2, True))
    line.wait_alive(7_000)
    line.assert_told()
    line.assert_delivered()


def _links(line: GroupLine, shared: Shared) -> set[tuple[str, int]]:
    ends = {(switch, port) for switch, ports in shared.ports.items() for port in ports}
    far = {line.topology.switches[switch].neighbours[port] for switch, port in ends}
    return ends | {(end.node, end.port) for end in far}


def test_rules__few_change_when_a_member_comes() -> None:
    line = GroupLine(fat_tree(4))
    line.join("news", "h1", "h2", "h16")
    line.wait(QUARTER_S)
    before = line.network.rules()
    line.join("news", "h15")
    line.wait(QUARTER_S)
    changed = line.network.rules() ^ before
    tor = line.topology.servers["h15"].tor
    assert {rule.switch for rule in changed} == {tor}


def _keys(line: GroupLine) -> list[tuple[str, int, object]]:
    return [(rule.switch, rule.in_port, rule.group) for rule in line.network.rules()]


def reborn(line: GroupLine) -> GroupLine:
    """The next manager, with what the last one wrote, on the same network."""
    records: dict[str, dict[str, object]] = {}
    core = line.manager.core
    for part, key in core.persistence.take():
        value = parts._BY_NAME[part].dump(core, key)
        if value is not None:
            records.setdefault(part, {})[key] = value
    line.manager = Manager(line.topology, Settings(boot_id=77), line.now)
    line.manager.restore(records, line.now)
    line.all_up()
    return line


def test_view__of_a_group_with_several_channels_tells_each_server_its_own() -> None:
    line = GroupLine()
    line.join("news", "h1", "h3")
    line.wait(QUARTER_S)
    group, places = line.manager.core.members.groups["news"], line.manager.core.members.places
    group.more = (IPv4Address("239.192.255.1"), IPv4Address("239.192.255.2"))
    group.listens = {places.number["h3"]: (0, 2)}
    line.join("news", "h5")
    line.wait(QUARTER_S)
    seen = {name: line.listeners[name].groups["news"] for name in ("h1", "h3", "h5")}
    assert {view.facts.more for view in seen.values()} == {group.more}
    assert [seen[name].listens for name in ("h1", "h3", "h5")] == [None, (0, 2), None]
    group.listens = {places.number["h5"]: (1,)}
    line.join("news", "h7")
    line.wait(QUARTER_S)
    seen = {name: line.listeners[name].groups["news"] for name in ("h1", "h3", "h5", "h7")}
    assert [view.listens for view in seen.values()] == [None, None, (1,), None]
    assert len({view.version for view in seen.values()}) == 1
    before = group.told_facts
    reborn(line)
    assert line.manager.core.members.groups["news"].told_facts == before


@pytest.mark.parametrize(("record", "expected"), [
    (["ricochet", "fifo", 4, 2, 6], GroupOptions("ricochet", "fifo", "r=4,c=2,stagger=6")),
    (["plain", "none", 0, 0, 0], GroupOptions()),
    (["ricochet", "none", "r=4,c=2.5"], GroupOptions("ricochet", "none", "r=4,c=2.5")),
])  # fmt: skip
def test_journal__of_an_older_manager_is_read(record: list[object], expected: GroupOptions) -> None:
    manager = Manager(spine(2, 2, 1), Settings(boot_id=77), 0)
    of = {"id": 5, "version": 3, "options": record, "kept": True, "members": [], "uses": []}
    manager.restore({"group": {"ticks": of}}, 0)
    assert manager.core.members.groups["ticks"].options == expected


def test_manager__restarted_goes_on_where_it_was() -> None:
    line = GroupLine()
    line.join("a", "h1", "h3")
    line.join("b", "h1", "h5")
    line.use("b", "h7")
    line.wait(QUARTER_S)
    groups = {name: one.groups["a" if "a" in one.groups else "b"] for name, one in line.listeners.items()}
    rules = line.network.rules()
    reborn(line)
    line.wait(QUARTER_S)
    assert line.network.rules() == rules
    for name in ("h1", "h3", "h5"):
        line.up(name)
    line.join("a", "h1", "h3")
    line.join("b", "h1", "h5")
    line.up("h7")
    line.use("b", "h7")
    line.wait_alive(10_000)
    line.assert_told()
    line.assert_delivered()
    assert {name: one.groups["a" if "a" in one.groups else "b"] for name, one in line.listeners.items()} == groups
    assert line.network.rules() == rules


def test_manager__restarted_drops_who_does_not_come_back() -> None:
    line = GroupLine()
    line.join("a", "h1", "h3", "h5")
    line.wait(QUARTER_S)
    reborn(line)
    line.up("h1", "h3")
    line.join("a", "h1", "h3")
    line.wait_alive(10_000)
    assert line.members("a") == {"h1", "h3"}
    line.assert_told()


def test_manager__without_a_memory_takes_id_address_and_version_from_agents() -> None:
    line = GroupLine()
    line.join("a", "h1", "h3")
    line.wait(QUARTER_S)
    held = line.listeners["h1"].groups["a"]
    number = next(iter(line.listeners["h1"].names))
    line.manager = Manager(line.topology, Settings(boot_id=77), line.now)
    line.all_up()
    use = GroupUse("a", None, number, held.version, held.facts.address)
    for name in ("h1", "h3"):
        line.up(name)
        line.join("a", name, use=use)
        line.wait(500)
    line.wait_alive(8_000)
    assert line.listeners["h1"].groups["a"].facts == held.facts
    assert line.listeners["h1"].groups["a"].version > held.version
    assert line.manager.core.members.groups["a"].id == number
    line.assert_told()
    line.assert_delivered()


def test_window__is_a_setting() -> None:
    line = GroupLine(settings=Settings(group_window_ns=200 * MS))
    line.join("a", "h1", "h3")
    line.wait(150)
    assert not line.of(act.PushGroups)
    line.wait(100)
    line.assert_told()
