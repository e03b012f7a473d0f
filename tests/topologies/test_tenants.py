"""Tenants of a topology file: every server is in one, and a group's name is one's."""

from __future__ import annotations

import pytest
from rostrum.topologies import TopologyError, load_text
from rostrum.topologies.loader import builtin_file

TEXT = builtin_file("hybrid-4x2").read_text()
BLUE = 'tenants: {blue: {servers: [h1, h3, h5, h7], groups: ["blue.*", news], quota: "paths=2 over=deny"}, '


def test_servers_and_groups_have_one() -> None:
    made = load_text(TEXT + BLUE + "red: {servers: [h2, h4, h6, h8]}}\n")
    assert [made.tenant_of(f"h{n}") for n in range(1, 5)] == ["blue", "red", "blue", "red"]
    assert [made.tenant_of_group(name) for name in ("blue.x", "news", "newsy", "red")] == ["blue", "blue", "", ""]
    assert made.tenants["blue"].quota == "paths=2 over=deny"
    assert load_text(TEXT).tenant_of("h1") == ""


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ("red: {servers: [h2, h4, h6]}}", "h8 in no tenant"),
        ("red: {servers: [h2, h4, h6, h8, h1]}}", "h1 is in tenant blue already"),
        ("red: {servers: [h2, h4, h6, h8, h9]}}", "no server is called h9"),
        ('red: {servers: [h2, h4, h6, h8], groups: ["blue.red.*"]}}', "is also tenant blue's"),
        ('red: {servers: [h2, h4, h6, h8], groups: ["n*"]}}', "is also tenant blue's"),
        ('red: {servers: [h2, h4, h6, h8], groups: ["blue.x"]}}', "is also tenant blue's"),
        ('red: {servers: [h2, h4, h6, h8], groups: ["a*b"]}}', "groups"),
    ],
)
def test_what_does_not_fit_is_told(rest: str, text: str) -> None:
    with pytest.raises(TopologyError, match=text.replace("*", ".")):
        load_text(TEXT + BLUE + rest + "\n")
