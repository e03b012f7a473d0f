"""Who carries control messages to others, the first of a rack, is dead, unreachable or stopped: others are whole."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from rostrum.client import Agent, SendResult
from rostrum.lab.experiments import many
from rostrum.lab.lab import Lab
from rostrum.topologies.fabrics import Options, fabric
from rostrum.topologies.families import vl2

from tests.lab.firewall import TCP, UDP, firewall

pytestmark = pytest.mark.lab

RATE = 50_000_000
SIZE = 6_000_000
BOUND_S = 40.0  # silence bound of 2 s, and some of these hosts' own


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = tmp_path_factory.mktemp("carriers") / "racks.yaml"
    file.write_text(fabric(vl2(4, many.RACKS, 3, RATE), Options(name="racks")))
    agents = ("--direct-receivers", "4", "--silence-bound", "2s")
    with Lab.start(file, name="t-carriers", or_another=True, agent_options=agents) as lab:
        yield lab


@contextmanager
def killed(lab: Lab, server: str) -> Iterator[None]:
    lab.kill(server)
    try:
        yield
    finally:
        lab.start_program(server)


@contextmanager
def stopped(lab: Lab, server: str) -> Iterator[None]:
    lab.signal(server, signal.SIGSTOP)
    try:
        yield
    finally:
        lab.signal(server, signal.SIGCONT)


def send(lab: Lab, number: int, meanwhile: AbstractContextManager[None] | None = None) -> SendResult:
    """To all but the sender; `meanwhile` is entered when they have begun to come."""
    sender, *others = (one for rack in many._by_rack(lab) for one in rack)
    data = random.Random(number).randbytes(SIZE)
    with ExitStack() as stack:
        agent = stack.enter_context(Agent(lab.agent_socket(sender)))
        agent.add(number, data)
        handle = agent.send(number, others, protocol="republic", wait=BOUND_S)
        if meanwhile:
            for event in handle.events(timeout=BOUND_S):
                if event.kind == "phase" and event.subject in ("high-rate", "done"):
                    break
            stack.enter_context(meanwhile)
        result = handle.wait(BOUND_S)
        agent.delete(number)
    for one in result.receivers:
        if one.state == "done":
            with Agent(lab.agent_socket(one.name)) as there, there.read(number, wait=10) as copy:
                assert copy.bytes() == data, one.name
    return result


def carriers(lab: Lab) -> list[str]:
    return [rack[0] for rack in many._by_rack(lab)][1:]


def failed(result: SendResult) -> dict[str, str]:
    return {one.name: one.cause for one in result.receivers if one.state != "done"}


def test_complete__with_all_carriers_alive(lab: Lab) -> None:
    assert not failed(send(lab, 1))


def test_dead_from_the_start__others_are_complete(lab: Lab) -> None:
    dead = carriers(lab)[0]
    with killed(lab, dead):
        assert set(failed(send(lab, 2))) == {dead}


def test_no_tcp_comes_to_it__others_are_complete(lab: Lab) -> None:
    deaf = carriers(lab)[1]
    with firewall(lab, deaf, TCP):
        assert set(failed(send(lab, 3))) <= {deaf}


def test_no_udp_comes_to_it__all_are_complete(lab: Lab) -> None:
    """Its own object comes by its control channel."""
    with firewall(lab, carriers(lab)[2], UDP):
        assert not failed(send(lab, 4))


def test_stopped_in_the_middle__others_are_complete(lab: Lab) -> None:
    still = carriers(lab)[3]
    assert set(failed(send(lab, 5, stopped(lab, still)))) <= {still}


def test_no_tcp_comes_to_it_from_the_middle_on__others_are_complete(lab: Lab) -> None:
    deaf = carriers(lab)[4]
    assert set(failed(send(lab, 6, firewall(lab, deaf, TCP)))) <= {deaf}
