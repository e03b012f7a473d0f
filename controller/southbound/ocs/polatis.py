"""The Polatis dialect: one patch per command, answered when accepted; light is seen by polling port powers. Facts only;
texts and code are ours.

Of an N x N switch input n is port n and output n is port N + n. Patch rows are `in,out`, power rows `port:dBm`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rostrum.controller.core.model import Pair
from rostrum.controller.southbound.ocs.glimmerglass import parse_power
from rostrum.controller.southbound.ocs.tl1 import Command, format_list


def connect(pair: Pair, ports: int) -> Command:
    return Command("ENT-PATCH", aid=f"{pair.input},{ports + pair.output}", blocks=("",))


def disconnect(pair: Pair) -> Command:
    return Command("DLT-PATCH", aid=str(pair.input), blocks=("",))


def retrieve() -> Command:
    return Command("RTRV-PATCH", blocks=("",))


def retrieve_power(numbers: Iterable[int]) -> Command:
    return Command("RTRV-PORT-POWER", aid=format_list(numbers), blocks=("",))


def pairs(rows: Iterable[str], ports: int) -> list[Pair]:
    """Patch rows -> pairs; a row that is none of an N x N switch is left out."""
    found = []
    for row in rows:
        first, _, second = row.partition(",")
        if first.strip().isdecimal() and second.strip().isdecimal():
            low, high = sorted((int(first[:9]), int(second[:9])))
            if 1 <= low <= ports < high <= 2 * ports:
                found.append(Pair(low, high - ports))
    return found


def powers(rows: Iterable[str]) -> dict[int, float | None]:
    """Power rows -> dBm by port number; None = dark."""
    found = {}
    for row in rows:
        port, _, value = row.partition(":")
        if port.strip().isdecimal():
            found[int(port[:9])] = parse_power(value.split(",")[0])
    return found


def format_power(number: int, dbm: float | None) -> str:
    return f"{number}:{'NONE' if dbm is None else f'{dbm:.2f}'}"
