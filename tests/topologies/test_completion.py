"""What a topology file may leave out for a lab, and what is said of it on the way to a testbed."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rostrum.topologies import TopologyError, builtin_names, load, load_text
from rostrum.topologies.__main__ import main
from rostrum.topologies.completion import complete
from rostrum.topologies.loader import FOLDER

SKETCH = """\
servers: [h1, h2, h3]
switches: {tor1: , tor2: , core: {southbound: p4runtime}}
links:
  - {a: h1, b: tor1}
  - {a: h2, b: tor2}
  - {a: h3, b: "tor2:1"}
  - {a: tor1, b: core}
  - {a: tor2, b: core}
  - {a: tor1, b: ocs}
  - {a: tor2, b: ocs}
ocs: {ocs: {splitters: {s1: {fanout: 3}, s2: }}}
"""


def test_sketch__has_all_that_a_lab_needs() -> None:
    topology = load_text(SKETCH, completed=True)
    assert {name: one.role for name, one in topology.switches.items()} == {"tor1": "tor", "tor2": "tor", "core": "core"}
    assert topology.servers["h2"].tor_port == 2 and topology.servers["h3"].tor_port == 1
    assert len({one.dpid for one in topology.switches.values() if one.dpid}) == 2
    assert topology.switches["core"].p4 is not None and topology.switches["core"].p4.address.is_loopback
    splitters = topology.ocs["ocs"].splitters
    assert (splitters["s1"].fanout, splitters["s1"].loss_db, splitters["s2"].fanout) == (3, 7.0, 4)


@pytest.mark.parametrize("name", builtin_names())
def test_whole_file__stays_as_it_is(name: str) -> None:
    value = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert complete(value) == value


@pytest.mark.parametrize("seed", range(8))
def test_any_part_left_out__is_filled_in_or_named(seed: int) -> None:
    """Whatever is taken out of a whole file, or put in its place: a topology, or text."""
    draw = random.Random(seed)
    for _ in range(12):
        value = copy.deepcopy(yaml.safe_load((FOLDER / "hybrid-4x2.yaml").read_text()))
        for _ in range(draw.randint(1, 6)):
            inner = value
            while isinstance(inner, dict | list) and inner:
                keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
                key = draw.choice(keys)
                if draw.random() < 0.4 or not isinstance(inner[key], dict | list):
                    inner[key] = draw.choice([None, 0, "x", [], {}, -1, ["a"], {"a": 1}])
                    if draw.random() < 0.7:
                        del inner[key]
                    break
                inner = inner[key]
        try:
            load_text(yaml.safe_dump(value), f"seed-{seed}", completed=True)
        except TopologyError as error:
            assert str(error)


def test_check__says_that_a_lab_fills_it_in_and_complete_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "sketch.yaml"
    file.write_text(SKETCH)
    checked = CliRunner().invoke(main, ["check", str(file)])
    assert checked.exit_code == 1 and "rostrum topology complete" in checked.output
    lines = checked.output.splitlines()
    assert len(lines) == len(set(lines)) < 25
    whole = CliRunner().invoke(main, ["complete", str(file)])
    (tmp_path / "whole.yaml").write_text(whole.output)
    assert load(tmp_path / "whole.yaml") == load(file, completed=True)


def test_hybrid__with_two_cores_and_without_an_ocs() -> None:
    made = CliRunner().invoke(main, ["generate", "hybrid", "--cores", "2", "--ocs-ports", "0"])
    topology = load_text(made.output)
    assert not topology.ocs and [name for name, one in topology.switches.items() if one.role == "core"] == [
        "core1", "core2"]  # fmt: skip
    assert len(load_text(CliRunner().invoke(main, ["generate", "hybrid", "--cores", "2"]).output).ocs) == 1
