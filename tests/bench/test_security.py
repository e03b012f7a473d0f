"""What `rostrum bench security` makes of what it measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from rostrum.bench import cases
from rostrum.bench.cases import PARTS
from rostrum.bench.manager import handshakes
from rostrum.bench.messages.cases import MessageCase
from rostrum.bench.messages.tools import SECURITY
from rostrum.bench.run import Run
from rostrum.bench.security import (
    HEAD,
    PLAIN,
    SECURE,
    SIGNED,
    extra_s,
    limited_bound,
    line,
    middle,
    plan,
    summarize,
    summarize_messages,
)
from rostrum.bench.tools.parts import Parts
from rostrum.lab.processes import bench_programs

FACTS = {"seal_ns": 2000.0, "open_ns": 3000.0, "sha256_ns_per_byte": 0.5}


def run(case: cases.Case, tool: str, time_s: float, cpu_s: float) -> dict[str, Any]:
    described = {name: getattr(case, name) for name in case.__dataclass_fields__} | {"name": case.name}
    return {"case": described, "tool": tool, "time_s": time_s, "sender_s": cpu_s / 2, "receivers_s": cpu_s / 2,
            "sender_softirq_s": None, "receivers_softirq_s": 0.0, "machine_s": cpu_s, "others_s": 0.0,
            "facts": FACTS | {"ms": {"high_rate": 10 * time_s}}}  # fmt: skip


def test_arithmetic__counts_every_end_by_what_was_measured_beside_the_runs() -> None:
    case = cases.base(9000, size=8896 * 1000)
    slow = {"facts": {name: 9 * value for name, value in FACTS.items()}}
    parts = [{"facts": FACTS}, slow, {"facts": FACTS}]
    assert extra_s(case, parts) == pytest.approx(1000 * (2e-6 + 3 * 3e-6) + 8896 * 1000 * 4 * 0.5e-9)


def test_summary__leaves_out_the_runs_that_others_disturbed() -> None:
    case = cases.base(9000, rate_bps=300_000_000, size=1000)
    rows = [run(case, tool, 1.0, 1.0) for tool in (PLAIN, SECURE) for _ in range(5)]
    late = 0.11 * (os.cpu_count() or 1) * 2.0
    rows[0] |= {"time_s": 2.0, "others_s": late}
    rows[1] |= {"time_s": 2.0, "others_s": late}
    assert (summarize(rows)["limited_ratio"], summarize(rows)["disturbed"]) == (1.0, 2)
    rows[2] |= {"time_s": 2.0, "others_s": late}  # most: what is left would say little
    assert (summarize(rows)["limited_ratio"], summarize(rows)["disturbed"]) == (2.0, 0)


def test_bound__is_what_the_bytes_of_seals_leave() -> None:
    assert limited_bound(9000) == pytest.approx((8896 + 74) / (8896 + 74 + 28))
    assert 0.98 < limited_bound(1500) < 0.9812


def test_parts__come_from_the_agents_own_code_on_all_processors() -> None:
    started: list[list[str]] = []

    class Here:
        """A run without namespaces."""

        case, programs_folder, receivers, facts = cases.base(1500), bench_programs(), [None], {}

        def start(self, side: str, host: None, argv: list[str]) -> str:
            started.append(argv)
            return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

        def wait(self, program: str) -> str:
            return program

    run = cast("Run", Here())
    Parts().send(run)
    assert len(started) == min(os.cpu_count() or 1, 4) and {argv[-1] for argv in started} == {"1500"}
    assert set(run.facts) == set(FACTS) and all(value > 0 for value in run.facts.values())


def test_summary__says_what_the_issue_is_about() -> None:
    entries = plan(quick=True, rounds=6)
    limited, free = [e for e in entries if e.case.rate_bps], [e for e in entries if not e.case.rate_bps]
    assert all(entry.tools == (PLAIN, SECURE) and entry.repeat == 6 for entry in limited)
    assert all(entry.tools[:3] == (PLAIN, SECURE, PARTS) and entry.repeat == 6 for entry in free)
    assert [entry.tools[3:] for entry in entries].count((SIGNED,)) == 1
    runs = []
    for entry in entries:
        slower = 1.25 if entry.case.rate_bps and entry.case.mtu == 9000 else 2.0
        runs += [run(entry.case, PLAIN, 1.0, 1.0), run(entry.case, SECURE, slower, 3.0)]
        runs += [run(entry.case, tool, 4.0, 3.0) for tool in entry.tools[2:]]
    found = summarize(runs)
    assert found["limited_busy_9000"] == pytest.approx(3.0 / 1.25 / (os.cpu_count() or 1))
    assert (found["setup_ms_plain_9000"], found["setup_ms_secure_9000"]) == (10.0, 12.5)
    assert found["limited_ratio_9000"] == pytest.approx(0.8) and found["limited_ratio"] == pytest.approx(0.5)
    for mtu in (9000, 1500):
        assert found[f"share_of_arithmetic_{mtu}"] == pytest.approx(0.5 / found[f"arithmetic_{mtu}"])
        assert 0 < found[f"arithmetic_{mtu}"] < 1
        assert found[f"share_of_arithmetic_cpu_{mtu}"] == pytest.approx(1 / found[f"arithmetic_{mtu}"] / 3)
    assert found["signed_ratio_9000"] == pytest.approx(0.25) and "signed_ratio_1500" not in found


def test_line__has_a_part_for_the_packet_and_one_for_each_byte() -> None:
    rows = [{"payload": 3000, "ns": 700.0}, {"payload": 1000, "ns": 300.0}]
    assert line(rows, "ns", 1000) == pytest.approx(300) and line(rows, "ns", 500) == pytest.approx(200)


def test_middle__is_the_median_of_each_figure() -> None:
    def once(ns: float) -> dict[str, Any]:
        return {"cipher": "x", "seals": {9000: {"mtu": 9000, "payload": 8896, "seal_ns": ns}},
                "signs": [{"batch": 64, "sign_ns": 2 * ns}], "sha256_ns_per_byte": ns / 1000}  # fmt: skip

    assert middle([once(100), once(900), once(200)]) == once(200)


def test_summary__of_messages_takes_the_runs_that_came_through() -> None:
    case = MessageCase(0, 0.0, 1000)
    described = {"count": case.count, "receivers": case.receivers, "bytes": case.bytes}
    rates, runs = dict(zip(SECURITY, (1000.0, 500.0, 250.0), strict=True)), []
    for tool, rate in rates.items():
        good = {"case": described, "tool": tool, "outcome": "ok", "messages_per_s": rate, "sender_s": 1e-3,
                "receivers_s": 3e-3}  # fmt: skip
        runs += [good, {**good, "outcome": "incomplete", "messages_per_s": 1.0}]
    flat = [{"payload": size, "seal_ns": 500.0, "open_ns": 500.0} for size in (100, 9000)]
    signs = [{"batch": batch, "payload": size, "sign_ns": 1000.0 * batch, "verify_ns": 1000.0 * batch}
             for batch in (1, 2) for size in (1024 + HEAD, 9000)]  # fmt: skip
    found = summarize_messages(runs, {"seals": dict(enumerate(flat)), "signs": signs})
    assert found["messages_ratio"] == 0.5 and found["messages_signed_ratio"] == 0.25
    assert found["messages_arithmetic"] == pytest.approx(4 / (4 + 2))  # ms: 4 of each run, 4 times 0.5 us by 1000
    assert found["messages_signed_arithmetic"] == pytest.approx(4 / (4 + 2 + 8))
    assert found["messages_share_of_arithmetic"] == pytest.approx(0.5 / (4 / 6))


def test_handshakes__are_those_of_a_manager_that_requires_them(tmp_path: Path) -> None:
    found = handshakes.measure(tmp_path / "agents", 40)
    assert (found["agents"], found["keys"]) == (40, 40 * 39)
    assert found["handshakes_s"] > 0 and found["keys_s"] > 0


def test_bench_without_cryptography__works_but_for_what_needs_it() -> None:
    code = """if True:
        import sys
        sys.modules["cryptography"] = None  # as where a package brought what its commands need, and no more
        from click.testing import CliRunner
        from rostrum.bench.commands import bench
        assert CliRunner().invoke(bench, ["--help"]).exit_code == 0
        said = CliRunner().invoke(bench, ["security"])
        assert said.exit_code == 1 and "pip install cryptography" in said.output, said.output
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
