"""Message groups as people use them: commands with pauses between them, agents and programs restarted in between."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from rostrum.client import Agent, RostrumError
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab

BOUND_S = 60.0
LAB = "t-publish-again"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name=LAB, switch="openflow") as lab:
        yield lab


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def rostrum(*fields: str) -> list[str]:
    return [sys.executable, "-m", "rostrum.client.cli", *fields, "--lab", LAB]


class Subscriber:
    """`rostrum sub` in the background, until `count` messages came."""

    def __init__(self, group: str, server: str, count: int, *options: str) -> None:
        command = rostrum("sub", group, "--server", server, "--count", str(count), "--wait", "120s", *options)
        self.program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.program.stderr and f"is in {group}" in self.program.stderr.readline()

    def messages(self) -> tuple[list[str], str]:
        out, errors = self.program.communicate(timeout=BOUND_S)
        return out.split(), errors


def publish(group: str, server: str, *messages: str) -> None:
    subprocess.run(rostrum("pub", group, *messages, "--server", server), check=True, timeout=BOUND_S)


def knows(lab: Lab, server: str, group: str) -> bool:
    try:
        with Agent(lab.agent_socket(server)) as agent:
            return any(row.name == group for row in agent.status().groups)
    except RostrumError:
        return False


def forget(lab: Lab, server: str, group: str) -> None:
    """The agent lingers a while after the last program, then has nothing to do with the group any more."""
    until(lambda: not knows(lab, server, group), f"{server} has forgotten {group}")
    until(lambda: server not in lab.rest.call("GET", f"/v1/groups/{group}")[1]["senders"], f"{server} has left")


def restart(lab: Lab, server: str) -> None:
    lab.kill(server)
    lab.start_program(server)

    def ready() -> bool:
        try:
            with Agent(lab.agent_socket(server)) as agent:
                return bool(agent.status().manager_up)
        except RostrumError:
            return False

    until(ready, f"the agent of {server} is back")


def test_pub_again_after_the_agent_forgot_the_group(lab: Lab) -> None:
    options = ["--protocol", "ricochet", "--order", "fifo"]
    subscribers = [Subscriber("again", server, 3, *options) for server in ("h3", "h5")]
    for message in ("one", "two", "three"):
        publish("again", "h1", message)
        forget(lab, "h1", "again")
    for one in subscribers:
        assert one.messages() == (["one", "two", "three"], "")


def test_pub_again_to_a_plain_group_comes_in_order(lab: Lab) -> None:
    """With default options nothing is repaired; the way that was there is there still."""
    one = Subscriber("plainly", "h3", 3, "--order", "fifo", "--protocol", "plain")
    sent: list[str] = []
    while one.program.poll() is None and len(sent) < 8:
        sent.append(str(len(sent)))
        publish("plainly", "h1", sent[-1])
        forget(lab, "h1", "plainly")
    assert one.messages() == (["0", "1", "2"], "")


def test_pub_again_from_an_agent_that_was_started_anew(lab: Lab) -> None:
    one = Subscriber("again", "h3", 3, "--protocol", "ricochet", "--order", "fifo")
    publish("again", "h1", "one")
    restart(lab, "h1")
    publish("again", "h1", "two")
    restart(lab, "h1")
    publish("again", "h1", "three")
    messages, told = one.messages()
    assert messages == ["one", "two", "three"]
    assert "lost" in told or not told  # a restart is told as such


def test_pub_again_to_a_subscriber_that_was_started_anew(lab: Lab) -> None:
    kept = Subscriber("come-and-go", "h5", 2, "--protocol", "ricochet", "--order", "fifo")
    first = Subscriber("come-and-go", "h3", 1)
    publish("come-and-go", "h1", "one")
    assert first.messages() == (["one"], "")
    forget(lab, "h1", "come-and-go")
    second = Subscriber("come-and-go", "h3", 1)
    publish("come-and-go", "h1", "two")
    assert second.messages() == (["two"], "")
    assert kept.messages() == (["one", "two"], "")
