"""`rostrum lab`: the whole data center on one machine."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rostrum.lab import experiments
from rostrum.lab.lab import Lab, labs
from rostrum.lab.namespace import LabError
from rostrum.topologies import TopologyError, builtin_names

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


def _words_for_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Errors of the lab become one message and exit status 1."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (LabError, TopologyError) as error:
            raise click.ClickException(str(error)) from error

    return wrapped


NAME = click.option("--name", default="lab", show_default=True, help="Which lab; several can run at once.")
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
@NAME
@click.option("--detach", is_flag=True, help="Return when the lab is ready and leave it running.")
@click.option("--quota", default="4G", show_default=True, help="Room for objects on each server (memory, when used).")
@click.option("--scheduler", help="The manager's scheduler, such as fifo or best-effort.")
@click.option("--core-links", type=click.Choice(["patch", "veth"]), default="patch", show_default=True,
              help="Links between packet switches: patch is faster, veth has the topology's rates.")  # fmt: skip
@click.option("--bound", default=30.0, show_default=True, help="Seconds to wait for each part of the lab.")
@_words_for_errors
def up(
    topology: str, name: str, detach: bool, quota: str, scheduler: str | None, core_links: str, bound: float
) -> None:
    """Start a lab.

    Without --detach it runs until Ctrl-C and shows what its programs do.
    """
    options = ("--scheduler", scheduler) if scheduler else ()
    with ERR.status("starting") as status:
        running = Lab.start(
            topology, name=name, detached=detach, quota=quota, core_links=core_links, bound_s=bound,
            manager_options=options, progress=lambda text: status.update(f"waiting for {text}"),
        )  # fmt: skip
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    OUT.print(f"lab {name}: {len(running.topology.servers)} servers ready, sockets and logs in {_short(running.run)}")
    if detach:
        OUT.print(f"next: rostrum lab exec{_named(name)} h1 -- ip addr; stop it: rostrum lab down{_named(name)}")
        return
    with running:
        _watch(running, stopped)


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
@click.argument("where")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_words_for_errors
def exec(name: str, where: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a server of a running lab, or at the manager.

    \b
    WHERE is a server (h1) or `manager`: where the manager, the switches and the OCS's fibres are.
      rostrum lab exec h1 -- ping -c1 10.0.2.1
      rostrum lab exec manager -- ovs-ofctl -O OpenFlow13 dump-flows tor1
      rostrum lab exec h1 -- bash
    """
    running = Lab.attach(name)
    if command[0] == "--":
        command = command[1:]
    argv = running.argv(where, command)
    if where != "manager":
        os.environ["ROSTRUM_SOCKET"] = str(running.agent_socket(where))
    os.execvp(argv[0], argv)


@lab.command()
@NAME
@click.option("--all", "all_", is_flag=True, help="Stop every running lab.")
@_words_for_errors
def down(name: str, all_: bool) -> None:
    """Stop a lab that was started with --detach."""
    for each in labs() if all_ else [name]:
        Lab.attach(each).stop()
        OUT.print(f"lab {each} stopped")


@lab.command()
@click.option("--name", help="Which lab; without it, all that run.")
@JSON
@_words_for_errors
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
            table.add_row(program, facts["state"], str(facts["pid"] or "-"), _short(facts["log"]))
        OUT.print(table)


@lab.command()
@NAME
@click.argument("program")
@click.option("--signal", "number", default="KILL", show_default=True, help="Name of the signal, such as TERM or STOP.")
@_words_for_errors
def kill(name: str, program: str, number: str) -> None:
    """Kill PROGRAM: a server's agent (h3), `manager` or `ocs`, to see what the others make of it.

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
@_words_for_errors
def start(name: str, program: str) -> None:
    """Start PROGRAM again after it was killed."""
    Lab.attach(name).start_program(program)


@lab.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@_words_for_errors
def run(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run an experiment in a lab of its own, which it starts and stops.

    \b
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
            OUT.print(f"{name:24} {command.get_short_help_str(90)}")
        return
    name, *rest = arguments
    if name not in known:
        raise click.ClickException(f"no experiment is called {name}; there are {', '.join(known)}")
    known[name].main(args=rest, prog_name=f"rostrum lab run {name}", standalone_mode=True)


@lab.command()
def topologies() -> None:
    """List the topologies that come with rostrum."""
    for name in builtin_names():
        OUT.print(name)


def _named(name: str) -> str:
    return "" if name == "lab" else f" --name {name}"


def _short(path: str | Path) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


commands: list[click.Command] = [lab]
