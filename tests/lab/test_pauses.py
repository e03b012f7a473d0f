"""Programs of a lab that are stopped and continued; longer pauses: rostrum lab run pauses --seconds 10 --seconds 60."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from rostrum.client import Agent
from rostrum.lab import links
from rostrum.lab.experiments import pauses
from rostrum.lab.lab import Lab

from tests.lab.objects import check, data_of, forget

pytestmark = pytest.mark.lab

TCP_RTO_MAX_MS = 44
CUT_S = 3.5  # of a bound on silence of 5 s


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name="t-pauses", changes=pauses.QUICK, seed=1, manager_options=pauses.OPTIONS) as made:
        yield made


@pytest.mark.parametrize("phase", pauses.PHASES)
@pytest.mark.parametrize("program", pauses.PROGRAMS)
def test_program_stopped_for_a_second__nothing_fails_and_nothing_is_granted_twice(
    lab: Lab, program: str, phase: str, seed: int
) -> None:
    assert pauses.trial(lab, program, phase, 1, seed)["wrong"] == []


@pytest.mark.parametrize("program", pauses.PROGRAMS)
def test_program_stopped_for_longer_than_a_lease__nothing_fails_and_nothing_is_granted_twice(
    lab: Lab, program: str, seed: int
) -> None:
    assert pauses.trial(lab, program, "high-rate", 4, seed)["wrong"] == []


def test_receiver_stopped_for_longer_than_its_bound__fails_alone(lab: Lab, seed: int) -> None:
    assert pauses.trial(lab, "receiver", "high-rate", 7, seed)["wrong"] == []


def takes_bound_of_pauses() -> bool:
    with socket.socket() as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)
        except OSError:
            return False
    return True


@pytest.mark.skipif(not takes_bound_of_pauses(), reason="TCP's pauses have a bound since Linux 6.15")
def test_packet_link_of_a_rack_cut_for_less_than_the_bound__nothing_fails(lab: Lab, seed: int) -> None:
    """Control connections are heard again soon after it works: TCP's pauses do not grow with the cut."""
    data = data_of(pauses.SIZE, seed)
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add(1, data)
        handle = agent.send(1, pauses.FAR, wait=pauses.RESULT_S)
        for event in handle.events(timeout=pauses.RESULT_S):
            if event.kind == "phase" and event.subject in ("high-rate", "done"):
                break
        links.cut(lab, "core", "tor3")
        mend = threading.Timer(CUT_S, links.up, (lab, "core", "tor3"))
        mend.start()
        result = handle.wait(pauses.RESULT_S)
        mend.join()
    check(lab, result, list(pauses.FAR), data)
    forget(lab, ["h1", *pauses.FAR], 1)
