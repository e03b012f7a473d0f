"""Rows of an experiment, and topologies from Mininet's classes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rostrum.lab.namespace import LabError
from rostrum.lab.records import Rows, samples
from rostrum.lab.topo import from_mininet, is_topo

PAGE = """\
# HELP sent_total Packets.
sent_total 12
peers{name="h,1",state="up \\"q\\""} 3.5 1700000000
rate NaN
"""


class Topo:
    """What Mininet's has, as far as it is asked."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def hosts(self) -> list[str]:
        return ["h1"]

    def switches(self) -> list[str]:
        return ["s1"]

    def nodeInfo(self, name: str) -> dict[str, Any]:
        return {"dpid": "00:0a"} if name == "s1" else {"ip": "10.0.7.1/8"}

    def links(self, withInfo: bool) -> list[tuple[str, str, dict[str, Any]]]:
        ends = {"node1": "h1", "node2": "s1", "port1": 0, "port2": 3}
        return [("h1", "s1", {**ends, **self.options})]


def test_rows__csv_with_all_columns(tmp_path: Path) -> None:
    rows = samples(PAGE, "h1")
    assert [row["value"] for row in rows[:2]] == [12, 3.5] and rows[1]["label_name"] == "h,1"
    text = rows.csv(tmp_path / "m.csv").read_text().splitlines()
    assert text[0] == "source,metric,value,label_name,label_state" and text[1] == "h1,sent_total,12.0,,"


def test_rows__data_frame_or_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LabError, match="pip install pandas"):
        Rows([{"a": 1}]).frame()
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows, columns: (rows, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert Rows([{"a": 1}, {"b": 2}]).frame() == ([{"a": 1}, {"b": 2}], ["a", "b"])


def test_topo__its_numbers_are_kept() -> None:
    value = from_mininet(Topo(bw=2.5))
    assert value["switches"] == {"s1": {"dpid": 10}} and value["servers"] == {"h1": {"address": "10.0.7.1"}}
    assert value["links"] == [{"a": "h1", "b": "s1:3", "rate": "2.5M"}] and value["name"] == "topo"
    assert is_topo(Topo()) and not is_topo({"links": []})


def test_topo__with_delay_is_refused_in_words() -> None:
    with pytest.raises(LabError, match="the link of h1 and s1 has delay"):
        from_mininet(Topo(delay="5ms"))
