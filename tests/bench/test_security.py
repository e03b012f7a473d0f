"""What `rostrum bench security` makes of what it measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rostrum.bench import cases
from rostrum.bench.manager import handshakes
from rostrum.bench.messages.cases import MessageCase
from rostrum.bench.messages.tools import SECURITY
from rostrum.bench.security import HEAD, PLAIN, SECURE, SIGNED, extra_s, line, plan, summarize, summarize_messages

PARTS = {"seals": {9000: {"seal_ns": 2000.0, "open_ns": 3000.0}, 1500: {"seal_ns": 500.0, "open_ns": 500.0}},
         "sha256_ns_per_byte": 0.5}  # fmt: skip


def run(case: cases.Case, tool: str, time_s: float, cpu_s: float) -> dict[str, Any]:
    described = {name: getattr(case, name) for name in case.__dataclass_fields__} | {"name": case.name}
    return {"case": described, "tool": tool, "time_s": time_s, "sender_s": cpu_s / 2, "receivers_s": cpu_s / 2,
            "sender_softirq_s": None, "receivers_softirq_s": 0.0}  # fmt: skip


def test_arithmetic__counts_every_end() -> None:
    case = cases.base(9000, size=8896 * 1000)
    assert extra_s(case, PARTS) == pytest.approx(1000 * (2e-6 + 3 * 3e-6) + 8896 * 1000 * 4 * 0.5e-9)


def test_summary__says_what_the_issue_is_about() -> None:
    entries = plan(quick=True, rounds=3)
    assert all(entry.tools[:2] == (PLAIN, SECURE) and entry.repeat == 3 for entry in entries)
    assert [entry.tools[2:] for entry in entries].count((SIGNED,)) == 1
    runs = []
    for entry in entries:
        slower = 1.25 if entry.case.rate_bps and entry.case.mtu == 9000 else 2.0
        runs += [run(entry.case, PLAIN, 1.0, 1.0), run(entry.case, SECURE, slower, 3.0)]
        runs += [run(entry.case, tool, 4.0, 3.0) for tool in entry.tools[2:]]
    found = summarize(runs, PARTS)
    assert found["limited_ratio_9000"] == pytest.approx(0.8) and found["limited_ratio"] == pytest.approx(0.5)
    for mtu in (9000, 1500):
        assert found[f"share_of_arithmetic_{mtu}"] == pytest.approx(0.5 / found[f"arithmetic_{mtu}"])
        assert 0 < found[f"arithmetic_{mtu}"] < 1
        assert found[f"share_of_arithmetic_cpu_{mtu}"] == pytest.approx(1 / found[f"arithmetic_{mtu}"] / 3)
    assert found["signed_ratio_9000"] == pytest.approx(0.25) and "signed_ratio_1500" not in found


def test_line__has_a_part_for_the_packet_and_one_for_each_byte() -> None:
    rows = [{"payload": 3000, "ns": 700.0}, {"payload": 1000, "ns": 300.0}]
    assert line(rows, "ns", 1000) == pytest.approx(300) and line(rows, "ns", 500) == pytest.approx(200)


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
