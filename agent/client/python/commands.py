"""`rostrum send`, `read`, `delete`, `status`: the agent for people and shell scripts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

import click
from rostrum.topologies import offers
from rostrum.topologies.units import Duration

from . import report
from .agent import Agent, SendHandle
from .folders import pack, unpack
from .names import agent_socket, data_id_of
from .values import AlreadyThere, NotFound, RostrumError, SendResult

CANCEL_BOUND_S = 10.0
TYPED = "rostrum.client.names"  # of the context: name by number
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _errors_as_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """The agent's errors become one message and exit status 1."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BrokenPipeError:  # nobody reads on: that is no error
            raise
        except (RostrumError, OSError) as error:
            raise click.ClickException(as_typed(str(error))) from error

    return wrapped


def number_of(name: str) -> int:
    """The dataID that was typed as `name`; what is said of it calls it so again."""
    number = data_id_of(name)
    click.get_current_context().meta.setdefault(TYPED, {})[number] = name
    return number


def as_typed(text: str) -> str:
    """The agent's text, with the objects' names instead of application and number."""
    for number, name in click.get_current_context().meta.get(TYPED, {}).items():
        text = re.sub(rf"(?<![\w/])(?:[0-9a-f-]+/)?{number}(?!\w)", name.replace("\\", r"\\"), text)
    return text


def which_agent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which agent and which application; the command gets `connect`, which connects to it."""

    @click.option("--socket", "socket_path", type=click.Path(path_type=Path), help="The agent's socket.")
    @click.option("--server", help="A server of a running lab: its agent is asked.", shell_complete=offers.servers)
    @click.option(
        "--lab",
        help="The lab that server is in. Default: the only one, or the one called lab.",
        shell_complete=offers.labs,
    )
    @click.option("--app", help="Application id (a UUID) if not the command's own.")
    @_errors_as_text
    @wraps(function)
    def wrapped(socket_path: Path | None, server: str | None, lab: str | None, app: str | None, **kwargs: Any) -> Any:
        if socket_path and (server or lab):
            raise click.UsageError("--socket already says which agent; leave out --server and --lab")

        def connect() -> Agent:
            path = socket_path or agent_socket(server, lab)
            return Agent(path, app, process="rostrum", on_silence=lambda text: click.echo(text, err=True))

        return function(connect=connect, **kwargs)

    return wrapped


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines (docs/commands.md).")
TO = click.option(
    "--to",
    "receivers",
    multiple=True,
    help="Servers, separated by commas; may be repeated.",
    shell_complete=offers.servers,
)
WAIT = Duration(least_s=0.001, bare="s")  # a number alone is seconds
Connect = Callable[[], Agent]


class _FileOrFolder(click.File):
    """An open file, or the path of a folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str | os.PathLike) and Path(value).is_dir():
            return Path(value)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            if isinstance(value, str) and value != "-" and os.path.exists(value):  # and not for this user
                raise click.ClickException(f"{value}: {_why_unreadable(value)}") from None
            raise


def _why_unreadable(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.strerror or str(error)
    return "it cannot be read"


@click.command()
@click.argument("file", type=_FileOrFolder("rb"))
@TO
@click.option(
    "--wait-for", type=click.IntRange(min=1), help="Without an agent: all that run rostrum receive, once these are N."
)
@click.option("--interface", help="Without an agent: network interface, or its address. Default: by the routing table.")
@click.option("--data-id", help="Name or number of the object. Default: the file's name.")
@click.option("--wait", type=WAIT, help="How long to wait for a path, for example 500ms. Default: the manager's.")
@click.option("--deadline", type=WAIT, help="When it should be done, from now (a hint).")
@click.option(
    "--stragglers",
    type=click.Choice(["wait", "demote", "evict"]),
    help="A receiver less than half as fast as half of the others: wait for it, finish it by unicast while the others "
    "go on, or let it fail. Default: the agent's.",
)
@click.option(
    "--protocol",
    type=click.Choice(["auto", "rdcm", "republic", "wan"]),
    default="auto",
    show_default=True,
    help="rdcm: receivers mend each other's losses (packet trees); republic: the sender does; wan: the same for "
    "long round trips; auto: the manager chooses, and says why.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="Of the protocol: of wan congestion=own|friendly|fixed:200M, coding=none|repairs|proactive:10, "
              "slow=demote|wait.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the object on the sending server too.")
@click.option("--replace", is_flag=True, help="Delete an object of that id on the sending server first.")
@JSON
@which_agent
def send(
    connect: Connect,
    file: BinaryIO | Path,
    receivers: tuple[str, ...],
    wait_for: int | None,
    interface: str | None,
    data_id: str | None,
    wait: float | None,
    deadline: float | None,
    stragglers: str | None,
    protocol: str,
    options: tuple[str, ...],
    keep: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Send FILE (- for standard input; or a folder, as one object) to many servers at once.

    The exit status is 0 only if every receiver has the whole object and its digest is right. Ctrl-C, SIGTERM and
    SIGHUP cancel the send; the sender's copy goes as ever.

    \b
      rostrum send model.bin --to h3,h4             on h3: rostrum read model.bin -o model.bin
      rostrum send model.bin --to h3,h4 --data-id 7
      rostrum send model.bin --server h1 --to h3    from server h1 of the running lab
      rostrum send folder --to h3,h4                on h3: rostrum read folder --folder -o folder
      rostrum send model.bin --to h3 --json | jq '.receivers[].complete_ms'

    Where no agent runs, it sends to those that run `rostrum receive` on the LAN (docs/lan.md):

    \b
      rostrum send model.bin --to 10.0.0.2,10.0.0.3
      rostrum send model.bin --wait-for 3           to all of them, once there are three
    """
    names = [name.strip() for given in receivers for name in given.split(",") if name.strip()]
    if not names and not wait_for:
        raise click.UsageError("--to names no server")
    source = file.resolve().name if isinstance(file, Path) else Path(getattr(file, "name", "-")).name
    source = "" if source in ("-", "<stdin>") else source
    if options and protocol == "auto":
        raise click.UsageError("--option goes with --protocol")
    if wait_for or interface or _alone():
        if isinstance(file, Path):
            raise click.UsageError(f"{file} is a folder, and a folder needs an agent here: send an archive of it (tar)")
        from .lan_commands import send_on_lan  # not needed where an agent runs

        send_on_lan(file, names, wait_for, wait, interface, as_json, data_id or source or "received", deadline=deadline,
                    stragglers=stragglers, protocol=protocol, options=",".join(options))  # fmt: skip
        return
    if not data_id and not source:
        raise click.UsageError("standard input has no name: give the object one with --data-id")
    number = number_of(data_id or source)
    with connect() as agent, _ended_like_ctrl_c(), _packed(file) as content:
        if replace:
            with contextlib.suppress(NotFound):
                agent.delete(number)
        handle = agent.send(data_id or source, names, wait, deadline, stragglers=stragglers, protocol=protocol,
                            source=content, options=",".join(options))  # fmt: skip
        try:  # not a line later: an interrupt must find it
            result = _watch(handle, quiet=as_json)
        except AlreadyThere:  # and that one is not this command's
            keep = True
            raise
        finally:
            if not keep:
                _tidy(agent, number)
    if as_json:
        print(json.dumps({"server": agent.server, **report.send_json(result)}, indent=1))
    else:
        report.print_result(result, data_id or source)
    if not result.ok:
        sys.exit(1)


def _alone() -> bool:
    """Nobody said which agent, and there is none. Raises click.ClickException: there are several, as of a lab."""
    given = click.get_current_context().params
    if given.get("socket_path") or given.get("server") or given.get("lab"):
        return False
    try:
        path = agent_socket()
    except RostrumError as error:
        raise click.ClickException(f"{error}; on the LAN, without an agent: --interface NIC or ADDRESS") from error
    return not os.environ.get("ROSTRUM_SOCKET") and not path.exists()


@contextlib.contextmanager
def _packed(file: BinaryIO | Path) -> Iterator[BinaryIO | int]:
    """The file, or an archive of the folder."""
    if not isinstance(file, Path):
        yield file
        return
    descriptor = pack(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP are the KeyboardInterrupt that SIGINT is: what this command left with the agent goes."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are not this thread's to handle
        yield
        return
    ends = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]  # nohup
    before = [(one, signal.signal(one, interrupt)) for one in ends]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _watch(handle: SendHandle, quiet: bool) -> SendResult:
    try:
        if not quiet:
            report.follow(handle.events())
        return handle.wait()
    except KeyboardInterrupt:
        handle.cancel()
        return handle.wait(CANCEL_BOUND_S)


def _tidy(agent: Agent, data_id: int) -> None:
    """The command's own copy goes; that it cannot yet is worth a line, not a failure."""
    try:
        agent.delete(data_id)
    except NotFound:  # it could not be begun, and left nothing
        return
    except RostrumError as error:
        click.echo(f"note: the sender's copy stays: {as_typed(str(error))}", err=True)


@click.command()
@click.argument("data_id")
@click.option("-o", "--output", required=True, help="File to write; - is standard output.")
@click.option("--wait", default="60s", show_default=True, type=Duration(bare="s"), help="How long to wait for it.")
@click.option("--folder", is_flag=True, help="It is a folder: make it at --output, where nothing is yet.")
@click.option("--delete", "delete_after", is_flag=True, help="Delete it from this server afterwards.")
@JSON
@which_agent
def read(
    connect: Connect, data_id: str, output: str, wait: float, folder: bool, delete_after: bool, as_json: bool
) -> None:
    """Write object DATA_ID, received by this server, to a file, as soon as it is whole.

    DATA_ID is the number or name that it was sent under; a file's name if none was given.

    \b
      rostrum read model.bin -o model.bin
      rostrum read 7 --server h5 -o copy.bin        from server h5 of the running lab
      rostrum read folder --folder -o folder --wait 10min
    """
    number = number_of(data_id)
    with connect() as agent, agent.read(number, wait=wait) as data:
        if folder:
            unpack(data.fd, Path(output))
        elif output in STDOUT:
            for piece in data.chunks():
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            data.copy_to(output)
        if delete_after:
            agent.delete(number)
        facts = {"data_id": number, "size": data.size, "digest": data.digest, "server": agent.server, "output": output}
    if as_json:
        print(json.dumps(facts, indent=1), file=sys.stderr if output in STDOUT else sys.stdout)
    elif output not in STDOUT:
        click.echo(f"{output}: {data.size} bytes, {data.digest}")


@click.command()
@click.argument("data_id")
@click.option(
    "--from",
    "holders",
    multiple=True,
    help="Servers that have it, separated by commas: NAME, or NAME@ADDRESS if this agent does not know where it is.",
)
@click.option("-o", "--output", help="File to write it to as well; - is standard output.")
@click.option("--wait", default="60s", show_default=True, type=Duration(bare="s"), help="How long to wait for it.")
@JSON
@which_agent
def fetch(
    connect: Connect, data_id: str, holders: tuple[str, ...], output: str | None, wait: float, as_json: bool
) -> None:
    """Get object DATA_ID, which other servers have, to this one: from all of them at once, piece by piece.

    Each piece is checked before it counts. Without --from the manager is asked who has it (rostrum objects), and a part
    of it that is on this server's disk is gone on with. Servers that ask for it within a moment of each other are sent
    it together.

    \b
      rostrum fetch model.bin
      rostrum fetch model.bin --from h1,h3
      rostrum fetch model.bin --from h1@10.0.1.1 -o model.bin
    """
    names = [name.strip() for given in holders for name in given.split(",") if name.strip()]
    number = number_of(data_id)
    with connect() as agent, agent.fetch(data_id, names, wait=wait) as data:
        if output in STDOUT:
            for piece in data.chunks():
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif output:
            data.copy_to(output)
        facts = {"data_id": number, "size": data.size, "digest": data.digest, "server": agent.server, "output": output}
    if as_json:
        print(json.dumps(facts, indent=1), file=sys.stderr if output in STDOUT else sys.stdout)
    elif output not in STDOUT:
        click.echo(f"{data_id}: {data.size} bytes, {data.digest}")


@click.command()
@click.argument("data_id")
@click.option("--off", is_flag=True, help="It may go again.")
@JSON
@which_agent
def pin(connect: Connect, data_id: str, off: bool, as_json: bool) -> None:
    """Keep object DATA_ID on this server when its agent makes room (rostrumd --evict)."""
    number = number_of(data_id)
    with connect() as agent:
        agent.pin(number, not off)
        server = agent.server
    if as_json:
        print(json.dumps({"server": server, "data_id": number, "pinned": not off}, indent=1))
    else:
        click.echo(f"{data_id} is {'not pinned any more' if off else 'pinned'} on {server}")


@click.command()
@click.argument("data_id")
@JSON
@which_agent
def cancel(connect: Connect, data_id: str, as_json: bool) -> None:
    """Stop the sending of object DATA_ID, whichever command or program of the application started it.

    \b
      rostrum cancel model.bin
      rostrum cancel model.bin --server h1
    """
    number = number_of(data_id)
    with connect() as agent:
        agent.cancel(number)
    if as_json:
        print(json.dumps({"server": agent.server, "data_id": number, "cancelled": True}, indent=1))
    else:
        click.echo(f"{data_id} cancelled")


@click.command()
@click.argument("data_id")
@JSON
@which_agent
def leave(connect: Connect, data_id: str, as_json: bool) -> None:
    """Stop receiving object or stream DATA_ID on this server: the others go on, and nothing fails.

    \b
      rostrum leave model.bin --server h3
    """
    number = number_of(data_id)
    with connect() as agent:
        agent.leave(number)
        server = agent.server
    if as_json:
        print(json.dumps({"server": server, "data_id": number, "left": True}, indent=1))
    else:
        click.echo(f"{server} left {data_id}")


@click.command()
@click.argument("data_id")
@click.option("--from", "holders", multiple=True, help="Servers that have it by now. Default: where it came from.")
@click.option("--wait", default="60s", show_default=True, type=Duration(bare="s"), help="How long to wait for it.")
@JSON
@which_agent
def resume(connect: Connect, data_id: str, holders: tuple[str, ...], wait: float, as_json: bool) -> None:
    """Go on now with object DATA_ID, of which a part is on this server's disk: what is here is not sent again.

    The agent does so by itself, at growing intervals, and so does a sender's that was restarted (rostrumd --to-disk).
    Otherwise rostrum send of the same file there is enough: receivers take what they lack.

    \b
      rostrum resume model.bin
      rostrum resume model.bin --from h1,h3
    """
    names = [name.strip() for given in holders for name in given.split(",") if name.strip()]
    number = number_of(data_id)
    with connect() as agent, agent.fetch(data_id, names, wait=wait) as data:
        facts = {"data_id": number, "size": data.size, "digest": data.digest, "server": agent.server}
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        click.echo(f"{data_id}: {data.size} bytes, {data.digest}")


@click.command()
@click.argument("data_ids", nargs=-1, required=True)
@JSON
@which_agent
def delete(connect: Connect, data_ids: tuple[str, ...], as_json: bool) -> None:
    """Remove objects from this server. Programs that are reading one keep it until they are done.

    \b
      rostrum delete model.bin 7
      rostrum delete model.bin --server h5
    """
    failed: dict[str, str] = {}
    with connect() as agent:
        for name in data_ids:
            try:
                agent.delete(number_of(name))
            except RostrumError as error:
                failed[name] = as_typed(str(error))
    deleted = [name for name in data_ids if name not in failed]
    if as_json:
        print(json.dumps({"server": agent.server, "ok": not failed, "deleted": deleted, "failed": failed}, indent=1))
    for name in () if as_json else deleted:
        click.echo(f"{name} deleted")
    for name, text in () if as_json else failed.items():
        click.echo(f"{name}: {text}", err=True)
    if failed:
        sys.exit(1)


@click.command()
@JSON
@which_agent
def status(connect: Connect, as_json: bool) -> None:
    """Show an agent: its link to the manager, its store, running transfers, objects.

    \b
      rostrum status
      rostrum status --server h5 --json
    """
    with connect() as agent:
        now = agent.status()
    if as_json:
        print(json.dumps(now.as_dict(), indent=1))
    else:
        report.print_status(now)
