"""The goals' figures from the runs of a bench: pure arithmetic on records (runner.Record).

Each figure is a ratio of medians over the rounds of one bench, in which the tools took turns. Our tool is `rostrum`,
whose agents choose their packet I/O themselves; the same figure for each back end is given beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rostrum.bench import cases

Record = dict[str, Any]
OUR = cases.OURS[0]
GB = 1e9


@dataclass(frozen=True)
class Goal:
    """`better` is "lower" or "higher"; `bound` what is asked for; `meaning` as text."""

    better: str
    bound: float
    meaning: str

    def met(self, value: float | None) -> bool:
        if value is None:
            return False
        return value <= self.bound if self.better == "lower" else value >= self.bound


_OVER = "time over the payload-only ideal, link of {} at MTU {}, {} % loss, one to three"
GOALS: dict[str, Goal] = {
    **{
        f"limited_{mtu}_loss{loss}": Goal("lower", bound, _OVER.format(rate, mtu, loss))
        for mtu, rate, bounds in ((9000, "1 Gbit/s", (1.03, 1.05, 1.10)), (1500, "300 Mbit/s", (1.07, 1.10, 1.15)))
        for loss, bound in zip((0, 1, 5), bounds, strict=True)
    },
    "raw_ratio_9000": Goal("higher", 0.90, "goodput over the raw ceiling of the same packet I/O, MTU 9000"),
    "raw_ratio_1500": Goal("higher", 0.85, "goodput over the raw ceiling of the same packet I/O, MTU 1500"),
    "vs_best_tool_1500_loss0": Goal("higher", 2.0, "goodput over the best multicast tool's, MTU 1500, offload off"),
    "vs_best_tool_9000_loss0": Goal("higher", 2.5, "goodput over the best multicast tool's, MTU 9000, offload off"),
    "vs_best_tool_9000_loss1": Goal("higher", 3.0, "goodput over the best multicast tool's, MTU 9000, 1 % loss"),
    "vs_best_tool_offload": Goal("higher", 5.0, "goodput over the best multicast tool's, MTU 9000, offload on"),
    "vs_tcp3_9000_loss0": Goal(
        "higher", 1.0, "goodput over three TCP copies' (the better congestion control), MTU 9000"
    ),
    "vs_tcp3_offload": Goal("higher", 1.5, "goodput over three TCP copies', MTU 9000, offload on"),
    "loss1_ratio": Goal("higher", 0.85, "goodput at 1 % loss over that without loss, MTU 9000"),
    "loss5_ratio": Goal("higher", 0.60, "goodput at 5 % loss over that without loss, MTU 9000"),
    "cpu_ratio_best_tool": Goal("lower", 0.5, "CPU seconds per GB over the thriftiest multicast tool's, MTU 9000"),
    "cpu_ratio_tcp3": Goal("lower", 1.0, "CPU seconds per GB over three TCP copies', MTU 9000"),
    "fanout_cpu_growth": Goal("lower", 0.10, "growth of the sender's own CPU time from 1 to 7 receivers, MTU 9000"),
    "max_rss_mb": Goal("lower", 64.0, "most memory an agent had, beside mapped objects (MB), in any run"),
}


class Runs:
    """The good runs, by case and tool."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        self._by: dict[tuple[cases.Case, str], list[Record]] = {}
        for record in self.records:
            if record["outcome"] == "ok":
                self._by.setdefault((case_of(record), record["tool"]), []).append(record)

    def of(self, case: cases.Case | None, tool: str) -> list[Record]:
        return self._by.get((case, tool), []) if case else []

    def median(self, case: cases.Case | None, tool: str, value: Callable[[Record], float | None]) -> float | None:
        found = [number for record in self.of(case, tool) if (number := value(record)) is not None]
        return statistics.median(found) if found else None

    def best(
        self, case: cases.Case | None, tools: Sequence[str], value: Callable[[Record], float | None], most: bool = True
    ) -> tuple[str, float] | None:
        """The tool with the highest (or lowest) median, and that."""
        found = [(tool, number) for tool in tools if (number := self.median(case, tool, value)) is not None]
        pick = max if most else min
        return pick(found, key=lambda pair: pair[1]) if found else None

    def case(
        self, mtu: int, loss: float = 0.0, receivers: int = 3, offload: bool = False, limited: bool = False
    ) -> Any:
        """The case of that kind which most tools ran (the sizes of a bench differ); None if there is none."""
        rate_bps = cases.LIMITED_BPS[mtu] if limited else 0
        wanted = (mtu, offload, rate_bps, loss, receivers)
        sizes: dict[int, set[str]] = {}
        for case, tool in self._by:
            if (case.mtu, case.offload, case.rate_bps, case.loss_percent, case.receivers) == wanted:
                sizes.setdefault(case.size, set()).add(tool)
        if not sizes:
            return None
        # 512 MB where it was measured: 64 MB and 4 GB are variations.
        return cases.Case(*wanted, max(sizes, key=lambda size: (size == cases.USUAL_SIZE, len(sizes[size]), size)))


def case_of(record: Record) -> cases.Case:
    return cases.Case(**{name: value for name, value in record["case"].items() if name != "name"})


def goodput(record: Record) -> float:
    return float(record["goodput_bps"])


def seconds(record: Record) -> float:
    return float(record["time_s"])


def cpu_per_gb(record: Record) -> float:
    """CPU seconds of sender and receivers per GB delivered to a receiver."""
    delivered = record["case"]["size"] * record["case"]["receivers"] / GB
    return (float(record["sender_s"]) + float(record["receivers_s"])) / float(delivered)


def own_sender_cpu(record: Record) -> float | None:
    """The sender's CPU time without forwarding packets; None where that cannot be told."""
    softirq = record.get("sender_softirq_s")
    return None if softirq is None else float(record["sender_s"] - softirq)


# --- the figures: each gives (value, name of what we are compared with) for one of our tools ---

Figure = tuple[float | None, str]


def _divide(ours: float | None, theirs: tuple[str, float] | None) -> Figure:
    if theirs is None:
        return None, ""
    return (None if ours is None else ours / theirs[1]), theirs[0]


def over_ideal(runs: Runs, tool: str, mtu: int, loss: float) -> Figure:
    """Of ours, the one that is told nothing of the limit where it was run: the rate has to be found."""
    case = runs.case(mtu, loss, limited=True)
    untold = runs.median(case, cases.UNTOLD, seconds) if tool == OUR else None
    time_s = untold or runs.median(case, tool, seconds)
    return (time_s / case.ideal_s if time_s else None), "payload alone"


def raw_of(runs: Runs, case: cases.Case | None, tool: str) -> str:
    """The raw program with the packet I/O that ours took in that case."""
    done = runs.of(case, tool)
    return f"raw-{done[0]['facts'].get('io', '')}" if done else ""


def of_raw(runs: Runs, tool: str, mtu: int) -> Figure:
    case = runs.case(mtu)
    ceiling = runs.best(case, [raw_of(runs, case, tool)], goodput)
    return _divide(runs.median(case, tool, goodput), ceiling)


def beside(runs: Runs, tool: str, others: Sequence[str], case: cases.Case | None) -> Figure:
    return _divide(runs.median(case, tool, goodput), runs.best(case, others, goodput))


def with_loss(runs: Runs, tool: str, loss: float) -> Figure:
    lossy, clean = runs.case(9000, loss), runs.case(9000)
    if lossy and clean and lossy.size != clean.size:
        return None, ""
    at_loss, without = runs.median(lossy, tool, goodput), runs.median(clean, tool, goodput)
    return (at_loss / without if at_loss and without else None), f"{tool} without loss"


def of_cpu(runs: Runs, tool: str, others: Sequence[str]) -> Figure:
    case = runs.case(9000)
    return _divide(runs.median(case, tool, cpu_per_gb), runs.best(case, others, cpu_per_gb, most=False))


def growth(runs: Runs, tool: str, one: cases.Case, seven: cases.Case) -> float | None:
    few, many = (runs.median(case, tool, own_sender_cpu) for case in (one, seven))
    return many / few - 1 if few and many else None


def fanout(runs: Runs, tool: str) -> Figure:
    """Beside: how much that of the raw program grows, which no receiver tells anything."""
    one, seven = runs.case(9000, receivers=1), runs.case(9000, receivers=7)
    if one is None or seven is None or one.size != seven.size:
        return None, ""
    raw = raw_of(runs, seven, tool)
    theirs = growth(runs, raw, one, seven)
    return growth(runs, tool, one, seven), "" if theirs is None else f"{raw} {theirs:+.3f}"


def resident(runs: Runs, tool: str) -> Figure:
    seen = [
        max(record["resident_mb"].values())
        for record in runs.records
        if record["tool"] == tool and record.get("resident_mb")
    ]
    return (max(seen) if seen else None), ""


def figure(runs: Runs, key: str, tool: str) -> Figure:
    """One figure of GOALS for one of our tools."""
    kind, *fields = key.split("_")
    if kind == "limited":
        return over_ideal(runs, tool, int(fields[0]), float(fields[1].removeprefix("loss")))
    if kind == "raw":
        return of_raw(runs, tool, int(fields[-1]))
    if kind == "vs":
        offload = fields[-1] == "offload"
        mtu, loss = (9000, 0.0) if offload else (int(fields[-2]), float(fields[-1].removeprefix("loss")))
        others = cases.TCP if fields[0] == "tcp3" else cases.MULTICAST
        return beside(runs, tool, others, runs.case(mtu, loss, offload=offload))
    if kind in ("loss1", "loss5"):
        return with_loss(runs, tool, float(kind.removeprefix("loss")))
    if kind == "cpu":
        return of_cpu(runs, tool, cases.TCP if fields[-1] == "tcp3" else cases.MULTICAST)
    return fanout(runs, tool) if kind == "fanout" else resident(runs, tool)


def summarize(records: Iterable[Record]) -> dict[str, Any]:
    """summary.json: each figure of GOALS as a number (None: not measured), and who was compared with whom."""
    runs = Runs(records)
    summary: dict[str, Any] = {}
    details: dict[str, Any] = {}
    for key, goal in GOALS.items():
        value, other = figure(runs, key, OUR)
        ends = {tool: number for tool in cases.OURS if (number := figure(runs, key, tool)[0]) is not None}
        pick = min if goal.better == "lower" else max
        best = pick(ends, key=lambda tool: ends[tool]) if ends else None
        summary[key] = None if value is None else round(value, 4)
        details[key] = {
            "meaning": goal.meaning,
            "better": goal.better,
            "goal": goal.bound,
            "met": goal.met(value),
            "compared_with": other,
            "by_back_end": {tool: round(number, 4) for tool, number in ends.items()},
            "best_back_end": best,
        }
    chosen = {
        record["facts"]["io"] for record in runs.records if record["tool"] == OUR and record.get("facts", {}).get("io")
    }
    return {
        **summary,
        "best_tool": {key: details[key]["compared_with"] for key in GOALS if key.startswith(("vs_", "cpu_"))},
        "our_back_end": sorted(chosen),
        "figures": details,
    }
