"""Finds the best rate for tools that must be told one, on this machine: each candidate once, before the bench."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rostrum.bench.cases import MB, Case, Entry, base
from rostrum.bench.run import Tool
from rostrum.bench.runner import Record, Runner, Turn
from rostrum.bench.tools.rates import Rated

SIZE = 128 * MB
Say = Callable[[str], None]


def jobs(entries: Iterable[Entry], rated: Iterable[str]) -> list[tuple[str, Case]]:
    """What to tune: tool and lossless case, for each MTU and offload that it runs without a limited link."""
    names = set(rated)
    found = {
        (tool, base(entry.case.mtu, offload=entry.case.offload, size=SIZE))
        for entry in entries
        if not entry.case.rate_bps
        for tool in entry.tools
        if tool in names
    }
    return sorted(found)


def settle(tools: dict[str, Tool], trials: Iterable[Record]) -> dict[tuple[str, int, bool], float]:
    """Tells tools the rate of their best trial; its goodput, by tool, MTU and offload."""
    best: dict[tuple[str, int, bool], float] = {}
    for trial in trials:
        key = (trial["tool"], trial["case"]["mtu"], trial["case"]["offload"])
        tool = tools.get(trial["tool"])
        if trial["outcome"] == "ok" and trial["goodput_bps"] > best.get(key, 0.0) and isinstance(tool, Rated):
            best[key] = trial["goodput_bps"]
            tool.tuned[key[1:]] = trial["tuning"]
    return best


def tune(runner: Runner, entries: list[Entry], say: Say) -> list[Record]:
    """Tells each such tool its best rate; the records of the trials."""
    rated = {
        name: tool for name, tool in runner.tools.items() if isinstance(tool, Rated) and name not in runner.missing
    }
    records = []
    for name, case in jobs(entries, rated):
        tool, trials = rated[name], []
        for number, rate in enumerate(tool.candidates(case)):
            tool.tuned[case.mtu, case.offload] = rate
            trials.append({**runner.run(Turn(case, name, number)), "tuning": rate})
        tool.tuned.pop((case.mtu, case.offload))
        best = settle(runner.tools, trials).get((name, case.mtu, case.offload), 0.0)
        say(f"rate for {name}, MTU {case.mtu}, offload {'on' if case.offload else 'off'}: "
            f"{tool.rate_bps(case) / 1e6:.0f} Mbit/s, gives {best / 1e6:.0f}")  # fmt: skip
        records += trials
    return records
