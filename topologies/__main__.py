"""`python -m rostrum.topologies check FILE` and `... generate hybrid`: look at topology files and write new ones."""

from __future__ import annotations

import click
from rostrum.topologies import TopologyError, builtin_names, load
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.kinds import KINDS, with_kind


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@click.argument("file")
def check(file: str) -> None:
    """Check FILE (or a built-in name) and say what it describes, or everything that is wrong with it."""
    try:
        topology = load(file)
    except TopologyError as error:
        raise click.ClickException(str(error)) from error
    splitters = sum(len(ocs.splitters) for ocs in topology.ocs.values())
    click.echo(
        f"{topology.name}: {len(topology.servers)} servers, {len(topology.switches)} switches, "
        f"{len(topology.links)} links, {len(topology.ocs)} OCS, {splitters} splitters"
    )


@main.command(name="list")
def list_() -> None:
    """List the topologies that come with rostrum."""
    for name in builtin_names():
        click.echo(name)


@main.group()
def generate() -> None:
    """Print a topology file of a regular shape."""


@generate.command(name="hybrid")
@click.option("--racks", default=4, show_default=True)
@click.option("--servers", default=2, show_default=True, help="servers in each rack")
@click.option("--ocs-ports", default=32, show_default=True)
@click.option("--splitters", default=4, show_default=True)
@click.option("--fanout", default=4, show_default=True, help="outputs of each splitter")
@click.option("--rate", default="1G", show_default=True, help="of every link, such as 10G or 100M")
@click.option("--mtu", default=9000, show_default=True)
@click.option("--reconfiguration-ms", default=70.0, show_default=True)
@click.option("--dialect", type=click.Choice(["glimmerglass", "polatis"]), default="glimmerglass", show_default=True)
@click.option("--name", default="", help="default: hybrid-RACKSxSERVERS")
@click.option("--switches", type=click.Choice(KINDS), default="openflow", show_default=True,
              help="mixed: P4 top-of-rack switches, an OpenFlow core. P4 ones get stand-in addresses.")  # fmt: skip
def generate_hybrid(switches: str, **size: object) -> None:
    """Racks around one packet core and one optical circuit switch with splitters."""
    try:
        text = hybrid(Hybrid(**size))  # type: ignore[arg-type]
        click.echo(text if switches == "openflow" else with_kind(text, switches, "10.255.250.1"), nl=False)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m rostrum.topologies")
