"""`rostrum sync`: a folder kept alike on many servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rostrum.topologies.units import size_text

from . import report
from .commands import JSON, TO, WAIT, Connect, which_agent
from .sync import ANSWER_WAIT_S, SyncResult, sync_folder, take_folder

NAMED_MOST = 20


@click.command()
@click.argument("folder")
@TO
@click.option("--into", type=click.Path(file_okay=False, path_type=Path),
              help="Here is a receiver: make this folder like the one that is offered as FOLDER.")  # fmt: skip
@click.option("--name", help="What the receivers call it. Default: the folder's own name.")
@click.option("--delete", is_flag=True, help="Delete what receivers have and this folder has not.")
@click.option("--dry-run", is_flag=True, help="Say what would change; nothing does.")
@click.option("--checksum", is_flag=True, help="Compare contents, not only sizes and times.")
@click.option("--whole", is_flag=True, help="Send changed files whole: faster at 5 Gbit/s and more (docs/agent.md).")
@click.option("--once", is_flag=True, help="With --into: end after one.")
@click.option("--wait", type=WAIT, help="For a receiver's answer (default 30s); with --into for an offer (forever).")
@JSON
@which_agent
def sync(
    connect: Connect,
    folder: str,
    receivers: tuple[str, ...],
    into: Path | None,
    name: str | None,
    delete: bool,
    dry_run: bool,
    checksum: bool,
    whole: bool,
    once: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    """Make folders on many servers like FOLDER: what is the same there is not sent, what several lack is sent once.

    \b
      rostrum sync site --into /srv/site            on h3 and h4; it stays
      rostrum sync site --to h3,h4                  on the sender, as often as site changes
      rostrum sync site --to h3,h4 --delete --dry-run

    Names, modes, times, symbolic and hard links are kept. Links out of the folder, devices and set-user-id go
    nowhere. A file is seen only when it is complete; after an interruption the next sync goes on. The exit status is
    0 only if every receiver's folder is like this one.
    """
    names = [one.strip() for given in receivers for one in given.split(",") if one.strip()]
    if bool(names) == bool(into):
        raise click.UsageError("say --to SERVERS here, or --into FOLDER on a receiver")

    def tell(text: str) -> None:
        if into or not as_json:
            click.echo(text, err=True)

    with connect() as agent:
        if into:
            take_folder(agent, folder, into, once=once, wait=wait, report=tell)
            return
        if not Path(folder).is_dir():
            raise click.UsageError(f"{folder} is no folder")
        result = sync_folder(
            agent, folder, names, name=name, delete=delete, dry_run=dry_run, checksum=checksum, whole=whole,
            wait=wait or ANSWER_WAIT_S, report=tell,
            watch=None if as_json else lambda handle: report.follow(handle.events(), phases=False),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"server": agent.server, **result.as_dict()}, indent=1))
    else:
        print_result(result, dry_run)
    if not result.ok:
        sys.exit(1)


def print_result(result: SyncResult, dry_run: bool) -> None:
    for path, why in result.left_out[:NAMED_MOST]:
        click.echo(f"left out: {path}: {why}")
    if len(result.left_out) > NAMED_MOST:
        click.echo(f"left out: {len(result.left_out) - NAMED_MOST} more")
    for row in result.receivers:
        for line in row.would[:NAMED_MOST]:
            click.echo(f"{row.name}: {line}")
        if len(row.would) > NAMED_MOST:
            click.echo(f"{row.name}: {len(row.would) - NAMED_MOST} more (--json names all)")
        for path, why in row.refused[:NAMED_MOST]:
            click.echo(f"{row.name} refused {path}: {why}")
        text = f"{row.new} new, {row.changed} changed, {row.deleted} deleted, lacked {size_text(row.received)}"
        click.echo(f"{row.name}: {text}" if row.ok else f"{row.name} failed: {row.cause}")
    did = "would send at most" if dry_run else f"sent {size_text(result.sent)} of"
    click.echo(f"{did} {size_text(result.size)} in {result.files} files; {result.took_s:.2f} s")
