"""What an OCS's command log says about those who order it: judged apart from what managers believe of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]  # an entry of the log, as control.py tells it
Crossed = frozenset[tuple[int, int]]


def is_order(row: Row) -> bool:
    """Whether the command was to change cross-connects."""
    return str(row["command"]).upper().lstrip("< ").startswith(("ENT-", "DLT-", "SET "))


def crossed(rows: Sequence[Row], before: Crossed = frozenset()) -> Crossed:
    """What is cross-connected after these commands."""
    there = set(before)
    for row in rows:
        there -= {(a, b) for a, b in row["removed"]}
        there |= {(a, b) for a, b in row["made"]}
    return frozenset(there)


def wrong_orders(rows: Sequence[Row], before: Crossed = frozenset()) -> list[str]:
    """As text: fibres that were ordered for somebody while somebody else had them, and orders of a connection after a
    later one had begun to order: of a manager that had been followed by another.
    """
    found: list[str] = []
    newest, there = 0, set(before)
    for row in [one for one in rows if is_order(one)]:
        what = f"session {row['session']} ({row['from']}): {row['command']}"
        if row["session"] < newest:
            found.append(f"{what}: after the first order of session {newest}")
        newest = max(newest, row["session"])
        if "in use" in row["error"]:
            found.append(f"{what}: {row['error']}")
        there -= {(a, b) for a, b in row["removed"]}
        for a, b in row["made"]:
            if held := next((one for one in there if one != (a, b) and (one[0] == a or one[1] == b)), None):
                found.append(f"{what}: {a}>{b} was made while {held[0]}>{held[1]} was there")
            there.add((a, b))
    return found
