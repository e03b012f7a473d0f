"""The bench's table, as Markdown: a part for each case, a row for each tool."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rostrum.bench import cases
from rostrum.bench.summary import GOALS, Record, case_of, cpu_per_gb, goodput, seconds
from rostrum.topologies.units import rate_text, size_text

HEAD = (
    "tool",
    "runs",
    "time s",
    "Gbit/s",
    "over ideal",
    "CPU s sender",
    "receivers",
    "s per GB",
    "machine busy s",
    "frames lost %",
    "sent/size",
    "overflows",
    "repaired",
    "memory MB",
)


def table(records: Sequence[Record]) -> str:
    """All cases. Medians, in brackets the least and the most."""
    return "\n".join(
        f"### {part['case']}\n{part['text']}\n\n{markdown(HEAD, part['rows'])}\n" for part in cells(records)
    )


def cells(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The table as data: {"case", "text", "rows": cells, as HEAD names them}."""
    found = list(dict.fromkeys(case_of(record) for record in records))
    return [_part(case, [record for record in records if case_of(record) == case]) for case in found]


def _part(case: cases.Case, records: list[Record]) -> dict[str, Any]:
    tools = [tool for tool in cases.EVERY if any(record["tool"] == tool for record in records)]
    rows = [_row(case, tool, [record for record in records if record["tool"] == tool]) for tool in tools]
    return {"case": case.name, "text": text(case), "rows": rows}


def text(case: cases.Case) -> str:
    link = (
        f"sender's link {rate_text(case.rate_bps)} (ideal {case.ideal_s:.2f} s)"
        if case.rate_bps
        else "link not limited"
    )
    loss = f"{case.loss_percent:g} % loss at each receiver" if case.loss_percent else "no loss"
    offload = "on" if case.offload else "off"
    return f"MTU {case.mtu}, offload {offload}, {link}, {loss}, one to {case.receivers}, {size_text(case.size)}"


def _row(case: cases.Case, tool: str, records: list[Record]) -> list[str]:
    good = [record for record in records if record["outcome"] == "ok"]
    runs = f"{len(good)}/{len(records)}"
    bad = next((record for record in records if record["outcome"] != "ok"), None)
    if not good and bad:
        return [tool, runs, f"{bad['outcome']}: {short(bad.get('text', ''))}", *[""] * (len(HEAD) - 3)]
    name = tool + (f" ({good[0]['facts'].get('io')})" if tool == cases.OURS[0] else "")
    return [
        name,
        runs + (f" ({bad['outcome']})" if bad else ""),
        _spread(good, seconds, 3) + _data_phase(good),
        _spread(good, lambda record: goodput(record) / 1e9, 3),
        f"{statistics.median(map(seconds, good)) / case.ideal_s:.3f}" if case.rate_bps else "",
        _middle(good, lambda record: record["sender_s"], 2),
        _middle(good, lambda record: record["receivers_s"], 2),
        _middle(good, cpu_per_gb, 2),
        _middle(good, lambda record: record["machine_s"], 2),
        _middle(good, _lost_percent, 2),
        _middle(good, _sent_ratio, 3),
        _middle(good, lambda record: record.get("socket_overflows"), 0),
        _middle(good, lambda record: record["facts"].get("repaired"), 0),
        _middle(good, lambda record: max(record["resident_mb"].values()), 0),
    ]


def _data_phase(records: list[Record]) -> str:
    """For tools with a fixed start: the time without it."""
    middle = _middle(records, lambda record: record["facts"].get("data_s"), 3)
    return f", data {middle}" if middle else ""


def _sent_ratio(record: Record) -> float | None:
    """Bytes that left the sender, over the object's."""
    sent = record.get("sent_bytes")
    return None if sent is None else float(sent / record["case"]["size"])


def _lost_percent(record: Record) -> float | None:
    frames = record["frames_passed"] + record["frames_dropped"]
    return 100 * record["frames_dropped"] / frames if frames else None


def _numbers(records: Iterable[Record], value: Callable[[Record], float | None]) -> list[float]:
    return [number for record in records if (number := value(record)) is not None]


def _middle(records: list[Record], value: Callable[[Record], float | None], digits: int) -> str:
    numbers = _numbers(records, value)
    return f"{statistics.median(numbers):.{digits}f}" if numbers else ""


def _spread(records: list[Record], value: Callable[[Record], float | None], digits: int) -> str:
    numbers = _numbers(records, value)
    middle = _middle(records, value, digits)
    return f"{middle} ({min(numbers):.{digits}f}..{max(numbers):.{digits}f})" if len(numbers) > 1 else middle


def short(text: str, most: int = 100) -> str:
    """For a table's cell: one line without bars."""
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= most else line[: most - 3] + "..."


def figures(summary: dict[str, Any]) -> str:
    """The summary's figures beside their goals; those that this bench did not measure are only named."""
    rows, absent = [], []
    for key, goal in GOALS.items():
        details, value = summary["figures"][key], summary[key]
        if value is None:
            absent.append(key)
            continue
        best = details["best_back_end"]
        rows.append(
            [
                key,
                f"{value:.3f}",
                f"{'<=' if goal.better == 'lower' else '>='} {goal.bound:g}",
                "met" if details["met"] else "missed",
                f"{details['by_back_end'][best]:.3f} {best}",
                details["compared_with"],
                goal.meaning,
            ]
        )
    text = markdown(("figure", "value", "goal", "", "best back end", "beside", "meaning"), rows) + "\n" if rows else ""
    return text + (f"not measured: {', '.join(absent)}\n" if absent else "")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in plain text too."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    # One long cell (the text of a failure) does not make its column wide.
    widths = [min(width, max(24, len(head[i]))) if i != len(head) - 1 else 0 for i, width in enumerate(widths)]
    lines = [head, ["-" * max(3, width) for width in widths], *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )
