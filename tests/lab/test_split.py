"""The scheduler `split` with real agents: no circuit reaches all racks, the object gets to all of them over several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rostrum.client import Agent, Event
from rostrum.lab.lab import Lab

from tests.lab.objects import check, data_of, forget, released, send

pytestmark = pytest.mark.lab

FAR = ["h3", "h4", "h5", "h6", "h7", "h8"]  # three racks; light is split in two at most
EVERYONE = ["h1", "h2", *FAR]
RACK = {name: (number - 1) // 2 for number, name in enumerate(EVERYONE, 1)}
ONE_SPLITTER = {"s1": {"fanout": 2, "loss_db": 3.5, "input": 5, "outputs": [5, 6]}}
QUANTUM = 4_000_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    changes = {
        "ocs.ocs.splitters": ONE_SPLITTER,
        "ocs.ocs.reconfiguration_ms": 20,
        "emulation.reconfiguration": {"distribution": "fixed", "mean_ms": 20, "spread_ms": 0},
        "emulation.ringing.duration_ms": 2,
    }
    options = ("--scheduler", "split", "--session-bytes", str(QUANTUM), "--circuit-wait", "20s")
    with Lab.start("hybrid-4x2", name="t-split", changes=changes, seed=1, manager_options=options) as lab:
        yield lab


def parts(lab: Lab, response_id: str) -> list[dict[str, Any]]:
    """The paths of the transfer, with their receivers."""
    released(lab, response_id)
    sessions: list[dict[str, Any]] = lab.rest.get(f"/v1/transfers/{response_id}")["sessions"]
    return sessions


def test_object_reaches_three_racks_over_two_circuits(lab: Lab, seed: int) -> None:
    data = data_of(3_000_000, seed)
    result = send(lab, "h1", FAR, data)
    check(lab, result, FAR, data)
    assert (result.path, result.sessions) == ("circuit", 2)
    first, second = parts(lab, result.response_id)
    assert first["kind"] == second["kind"] == "circuit"
    assert "split: 4 of 6 receivers now" in first["reason"]
    assert sorted(first["receivers"] + second["receivers"]) == FAR
    assert {RACK[name] for name in first["receivers"]}.isdisjoint(RACK[name] for name in second["receivers"])
    transfer = lab.rest.get(f"/v1/transfers/{result.response_id}")
    assert transfer["phase"] == "done"
    assert {row["server"]: row["state"] for row in transfer["receivers"]} == dict.fromkeys(FAR, "done")
    forget(lab, EVERYONE, result.data_id)


def test_parts_and_quanta(lab: Lab, seed: int) -> None:
    """Quanta of 4 MB: the parts that have come equally far are asked for, and split, together."""
    data = data_of(10_000_001, seed + 1)
    with Agent(lab.agent_socket("h2")) as agent:
        agent.add(99, data)
        events: list[Event] = []
        result = agent.send(99, FAR, on_event=events.append).wait(60)
    told = [event for event in events if event.kind == "progress" or event.subject == "accepted"]
    check(lab, result, FAR, data)
    assert result.sessions == 6
    kinds = {path["kind"] for path in parts(lab, result.response_id)}
    assert kinds == {"circuit"}
    fields = [event.text for event in told if event.subject == "accepted"]
    assert sum("to 4 of 6 receivers" in one for one in fields) == 3
    assert sum("to 2 of 6 receivers" in one for one in fields) == 3
    assert [event.bytes for event in told] == sorted(event.bytes for event in told)
    forget(lab, EVERYONE, result.data_id)


def test_who_demands_all_at_once_is_served_otherwise(lab: Lab, seed: int) -> None:
    """RDCM takes one packet tree for all: nothing is split."""
    data = data_of(1_000_000, seed + 2)
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add(100, data)
        result = agent.send(100, FAR, protocol="rdcm").wait(60)
    check(lab, result, FAR, data)
    assert (result.path, result.sessions) == ("packet", 1)
    forget(lab, EVERYONE, result.data_id)
