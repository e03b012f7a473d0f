"""The `rostrum` command: a table of subcommands, each imported when it is used.

A subcommand whose module is not installed is not offered.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import importlib
import importlib.util
import io
import os
import sys
from dataclasses import dataclass
from typing import Any

import click
from rostrum.topologies.version import VERSION


@dataclass(frozen=True)
class Subcommand:
    """`attribute` of `module` is a click command; `about` is its line in `rostrum --help`."""

    module: str
    attribute: str
    about: str


COMMANDS = {
    "send": Subcommand("rostrum.client.commands", "send", "Send a file to many servers."),
    "receive": Subcommand("rostrum.client.lan_commands", "receive", "Receive files on any LAN, without set-up."),
    "read": Subcommand("rostrum.client.commands", "read", "Write a received object to a file."),
    "fetch": Subcommand("rostrum.client.commands", "fetch", "Get an object that other servers have."),
    "resume": Subcommand("rostrum.client.commands", "resume", "Go on with an object that is partly here."),
    "sync": Subcommand("rostrum.client.sync_commands", "sync", "Keep a folder alike on many servers."),
    "preheat": Subcommand("rostrum.client.preheat_commands", "preheat", "Put an image or a model on many servers."),
    "mirror": Subcommand("rostrum.client.preheat_commands", "mirror", "A registry of images beside the agent."),
    "pin": Subcommand("rostrum.client.commands", "pin", "Keep an object when its agent makes room."),
    "objects": Subcommand("rostrum.controller.commands.objects", "objects", "Objects, and who holds them."),
    "stream": Subcommand(
        "rostrum.client.stream_commands", "stream", "A continuing stream to many servers: send it, receive it."
    ),
    "leave": Subcommand("rostrum.client.commands", "leave", "Stop receiving an object on a server."),
    "cancel": Subcommand("rostrum.client.commands", "cancel", "Stop the sending of an object."),
    "delete": Subcommand("rostrum.client.commands", "delete", "Remove an object from a server."),
    "pub": Subcommand("rostrum.client.group_commands", "pub", "Publish messages to a group of servers."),
    "sub": Subcommand("rostrum.client.group_commands", "sub", "Print the messages of a group."),
    "status": Subcommand(
        "rostrum.client.commands", "status", "Show an agent: transfers, objects, link to the manager."
    ),
    "paths": Subcommand("rostrum.controller.commands.paths", "paths", "Multicast paths: list, request, release."),
    "groups": Subcommand("rostrum.controller.commands.groups", "groups", "Message groups: list, make, delete."),
    "top": Subcommand("rostrum.controller.commands.top", "top", "What goes on now, live in the terminal."),
    "circuits": Subcommand("rostrum.controller.commands.paths", "circuits", "Show the optical circuits."),
    "links": Subcommand("rostrum.controller.commands.links", "links", "Links: what is heard on them; drain, undrain."),
    "preflight": Subcommand(
        "rostrum.controller.commands.diagnostics", "preflight", "Try a path before anything is sent on it."
    ),
    "doctor": Subcommand(
        "rostrum.controller.commands.diagnostics", "doctor", "What is wrong with the fabric, and how to fix it."
    ),
    "manager": Subcommand("rostrum.controller.commands.paths", "manager", "The manager: run it, ask it."),
    "pki": Subcommand("rostrum.controller.commands.pki", "pki", "A CA, and certificates for TLS."),
    "topology": Subcommand("rostrum.topologies.__main__", "main", "Topology files: check them, write new ones."),
    "lab": Subcommand("rostrum.lab.commands", "lab", "A data center in private namespaces on this machine."),
    "bench": Subcommand("rostrum.bench.commands", "bench", "Measure speed, beside the tools people use."),
    "reproduce": Subcommand("rostrum.bench.reproduce.commands", "reproduce", "Try the papers' claims again."),
    "conformance": Subcommand(
        "rostrum.bench.conformance", "conformance", "Compare real agents with the simulator, packet for packet."
    ),
    "sim": Subcommand("rostrum.sim.commands", "sim", "Simulate networks that are too large for the lab."),
}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _package(module: str) -> str:
    """The Debian package that has it."""
    return "rostrum-manager" if module.startswith("rostrum.controller.") else "rostrum-lab"


def _drop_output() -> None:
    """What is still to be written to standard output, where nobody takes it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _take_outputs() -> None:
    """An output that is closed (`>&-`) is nowhere; a character that its encoding lacks is no error."""
    for name in ("stdout", "stderr"):
        out = getattr(sys, name)
        if out is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors=NAMES if out.errors == "surrogateescape" else "backslashreplace")


def _as_named(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes of file names as they are, as Python does in the locale C; other characters as everywhere."""
    with contextlib.suppress(UnicodeError):
        return codecs.lookup_error("surrogateescape")(error)
    return codecs.backslashreplace_errors(error)


NAMES = "rostrum-names"
codecs.register_error(NAMES, _as_named)


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports the one that is used."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """What the system refuses a command and nothing expects (a full disk, a folder that nobody may write to) is a
        line of text, as every other error."""
        _take_outputs()
        try:
            try:
                return super().main(*arguments, **options)
            finally:  # not at the interpreter's end, when it is nobody's error
                if sys.stdout and not sys.stdout.closed:
                    sys.stdout.flush()
        except OSError as error:
            if not options.get("standalone_mode", True):
                raise
            if error.errno != errno.EPIPE:
                click.echo(f"Error: {error}", err=True)
            _drop_output()
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, command in COMMANDS.items() if _is_there(command.module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None or not _is_there(entry.module):
            return None
        found = getattr(importlib.import_module(entry.module), entry.attribute, None)
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`doctor --lan` is the client's own: it needs no manager, nor its packages."""
        if args[:1] == ["doctor"] and ("--lan" in args or not _is_there(COMMANDS["doctor"].module)):
            if not {"--lan", "--help", "-h"} & set(args):
                raise click.UsageError(
                    "rostrum doctor --lan looks at this server's network; the doctor of a fabric runs on the manager's "
                    "host, and comes with rostrum-manager (Debian)"
                )
            from .lan_doctor import doctor  # when it is used

            return "doctor", doctor, args[1:]
        entry = COMMANDS.get(args[0]) if args else None
        if entry is not None and not _is_there(entry.module):
            raise click.UsageError(
                f"rostrum {args[0]} is not installed here: it comes with {_package(entry.module)} (Debian), "
                "or pip install of the whole of rostrum"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list without importing everything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].about) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version=VERSION, prog_name="rostrum")
def main() -> None:
    """Reliable one-to-many data delivery for data centers, over packet switches and optical circuits.

    \b
    A first transfer, all on this machine (as root):
      rostrum lab up --detach
      rostrum send /etc/services --server h1 --to h3,h5,h7
      rostrum read services --server h5 -o copy
      rostrum lab down

    \b
    On a server with an agent (rostrumd), its socket is found by itself:
      rostrum send model.bin --to h3,h4
      rostrum status

    \b
    On any LAN, without set-up or root:
      rostrum receive /data                         on each receiver
      rostrum send model.bin --wait-for 3           on the sender

    \b
    Messages, to all servers that subscribe:
      rostrum sub ticks --server h3 &
      rostrum pub ticks "hello" --server h1

    \b
    Completion of commands and options (packages bring it; or zsh, fish):
      eval "$(_ROSTRUM_COMPLETE=bash_source rostrum)"
    """


if __name__ == "__main__":
    main()
