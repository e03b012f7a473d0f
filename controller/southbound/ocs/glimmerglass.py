"""The Glimmerglass dialect: cross-connects of many pairs in one command, answered when they are settled (SYNC) or at
once (ASYNC, settled ones then reported). Facts only; texts and code are ours.

A row: `IPORTID=10001,IPORTNAME=,OPORTID=20005,OPORTNAME=,CONNID=...,CONNSTATE=steady,CONNCAUSE=,INPWR=0.00,
OUTPWR=-1.00,PWRLOSS=1.00`, powers in dBm, NONE for a dark fibre.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs.tl1 import Command, format_list, format_row, parse_row

INPUT_BASE = 10_000
OUTPUT_BASE = 20_000


def connect(pairs: Sequence[Pair], mode: str) -> Command:
    """ENT-CRS-FIBER for all pairs; `mode` is SYNC or ASYNC."""
    inputs = format_list(INPUT_BASE + p.input for p in pairs)
    outputs = format_list(OUTPUT_BASE + p.output for p in pairs)
    return Command("ENT-CRS-FIBER", aid=f"{inputs},{outputs}", blocks=("", "", f"OPMODE={mode}"))


def disconnect(pairs: Sequence[Pair]) -> Command:
    inputs = format_list(INPUT_BASE + p.input for p in pairs)
    outputs = format_list(OUTPUT_BASE + p.output for p in pairs)
    return Command("DLT-CRS-FIBER", aid=f"{inputs},{outputs}")


def retrieve() -> Command:
    return Command("RTRV-CRS-FIBER", aid="ALL")


def format_cross_connect(c: CrossConnect) -> str:
    loss = None if c.input_dbm is None or c.output_dbm is None else c.input_dbm - c.output_dbm
    fields = {
        "IPORTID": str(INPUT_BASE + c.pair.input),
        "IPORTNAME": f"in{c.pair.input}",
        "OPORTID": str(OUTPUT_BASE + c.pair.output),
        "OPORTNAME": f"out{c.pair.output}",
        "CONNID": f"{c.pair.input}>{c.pair.output}",
        "CONNSTATE": c.state.value,
        "CONNCAUSE": c.cause,
        "INPWR": _power(c.input_dbm),
        "OUTPWR": _power(c.output_dbm),
        "PWRLOSS": _power(loss),
    }
    return format_row(fields)


def cross_connects(rows: Iterable[str]) -> list[CrossConnect]:
    """Rows -> cross-connects. A row that names no pair is left out; a state we do not know counts as INVALID."""
    found = []
    for row in rows:
        fields = parse_row(row)
        source, target = _number(fields.get("IPORTID", "")), _number(fields.get("OPORTID", ""))
        if source is None or target is None or source <= INPUT_BASE or target <= OUTPUT_BASE:
            continue
        found.append(
            CrossConnect(
                Pair(source - INPUT_BASE, target - OUTPUT_BASE),
                _state(fields.get("CONNSTATE", "")),
                parse_power(fields.get("INPWR", "")),
                parse_power(fields.get("OUTPWR", "")),
                fields.get("CONNCAUSE", ""),
            )
        )
    return found


def parse_power(text: str) -> float | None:
    """dBm, or None for NONE and whatever is no number in the range a meter can show."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -90.0 < value < 60.0 else None


def _power(value: float | None) -> str:
    return "NONE" if value is None else f"{value:.2f}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _state(text: str) -> CrossConnectState:
    try:
        return CrossConnectState(text.strip().lower())
    except ValueError:
        return CrossConnectState.INVALID
