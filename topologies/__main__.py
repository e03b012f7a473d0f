"""`rostrum topology` (also `python -m rostrum.topologies`): look at topology files and write new ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
import yaml
from rostrum.topologies import TopologyError, builtin_names, load, load_text
from rostrum.topologies.completion import complete
from rostrum.topologies.document import BYTES_MAX, DUMPER, LOADER
from rostrum.topologies.fabrics import Options, fabric
from rostrum.topologies.families import Graph, bcube, fat_tree, vl2
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.kinds import KINDS, with_kind
from rostrum.topologies.loader import MANAGEMENT_PORTS, builtin_file, is_name, rate_bps
from rostrum.topologies.problems import Problem, place_text

PROBLEMS_SHOWN = 3


@click.group()
def main() -> None:
    """Topology files: check them, write new ones.

    \b
      rostrum topology list                              those that come with rostrum
      rostrum topology check my.yaml                     what it describes, or all that is wrong with it
      rostrum topology complete sketch.yaml >my.yaml     ports, dpids, addresses filled in
      rostrum topology generate fat-tree 4 >my.yaml
      rostrum topology generate hybrid --racks 8 --servers 4 >my.yaml
      rostrum lab up --topology my.yaml
    """


@main.command()
@click.argument("file")
def check(file: str) -> None:
    """Check FILE (or a built-in name) and say what it describes, or everything that is wrong with it."""
    try:
        topology = load(file)
    except TopologyError as error:
        raise click.ClickException(f"{error}{_filled_in(file)}") from error
    splitters = sum(len(ocs.splitters) for ocs in topology.ocs.values())
    forwarding = sum(bool(switch.server) for switch in topology.switches.values())
    click.echo(
        f"{topology.name}: {len(topology.servers)} servers{f' ({forwarding} forward)' if forwarding else ''}, "
        f"{len(topology.switches) - forwarding} switches, "
        f"{len(topology.links)} links, {len(topology.ocs)} OCS, {splitters} splitters"
        + (f", {len(topology.sites)} sites" if topology.sites else "")
    )
    for name, text in topology.not_promised.items():
        click.echo(f"  {name}: {text}")
    for site in topology.sites.values():
        facts = [f"{len(site.servers)} servers"]
        facts.append(f"relays {', '.join(site.relays)}" if site.relays else "a receiver is its relay")
        facts += [f"{name} reached at {one.address}:{one.port or topology.control_port}"
                  for name, one in site.outside.items()]  # fmt: skip
        facts += ["nobody connects to it from outside"] if site.nat else []
        facts += [f"reached through {site.via}"] if site.via else []
        click.echo(f"  site {site.name}: {'; '.join(facts)}")


def _filled_in(file: str) -> str:
    """That a lab would do with it, if so."""
    try:
        load(file, completed=True)
    except TopologyError:
        return ""
    return f"\nA lab fills all of this in; to have it in the file: rostrum topology complete {file}"


@main.command(name="complete")
@click.argument("file")
def complete_(file: str) -> None:
    """Print FILE with all that it may leave out for a lab: ports, dpids, addresses, rates, losses of splitters."""
    try:
        load(file, completed=True)
    except TopologyError as error:
        raise click.ClickException(str(error)) from error
    value = yaml.load(builtin_file(file).read_text(), LOADER)
    click.echo(yaml.dump(complete(value), Dumper=DUMPER, sort_keys=False), nl=False)


@main.command(name="list")
def list_() -> None:
    """List the topologies that come with rostrum."""
    for name in builtin_names():
        click.echo(name)


@main.group()
def generate() -> None:
    """Print a topology file of a regular shape. What cannot be loaded is not printed."""


def _print(make: Callable[[], str], rate: str, name: str, switches: str) -> None:
    """The file that `make` makes, with switches of that kind, once it is known to load. Raises ClickException."""
    try:
        rate_bps(rate)
    except ValueError as error:
        raise click.ClickException(f"--rate: {error}") from error
    if name and not is_name(name):
        message = "is no name: up to 32 small letters, digits, - and _ are possible, and a letter comes first"
        raise click.ClickException(f"--name: {name!r} {message}")
    try:
        text = make()
        text = text if switches == "openflow" else with_kind(text, switches, "10.255.250.1")
        if len(text) > BYTES_MAX:
            raise ValueError(f"its file has more than {BYTES_MAX >> 20} MiB")
        load_text(text)
    except TopologyError as error:
        raise click.ClickException(f"no such topology can be: {_distinct(error.problems)}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"no such topology can be: {error}") from error
    click.echo(text, nl=False)


def _distinct(problems: list[Problem]) -> str:
    """What is wrong, each kind of it once: one wrong option may be found at every link."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.text, problem)
    shown = [f"{place_text(one.place)}: {one.text}" for one in first.values()]
    more = f"; and {len(shown) - PROBLEMS_SHOWN} more" if len(shown) > PROBLEMS_SHOWN else ""
    return "; ".join(shown[:PROBLEMS_SHOWN]) + more


@generate.command(name="hybrid")
@click.option("--racks", default=4, show_default=True)
@click.option("--servers", default=2, show_default=True, help="servers in each rack")
@click.option("--cores", default=1, show_default=True, help="packet switches that join all racks")
@click.option("--ocs-ports", default=32, show_default=True, help="0: no OCS, packets only")
@click.option("--splitters", default=4, show_default=True)
@click.option("--fanout", default=4, show_default=True, help="outputs of each splitter")
@click.option("--rate", default="1G", show_default=True, help="of every link, such as 10G or 100M")
@click.option("--mtu", default=9000, show_default=True)
@click.option("--reconfiguration-ms", default=70.0, show_default=True)
@click.option("--dialect", type=click.Choice(list(MANAGEMENT_PORTS)), default="glimmerglass", show_default=True)
@click.option("--name", default="", help="default: hybrid-RACKSxSERVERS")
@click.option("--switches", type=click.Choice(KINDS), default="openflow", show_default=True,
              help="mixed: P4 top-of-rack switches, an OpenFlow core. P4 ones get stand-in addresses.")  # fmt: skip
def generate_hybrid(switches: str, rate: str, name: str, **size: object) -> None:
    """Racks around packet cores and one optical circuit switch with splitters."""
    _print(lambda: hybrid(Hybrid(rate=rate, name=name, **size)), rate, name, switches)  # type: ignore[arg-type]


def _fabric_options(function: Callable[..., None]) -> Callable[..., None]:
    """What the commands of all families take."""
    for option in (
        click.option("--rate", default="1G", show_default=True, help="Of servers' links, such as 10G or 100M."),
        click.option("--mtu", default=9000, show_default=True),
        click.option("--name", default="", help="[default: the family's with its numbers]"),
        click.option(
            "--switches",
            type=click.Choice(KINDS),
            default="openflow",
            show_default=True,
            help="mixed: P4 top-of-rack switches. P4 ones get stand-in addresses.",
        ),
    ):
        function = option(function)
    return function


def _print_fabric(make: Callable[[int], Graph], rate: str, mtu: int, name: str, switches: str) -> None:
    _print(lambda: fabric(make(rate_bps(rate)), Options(mtu, name)), rate, name, switches)


@generate.command(name="fat-tree")
@click.argument("k", type=int)
@_fabric_options
def generate_fat_tree(k: int, **options: str) -> None:
    """Switches with K ports: K pods, K*K*K/4 servers, (K/2)*(K/2) cores."""
    _print_fabric(lambda rate: fat_tree(k, rate), **options)  # type: ignore[arg-type]


@generate.command(name="vl2")
@click.argument("aggregation_ports", type=int)
@click.argument("intermediate_ports", type=int)
@click.option("--per-rack", default=20, show_default=True, help="Servers in each rack.")
@_fabric_options
def generate_vl2(aggregation_ports: int, intermediate_ports: int, per_rack: int, **options: str) -> None:
    """Racks with two uplinks each; links between switches are ten times as fast as servers'."""
    make = partial(vl2, aggregation_ports, intermediate_ports, per_rack)
    _print_fabric(make, **options)  # type: ignore[arg-type]


@generate.command(name="bcube")
@click.argument("n", type=int)
@click.argument("k", type=int)
@_fabric_options
def generate_bcube(n: int, k: int, **options: str) -> None:
    """Switches with N ports in levels 0 to K; N**(K+1) servers with K+1 NICs, which forward."""
    _print_fabric(lambda rate: bcube(n, k, rate), **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(prog_name="python -m rostrum.topologies")
