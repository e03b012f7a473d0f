"""`rostrum lab`: the whole data center on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rostrum.client import RostrumError
from rostrum.lab import experiments, links
from rostrum.lab.lab import Lab, labs
from rostrum.lab.namespace import LabError
from rostrum.lab.ocs.witness import is_order
from rostrum.lab.rest import forward
from rostrum.topologies import TopologyError, builtin_names, offers
from rostrum.topologies.kinds import KINDS
from rostrum.topologies.places import short
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Duration, Size

OUT = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)  # files are not narrow
ERR = Console(stderr=True, highlight=False)


def _errors_as_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """Errors of the lab become one message and exit status 1."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (LabError, TopologyError) as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _which_lab(context: click.Context, option: click.Parameter, given: str | None) -> str:
    """As for all commands that ask an agent: the only lab that runs, or else the one called lab."""
    running = labs() if given is None else []
    return given or (running[0] if len(running) == 1 else "lab")


NAME = click.option("--name", callback=_which_lab, help="Which lab. Default: the only one, or the one called lab.")
NEW_NAME = click.option("--name", default="lab", show_default=True, help="Its name; several can run at once.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group()
def lab() -> None:
    """A data center in private namespaces on this machine (needs root).

    \b
    A first session:
      rostrum lab up --detach                  racks, switches, OCS, manager, an agent on each server
      rostrum lab exec h1 -- ping -c1 10.0.2.1
      rostrum lab status
      rostrum lab down
      rostrum lab run demo                     one object over a circuit, in a lab of its own
    """


@lab.command()
@click.option("--topology", default="hybrid-4x2", show_default=True, help="A topology file, or a built-in one's name.")
@NEW_NAME
@click.option("--detach", is_flag=True, help="Return when the lab is ready and leave it running.")
@click.option("--quota", type=Size(least=1), default="4G", show_default=True,
              help="Room for objects on each server (memory, when used).")  # fmt: skip
@click.option("--switch", type=click.Choice(KINDS), help="Kind of its switches; mixed: P4 ones at the top of racks. "
              "[as the topology file says]")  # fmt: skip
@click.option("--scheduler", help="The manager's scheduler, such as fifo or best-effort.")
@click.option("--agent-option", "agent_options", multiple=True, metavar="OPTION",
              help='Of every agent, as rostrumd takes it, such as "--loss uniform:0.01"; may be repeated.')  # fmt: skip
@click.option("--manager-option", "manager_options", multiple=True, metavar="OPTION",
              help='Of rostrum-manager, such as "--fast-failover"; may be repeated.')  # fmt: skip
@click.option("--core-links", type=click.Choice(["patch", "veth"]), default="patch", show_default=True,
              help="Links between packet switches: patch is faster, veth has the topology's rates.")  # fmt: skip
@click.option("--certificates", type=click.Path(exists=True, file_okay=False, resolve_path=True),
              help="Agents and manager speak TLS: folder of ca.pem, manager.pem, .key, h1.pem, .key ...")  # fmt: skip
@click.option("--secure", is_flag=True, help="Every link is TLS or sealed, anything else refused; the lab makes "
              "certificates of its own.")  # fmt: skip
@click.option("--bound", type=Duration(least_s=1.0, bare="s"), default="30s", show_default=True,
              help="How long to wait for each part of the lab.")  # fmt: skip
@JSON
@_errors_as_text
def up(
    topology: str,
    name: str,
    detach: bool,
    quota: int,
    switch: str | None,
    scheduler: str | None,
    agent_options: tuple[str, ...],
    manager_options: tuple[str, ...],
    core_links: str,
    certificates: str | None,
    secure: bool,
    bound: float,
    as_json: bool,
) -> None:
    """Start a lab.

    Without --detach it runs until Ctrl-C and shows what its programs do.
    """
    if as_json and not detach:
        raise click.UsageError("--json is for a lab that goes on by itself: add --detach")
    to_manager = [*(("--scheduler", scheduler) if scheduler else ()), *_arguments(manager_options)]
    with ERR.status("starting") as status:
        running = Lab.start(
            topology, name=name, detached=detach, switch=switch, quota=str(quota), core_links=core_links, bound_s=bound,
            manager_options=tuple(to_manager), agent_options=tuple(_arguments(agent_options)),
            certificates=certificates or "", secure=secure,
            progress=lambda text: status.update(f"waiting for {text}"),
        )  # fmt: skip
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    if as_json:
        print(json.dumps(running.facts(), indent=1))
        return
    OUT.print(
        f"lab {name}: {len(running.topology.servers)} servers ready, {running.switch} forwards; "
        f"sockets and logs in {short(running.run)}"
    )
    if detach:
        first = next(iter(running.topology.servers))
        OUT.print(f"next: rostrum lab exec{_named(name)} {first} -- ip addr; stop it: rostrum lab down{_named(name)}")
        return
    with running:
        _watch(running, stopped)


def _arguments(options: tuple[str, ...]) -> list[str]:
    """Of programs' options, each with its value."""
    try:
        return [word for option in options for word in shlex.split(option)]
    except ValueError as error:
        raise click.UsageError(f"{' '.join(options)}: {error}") from error


def _watch(running: Lab, stopped: threading.Event) -> None:
    """Shows what changes in the lab until Ctrl-C, or until it is stopped from elsewhere."""
    OUT.print("Ctrl-C stops it")
    shown: dict[str, str] = {}
    while not stopped.wait(0.5):
        try:
            programs = running.status()["programs"]
        except LabError:
            OUT.print("the lab was stopped from elsewhere")
            return
        for name, program in programs.items():
            if shown.get(name) != program["state"]:
                shown[name] = program["state"]
                OUT.print(f"{name}: {program['state']}" + (f" (pid {program['pid']} inside)" if program["pid"] else ""))
    OUT.print("stopping")


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@NAME
@click.option("--json", "as_json", is_flag=True, help="Print its output and exit status as JSON.")
@click.argument("where", shell_complete=offers.servers_of_named)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_errors_as_text
def exec(name: str, as_json: bool, where: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a server of a running lab, or at the manager.

    \b
    WHERE is a server (h1) or `manager`: where the manager, the switches and the OCS's fibres are.
      rostrum lab exec h1 -- ping -c1 10.0.2.1
      rostrum lab exec manager -- ovs-ofctl -O OpenFlow13 dump-flows tor1
      rostrum lab exec h1 -- bash
      rostrum lab exec --json h1 -- hostname -I        {"status": 0, "output": "10.0.1.1 ...", ...}
    """
    running = Lab.attach(name)
    if command[0] == "--":
        command = command[1:]
    argv = running.argv(where, command)
    if where != "manager":
        os.environ["ROSTRUM_SOCKET"] = str(running.agent_socket(where))
    if not as_json:
        os.execvp(argv[0], argv)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    facts = {"lab": name, "where": where, "command": list(command), "status": done.returncode}
    print(json.dumps({**facts, "output": done.stdout, "errors": done.stderr}, indent=1))
    sys.exit(done.returncode)


@lab.command()
@NEW_NAME
@click.option("--all", "all_", is_flag=True, help="Stop every running lab.")
@JSON
@_errors_as_text
def down(name: str, all_: bool, as_json: bool) -> None:
    """Stop a lab that was started with --detach."""
    names = labs() if all_ else [name]
    for each in names:
        Lab.attach(each).stop()
        if not as_json:
            OUT.print(f"lab {each} stopped")
    if as_json:
        print(json.dumps({"stopped": names}))


@lab.command()
@click.option("--name", help="Which lab; without it, all that run.")
@JSON
@_errors_as_text
def status(name: str | None, as_json: bool) -> None:
    """Show what runs in a lab."""
    rows = {each: Lab.attach(each).status() for each in ([name] if name else labs())}
    if as_json:
        print(json.dumps(rows, indent=1))
    elif not rows:
        OUT.print("no lab is running; start one with: rostrum lab up --detach")
    for each, row in rows.items() if not as_json else ():
        table = Table(
            "program", "state", "pid inside", "log", title=f"lab {each}: {row['topology']}", title_justify="left"
        )
        for program, facts in row["programs"].items():
            table.add_row(program, facts["state"], str(facts["pid"] or "-"), short(facts["log"]))
        OUT.print(whole(table))


@lab.command()
@NAME
@click.argument("program")
@click.option("--signal", "number", default="KILL", show_default=True, help="Name of the signal, such as TERM or STOP.")
@_errors_as_text
def kill(name: str, program: str, number: str) -> None:
    """Kill PROGRAM: a server's agent (h3), `manager`, `ocs` or a P4 switch, to see what the others make of it.

    With --signal STOP it only stands still, until --signal CONT.
    """
    value = getattr(signal, f"SIG{number.upper().removeprefix('SIG')}", None)
    if not isinstance(value, signal.Signals):
        raise click.BadParameter(f"no signal is called {number}", param_hint="--signal")
    running = Lab.attach(name)
    if value in (signal.SIGSTOP, signal.SIGCONT):
        running.signal(program, value)
    else:
        running.kill(program, value)


@lab.command()
@NAME
@click.argument("program")
@_errors_as_text
def start(name: str, program: str) -> None:
    """Start PROGRAM again after it was killed."""
    Lab.attach(name).start_program(program)


@lab.command()
@NAME
@click.argument("operation", type=click.Choice(["cut", "down", "up"]))
@click.argument("a")
@click.argument("b")
@_errors_as_text
def link(name: str, operation: str, a: str, b: str) -> None:
    """Break the link between A and B (switches, or a server and its switch), or mend it (up).

    cut: everything on it is lost, and nobody is told. down: its switches tell the manager too.

    \b
      rostrum lab link cut agg1-0 core0-0
      rostrum lab link up agg1-0 core0-0
    """
    {"cut": links.cut, "down": links.down, "up": links.up}[operation](Lab.attach(name), a, b)


@lab.command()
@NAME
@click.option("--ocs", "ocs_name", default="ocs", show_default=True, help="Which OCS of the topology.")
@click.argument(
    "operation",
    type=click.Choice(["state", "counters", "commands", "fault", "clear", "timing", "drop-sessions", "model"]),
)
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--yang",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With model: check it against the YANG modules in this directory.",
)
@JSON
@_errors_as_text
def ocs(name: str, ocs_name: str, operation: str, values: tuple[str, ...], yang: Path | None, as_json: bool) -> None:
    """Look into the emulated OCS, and break its light. Answers are JSON; docs/ocs.md lists the faults.

    `commands` shows who ordered what, in the order in which the OCS took it: a table, JSON with --json. It is what the
    switch saw, whatever the managers believe. With orders=1 it leaves out what only reads. A session is one TL1
    connection; a manager that restarts or takes over has a new one. `model` is all that a switch of dialect gnmi tells,
    as JSON of RFC 7951.

    \b
      rostrum lab ocs state
      rostrum lab ocs commands orders=1
      rostrum lab ocs fault kind=dim-splitter splitter=s1 db=12
      rostrum lab ocs fault kind=stuck input=1
      rostrum lab ocs timing reconfiguration=uniform:60ms:80ms ringing=5ms:0.5
      rostrum lab ocs clear
      rostrum lab ocs model --yang ocp-modules/
    """
    if yang and operation != "model":
        raise click.UsageError(f"--yang checks the model; say: rostrum lab ocs model --yang {yang}")
    request: dict[str, Any] = {"op": operation}
    for text in values:
        key, found, value = text.partition("=")
        if not key or not found:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as splitter=s1")
        try:
            request[key] = json.loads(value)
        except ValueError:
            request[key] = value
    if operation == "commands":
        _ocs_commands(Lab.attach(name), ocs_name, bool(request.get("orders")), as_json)
    elif yang:
        _check_model(Lab.attach(name).ask_ocs(ocs_name, request)["model"], yang)
    else:
        print(json.dumps(Lab.attach(name).ask_ocs(ocs_name, request), indent=1))


def _check_model(tree: dict[str, Any], directory: Path) -> None:
    from rostrum.controller.southbound.ocs.yang import YangError, check

    try:
        wrong = check(tree, directory)
    except YangError as error:
        raise click.ClickException(str(error)) from None
    if wrong:
        raise click.ClickException(f"not as the modules in {directory} have it: {wrong}")
    print(f"as the modules in {directory} have it")


def _ocs_commands(running: Lab, ocs_name: str, orders: bool, as_json: bool) -> None:
    log = running.ask_ocs(ocs_name, {"op": "log"})
    rows = [one for one in log["commands"] if not orders or is_order(one)]
    if as_json:
        print(json.dumps({"now_ns": log["now_ns"], "commands": rows}, indent=1))
        return
    table = Table("ago", "session", "from", "command", "verdict", "took", "made", "taken down")
    for one in rows:
        verdict = f"{one['verdict']}: {one['error']}" if one["error"] else one["verdict"]
        took = f"{(one['answered_ns'] - one['at_ns']) / 1e6:.1f} ms" if one["answered_ns"] else "-"
        made, removed = (" ".join(f"{a}>{b}" for a, b in one[what]) for what in ("made", "removed"))
        ago = f"{(log['now_ns'] - one['at_ns']) / 1e9:.1f} s"
        table.add_row(ago, str(one["session"]), one["from"], one["command"], verdict, took, made, removed)
    for column in table.columns:
        column.overflow = "fold"  # half a command tells nobody anything
    OUT.print(whole(table))


@lab.command(
    cls=offers.choosing(experiments.commands),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=offers.chosen)
@click.pass_context
@_errors_as_text
def run(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run an experiment in a lab of its own, which it starts and stops: one that comes with rostrum, or a script.

    \b
      rostrum lab run my.py --rounds 3         docs/experiments.md: what a script can do
      rostrum lab run --list
      rostrum lab run demo --size 512M --receivers 3
      rostrum lab run demo --help
    """
    known = experiments.commands()
    if not arguments or arguments[0] in ("--help", "-h"):
        OUT.print(context.get_help())
        arguments = ("--list",)
    if arguments[0] == "--list":
        for name, command in known.items():
            OUT.print(f"{name:24} {command.get_short_help_str(200)}")
        return
    name, *rest = arguments
    if name.endswith(".py"):
        _run_script(Path(name), rest)
        return
    if name not in known:
        raise click.ClickException(f"no experiment is called {name}; there are {', '.join(known)}, or give a FILE.py")
    known[name].main(args=rest, prog_name=f"rostrum lab run {name}", standalone_mode=True)


def _run_script(file: Path, arguments: list[str]) -> None:
    """As `python FILE ...` would; errors of lab and agents are told with a reason. Its labs end with it."""
    if not file.is_file():
        raise click.ClickException(f"there is no file {file}")
    sys.argv, sys.path[0] = [str(file), *arguments], str(file.resolve().parent)
    try:
        runpy.run_path(str(file), run_name="__main__")
    except RostrumError as error:
        raise click.ClickException(str(error)) from error


@lab.command()
@NAME
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="ADDRESS:PORT on this machine.")
@_errors_as_text
def rest(name: str, listen: str) -> None:
    """Serve the manager's REST, /docs and /console on this machine, until Ctrl-C.

    A lab itself has a unix socket only. Whoever reaches the address may do what the socket's owner may.

    \b
      rostrum lab rest &
      curl http://127.0.0.1:8080/v1/paths
    """
    address, _, port = listen.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536 or not address:
        raise click.BadParameter(f"{listen} is not ADDRESS:PORT", param_hint="--listen")
    target = Lab.attach(name).rest.path
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(forward(address, int(port), target, lambda at: print(f"http://{at} (Ctrl-C ends it)", flush=True)))


@lab.command()
def topologies() -> None:
    """List the topologies that come with rostrum."""
    for name in builtin_names():
        OUT.print(name)


def _named(name: str) -> str:
    return "" if name == "lab" else f" --name {name}"
