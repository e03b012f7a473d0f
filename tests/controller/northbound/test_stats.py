"""Response times as the manager tells them."""

from __future__ import annotations

from rostrum.controller.northbound.metrics.stats import Latency


def test_one_slow_answer_in_a_hundred_is_the_maximum_and_not_p99() -> None:
    latency = Latency()
    for ms in (*range(1, 100), 1000):
        latency.add(ms * 1_000_000)
    assert (latency.percentile_ms(50), latency.percentile_ms(99), latency.max_ms()) == (50, 99, 1000)


def test_few_answers_have_percentiles_too() -> None:
    latency = Latency()
    assert latency.percentile_ms(99) is None and latency.max_ms() is None
    latency.add(2_000_000)
    assert latency.percentile_ms(0) == latency.percentile_ms(50) == latency.percentile_ms(99) == 2
