"""`rostrum stream send` and `receive`: a continuing stream from one server to many, for people and shell scripts."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import click
from rostrum.topologies import offers
from rostrum.topologies.units import Duration, size_text

from . import report
from .agent import Agent
from .commands import JSON, WAIT, number_of, which_agent
from .streams import READ_BYTES, StreamWriter
from .values import Event

Connect = Callable[[], Agent]


@click.group()
def stream() -> None:
    """A stream that continues: bytes that come out on many servers while they are being written here.

    \b
      on h3 and h5:  rostrum stream receive log
      on h1:         tail -f /var/log/syslog | rostrum stream send log --to h3,h5
    """


@stream.command()
@click.argument("name")
@click.option(
    "--to",
    "receivers",
    required=True,
    multiple=True,
    help="Servers, separated by commas; may be repeated.",
    shell_complete=offers.servers,
)
@click.option("--wait", type=WAIT, help="How long to wait for a path, for example 500ms. Default: the manager's.")
@JSON
@which_agent
def send(connect: Connect, name: str, receivers: tuple[str, ...], wait: float | None, as_json: bool) -> None:
    """Send standard input as stream NAME to many servers, as it comes.

    The slowest receiver holds the others back, within a bound: one that takes nothing for ten seconds fails, and so
    does one where nobody receives. Goes by RDCM, over packet trees. The exit status is 0 only if all that was read
    came to a program on every receiver.

    \b
      rostrum stream send log --to h3,h4 < file        on h3: rostrum stream receive log
      tail -f log | rostrum stream send log --to h3,h4
      tar c folder | rostrum stream send folder --to h3 --server h1     from server h1 of the running lab
    """
    names = [one.strip() for given in receivers for one in given.split(",") if one.strip()]
    if not names:
        raise click.UsageError("--to names no server")
    with connect() as agent, agent.stream_send(number_of(name), names, wait=wait) as out:
        watcher = threading.Thread(target=lambda: say(out.events()), daemon=True)
        if not as_json:
            watcher.start()
        _copy_in(out)
        result = out.finish()
        if not as_json:
            watcher.join(1.0)
    if as_json:
        print(json.dumps({"server": agent.server, **report.send_json(result)}, indent=1))
    else:
        report.print_result(result, name)
    if not result.ok:
        sys.exit(1)


def _copy_in(out: StreamWriter) -> None:
    """Until standard input ends or the stream does, which `finish` explains: there may be nothing to read for long."""
    over = out.fileno()
    while over not in select.select([0, over], [], [])[0] and (data := os.read(0, READ_BYTES)):
        out.write(data)


def say(events: Iterable[Event]) -> None:
    """What the stream waits for, and failed receivers as they fail."""
    for event in events:
        if event.kind == "phase" and event.subject == "queued":
            click.echo(f"queued: {event.text}", err=True)
        if event.kind == "receiver" and event.state == "failed":
            click.echo(f"{event.subject} failed: {event.text}", err=True)


@stream.command()
@click.argument("name")
@click.option("--wait", default="10min", show_default=True, type=Duration(bare="s"),
              help="How long to wait for it to begin.")  # fmt: skip
@click.option("--from", "holders", multiple=True, help="Join it under way: servers that receive it, or send it.")
@JSON
@which_agent
def receive(connect: Connect, name: str, wait: float, holders: tuple[str, ...], as_json: bool) -> None:
    """Write stream NAME to standard output as it comes to this server.

    With --from of a stream that is not for this server: it begins with what those servers keep of it, some MB, and
    nobody waits for this one.

    The exit status is 0 only if it came to its end. What was written before a failure is right as far as it goes.

    \b
      rostrum stream receive log
      rostrum stream receive folder --server h3 | tar x
      rostrum stream receive log --wait 1h > copy
      rostrum stream receive log --from h3           on h7, while it goes to h3 and h5
    """
    began, first = time.monotonic(), None
    output = sys.stdout.buffer
    names = [one.strip() for given in holders for one in given.split(",") if one.strip()]
    number = number_of(name)
    with (
        connect() as agent,
        agent.stream_join(number, names, wait) if names else agent.stream_receive(number, wait) as stream_in,
    ):
        for data in stream_in:
            first = first or time.monotonic()
            output.write(data)
            output.flush()
        count = stream_in.bytes_read
    took_s = time.monotonic() - (first or began)
    facts: dict[str, Any] = {"server": agent.server, "data_id": number_of(name), "bytes": count, "took_s": took_s}
    if as_json:
        print(json.dumps(facts, indent=1), file=sys.stderr)
    else:
        click.echo(f"{name}: {size_text(count)} in {took_s:.1f} s", err=True)
