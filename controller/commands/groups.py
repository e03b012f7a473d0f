"""`rostrum groups`: message groups from the command line, over the manager's REST."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rostrum.controller.commands.paths import MANAGER_HELP, OUT, Api, print_json, with_api
from rostrum.controller.core.groups.values import NAME
from rostrum.topologies import offers
from rostrum.topologies.tables import whole


@click.group(invoke_without_command=True)
@click.option("--manager", help=MANAGER_HELP)
@click.option("--lab", default="lab", help="Which lab. Default: the one called lab, or the only one.")
@click.option("--json", "as_json", is_flag=True, help="Print the manager's JSON.")
@click.pass_context
def groups(context: click.Context, manager: str | None, lab: str, as_json: bool) -> None:
    """Message groups: list them, make one, look at one, delete it. Without a command: list them.

    \b
      rostrum groups protocols       what they can run, and the options of each
      rostrum groups create ticks --protocol ricochet --option r=8 --option c=5
      rostrum groups show ticks      its members, its address, who gets its messages without wanting them
      rostrum groups delete ticks
    """
    given = {"manager": manager, "lab": lab, "as_json": as_json}
    if context.invoked_subcommand is None:
        context.invoke(list_groups, **given, server=None)
    else:
        context.default_map = {context.invoked_subcommand: given}


@groups.command("list")
@click.option("--server", help="Only groups that this server is in.", shell_complete=offers.servers)
@with_api
def list_groups(api: Api, as_json: bool, server: str | None) -> None:
    """Groups, the oldest first; the first thousand."""
    found = api.call("GET", "/v1/groups", server=server, limit=1000)
    if as_json:
        print_json(found)
        return
    table = Table(
        "group",
        "id",
        "version",
        "runs",
        "members",
        "senders",
        "address",
        "shared by",
        "waste",
        box=None,
        pad_edge=False,
    )
    for one in found["groups"]:
        row = (one["id"], one["version"], _runs(one), one["member_count"], one["sender_count"])
        shared = (one["address"] or "-", one["shares_with"] + 1, one["waste"])
        table.add_row(one["name"], *(str(value) for value in (*row, *shared)))
    OUT.print(
        whole(table, "group", "address")
        if found["groups"]
        else "no groups; a program's first join makes one, or: rostrum groups create"
    )
    if found["next"]:
        OUT.print(f"... of {found['count']} groups at {found['addresses']} addresses")


@groups.command("create")
@click.argument("name")
@click.option("--protocol", default="plain", show_default=True, help="plain, ricochet, ...: rostrum groups protocols.")
@click.option(
    "--order",
    type=click.Choice(["none", "fifo", "sender", "agreed", "total"]),
    default="none",
    show_default=True,
    help="fifo: each sender's, with gaps; sender, agreed, total: with guarantees (docs/guarantees.md).",
)
@click.option(
    "--guarantee",
    type=click.Choice(["best-effort", "reliable", "virtual-synchrony"]),
    help="With --order sender, agreed or total: virtual-synchrony (usual), or reliable: the same without views.",
)
@click.option(
    "--slow",
    type=click.Choice(["wait", "drop", "disconnect"]),
    help="With --order sender, agreed or total, of a program that does not read: all wait (usual), it loses messages, "
    "or is put out.",
)
@click.option(
    "--keep",
    metavar="SIZE|TIME",
    help="With --order total, messages that each member keeps for rostrum sub --from: so many bytes (64M), or so long "
    "(10m).",
)
@click.option(
    "--keep-on", type=click.Choice(["memory", "disk"]), help="With --keep; disk: of agents with rostrumd --to-disk."
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of the protocol; may be repeated.")
@with_api
def create_group(
    api: Api, as_json: bool, name: str, protocol: str, order: str, guarantee: str | None, slow: str | None,
    keep: str | None, keep_on: str | None, options: tuple[str, ...],
) -> None:  # fmt: skip
    """Make a group that stays until it is deleted.

    `rostrum groups protocols` lists the protocols that agents have, and the options of each with their ranges.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} cannot be a group's name: it has 1 to 128 of A-Z a-z 0-9 . _ : -")
    body = {"name": name, "protocol": protocol, "order": order, "options": ",".join(options)}
    chosen = (("guarantee", guarantee), ("slow", slow), ("keep", keep), ("keep_on", keep_on))
    body |= {key: value for key, value in chosen if value}
    made = api.call("POST", "/v1/groups", body)
    print_json(made) if as_json else _print_group(made)


@groups.command("protocols")
@with_api
def list_protocols(api: Api, as_json: bool) -> None:
    """Protocols that agents have, and the options of each: --option NAME=VALUE of create."""
    found = api.call("GET", "/v1/engines")
    if as_json:
        print_json(found)
        return
    table = Table("protocol", "option", "usual", "range", "", box=None, pad_edge=False)
    for engine in found["groups"]:
        table.add_row(engine["name"], "", "", "", engine["meaning"])
        for one in engine["options"]:
            span = f"{one['least']:g} to {one['most']:g}{', whole' * one['whole']}"
            table.add_row("", one["name"], f"{one['usual']:g}", span, one["meaning"])
    OUT.print(table if found["groups"] else "no agent has told which protocols it has")


@groups.command("show")
@click.argument("name", shell_complete=offers.groups)
@with_api
def show_group(api: Api, as_json: bool, name: str) -> None:
    """One group: its members, its address and tree."""
    found = api.call("GET", f"/v1/groups/{_segment(name)}")
    print_json(found) if as_json else _print_group(found)


@groups.command("delete")
@click.argument("name", shell_complete=offers.groups)
@click.option("--force", is_flag=True, help="Even if servers are in it; they are told.")
@with_api
def delete_group(api: Api, as_json: bool, name: str, force: bool) -> None:
    """Delete a group."""
    gone = api.call("DELETE", f"/v1/groups/{_segment(name)}", force="true" if force else None)
    print_json(gone) if as_json else OUT.print(f"{gone['name']} is deleted")


def _segment(text: str) -> str:
    if not NAME.fullmatch(text) or text.strip(".") == "":
        raise click.BadParameter(f"{text!r} is no group's name; rostrum groups list shows them")
    return text


def _runs(one: dict[str, Any]) -> str:
    chosen = f" ({one['options']})" if one["options"] else ""
    return f"{one['protocol']}{chosen}{_delivery(one)}"


def _delivery(one: dict[str, Any]) -> str:
    if one["order"] in ("none", "fifo"):
        return ", fifo" if one["order"] == "fifo" else ""
    keep = f", keep: {one['keep']} ({one['keep_on']})" if one["keep"] else ""
    return f", order {one['order']}, {one['guarantee']}, slow: {one['slow']}{keep}"


def _print_group(one: dict[str, Any]) -> None:
    OUT.print(f"{one['name']}: group {one['id']}, version {one['version']}, runs {_runs(one)}")
    others = f", shared with {one['shares_with']} other groups" if one["shares_with"] else ""
    waste = f"{one['waste']} servers get its messages without being in it" if one["waste"] else ""
    tree = f"root {one['root']}; rules on {', '.join(one['switches'])}" if one["switches"] else ""
    for name, value in (
        ("members", ", ".join(one["members"])),
        ("senders", ", ".join(one["senders"])),
        ("address", f"{one['address']}{others}" if one["address"] else ""),
        ("waste", waste),
        ("tree", tree),
    ):
        if value:
            OUT.print(f"  {name:<10}{value}")
    for slow in one.get("slow_programs", ()):
        lost = f", {slow['lost']} messages lost" if slow["lost"] else ""
        OUT.print(f"  slow: {slow['program']} on {slow['server']} ({slow['state']}{lost})")
    for region in one.get("regions", ()):
        where = region["address"] or "unicast"
        OUT.print(f"  region {region['id']} at {where}, of {region['groups']} groups: {', '.join(region['servers'])}")
