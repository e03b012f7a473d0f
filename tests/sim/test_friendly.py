"""congestion=friendly beside a TCP, in the model of a narrow place that `rostrum sim run wan --friendly` runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.sim import friendly
from rostrum.sim.experiments import wan
from rostrum.sim.narrow import Place, share
from rostrum.sim.network import SimError


def test_study__at_a_fixed_grid_it_is_fair_more_often_than_a_cubic(tmp_path: Path) -> None:
    """Virtual time: each run finds the same."""
    file = tmp_path / "friendly.json"
    done = CliRunner().invoke(wan.command, ["--friendly", "--quick", "--json", str(file)])
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    for what in ("losses", "marks"):
        found = report["summary"][what]
        outside = found["outside"]
        assert found["points"] == 12 and outside["friendly beside bbr"] == 0, report["summary"]
        assert outside["friendly beside cubic"] <= (what == "losses"), report["summary"]
    assert report["summary"]["marks"]["worse"] == 0 and report["summary"]["losses"]["worse"] <= 1, report["summary"]
    assert report["summary"]["losses"]["outside"]["bbr beside cubic"] > 5  # a model in which all is fair shows nothing


@pytest.mark.parametrize("kind", ["cubic", "bbr"])
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize(("rate", "trip_ms", "queue"), [(200e6, 20, 62_500), (1e9, 10, 312_500), (1e9, 20, 312_500)])
def test_friendly__gives_way_to_marks_where_others_do(
    rate: float, trip_ms: int, queue: float, leads: bool, kind: str
) -> None:
    """A CUBIC that was marked by ours without an end had a hundredth of the place, and was not seen; BBR heeds none."""
    found = share(Place(rate, trip_ms, queue, queue / 2), ("friendly", kind), leads, friendly.SECONDS)
    assert friendly.is_fair(found.ratio), found


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize(
    ("rate", "trip_ms", "queue"), [(200e6, 10, 31_250), (200e6, 50, 156_250), (1e9, 10, 312_500), (599.8e6, 6, 45_435)]
)
def test_friendly__does_not_fill_a_short_queue_by_itself(rate: float, trip_ms: int, queue: float, leads: bool) -> None:
    """Its own queue was longer than the place's, so that it lost without an end and a TCP had a tenth, or nothing."""
    found = share(Place(rate, trip_ms, queue), ("friendly", "cubic"), leads, friendly.SECONDS)
    assert friendly.is_fair(found.ratio), found


@pytest.mark.parametrize(
    ("rate", "trip_ms", "queue", "mark"), [(1e9, 200, 4.0, 0), (200e6, 200, 1.0, 0.5), (1e9, 50, 0.5, 0.5)]
)
def test_friendly__that_comes_later_gets_no_less_than_a_cubic_would(
    rate: float, trip_ms: int, queue: float, mark: float
) -> None:
    """It took its own best for what the place carries: 0.05, 0.46 and 2.04 of what the other had."""
    there = queue * rate / 8 * trip_ms / 1000
    place = Place(rate, trip_ms, there, mark * there)
    ours, cubic = (share(place, (kind, "cubic"), False, friendly.SECONDS).ratio for kind in ("friendly", "cubic"))
    assert friendly.is_fair(ours) or max(ours, 1 / ours) <= max(cubic, 1 / cubic), (ours, cubic)


@pytest.mark.parametrize("kind", ["cubic", "bbr"])
@pytest.mark.parametrize("mark", [0, 262_144])
@pytest.mark.parametrize("trip_ms", [100, 200])
def test_friendly__that_comes_later_has_its_part_within_seconds(trip_ms: int, mark: int, kind: str) -> None:
    """As in `rostrum lab run wan --with-tcp`: it had 0.42 and 0.29 of what a CUBIC had, which fills a place slowly."""
    found = share(Place(200e6, trip_ms, 1_048_576, mark), ("friendly", kind), False, 20)
    assert friendly.is_fair(found.ratio), found


def test_friendly__start_up_ends_at_a_short_queue_that_another_has_filled() -> None:
    """What overflowed was taken for what came out: 50 Gbit/s through 72.7 Mbit/s, and nothing for the other. Then that
    had a tenth for 10 s: in a queue that ours filled it did not get up to where it is seen."""
    found = share(Place(72.7e6, 7, 23_090), ("friendly", "cubic"), False, 20)
    assert friendly.is_fair(found.ratio), found


def test_friendly__that_came_first_leaves_a_short_queue_to_a_cubic() -> None:
    """Its own queue grew by half each 10 s in which none overflowed, as long as it filled the place's: 2.6 and 2.02."""
    for seconds in (60, 120):
        assert friendly.is_fair(share(Place(200e6, 100, 312_500), ("friendly", "cubic"), True, seconds).ratio), seconds
    found = share(Place(200e6, 100, 625_000, 312_500), ("friendly", "cubic"), True, friendly.SECONDS)
    assert friendly.is_fair(found.ratio), found


@pytest.mark.parametrize("queue", [0.25, 1, 2, 4])
def test_friendly__start_up_goes_on_until_pulses_are_seen_in_a_long_queue_of_others(queue: float) -> None:
    """A queue stood, so it ended at some Mbit/s, of which a pulse shows nothing: 0.47, 0.47, 0.40 and 0.27, where CUBIC
    beside CUBIC has 0.24 to 0.16."""
    found = share(Place(1e9, 200, queue * 25e6), ("friendly", "cubic"), False, friendly.SECONDS)
    assert found.ratio > (0.5 if queue < 4 else 0.45) and friendly.is_fair(max(found.ratio, 0.5)), found


@pytest.mark.parametrize(("trip_ms", "late_ms"), [(10, 2.0), (50, 0.3), (50, 1.0), (100, 0.3), (100, 1.0)])
def test_friendly__by_clocks_of_busy_hosts(trip_ms: int, late_ms: float) -> None:
    """Windows weighed as long as they took there, so that sent over came seemed too much: 0.05 at 10 ms."""
    found = share(Place(200e6, trip_ms, 1_048_576, 262_144, late_ms), ("friendly", "bbr"), False, 40)
    assert friendly.is_fair(found.ratio), found


@pytest.mark.parametrize(("rate", "trip_ms", "queue"), [(582.4e6, 233, 0.116), (1056.1e6, 196, 0.112)])
def test_bbr__that_comes_later_starts_up_as_one_that_is_alone(rate: float, trip_ms: int, queue: float) -> None:
    """Its rounds went by before it had sent anything: it never doubled its rate, and had a thirtieth of ours."""
    place = Place(rate, trip_ms, queue * rate / 8 * trip_ms / 1000)
    found = share(place, ("friendly", "bbr"), True, friendly.SECONDS)
    assert friendly.is_fair(found.ratio), found


def test_cubic__heeds_losses_however_much_was_lost_before() -> None:
    """It was deaf to as many bytes as it had ever lost: who came second had a sixth for minutes."""
    trip_ms, rate = 200, 200e6
    queue = 2 * rate / 8 * trip_ms / 1000
    found = share(Place(rate, trip_ms, queue, queue / 2), ("cubic", "cubic"), False, friendly.SECONDS)
    assert found.ratio > 0.3, found


def test_cubic__unpaced_sends_in_bursts_that_are_marked_where_a_paced_one_fills_the_place() -> None:
    """As Linux's in `rostrum lab run wan --with-tcp --mark 256K` at 200 ms: the two had 84 of 200 Mbit/s there."""
    paced, bursts = (share(Place(200e6, 200, 1 << 20, 256 << 10, unpaced=unpaced), ("cubic", "cubic"), False, 20)
                     for unpaced in (False, True))  # fmt: skip
    assert sum(paced.carried) > 0.8 * 20 * 25e6 and sum(bursts.carried) < 0.5 * 20 * 25e6, (paced, bursts)


def test_cubic__meets_as_many_losses_as_its_law_says() -> None:
    """Alone beside one that sends nothing it would find: one each K = cbrt(W (1 - beta) / C) (RFC 9438, 4.2)."""
    place = Place(200e6, 50, 1_250_000)
    found = share(place, ("cubic", "cubic"), True, 240)
    window = (place.link_bps / 8 * place.rtt_ms / 1000 + place.queue) / 1500 / 2
    period_s = (window * 0.3 / 0.4) ** (1 / 3)
    assert 0.5 <= found.events[0] * period_s / 240 <= 2, (found, period_s)


@pytest.mark.parametrize("place", [Place(0, 50, 1e6), Place(1e9, 0, 1e6)])
def test_share__of_a_place_that_is_none_is_an_error(place: Place) -> None:
    with pytest.raises(SimError, match="a place that is none"):
        share(place, ("friendly", "cubic"), True, 10)
    with pytest.raises(SimError):
        share(Place(1e9, 10, 1e6), ("friendly", "cubic"), True, 10**6)
