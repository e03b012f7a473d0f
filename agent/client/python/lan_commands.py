"""`rostrum receive`, and `rostrum send` where no agent runs: files on any LAN, without set-up (docs/lan.md)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import click
from rostrum.topologies.units import Duration, rate_text, size_text

from . import report
from .commands import JSON, _ended_like_ctrl_c, _errors_as_text, _watch
from .lan import (
    PORTS,
    Peer,
    PrivateAgent,
    Receiver,
    Trailer,
    find_receivers,
    is_address,
    mtu_of,
    names_of,
    nic_for,
    resolve,
    safe_name,
    send_file,
)
from .objects import length_of
from .values import SendResult

FIND_S = 10.0
WAIT_FOR_S = 120.0
LOOK_S = 0.02


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--count", type=click.IntRange(min=1), help="End after so many files. Default: go on until Ctrl-C.")
@click.option("--timeout", type=Duration(bare="s"), help="End with status 1 when no file came for so long.")
@click.option("--interface", help="Network interface, or its address. Default: by the routing table.")
@click.option("--overwrite", is_flag=True, help="Replace files of the same name. Default: name.1, name.2, ...")
@JSON
@_errors_as_text
def receive(
    folder: Path, count: int | None, timeout: float | None, interface: str | None, overwrite: bool, as_json: bool
) -> None:
    """Receive files that `rostrum send` sends on this LAN into FOLDER. No manager, no set-up, no root.

    Anybody on the LAN may send to it while it runs. The exit status is 0 if every file that came is whole and its
    digest right.

    \b
      rostrum receive                                here, until Ctrl-C
      rostrum receive /data --count 1                one file
      rostrum send model.bin --to 10.0.0.2,10.0.0.3  on the sender
    """
    folder.mkdir(parents=True, exist_ok=True)
    nic = nic_for([], interface)
    failed = done = 0
    with _ended_like_ctrl_c(), PrivateAgent(nic, "true", into=folder) as private, private.connect() as agent:
        _say(f"waiting for files at {nic.address} ({nic.name}); ports {PORTS}")
        receiver = Receiver(agent, folder, overwrite, private.objects)
        last = time.monotonic()
        try:
            while count is None or done < count:
                for row in receiver.look():
                    last = time.monotonic()
                    done += 1
                    failed += not row["ok"]
                    _tell_file(row, as_json)
                status = agent.status()
                if any(not one.sending for one in status.transfers):
                    last = time.monotonic()
                if timeout and time.monotonic() - last > timeout:
                    raise click.ClickException(f"no file came for {timeout:g} s")
                time.sleep(LOOK_S)
            # the sender has heard of it before its connection goes
            while any(not one.sending for one in agent.status().transfers) and time.monotonic() - last < FIND_S:
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            pass
        finally:
            receiver.forget()
    if failed:
        sys.exit(1)


def _tell_file(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
    elif row["ok"]:
        click.echo(f"{row['file']}: {size_text(row['bytes'])} from {row['from']}, digest right")
    else:
        click.echo(row["cause"], err=True)


def _as_regular(file: BinaryIO) -> tuple[int, int]:
    """A descriptor and its length: what has none before it is read (a pipe) is read to its end first."""
    with contextlib.suppress(OSError, AttributeError):
        descriptor = file.fileno()
        if (length := length_of(descriptor)) >= 0:
            return descriptor, length
    spool = os.memfd_create("rostrum-send")
    with os.fdopen(os.dup(spool), "wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return spool, os.fstat(spool).st_size


def send_on_lan(
    file: BinaryIO,
    names: list[str],
    wait_for: int | None,
    wait: float | None,
    interface: str | None,
    as_json: bool,
    file_name: str,
    **options: Any,
) -> None:
    """What `rostrum send` does without an agent."""
    said = (lambda text: None) if as_json else _say
    names = resolve(names)
    bound = wait or (WAIT_FOR_S if wait_for else FIND_S)
    nic = nic_for(names, interface)
    source, size = _as_regular(file)
    total = Trailer(
        safe_name(file_name), uuid4().hex, 0, 0, size, os.fstat(source).st_mode & 0o777 or 0o644, nic.address
    )
    addresses = tuple(name for name in names if is_address(name))
    with _ended_like_ctrl_c():
        mtu: int | None = None
        while True:
            settings = () if mtu is None else ("--mtu", str(mtu))
            with PrivateAgent(nic, "sender", addresses, settings) as private:
                peers = find_receivers(private, names, wait_for or 1, bound, said)
                least = min(peer.mtu for peer in peers)
                if least < (mtu or mtu_of(nic)):  # full packets must fit everywhere
                    said(f"the MTU at {min(peers, key=lambda peer: peer.mtu).title} is {least}: packets are no longer")
                    mtu = least
                    continue
                result = private.done = _send(private, source, total, peers, as_json, **options)
                break
    if not result:
        sys.exit(1)


def _send(private: PrivateAgent, source: int, whole: Trailer, peers: list[Peer], as_json: bool, **options: Any) -> bool:
    began = time.monotonic()
    with private.connect() as agent:
        results = send_file(agent, source, whole, names_of(peers), lambda handle: _watch(handle, as_json), **options)
    seconds = time.monotonic() - began
    ok = all(result.ok for result in results)
    if as_json:
        print(json.dumps(_as_json(private, whole, peers, results, seconds, ok), indent=1))
        return ok
    if not ok or len(results) == 1:
        for result in results[-1:]:
            report.print_result(result, whole.name)
    if ok:
        rate = rate_text(whole.total * 8 / seconds) if seconds > 0 else "-"
        click.echo(f"{whole.name}: {size_text(whole.total)} at {len(peers)} receivers, {rate}, digests right")
    return ok


def _as_json(
    private: PrivateAgent, whole: Trailer, peers: list[Peer], results: list[SendResult], seconds: float, ok: bool
) -> dict[str, Any]:
    now = {peer.address: peer for peer in private.peers()}
    multicast = {peer.address: now[peer.address].multicast if peer.address in now else None for peer in peers}
    return {
        "ok": ok,
        "file": whole.name,
        "bytes": whole.total,
        "seconds": round(seconds, 4),
        "interface": private.nic.name,
        "address": private.nic.address,
        "multicast": multicast,
        "relay_over_unicast": not all(multicast.values()),
        "parts": [report.send_json(result) for result in results],
    }
