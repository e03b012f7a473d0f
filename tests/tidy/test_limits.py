"""Limits that two programs have to keep alike are the same in both."""

from __future__ import annotations

import re

from rostrum.controller.core.groups import values as groups

from tests.tidy.tree import ROOT


def test_the_manager_refuses_the_groups_that_agents_cannot_run() -> None:
    table = (ROOT / "agent" / "core" / "ricochet" / "ricochet.c").read_text()
    found = dict(re.findall(r'\{"(r|c|stagger)", \w+, (\w+)', table))
    assert re.search(rf"#define RS_RICOCHET_R_MAX {groups.R_MAX}u", (ROOT / "agent/core/ricochet/wire.h").read_text())
    assert found == {"r": "R_MOST", "c": str(groups.C_MAX), "stagger": str(groups.STAGGER_MAX)}


def test_group_options_up_to_the_limits_are_right_and_beyond_are_refused_with_words() -> None:
    assert not groups.wrong_options(groups.options("ricochet", r=32, c=64, stagger=64))
    for r, c, stagger in ((33, 5, 1), (8, 65, 1), (255, 255, 1), (8, 5, 65), (0, 5, 1), (8, 0, 1)):
        words = groups.wrong_options(groups.options("ricochet", r=r, c=c, stagger=stagger))
        assert "out of range" in words and "1 to" in words
