"""Files on a plain LAN without a manager (docs/lan.md): hosts on a Linux bridge, as ordinary users, beside udpcast and
uftp; and where multicast does not get through."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError, PrivateNamespace
from rostrum.lab.results import save
from rostrum.topologies.units import Size

OUT = Console(highlight=False, soft_wrap=True)
USER = 65534  # nobody: no tool has rights
BOUND_S = 120.0
READY_S = 20.0
UFTP_RATE_KBIT = {1500: 800_000, 9000: 3_000_000}  # its best on a link without a limit (docs/benchmarks.md)
SENDER_COPIES_MOST = 1.5  # of the file: repairs included
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Run:
    """From the start of the sender until all receivers had the file, and what the sender's NIC sent."""

    seconds: float
    sent_bytes: int
    facts: dict[str, Any]

    @property
    def first_packets(self) -> float:
        """Of the sender, for each fragment: what it sent to all or to a relay. What is lost adds none."""
        return self._total("packets_sent") / self._fragments

    @property
    def repaired_share(self) -> float:
        """Of all that receivers had to get, what the sender sent again to single ones."""
        return self._total("packets_patched") / self._fragments / len(self.facts["multicast"])

    @property
    def _fragments(self) -> int:
        return sum(-(-part["size"] // part["fragment_size"]) for part in self.facts["parts"])

    def _total(self, name: str) -> int:
        return sum(int(part[name]) for part in self.facts["parts"])


class Lan:
    """h0, which sends, and receivers h1 ... hn on a bridge. `folder`: of each host one, on a tmpfs."""

    def __init__(self, namespace: PrivateNamespace, folder: Path, receivers: int, mtu: int) -> None:
        self.namespace, self.folder, self.mtu = namespace, folder, mtu
        self.hosts = [f"h{number}" for number in range(receivers + 1)]
        ip = self._ip
        ip("link", "add", "br0", "mtu", "9000", "type", "bridge", "mcast_snooping", "0")
        ip("link", "set", "br0", "up")
        for number, host in enumerate(self.hosts):
            place = folder / host
            place.mkdir(mode=0o777)
            place.chmod(0o777)
            ip("netns", "add", host)
            ip("link", "add", f"port{number}", "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu),
               "netns", host)  # fmt: skip
            ip("link", "set", f"port{number}", "master", "br0", "up")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "address", "add", f"{self.address(number)}/24", "broadcast", "+", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "route", "add", "224.0.0.0/4", "dev", "eth0")

    def _ip(self, *fields: str) -> None:
        self.namespace.run(["ip", *fields])

    @property
    def receivers(self) -> range:
        return range(1, len(self.hosts))

    def address(self, number: int) -> str:
        return f"10.0.0.{number + 1}"

    def multicast(self, numbers: range, through: bool) -> None:
        """Whether the bridge lets multicast out to these hosts."""
        for number in numbers:
            word = "on" if through else "off"
            self.namespace.run(["bridge", "link", "set", "dev", f"port{number}", "mcast_flood", word])

    def sent_bytes(self) -> int:
        output = self.namespace.run(["cat", "/sys/class/net/port0/statistics/rx_bytes"]).stdout
        return int(output)

    def start(self, number: int, argv: list[str]) -> Entered:
        """A command on a host, as a user without rights, in the host's folder."""
        place = self.folder / self.hosts[number]
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]
        home = ["env", f"HOME={place}", f"TMPDIR={place}"]
        command = ["ip", "netns", "exec", self.hosts[number], *user, *home, *argv]
        with open(place / "log", "ab") as log:
            return self.namespace.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def place(self, number: int, name: str = "") -> str:
        return str(self.folder / self.hosts[number] / name)

    def log(self, number: int) -> str:
        return (self.folder / self.hosts[number] / "log").read_text(errors="replace")

    def clear(self) -> None:
        """What runs before this leaves nothing for what follows."""
        for host in self.hosts:
            for path in (self.folder / host).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def until(condition: Callable[[], bool], bound_s: float, what: str) -> None:
    deadline = time.monotonic() + bound_s
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {bound_s:g} s")
        time.sleep(0.005)


@contextlib.contextmanager
def receiving(lan: Lan, argv: Callable[[int], list[str]], ready: str) -> Iterator[list[Entered]]:
    """A program on each receiver, once its log has that word."""
    lan.clear()
    running = [lan.start(number, argv(number)) for number in lan.receivers]
    try:
        until(lambda: all(ready in lan.log(number) for number in lan.receivers), READY_S, f"{argv(1)[0]}'s start")
        yield running
    except LabError as error:
        raise LabError(f"{error}: {' | '.join(lan.log(number)[-300:] for number in lan.receivers)}") from error
    finally:
        for one in running:
            one.kill()
            one.wait()


def _same(lan: Lan, file: Path, name: str, content: bytes) -> None:
    for number in lan.receivers:
        if (lan.folder / lan.hosts[number] / name).read_bytes() != content:
            raise LabError(f"{name} at {lan.hosts[number]} is not {file.name}")


def rostrum_command() -> list[str]:
    return [sys.executable, "-m", "rostrum.client.cli"]


def rostrum(lan: Lan, file: Path, content: bytes, options: list[str]) -> Run:
    """`rostrum send` with these options to waiting `rostrum receive`. Raises LabError."""
    with receiving(
        lan, lambda number: [*rostrum_command(), "receive", lan.place(number, "in"), "--count", "1"], "waiting"
    ) as running:
        before, began = lan.sent_bytes(), time.monotonic()
        sender = lan.start(0, [*rostrum_command(), "send", str(file), "--json", *options])
        for one in [sender, *running]:
            one.wait(BOUND_S)
        seconds, sent = time.monotonic() - began, lan.sent_bytes() - before
        said = lan.log(0)
        if sender.returncode or any(one.returncode for one in running):
            raise LabError(f"rostrum send failed: {said[-1500:]}")
        _same(lan, file, f"in/{file.name}", content)
        facts = json.loads(said[said.index("{\n") :])
        return Run(seconds, sent, facts)


def udpcast(lan: Lan, file: Path, content: bytes) -> Run:
    """With the options that were best for it (docs/benchmarks.md)."""
    common = ["--interface", "eth0", "--nokbd", "--no-progress"]

    def receive(number: int) -> list[str]:
        return ["udp-receiver", *common, "--rcvbuf", "16777216", "--file", lan.place(number, "copy")]

    with receiving(lan, receive, "UDP receiver") as running:
        block = 1456 if lan.mtu <= 1500 else 8900
        count = str(len(running))
        began = time.monotonic()
        argv = ["udp-sender", *common, "--full-duplex", "--blocksize", str(block), "--min-receivers", count]
        sender = lan.start(0, [*argv, "--file", str(file)])
        for one in [sender, *running]:
            one.wait(BOUND_S)
        seconds = time.monotonic() - began
        _same(lan, file, "copy", content)
        return Run(seconds, 0, {})


def uftp(lan: Lan, file: Path, content: bytes) -> Run:
    """At the rate that was best for it."""

    def receive(number: int) -> list[str]:
        return ["uftpd", "-d", "-x", "2", "-q", "-I", "eth0", "-U", f"0x0a0000{number + 1:02x}", "-D",
                lan.place(number), "-B", "104857600", "-c", "20971520"]  # fmt: skip

    def joined() -> bool:
        return all(
            "230.4.4.1" in lan.namespace.run(["ip", "-n", lan.hosts[number], "maddress", "show", "dev", "eth0"]).stdout
            for number in lan.receivers
        )

    with receiving(lan, receive, "Loaded"):
        until(joined, READY_S, "uftpd's group")
        ids = ",".join(f"0x0a0000{number + 1:02x}" for number in lan.receivers)
        block, rate = (1400 if lan.mtu <= 1500 else 8800), UFTP_RATE_KBIT[1500 if lan.mtu <= 1500 else 9000]
        began = time.monotonic()
        sender = lan.start(0, ["uftp", "-x", "2", "-I", "eth0", "-U", "0x0a000001", "-b", str(block), "-B", "104857600",
                               "-r", "0.05:0.01:1.0", "-s", "50", "-R", str(rate), "-H", ids, "-D", "copy",
                               str(file)])  # fmt: skip
        sender.wait(BOUND_S)
        seconds = time.monotonic() - began
        complete = len(re.findall(r"Host: \S+\s+Status: Completed", lan.log(0)))
        if complete != len(lan.receivers):
            raise LabError(f"uftp: {complete} of {len(lan.receivers)} receivers are complete: {lan.log(0)[-400:]}")
        _same(lan, file, "copy", content)
        return Run(seconds, 0, {})


@click.command()
@click.option("--size", default="256M", show_default=True, type=Size(), help="Of the file.")
@click.option("--receivers", default=3, show_default=True, type=click.IntRange(2, 60))
@click.option("--mtu", default=1500, show_default=True, type=click.IntRange(1280, 9000))
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 20), help="Runs of each tool, by turns.")
@click.option("--tools/--no-tools", default=True, show_default=True, help="Run udpcast and uftp too, where installed.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/lan.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(size: int, receivers: int, mtu: int, repeat: int, tools: bool, json_file: Path) -> None:
    """Send a file to hosts on a plain bridge, without a manager, beside udpcast and uftp.

    As an ordinary user. Then with multicast blocked to all receivers, and to some of them.
    """
    parameters = {"size": size, "receivers": receivers, "mtu": mtu, "repeat": repeat, "tools": tools}
    try:
        report = {**run(size, receivers, mtu, repeat, tools), "manifest": manifest(0, parameters)}
    except LabError as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    for name, value in report["summary"].items():
        OUT.print(f"{name}: {value}")
    OUT.print(f"figures in {json_file}")
    if not report["summary"]["ok"]:
        sys.exit(1)


def run(size: int, receivers: int, mtu: int, repeat: int, tools: bool) -> dict[str, Any]:
    """The figures. Raises LabError if a transfer fails."""
    skipped = {} if tools else {"udpcast": "not asked for", "uftp": "not asked for"}
    for tool, program in (("udpcast", "udp-sender"), ("uftp", "uftp")):
        if tools and not shutil.which(program):
            skipped[tool] = f"{program} is not installed (Debian: apt-get install {tool})"
    content = os.urandom(size)
    taken: dict[str, list[float]] = {"rostrum": [], "udpcast": [], "uftp": []}
    with tempfile.TemporaryDirectory(prefix="rostrum-lan-lab-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "file.bin"
        file.write_bytes(content)
        file.chmod(0o644)
        with PrivateNamespace(switches=False) as namespace:
            lan = Lan(namespace, folder, receivers, mtu)
            count = ["--wait-for", str(receivers)]
            for _ in range(repeat):
                taken["rostrum"].append(rostrum(lan, file, content, count).seconds)
                for tool, runs in (("udpcast", udpcast), ("uftp", uftp)):
                    if tool not in skipped:
                        taken[tool].append(runs(lan, file, content).seconds)
            lan.multicast(range(receivers + 1), through=False)
            blocked = rostrum(lan, file, content, count)
            lan.multicast(range(2), through=True)
            partly = rostrum(lan, file, content, count)
    return _report(size, taken, skipped, blocked, partly)


def _report(
    size: int, taken: dict[str, list[float]], skipped: dict[str, str], blocked: Run, partly: Run
) -> dict[str, Any]:
    medians = {tool: statistics.median(runs) for tool, runs in taken.items() if runs}
    ours = medians["rostrum"]
    summary: dict[str, Any] = {
        "vs_udpcast": round(medians["udpcast"] / ours, 2) if "udpcast" in medians else None,
        "vs_uftp": round(medians["uftp"] / ours, 2) if "uftp" in medians else None,
        "seconds": round(ours, 3),
        "goodput_mbps": round(size * 8 / ours / 1e6),
        "relay_over_unicast": blocked.facts["relay_over_unicast"],
        "relay_seconds": round(blocked.seconds, 3),
        "relay_sender_copies": round(blocked.sent_bytes / size, 2),
        "relay_first_packets": round(blocked.first_packets, 3),
        "relay_repaired_share": round(blocked.repaired_share, 3),
        "partly_seconds": round(partly.seconds, 3),
        "partly_sender_copies": round(partly.sent_bytes / size, 2),
        "partly_first_packets": round(partly.first_packets, 3),
        "partly_repaired_share": round(partly.repaired_share, 3),
        "multicast_reached_partly": sum(value is True for value in partly.facts["multicast"].values()),
    }
    summary["ok"] = bool(
        blocked.facts["relay_over_unicast"]
        and summary["multicast_reached_partly"] == 1
        and summary["relay_sender_copies"] <= SENDER_COPIES_MOST
        and summary["partly_sender_copies"] <= SENDER_COPIES_MOST
        and all(summary[name] is None or summary[name] > 1 for name in ("vs_udpcast", "vs_uftp"))
    )
    return {"summary": summary, "seconds": taken, "skipped": skipped}
