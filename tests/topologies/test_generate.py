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
    ("size", "words"),
    [
        (Hybrid(racks=0), "0 racks"),
        (Hybrid(servers=999), "999 servers"),
        (Hybrid(ocs_ports=8), "need an OCS of 20 ports, not 8"),
        (Hybrid(fanout=1), "fan-out of 2"),
    ],
)
def test_what_does_not_fit_is_said(size: Hybrid, words: str) -> None:
    with pytest.raises(ValueError, match=words):
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
