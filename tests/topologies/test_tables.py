"""Tables in narrow terminals, and names that cannot be."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table
from rostrum.controller.commands.groups import groups
from rostrum.topologies.tables import whole

PATHS = [("p-ydrj-14", "released", "239.192.138.147", ""), ("p-yd-8", "released", "239.192.138.7", "it is small")]


@pytest.mark.parametrize("width", [80, 40, 24])
def test_whole__what_people_copy_stands_in_one_line(width: int) -> None:
    table = Table("path", "state", "group", "why", box=None, pad_edge=False)
    for row in PATHS:
        table.add_row(*row)
    shown = io.StringIO()
    Console(file=shown, width=width, soft_wrap=True).print(whole(table, "path", "group"))
    lines = shown.getvalue()
    for path, _, group, _ in PATHS:
        assert any(path in line and group in line for line in lines.splitlines()), lines
    assert "…" not in lines
    assert len(whole(Table("path"), "path").columns) == 1


@pytest.mark.parametrize("name", ["a b", "", "x" * 129, "ü"])
def test_create__a_name_that_cannot_be_is_told_in_words(name: str) -> None:
    result = CliRunner().invoke(groups, ["create", name])
    assert result.exit_code == 2 and "it has 1 to 128 of A-Z a-z 0-9" in result.output
