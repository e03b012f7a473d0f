"""The wide-area study: its points, its shares, its verdicts."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.bench.wan.beside import Connection, Seen, settings
from rostrum.bench.wan.commands import command
from rostrum.bench.wan.network import ports
from rostrum.bench.wan.picture import draw
from rostrum.bench.wan.points import FULL, QUICK, Point, grid, resend_factor
from rostrum.bench.wan.report import report
from rostrum.bench.wan.tools import BESIDE, PEERS, TOOLS, all_tools
from rostrum.lab.results import text

BASE = Point(1500, False, 200_000_000, 0.0, 3, 1 << 20)


@pytest.mark.parametrize(("loss", "receivers"), [(0.05, 1), (0.05, 3), (0.3, 10)])
def test_resend_factor__is_what_a_trial_finds(loss: float, receivers: int) -> None:
    draw_one = random.Random(7)

    def sent() -> int:
        missing, count = receivers, 0
        while missing:
            count += 1
            missing = sum(draw_one.random() < loss for _ in range(missing))
        return count

    trial = sum(sent() for _ in range(20_000)) / 20_000
    assert resend_factor(loss, receivers) == pytest.approx(trial, rel=0.01)
    assert resend_factor(0.0, receivers) == 1.0


def test_grid__names_each_point_once_and_has_no_bursts_without_loss() -> None:
    quick, full = list(grid(**QUICK, base=BASE)), list(grid(**FULL, base=BASE))
    assert [point.name for point in quick] == ["0ms/0", "0ms/0.3", "50ms/0", "50ms/0.3"]
    assert len({point.name for point in full}) == len(full) == 5 * (1 + 4 * 2)
    assert "200ms/5x10" in {point.name for point in full}
    marks = grid((50.0,), (0.0,), (1.0,), BASE, (0, 262_144))
    assert [(point.name, point.mark) for point in marks] == [("50ms/0", 0), ("50ms/0+marks", 262_144)]


def test_ports__lose_where_the_point_says() -> None:
    each = Point(1500, False, 200_000_000, 1.0, 2, 1 << 20, rtt_ms=50.0)
    sender, *receivers = ports(each)
    assert sender.lost_up == 0 and sender.up_bps == 200e6 and [one.lost_down for one in receivers] == [0.01, 0.01]
    assert all(one.delay_ms == 25 for one in receivers) and each.ideal_bps < each.rate_bps * each.payload_share * 0.985
    common = Point(1500, False, 200_000_000, 1.0, 2, 1 << 20, common=True)
    sender, *receivers = ports(common)
    assert sender.lost_up == 0.01 and all(one.lost_down == 0 for one in receivers)
    assert common.ideal_bps == pytest.approx(common.rate_bps * common.payload_share * 0.99)


def test_tools__told_and_untold_of_each() -> None:
    tools = all_tools()
    assert set(tools) == {*TOOLS, *BESIDE} and {f"{name}-untold" for name in PEERS} < set(tools)
    assert all(tool.name == name for name, tool in tools.items())


def row(tool: str, share: float, point: str = "50ms/0.3", **more: Any) -> dict[str, Any]:
    return {"point": point, "tool": tool, "share": share, "goodput_bps": share * 180e6, "at_most": False, **more}


def made(rows: list[dict[str, Any]]) -> dict[str, Any]:
    probes = [{"delay_ms": 25.0, "sent": 3, "came": 3, "p1_us": 1.0, "p50_us": 5.0, "p99_us": 60.0}]
    return report(rows, grid(**QUICK, base=BASE), probes, {"commit": "x", "seed": 1, "parameters": {}})


def beside(ours: float, tcp: float) -> dict[str, Any]:
    shared = {"tcp": "cubic", "ours_bps": ours, "tcp_bps": tcp, "ratio": ours / tcp if tcp else None}
    return row("friendly+cubic", ours / (ours + tcp), "50ms/0", outcome="ok", beside=shared)


def without(tool: str, tcp: float, **second: float) -> dict[str, Any]:
    return row(tool, 0.5, "50ms/0", outcome="ok", without={"tcp": "cubic", "tcp_bps": tcp, **second})


def test_report__neither_ours_nor_tcp_may_have_more_than_twice_the_other() -> None:
    shared = [beside(*pair) for pair in ((60e6, 110e6), (60e6, 130e6), (9e7, 4e7), (9e7, 0.0))]
    assert [one["holds"] for one in made(shared)["verdicts"]] == [True, False, False, False]


@pytest.mark.parametrize(
    ("ours", "tcp", "alone", "holds"),
    [(90e6, 40e6, 79e6, True), (90e6, 40e6, 81e6, False), (40e6, 90e6, 90e6, False), (90e6, 0.0, 0.0, False)],
)
def test_report__a_tcp_that_uses_no_more_alone_is_not_harmed(
    ours: float, tcp: float, alone: float, holds: bool
) -> None:
    """Ours beside a CUBIC that marks of its own bursts kept at 20 of 200 Mbit/s was told to leave 160 idle."""
    (verdict,) = made([beside(ours, tcp), without("cubic-alone", alone)])["verdicts"]
    assert verdict["holds"] == holds and verdict["found"] == (ours / tcp if tcp else None), verdict
    assert verdict["tcp_of_alone"] == (tcp / alone if alone else None), verdict


def test_report__tells_what_a_second_tcp_would_leave_to_the_first() -> None:
    rows = [beside(90e6, 40e6), without("cubic-alone", 60e6), without("cubic+cubic", 30e6, second_bps=20e6)]
    (verdict,) = made(rows)["verdicts"]
    assert verdict["says"] == "TCP has 40.0 Mbit/s, 0.67 of its 60.0 alone, 30.0 beside a second, which has 20.0"


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("started", "full", "warm"),
    [(1.0, 0.0, 4.0), (6.0, 0.0, 9.0), (1.0, 5.0, 10.0), (1.0, 99.0, 20.0), (99.0, 0.0, 20.0)],
)
def test_warm__until_slow_start_is_over_and_the_link_is_full(
    monkeypatch: pytest.MonkeyPatch, started: float, full: float, warm: float
) -> None:
    """After 3 s ours met a CUBIC whose slow start was about to overflow the queue, and was said to have harmed it."""
    clock = Clock()
    monkeypatch.setattr("rostrum.bench.wan.beside.time", clock)
    monkeypatch.setattr(Connection, "start", lambda _: None)

    def seen(_: Connection) -> Seen:
        carried = 0.3 * clock.now + 0.7 * max(0.0, clock.now - full)  # seconds of the link
        return Seen(int(BASE.rate_bps / 8 * carried), clock.now >= started)

    monkeypatch.setattr(Connection, "seen", seen)
    connection = Connection.__new__(Connection)
    connection._run = SimpleNamespace(case=BASE)  # type: ignore[assignment]
    assert connection.warm() == warm


def test_seen__of_what_ss_tells() -> None:
    text = "ESTAB 0 0 10.9.0.1:4 10.9.0.2:7101\n\t cubic rto:304 cwnd:448 {}bytes_sent:9 bytes_acked:812 segs_out:3"
    assert Seen.of(text.format("ssthresh:448 ")) == Seen(812, True) and Seen.of(text.format("")) == Seen(812, False)
    assert Seen.of("") is None


def test_settings__of_a_tcp_beside_ours_ask_for_marks_where_a_switch_gives_them() -> None:
    """Linux's asks for none by itself: ours gave way to marks of a queue that TCP filled without an end."""
    marks = Point(1500, False, 200_000_000, 0.0, 3, 1 << 20, mark=262_144)
    assert settings(marks)["tcp_ecn"] == "1" and settings(BASE)["tcp_ecn"] == "2"


def test_report__verdicts_hold_only_if_ours_is_good_and_ahead(tmp_path: Path) -> None:
    good = made([row("rostrum", 0.96), row("uftp", 0.5), row("norm", 0.9), row("norm-untold", 0.1)])
    assert good["summary"]["share"]["50ms/0.3"]["rostrum"] == 0.96 and good["summary"]["missed"] == 0
    draw(made([*good["runs"], row("uftp", 0.5, "200ms/1")]), tmp_path / "wan.svg")  # of another grid, by --resume
    assert (tmp_path / "wan.svg").stat().st_size > 1000 and len(text(good).splitlines()) < 40
    behind = made([row("rostrum", 0.96), row("tcp-bbr", 0.97), row("uftp-untold", 0.4)])
    missed = {one["name"] for one in behind["verdicts"] if not one["holds"]}
    assert missed == {"50ms/0.3 over tcp-bbr", "50ms/0.3 over the best multicast tool untold"}


def test_report__of_a_tool_that_was_given_up_says_at_most() -> None:
    summary = made([row("rostrum", 0.96), row("norm-untold", 0.02, at_most=True)])["summary"]
    assert summary["at_most"] == ["50ms/0.3 norm-untold"]


def test_report__figures_2_and_3_from_the_told_tools() -> None:
    rows = [row("norm", 0.9, "0ms/0.3"), row("norm", 0.6), row("uftp", 0.9, "50ms/0"), row("uftp", 0.89)]
    held = {one["name"]: one["holds"] for one in made(rows)["verdicts"]}
    assert held == {"Fig. 2: norm falls with round trip": True, "Fig. 3: uftp falls with loss": False}


@pytest.mark.parametrize("marks", ["256K,1", "much", "256K,"])
def test_marks__that_are_none_say_so(marks: str) -> None:
    done = CliRunner().invoke(command, ["--with-tcp", "--mark", marks])
    assert done.exit_code == 2 and ("is less than 10000" in done.output or "is not a size" in done.output), done.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b'{"runs": [{"tool": "rostr', "cannot be read as JSON"),
        (b"\xff\x00", "cannot be read as JSON"),
        (b"[]", "holds no figures of lab run wan"),
        (b'{"runs": [], "probes": []}', "holds no figures of lab run wan"),
        (b'{"runs": [], "probes": [], "manifest": null}', "holds no figures of lab run wan"),
    ],
)
def test_resume__of_a_file_that_is_none_says_so(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "wan.json"
    file.write_bytes(content)
    done = CliRunner().invoke(command, ["--quick", "--resume", "--json", str(file)])
    assert done.exit_code == 1 and said in done.output and str(file) in done.output.replace("\n", ""), done.output
    assert file.read_bytes() == content
