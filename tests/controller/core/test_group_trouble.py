"""Members of groups that hold the others up: who is put out, and who is not, whatever one of them says."""

from __future__ import annotations

import random

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import GroupOptions, GroupUse, SlowProgram

from tests.controller.group_network import GroupLine

SERVERS = ("h1", "h2", "h3", "h4", "h5")
TURN_MS = 1000


def group_of(*servers: str) -> GroupLine:
    line = GroupLine()
    line.up(*line.topology.servers)
    for server in servers:
        line.do(ev.GroupJoined(server, GroupUse("log", GroupOptions("plain", "total"))))
    line.wait(500)
    assert line.members("log") == set(servers)
    return line


def accuse(line: GroupLine, turns: int, **said: str) -> None:
    """Each second, all say whom they hear nothing of: h1="h3" or "h3 h4"."""
    for _ in range(turns):
        for server, whom in said.items():
            line.do(ev.GroupTroubled(server, "log", (), tuple(whom.split())))
        line.wait_alive(TURN_MS)


def refused(line: GroupLine) -> list[str]:
    return [one.server for one in line.of(act.RefuseGroup)]


def test_one_that_alone_hears_nothing_of_the_coordinator__goes() -> None:
    line = group_of(*SERVERS)
    accuse(line, 6, h4="h1", h1="h4")
    assert line.members("log") == {"h1", "h2", "h3", "h5"}
    assert refused(line) == ["h4"]


def test_one_that_is_cut_off_and_says_so_later_than_the_coordinator__goes_all_the_same() -> None:
    line = group_of("h1", "h3", "h5")
    accuse(line, 2, h1="h5")
    accuse(line, 7, h1="h5", h5="h1")
    assert line.members("log") == {"h1", "h3"}
    assert refused(line) == ["h5"]


def test_two_that_are_cut_off_from_the_others__go_and_the_coordinator_stays() -> None:
    line = group_of(*SERVERS)
    accuse(line, 12, h4="h1", h5="h1", h1="h4 h5")
    assert line.members("log") == {"h1", "h2", "h3"}


def test_a_coordinator_that_most_hear_nothing_of__goes() -> None:
    line = group_of(*SERVERS)
    accuse(line, 6, h2="h1", h3="h1", h4="h1", h1="h2 h3 h4")
    assert line.members("log") == {"h2", "h3", "h4", "h5"}


def test_a_coordinator_that_alone_accuses__goes_itself_and_of_the_second_it_is_believed() -> None:
    line = group_of(*SERVERS)
    accuse(line, 6, h1="h4")
    assert line.members("log") == {"h2", "h3", "h4", "h5"}
    accuse(line, 6, h2="h4")
    assert line.members("log") == {"h2", "h3", "h5"}


def test_a_coordinator_that_crashed_and_others_say_so_one_after_another__nobody_else_goes() -> None:
    line = group_of(*SERVERS)
    line.do(ev.AgentDown("h1", 1, "its connection ended"))
    accuse(line, 2, h5="h1")
    accuse(line, 5, h2="h1", h3="h1", h5="h1")
    assert line.members("log") >= set(SERVERS) - {"h1"}


def test_most_say_it_but_not_for_long_enough__nobody_goes() -> None:
    line = group_of(*SERVERS)
    accuse(line, 2, h5="h1")
    accuse(line, 1, h2="h1", h3="h1", h5="h1")
    assert line.members("log") == set(SERVERS)


def test_what_is_said_once__puts_nobody_out() -> None:
    line = group_of(*SERVERS)
    accuse(line, 1, h2="h1", h3="h1", h4="h1", h5="h1")
    line.wait_alive(10_000)
    accuse(line, 1, h2="h1", h3="h1", h4="h1", h5="h1")
    assert line.members("log") == set(SERVERS)


def test_strangers_and_names_that_are_none__count_for_nothing() -> None:
    line = group_of(*SERVERS)
    accuse(line, 6, h6="h1", h7="h1", h8="h1", h2="h9 nobody h2", h3="")
    assert line.members("log") == set(SERVERS)
    line.do(ev.GroupTroubled("h2", "none", (), ("h1",)))


def test_two_members_that_do_not_hear_each_other__the_coordinator_stays() -> None:
    line = group_of("h1", "h2")
    accuse(line, 6, h1="h2", h2="h1")
    assert line.members("log") == {"h1"}


@pytest.mark.parametrize("which", range(50))
def test_one_liar__costs_nobody_but_itself_its_place(seed: int, which: int) -> None:
    """It accuses whom it likes; the others hear one another, and it."""
    draw = random.Random(seed * 100 + which)
    liar, line = draw.choice(SERVERS), group_of(*SERVERS)
    for _ in range(30):
        whom = draw.sample(SERVERS, draw.randint(0, len(SERVERS)))
        line.do(ev.GroupTroubled(liar, "log", (), tuple(whom)))
        line.wait_alive(draw.randint(100, 2000))
    assert line.members("log") >= set(SERVERS) - {liar}


def test_slow_programs__are_kept_until_they_are_not_told_any_more() -> None:
    line = group_of(*SERVERS)
    slow = SlowProgram("python[7]", "waited-for", 0)
    line.actions.clear()
    line.do(ev.GroupTroubled("h2", "log", (slow,), ()))
    line.do(ev.GroupTroubled("h2", "log", (slow,), ()))
    assert len(line.of(act.GroupsChanged)) == 1
    trouble = line.manager.core.members.trouble["log"]
    assert list(trouble.slow().values()) == [(slow,)]
    line.do(ev.GroupTroubled("h2", "log", (), ()))
    assert not trouble.slow()
    line.do(ev.GroupTroubled("h2", "log", (slow,), ()))
    line.leave("log", "h2")
    assert not trouble.slow()


def test_programs_that_were_put_out__are_shown_for_a_minute_though_their_server_has_left() -> None:
    line = group_of(*SERVERS)
    line.do(ev.GroupTroubled("h2", "log", (SlowProgram("cat[9]", "put-out", 12),), ()))
    line.leave("log", "h2")
    trouble = line.manager.core.members.trouble["log"]
    line.wait_alive(58_000)
    assert [one.program for rows in trouble.slow().values() for one in rows] == ["cat[9]"]
    line.wait_alive(4_000)
    assert not trouble.slow()
    for number in range(100):
        line.do(ev.GroupTroubled("h3", "log", (SlowProgram(f"cat[{number}]", "put-out", 1),), ()))
    assert len(trouble.put_out_programs) == 16
