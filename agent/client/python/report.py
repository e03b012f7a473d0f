"""How transfers and agents look to people (on a terminal) and to machines (as JSON values)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rostrum.topologies.units import rate_text, size_text

from .names import COMMAND_APP_ID
from .values import Event, Receiver, SendResult, Status, Transfer

# Files and pipes are not narrow; names that others gave are no markup.
OUT = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
ERR = Console(stderr=True, highlight=False, markup=False)

_TIMES = (
    ("requested_ns", "requested"),
    ("accepted_ns", "accepted"),
    ("attempt_ns", "attempt sending"),
    ("high_rate_ns", "high-rate sending"),
    ("data_done_ns", "data channel done"),
    ("released_ns", "path released"),
    ("done_ns", "done"),
)


def ms_after(result: SendResult, time_ns: int) -> float | None:
    """Milliseconds since the request; None if it did not happen."""
    return round((time_ns - result.requested_ns) / 1e6, 3) if time_ns and result.requested_ns else None


def send_json(result: SendResult) -> dict[str, Any]:
    """The result, times also in ms since the request."""
    value = result.as_dict()
    value["total_ms"] = ms_after(result, result.done_ns)
    goodput = result.goodput_bps
    value["goodput_bps"] = None if goodput is None else round(goodput)
    value["timeline_ms"] = {field.removesuffix("_ns"): ms_after(result, getattr(result, field)) for field, _ in _TIMES}
    for row in value["receivers"]:
        row["first_light_ms"] = ms_after(result, row["first_light_ns"])
        row["complete_ms"] = ms_after(result, row["complete_ns"])
    return value


def follow(events: Iterable[Event], console: Console = ERR, phases: bool = True) -> None:
    """Shows a send's events until they end: a bar on a terminal, a line for each change elsewhere (with `phases`)."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn(binary_units=True),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("requested", total=None, note="")
        told: set[str] = set()  # A refusal is told once, not again for each receiver and the end.
        for event in events:
            text = _event_text(event, event.text not in told) if phases else ""
            told.add(event.text)
            if text:
                progress.console.print(text, markup=False, soft_wrap=True)
            if event.kind == "phase":
                progress.update(task, description=event.subject)
            if event.size:
                rate = f"{rate_text(event.rate_bps)}  " if event.rate_bps else ""
                note = f"{rate}{event.receivers_done}/{event.receivers} receivers"
                progress.update(task, total=event.size, completed=min(event.bytes, event.size), note=note)


def _event_text(event: Event, reason: bool = True) -> str:
    tail = f": {event.text}" if event.text and reason else ""
    if event.kind == "phase":
        return f"{event.subject}{tail}"
    if event.kind == "receiver":
        light = f" from fragment {event.sn}" if event.state == "receiving" else ""
        return f"{event.subject} {event.state}{light}{tail}"
    return event.text if event.kind == "log" else ""


def timeline(result: SendResult) -> list[tuple[float, str]]:
    """What happened, in order: (ms since the request, text)."""
    rows = [(ms_after(result, getattr(result, field)), text) for field, text in _TIMES[:-1]]
    for one in result.receivers:
        rows.append((ms_after(result, one.first_light_ns), f"first light at {one.name} (fragment {one.initial_sn})"))
        rows.append((ms_after(result, one.complete_ns), f"{one.name} has everything"))
    rows.append((ms_after(result, result.done_ns), "done"))
    return sorted(((at, text) for at, text in rows if at is not None), key=lambda row: row[0])


def print_result(result: SendResult, name: str, console: Console = OUT) -> None:
    """Timeline, receivers, and a summing line."""
    table = Table(
        "ms", "", box=None, title=f"{name} ({size_text(result.size)})", title_justify="left", show_header=False
    )
    table.columns[0].justify = "right"
    for at, text in timeline(result):
        table.add_row(f"{at:.2f} ms", text)
    console.print(table)
    receivers = Table("receiver", "result", "first fragment", "patched", "done after")
    for one in result.receivers:
        receivers.add_row(one.name, *_receiver_cells(result, one))
    console.print(receivers)
    sent = f"{result.packets_sent} packets, {result.packets_redundant} redundant, {result.packets_patched} patched"
    if result.packets_repair:
        sent += f", {result.packets_repair} repairs by multicast for {result.losses_repaired} losses"
    if result.acks_received:
        sent += f", {result.acks_received} acknowledgements received"
    way = "no path" if result.path == "none" else f"{result.path} path by {result.protocol}"
    if result.reason:
        way += f" ({result.reason})"
    rate = f"; up to {rate_text(result.rate_bps)}" if result.rate_bps else ""
    console.print(f"{way}; {result.sessions} session(s); {sent}{rate}", markup=False, soft_wrap=True)
    goodput = result.goodput_bps
    if result.ok:
        speed = f": {rate_text(goodput)} to each" if goodput else " (and had it before)" if result.size else ""
        who = "every receiver that stayed" if any(one.state == "left" for one in result.receivers) else "every receiver"
        console.print(f"{who} has it{speed}, digests right", style="green")
    else:
        console.print(result.cause or "not every receiver has it", style="red", markup=False, soft_wrap=True)


def _receiver_cells(result: SendResult, one: Receiver) -> tuple[str, str, str, str]:
    fields = f"{one.state}: {one.cause}" if one.cause else one.state
    if one.digest_ok:
        fields = "had it" if one.had_it else "digest right"
        fields += f" ({one.cause})" if one.cause else ""
    after = ms_after(result, one.complete_ns)
    first = "-" if one.initial_sn is None else str(one.initial_sn)
    return fields, first, str(one.patched_fragments), "-" if after is None else f"{after:.2f} ms"


def print_status(now: Status, console: Console = OUT) -> None:
    """The agent in a few lines and two tables."""
    up_s = max(0, time.time_ns() - now.started_ns) // 10**9 if now.started_ns else 0
    console.print(
        f"agent of {now.server}, rostrumd {now.version}, up {up_s} s, {now.clients} client(s)",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"manager: {now.manager}", markup=False, style=None if now.manager_up else "red", soft_wrap=True)
    room = f"{size_text(now.store_used)} of {size_text(now.store_quota)} used"
    console.print(f"store: {now.store}, {room}; {now.packets_bad} bad packets", markup=False, soft_wrap=True)
    if now.transfers:
        console.print(_compact(_transfers_table(now)))
    if now.groups:
        console.print(_compact(_groups_table(now)))
    if now.objects:
        console.print(_compact(_objects_table(now)))


def _application(app: UUID) -> str:
    if app.int == 0:
        return "another's"  # whose id is told to root and the agent's own user alone
    return "rostrum command" if app == COMMAND_APP_ID else str(app)


def _compact(table: Table) -> Table:
    """Without columns that say nothing, or of all rows what goes without saying, so that 80 columns do."""
    silent = ({"-"}, {""}, {"rostrum command"})
    table.columns = [one for one in table.columns if set(map(str, one.cells)) not in silent]
    for one in table.columns[1:]:
        one.overflow = "fold"  # half an address tells nobody anything
    return table


def _transfers_table(now: Status) -> Table:
    table = Table("transfer", "application", "phase", "path", "done", "rate", "receivers", "overlay", title="transfers")
    table.columns[0].no_wrap = True
    for row in now.transfers:
        who = "to" if row.sending else f"from {row.peer}"
        done = f"{size_text(row.bytes)} / {size_text(row.size)}"
        counts = f"{row.receivers_done}/{row.receivers}" if row.sending else ""
        counts += f", {row.receivers_failed} failed" if row.receivers_failed else ""
        rate = rate_text(row.rate_bps) if row.rate_bps else "-"
        path = f"{row.path}, {row.protocol}" if row.sending else row.protocol
        text = _overlay_text(row)
        table.add_row(
            f"{row.name or row.data_id} {who}", _application(row.app), row.phase, path, done, rate, counts, text
        )
    return table


def _groups_table(now: Status) -> Table:
    titles = ("group", "protocol", "members", "here", "published", "delivered", "recovered", "lost", "address")
    table = Table(*titles, title="message groups")
    table.columns[0].no_wrap = True
    for row in now.groups:
        protocol = f"{row.protocol}, {row.order}" if row.order == "fifo" else row.protocol
        here = f"{row.subscribers} sub, {row.publishers} pub"
        recovered = [
            f"{count} by {how}" for count, how in ((row.by_repair, "repairs"), (row.by_request, "requests")) if count
        ]
        lost = f"{row.lost}, {row.lost_slow} slow" if row.lost_slow else str(row.lost)
        table.add_row(row.name, protocol or "-", str(row.members) if row.joined else "-", here, str(row.published),
                      str(row.delivered), ", ".join(recovered) or "-", lost, row.address or "-")  # fmt: skip
    return table


def _overlay_text(row: Transfer) -> str:
    """What concerns RDCM; nothing for others."""
    if row.protocol != "rdcm":
        return "-"
    view = f"view {row.view}" if row.view else "no view"
    repairs = (
        "" if row.sending else f", repairs {row.repairs_sent} out, {row.repairs_received} in ({row.repairs_old} old)"
    )
    acks = f"acks {row.acks_received} in" if row.sending else f"acks {row.acks_sent} out, {row.acks_received} in"
    return f"{view}; {acks}{repairs}; window {row.window}; timeout {row.ack_timeout_ns / 1e6:.1f} ms"


def _objects_table(now: Status) -> Table:
    table = Table("object", "application", "state", "size", "used by", title="objects")
    table.columns[0].no_wrap = True
    for item in now.objects:
        state = ("received" if item.received else "added here") if item.complete else "not whole yet"
        state += ", pinned" if item.pinned else ", goes to make room" if item.goes else ""
        used = f"{item.holds} transfer(s)" if item.holds else "-"
        table.add_row(item.name or str(item.data_id), _application(item.app), state, size_text(item.size), used)
    return table
