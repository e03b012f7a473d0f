"""Group messages whose packets are changed, doubled and late on their way: no wrong byte reaches a program, plain
groups say what is lost, ricochet mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rostrum.client import Agent
from rostrum.lab.lab import Lab

from tests.lab.metrics import scrape
from tests.lab.test_group_messages import take

pytestmark = pytest.mark.lab

COUNT = 1000  # 5.5 MB: all of it may wait for a program that reads only when all was sent (8 MiB)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A tenth of what comes to an agent by multicast is spoilt."""
    options = ["--loss", "corrupt:0.1"]
    with Lab.start("hybrid-4x2", name="t-corruption", switch="openflow", agent_options=options) as lab:
        yield lab


def corrupt(lab: Lab, server: str) -> float:
    return scrape(lab, server)["rostrum_agent_group_datagrams_refused_total", 'reason="corrupt"']


@pytest.mark.parametrize("protocol", ["plain", "ricochet"])
def test_no_wrong_byte_is_delivered(lab: Lab, protocol: str) -> None:
    # Some share a packet, some have one of their own, some come in two.
    messages = [b"%d:" % number + bytes([number % 251]) * (1000 + number % 7 * 1500) for number in range(COUNT)]
    known = set(messages)
    before = corrupt(lab, "h3")
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        three.join("spoilt-" + protocol, protocol=protocol, order="fifo") as receiver,
        one.publisher("spoilt-" + protocol) as out,
    ):
        assert out.publish_all(messages) == COUNT
        got, lost = take(receiver, COUNT, 20.0 if protocol == "ricochet" else 5.0)
    assert corrupt(lab, "h3") > before
    assert all(message in known for message in got)
    numbers = [int(message.split(b":", 1)[0]) for message in got]
    assert numbers == sorted(set(numbers))
    if protocol == "ricochet":
        assert (len(got), lost) == (COUNT, 0)
    else:
        assert lost > 0
        assert len(got) < COUNT
