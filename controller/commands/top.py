"""`rostrum top`: what the console shows, in a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rostrum.controller.commands.paths import OUT, Api, print_json, with_api
from rostrum.topologies.units import Duration

DOCTOR_S = 15.0
VIEWS = ("all", "fabric", "light", "transfers", "groups", "objects", "doctor")
COLOURS = {"o": "green", "s": "yellow", "d": "yellow", "x": "red", "-": "dim"}
PHASES = {"failed": "red", "done": "green", "queued": "yellow"}
SEVERITIES = {"error": "red", "warning": "yellow", "note": "dim"}
SHORT = 12  # rows of a part among others
OWN_PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "objects": ("/v1/objects", {"limit": 200}),
    "doctor": ("/v1/doctor", {}),
}


def _size(count: float | None) -> str:
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def _table(*heads: str) -> Table:
    return Table(*heads, box=None, pad_edge=False, header_style="dim", expand=False)


def _rows(found: list[Any], most: int) -> list[Any]:
    return found[: max(1, most)]


def _more(found: list[Any], most: int) -> list[Text]:
    left = len(found) - max(1, most)
    return [Text(f"... and {left} more", "dim")] if left > 0 else []


def fabric(seen: dict[str, Any], most: int) -> RenderableType:
    part = seen["fabric"]
    table = _table("rack", "servers", "up", "send", "receive", "")
    racks = sorted(part["racks"], key=lambda one: (one["up"], one["states"].count("o") == len(one["servers"])))
    for one in _rows(racks, most):
        states = Text("".join(one["states"][:60]))
        for at, state in enumerate(one["states"][:60]):
            states.stylize(COLOURS[state], at, at + 1)
        up = f"{one['states'].count('o')}/{len(one['servers'])}"
        why = Text("" if one["up"] else f"not connected: {one['cause']}", "red")
        table.add_row(Text(one["switch"]), states, up, str(one["sending"]), str(one["receiving"]), why)
    lines: list[RenderableType] = [table, *_more(racks, most)]
    lines += [
        Text(f"{one['name']}: not connected: {one['cause']}", "red") for one in part["switches"] if not one["up"]
    ][:most]
    for one in part["links_out"][:most]:
        lines.append(
            Text(f"{'-'.join(one['link'])}: {'drained' if one['drained'] else 'failed'}: {one['why']}", "yellow")
        )
    return Group(*lines)


def light(seen: dict[str, Any], most: int) -> RenderableType:
    part = seen["light"]
    if not part["ocs"]:
        return Text("no optical circuit switch", "dim")
    text = [f"{one['name']} {one['state']} {one['cause']}".strip() for one in part["ocs"]]
    used = [f"{one['name']} {one['state']}" for one in part["splitters"] if one["state"] != "free"]
    table = _table("circuit", "state", "path", "from", "to", "splitters", "least power")
    for one in _rows(part["circuits"], most):
        powers = [each["output_dbm"] for each in one["cross_connects"] if each["output_dbm"] is not None]
        power = f"{min(powers):.1f} dBm" if powers else ""
        cells = (one["id"], one["state"], one["path"] or "idle", one["uplink"], " ".join(one["downlinks"]))
        table.add_row(*(Text(cell) for cell in (*cells, " ".join(one["splitters"]), power)))
    free = len(part["splitters"]) - len(used)
    splitters = Text(f"splitters: {free} free{''.join(f', {one}' for one in used[:most])}")
    return Group(Text("; ".join(text)), table, *_more(part["circuits"], most), splitters)


def transfers(seen: dict[str, Any], most: int) -> RenderableType:
    part = seen["transfers"]
    table = _table("transfer", "sender", "size", "phase", "done", "failed", "why")
    for one in _rows(part["rows"], most):
        states = one["states"]
        table.add_row(
            Text(one["id"]),
            Text(one["sender"]),
            _size(one["size"]),
            Text(one["phase"], PHASES.get(one["phase"], "blue")),
            f"{states.get('done', 0)}/{one['receivers']}",
            Text(" ".join(one["failed"]) or "", "red"),
            Text(one["why"], overflow="ellipsis", no_wrap=True),
        )
    head = Text(f"{part['live_count']} under way, {part['queued']} requests wait for a path")
    return Group(head, *([table] if part["rows"] else []), *_more(part["rows"], most))


def groups(seen: dict[str, Any], most: int) -> RenderableType:
    part = seen["groups"]
    table = _table("group", "protocol", "members", "senders", "slow or silent")
    for one in _rows(part["rows"], most):
        late = Text(" ".join(one["silent"]) or "none", "yellow" if one["silent_count"] else "dim")
        table.add_row(Text(one["name"]), Text(one["protocol"]), str(one["members"]), str(one["senders"]), late)
    head = Text(f"{part['count']} groups at {part['addresses']} addresses")
    return Group(head, *([table] if part["rows"] else []), *_more(part["rows"], most))


def objects(seen: dict[str, Any], most: int) -> RenderableType:
    found = seen["objects"]
    if isinstance(found, str):
        return Text(found, "dim")
    table = _table("object", "size", "holders", "digest")
    for one in _rows(found["objects"], most):
        table.add_row(Text(one["name"] or one["id"]), _size(one["size"]), str(one["holder_count"]), Text(one["digest"]))
    return Group(table, *_more(found["objects"], most)) if found["objects"] else Text("no objects", "dim")


def doctor(seen: dict[str, Any], most: int) -> RenderableType:
    found = seen["doctor"]
    if isinstance(found, str):
        return Text(found, "dim")
    lines = []
    for one in _rows(found["findings"], most) if found["findings"] else []:
        text = Text.assemble((f"{one['severity']:8}", SEVERITIES.get(one["severity"], "")), one["what"])
        lines.append(text.append(f"\n         {one['mend']}" if one["mend"] else ""))
    return Group(*(lines or [Text("healthy: nothing was found that has to be mended", "green")]))


PARTS: dict[str, Callable[[dict[str, Any], int], RenderableType]] = {
    "fabric": fabric,
    "light": light,
    "transfers": transfers,
    "groups": groups,
    "objects": objects,
    "doctor": doctor,
}


def page(seen: dict[str, Any], view: str, lines: int) -> RenderableType:
    """One part in `lines` rows, or the four that are told at once in a share of them each."""
    health = seen["health"]
    missing = f"; not connected: {', '.join(health['missing'][:5])}" if health["missing"] else ""
    head = Text.assemble(
        (f"rostrum {health['topology']}  ", "bold"),
        (health["status"], "green" if health["status"] == "ready" else "yellow"),
        f": {health['switches_up']} of {health['switches']} switches, {health['agents_connected']} of "
        f"{health['servers']} agents, {health['queued']} requests wait{missing}",
    )
    if view != "all":
        return Group(head, Text(), Text(view, "bold"), PARTS[view](seen, lines - 8))
    some = max(1, min(SHORT, (lines - 16) // 4))
    inside: list[RenderableType] = []
    for name in ("fabric", "light", "transfers", "groups"):
        inside += [Text(), Text(name, "bold"), PARTS[name](seen, some)]
    return Group(head, *inside)


def look(api: Api, view: str) -> dict[str, Any]:
    """The overview, and what only this view shows."""
    seen = dict(api.call("GET", "/v1/overview"))
    if view in OWN_PARTS:
        path, query = OWN_PARTS[view]
        try:
            seen[view] = api.call("GET", path, timeout_s=DOCTOR_S, **query)
        except click.ClickException as error:
            seen[view] = error.message
    return seen


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, "" when none came in time. Keys come one by one where there is a terminal."""
    place = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(place) if place is not None else None
    if place is not None:
        tty.setcbreak(place)

    def wait(seconds: float) -> str:
        ready = select.select([] if place is None else [place], [], [], seconds)[0]
        return os.read(ready[0], 1).decode("ascii", "replace") if ready else ""

    try:
        yield wait
    finally:
        if place is not None and before is not None:
            termios.tcsetattr(place, termios.TCSADRAIN, before)


@click.command()
@click.option("--once", is_flag=True, help="Print it once and end.")
@click.option("--view", type=click.Choice(VIEWS), default="all", show_default=True, help="What to begin with.")
@click.option("--interval", type=Duration(), default="2s", show_default=True, help="Between two looks.")
@with_api
def top(api: Api, as_json: bool, once: bool, view: str, interval: float) -> None:
    """What goes on now: racks, light, transfers and why they wait, groups, objects, findings.

    Keys: 0 all; 1 fabric, 2 light, 3 transfers, 4 groups, 5 objects, 6 doctor; q ends. A browser shows the same, with
    each receiver's progress, at the manager's address: /console.
    """
    seen = look(api, view)
    if as_json:
        print_json(seen)
        return
    if once or not sys.stdout.isatty():
        OUT.print(page(seen, view, 1_000))
        return
    pause = max(interval, 0.2)
    with (
        _keys() as key,
        Live(console=OUT, screen=True, auto_refresh=False) as screen,
        contextlib.suppress(KeyboardInterrupt),
    ):
        while True:
            shown: RenderableType
            try:
                shown = page(look(api, view), view, OUT.height)
            except click.ClickException as error:
                shown = Text(f"{error.message}\n\nTrying again. q ends.", "yellow")
            screen.update(shown, refresh=True)
            pressed = key(max(pause, DOCTOR_S) if view == "doctor" else pause)
            if pressed == "q":
                return
            if pressed.isdigit() and int(pressed) < len(VIEWS):
                view = VIEWS[int(pressed)]
