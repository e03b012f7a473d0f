"""Tables for people."""

from __future__ import annotations

from rich.table import Table


def whole(table: Table, *copied: str) -> Table:
    """The same table, of which a narrow terminal leaves nothing out: what is too long goes on in the next line, and the
    columns of these titles, whose values people copy, stand in one.
    """
    for column in table.columns:
        column.overflow = "fold"
        if column.header in copied:
            column.min_width = max((len(str(cell)) for cell in column.cells), default=None)
    return table
