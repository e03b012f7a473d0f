"""Sites in a topology file: what it describes, and all that can be wrong with it as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.topologies import TopologyError, load_text
from rostrum.topologies.__main__ import main

from tests.topologies import three_sites


def test_sites_need_no_link_between_them_and_check_shows_them(tmp_path: Path) -> None:
    made = three_sites.topology(
        "east: relays: [east-2], outside: {east-2: '192.0.2.7:9000'}\nsouth: nat: true, via: west"
    )
    assert made.site_of("east-3") == "east" and made.site_of("nobody") == ""
    assert made.sites["east"].relays == ("east-2",)
    assert made.sites["east"].outside["east-2"].port == 9000
    file = tmp_path / "sites.yaml"
    file.write_text(three_sites.text("east: outside: {east-2: 192.0.2.7}\nsouth: nat: true, via: west"))
    said = CliRunner().invoke(main, ["check", str(file)]).output
    assert "4 sites" in said
    assert "site east: 3 servers; a receiver is its relay; east-2 reached at 192.0.2.7:7071" in said
    assert (
        "site south: 3 servers; a receiver is its relay; nobody connects to it from outside; reached through west"
        in said
    )


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("east: relays: [west-1]", "west-1 is no server of site east"),
        ("east: outside: {west-1: 192.0.2.7}", "west-1 is no server of site east"),
        ("east: outside: {east-1: '192.0.2.7:99999'}", "has no port from 1 to 65535"),
        ("east: outside: {east-1: nowhere}", "'nowhere' is not an IPv4 address"),
        ("east: via: north", "no site is called north"),
        ("east: via: east", "goes in a circle through east"),
        ("east: via: west\nwest: via: east", "goes in a circle"),
        ("east: relay: east-1", "unknown key 'relay'; did you mean relays?"),
    ],
)
def test_what_is_wrong_with_sites_is_said(more: str, text: str) -> None:
    with pytest.raises(TopologyError) as error:
        three_sites.topology(more)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[east-1, east-2, east-3]", "[east-1, east-2]", "east-3 in no site; where there are sites, every server"),
        ("[east-1, east-2, east-3]", "[east-1, east-2, east-3, west-1]", "west-1 is in site east already"),
        ("[east-1, east-2, east-3]", "[east-1, east-2, east-4]", "no server is called east-4"),
        ("[east-1, east-2, east-3]", "[east-1, east-2], }\n  more: {servers: [east-3]", "a rack is in one site"),
    ],
)
def test_every_server_is_in_one_site(old: str, new: str, text: str) -> None:
    with pytest.raises(TopologyError) as error:
        load_text(three_sites.text().replace(old, new))
    assert text in str(error.value)
