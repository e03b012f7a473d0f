"""The bench of the manager: its load generator, and a case from start to figures."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from rostrum.bench.manager import cases, frames
from rostrum.bench.manager.commands import manager
from rostrum.controller.northbound.thrift.codec import decode, encode, idl


def test_frames__are_what_the_manager_understands() -> None:
    head, tail = frames.request("h1", ["h2", "h3"], 1000)
    method, args = decode("Manager", (head + frames.request_id(77) + tail)[4:])
    assert method == "request" and args.request.request_id == f"{77:012x}" and args.request.receivers == ["h2", "h3"]
    method, args = decode("Manager", frames.release(frames.request_id(77), b"p-abc-12")[4:])
    assert method == "release" and (args.request_id, args.response_id) == (f"{77:012x}", "p-abc-12")


def test_frames__of_the_manager_are_read_whole_or_kept_for_later() -> None:
    response = idl.PathResponse(request_id=f"{5:012x}", response_id="p-ab-1", decision=frames.QUEUED, reason="x")
    frame = encode("Agent", "response", {"response": response})
    other = encode("Agent", "light", {"response_id": "p-ab-1"})
    found, rest = frames.answers(frame + other + frame + frame[:20])
    assert found == [(frames.request_id(5), b"p-ab-1", frames.QUEUED)] * 2
    assert frames.answers(rest + frame[20:]) == (found[:1], b"")


def test_cases__have_names_of_their_own_and_the_paper_s_size() -> None:
    names = [case.name for case in cases.full()]
    assert len(names) == len(set(names)) and {case.name for case in cases.quick()} >= {"thrift-40", "thrift-10000"}
    assert cases.PAPER.servers == 40 and sum(cases.PAPER.receivers) / 2 == 16


def test_command__writes_the_figures_of_each_case(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    only = [word for name in ("echo", "thrift-40", "rest-40") for word in ("--only", name)]
    text = ["--quick", "--seconds", "0.3", "--json", str(file), *only]
    done = CliRunner().invoke(manager, text)
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    for row in report["cases"]:
        assert row["servers"] == 40 and 14 < row["receivers_mean"] < 18
        assert row["requests_per_s"] > 0 and row["p99_ms"] >= row["p50_ms"] > 0
        assert row["manager_cpu_us"] > 0 and row["denied"] == 0
    assert report["manifest"]["seed"] == 1
    assert "thrift-40" in file.with_suffix(".md").read_text()
