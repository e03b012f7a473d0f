"""What the transfers of Fig. 8 come to: distributions, percentiles, and whether the paper's shape is there.

Pure: rows in, numbers out. A `Run` is one transfer; a "receiving" is one of its receivers, as in the paper, which
counts lost packets "per data receiving".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

PERCENTILES = (50, 90, 99)
FLAT = 1.1  # times the least mean attempt time that still counts as flat
NEAR = 1.01  # times the least median extra time that still counts as least
BUSY = 0.3  # share of the machine's CPU time in use before a transfer that makes its times doubtful
ADVISED = 3.5  # % of the reconfiguration time: 2 ms of 60 ms, the paper's longest good interval, with some room
GAIN_MS = 1.0  # of extra time that would count as a gain


@dataclass(frozen=True)
class Configuration:
    """How the agents were run. `interval_s` None: rostrumd's own choice, its default of light-confirm too."""

    interval_s: float | None
    start_on: str  # last | first | switches

    @property
    def label(self) -> str:
        return f"{interval_text(self.interval_s)}, {self.start_on}"


@dataclass(frozen=True)
class Run:
    """One transfer that went over a circuit. Times in ms since the manager's acceptance."""

    configuration: int  # index
    round: int
    reused: bool  # over a live circuit: nothing to reconfigure
    sender: str
    busy: float  # share of the machine's CPU time in use just before
    steady_ms: float = 0.0  # until the manager knew every cross-connect steady; 0 on a live circuit
    attempt_ms: float = 0.0  # until high rate
    total_ms: float = 0.0  # until the last DATA_RCVD
    extra_ms: float = 0.0  # total less the ideal transfer at line rate (Sec. VI-C)
    attempt_packets: int = 0
    redundant_bytes: int = 0
    lost: tuple[int, ...] = ()  # fragments missed and patched, at each receiver
    light_ms: tuple[float, ...] = ()  # until INTL_SEQ of each receiver

    @property
    def quiet(self) -> bool:
        """Nothing else used the machine when it began."""
        return self.busy <= BUSY


def columns() -> list[str]:
    return [field.name for field in fields(Run)]


def as_row(run: Run) -> list[Any]:
    """For JSON: the values in the order of `columns`, times to the microsecond."""
    return [_rounded(value) for value in asdict(run).values()]


@dataclass(frozen=True)
class Rows:
    configurations: list[Configuration]
    runs: list[Run]


def read_rows(report: dict[str, Any]) -> Rows:
    """The configurations and transfers of a report, back from its JSON. Raises KeyError, TypeError, ValueError."""
    given = [(row["interval_us"], row["start_on"]) for row in report["configurations"]]
    configurations = [Configuration(None if us is None else us / 1e6, start_on) for us, start_on in given]
    rows = (dict(zip(report["columns"], row, strict=True)) for row in report["runs"])
    return Rows(configurations, [Run(**{name: _back(value) for name, value in row.items()}) for row in rows])


def _back(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return [_rounded(one) for one in value] if isinstance(value, tuple) else value


def interval_text(interval_s: float | None) -> str:
    """70 us, 1.4 ms; `auto` for rostrumd's own choice."""
    if interval_s is None:
        return "auto"
    return f"{interval_s * 1e6:g} us" if interval_s < 1e-3 else f"{interval_s * 1e3:g} ms"


def cdf(values: Iterable[float]) -> tuple[list[float], list[float]]:
    """Steps of the empirical distribution: sorted distinct values, and the share of values up to each."""
    ordered = sorted(values)
    shares: dict[float, float] = {}
    for place, value in enumerate(ordered, 1):
        shares[value] = place / len(ordered)
    return list(shares), list(shares.values())


def percentile(values: Iterable[float], percent: float) -> float:
    """The least value that at least `percent` % of the values do not exceed (so always one that was measured).
    Raises ValueError if there are none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, no percentile")
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """{"p50", "p90", "p99", "max", "mean"}; empty if there are no values."""
    if not values:
        return {}
    found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
    found |= {"max": max(values), "mean": sum(values) / len(values)}
    return {name: round(value, 3) for name, value in found.items()}


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Of transfers of one configuration: the four quantities of Fig. 8 and the share of receivings with losses."""
    lost = [count for run in runs for count in run.lost]
    return {
        "transfers": len(runs),
        "receivings": len(lost),
        "redundant_bytes": spread([run.redundant_bytes for run in runs]),
        "lost_packets": spread(lost),
        "cases_with_loss": round(sum(count > 0 for count in lost) / len(lost), 4) if lost else None,
        "attempt_ms": spread([run.attempt_ms for run in runs]),
        "extra_ms": spread([run.extra_ms for run in runs]),
        "steady_ms": spread([run.steady_ms for run in runs]),
        # How long high rate was on when the last INTL_SEQ came: what was not waited for.
        "ahead_ms": spread([max(0.0, max(run.light_ms) - run.attempt_ms) for run in runs if run.light_ms]),
    }


def summaries(configurations: Sequence[Configuration], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each configuration: {"interval_us", "start_on", "all", "new", "reused"}, the last three as `summary`."""
    found = []
    for index, one in enumerate(configurations):
        own = [run for run in runs if run.configuration == index]
        found.append(
            {
                "interval_us": None if one.interval_s is None else round(one.interval_s * 1e6, 3),
                "start_on": one.start_on,
                "all": summary(own),
                "new": summary([run for run in own if not run.reused]),
                "reused": summary([run for run in own if run.reused]),
            }
        )
    return found


def shape(found: Sequence[dict[str, Any]], reconfiguration_ms: float) -> dict[str, Any]:
    """The paper's findings (Sec. VI-C) looked for among `summaries`: over new circuits, start on last, unless said.

    {name: {"claim", "holds", and the numbers it rests on}}; a claim whose configurations were not run is left out.
    """
    last, first = _series(found, "last"), _series(found, "first")
    verdicts: dict[str, Any] = {}
    if len(last) >= 2:
        verdicts["redundancy_falls"] = _falls(
            "redundant bytes (p99) fall as the interval grows",
            {us: row["new"]["redundant_bytes"]["p99"] for us, row in last.items()},
        )
        verdicts["loss_falls"] = _falls(
            "the share of receivings with losses falls as the interval grows",
            {us: row["new"]["cases_with_loss"] for us, row in last.items()},
        )
        verdicts["attempt_flat"] = _attempt_flat(last, reconfiguration_ms)
        verdicts["extra_least"] = _extra_least(last, reconfiguration_ms)
    reused = {us: _p50(row, "attempt_ms", "reused") for us, row in last.items() if row["reused"]["transfers"]}
    advised = [ms for us, ms in reused.items() if _percent(us, reconfiguration_ms) <= ADVISED]
    if advised:
        verdicts["reused_skip"] = {
            "claim": "on reused circuits the attempt takes less than 20 ms (median, intervals up to 3 %)",
            "holds": max(advised) < 20,
            "attempt_ms": reused,
        }
    if first.keys() & last.keys():
        verdicts["first_no_gain"] = _first_no_gain(last, first, reconfiguration_ms)
    switches = _series(found, "switches")
    if switches.keys() & last.keys():
        verdicts["switches_earlier"] = _switches_earlier(last, switches)
    return verdicts


def _attempt_flat(last: dict[float, dict[str, Any]], reconfiguration_ms: float) -> dict[str, Any]:
    # Means: when light comes 50 to 70 ms after packets every 20 ms began, the median is one of two values.
    attempt = {us: _mean(row, "attempt_ms") for us, row in last.items()}
    least = min(attempt.values())
    flat = list(itertools.takewhile(lambda us: attempt[us] <= FLAT * least, attempt))
    percent = _percent(flat[-1], reconfiguration_ms) if flat else 0.0
    return {
        "claim": "the attempt time (mean) stays flat until the interval is 2-3 % of the reconfiguration time",
        "holds": percent >= 2 and attempt[max(attempt)] > FLAT * least,
        "flat_up_to_percent": percent,
        "attempt_ms": attempt,
    }


def _extra_least(last: dict[float, dict[str, Any]], reconfiguration_ms: float) -> dict[str, Any]:
    extra = {us: _p50(row, "extra_ms") for us, row in last.items()}
    near = [us for us, value in extra.items() if value <= NEAR * min(extra.values())]
    percents = [_percent(us, reconfiguration_ms) for us in near]
    return {
        "claim": "total extra time (median) is least for intervals of 1-3 % of the reconfiguration time",
        "holds": any(1 <= percent <= ADVISED for percent in percents) and min(extra) not in near,
        "least_at_percent": percents,
        "extra_ms": extra,
    }


def _first_no_gain(
    last: dict[float, dict[str, Any]], first: dict[float, dict[str, Any]], reconfiguration_ms: float
) -> dict[str, Any]:
    both = sorted(last.keys() & first.keys())
    attempt = {us: round(_p50(last[us], "attempt_ms") - _p50(first[us], "attempt_ms"), 3) for us in both}
    extra = {us: round(_p50(last[us], "extra_ms") - _p50(first[us], "extra_ms"), 3) for us in both}
    lost = {us: round(_mean(first[us], "lost_packets") - _mean(last[us], "lost_packets"), 3) for us in both}
    advised = [us for us in both if _percent(us, reconfiguration_ms) <= ADVISED]
    gain_ms = sum(extra[us] for us in advised) / len(advised) if advised else 0.0
    return {
        "claim": "starting on the first INTL_SEQ is earlier, loses more, saves no extra time (intervals up to 3 %)",
        "holds": sum(attempt[us] for us in advised) > 0 and sum(lost[us] for us in advised) > 0 and gain_ms <= GAIN_MS,
        "attempt_saved_ms": attempt,
        "extra_saved_ms": extra,
        "lost_more": lost,
    }


def _switches_earlier(last: dict[float, dict[str, Any]], switches: dict[float, dict[str, Any]]) -> dict[str, Any]:
    """Ours: what starting on the switches' word saves against waiting for the last INTL_SEQ. Means, as the gain is
    smaller than an interval.
    """
    both = sorted(last.keys() & switches.keys())
    attempt = {us: round(_mean(last[us], "attempt_ms") - _mean(switches[us], "attempt_ms"), 3) for us in both}
    extra = {us: round(_p50(last[us], "extra_ms") - _p50(switches[us], "extra_ms"), 3) for us in both}
    return {
        "claim": "starting on light that the switches saw is earlier than on the last INTL_SEQ (mean, every interval)",
        "holds": all(saved > 0 for saved in attempt.values()),
        "attempt_saved_ms": attempt,
        "extra_saved_ms": extra,
    }


def _series(found: Sequence[dict[str, Any]], start_on: str) -> dict[float, dict[str, Any]]:
    """{interval in us: summary} of one policy, for given intervals that had transfers over new circuits; ascending."""
    rows = [r for r in found if r["start_on"] == start_on and r["interval_us"] is not None and r["new"]["transfers"]]
    return {float(row["interval_us"]): row for row in sorted(rows, key=lambda row: float(row["interval_us"]))}


def _falls(claim: str, by_interval_us: dict[float, float]) -> dict[str, Any]:
    """Holds if the longer half of the intervals lies below the shorter half, and the longest below the shortest."""
    values = list(by_interval_us.values())
    half = len(values) // 2
    lower = sum(values[-half:]) < sum(values[:half]) and values[-1] < values[0]
    return {"claim": claim, "holds": lower, "by_interval_us": by_interval_us}


def _percent(interval_us: float, reconfiguration_ms: float) -> float:
    return round(interval_us / 10 / reconfiguration_ms, 3)


def _p50(row: dict[str, Any], quantity: str, kind: str = "new") -> float:
    return float(row[kind][quantity]["p50"])


def _mean(row: dict[str, Any], quantity: str) -> float:
    return float(row["new"][quantity]["mean"])
