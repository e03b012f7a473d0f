"""`southbound: none`: switches that nobody drives."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.topologies import TopologyError, load
from rostrum.topologies.__main__ import main

PLAIN = """
rostrum: 1
name: plain
network: {data: 10.0.0.0/24, management: 10.0.0.0/24, multicast: 239.192.0.0/16, mtu: 1500}
manager: {address: 10.0.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}
agent: {control_port: 7071, data_port: 7070}
switches:
  lan: {role: tor, southbound: none}
servers:
  h0: {address: 10.0.0.1, management: 10.0.0.1}
  h1: {address: 10.0.0.2, management: 10.0.0.2}
links:
  - {a: h0, b: "lan:1", rate: 1G}
  - {a: h1, b: "lan:2", rate: 1G}
"""


@pytest.mark.parametrize("network", ["239.64.0.0/16", "239.255.0.0/16", "239.0.4.0/24", "232.1.0.0/16"])
def test_plain__groups_whose_ethernet_addresses_are_their_own(tmp_path: Path, network: str) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN.replace("239.192.0.0/16", network))
    assert str(load(str(file)).multicast) == network


def test_plain__one_network_and_a_manager_on_a_server(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN)
    assert load(str(file)).switches["lan"].southbound == "none"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("southbound: none", "dpid: 1", "overlaps the data network"),
        ("southbound: none", "southbound: none, dpid: 1", "has no meaning with southbound: none"),
        ("  lan: {role", "  other: {role: core, dpid: 7}\n  lan: {role", "all are driven, or none is"),
        ("management: 10.0.0.2", "management: 10.0.0.1", "is already that of"),
        ("239.192.0.0/16", "239.0.0.0/16", "Ethernet addresses of 224.0.0.x"),
        ("239.192.0.0/16", "239.128.0.0/16", "Ethernet addresses of 224.0.0.x"),
        ("239.192.0.0/16", "225.0.0.16/28", "Ethernet addresses of 224.0.0.x"),
    ],
)
def test_plain__what_does_not_fit_is_told(tmp_path: Path, old: str, new: str, text: str) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN.replace(old, new))
    with pytest.raises(TopologyError, match=text):
        load(str(file))


def test_plain__check_says_what_is_not_promised(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN)
    said = CliRunner().invoke(main, ["check", str(file)]).output
    assert "lan: nobody drives it" in said and "priority" in said and "admission" in said
    assert "not promised" not in CliRunner().invoke(main, ["check", "hybrid-4x2"]).output
