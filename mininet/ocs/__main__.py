"""The emulated optical circuit switch as a program. docs/ocs.md shows a session by telnet."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from rostrum.lab.ocs import timing
from rostrum.lab.ocs.control import Control
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.glimmerglass import GlimmerglassServer
from rostrum.lab.ocs.light import KernelLight, Light, LightError, NoLight
from rostrum.lab.ocs.model import Model
from rostrum.lab.ocs.polatis import PolatisServer
from rostrum.lab.ocs.server import Dialect, Server
from rostrum.topologies.loader import load
from rostrum.topologies.model import Emulation, Ocs, Reconfiguration
from rostrum.topologies.places import build_folder
from rostrum.topologies.problems import TopologyError
from rostrum.topologies.version import VERSION

DIALECTS: dict[str, Callable[[], Dialect]] = {"glimmerglass": GlimmerglassServer, "polatis": PolatisServer}
NICENESS = -10  # a real switch does not compete with the servers for their processors
CACHE = build_folder() / "ocs"  # compiled light programs


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        topology = load(options.topology)
        switches = _chosen(topology.ocs, options.ocs)
        emulation = _emulation(topology.emulation, options)
        if options.listen is not None and len(switches) > 1:
            raise ValueError(f"--listen is for one OCS, but there are {', '.join(switches)}: choose one with --ocs")
        return asyncio.run(_serve(list(switches.values()), emulation, options))
    except (TopologyError, LightError, ValueError, OSError) as error:
        print(f"ocs emulator: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rostrum.lab.ocs",
        description="Emulates the optical circuit switches of a topology: a TL1 or gNMI server for each, and light "
        "between the interfaces <ocs>-p<N> of this network namespace by a kernel program.",
        epilog="Log in with telnet and type HELP; or drive faults by JSON lines on RUN/ocs-<name>.ctl (docs/ocs.md).",
    )
    parser.add_argument("--version", action="version", version=f"rostrum-ocs-emulator {VERSION}")
    parser.add_argument("--topology", required=True, metavar="FILE", help="topology file, or a built-in one's name")
    parser.add_argument("--run", required=True, metavar="DIR", type=Path, help="folder for the control sockets")
    parser.add_argument("--ocs", metavar="NAME", help="only this OCS of the topology")
    parser.add_argument("--listen", metavar="ADDR:PORT", help="instead of the topology's address; port 0 = any")
    parser.add_argument(
        "--tls",
        nargs=3,
        type=Path,
        metavar=("CERTIFICATE", "KEY", "CA"),
        help="by TLS with clients whose certificates CA signed (PEM files): gNMI, and TL1 as behind a wrapper",
    )
    parser.add_argument("--seed", type=int, help="of the drawn reconfiguration times")
    parser.add_argument("--reconfiguration", metavar="TIME", help="fixed:70ms | uniform:60ms:80ms | normal:70ms:5ms")
    parser.add_argument(
        "--ringing", metavar="TIME:LOSS", help="such as 5ms:0.5, at the end of the reconfiguration time"
    )
    parser.add_argument("--no-light", action="store_true", help="commands only: needs neither root nor interfaces")
    return parser


def _chosen(switches: dict[str, Ocs], name: str | None) -> dict[str, Ocs]:
    if not switches:
        raise ValueError("this topology has no OCS")
    if name is None:
        return switches
    if name not in switches:
        raise ValueError(f"no OCS {name!r} in this topology; there are: {', '.join(switches)}")
    return {name: switches[name]}


def _emulation(given: Emulation, options: argparse.Namespace) -> Emulation:
    """The topology's, with what the command line says instead."""
    reconfiguration: Reconfiguration = given.reconfiguration
    if options.reconfiguration is not None:
        reconfiguration = timing.reconfiguration(options.reconfiguration)
    ringing = (given.ringing_s, given.ringing_loss) if options.ringing is None else timing.ringing(options.ringing)
    return replace(
        given,
        reconfiguration=reconfiguration,
        ringing_s=ringing[0],
        ringing_loss=ringing[1],
        seed=given.seed if options.seed is None else options.seed,
    )


def _address(ocs: Ocs, listen: str | None) -> tuple[str, int]:
    if listen is None:
        return str(ocs.address), ocs.management_port
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--listen {listen!r}: write ADDRESS:PORT, such as 127.0.0.1:10034")
    return str(ip_address(host.strip("[]"))), int(port)


async def _serve(switches: list[Ocs], emulation: Emulation, options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    options.run.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):
        os.nice(NICENESS)
    async with contextlib.AsyncExitStack() as stack:
        for ocs in switches:
            await _start(ocs, emulation, options, stack)
        print("ready", flush=True)
        await stop.wait()
    return 0


def _context(files: list[Path] | None) -> ssl.SSLContext | None:
    if not files:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files[0], files[1])
    made.load_verify_locations(files[2])
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def _gnmi(engine: Engine, files: list[Path] | None) -> Any:
    """Raises OSError."""
    import grpc
    from rostrum.lab.ocs.gnmi import GnmiServer

    if not files:
        return GnmiServer(engine)
    certificate, key, authority = (file.read_bytes() for file in files)
    return GnmiServer(engine, grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True))


async def _start(ocs: Ocs, emulation: Emulation, options: argparse.Namespace, stack: contextlib.AsyncExitStack) -> None:
    light: Light = NoLight() if options.no_light else KernelLight(ocs, CACHE)
    model = Model(ocs, emulation.reconfiguration, emulation.ringing_s, emulation.ringing_loss, emulation.seed)
    engine = Engine(model, light)
    stack.callback(engine.close)
    dialect = DIALECTS.get(ocs.dialect)
    server = Server(engine, dialect(), _context(options.tls)) if dialect else _gnmi(engine, options.tls)
    name = f"{server.dialect.name} style TL1" if isinstance(server, Server) else server.name
    host, port = _address(ocs, options.listen)
    try:
        await server.start(host, port)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    stack.push_async_callback(server.close)
    path = options.run / f"ocs-{ocs.name}.ctl"
    control = Control(engine, server, path)
    await control.start()
    stack.push_async_callback(control.close)
    print(
        f"{ocs.name}: {ocs.ports} ports, {name} on {host}:{server.port}, control {path}, "
        f"seed {emulation.seed}, {'no light' if options.no_light else 'light in the kernel'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
