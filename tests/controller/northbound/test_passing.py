"""Relays do not speak for others: whose object they send, and who has it, origins and receivers tell the manager."""

from __future__ import annotations

from typing import Any

import pytest
from rostrum.controller.core.requests.relay_orders import RelayPart
from rostrum.controller.northbound.thrift.codec import idl
from rostrum.controller.northbound.thrift.passing import (
    AWAY_S,
    KEPT_S,
    NAMES_MAX,
    OWN_S,
    PARTS_MAX,
    SAID_MOST,
    WAIT_S,
    Passing,
)

APP, OURS, OTHERS = b"0123456789abcdef", "sha256-tree:aa", "sha256-tree:bb"


class Stage:
    """h0 sends by relay r1 to a and b, r1 by relay r2 to c. `told`: what senders hear, their rows by server."""

    def __init__(self) -> None:
        self.holds = {("h0", 7): OURS}
        self.told: list[tuple[str, Any]] = []
        self.away: set[str] = set()
        self.remembered: dict[str, RelayPart] = {}
        self.passing = self.manager()
        self.passing.ordered("leg", "r1", "h0", APP, 7, ["a", "b", "r2", "c"])
        self.passing.ordered("next", "r2", "r1", APP, 7, ["c"])

    def manager(self) -> Passing:
        return Passing(
            lambda server, app_id, data_id: self.holds.get((server, data_id), ""),
            lambda server, report: self.told.append((server, report)),
            lambda server: server not in self.away,
            lambda part, cause: idl.RelayReport(part.leg_id, part.sender, part.relay, "failed", cause, 0, []),
        )

    def remember(self) -> None:
        parts, gone = self.passing.notes()
        self.remembered |= {one.leg_id: one for one in parts}
        for leg_id in gone:
            self.remembered.pop(leg_id, None)

    def restart(self, now: float) -> None:
        """With what was remembered; agents tell again what they hold."""
        self.remember()
        self.passing = self.manager()
        self.passing.restored(self.remembered.values(), now)

    def has(self, server: str, digest: str) -> None:
        self.holds[server, 7] = digest
        self.passing.held(server, APP, 7, digest)

    def says(self, state: str, now: float = 0.0, leg: str = "leg", relay: str = "r1", sender: str = "h0",
             **rows: str) -> None:  # fmt: skip
        made = [idl.ReceiverReport(name, word, "", 0, 0, 0, 0) for name, word in rows.items()]
        self.passing.reported(idl.RelayReport(leg, sender, relay, state, "", 5, made), now)

    def heard(self) -> tuple[str, str, dict[str, str]]:
        server, report = self.told[-1]
        return server, report.state, {row.server: row.state for row in report.receivers}


def test_an_object_is_its_origins_however_many_relays_there_are() -> None:
    stage = Stage()
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)
    assert stage.passing.origin("r2", "c", APP, 7) == ("h0", OURS)
    assert stage.passing.origin("h0", "r1", APP, 7) == ("h0", OURS)  # its own
    assert stage.passing.origin("r2", "a", APP, 7) == ("r2", "")  # it was not told to pass it on to that one
    assert stage.passing.origin("r1", "a", APP, 8) == ("r1", "")


def test_the_digest_is_told_when_the_origin_has_told_it_and_stays() -> None:
    stage = Stage()
    stage.holds.clear()
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", "")
    stage.has("h0", OURS)
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)
    stage.holds.clear()  # deleted
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)


def test_who_is_done_is_known_when_relay_and_receiver_have_said_it() -> None:
    stage = Stage()
    stage.says("passing", a="receiving", b="done")
    assert stage.heard() == ("h0", "passing", {"a": "receiving", "b": "receiving"})
    stage.has("b", OURS)
    assert stage.heard() == ("h0", "passing", {"a": "receiving", "b": "done"})
    stage.says("done", a="done", b="done")
    assert stage.heard() == ("h0", "passing", {"a": "receiving", "b": "done"})
    stage.has("a", OURS)
    assert stage.heard() == ("h0", "done", {"a": "done", "b": "done"})
    stage.holds.clear()  # programs there have read and deleted it
    stage.says("done", 30.0, a="done", b="done")
    stage.passing.due(60.0)
    assert stage.heard() == ("h0", "done", {"a": "done", "b": "done"})


@pytest.mark.parametrize("digest", ["", OTHERS])
def test_a_relay_that_says_done_of_others_fails_and_those_others_are_not_done(digest: str) -> None:
    stage = Stage()
    stage.has("a", OURS)
    if digest:
        stage.has("b", digest)
    stage.says("done", 100.0, a="done", b="done")
    stage.says("done", 101.0, a="done", b="done")
    stage.passing.due(100.0 + WAIT_S - 0.1)
    assert stage.heard() == ("h0", "passing", {"a": "done", "b": "receiving"})
    known = len(stage.told)
    for second in range(10):
        stage.passing.due(100.0 + WAIT_S + second)
    assert stage.heard() == ("h0", "failed", {"a": "done", "b": "receiving"})
    assert stage.told[-1][1].cause == "r1 says that b have it whole, and they do not say so"
    assert len(stage.told) == known + SAID_MOST


def test_a_relay_reports_of_its_own_part_to_whom_it_has_it_from() -> None:
    stage = Stage()
    stage.says("done", relay="r2", a="done")
    stage.says("done", sender="r2", a="done")
    assert stage.told == []
    stage.says("done", leg="nobody was told", a="done")
    assert stage.told == []


def test_what_is_remembered_has_a_bound() -> None:
    stage = Stage()
    for number in range(PARTS_MAX):
        stage.passing.ordered(f"leg {number}", "r1", "h0", APP, 8 + number % 3, ["a"])
    assert stage.passing.origin("r1", "a", APP, 7) == ("r1", "")
    assert stage.passing.origin("r1", "a", APP, 8)[0] == "h0"


def test_who_asks_for_more_than_is_remembered_costs_nobody_else_what_is() -> None:
    stage = Stage()
    for number in range(PARTS_MAX):
        stage.passing.ordered(f"flood {number}", "r9", "h9", APP, number, ["a"])
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)
    assert stage.passing.origin("r2", "c", APP, 7) == ("h0", OURS)
    assert stage.passing.origin("r9", "a", APP, PARTS_MAX - 1)[0] == "h9"
    stage.passing.ordered("more", "r1", "h0", APP, 8, ["b"])
    assert stage.passing.origin("r1", "b", APP, 8)[0] == "h0"


def test_what_is_over_is_forgotten_and_its_relay_may_send_an_object_of_its_own_by_that_id() -> None:
    stage = Stage()
    stage.passing.due(1000.0)
    stage.says("passing", 1000.0, a="receiving")
    stage.passing.due(1000.0 + KEPT_S)
    assert stage.passing.origin("r1", "a", APP, 7)[0] == "h0"
    stage.passing.due(1000.1 + KEPT_S)
    assert stage.passing.origin("r1", "a", APP, 7) == ("r1", "")


def test_a_relay_that_lies_after_the_managers_restart_is_not_believed() -> None:
    stage = Stage()
    stage.says("passing", 0.0, a="receiving", b="receiving")
    stage.restart(100.0)
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)
    assert stage.passing.origin("r2", "c", APP, 7) == ("h0", OURS)
    stage.says("done", 101.0, a="done", b="done")
    assert stage.heard() == ("h0", "passing", {"a": "receiving", "b": "receiving"})
    stage.passing.due(101.0 + WAIT_S)
    assert stage.heard() == ("h0", "failed", {"a": "receiving", "b": "receiving"})


def test_what_receivers_and_the_origin_said_is_remembered_too() -> None:
    stage = Stage()
    stage.has("a", OURS)
    stage.remember()
    stage.holds.clear()  # the origin is away, and a program at a has read it and deleted it
    stage.restart(100.0)
    assert stage.passing.origin("r1", "b", APP, 7) == ("h0", OURS)
    stage.says("done", 101.0, a="done", b="receiving")
    assert stage.heard() == ("h0", "done", {"a": "done", "b": "receiving"})


def test_an_honest_relay_is_not_blamed_while_agents_come_back() -> None:
    stage = Stage()
    stage.restart(100.0)
    stage.away.add("b")
    stage.holds.clear()
    stage.says("done", 100.0, a="done", b="done")
    stage.has("h0", OURS)
    stage.has("a", OURS)
    stage.passing.due(100.0 + WAIT_S)
    assert stage.heard() == ("h0", "passing", {"a": "done", "b": "receiving"})
    stage.away.clear()
    stage.has("b", OURS)
    assert stage.heard() == ("h0", "done", {"a": "done", "b": "done"})


def test_who_stays_away_is_not_waited_for_for_ever() -> None:
    stage = Stage()
    stage.away.add("b")
    stage.says("done", 100.0, b="done")
    stage.passing.due(100.0 + AWAY_S)
    assert stage.heard() == ("h0", "failed", {"b": "receiving"})


def test_what_is_over_is_not_remembered() -> None:
    stage = Stage()
    stage.passing.due(0.0)
    stage.remember()
    assert set(stage.remembered) == {"leg", "next"}
    stage.passing.due(KEPT_S + 0.1)
    stage.remember()
    assert stage.remembered == {} and stage.passing.notes() == ((), ())


def test_nobodys_order_holds_up_what_a_server_sends_of_its_own() -> None:
    """Whoever knows an application's ids can ask for a split in which another server is the relay."""
    stage = Stage()
    stage.passing.ordered("trap", "r3", "h9", APP, 7, ["a"])
    stage.has("r3", OTHERS)  # its own
    assert stage.passing.origin("r3", "a", APP, 7) == ("h9", "")
    stage.passing.due(50.0)
    stage.passing.due(50.0 + OWN_S)
    assert stage.passing.origin("r3", "a", APP, 7) == ("r3", OTHERS)
    server, report = stage.told[-1]
    assert (server, report.leg_id, report.state) == ("h9", "trap", "failed") and "of its own" in report.cause
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)  # others' orders stay
    assert stage.passing.busy("h9", APP, 7, ["a"], {"r3": OTHERS, "h0": OURS}) == ["r3", "h0"]  # nor asked again


def test_who_has_the_same_object_already_may_pass_it_on() -> None:
    stage = Stage()
    assert stage.passing.busy("h0", APP, 7, ["a"], {"h0": OURS, "r1": OURS, "r2": OTHERS}) == ["r2"]
    assert stage.passing.busy("r1", APP, 7, ["c"], {"h0": OURS, "r2": OURS, "b": OTHERS}) == ["b"]  # for h0
    stage.has("r1", OURS)
    for now in (0.0, OWN_S, 2 * OWN_S):
        stage.passing.due(now)
    assert stage.told == [] and stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)


def test_receivers_have_a_bound_too() -> None:
    stage = Stage()
    names = [f"s{number}" for number in range(16_384)]
    for number in range(NAMES_MAX // len(names) + 1):
        stage.passing.ordered(f"flood {number}", "r9", "h9", APP, number, names)
    assert stage.passing.origin("r9", names[0], APP, 0) == ("r9", "")
    assert stage.passing.origin("r9", names[0], APP, 2)[0] == "h9"
    assert stage.passing.origin("r1", "a", APP, 7) == ("h0", OURS)


@pytest.mark.parametrize("trap", ["", OTHERS])
def test_nobodys_order_holds_up_what_a_relay_passes_on_for_another(trap: str) -> None:
    """h9 has that relay, too, pass on an object by that id, which it may have or not."""
    for first in (True, False):
        stage = Stage()
        if first:
            stage.passing = stage.manager()
        stage.holds["h9", 7] = trap
        stage.passing.ordered("trap", "r1", "h9", APP, 7, ["a", "b", "c"])
        if first:
            stage.passing.ordered("leg", "r1", "h0", APP, 7, ["a", "b", "r2", "c"])
        assert stage.passing.origin("r1", "a", APP, 7, OURS) == ("h0", OURS)
        assert stage.passing.origin("r1", "r2", APP, 7) == ("h0", OURS)
        assert stage.passing.origin("r1", "a", APP, 7, "sha256-tree:cc")[1] in ("", OURS, OTHERS)
        if not first:
            assert stage.passing.origin("r2", "c", APP, 7) == ("h0", OURS)


def test_a_sender_that_comes_back_hears_what_was_said_meanwhile() -> None:
    stage = Stage()
    stage.has("a", OURS)
    stage.says("done", a="done")
    stage.told.clear()
    stage.passing.back("h1")
    assert stage.told == []
    stage.passing.back("h0")
    assert stage.heard() == ("h0", "done", {"a": "done"})
