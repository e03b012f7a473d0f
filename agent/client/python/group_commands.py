"""`rostrum pub` and `rostrum sub`: message groups for people and shell scripts."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import click
from rostrum.topologies import offers

from .agent import Agent
from .commands import JSON, WAIT, which_agent
from .groups import Group, Message
from .values import RostrumError, TimedOut, Unavailable

Connect = Callable[[], Agent]
AGENT_WAIT_S = 60.0  # for an agent that went away, as a join waits for a manager
AGENT_LOOK_S = 0.25
MISSED = "the group did not hear it for seconds; what others published meanwhile is not here"


def _group_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((
        click.option("--protocol", help="plain: what is lost is lost; ricochet: members mend each other's losses; qsm: "
                                        "many groups of the same servers share packets, and losses are mended. Of a "
                                        "new group; one that is there must have it. Default: as the group is."),
        click.option("--order", default="none", show_default=True,
                     help="With --protocol: fifo keeps each sender's order; sender, agreed and total have guarantees, "
                          "and may go on: total,slow=drop (rostrum groups create --help)."),
        click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
                     help="With --protocol: of the protocol, may be repeated (rostrum groups protocols lists them)."),
    )):  # fmt: skip
        function = option(function)
    return function


def _chosen(protocol: str | None, order: str, options: tuple[str, ...]) -> dict[str, Any]:
    if not protocol and (order != "none" or options):
        raise click.UsageError("--order and --option go with --protocol")
    return {"protocol": protocol, "order": order, "options": ",".join(options)}


@click.command()
@click.argument("group", shell_complete=offers.groups)
@click.argument("messages", nargs=-1)
@click.option("--file", type=click.File("rb"), help="One message: all of this file; - is standard input.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages a second. Default: as fast as it goes.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Publish it all so many times.")
@_group_options
@JSON
@which_agent
def pub(
    connect: Connect,
    group: str,
    messages: tuple[str, ...],
    file: BinaryIO | None,
    rate: float | None,
    repeat: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish MESSAGES to GROUP, or each line of standard input.

    Servers that subscribe get them: `rostrum sub GROUP`. A group is made by its first use.

    \b
      rostrum pub ticks "hello"                      on h3: rostrum sub ticks
      tail -f log | rostrum pub log                  a message for each line
      rostrum pub images --file picture.png          a file as one message (up to 1 MiB)
      rostrum pub ticks hello --server h1            from server h1 of the running lab
      rostrum pub orders --protocol ricochet --order fifo "first" "second"
    """
    if file and messages:
        raise click.UsageError("--file already says what to publish; leave out MESSAGES")
    chosen = _chosen(**options)
    source: Iterable[bytes]
    if file:
        source = [file.read()]
    elif messages:
        source = [one.encode() for one in messages]
    else:
        source = (line.rstrip(b"\n") for line in iter(sys.stdin.buffer.readline, b""))
    if repeat > 1:
        source = list(source) * repeat
    with connect() as agent, _told_of_waiting(agent).publisher(group, **chosen) as out:
        began = time.monotonic()
        if rate or not (file or messages):
            count = 0
            for count, one in enumerate(_paced(source, rate), 1):  # noqa: B007 (counts)
                out.publish(one)
        else:
            count = out.publish_all(source)
        took_s = time.monotonic() - began
        facts = {"server": agent.server, "group": group, "protocol": out.protocol, "published": count, "took_s": took_s}
    if as_json:
        print(json.dumps(facts, indent=1))


def _told_of_waiting(agent: Agent) -> Agent:
    """The same agent. People hear it if its manager is away, for whom a join waits."""
    status = agent.status()
    if not status.manager_up and not status.manager.startswith("none"):
        click.echo(f"waiting for the manager: {status.manager}", err=True)
    return agent


def _paced(source: Iterable[bytes], rate: float | None) -> Iterator[bytes]:
    began = time.monotonic()
    for place, one in enumerate(source):
        if rate and (wait_s := began + place / rate - time.monotonic()) > 0:
            time.sleep(wait_s)
        yield one


class _Start(click.ParamType[int | datetime]):
    """A message's number, or a time: so long ago, or as ISO 8601 has it."""

    name = "SEQ|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if value == "first":
            return 0
        if value.isascii() and value.isdecimal():
            return int(value)
        if ago := _AGO.fullmatch(value):
            try:
                return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            except OverflowError:
                self.fail(f"{value} is longer ago than time is counted", param, ctx)
        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no message's number (17, first), no time ago (90s, 10m, 2h, 1d), and no time "
                "(2026-01-31T12:00)", param, ctx,
            )  # fmt: skip


_AGO = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command()
@click.argument("group", shell_complete=offers.groups)
@click.option(
    "--from",
    "start",
    type=_Start(),
    help="Of a group with keep: first what it keeps, from that message on (a number, or: first), or from that time on "
    "(10m: ago; 2026-01-31T12:00).",
)
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option(
    "--wait", type=WAIT, help="End when nothing came for so long (500ms); exit status 1 if --count is missed."
)
@click.option("--quiet", is_flag=True, help="Print only how many came, at the end.")
@_group_options
@JSON
@which_agent
def sub(
    connect: Connect,
    group: str,
    start: int | datetime | None,
    count: int | None,
    wait: float | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Subscribe to GROUP and print its messages, one a line; losses are told on standard error.

    With --json each message is a JSON object on a line of its own: sender, sn, via, text (or hex).

    \b
      rostrum sub ticks
      rostrum sub ticks --count 10 --server h3       on server h3 of the running lab
      rostrum sub ticks --json | jq -r .sender
      rostrum sub ticks --wait 5s --quiet            how many come
      rostrum sub log --from 10m                     what was published in the last ten minutes, and on
    """
    got, lost, short = 0, 0, False
    with contextlib.closing(_messages(connect, group, _chosen(**options), wait, start)) as messages:
        try:
            while count is None or got < count:
                message = next(messages)
                if message.view or message.primary is not None:
                    click.echo(_told(message), err=True)
                    continue
                if message.lost is not None:
                    lost += message.lost
                    click.echo(f"lost: {_what(message)}: {message.why}", err=True)
                    continue
                got += 1
                if not quiet:
                    _show(message, as_json)
        except TimedOut:
            short = count is not None
        except KeyboardInterrupt:
            pass
    if quiet:
        print(
            json.dumps({"group": group, "received": got, "lost": lost}) if as_json else f"{got} received, {lost} lost"
        )
    if short:
        sys.exit(1)


def _messages(
    connect: Connect, group: str, chosen: dict[str, Any], wait: float | None, start: int | datetime | None
) -> Generator[Message, None, None]:
    """The group's messages, without end. An agent that goes away is waited for, and the group joined again; what others
    published meanwhile is lost, but with `start`: then it goes on behind the last one.
    """
    gone: RostrumError | None = None  # why there is no agent
    give_up = 0.0
    while True:
        try:
            with (
                connect() as agent,
                (agent if gone else _told_of_waiting(agent)).join(group, **chosen, start=start) as messages,
            ):
                again = "again " if gone else ""
                click.echo(
                    f"{agent.server} is {again}in {group} ({messages.protocol}, order {messages.order})", err=True
                )
                gone, give_up = None, time.monotonic()
                viewed = False
                while True:
                    message = messages.next(wait)
                    if message.view:
                        if viewed and message.view.anew:
                            click.echo(f"{agent.server} was put out and is in again: {MISSED}", err=True)
                        viewed = True
                    if start is not None and message.view is None and message.primary is None and message.lost is None:
                        start = message.sn + 1
                    yield message
        except Unavailable as error:
            if not give_up:
                raise  # it was never in it
            if gone is None:
                bound = AGENT_WAIT_S if wait is None else wait
                lost = "" if start is not None else "; what is published meanwhile is lost"
                click.echo(f"{error}: waiting for the agent, {bound:g} s at most{lost}", err=True)
                gone, give_up = error, time.monotonic() + bound
            if time.monotonic() >= give_up:
                text = f"{gone}, and is not back: start it (systemctl start rostrumd), and subscribe again"
                raise Unavailable(text) from error
            time.sleep(AGENT_LOOK_S)


def _told(message: Message) -> str:
    view = message.view
    if view is None:
        return "primary: yes" if message.primary else "primary: no (the rest of the group is not heard)"
    changes = [f"{word} {', '.join(names)}" for word, names in (("joined", view.joined), ("left", view.left)) if names]
    return f"view after {view.number}: {', '.join(view.members)}{''.join(f'; {one}' for one in changes)}"


def _what(message: Message) -> str:
    what = "packet" if message.sender else "message"
    of = f" of {message.sender} from {message.sn} on" if message.sender else ""
    return f"{message.lost or 'some'} {what}{'' if message.lost == 1 else 's'}{of}"


def _show(message: Message, as_json: bool) -> None:
    if as_json:
        try:
            body = {"text": message.data.decode()}
        except UnicodeDecodeError:
            body = {"hex": message.data.hex()}
        print(
            json.dumps({"sender": message.sender, "sn": message.sn, "part": message.part, "via": message.via, **body})
        )
    else:
        sys.stdout.buffer.write(message.data + b"\n")
    sys.stdout.flush()


__all__ = ["Group", "pub", "sub"]
