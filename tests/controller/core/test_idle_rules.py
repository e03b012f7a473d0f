"""Rules that stay on the switches when their path is released, for an identical one to come."""

from __future__ import annotations

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import Engine, GroupUse
from rostrum.controller.core.values import Settings, State, Wanted

from tests.controller.timeline import Timeline


def ask(line: Timeline, sender: str = "h1", receiver: str = "h3") -> str:
    return line.ask(sender, receiver, wanted=Wanted.PACKET).id


def busy_switches() -> tuple[Timeline, str]:
    """A path that was released before its switches had answered."""
    line = Timeline()
    line.devices_answer = False
    path = line.ask("h1", "h3", wanted=Wanted.PACKET)
    line.release(path)
    assert path.state is State.RELEASED and not line.of(act.RemoveRules)
    line.actions.clear()
    return line, path.id


def test_released_before_the_switches_have_answered__its_rules_are_kept_all_the_same() -> None:
    line, _ = busy_switches()
    line.let()
    again = line.path(ask(line))
    assert again.state is State.ACTIVE
    assert not line.of(act.InstallRules) and not line.of(act.RemoveRules)
    line.assert_delivers(again)


def test_asked_for_again_before_the_switches_have_answered__waits_for_that_answer() -> None:
    line, _ = busy_switches()
    again = line.path(ask(line))
    assert again.state is State.CONFIGURING and not line.of(act.InstallRules)
    line.let()
    assert again.state is State.ACTIVE
    line.assert_delivers(again)


def test_asked_for_again_before_the_switches_have_refused__fails_as_its_own_would() -> None:
    line, _ = busy_switches()
    again = line.path(ask(line))
    (set_rules,) = line.manager.core.rule_ops
    line.held.clear()
    line.devices_answer = True
    line.do(ev.RulesFailed(set_rules, (("tor2", "table full"),)))
    assert again.state is State.FAILED and "table full" in again.cause
    assert not line.network.rules()


def test_refused_or_never_answered__are_not_kept() -> None:
    for answers in (True, False):
        line, _ = busy_switches()
        (set_rules,) = line.manager.core.rule_ops
        line.held.clear()
        line.devices_answer = True
        if answers:
            line.do(ev.RulesFailed(set_rules, (("tor2", "table full"),)))
        else:
            line.wait(line.settings.configure_bound_ns / 1e6 + 1)
        assert not line.network.rules() and not line.manager.core.groups.used
        again = line.path(ask(line))
        assert again.state is State.ACTIVE
        line.assert_delivers(again)


def test_more_than_may_be_kept__the_longest_unused_go_several_at_once() -> None:
    line = Timeline(settings=Settings(idle_rule_sets=16))
    servers = list(line.topology.servers)
    ends = [(sender, receiver) for sender in servers for receiver in servers if sender != receiver][:17]
    for sender, receiver in ends:
        line.release(line.path(ask(line, sender, receiver)))
    (removed,) = line.of(act.RemoveRules)
    assert len(line.manager.core.idle_rules) == 14 and len({rule.group for rule in removed.rules}) == 3
    line.actions.clear()
    for sender, receiver in reversed(ends):
        line.release(line.path(ask(line, sender, receiver)))
        if len(line.of(act.InstallRules)):
            break
    assert (sender, receiver) == ends[2], "the three that were asked for first are gone"
    assert line.manager.core.groups.used == len(line.manager.core.idle_rules)


def test_full_switch_table__kept_rules_make_room_before_a_path_fails() -> None:
    line = Timeline()
    line.network.room = {"tor1": 3}
    for receiver in ("h3", "h5", "h7"):
        line.release(line.path(ask(line, "h1", receiver)))
    assert len(line.manager.core.idle_rules) == 3
    path = line.path(ask(line, "h1", "h4"))
    assert path.state is State.ACTIVE and not line.manager.core.idle_rules.all()
    line.assert_delivers(path)
    line.release(path)
    line.assert_nothing_held()


def test_full_switch_table__of_paths_in_use_fails_the_next_one_after_one_more_try() -> None:
    line = Timeline()
    line.network.room = {"tor1": 2}
    held = [line.path(ask(line, "h1", receiver)) for receiver in ("h3", "h5")]
    line.release(line.path(ask(line, "h3", "h5")))
    line.actions.clear()
    path = line.path(ask(line, "h1", "h7"))
    assert path.state is State.FAILED and path.cause == "rules not set on tor1: table full"
    assert len(line.of(act.InstallRules)) == 1, "nothing that is kept was there: the same again would not help"
    assert len(line.manager.core.idle_rules) == 1, "of other switches"
    assert all(one.state is State.ACTIVE for one in held)


def test_switch_that_refuses_everything__is_asked_twice_not_for_ever() -> None:
    line = Timeline()
    for receiver in ("h3", "h5", "h7"):
        line.release(line.path(ask(line, "h1", receiver)))
    line.network.refusing = {"tor1"}
    line.actions.clear()
    path = line.path(ask(line, "h1", "h4"))
    assert path.state is State.FAILED
    assert len(line.of(act.InstallRules)) == 2


def test_full_switch_table__kept_rules_make_room_for_message_groups() -> None:
    line = Timeline()
    for receiver in ("h3", "h5", "h7"):
        line.release(line.path(ask(line, "h1", receiver)))
    line.network.room = dict.fromkeys(line.topology.switches, 3)
    for server in ("h1", "h3", "h5"):
        line.do(ev.AgentUp(server, 1, 7071, (), group_engines=(Engine("plain"),)))
        line.do(ev.GroupJoined(server, GroupUse("news")))
    for _ in range(4):
        line.wait(500)
        for server in ("h1", "h3", "h5"):
            line.do(ev.KeepAlive(server))
    assert not line.manager.core.idle_rules.all()
    wanted = {rule for switch in line.topology.switches for rule in line.manager.core.members.sharing.rules_on(switch)}
    assert wanted and wanted <= line.network.rules()
