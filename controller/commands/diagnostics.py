"""`rostrum doctor` and `rostrum preflight`."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape
from rostrum.controller.commands.paths import OUT, Api, print_json, with_api
from rostrum.topologies import offers
from rostrum.topologies.units import Duration

ASKING_S = 15.0
COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}
PREFLIGHT_S = 15.0  # beyond the wait for a path


def _print_finding(one: dict[str, Any], indent: str = "") -> None:
    colour = COLOURS[one["severity"]]
    OUT.print(f"{indent}[{colour}]{one['severity']}[/{colour}]  {escape(one['what'])}")
    if one["mend"]:
        OUT.print(f"{indent}         {escape(one['mend'])}")


@click.command()
@with_api
def doctor(api: Api, as_json: bool) -> None:
    """What is wrong with the fabric, and how to fix it: causes first, and below each what follows from it.

    Looks at switches, OCSs, cabling (LLDP), ports, rules, light, agents, MTUs, clocks and versions. Exit status: 0 =
    healthy, 1 = warnings, 2 = errors, 3 = the manager cannot be asked. For a LAN without a manager: `rostrum doctor
    --lan --help`.
    """
    try:
        found = api.call("GET", "/v1/doctor", timeout_s=ASKING_S)
    except click.ClickException as error:
        error.show()
        raise click.exceptions.Exit(3) from error
    worst = {one["severity"] for one in found["findings"]}
    if as_json:
        print_json(found)
    else:
        causes = {one["subject"] for one in found["findings"] if not one["because"]}
        for one in found["findings"]:
            if one["because"] in causes:
                OUT.print(f"         so: {escape(one['what'])}")
            else:
                _print_finding(one)
        if found["healthy"]:
            OUT.print("healthy: nothing was found that has to be mended")
    raise click.exceptions.Exit(2 if "error" in worst else 1 if "warning" in worst else 0)


@click.command()
@click.argument("sender", shell_complete=offers.servers)
@click.argument("receivers", nargs=-1, required=True, shell_complete=offers.servers)
@click.option("--kind", type=click.Choice(["auto", "circuit", "packet"]), default="auto", show_default=True)
@click.option("--wait", type=Duration(), default="5s", show_default=True, help="How long the path may wait.")
@with_api
def preflight(api: Api, as_json: bool, sender: str, receivers: tuple[str, ...], kind: str, wait: float) -> None:
    """Try a path from SENDER to RECEIVERS before anything is sent on it.

    A path is made, probe packets are sent along it, and each receiver's agent says what came in. Exit status: 0 = it
    works for all, 1 = it does not.
    """
    body = {"sender": sender, "receivers": list(receivers), "kind": kind, "wait_ms": round(wait * 1000)}
    found = api.call("POST", "/v1/preflight", body, timeout_s=wait + PREFLIGHT_S)
    if as_json:
        print_json(found)
    else:
        how = f"a {found['kind']} path ({found['path']})" if found["kind"] else "no path"
        OUT.print(f"{sender}: {how}" + (f": {escape(found['reason'])}" if found["reason"] else ""))
        for one in found["findings"]:
            _print_finding(one, "  ")
        for one in found["receivers"]:
            light = "" if one["margin_db"] is None else f", {one['margin_db']:.1f} dB of light to spare"
            text = f"works: packets of {found['mtu']} bytes get through{light}" if one["works"] else "does not work"
            OUT.print(f"{one['receiver']}: {text}")
            for each in one["findings"]:
                _print_finding(each, "  ")
    if not found["works"]:
        raise click.exceptions.Exit(1)
