"""`rostrum paths`, `rostrum circuits`, `rostrum manager`: the manager from the command line, over REST."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import click
import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rostrum.controller.commands.manager_client import Managers
from rostrum.topologies import offers
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Duration, Size

OUT = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)  # files are not narrow
TIMEOUT_S = 10.0
POLL_MARGIN_S = 5.0
AWAY_S = 60.0  # for a manager that is away when a path is asked for, as `rostrum send` waits
TRACE_MAX = 1000  # transfers; as many as a manager remembers
MANAGER_HELP = "URLs or sockets of managers, with commas between; default: $ROSTRUM_MANAGER, the lab's, this machine's."


class Api:
    """A manager's REST interface. Errors are click's, with the manager's own text."""

    def __init__(self, manager: str | None, lab: str) -> None:
        self._managers = Managers(manager, lab)

    @property
    def where(self) -> str:
        return self._managers.where

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float = TIMEOUT_S,
        away_s: float = 0.0,
        **query: Any,
    ) -> Any:
        """`away_s`: how long a manager that is away is waited for, which people are told."""
        given = {key: value for key, value in query.items() if value is not None}
        try:
            answer = self._managers.request(method, path, body, given, timeout_s, away_s, _tell)
            value = answer.json()
        except httpx.TimeoutException as error:
            raise click.ClickException(f"the manager at {self.where} did not answer within {timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise click.ClickException(
                f"no manager at {' or '.join(self._managers.places)}: {error}. "
                "Start one (systemctl start rostrum-manager, of which journalctl -u rostrum-manager says why it ended; "
                "or a lab: rostrum lab up), or name one with --lab or --manager"
            ) from error
        except ValueError as error:
            raise click.ClickException(f"what answers at {self.where} is no rostrum manager") from error
        if answer.status_code >= 300:
            detail = value.get("detail") if isinstance(value, dict) else None
            raise click.ClickException(str(detail or f"{method} {path}: HTTP {answer.status_code}"))
        return value


def _tell(text: str) -> None:
    click.echo(text, err=True)


def with_api(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that every command has; hands over `api` and `as_json`."""

    def wrapped(manager: str | None, lab: str, **arguments: Any) -> Any:
        return function(api=Api(manager or os.environ.get("ROSTRUM_MANAGER"), lab), **arguments)

    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the manager's JSON."),
        click.option("--lab", default="lab", help="Which lab. Default: the one called lab, or the only one."),
        click.option("--manager", help=MANAGER_HELP),
    ):
        wrapped = option(wrapped)
    return wrapped


def print_json(value: Any) -> None:
    """For --json."""
    click.echo(json.dumps(value, indent=2))


@click.group(invoke_without_command=True)
@click.option("--manager", help=MANAGER_HELP)
@click.option("--lab", default="lab", help="Which lab. Default: the one called lab, or the only one.")
@click.option("--json", "as_json", is_flag=True, help="Print the manager's JSON.")
@click.pass_context
def paths(context: click.Context, manager: str | None, lab: str, as_json: bool) -> None:
    """Multicast paths: list them, request one, look at one, release it. Without a command: list them.

    \b
      rostrum paths request h1 h3 h5 --wait    a path from h1 to h3 and h5; prints its group
      rostrum paths show p-3k2a-1              how it is carried, and when it reached each point
      rostrum paths release p-3k2a-1
    """
    given = {"manager": manager, "lab": lab, "as_json": as_json}
    if context.invoked_subcommand is None:
        context.invoke(list_paths, **given, state=None)
    else:
        context.default_map = {context.invoked_subcommand: given}


@paths.command("list")
@click.option("--state", type=click.Choice(["queued", "configuring", "active", "released", "failed"]),
              help="Only paths in this state.")  # fmt: skip
@with_api
def list_paths(api: Api, as_json: bool, state: str | None) -> None:
    """Paths, the newest first."""
    found = api.call("GET", "/v1/paths", state=state)
    if as_json:
        print_json(found)
        return
    table = Table("path", "state", "carried by", "sender", "receivers", "group", "why", box=None, pad_edge=False)
    for one in found["paths"]:
        why = one["cause"] or one["reason"]
        receivers = ",".join(one["receivers"])
        table.add_row(one["id"], one["state"], one["kind"] or "-", one["sender"], receivers, one["group"] or "-", why)
    OUT.print(
        whole(table, "path", "group")
        if found["paths"]
        else "no paths; request one with: rostrum paths request SENDER RECEIVER..."
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


@paths.command("request")
@click.argument("sender", shell_complete=offers.servers)
@click.argument("receivers", nargs=-1, required=True, shell_complete=offers.servers)
@click.option("--kind", type=click.Choice(["auto", "circuit", "packet"]), default="auto", show_default=True)
@click.option("--size", type=Size(), help="How much will be sent, such as 64M; a hint.")
@click.option(
    "--lease",
    type=Duration(),
    help="Taken back after this unless renewed, such as 1h; default: the manager's (10min); 0s: when released.",
)
@click.option("--within", type=Duration(), help="Give up when it is not accepted within this, such as 500ms.")
@click.option("--wait", "waits", is_flag=True, help="Return when it is active, or has failed.")
@with_api
def request_path(
    api: Api,
    as_json: bool,
    sender: str,
    receivers: tuple[str, ...],
    kind: str,
    size: int | None,
    lease: float | None,
    within: float | None,
    waits: bool,
) -> None:
    """A path from SENDER to RECEIVERS. Any UDP sender can use it: send to its group, and join that at the receivers.

    A manager that is away is waited for: as long as --within says, or a minute.
    """
    body = {"sender": sender, "receivers": list(receivers), "kind": kind, "size": size}
    body |= {"lease_ms": _ms(lease), "wait_ms": _ms(within)}
    away_s = AWAY_S if within is None else within
    given = {key: value for key, value in body.items() if value is not None}
    made = api.call("POST", "/v1/paths", given, away_s=away_s)
    while waits and made["state"] in ("queued", "configuring"):
        if made["state"] == "queued" and not as_json:
            OUT.print(f"{made['id']} is queued: {made['reason']}")
        path, timeout_s = f"/v1/paths/{made['id']}", 5.0 + POLL_MARGIN_S
        made = api.call("GET", path, wait="active", timeout_ms=5000, timeout_s=timeout_s, away_s=away_s)
    print_json(made) if as_json else _print_path(made)
    if made["state"] == "failed":
        raise click.exceptions.Exit(1)


@paths.command("show")
@click.argument("path", shell_complete=offers.paths)
@with_api
def show_path(api: Api, as_json: bool, path: str) -> None:
    """One path: how it is carried, and when it reached each point."""
    found = api.call("GET", f"/v1/paths/{_segment(path)}")
    print_json(found) if as_json else _print_path(found)


@paths.command("why")
@click.argument("path", shell_complete=offers.paths)
@with_api
def why_path(api: Api, as_json: bool, path: str) -> None:
    """Why a path waits, was denied, or is carried as it is; and what to do about it."""
    found = api.call("GET", f"/v1/paths/{_segment(path)}/why")
    if as_json:
        print_json(found)
        return
    OUT.print(f"{found['path']} is {found['state']}: {escape(found['why'])}")
    if found["do"]:
        OUT.print(f"  {escape(found['do'])}")
    if found["ahead"] is not None:
        packet = found["packet_path_in_ms"]
        then = f", takes a packet path in {packet / 1e3:.1f} s" if packet is not None else ""
        OUT.print(f"  {found['ahead']} before it{then}, is denied in {found['denied_in_ms'] / 1e3:.1f} s")


@paths.command("renew")
@click.argument("path", shell_complete=offers.paths)
@with_api
def renew_path(api: Api, as_json: bool, path: str) -> None:
    """Renew a path's lease before it ends."""
    one = api.call("POST", f"/v1/paths/{_segment(path)}/renew")
    print_json(one) if as_json else OUT.print(f"{one['id']} is held for {one['lease_ms'] / 1e3:g} s more")


@paths.command("release")
@click.argument("path", shell_complete=offers.paths)
@with_api
def release_path(api: Api, as_json: bool, path: str) -> None:
    """Give a path back, or withdraw one that is queued."""
    gone = api.call("DELETE", f"/v1/paths/{_segment(path)}")
    print_json(gone) if as_json else OUT.print(f"{gone['id']} is {gone['state']}")


def _segment(text: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_." for letter in text) or text.strip(".") == "":
        raise click.BadParameter(f"{text!r} is no path's id; rostrum paths list shows them")
    return text


def _print_path(one: dict[str, Any]) -> None:
    OUT.print(f"{one['id']}: {one['state']}" + (f", over {one['kind']}" if one["kind"] else ""))
    facts = [
        ("why", one["cause"] or one["reason"]),
        ("sender", one["sender"]),
        ("receivers", ", ".join(one["receivers"])),
        ("group", f"{one['group']} (agents use UDP port {one['data_port']})" if one["group"] else ""),
        ("lease", f"{one['lease_ms'] / 1e3:g} s, unless renewed" if one["lease_ms"] else ""),
        ("rate", f"{one['rate_bps'] / 1e9:g} Gbit/s at most" if one["rate_bps"] else ""),
    ]
    if one["circuit"]:
        crossed = one["circuit"]["cross_connects"]
        reused = ", reused" if one["circuit"]["reused"] else ""
        facts.append(("cross-connects", " ".join(f"{each['input']}>{each['output']}" for each in crossed) + reused))
        facts.append(("splitters", ", ".join(one["circuit"]["splitters"]) or "none needed"))
        worst = min(one["circuit"]["light"], key=lambda each: float(each["margin_db"]), default=None)
        if worst:
            facts.append(("light", f"{worst['power_dbm']} dBm at least, {worst['margin_db']} dB to spare"))
    facts.append(("rules", " ".join(f"{each['switch']}" for each in one["rules"])))
    for name, value in facts:
        if value:
            OUT.print(f"  {name:<15}{value}")
    timeline = one["timeline"]
    began = timeline["requested_ns"]
    for name, stamp in sorted(timeline.items(), key=lambda item: item[1] or 0):
        if stamp is not None:
            OUT.print(f"  {(stamp - began) / 1e6:>10.3f} ms  {name.removesuffix('_ns').replace('_', ' ')}")


@click.command()
@click.option("--fresh", is_flag=True, help="Read the powers from the OCS first.")
@with_api
def circuits(api: Api, as_json: bool, fresh: bool) -> None:
    """Circuits on the optical circuit switch: cross-connects, powers, splitters, and who uses them."""
    found = api.call("GET", "/v1/circuits", fresh=fresh or None)
    if as_json:
        print_json(found)
        return
    for ocs in found["ocs"]:
        OUT.print(f"{ocs['name']}: {ocs['state']}" + (f" ({ocs['cause']})" if ocs["cause"] else ""))
    table = Table("cross-connect", "state", "in dBm", "out dBm", "circuit", "used by", box=None, pad_edge=False)
    for one in found["cross_connects"]:
        user = one["path"] or ("found at start" if one["found_at_start"] else "idle")
        powers = [f"{value:.1f}" if value is not None else "-" for value in (one["input_dbm"], one["output_dbm"])]
        name = f"{one['ocs']} {one['input']}>{one['output']}"
        table.add_row(name, one["state"], *powers, one["circuit"] or "-", user)
    if found["cross_connects"]:
        OUT.print(whole(table, "cross-connect"))
    table = Table("splitter", "outputs", "state", "circuit", "used by", "", box=None, pad_edge=False)
    for one in found["splitters"]:
        row = (one["name"], str(one["fanout"]), one["state"], one["circuit"] or "-", one["path"] or "-", one["cause"])
        table.add_row(*row)
    OUT.print(whole(table, "splitter"))


@click.group()
def manager() -> None:
    """The manager itself."""


@manager.command("status")
@with_api
def manager_status(api: Api, as_json: bool) -> None:
    """Whether the manager has all its devices, and how fast it answers."""
    health, stats = api.call("GET", "/v1/health"), api.call("GET", "/v1/stats")
    if as_json:
        print_json({"health": health, "stats": stats})
        return
    OUT.print(f"{api.where}: {health['status']}, topology {health['topology']}, scheduler {health['scheduler']}")
    missing = f"; missing: {', '.join(health['missing'])}" if health["missing"] else ""
    OUT.print(f"  switches   {health['switches_up']} of {health['switches']} connected{missing}")
    for ocs in health["ocs"]:
        OUT.print(f"  {ocs['name']:<11}{ocs['state']}" + (f": {ocs['cause']}" if ocs["cause"] else ""))
    OUT.print(f"  agents     {health['agents_connected']} connected")
    states = ", ".join(f"{count} {state}" for state, count in sorted(stats["paths"].items()))
    OUT.print(f"  paths      {states or 'none'}")
    latency = stats["thrift_response"]
    if latency["count"]:
        times = f"p50 {latency['p50_ms']:.3f} ms, p99 {latency['p99_ms']:.3f} ms"
        OUT.print(f"  answers    {times} of {latency['count']} requests")


@manager.command("trace")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="The file to write, one JSON object a line.")  # fmt: skip
@with_api
def manager_trace(api: Api, as_json: bool, output: Path) -> None:
    """Write the transfers that the manager remembers as a trace, for `rostrum sim run schedulers --trace`."""
    found = api.call("GET", "/v1/transfers", limit=TRACE_MAX)["transfers"]
    rows = sorted(found, key=lambda one: one["begun_ns"])
    first = rows[0]["begun_ns"] if rows else 0
    lines = [
        json.dumps(
            {
                "at_ms": (one["begun_ns"] - first) / 1e6,
                "sender": one["sender"],
                "receivers": [each["server"] for each in one["receivers"]],
                "bytes": one["size"],
            }
        )
        for one in rows
    ]
    output.write_text("".join(line + "\n" for line in lines))
    if as_json:
        print_json({"file": str(output), "requests": len(lines)})
    else:
        OUT.print(f"{len(lines)} requests in {output}" + ("" if len(lines) < TRACE_MAX else ", the last ones"))


@manager.command("token")
@click.argument("name")
@click.option("--file", "file", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="The manager's --rest-tokens; made if it is not there.")  # fmt: skip
@click.option("--tenant", default="default", show_default=True, help="Whom the caller belongs to, for the audit log.")
@click.option("--role", type=click.Choice(["read", "write"]), default="read", show_default=True)
def manager_token(name: str, file: Path, tenant: str, role: Literal["read", "write"]) -> None:
    """Make a token with which NAME may use REST. It is printed once; the file keeps its hash only."""
    from rostrum.controller.northbound.rest import access

    try:
        click.echo(access.new_token(file, name, tenant, role))
    except access.AccessError as error:
        raise click.ClickException(str(error)) from error


@manager.group("journal")
def journal_commands() -> None:
    """The journal: the file (--journal) from which a manager recovers after a crash."""


_JOURNAL = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@journal_commands.command("show")
@_JOURNAL
def journal_show(file: Path) -> None:
    """Print the records of FILE as JSON; a manager may be using it."""
    from rostrum.controller.runtime import journal

    with _store_errors():
        print_json(journal.show(file))


@journal_commands.command("check")
@_JOURNAL
def journal_check(file: Path) -> None:
    """Look at every page and record of FILE."""
    from rostrum.controller.runtime import journal

    with _store_errors():
        counts = journal.check(file)
    OUT.print(f"{file} is whole: " + (", ".join(f"{n} {part}" for part, n in sorted(counts.items())) or "no records"))


@journal_commands.command("reset")
@_JOURNAL
def journal_reset(file: Path) -> None:
    """Move FILE away, whatever is wrong with it. The next manager takes over what agents and devices tell."""
    from rostrum.controller.runtime import journal

    with _store_errors():
        moved = journal.reset(file)
    OUT.print("\n".join(f"now {path}" for path in moved) or f"there was no {file}")


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    from rostrum.controller.runtime.store import StoreError

    try:
        yield
    except StoreError as error:
        raise click.ClickException(str(error)) from error


@manager.command("run", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def run_manager(options: tuple[str, ...]) -> None:
    """Run a manager here; the same as rostrum-manager, with its options."""
    from rostrum.controller.app import main  # heavy, and needed by nothing else here

    main(list(options), prog_name="rostrum manager run")
