"""Relays between sites with `security: required`, while their manager is away: what is under way goes on by itself when
it is back, and what cannot is said. Real agents, a real manager, an emulated wide area.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import RostrumError
from rostrum.lab.experiments.sites import MEMORY, Area, Sites
from rostrum.lab.namespace import PrivateNamespace

from tests.lab.objects import data_of, until

pytestmark = pytest.mark.lab

SIZE = 12_000_000
RECEIVERS = ["s1h1", "s1h2", "s1h3"]
BOUND_S = 90.0


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with (
        tempfile.TemporaryDirectory(prefix="rostrum-away-", dir=MEMORY if MEMORY.is_dir() else None) as name,
        PrivateNamespace(switches=False) as namespace,
    ):
        made = Sites(namespace, Path(name), Area((10.0,), 3, 20e6, 0.0, secure=True), 1)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def check(sites: Sites, number: int, data: bytes) -> None:
    for name in RECEIVERS:
        with sites.agents[name].read(number, wait=BOUND_S) as copy:
            assert copy.bytes() == data, name
        sites.agents[name].delete(number)


def go_away(sites: Sites) -> None:
    """The manager, and all know it."""
    sites.kill("manager")
    until(lambda: all(word(sites, name) == "0" for name in ["h0", *RECEIVERS]), "agents to miss their manager")


def come_back(sites: Sites) -> None:
    sites.start_manager()
    until(lambda: all(word(sites, name) == "1" for name in ["h0", *RECEIVERS]), "agents to have a manager")


def word(sites: Sites, name: str) -> str:
    """Whether an agent has a manager, by its log."""
    return sites.log(name).rpartition("manager up=")[2][:1]


def crossed(sites: Sites) -> int:
    """Bytes that came out of the second site's link so far."""
    return sites.carried()["s1"][0]


def test_a_manager_that_goes_while_a_relay_works_and_comes_back(sites: Sites) -> None:
    home, data, before = sites.agents["h0"], data_of(SIZE, 1), crossed(sites)
    home.add(1, data)
    handle = home.send(1, RECEIVERS)
    until(lambda: crossed(sites) - before > SIZE // 8, "the object on its way")
    sites.kill("manager")
    until(lambda: crossed(sites) - before > SIZE, "the object over the wide area")
    sites.start_manager()
    result = handle.wait(BOUND_S)
    assert [(one.name, one.state) for one in result.receivers] == [(name, "done") for name in RECEIVERS]
    check(sites, 1, data)


def test_what_is_asked_for_while_the_manager_is_away_goes_when_it_is_back(sites: Sites) -> None:
    home, data = sites.agents["h0"], data_of(SIZE // 8, 2)
    home.add(2, data)
    go_away(sites)
    handle = home.send(2, RECEIVERS)
    sites.start_manager()
    result = handle.wait(BOUND_S)
    assert {one.state for one in result.receivers} == {"done"}, result.cause
    check(sites, 2, data)


def test_who_waits_for_a_manager_in_vain_is_told_so(sites: Sites) -> None:
    home = sites.agents["h0"]
    home.add(3, data_of(SIZE // 8, 3))
    go_away(sites)
    try:
        with pytest.raises(RostrumError, match="manager") as failed:
            home.send(3, RECEIVERS, wait=2).wait(BOUND_S)
        assert "unreachable" in str(failed.value), failed.value
    finally:
        come_back(sites)


MUTE = """
from rostrum.controller.app import main
from rostrum.controller.northbound.thrift.sites import Sites

answer = Sites.whose
Sites.whose = lambda self, receiver, args: None if receiver == "s1h2" else answer(self, receiver, args)
main()
"""


def test_a_receiver_that_nobody_tells_whose_the_object_is_says_so(sites: Sites) -> None:
    """It waits for ten silence bounds; the others have theirs meanwhile."""
    home, data, manager = sites.agents["h0"], data_of(SIZE // 8, 4), sites.manager_argv
    go_away(sites)
    sites.agents.pop("s1h2").close()
    sites.kill("s1h2")
    sites.place("s1h2", "log").write_text("")
    sites.manager_argv = [manager[0], "-c", MUTE, *manager[3:]]
    try:
        sites.start_agent("s1h2", "10.0.1.2", "--silence-bound", "1s")
        come_back(sites)
        home.add(4, data)
        result = home.send(4, RECEIVERS).wait(BOUND_S)
        states = {one.name: one.state for one in result.receivers}
        assert states == {"s1h1": "done", "s1h2": "failed", "s1h3": "done"}
        (cause,) = [one.cause for one in result.receivers if one.state == "failed"]
        assert "whole, but for 10 s nobody could say whose it is: the manager did not answer" in cause
    finally:
        sites.manager_argv = manager
