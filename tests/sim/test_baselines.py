"""SRM, RMTP, LBRM, TMTP as engines: all receivers get all, whatever is lost, and mend it in the way of the protocol."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from rostrum.sim.network import BaselineParams, Child, LinkParams, Network, SimError

S, US = 10**9, 10**3
G = 10**9
PACKETS, BYTES = 400, 1024
LINK = LinkParams(rate_bps=G, delay_ns=1 * US, queue_bytes=64 << 20)
PROTOCOLS = ("srm", "rmtp", "lbrm", "tmtp")
ALL, SITE, TOP = 7, 8, 9  # groups


@pytest.fixture(autouse=True)
def seed() -> Iterator[int]:
    value = random.SystemRandom().randrange(1 << 31)
    print(f"seed {value}")
    yield value


class Site:
    """A source behind one switch, and behind another the receivers: the first of them mends the others, who are behind
    a third one. All of SITE, and all of TOP, may send there."""

    def __init__(self, protocol: str, receivers: int, seed: int, **srm: Any) -> None:
        self.net = net = Network(seed)
        self.source, self.near, self.far, self.low = net.server(), net.switch(), net.switch(), net.switch()
        self.receivers = [net.server() for _ in range(receivers)]
        net.link(self.source, self.near, LINK)
        self.middle, _ = net.link(self.near, self.far, LINK)
        self.below, _ = net.link(self.far, self.low, LINK)
        mender, *others = self.receivers
        at = dict.fromkeys(others, self.low) | {mender: self.far}
        self.down = [net.link(at[node], node, LINK)[0] for node in self.receivers]
        first, up = net.link_between(self.source, self.near), net.link_between(self.near, self.source)
        back, lift = net.link_between(self.far, self.near), net.link_between(self.low, self.far)
        net.group(self.source, ALL, [first], member=True)
        net.group(self.near, ALL, [self.middle, up])
        net.group(self.far, ALL, [self.down[0], self.below, back])
        net.group(self.low, ALL, [*self.down[1:], lift])
        net.group(self.far, SITE, [self.down[0], self.below])
        net.group(self.low, SITE, [*self.down[1:], lift])
        net.group(self.source, TOP, [first], member=True)
        net.group(self.near, TOP, [self.middle, up])
        net.group(self.far, TOP, [self.down[0], back])
        for node in self.receivers:
            link = net.link_between(node, at[node])
            for group in (ALL, SITE):
                net.group(node, group, [link], member=True)
        net.group(mender, TOP, [net.link_between(mender, self.far)], member=True)
        for number, node in enumerate([self.source, *self.receivers]):
            parent: int | None = mender
            children: tuple[Child, ...] = ()
            if node == self.source:
                parent, children = None, (Child(mender, 3, TOP, 3 if protocol == "tmtp" else 0),)
            elif node == mender:
                parent, children = self.source, tuple(Child(one, 3, SITE, 2 + len(others)) for one in others)
            domain = TOP if node == mender else SITE
            params = BaselineParams(
                protocol, ALL, seed + number, parent=parent, children=children, domain=domain,
                members=1 + receivers, **srm,
            )  # fmt: skip
            net.use_baseline(node, params)
        net.send(self.source, 1, PACKETS * BYTES, [])

    def finish(self) -> None:
        self.net.run_until_noted("complete", len(self.receivers), 60 * S)
        done = {int(note["host"]) for note in self.net.notes_of("complete")}
        assert done == set(self.receivers)

    def stats(self, name: str) -> list[int]:
        return [self.net.baseline_stats(node)[name] for node in [self.source, *self.receivers]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_loss__nobody_repairs_and_each_link_carries_each_packet_once(protocol: str, seed: int) -> None:
    site = Site(protocol, 5, seed)
    site.finish()
    assert sum(site.stats("repairs_multicast")) + sum(site.stats("repairs_unicast")) == 0
    for link in (site.middle, site.below, *site.down):
        assert site.net.link_stats(link)["data_packets"] == PACKETS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_gilbert_loss__everywhere_is_mended(protocol: str, seed: int) -> None:
    site = Site(protocol, 6, seed)
    mender, *others = site.receivers
    pairs = [(site.source, site.near), (site.near, site.far), (site.far, mender), (site.far, site.low)]
    for a, b in [*pairs, *((site.low, node) for node in others)]:
        for link in (site.net.link_between(a, b), site.net.link_between(b, a)):
            site.net.loss(link, "gilbert", 0.05, 4)
    site.finish()
    assert sum(site.stats("repaired")) > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_packets__lost_by_all_are_mended_too(protocol: str, seed: int) -> None:
    site = Site(protocol, 3, seed)
    end = PACKETS * 1_138 * 8  # ns, about: when the last one has gone
    site.net.run(end - 300_000)
    site.net.up(site.middle, False)
    site.net.run(end + 60_000)
    site.net.up(site.middle, True)
    assert all(count < PACKETS for count in site.stats("received")[1:])
    site.finish()


def test_srm__a_repair_goes_to_all_and_most_duplicates_are_suppressed(seed: int) -> None:
    site = Site("srm", 8, seed)
    site.net.loss(site.middle, "bernoulli", 0.03)
    site.finish()
    lost = site.net.link_stats(site.middle)["lost"]
    repairs = sum(site.stats("repairs_multicast"))
    assert sum(site.stats("repairs_unicast")) == 0
    assert lost > 0 and repairs < 4 * lost + 20, (lost, repairs)
    assert sum(site.stats("requests_sent")) < 5 * lost + 20


@pytest.mark.parametrize("protocol", ["rmtp", "lbrm"])
def test_hierarchy__a_loss_of_one_is_mended_by_unicast_from_near(protocol: str, seed: int) -> None:
    site = Site(protocol, 8, seed)
    site.net.loss(site.down[4], "gilbert", 0.05, 3)
    site.finish()
    source, mender, *others = site.stats("repairs_unicast")
    assert source == 0 and mender > 0 and sum(others) == 0
    assert sum(site.stats("repairs_multicast")) == 0
    assert site.net.link_stats(site.middle)["data_packets"] == PACKETS


@pytest.mark.parametrize("protocol", ["rmtp", "lbrm"])
def test_hierarchy__a_loss_of_all_is_mended_once_by_the_source_and_once_by_multicast(protocol: str, seed: int) -> None:
    site = Site(protocol, 8, seed)
    site.net.loss(site.middle, "gilbert", 0.05, 3)
    site.finish()
    unicast, multicast = site.stats("repairs_unicast"), site.stats("repairs_multicast")
    lost = site.net.link_stats(site.middle)["lost"]
    assert multicast[0] == 0 and 0 < unicast[0] <= 1.5 * lost + 10
    assert multicast[1] > 0.4 * unicast[0]
    assert sum(multicast[2:]) + sum(unicast[2:]) == 0


# What the authors of each say of it.


def test_srm__its_timers_adapt_so_that_duplicates_are_few(seed: int) -> None:
    """Floyd et al., Sec. VII: from timers too short for a group, adaptive ones come to few duplicates."""
    said = {}
    for fixed in (False, True):
        site = Site("srm", 40, seed, fixed_timers=fixed, c1=0.5, c2=1, d1=0.5, d2=1)
        site.net.loss(site.middle, "bernoulli", 0.2)  # all of the site miss the same, at the same distance
        site.finish()
        lost = site.net.link_stats(site.middle)["lost"]
        said[fixed] = sum(site.stats("requests_sent")) / lost
    assert said[False] < 0.8 * said[True], said


def test_rmtp__the_source_hears_of_its_designated_receiver_alone(seed: int) -> None:
    """Paul et al.: what reaches the sender does not grow with the receivers, for reports go to one in the region."""
    heard = {}
    for receivers in (5, 40):
        site = Site("rmtp", receivers, seed)
        site.net.loss(site.below, "bernoulli", 0.03)
        site.finish()
        heard[receivers] = site.stats("requests_received")[0]
    assert 0 < heard[40] <= 1.5 * heard[5] + 10, heard


def test_lbrm__one_request_of_the_site_passes_for_a_loss_of_all(seed: int) -> None:
    """Holbrook et al.: of a loss on the way to a site, the primary logger hears once, of the site's logger."""
    site = Site("lbrm", 30, seed)
    site.net.loss(site.middle, "bernoulli", 0.03)
    site.finish()
    lost = site.net.link_stats(site.middle)["lost"]
    assert 0 < site.stats("requests_received")[0] <= 1.5 * lost + 10


def test_tmtp__a_loss_in_a_domain_is_told_by_few_mended_once_and_unknown_to_the_source(seed: int) -> None:
    """Yavatkar et al.: NACKs are heard by all of the domain, who keep theirs; the manager mends by multicast there; so
    neither grows with the receivers."""
    heard = {}
    for receivers in (5, 30):
        site = Site("tmtp", receivers, seed)
        site.net.loss(site.below, "bernoulli", 0.03)
        site.finish()
        lost = site.net.link_stats(site.below)["lost"]
        nacks = sum(site.stats("requests_sent")[2:]) - sum(site.stats("reports_sent")[2:])
        source, mender, *others = site.stats("repairs_multicast")
        assert source == 0 and sum(others) == 0 and sum(site.stats("repairs_unicast")) == 0
        assert mender <= 1.5 * lost + 10, (mender, lost)
        assert nacks <= 9 * lost + 30, (nacks, lost, receivers)
        heard[receivers] = site.stats("requests_received")[0]
    assert heard[30] <= 1.5 * heard[5] + 10, heard


def test_same_seed__same_run_to_the_bit(seed: int) -> None:
    for protocol in PROTOCOLS:
        runs = []
        for _ in range(2):
            site = Site(protocol, 5, seed)
            for link in site.down:
                site.net.loss(link, "gilbert", 0.03, 3)
            site.finish()
            runs.append((site.net.notes().tobytes(), site.net.run_stats(), site.stats("received")))
        assert runs[0] == runs[1]


def test_wrong_calls__are_errors_with_a_reason() -> None:
    net = Network()
    host = net.server()
    with pytest.raises(SimError, match="no host with a baseline"):
        net.baseline_stats(host)
    net.use_baseline(host, BaselineParams("srm", 1))
    with pytest.raises(SimError, match="has an engine already"):
        net.use_baseline(host, BaselineParams("srm", 1))
    with pytest.raises(SimError, match="one object, not empty"):
        net.send(host, 1, 0, [])
    with pytest.raises(SimError, match="more than 256 children"):
        net.use_baseline(net.server(), BaselineParams("rmtp", 1, children=(Child(0, 1),) * 257))
