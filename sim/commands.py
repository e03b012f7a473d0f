"""`rostrum sim`: experiments in virtual time."""

from __future__ import annotations

import click
from rich.console import Console
from rostrum.sim import experiments
from rostrum.topologies import offers

OUT = Console(highlight=False, soft_wrap=True)


@click.group()
def sim() -> None:
    """Simulate networks that are too large for the lab; no root needed.

    \b
      rostrum sim list
      rostrum sim run schedulers --load 0.7
      rostrum sim run schedulers --help
    """


@sim.command("list")
def list_() -> None:
    """List the experiments."""
    for name, command in experiments.commands().items():
        OUT.print(f"{name:24} {command.get_short_help_str(200)}")


@sim.command(
    cls=offers.choosing(experiments.commands),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
)
@click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, metavar="NAME [OPTIONS]...", shell_complete=offers.chosen
)
def run(arguments: tuple[str, ...]) -> None:
    """Run an experiment: rostrum sim run NAME --help lists its options."""
    known = experiments.commands()
    if not arguments or arguments[0] in ("--help", "-h"):
        raise click.UsageError(f"say which: {', '.join(known)}")
    name, *rest = arguments
    if name not in known:
        raise click.ClickException(f"no experiment is called {name}; there are {', '.join(known)}")
    known[name].main(args=rest, prog_name=f"rostrum sim run {name}", standalone_mode=True)
