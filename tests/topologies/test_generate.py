"""The generator of hybrid topologies, and the command around loader and generator."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rostrum.topologies import load, load_text
from rostrum.topologies.__main__ import main
from rostrum.topologies.generate import Hybrid, hybrid


def test_defaults_are_the_shipped_topology() -> None:
    assert load_text(hybrid(Hybrid())) == load("hybrid-4x2")


@settings(max_examples=40, deadline=None)
@given(
    racks=st.integers(2, 12),
    servers=st.integers(1, 60),
    splitters=st.integers(0, 6),
    fanout=st.integers(2, 9),
    spare=st.integers(0, 20),
    dialect=st.sampled_from(["glimmerglass", "polatis"]),
)
def test_whatever_it_generates_loads(racks, servers, splitters, fanout, spare, dialect) -> None:
    ports = max(2, racks + max(splitters * fanout, splitters) + spare)
    topology = load_text(hybrid(Hybrid(racks, servers, ports, splitters, fanout, "10G", 1500, 20, dialect)))
    assert len(topology.servers) == racks * servers
    assert len(topology.ocs["ocs"].splitters) == splitters
    assert topology.emulation.reconfiguration.mean_s == topology.ocs["ocs"].reconfiguration_s == 0.02


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (Hybrid(racks=0), "0 racks"),
        (Hybrid(servers=999), "999 servers"),
        (Hybrid(ocs_ports=8), "need an OCS of 20 ports, not 8"),
        (Hybrid(fanout=1), "fan-out of 2"),
    ],
)
def test_what_does_not_fit_is_said(size: Hybrid, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        hybrid(size)


def test_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(main, ["generate", "hybrid", "--racks", "3", "--servers", "1", "--name", "tiny"])
    assert made.exit_code == 0
    file = tmp_path / "tiny.yaml"
    file.write_text(made.output)
    checked = run(main, ["check", str(file)])
    assert checked.exit_code == 0 and checked.output.startswith("tiny: 3 servers, 4 switches")
    file.write_text(made.output.replace("10.0.1.1", "10.0.2.1"))
    refused = run(main, ["check", str(file)])
    assert refused.exit_code != 0 and "already that of servers.h1.address" in refused.output
    assert run(main, ["generate", "hybrid", "--ocs-ports", "2"]).exit_code != 0
    assert "hybrid-4x2" in run(main, ["list"]).output


@pytest.mark.parametrize(("kind", "p4"), [("openflow", 0), ("p4", 4), ("mixed", 3)])
def test_command__switches_of_a_kind(kind: str, p4: int) -> None:
    done = CliRunner().invoke(main, ["generate", "hybrid", "--racks", "3", "--switches", kind])
    assert done.exit_code == 0, done.output
    assert sum(one.p4 is not None for one in load_text(done.output).switches.values()) == p4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["hybrid", "--rate", "1X"], "--rate: '1X' is not a rate; write bit/s as a number with k, M, G or T"),
        (["hybrid", "--rate", "1G}"], "--rate: '1G}' is not a rate"),
        (["hybrid", "--rate", "0.1"], "rates from 1k to 10T"),
        (["hybrid", "--mtu", "1"], "network.mtu: 1 "),
        (["hybrid", "--reconfiguration-ms", "-1"], "reconfiguration_ms: -1 "),
        (["hybrid", "--reconfiguration-ms", "nan"], "reconfiguration_ms"),
        (["hybrid", "--ocs-ports", "1000000"], "ocs.ocs.ports: 1000000 "),
        (["hybrid", "--name", "a b: c"], "--name: 'a b: c' is no name"),
        (["hybrid", "--name", "tiny\nagent: {}"], "--name: "),
        (["hybrid", "--switches", "p4", "--mtu", "-3"], "network.mtu: -3 "),
        (["fat-tree", "4", "--rate", "1X"], "--rate: '1X' is not a rate"),
        (["fat-tree", "3"], "k is even"),
        (["bcube", "9", "999999999"], "nodes not too many"),
        (["vl2", "4", "4", "--rate", "2T"], "rates from 1k to 10T"),
        (["vl2", "4", "4", "--mtu", "0"], "network.mtu: 0 "),
        (["bcube", "4", "1", "--name", "[]"], "--name: '[]' is no name"),
        (["bcube", "4", "1", "--name", "no"], "name: "),
    ],
)
def test_command__what_no_manager_could_load_is_refused_and_not_written(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["generate", *arguments])
    assert done.exit_code != 0 and not done.stdout, done.output
    assert text in done.stderr
    assert done.stderr.count("\n") <= 4  # one mistake is told once, not for each link
