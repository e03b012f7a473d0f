"""Topology files of packet fabrics: fat-tree, VL2, BCube."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rostrum.topologies import TopologyError, load
from rostrum.topologies.__main__ import main
from rostrum.topologies.document import BYTES_MAX
from rostrum.topologies.fabrics import Options, fabric, file_name, switch_on
from rostrum.topologies.families import Graph, bcube, fat_tree, vl2
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import FOLDER, load_text

GRAPHS = [fat_tree(2), fat_tree(4), fat_tree(6), vl2(4, 4, 3), vl2(6, 4, 2), bcube(2, 0), bcube(4, 1), bcube(3, 2)]
BUILTIN = {"fat-tree-4": fat_tree(4), "bcube-4-1": bcube(4, 1), "vl2-4-4": vl2(4, 4, 4)}


def joined(graph: Graph) -> set[frozenset[str]]:
    """The links as the file must have them: names of files, and a server that forwards stands behind its switch."""
    found = set()
    for pair in graph.links:
        ends = [file_name(end) for end in pair]
        found.add(frozenset(switch_on(end) if graph.forwards and end.startswith("h") else end for end in ends))
    return found | {frozenset((file_name(one), switch_on(file_name(one)))) for one in graph.servers if graph.forwards}


def test_fabric__the_largest_is_no_larger_than_load_takes() -> None:
    assert len(fabric(fat_tree(60))) < BYTES_MAX


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_fabric__loads_and_is_the_graph(graph: Graph) -> None:
    topology = load_text(fabric(graph))
    assert set(topology.servers) == {file_name(name) for name in graph.servers}
    assert {frozenset((link.a.node, link.b.node)) for link in topology.links} == joined(graph)
    forwarding = {switch.server for switch in topology.switches.values()} - {""}
    assert forwarding == (set(topology.servers) if graph.forwards else set())
    assert len({server.address for server in topology.servers.values()}) == len(topology.servers)


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_fabrics__are_what_the_generator_prints(name: str) -> None:
    assert (FOLDER / f"{name}.yaml").read_text() == fabric(BUILTIN[name])


def test_bcube__a_server_has_a_port_for_each_nic_and_none_of_them_is_slowed_down() -> None:
    topology = load("bcube-4-1")
    switch = topology.switches["b2-3"]
    assert switch.server == "h2-3" and switch.neighbours[1].node == "h2-3"
    assert [switch.neighbours[port].node for port in (2, 3)] == ["w0-2", "w1-3"]
    assert switch.rates[1] == switch.rates[2] + switch.rates[3] == topology.servers["h2-3"].rate_bps


@pytest.mark.parametrize("kind", ["p4", "mixed"])
def test_kinds__switches_on_servers_stay_openflow(kind: str) -> None:
    topology = load_text(with_kind(fabric(bcube(2, 1)), kind))
    assert all((switch.p4 is None) == (bool(switch.server) or kind == "mixed") for switch in topology.switches.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server": "h9-9"}, "no server is called h9-9"),
        ({"server": "h0-1"}, "servers at its ports are h0-0; link it to h0-1 alone"),
        ({"server": 7}, "7 is not a text"),
        ({"server": "H"}, "not usable as a name"),
        ({"server": ""}, "not usable as a name"),
    ],
)
def test_switch_on_a_server__that_does_not_fit_is_told(change: dict[str, object], message: str) -> None:
    value = yaml.safe_load(fabric(bcube(2, 1)))
    value["switches"]["b0-0"].update(change)
    with pytest.raises(TopologyError) as error:
        load_text(yaml.safe_dump(value))
    assert message in str(error.value)


def test_switch_on_a_server__a_core_switch_and_a_second_one_are_told() -> None:
    value = yaml.safe_load(fabric(bcube(2, 1)))
    value["switches"]["w0-0"]["server"] = "h0-0"
    with pytest.raises(TopologyError) as error:
        load_text(yaml.safe_dump(value))
    assert "no server is at its ports" in str(error.value) and "h0-0 has the switch" in str(error.value)


def test_garbage__in_a_fabrics_file_gives_an_error_or_loads(seed: int) -> None:
    """A line taken out, doubled or changed: never anything but a topology or text."""
    rng = random.Random(seed)
    lines = fabric(bcube(2, 1)).splitlines()
    for _ in range(60):
        broken, at = list(lines), rng.randrange(len(lines))
        how = rng.randrange(4)
        if how == 0:
            del broken[at]
        elif how == 1:
            broken.insert(at, broken[rng.randrange(len(broken))])
        elif how == 2:
            broken[at] = broken[at].replace(rng.choice("bh:01{"), rng.choice(["", "9", "x", "\x00", "{", "w0-0"]), 1)
        else:
            broken[at] = broken[at][: rng.randrange(len(broken[at]) + 1)]
        try:
            load_text("\n".join(broken))
        except TopologyError as error:
            assert str(error)


@pytest.mark.parametrize("arguments", [["fat-tree", "4"], ["vl2", "4", "4", "--per-rack", "4"], ["bcube", "4", "1"]])
def test_generate__prints_what_check_takes(arguments: list[str], tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["generate", *arguments, "--rate", "10G", "--name", "mine"])
    file = tmp_path / "mine.yaml"
    file.write_text(printed.output)
    checked = CliRunner().invoke(main, ["check", str(file)])
    assert checked.exit_code == 0 and checked.output.startswith("mine: 16 servers")
    assert load(file).links[0].rate_bps >= 10**10


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fat-tree", "3"], "k is even"),
        (["fat-tree", "4", "--rate", "fast"], "not a rate"),
        (["bcube", "1", "1"], "n from 2"),
        (["vl2", "3", "4"], "even"),
        (["bcube", "300", "1"], "not too many"),
        (["vl2", "4", "4", "--per-rack", "251"], "racks of 250 servers"),
    ],
)
def test_generate__refuses_with_a_reason(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["generate", *arguments])
    assert done.exit_code == 1 and text in done.output


def test_options__mtu_and_name() -> None:
    topology = load_text(fabric(fat_tree(2), Options(mtu=1500, name="small")))
    assert (topology.name, topology.mtu) == ("small", 1500)
