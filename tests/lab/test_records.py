"""Rows of an experiment, and topologies from Mininet's classes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError
from rostrum.lab.records import Rows, samples
from rostrum.lab.rest import forward
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


def test_topo__with_delay_is_refused_with_a_reason() -> None:
    with pytest.raises(LabError, match="the link of h1 and s1 has delay"):
        from_mininet(Topo(delay="5ms"))


async def test_rest_of_a_lab__is_served_on_this_machine(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"you said " + await reader.readline())
        writer.close()

    places: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.create_task(forward("127.0.0.1", 0, tmp_path / "manager.sock", places.put_nowait))
    address, port = (await places.get()).split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    assert b"does not answer" in await reader.read()
    writer.close()
    async with await asyncio.start_unix_server(answer, tmp_path / "manager.sock"):
        reader, writer = await asyncio.open_connection(address, int(port))
        writer.write(b"GET /\n")
        assert await reader.read() == b"you said GET /\n"
        writer.close()
    serving.cancel()
    with pytest.raises(LabError, match="address"):
        await forward("192.0.2.1", 8080, tmp_path, print)


def test_kill__of_a_program_is_taken_back_at_the_end_of_a_block() -> None:
    lab, asked = Lab.__new__(Lab), list[tuple[str, object]]()

    def ask(operation: str, **fields: object) -> None:
        asked.append((operation, fields["name"]))

    lab.ask = ask  # type: ignore[method-assign,assign]
    with lab.kill("manager"):
        assert asked == [("kill", "manager")]
    assert asked == [("kill", "manager"), ("start", "manager")]
