"""`rostrum links`: the links of the fabric from the command line, over the manager's REST."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click
from rich.markup import escape
from rich.table import Table
from rostrum.controller.commands.paths import MANAGER_HELP, OUT, Api, print_json, with_api
from rostrum.topologies import offers
from rostrum.topologies.tables import whole

COLOURS = {"failed": "red", "silent": "red", "drained": "yellow"}


@click.group(invoke_without_command=True)
@click.option("--manager", help=MANAGER_HELP)
@click.option("--lab", default="lab", help="Which lab. Default: the one called lab, or the only one.")
@click.option("--json", "as_json", is_flag=True, help="Print the manager's JSON.")
@click.pass_context
def links(context: click.Context, manager: str | None, lab: str, as_json: bool) -> None:
    """Links between switches, and to optical circuit switches: list them, take one out of use, put it back.

    \b
      rostrum links                                    every port, what discovery (LLDP) hears there, and its use
      rostrum links out                                those out of service, and why
      rostrum links drain tor1 core --reason "new cable"
      rostrum links undrain tor1 core
    """
    given = {"manager": manager, "lab": lab, "as_json": as_json}
    if context.invoked_subcommand is None:
        context.invoke(list_links, **given)
    else:
        context.default_map = {context.invoked_subcommand: given}


@links.command("list")
@with_api
def list_links(api: Api, as_json: bool) -> None:
    """Every port between devices."""
    found = api.call("GET", "/v1/links")
    if as_json:
        print_json(found)
        return
    table = Table("port", "to", "discovery", "use", "", box=None, pad_edge=False)
    for one in found["links"]:
        use = one["use"]
        shown = f"[{COLOURS[use]}]{use}[/{COLOURS[use]}]" if use in COLOURS else use
        table.add_row(f"{one['switch']}:{one['port']}", one["expected"], one["state"], shown, escape(one["text"]))
    OUT.print(whole(table, "port", "to") if found["links"] else "no links between devices")


@links.command("out")
@with_api
def links_out(api: Api, as_json: bool) -> None:
    """Links out of service: failed, silent or drained."""
    _print_out(api.call("GET", "/v1/failed-links"), as_json)


@links.command("drain")
@click.argument("a", shell_complete=offers.nodes)
@click.argument("b", shell_complete=offers.nodes)
@click.option("--reason", default="", help="For whoever looks later.")
@with_api
def drain(api: Api, as_json: bool, a: str, b: str, reason: str) -> None:
    """Take the link between A and B out of use, until `undrain`: two switches, or a switch and an OCS.

    What runs over it is led around it. Restarts and other managers' takeovers change nothing about it. A link without
    which a rack would be cut off is refused.
    """
    _print_out(api.call("PUT", f"/v1/links/{_segment(a)}/{_segment(b)}/drain", {"reason": reason}), as_json)


@links.command("undrain")
@click.argument("a", shell_complete=offers.nodes)
@click.argument("b", shell_complete=offers.nodes)
@with_api
def undrain(api: Api, as_json: bool, a: str, b: str) -> None:
    """Put the drained link between A and B back into service."""
    _print_out(api.call("DELETE", f"/v1/links/{_segment(a)}/{_segment(b)}/drain"), as_json)


def _segment(text: str) -> str:
    return quote(text, safe="") or "-"


def _print_out(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for one in found["drained_links"]:
        reason = f": {escape(one['reason'])}" if one["reason"] else ""
        OUT.print(f"[yellow]drained[/yellow]  {'-'.join(one['link'])}{reason}")
    for one in found["failed_links"]:
        kind = "silent" if one["silent"] else "failed"
        OUT.print(f"[red]{kind}[/red]   {'-'.join(one['link'])}: {escape(one['cause'])}")
    if not found["drained_links"] and not found["failed_links"]:
        OUT.print("all links are in use")
