"""A manager that grants paths to some of the receivers only: the agent asks for the others, all get the object."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent_e2e.agents import RostrumError, World, content
from tests.agent_e2e.fake_manager import Answer, on_loop
from tests.agent_e2e.network import Network, network

ALL = ["h2", "h3", "h4", "h5"]


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(5) as it:
        yield it


def requests(lab: World) -> list[dict[str, Any]]:
    return [call.args["request"] for call in lab.manager.heard("request")]


def test_receivers_left_out_are_asked_for_and_served(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(serve=3, reason="split: 3 of 4 receivers now, the others later")
    lab.start_all()
    data = content(3_000_000, 21)
    sender = lab.app("h1")
    sender.add(1, data)
    result, events = sender.finish_send(sender.start_send(1, ALL, events=True, deadline_ms=60_000))
    assert result.ok, result
    assert [receiver.digest_ok for receiver in result.receivers] == [True] * 4
    assert result.sessions == 2
    for name in ALL:
        assert lab.app(name).read(1) == data
    first, second = requests(lab)
    assert first["splits"] and second["splits"]
    assert (first["receivers"], second["receivers"]) == (ALL, ["h5"])
    assert (first["remaining_size"], second["remaining_size"]) == (3_000_000, 3_000_000)
    assert first["deadline_ms"] == 60_000 >= second["deadline_ms"] > 0
    accepted = [event.text for event in events if event.kind == "phase" and event.subject == "accepted"]
    assert "to 3 of 4 receivers" in accepted[0] and "to 1 of 4 receivers" in accepted[1]
    told = [event.bytes for event in events if event.kind in ("progress", "phase")]
    assert told == sorted(told) and told[-1] == 3_000_000  # progress goes forwards, over all parts
    lab.manager.wait_for(lambda calls: sum(c.name == "release" for c in calls) == 2, "release of two paths")
    assert not lab.manager.paths
    last = lab.manager.heard("report")[-1].args["report"]
    assert [receiver["state"] for receiver in last["receivers"]] == ["done"] * 4


def test_parts_and_quanta_with_losses(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(serve=2, accept_bytes=1_000_000)
    lab.start("h1")
    for name in ALL:
        lab.start(name, "--loss", "uniform:0.03:seed=5")
    data = content(2_500_000, 22)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ALL)
    assert result.ok, result
    for name in ALL:
        assert lab.app(name).read(1) == data
    asked = [(request["receivers"], request["remaining_size"]) for request in requests(lab)]
    assert asked[0] == (ALL, 2_500_000) and asked[1] == (["h4", "h5"], 2_500_000)
    assert asked[2][0] == ALL and asked[2][1] < 2_500_000  # equally far: asked for together again
    assert result.sessions == len(asked) == 6


def test_part_denied_fails_alone(lab: World) -> None:
    lab.manager.answer = lambda request: (
        Answer(serve=2) if len(request["receivers"]) == 4 else Answer(deny="tor3 has no port on ocs")
    )
    lab.start_all()
    data = content(1_000_000, 23)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ALL)
    assert not result.ok
    assert [receiver.state for receiver in result.receivers] == ["done", "done", "failed", "failed"]
    assert "tor3 has no port on ocs" in result.receivers[2].cause
    assert lab.app("h3").read(1) == data


def test_status_and_live_paths_tell_the_part_under_way(lab: World) -> None:
    served = threading.Event()

    def answer(request: dict[str, Any]) -> Answer:
        if len(request["receivers"]) == 4:
            return Answer(serve=2, rate_bps=20_000_000)
        served.wait(60)
        return Answer()

    lab.manager.answer = answer
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(2_000_000, 24))
    tag = sender.start_send(1, ALL)
    lab.agents["h1"].wait_log("phase=high-rate")
    served.set()
    on_loop(lab.manager, lab.manager.drop_agents)
    lab.manager.wait_for(
        lambda calls: any(c.name == "hello" and c.args["info"]["live_paths"] for c in calls), "hello with a live path"
    )
    hello = next(c for c in lab.manager.heard("hello", "h1") if c.args["info"]["live_paths"])
    assert sorted(hello.args["info"]["live_paths"][0]["receivers"]) == ["h2", "h3"]
    assert sender.finish_send(tag)[0].ok


def test_path_of_strangers_is_refused(lab: World) -> None:
    lab.manager.servers["h9"] = ("10.9.9.9", 7071)
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(1000, 25))

    def strangers(path: Any, request: dict[str, Any], answer: Answer) -> dict[str, Any]:
        return whole(path, {**request, "receivers": ["h9"]}, answer)

    whole, lab.manager._granted = lab.manager._granted, strangers  # type: ignore[method-assign]
    try:
        result = sender.send(1, ALL)
        text = result.cause
        assert not result.ok
    except RostrumError as error:
        text = str(error)
    assert "for none of the receivers it was asked for" in text
    lab.manager.wait_for(lambda calls: any(c.name == "release" for c in calls), "release of the path")
