"""`rostrum doctor --lan`: what hinders sends on a LAN that nobody manages, causes before symptoms."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import click
from rostrum.topologies.units import Duration

from .agent import SendHandle
from .commands import JSON, _errors_as_text
from .lan import (
    PORTS,
    TRIAL,
    Nic,
    Peer,
    PrivateAgent,
    Trailer,
    is_address,
    mtu_of,
    names_of,
    nic_for,
    resolve,
    send_file,
)
from .values import RostrumError, SendResult

QUERIER_S = 2.5  # a querier asks at once for who is left of a group that somebody leaves, and once more after 1 s
ETH_P_IP, SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_ALLMULTI = 0x0800, 263, 1, 2
IPPROTO_IGMP, IGMP_QUERY = 2, 0x11
BUFFER_LEAST = 1 << 20
TRIAL_BYTES = 256 << 10
CONNECT_S = 2.0


@dataclass(frozen=True)
class Finding:
    """`level`: ok, note (works, but not as well as it could) or problem. `remedy`: what to do; empty = nothing."""

    level: str
    subject: str
    text: str
    remedy: str = ""


def _number(path: str | Path) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------------------------------------------------ this host


def check_buffers() -> list[Finding]:
    """What a user without rights gets for the sockets that receive."""
    room = _number("/proc/sys/net/core/rmem_max")
    if room is None or room >= BUFFER_LEAST:
        return []
    return [
        Finding("note", "socket buffers", f"a socket may hold {room >> 10} KiB: at high rates packets are lost here",
                "as root: sysctl -w net.core.rmem_max=16777216")
    ]  # fmt: skip


def check_bridges(folder: Path = Path("/sys/class/net")) -> list[Finding]:
    """Bridges of this host that snoop IGMP, though nobody asks for members."""
    found = []
    for bridge in sorted(folder.glob("*/bridge")):
        name = bridge.parent.name
        if _number(bridge / "multicast_snooping") == 1 and _number(bridge / "multicast_querier") == 0:
            found.append(
                Finding("note", f"bridge {name}", "snoops IGMP and is no querier: unless a router of the network asks, "
                        "it forgets members after some minutes, and multicast stops",
                        f"ip link set {name} type bridge mcast_querier 1 (or mcast_snooping 0)")
            )  # fmt: skip
    return found


def query_from(packet: bytes) -> str:
    """Who asks for members of multicast groups, by an IPv4 packet; empty: it is no such question."""
    head = (packet[0] & 15) * 4 if packet else 0
    if len(packet) <= head or head < 20 or packet[9] != IPPROTO_IGMP or packet[head] != IGMP_QUERY:
        return ""
    return socket.inet_ntoa(packet[12:16])


def _hear_query(link: socket.socket, nic: Nic, bound_s: float) -> str:
    """Joins a group and leaves it: a querier asks whether somebody is left. Empty: nobody did."""
    group = f"239.192.{os.urandom(1)[0]}.{os.urandom(1)[0] | 2}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        membership = socket.inet_aton(group) + socket.inet_aton(nic.address)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        time.sleep(0.1)  # the report goes out
    deadline = time.monotonic() + bound_s
    while (left := deadline - time.monotonic()) > 0:
        link.settimeout(left)
        try:
            asker = query_from(link.recv(2048))
        except TimeoutError:
            break
        if asker:
            return asker
    return ""


def check_querier(nic: Nic, bound_s: float = QUERIER_S) -> list[Finding]:
    """Whether somebody asks for members of groups: switches that snoop IGMP forget them else. Only root can hear it."""
    try:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    except PermissionError:
        return []
    with link:
        link.bind((nic.name, ETH_P_IP))
        everything = struct.pack("iHH8s", socket.if_nametoindex(nic.name), PACKET_MR_ALLMULTI, 0, b"")
        link.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, everything)
        asker = _hear_query(link, nic, bound_s)
    if asker:
        who = "a switch" if asker == "0.0.0.0" else asker
        return [Finding("ok", "IGMP querier", f"{who} asks for members of multicast groups")]
    return [
        Finding("note", "IGMP querier", "nobody asks for members of multicast groups: switches that snoop IGMP forget "
                "them after some minutes, or never learn of them", "switch on a querier in this VLAN, or snooping off")
    ]  # fmt: skip


def firewall_text(ruleset: str) -> str:
    """Why a ruleset of nft may drop what comes in; empty: nothing speaks for it."""
    hook = False
    for line in (line.strip() for line in ruleset.splitlines()):
        if line.startswith("type filter hook"):
            hook = "hook input" in line
            if hook and "policy drop" in line:
                return "its input chain drops what no rule accepts"
        elif hook and line.startswith(("drop", "reject")):
            return "its input chain ends with a rule that drops the rest"
    return ""


def check_firewall() -> list[Finding]:
    if not shutil.which("nft"):
        return []
    done = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        return [Finding("note", "firewall", "only root may read its rules: run this as root to have them looked at")]
    text = firewall_text(done.stdout)
    if not text or all(port in done.stdout for port in ("7070", "7071", "7072")):
        return []
    return [Finding("problem", "firewall", f"of this host: {text}, and none names rostrum's ports", f"let in {PORTS}")]


# ---------------------------------------------------------------------------------------------------- other hosts


def _connect(nic: Nic, address: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.settimeout(CONNECT_S)
        try:
            link.bind((nic.address, 0))
            link.connect((address, 7071))
        except TimeoutError:
            return errno.ETIMEDOUT
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def absent(name: str, code: int) -> Finding:
    """Of one that answered no question, by what its TCP port 7071 said."""
    if code == 0:
        return Finding("problem", name, "an agent runs there, but UDP does not get there or back",
                       f"let its firewall, and those between, take UDP {PORTS.split('UDP ', 1)[1]}")  # fmt: skip
    if code == errno.ECONNREFUSED:
        return Finding("problem", name, "the host is there, but nothing receives", "start rostrum receive there")
    if code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Finding("problem", name, "no such host answers on this network", "check its address, cable and VLAN")
    return Finding("problem", name, "nothing answers: the host is down, or a firewall drops everything",
                   f"let its firewall take {PORTS}, and start rostrum receive there")  # fmt: skip


def of_multicast(peer: Peer, mtu: int) -> Finding:
    """What the trial told of one receiver."""
    if peer.multicast:
        return Finding("ok", peer.title, "multicast gets there")
    if peer.multicast_small:
        return Finding(
            "problem", peer.title,
            f"small multicast packets get there, those of {mtu} bytes do not: an MTU between is smaller",
            "set the same MTU on all hosts and switches between",
        )  # fmt: skip
    return Finding(
        "note", peer.title, "multicast does not get there: data is handed on from server to server instead",
        "if the switches snoop IGMP: switch on a querier in this VLAN, or snooping off; on Wi-Fi that is usual",
    )  # fmt: skip


def check_mtu(nic: Nic, peers: list[Peer]) -> list[Finding]:
    own = mtu_of(nic)
    other = sorted({peer.mtu for peer in peers} - {own})
    if not other:
        return []
    text = f"{own} bytes here, {', '.join(map(str, other))} at others: packets go by the smallest"
    return [Finding("note", "MTU", text, "set the same MTU everywhere")]


def _look_for(private: PrivateAgent, names: list[str], wait: float) -> tuple[list[Peer], list[str]]:
    """Receivers, and names of those that are not there. Whoever is not named has `wait` too."""
    deadline = time.monotonic() + wait
    while True:
        there = [peer for peer in private.peers() if peer.receives]
        missing = [name for name in names if not any(name in (p.address, p.name, p.host) for p in there)]
        if (names and not missing) or time.monotonic() > deadline:
            return there, missing
        time.sleep(0.05)


def _wait(handle: SendHandle) -> SendResult:
    return handle.wait()


def _trial(private: PrivateAgent, peers: list[Peer]) -> tuple[list[Peer], list[Finding]]:
    """A small send to all that are there: what was found out about them on the way, and how it ended."""
    source = os.memfd_create("rostrum-doctor")
    os.truncate(source, TRIAL_BYTES)
    whole = Trailer("trial", TRIAL + uuid4().hex, 0, 0, TRIAL_BYTES, 0o600, private.nic.address)
    try:
        with private.connect() as agent:
            results = send_file(agent, source, whole, names_of(peers), _wait)
    finally:
        os.close(source)
    found = []
    for result in results:
        if result.cause:
            found.append(Finding("problem", "trial", result.cause, f"let all firewalls take {PORTS}"))
        found += [
            Finding("problem", one.name, one.cause or one.state, f"let its firewall take {PORTS}")
            for one in result.receivers
            if not one.digest_ok and not result.cause
        ]
    now = {peer.address: peer for peer in private.peers()}
    return [now.get(peer.address, peer) for peer in peers], found


def examine(names: list[str], interface: str | None, wait: float) -> list[Finding]:
    """All findings. Raises RostrumError if there is no network to look at."""
    names = resolve(names)
    nic = nic_for(names, interface)
    found = [Finding("ok", nic.name, f"{nic.address}, MTU {mtu_of(nic)}"), *check_firewall(), *check_bridges()]
    found += check_buffers() + check_querier(nic)
    if nic.address in names:
        found.append(Finding("problem", nic.address, "is this host, which sends to others alone", "name others"))
        names.remove(nic.address)
    addresses = tuple(name for name in names if is_address(name))
    try:
        with PrivateAgent(nic, "sender", addresses) as private:
            peers, missing = _look_for(private, names, wait)
            found += [absent(name, _connect(nic, name)) for name in missing]
            found += check_mtu(nic, peers)
            if peers:
                peers, failures = _trial(private, peers)
                found += [of_multicast(peer, mtu_of(nic)) for peer in peers] + failures
            elif not names:
                found.append(Finding("problem", "receivers", "nobody answers",
                                     "start rostrum receive on other hosts, or name one with --to"))  # fmt: skip
    except RostrumError as error:
        found.append(Finding("problem", "agent", str(error)))
    return found


@click.command()
@click.option("--lan", is_flag=True, required=True, help="Look at a LAN without a manager.")
@click.option("--to", "receivers", multiple=True, help="Receivers that should be there, separated by commas.")
@click.option("--interface", help="Network interface, or its address. Default: by the routing table.")
@click.option("--wait", default="3s", show_default=True, type=Duration(bare="s"), help="How long to look for others.")
@JSON
@_errors_as_text
def doctor(lan: bool, receivers: tuple[str, ...], interface: str | None, wait: float, as_json: bool) -> None:
    """What hinders `rostrum send` on this LAN: firewalls, IGMP queriers, MTU, and what to do.

    Tries a small send to all that run `rostrum receive`. The exit status is 1 if there is a problem.

    \b
      rostrum doctor --lan
      rostrum doctor --lan --to 10.0.0.2,10.0.0.3
    """
    names = [name.strip() for given in receivers for name in given.split(",") if name.strip()]
    found = examine(names, interface, wait)
    ok = all(finding.level != "problem" for finding in found)
    if as_json:
        print(json.dumps({"ok": ok, "findings": [asdict(finding) for finding in found]}, indent=1))
    for finding in () if as_json else found:
        click.echo(f"{finding.level:7} {finding.subject}: {finding.text}")
        if finding.remedy:
            click.echo(f"        {finding.remedy}")
    if not ok:
        sys.exit(1)
