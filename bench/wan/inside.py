"""The study's process inside private namespaces: `python -m rostrum.bench.wan.inside JOB`."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rostrum.bench.runner import Record, Runner, Turn
from rostrum.bench.wan.network import WideArea
from rostrum.bench.wan.points import Point
from rostrum.bench.wan.probe import probe
from rostrum.bench.wan.report import compact, report
from rostrum.bench.wan.tools import BESIDE, OUR, TCP, all_tools
from rostrum.lab.namespace import LabError
from rostrum.lab.results import rounded, save

TRY_S = 2.0  # of data at the link's rate: who cannot carry that in TRY_BOUND_S gets no more
TRY_BOUND_S = 10.0
WORTH = 0.3  # of the ideal rate in the trial, or in it only a start was measured
PROBES = 1500
NICE = -10  # other work on this machine waits: the study is about networks


def run_point(runner: Runner, point: Point, tool: str, seconds: float, seed: int) -> Record:
    """One tool at one point: an object of so many seconds; a short one first for tools that may take forever."""

    def sized(of: float) -> int:
        share = 1 / point.receivers if tool.startswith(TCP) else 1.0
        return max(1 << 20, int(point.ideal_bps * of * share / 8) >> 20 << 20)

    def once(of: float, bound: float) -> Record:
        network = runner.fabric
        assert isinstance(network, WideArea)
        network.seed = seed
        return runner.run(Turn(replace(point, size=sized(of), give_up_s=bound), tool, 0))

    if tool in BESIDE:
        return once(seconds / 2, 20 + 6 * seconds)  # it should have half of the link
    if tool != OUR:
        tried = once(TRY_S, TRY_BOUND_S)
        good = tried["outcome"] == "ok" and tried["goodput_bps"] > WORTH * point.ideal_bps * (
            1 / point.receivers if tool.startswith(TCP) else 1
        )
        if not good:
            return tried
    return once(seconds, 20 + 3 * seconds)


def main(job: dict[str, Any]) -> int:
    os.nice(NICE)
    results = Path(job["results"])
    before: list[dict[str, Any]] = job["done"]
    points = [Point(**value) for value in job["points"]]
    seed = int(job["seed"])
    runner = None
    try:
        runner = Runner(
            Path(job["folder"]), Path(job["programs"]), all_tools(), job["missing"], seed, job["manifest"]["commit"],
            network=WideArea,
        )  # fmt: skip
        network = runner.fabric
        assert isinstance(network, WideArea)
        probes = job["probes"]
        probed = {row["delay_ms"] for row in probes}
        probes += check_delays(network, [point for point in points if point.rtt_ms / 2 not in probed], seed)
        have = {(row["point"], row["tool"]) for row in before}
        rows = list(before)
        plan = [(point, tool) for point in points for tool in job["tools"] if (point.name, tool) not in have]
        for number, (point, tool) in enumerate(plan, 1):
            row = compact(run_point(runner, point, tool, job["seconds"], seed), network.counters, point)
            rows.append(row)
            save(rounded(report(rows, points, probes, job["manifest"])), results)
            print(f"[{number:{len(str(len(plan)))}}/{len(plan)}] {point.name:16} {tool:18} {row['text']}", flush=True)
        save(rounded(report(rows, points, probes, job["manifest"])), results)
    except LabError as error:
        print(f"wan: {error}", file=sys.stderr)
        return 1
    finally:
        if runner:
            if isinstance(runner.fabric, WideArea):
                runner.fabric.close()
            runner.close()
    return 0


def check_delays(network: WideArea, points: list[Point], seed: int) -> list[dict[str, Any]]:
    """One row for each round trip: what packets took, beside what they should."""
    rows = []
    for rtt in dict.fromkeys(point.rtt_ms for point in points):
        point = next(one for one in points if one.rtt_ms == rtt)
        network.configure(replace(point, loss_percent=0.0))
        receiver = network.hosts[1]
        row = probe(network.sender.name, receiver.name, receiver.address, rtt / 2, point.rate_bps, PROBES, seed)
        rows.append(row)
        errors = " / ".join(f"{row[name]:.0f}" for name in ("p1_us", "p50_us", "p99_us"))
        came = f"{row['came']} of {row['sent']} packets"
        print(f"delay {row['delay_ms']:g} ms: {came}, error {errors} us (1 / 50 / 99 %)", flush=True)
    return rows


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
