"""SRM of message groups, Ricochet's baseline: what its authors say of it holds (Floyd et al., 1997), so that beating it
says something."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from rostrum.sim.groups import VIA, GroupParams, Groups, MessagesParams
from rostrum.sim.network import LinkParams, Network
from rostrum.sim.ricochet import Setting, run

S, MS = 10**9, 10**6
G = 10**9
WARM_S = 12  # session messages tell distances, then losses begin
DELAY = 2 * MS
NEAR, FAR = LinkParams(G, 1000, 4 << 20), LinkParams(G, DELAY, 4 << 20)
FIXED = {"adapt": 0, "session": 0.5}


@pytest.fixture(autouse=True)
def seed() -> Iterator[int]:
    value = random.SystemRandom().randrange(1 << 31)
    print(f"seed {value}")
    yield value


class Session:
    """One group of hosts in a tree of switches; the first host publishes, and from WARM_S on some link loses."""

    def __init__(self, seed: int) -> None:
        self.net = Network(seed)
        self.groups = Groups(self.net)
        self.seed = seed
        self.hosts: list[int] = []
        self.edges: dict[int, list[int]] = {}  # of each node: links that lead away
        self.ends: dict[int, int] = {}  # of each link

    def link(self, a: int, b: int, params: LinkParams) -> tuple[int, int]:
        there, back = self.net.link(a, b, params)
        self.edges.setdefault(a, []).append(there)
        self.edges.setdefault(b, []).append(back)
        self.ends |= {there: b, back: a}
        return there, back

    def host(self, at: int, params: LinkParams) -> tuple[int, int]:
        node = self.net.server()
        self.groups.use(node, MessagesParams(seed=self.seed + node, receive_bytes=4 << 20, send_bytes=4 << 20))
        self.hosts.append(node)
        return self.link(node, at, params)

    def run(self, lossy: int, options: dict[str, float], loss: float = 0.05, seconds: int = 30) -> dict[str, float]:
        """Figures of what was lost on that link."""
        number = self.groups.group(self.hosts, GroupParams("srm", options=options))
        for node, links in self.edges.items():
            self.net.group(node, number, links, member=node in self.hosts)
        self.groups.publish(self.hosts[0], 200, 1000, 0, (WARM_S + seconds) * S, own_groups=True)
        self.groups.count_between(WARM_S * S, (WARM_S + seconds) * S)
        self.net.run(WARM_S * S)
        before = self.counts()
        self.net.loss(lossy, "bernoulli", loss)
        self.net.run((WARM_S + seconds + 5) * S)
        stats, found = self.groups.stats(), self.groups.recoveries()
        assert stats["expected"] == stats["by_data"] + stats["by_retransmit"], stats
        found = found[found["via"] == VIA.index("retransmit")]
        lost = len(found) / len(set(found["host"].tolist()))
        more = {name: count - before[name] for name, count in self.counts().items()}
        last = max(set(found["host"].tolist()))
        return {
            "lost": lost, "requests": more["requests"] / lost, "repairs": more["repairs"] / lost,
            "known_ms": float(np.mean(found["known_ns"])) / MS,
            "last_ms": float(np.mean(found["known_ns"][found["host"] == last])) / MS,
        }  # fmt: skip

    def counts(self) -> dict[str, int]:
        return {
            name: sum(self.groups.count(host, "srm", name) for host in self.hosts)
            for name in ("requests", "repairs", "sessions", "heard", "duplicates")
        }


def star(seed: int, members: int) -> tuple[Session, int]:
    """All equally far from each other; the publisher's own link loses, so all miss the same."""
    session = Session(seed)
    hub = session.net.switch()
    up, _ = session.host(hub, FAR)
    for _ in range(members - 1):
        session.host(hub, FAR)
    return session, up


def chain(seed: int, members: int) -> tuple[Session, int]:
    """A switch and a host after the other; the link in the middle loses."""
    session = Session(seed)
    switches = [session.net.switch() for _ in range(members)]
    trunks = [session.link(a, b, FAR)[0] for a, b in pairwise(switches)]
    for switch in switches:
        session.host(switch, NEAR)
    return session, trunks[len(trunks) // 2]


def test_session_messages__tell_distances(seed: int) -> None:
    session, _ = star(seed, 6)
    number = session.groups.group(session.hosts, GroupParams("srm", options={"session": 0.5}))
    for node, links in session.edges.items():
        session.net.group(node, number, links, member=node in session.hosts)
    session.groups.publish(session.hosts[0], 100, 1000, 0, 6 * S, own_groups=True)
    session.net.run(6 * S)
    for host in session.hosts:
        assert session.groups.count(host, "srm", "distance_ns") == pytest.approx(2 * DELAY, rel=0.05)


def test_chain__timers_by_distance_alone_give_one_request_and_one_repair(seed: int) -> None:
    """Sec. IV-A: whoever is next to the failed link asks first, whoever is next on its other side answers first, and
    all others hear both in time. The farthest gets the repair within its round trip to the publisher."""
    session, lossy = chain(seed, 10)
    got = session.run(lossy, FIXED | {"c1": 1, "c2": 0, "d1": 1, "d2": 0})
    assert got["lost"] > 100
    assert got["requests"] == pytest.approx(1, abs=0.15), got
    assert got["repairs"] == pytest.approx(1, abs=0.15), got
    assert got["last_ms"] < 1.1 * 2 * 9 * DELAY / MS, got


@pytest.mark.parametrize("width", [5, 20])
def test_star__duplicates_are_as_many_as_the_width_of_timers_lets_through(width: int, seed: int) -> None:
    """Sec. IV-B: 1 + (G - 2) / C2 requests in the mean."""
    members = 40
    session, lossy = star(seed, members)
    got = session.run(lossy, FIXED | {"c1": 2, "c2": width, "d1": 1, "d2": 1})
    expected = 1 + (members - 2) / width
    assert 0.6 * expected < got["requests"] < 1.5 * expected, (got, expected)


@pytest.mark.parametrize("shape", [star, chain])
def test_adaptive_timers__come_to_about_one_request_and_few_round_trips(
    shape: Callable[[int, int], tuple[Session, int]], seed: int
) -> None:
    """Sec. VII: duplicates settle at about one or below, and loss recovery takes a few round trips."""
    session, lossy = shape(seed, 30 if shape is star else 10)
    got = session.run(lossy, {"session": 0.5}, seconds=60)
    assert got["requests"] < 3, got
    assert got["repairs"] < 2.5, got
    round_trip = 2 * 2 * DELAY / MS if shape is star else 2 * 9 * DELAY / MS
    assert got["known_ms"] < 4 * round_trip, got


def test_losses__are_found_by_session_messages_where_publishers_are_silent(seed: int) -> None:
    """What nobody publishes after shows no gap: another member's session message does."""
    session, _ = star(seed, 6)
    hub = next(node for node in session.edges if node not in session.hosts)
    number = session.groups.group(session.hosts, GroupParams("srm", options={"session": 0.5}))
    for node, links in session.edges.items():
        session.net.group(node, number, links, member=node in session.hosts)
    session.groups.publish(session.hosts[0], 100, 1000, 0, 3 * S, own_groups=True)
    session.net.run(29 * S // 10)
    victim = session.net.link_between(hub, session.hosts[-1])
    session.net.up(victim, False)
    session.net.run(3 * S + 10 * MS)
    session.net.up(victim, True)
    session.net.run(30 * S)
    stats = session.groups.stats()
    assert stats["by_retransmit"] > 0
    assert stats["expected"] == stats["by_data"] + stats["by_retransmit"], stats


def test_same_seed__same_run_to_the_bit(seed: int) -> None:
    runs = []
    for _ in range(2):
        session, lossy = star(seed, 8)
        runs.append((session.run(lossy, {"session": 0.5}, seconds=5), session.counts(), session.net.run_stats()))
    assert runs[0] == runs[1]


def test_ricochets_workload__more_session_messages_show_losses_sooner(seed: int) -> None:
    base = Setting(nodes=16, degree=16, protocol="srm", seconds=8.0, seed=seed % 10**6)
    few, many = (run(replace(base, session=share)) for share in (0.1, 1.0))
    assert many["recovered_share"] == 1.0
    assert many["discovery_ms"]["mean"] < 0.5 * few["discovery_ms"]["mean"]
    assert few["bytes_per_message"] < many["bytes_per_message"]
    assert many["since_discovery_ms"]["mean"] < 5  # a hundred times the distance
