"""Traces through the manager's core in virtual time."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rostrum.controller.core import schedulers
from rostrum.controller.core.values import Settings
from rostrum.sim import workload
from rostrum.sim.commands import sim
from rostrum.sim.experiments.schedulers import COLUMNS, completion_s, run_all, summary, table
from rostrum.sim.flows import Flows
from rostrum.sim.replay import RULES_NS, YEAR_NS, Replay, Result
from rostrum.sim.workload import BadTrace, Demand
from rostrum.topologies import load

HYBRID = load("hybrid-4x2")  # 1 Gbit/s everywhere, 70 ms to reconfigure
S = 10**9
GBIT = 125_000_000  # bytes that 1 Gbit/s carries in a second
LONG = Settings(lease_ns=100 * YEAR_NS, wait_ns=100 * YEAR_NS, wait_max_ns=100 * YEAR_NS, circuit_wait_ns=100 * YEAR_NS)


def replay(*demands: Demand, **settings: object) -> Result:
    return Replay(HYBRID, replace(LONG, **settings)).run(demands)  # type: ignore[arg-type]


def test_one__takes_the_reconfiguration_and_its_bytes_at_line_rate() -> None:
    only = replay(Demand(0, "h1", ("h3", "h5"), GBIT)).outcomes[0]
    assert only.done == 70_000_000 + S
    assert (only.first_grant, only.sessions, only.reused, only.packet) == (0, 1, 0, 0)


def test_live_circuit__is_used_again_without_reconfiguration() -> None:
    first, second = replay(Demand(0, "h1", ("h3", "h5"), GBIT), Demand(2 * S, "h1", ("h3", "h5"), GBIT)).outcomes
    assert first.done == S + 70_000_000
    assert second.reused == 1 and second.done == 3 * S


def test_sender__shares_its_port_between_two_paths() -> None:
    """One over the circuit, one inside the rack: each at half the NIC's rate while both last."""
    circuit, local = replay(Demand(0, "h1", ("h3",), GBIT), Demand(70_000_000, "h1", ("h2",), GBIT)).outcomes
    assert local.packet == 1
    assert local.done == pytest.approx(70_000_000 + 2 * S, abs=3 * RULES_NS)
    assert circuit.done == pytest.approx(70_000_000 + 2 * S, abs=3 * RULES_NS)


def test_partial_acceptance__the_rest_waits_behind_another_and_nothing_is_lost() -> None:
    large, small = replay(
        Demand(0, "h1", ("h3",), 4 * GBIT),
        Demand(1, "h2", ("h3",), GBIT // 10),
        scheduler="quantum",
        session_bytes=GBIT,
    ).outcomes
    assert large.sessions == 4
    assert small.first_grant < large.done
    assert small.done < 2 * S


def test_never_possible__is_denied_with_the_reason() -> None:
    refused = Replay(HYBRID, replace(LONG, queue_max=0)).run([Demand(0, "h1", ("h3",), 1)]).outcomes[0]
    assert refused.done < 0 and "waiting" in refused.denied


@pytest.mark.parametrize("name", sorted(schedulers.BUILT_IN))
def test_scheduler__serves_every_demand_and_the_same_again(name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"{name}: seed {seed}")
    demands = workload.generate(HYBRID, 80, 0.8, seed)
    first, again = (run_all(HYBRID, demands, [name], None)[name] for _ in range(2))
    assert all(one.done >= one.demand.at for one in first.outcomes)
    assert first == again
    assert 0 < summary(first, HYBRID)["utilisation"] <= 1


@pytest.mark.parametrize("all_stop", [False, True])
def test_split__every_receiver_gets_every_byte_once_whatever_is_preempted(all_stop: bool) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    demands = workload.generate(HYBRID, 60, 2.0, seed)  # long waits: some are split
    for quantum in (None, 64 << 20):
        outcomes = run_all(HYBRID, demands, ["split"], quantum, all_stop)["split"].outcomes
        assert all(one.delivered == dict.fromkeys(one.demand.receivers, one.demand.size) for one in outcomes)
        assert all(one.done >= one.demand.at and not one.denied for one in outcomes)


def test_all_stop__a_reconfiguration_darkens_the_other_circuits() -> None:
    demands = [Demand(0, "h1", ("h3",), GBIT), Demand(S // 2, "h5", ("h7",), GBIT)]
    done = {stop: Replay(HYBRID, LONG, all_stop=stop).run(demands).outcomes[0].done for stop in (False, True)}
    assert done == {False: S + 70_000_000, True: S + 140_000_000}


def test_srt__has_a_lower_mean_than_fifo_under_load() -> None:
    demands = workload.generate(HYBRID, 200, 0.9, 3)
    results = run_all(HYBRID, demands, ["fifo", "srt"], None)
    means = {name: sum(completion_s(result.outcomes)) for name, result in results.items()}
    assert means["srt"] < 0.8 * means["fifo"]


def test_flows__share_the_slowest_link_and_speed_up_when_it_is_free() -> None:
    flows = Flows({("a", 0): 8 * 10**9, ("b", 0): 2 * 10**9})
    flows.begin("x", [("a", 0), ("b", 0)], 10**9, 0)
    flows.begin("y", [("b", 0)], 10**9, 0)
    assert flows.next_end() == (8 * S, "x")
    flows.end("y", 4 * S)
    assert flows.next_end() == (6 * S, "x")


def test_workload__load_is_the_share_of_the_ports_asked_for() -> None:
    demands = workload.generate(HYBRID, 4000, 0.5, 7)
    owed = sum(one.size * len(workload.remote_racks(HYBRID, one.sender, one.receivers)) for one in demands)
    assert owed * 8 / (demands[-1].at / S) / 4e9 == pytest.approx(0.5, rel=0.1)
    assert all(workload.remote_racks(HYBRID, one.sender, one.receivers) for one in demands)


def test_trace__is_read_as_it_was_written(tmp_path: Path) -> None:
    demands = workload.generate(HYBRID, 30, 0.5, 7)
    file = tmp_path / "trace.jsonl"
    workload.write(file, demands)
    assert workload.read(file, HYBRID) == demands


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"at_ms": 1, "sender": "h1", "receivers": ["h1"], "bytes": 1}', "without the sender"),
        ('{"at_ms": 1, "sender": "h1", "receivers": ["x9"], "bytes": 1}', "x9: no such server in topology hybrid-4x2"),
        ('{"at_ms": -1, "sender": "h1", "receivers": ["h2"], "bytes": 1}', "at_ms"),
        ('{"at_ms": 1, "sender": "h1", "receivers": ["h2"]}', "bytes"),
        ("not json", "line 2"),
        ("", "has no requests"),
    ],
)
def test_trace__that_is_wrong_is_told_by_line(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(BadTrace, match=text) as error:
        workload.read(file, HYBRID)
    assert '"at_ms": 12.5' in str(error.value)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["at_ms", "sender", "receivers", "bytes"]), x)))  # fmt: skip
def test_trace__garbage_is_an_error_with_a_reason(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    file = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    file.write_text(json.dumps(value) + "\n")
    with pytest.raises(BadTrace):
        workload.read(file, HYBRID)


def test_command__writes_figures_and_a_picture(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    workload.write(trace, workload.generate(HYBRID, 20, 0.5, 7))
    figures, png = tmp_path / "out" / "s.json", tmp_path / "out" / "s.png"
    arguments = ["run", "schedulers", "--trace", str(trace), "--topology", "hybrid-4x2"]
    done = CliRunner().invoke(sim, [*arguments, "--json", str(figures), "--png", str(png)])
    assert done.exit_code == 0, done.output
    report = json.loads(figures.read_text())
    assert set(report["summary"]) >= set(schedulers.BUILT_IN)
    assert report["summary"]["srt"]["served"] == 20
    assert report["manifest"]["parameters"]["trace"] == "trace.jsonl"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_command__unknown_names_are_told() -> None:
    wrong = CliRunner().invoke(sim, ["run", "schedulers", "--scheduler", "magic", "--quick"])
    assert wrong.exit_code == 1 and "no scheduler 'magic'" in wrong.output and "srt" in wrong.output
    wrong = CliRunner().invoke(sim, ["run", "nothing"])
    assert wrong.exit_code == 1 and "schedulers" in wrong.output
    assert "schedulers" in CliRunner().invoke(sim, ["list"]).output


def test_broadcast__writes_the_figures_of_each_case(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    text = [
        "run",
        "broadcast",
        "-n",
        "3",
        "-n",
        "25",
        "--loss",
        "0",
        "--loss",
        "1",
        "--size",
        "4M",
        "--json",
        str(file),
    ]
    done = CliRunner().invoke(sim, text)
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert {(row["receivers"], row["loss_percent"]) for row in report["runs"]} == {(3, 0), (3, 1), (25, 0), (25, 1)}
    assert all(row["over_ideal"] > 1 and row["packets_over_fragments"] >= 1 for row in report["runs"])
    assert set(report["summary"]) == {"0", "1"} and set(report["summary"]["1"]) == {"3", "25"}


def test_broadcast__many_receivers_cost_the_sender_little(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    fields = ["run", "broadcast", "-n", "200", "--loss", "0", "--loss", "0.1", "--size", "32M", "--json"]
    done = CliRunner().invoke(sim, [*fields, str(file)])
    assert done.exit_code == 0, done.output
    rows = {(row["receivers"], row["loss_percent"]): row for row in json.loads(file.read_text())["runs"]}
    assert rows[200, 0]["over_ideal"] < 1.25 and rows[200, 0.1]["over_ideal"] < 1.5
    opened = 10 * 200  # what each receiver says once: accepted, light, whole, and some of TCP's room
    reports = rows[200, 0.1]["sender_control_received"] - opened
    assert reports < 20_000 * rows[200, 0.1]["seconds"]
    assert rows[200, 0.1]["patches"] < 200


def test_broadcast__the_window_of_a_fast_path_opens_at_once(tmp_path: Path) -> None:
    """Seven speakers are asked every 0.35 ms, in which 100 Gbit/s carries more than the first windows hold. The last
    packet of a window waits until it may ask; a report that comes before then must let it go."""
    file = tmp_path / "figures.json"
    fields = ["run", "broadcast", "-n", "100", "--loss", "0", "--rate", "100G", "--size", "64M", "--json", str(file)]
    result = CliRunner().invoke(sim, fields)
    assert result.exit_code == 0, result.output
    (run,) = json.loads(file.read_text())["runs"]
    assert run["over_ideal"] < 2  # 1.58; the other way 6.6


@pytest.mark.parametrize("where", ["core", "all"])
def test_broadcast__core_links_lose(where: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    text = ["run", "broadcast", "-n", "60", "--loss", "0.1", "--loss-on", where, "--size", "16M", "--json", str(file)]
    done = CliRunner().invoke(sim, text)
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert report["manifest"]["parameters"]["loss_on"] == where and report["runs"][0]["over_ideal"] > 1


def test_table__is_whole_in_80_columns() -> None:
    names = ("best-effort", "quantum", "fewest-racks")
    shares = {"utilisation": 0.52, "reused": 0.1, "split": 0.0}
    rows = {name: dict.fromkeys(COLUMNS, 1234.5) | shares for name in names}
    shown = io.StringIO()
    Console(file=shown, width=80).print(table(rows))
    assert all(f"{name} " in shown.getvalue() for name in names) and "…" not in shown.getvalue(), shown.getvalue()
