"""What tools are told, and what is read from what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from rostrum.bench import cases, order
from rostrum.bench.cases import MB, base, limited
from rostrum.bench.install import NEEDS
from rostrum.bench.messages.tools import all_tools as message_tools
from rostrum.bench.run import Tool
from rostrum.bench.runner import outcome, turns
from rostrum.bench.tools import all_tools
from rostrum.bench.tools.norm import Norm
from rostrum.bench.tools.rates import Rated
from rostrum.bench.tools.uftp import Uftp, facts
from rostrum.bench.tuning import jobs, settle
from rostrum.lab.processes import bench_programs

from tests.bench.records import failed, record

BOUND_S = 10.0

UFTP_SAID = """\
Starting pass 1
Got 283 NAKs for section 0 from client 0x0a000003
Got 316 NAKs for section 0 from client 0x0a000002
Got 2 NAKs for section 1 from client 0x0a000004
Starting pass 2
Got COMPLETE from client 0x0a000002
Transfer status:
Host: 0x0a000002       Status: Completed   time:   1.010 seconds
Host: 0x0a000003       Status: Completed   time:   1.028 seconds
Host: 0x0a000004       Status: Mute/Lost connection
Total elapsed time: 1.028 seconds
"""


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    return all_tools(tmp_path)


def test_uftp__who_is_complete_and_what_was_asked_for_again() -> None:
    assert facts(UFTP_SAID) == {"complete": 2, "repaired": 601}
    assert facts("") == {"complete": 0, "repaired": 0}


def test_every_tool_of_the_plans_exists(tools: dict[str, Tool]) -> None:
    assert set(tools) == set(cases.EVERY)
    assert all(tool.name == name and tool.timed for name, tool in tools.items())
    groups = {*(tool.needs for tool in message_tools(Path()).values()), *order.NEEDS.values()}
    assert set(NEEDS) <= {*cases.PEERS, *groups}


def test_no_plan_asks_for_what_cannot_be(tools: dict[str, Tool]) -> None:
    """Whatever the machine: a tool that never fits a case has no place in the plan."""
    able = {"tcp-bbr", "tcp-cubic", "http", "aeron"}  # these depend on the machine
    for turn in [*turns(cases.quick(), 1), *turns(cases.full(1), 1)]:
        assert turn.tool in able or tools[turn.tool].unfit(turn.case) == "", turn


def test_unfit_tools_say_why(tools: dict[str, Tool]) -> None:
    assert "repairs nothing" in tools["raw-udp"].unfit(base(9000, loss_percent=1.0))
    assert "passes the limit" in tools["rostrum-xdp"].unfit(limited(9000, 0.0, MB))
    assert "no Aeron" in tools["aeron"].unfit(base(9000))


def test_rates__a_limited_link_is_filled_nearly() -> None:
    assert Uftp().rate_bps(limited(1500, 0.0, MB)) == 291_000_000
    assert Uftp().candidates(limited(1500, 0.0, MB)) == ()


def test_tuning__each_network_once() -> None:
    found = jobs(cases.full(5), ["uftp"])
    assert [(tool, case.mtu, case.offload, case.loss_percent, case.receivers) for tool, case in found] == [
        ("uftp", mtu, offload, 0.0, 3) for mtu in (1500, 9000) for offload in (False, True)
    ]


def test_tuning__the_best_rate_is_taken() -> None:
    norm = Norm()
    case = base(9000)
    before = norm.rate_bps(case)
    trials = [
        {**record(case, "norm", 2.0), "tuning": 1_000_000_000},
        {**record(case, "norm", 1.5), "tuning": 1_700_000_000},
        {**failed(case, "norm", "timeout", "collapsed"), "tuning": 9_000_000_000},
    ]
    best = settle({"norm": norm}, trials)
    assert norm.rate_bps(case) == 1_700_000_000 != before
    assert best == {("norm", 9000, False): pytest.approx(case.size * 8 / 1.5)}
    assert norm.rate_bps(base(9000, offload=True)) == before


def test_rated_tools_know_rates_for_both_mtus(tools: dict[str, Tool]) -> None:
    rated = [tool for tool in tools.values() if isinstance(tool, Rated)]
    assert {tool.name for tool in rated} == {"uftp", "norm", "pgm"}
    assert all(len(tool.candidates(base(mtu))) >= 3 for tool in rated for mtu in (1500, 9000))


def test_copies_without_a_digest_end_their_connections():
    """The file cannot be digested: whoever sends copies of it says so, and does not wait for the digest for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile() as empty:
        server.settimeout(BOUND_S)
        target = f"127.0.0.1:{server.getsockname()[1]}"
        argv = [str(bench_programs() / "copies"), "send", "--check", "--file", empty.name, target]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as sender:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(BOUND_S)
                assert peer.recv(1) == b""
            _, text = sender.communicate(timeout=BOUND_S)
    assert sender.returncode == 1
    assert "cannot map the file" in text and "the digest" in text


def test_how_far_processors_are_from_each_other():
    own = sorted(os.sched_getaffinity(0))

    def said(processors: str) -> int:
        argv = ["taskset", "-c", processors, str(bench_programs() / "cores")]
        return int(subprocess.run(argv, capture_output=True, check=True, timeout=BOUND_S).stdout)

    assert said(str(own[0])) == 0
    assert (said(",".join(map(str, own))) > 0) == (len(own) > 1)


def test_a_run_says_how_far_they_were():
    assert "cores" not in outcome(record(base(9000), "rostrum"))
    assert outcome(record(base(9000), "rostrum") | {"cores_ns": [53, 320]}).endswith(", cores 53, 320 ns")
