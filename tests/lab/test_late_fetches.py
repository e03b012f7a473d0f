"""Objects that servers get afterwards: the manager knows who holds what, and fetches that come together go together."""

from __future__ import annotations

import threading

import pytest
from rostrum.client import Agent, RostrumError
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

from tests.lab.metrics import scrape
from tests.lab.objects import data_of, until

pytestmark = pytest.mark.lab

HOLDERS, LATE = ("h1", "h3", "h5"), ("h2", "h4", "h6", "h8")
SIZE = 24 << 20


@pytest.fixture(scope="module")
def lab():
    with Lab.start("hybrid-4x2", name="t-late", seed=1) as lab:
        yield lab


def sent_bytes(lab: Lab, server: str) -> int:
    """By its data NIC, on the wire."""
    rows = lab.execute(server, ["cat", "/proc/net/dev"]).splitlines()
    return sum(int(row.partition(":")[2].split()[8]) for row in rows if ":" in row and not row.strip().startswith("lo"))


def metric(lab: Lab, server: str, name: str) -> float:
    return next(value for (found, _), value in scrape(lab, server).items() if found.endswith(name))


def spread(lab: Lab, name: str, data: bytes) -> None:
    """From h1 to the other holders, under a name."""
    with Agent(lab.agent_socket(HOLDERS[0])) as agent:
        agent.add(name, data)
        result = agent.send(name, HOLDERS[1:]).wait(60)
        assert result.ok, result
    until(lambda: holders_of(lab, name) == sorted(HOLDERS), f"{name} at three holders")


def holders_of(lab: Lab, name: str) -> list[str]:
    found = lab.rest.get(f"/v1/objects?name={name}")["objects"]
    return lab.rest.get(f"/v1/objects/{found[0]['id']}")["holders"] if found else []


def fetch_all(lab: Lab, name: str, data: bytes, servers: tuple[str, ...]) -> None:
    """At once."""
    failed: list[str] = []

    def fetch(server: str) -> None:
        try:
            with Agent(lab.agent_socket(server)) as agent, agent.fetch(name, wait=60) as got:
                if got.mmap()[:] != data:
                    failed.append(f"{server} got other bytes")
        except RostrumError as error:
            failed.append(f"{server}: {error}")

    threads = [threading.Thread(target=fetch, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_four_that_fetch_at_once_without_naming_anybody_are_sent_it_by_one_multicast(lab: Lab, seed: int) -> None:
    data = data_of(SIZE, seed)
    spread(lab, "model.bin", data)
    before = {name: sent_bytes(lab, name) for name in HOLDERS}
    fetch_all(lab, "model.bin", data, LATE)
    sent = {name: sent_bytes(lab, name) - before[name] for name in HOLDERS}
    # A slow machine may take one of them for late: it is given pieces then, by all.
    assert SIZE < sum(sent.values()) < 2.5 * SIZE, sent
    assert sum(metric(lab, name, "fetch_served_together_total") for name in HOLDERS) >= 1
    until(lambda: len(holders_of(lab, "model.bin")) == 7, "seven holders")


def test_one_that_fetches_later_gets_pieces_from_those_that_have_it_and_a_liar_is_left(lab: Lab, seed: int) -> None:
    data = data_of(SIZE, seed + 1)
    spread(lab, "another.bin", data)
    with Agent(lab.agent_socket("h3")) as agent:
        agent.delete("another.bin")  # the manager may not know it yet
    fetch_all(lab, "another.bin", data, ("h7",))
    assert metric(lab, "h7", "fetched_bytes_total") == SIZE
    until(lambda: holders_of(lab, "another.bin") == ["h1", "h5", "h7"], "three holders")


def test_nobody_has_it_is_said_with_a_reason(lab: Lab) -> None:
    with Agent(lab.agent_socket("h2")) as agent, pytest.raises(RostrumError, match="no agent that is connected holds"):
        agent.fetch("no such thing", wait=20)


def test_a_manager_that_restarts_is_told_again(lab: Lab, seed: int) -> None:
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add("kept.bin", data_of(100_000, seed))
    lab.kill("manager")
    lab.start_program("manager")

    def told_again() -> bool:
        try:
            return holders_of(lab, "kept.bin") == ["h1"]
        except LabError:  # it starts
            return False

    until(told_again, "told again")
