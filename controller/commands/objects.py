"""`rostrum objects`: which servers hold which objects, over the manager's REST."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click
from rich.markup import escape
from rich.table import Table
from rostrum.controller.commands.paths import OUT, print_json, with_api
from rostrum.topologies.tables import whole


@click.command()
@click.argument("object_id", required=False)
@click.option("--name", help="Only objects with this in their name.")
@click.option("--holder", help="Only objects that this server holds.")
@click.option("--app", help="Only objects of the application with this fingerprint.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", help="Go on behind this object's id.")
@with_api
def objects(api: Any, as_json: bool, object_id: str | None, **filters: Any) -> None:
    """Objects and the servers that hold them; with OBJECT_ID (an id, a number or a name): one of them.

    \b
      rostrum objects                    all, the oldest first
      rostrum objects model.bin          who holds it; rostrum fetch model.bin gets it
      rostrum objects --holder h3
    """
    if object_id is not None:
        found = api.call("GET", f"/v1/objects/{quote(object_id, safe='')}")
        print_json(found) if as_json else _print_one(found)
        return
    found = api.call("GET", "/v1/objects", **filters)
    if as_json:
        print_json(found)
        return
    table = Table("object", "name", "bytes", "holders", "digest", box=None, pad_edge=False)
    for one in found["objects"]:
        digest = one["digest"].partition(":")[2][:12]
        holders = str(one["holder_count"]) + (f", {one['others']} of another" if one["others"] else "")
        table.add_row(one["id"], escape(one["name"] or "-"), str(one["size"]), holders, digest)
    OUT.print(whole(table, "object") if found["objects"] else "no agent that is connected holds an object that fits")
    if found["next"]:
        OUT.print(f"... of {found['count']} objects; go on with --after {found['next']}")


def _print_one(one: dict[str, Any]) -> None:
    OUT.print(f"{one['id']}{': ' + escape(one['name']) if one['name'] else ''}, {one['size']} bytes")
    OUT.print(f"  {'digest':<10}{one['digest']}")
    OUT.print(f"  {'holders':<10}{', '.join(one['holders'])}")
    if one["others"]:
        OUT.print(f"  {one['others']} of them hold another object by this id")
    if one["fetched_by"]:
        OUT.print(f"  it is being sent to {one['fetched_by']} servers that fetch it together")
