"""An object to several sites (docs/wan.md): real manager and agents, a bridge and a router for each site, and between
the routers an emulated wide area, which carries unicast only. Then once more, while a relay is killed."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rostrum.client import Agent
from rostrum.client.values import RostrumError
from rostrum.lab.emulator import Emulator, Port
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError, PrivateNamespace
from rostrum.lab.processes import agent_program, certificates, secured, tls
from rostrum.lab.results import rounded, save
from rostrum.topologies import load_text
from rostrum.topologies.places import build_folder
from rostrum.topologies.units import Size

OUT = Console(highlight=False, soft_wrap=True)
MEMORY = Path("/dev/shm")
READY_S = 40.0
MTU, HEADERS, FRAME = 1500, 20 + 8 + 32, 14  # of a data packet: IP, UDP and ours; and what an interface counts beside
ON_THE_WIRE = 38  # Ethernet's header, check sequence, preamble and gap
TRANSLATES = (
    "add table ip translation",
    "add chain ip translation leaves { type nat hook postrouting priority 100; }",
    "add rule ip translation leaves oifname wan masquerade random",
)
KILLS_MOST = 3  # a busy machine sees late that a third is there: the relay may have all by then
COPIES_MOST = 1.05
SLOWEST_MOST = 1.1


@dataclass(frozen=True)
class Area:
    """Sites around the sender's: round trips in ms, the rate of each site's link, and its share of losses each way.
    `nat`: their routers translate addresses and ports, so nobody outside reaches a server there. `chain`: each site
    lies behind the one before it. `secure`: all links are TLS or sealed, by certificates of a CA of its own.
    """

    rtts: tuple[float, ...]
    hosts: int
    rate_bps: float
    loss: float
    nat: bool = False
    chain: bool = False
    secure: bool = False
    options: str = ""  # of the sends, of the engine wan

    @property
    def sites(self) -> list[str]:
        return ["home", *(f"s{number}" for number in range(1, len(self.rtts) + 1))]

    def names(self, site: int) -> list[str]:
        """The sender is alone in its site."""
        return ["h0"] if site == 0 else [f"s{site}h{host}" for host in range(1, self.hosts + 1)]

    @property
    def receivers(self) -> list[str]:
        return [name for site in range(1, len(self.rtts) + 1) for name in self.names(site)]

    def link_s(self, size: int, rtt: float) -> float:
        """The least time of a site's link: every fragment once and each lost one again, and the way there."""
        share = (MTU - HEADERS) / (MTU + ON_THE_WIRE)
        return size * 8 / (self.rate_bps * share * (1 - self.loss)) + rtt / 2000

    def topology(self) -> str:
        switches, servers, links, sites = [], [], [], []
        for number, site in enumerate(self.sites):
            switches.append(f"  {site}-lan: {{role: tor, southbound: none}}")
            for host, name in enumerate(self.names(number), 1):
                address = f"10.0.{number}.{host}"
                servers.append(f"  {name}: {{address: {address}, management: {address}}}")
                links.append(f'  - {{a: {name}, b: "{site}-lan:{host}", rate: 1G}}')
            more = ", nat: true" if self.nat and number else ""
            more += f", via: {self.sites[number - 1]}" if self.chain and number > 1 else ""
            sites.append(f"  {site}: {{servers: [{', '.join(self.names(number))}]{more}}}")
        head = [
            "rostrum: 1",
            "name: sites",
            f"network: {{data: 10.0.0.0/16, management: 10.0.0.0/16, multicast: 239.192.0.0/16, mtu: {MTU}}}",
            "manager: {address: 10.0.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}",
            "agent: {control_port: 7071, data_port: 7070}",
            *(["security: required"] if self.secure else []),
        ]
        return "\n".join([*head, "switches:", *switches, "servers:", *servers, "links:", *links, "sites:", *sites, ""])


class Sites:
    """The network, its manager (on the sender's host) and its agents, in `namespace`; `folder` is on a tmpfs."""

    def __init__(self, namespace: PrivateNamespace, folder: Path, area: Area, seed: int) -> None:
        self.namespace, self.folder, self.area = namespace, folder, area
        self.processes: dict[str, Entered] = {}
        self.agents: dict[str, Agent] = {}
        self.certificates = ""
        self.manager_argv: list[str] = []  # without its folder
        for number in range(len(area.sites)):
            self._site(number)
        macs = {site: self._in(f"r-{site}", "cat", "/sys/class/net/wan/address") for site in area.sites}
        for site in area.sites:  # losses are drawn by the packet: no ARP among them
            for far, other in enumerate(area.sites):
                if other != site:
                    address = f"192.168.9.{far + 1}"
                    self._in(f"r-{site}", "ip", "neighbour", "replace", address, "lladdr", macs[other], "dev", "wan",
                             "nud", "permanent")  # fmt: skip
                    if not (area.nat and far):
                        self._in(f"r-{site}", "ip", "route", "add", f"10.0.{far}.0/24", "via", address)
        far_ports = [
            Port(f"w-s{number}", rtt / 2, area.rate_bps, area.rate_bps, lost_up=area.loss, lost_down=area.loss)
            for number, rtt in enumerate(area.rtts, 1)
        ]
        self.emulator = Emulator(folder, [Port("w-home"), *far_ports], seed, enter=namespace.enter)

    def _in(self, where: str, *argv: str) -> str:
        return str(self.namespace.run(["ip", "netns", "exec", where, *argv]).stdout).strip()

    def _site(self, number: int) -> None:
        """A bridge, its hosts, and a router that passes on unicast."""
        site, run = self.area.sites[number], self.namespace.run
        router = f"r-{site}"
        run(["ip", "link", "add", f"b-{site}", "type", "bridge", "mcast_snooping", "0"])
        run(["ip", "link", "set", f"b-{site}", "up"])
        for host, name in enumerate([*self.area.names(number), router], 1):
            gateway = name == router
            run(["ip", "netns", "add", name])
            quiet = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
            self._in(name, "sysctl", "-qw", *quiet, f"net.ipv4.ip_forward={int(gateway)}")
            run(["ip", "link", "add", f"p-{name}", "type", "veth", "peer", "name", "eth0", "netns", name])
            run(["ip", "link", "set", f"p-{name}", "master", f"b-{site}", "up"])
            address = f"10.0.{number}.{254 if gateway else host}/24"
            self._in(name, "ip", "address", "add", address, "broadcast", "+", "dev", "eth0")
            for interface in ("lo", "eth0"):
                self._in(name, "ip", "link", "set", interface, "up")
            if not gateway:
                self._in(name, "ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
                self._in(name, "ip", "route", "add", "default", "via", f"10.0.{number}.254")
        run(["ip", "link", "add", f"w-{site}", "type", "veth", "peer", "name", "wan", "netns", router])
        run(["ip", "link", "set", f"w-{site}", "up"])
        off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off"]
        self._in(router, "ethtool", "-K", "wan", *off)
        self._in(router, "ip", "address", "add", f"192.168.9.{number + 1}/24", "dev", "wan")
        self._in(router, "ip", "link", "set", "wan", "up")
        if self.area.nat and number:
            for text in TRANSLATES:
                self._in(router, "nft", text)

    def place(self, name: str, file: str = "") -> Path:
        return self.folder / name / file

    def log(self, name: str) -> str:
        return self.place(name, "log").read_text(errors="replace")

    def _start(self, name: str, host: str, argv: Sequence[str]) -> None:
        self.place(name).mkdir(exist_ok=True)
        with self.place(name, "log").open("ab") as log:
            self.processes[name] = self.namespace.popen(
                ["ip", "netns", "exec", host, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start(self) -> None:
        """Returns when all agents know their sites. Raises LabError."""
        self.emulator.start()
        file = self.folder / "sites.yaml"
        file.write_text(self.area.topology())
        doors = ["--rest-open"]
        if self.area.secure:
            topology = load_text(self.area.topology())
            self.certificates = certificates(topology, self.folder)
            doors = secured(topology, self.certificates)
        self.manager_argv = [sys.executable, "-m", "rostrum.controller", "--topology", str(file), *doors]
        self.start_manager()
        for number in range(len(self.area.sites)):
            for host, name in enumerate(self.area.names(number), 1):
                self.start_agent(name, f"10.0.{number}.{host}")
        for name in ("h0", *self.area.receivers):
            self._until(lambda name=name: "this server is in site=" in self.log(name), f"{name} hears of its site")
            self.agents[name] = Agent(self.place(name, "agent.sock"))

    def start_manager(self) -> None:
        """Again, after it was killed: with the journal of before."""
        self._start("manager", "h0", [*self.manager_argv, "--run", str(self.folder / "run")])

    def start_agent(self, name: str, address: str, *more: str) -> None:
        self.place(name).mkdir(exist_ok=True)
        self.place(name, "objects").mkdir(mode=0o710, exist_ok=True)
        doors = [*tls("--manager-tls", self.certificates, name), "--security", "required"] if self.area.secure else []
        self._start(name, name, [
            str(agent_program()), "--interface", "eth0", "--manager", "10.0.0.1:9090", "--server", name, "--address",
            address, "--socket", str(self.place(name, "agent.sock")), "--store", str(self.place(name, "objects")),
            "--mtu", str(MTU), "--nic-rate", "1G",
            "--metrics", str(self.place(name, "metrics.sock")), *doors, *more,
        ])  # fmt: skip

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            if time.monotonic() > deadline:
                raise LabError(f"{what}: not within {READY_S:g} s; the manager: {self.log('manager')[-1000:]}")
            if gone := [name for name, process in self.processes.items() if process.poll() is not None]:
                raise LabError(f"{gone[0]} ended: {self.log(gone[0])[-1000:]}")
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def start_again(self, name: str, address: str) -> None:
        """An agent that was killed. Returns when it knows its site. Raises LabError."""
        told = "this server is in site="
        before = self.log(name).count(told)
        self.agents.pop(name).close()
        self.start_agent(name, address)
        self._until(lambda: self.log(name).count(told) > before, f"{name} hears of its site again")
        self.agents[name] = Agent(self.place(name, "agent.sock"))

    def stop(self) -> None:
        for agent in self.agents.values():
            agent.close()
        for name in list(self.processes):
            self.kill(name)
        self.emulator.stop()

    def carried(self) -> dict[str, tuple[int, int, int]]:
        """Of each site's link so far: bytes that came out of it, packets that did, and packets that were lost on it."""
        ports = self.emulator.counters()["ports"]
        found = {}
        for number, site in enumerate(self.area.sites[1:], 1):
            row = ports[f"w-s{number}"]
            came_out = int(self._in(f"r-{site}", "cat", "/sys/class/net/wan/statistics/rx_bytes"))
            found[site] = (came_out, row["sent"], row["lost_down"] + row["full_down"])
        return found

    def opened(self, site: str) -> float:
        """Sealed packets that the first of a site has opened so far; 0 without seals, or when it is gone."""
        name = f"{site}h1"
        if not self.area.secure or name not in self.processes:
            return 0.0
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.place(name, "metrics.sock")))) as http:
            text = http.get("http://agent/metrics").text
        found = re.search(r"^rostrum_agent_packets_opened_total (\S+)", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


def payload_of(before: tuple[int, int, int], after: tuple[int, int, int]) -> float:
    """What a link was given, as bytes of payload: all frames count, also those of control, and the lost ones."""
    came_out, packets, lost = (b - a for a, b in zip(before, after, strict=True))
    return came_out * (1 + lost / max(packets, 1)) * (MTU - HEADERS) / (MTU + FRAME)


def send(sites: Sites, name: str, content: bytes, bound_s: float, kill: str = "") -> dict[str, Any]:
    """To all receivers. `kill`: this server's agent, when a third is at its site's last. Raises LabError."""
    area = sites.area
    file = sites.folder / name
    file.write_bytes(content)
    done_at: dict[str, float] = {}
    wrong: list[str] = []

    def wait_for(receiver: str) -> None:
        try:
            with sites.agents[receiver].read(name, wait=bound_s) as data:
                done_at[receiver] = time.monotonic()
                if data.bytes() != content:
                    wrong.append(f"{receiver} has other bytes")
        except RostrumError as error:
            wrong.append(f"{receiver}: {error}")

    waited = [one for one in area.receivers if one != kill]
    threads = [threading.Thread(target=wait_for, args=(one,), daemon=True) for one in waited]
    for thread in threads:
        thread.start()
    opened = {site: sites.opened(site) for site in area.sites[1:]}
    before, began = sites.carried(), time.monotonic()
    asked: dict[str, Any] = {"protocol": "wan", "options": area.options} if area.options else {}
    handle = sites.agents["h0"].send(name, area.receivers, source=file, **asked)
    if kill:
        member = next(one for one in reversed(waited) if one[:2] == kill[:2])
        deadline = began + bound_s
        while not any(3 * one.bytes > len(content) for one in sites.agents[member].status().transfers):
            if time.monotonic() > deadline or handle.done:
                raise LabError(f"a third of {name} did not come to {member}: {sites.log('h0')[-1000:]}")
            time.sleep(0.01)
        sites.kill(kill)
    result = handle.wait(bound_s)
    for thread in threads:
        thread.join(bound_s)
    after = sites.carried()
    failed = {one.name: one.cause for one in result.receivers if one.state != "done"}
    if wrong or set(failed) - {kill}:
        raise LabError(f"{name}: {'; '.join(wrong)} {failed} {result.cause}; the sender: {sites.log('h0')[-1500:]}")
    file.unlink()
    rows = {}
    for number, (site, rtt) in enumerate(zip(area.sites[1:], area.rtts, strict=True), 1):
        seconds = max(done_at[one] for one in area.names(number) if one in done_at) - began
        rows[site] = {
            "rtt_ms": rtt,
            "seconds": seconds,
            "link_seconds": area.link_s(len(content), rtt),
            "copies": payload_of(before[site], after[site]) / len(content),
            "opened": sites.opened(site) - opened[site],
        }
    went_on = {one: re.findall(r"goes on where it was: bytes=(\d+)", sites.log(one)) for one in waited}
    return {
        "sites": rows,
        "failed": failed,
        "protocol": result.protocol,
        "reason": result.reason,
        "went_on_from": max(int(number) for found in went_on.values() for number in found or [0]) / len(content),
        "went_on": {one: int(found[-1]) / len(content) for one, found in went_on.items() if found},
    }


def run(area: Area, size: int, seed: int, kill: bool = True) -> dict[str, Any]:
    """The figures. Raises LabError if somebody who lives does not get it."""
    content = random.Random(seed).randbytes(size)
    slowest = max(area.link_s(size, rtt) for rtt in area.rtts)
    bound_s = 30 + 6 * slowest
    where = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="rostrum-sites-", dir=where) as name,
        PrivateNamespace(switches=False) as namespace,
    ):
        sites = Sites(namespace, Path(name), area, seed)
        try:
            sites.start()
            plain = send(sites, "plain", content, bound_s)
            for each in ("h0", *area.receivers):
                sites.agents[each].delete("plain")
            late = sites.emulator.counters()["late"]
            killed = send(sites, "killed", content, bound_s, "s1h1") if kill else None
            for again in range(KILLS_MOST - 1):
                if killed is None or killed["failed"]:
                    break
                sites.start_again("s1h1", "10.0.1.1")
                killed = send(sites, f"killed-{again}", content, bound_s, "s1h1")
        finally:
            sites.stop()
    summary: dict[str, Any] = {
        "copies": max(row["copies"] for row in plain["sites"].values()),
        "slowest_link_seconds": slowest,
        "seconds": max(row["seconds"] for row in plain["sites"].values()),
    }
    summary["over_slowest_link"] = summary["seconds"] / slowest
    verdicts = [
        _verdict("payload over each wide-area link, in copies", COPIES_MOST, summary["copies"]),
        _verdict("time of all sites, over the slowest link's", SLOWEST_MOST, summary["over_slowest_link"]),
    ]
    if killed:
        summary["killed_copies"] = max(row["copies"] for row in killed["sites"].values())
        summary["killed_seconds"] = max(row["seconds"] for row in killed["sites"].values())
        went_on = killed["went_on_from"]
        name = "a relay killed: of the object, what its follower did not take again"
        verdicts.append({"name": name, "goal": ">= 0.25", "found": went_on, "holds": went_on >= 0.25})
    report = {"summary": summary, "verdicts": verdicts, "plain": plain, "killed": killed, "late": late}
    return dict(rounded(report))


def _verdict(name: str, most: float, found: float) -> dict[str, Any]:
    return {"name": name, "goal": f"<= {most:g}", "found": found, "holds": found <= most}


@click.command()
@click.option("--size", default="200M", show_default=True, type=Size(), help="Of the object.")
@click.option("--rtt", "rtts", default="50,100,150", show_default=True, help="Round trips to the sites, in ms.")
@click.option("--hosts", default=3, show_default=True, type=click.IntRange(2, 20), help="Receivers in each site.")
@click.option("--rate", default=50.0, show_default=True, type=float, help="Of each site's link, in Mbit/s.")
@click.option("--loss", default=1.0, show_default=True, type=float, help="On each link, each way, in percent.")
@click.option("--nat", is_flag=True, help="The sites' routers translate addresses and ports.")
@click.option(
    "--chain", is_flag=True, help="Each site lies behind the one before it, and its relay is fed by that one's."
)
@click.option("--secure", is_flag=True, help="Every link is TLS or sealed (`security: required`).")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="Of the sends, as of rostrum send: such as congestion=friendly. May be repeated.")  # fmt: skip
@click.option("--kill/--no-kill", default=True, show_default=True, help="Once more, and kill a relay.")
@click.option("--seed", type=click.IntRange(1, 2**31), help="Of data and losses [a new one, printed].")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "sites.json", show_default=True, help="Where the figures go.")  # fmt: skip
def command(
    size: int, rtts: str, hosts: int, rate: float, loss: float, nat: bool, chain: bool, secure: bool,
    options: tuple[str, ...], kill: bool, seed: int | None, json_file: Path
) -> None:  # fmt: skip
    """Send an object to sites that only unicast reaches: a relay in each takes it once and passes it on while it comes.

    By real manager and agents, which are not told the links' rate. Then again, while a relay is killed.
    """
    try:
        rtts_ms = tuple(float(word) for word in rtts.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{rtts!r}: numbers, separated by commas") from error
    seed = seed or random.SystemRandom().randrange(1, 2**31)
    OUT.print(f"seed {seed}")
    area = Area(rtts_ms, hosts, rate * 1e6, loss / 100, nat, chain, secure, ",".join(options))
    if nat and chain and len(rtts_ms) > 1:
        raise click.UsageError("--nat and --chain: of two sites next to each other at most one may translate addresses")
    try:
        report = run(area, size, seed, kill)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    parameters = {**asdict(area), "size": size, "kill": kill}
    save({**report, "manifest": manifest(seed, parameters)}, json_file)
    for one in report["verdicts"]:
        OUT.print(f"{'holds ' if one['holds'] else 'MISSED'} {one['name']}: {one['found']:.3f} ({one['goal']})")
    for site, row in report["plain"]["sites"].items():
        OUT.print(f"{site}: {row['rtt_ms']:g} ms, {row['seconds']:.1f} s, link {row['link_seconds']:.1f} s, "
                  f"{row['copies']:.3f} copies")  # fmt: skip
    OUT.print(f"figures: {json_file}")
    if not all(one["holds"] for one in report["verdicts"]):
        sys.exit(1)
