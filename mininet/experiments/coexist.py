"""Beside another controller: Faucet forwards unicast on the same Open vSwitch bridges, and both are restarted in any
order. Nothing of Faucet's, nor of a third party's, may go by our doing; transfers work whenever both are up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, RostrumError
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.results import save
from rostrum.topologies.model import Topology
from rostrum.topologies.units import Size

OUT = Console(highlight=False, soft_wrap=True)
FAUCET = Path(sys.prefix).parent / "faucet" / "bin" / "faucet"
FAUCET_PORT = 6663
OURS = 0x526F7374  # the upper half of our cookies
OFCTL = ("ovs-ofctl", "-O", "OpenFlow13")
BOUND_S = 40.0
# Of nobody that is here: one entry looks like a group's, one group like one of ours.
CANARY_FLOWS = (
    "cookie=0xbeef,table=7,priority=9,udp,tp_dst=9,actions=drop",
    "cookie=0xbeef,table=0,priority=39000,ip,nw_dst=239.255.9.9,actions=drop",
)
CANARY_GROUP = "group_id=0x50001002,type=all,bucket=output:1"
TOPOLOGY = """
rostrum: 1
name: beside
network: {data: 10.0.0.0/16, management: 10.255.0.0/24, multicast: 239.192.0.0/16, mtu: 1500}
manager: {address: 10.255.0.1}
switches:
  core: {role: core, dpid: 1, coexist: true}
  tor1: {role: tor, dpid: 2, coexist: true}
  tor2: {role: tor, dpid: 3, coexist: true}
servers:
  h1: {address: 10.0.0.1, management: 10.255.0.11}
  h2: {address: 10.0.0.2, management: 10.255.0.12}
  h3: {address: 10.0.0.3, management: 10.255.0.13}
  h4: {address: 10.0.0.4, management: 10.255.0.14}
links:
  - {a: h1, b: "tor1:1", rate: 1G}
  - {a: h2, b: "tor1:2", rate: 1G}
  - {a: h3, b: "tor2:1", rate: 1G}
  - {a: h4, b: "tor2:2", rate: 1G}
  - {a: "tor1:9", b: "core:1", rate: 1G}
  - {a: "tor2:9", b: "core:2", rate: 1G}
"""


def faucet_config(topology: Topology) -> str:
    """Every port of every switch in one VLAN: Faucet learns and floods, as on a plain LAN."""
    lines = ["vlans: {all: {vid: 100}}", "dps:"]
    for switch in topology.switches.values():
        lines += [f"  {switch.name}:", f"    dp_id: {switch.dpid}", "    hardware: Open vSwitch", "    interfaces:"]
        lines += [f"      {port}: {{native_vlan: all}}" for port in sorted(switch.neighbours)]
    return "\n".join(lines) + "\n"


class Other:
    """Faucet, started and killed."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.process: Entered | None = None
        (folder / "faucet.yaml").write_text(faucet_config(lab.topology))

    def start(self) -> None:
        where = {"FAUCET_CONFIG": "faucet.yaml", "FAUCET_LOG": "faucet.log", "FAUCET_EXCEPTION_LOG": "exceptions.log"}
        fields = [f"{name}={self.folder / file}" for name, file in where.items()]
        path = f"PATH={FAUCET.parent}:{os.environ['PATH']}"  # it runs the launcher of its os-ken
        argv = ["env", path, *fields, "FAUCET_PROMETHEUS_ADDR=127.0.0.1", str(FAUCET), "--ryu-ofp-listen-host",
                "127.0.0.1", "--ryu-ofp-tcp-listen-port", str(FAUCET_PORT)]  # fmt: skip
        with (self.folder / "output.log").open("ab") as log:
            self.process = self.lab.popen("manager", argv, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def text(self) -> str:
        files = [self.folder / name for name in ("output.log", "faucet.log", "exceptions.log")]
        return " | ".join(file.read_text(errors="replace")[-600:] for file in files if file.exists())


def until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until it held. Raises LabError."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > BOUND_S:
            raise LabError(f"{what}: not within {BOUND_S:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


def entries(lab: Lab, switch: str) -> list[str]:
    """Flow entries of a switch without what changes by itself: counters and ages."""
    flows = lab.execute("manager", [*OFCTL, "--no-stats", "dump-flows", switch]).splitlines()
    return [line.strip() for line in flows if "cookie=" in line]


def cookie(entry: str) -> int:
    return int(re.search(r"cookie=(0x[0-9a-f]+|0)", entry)[1], 16)  # type: ignore[index]


def is_ours(entry: str) -> bool:
    return cookie(entry) >> 32 == OURS


def of_others(lab: Lab) -> dict[str, list[str]]:
    """What others have on each switch and nobody but them changes: entries for hosts that Faucet learnt age."""
    found: dict[str, list[str]] = {}
    for switch in lab.topology.switches:
        static = [one for one in entries(lab, switch) if not is_ours(one) and "_timeout" not in one]
        groups = lab.execute("manager", [*OFCTL, "dump-groups", switch]).splitlines()[1:]
        found[switch] = sorted([*static, *(line.strip() for line in groups)])
    return found


def rules_of(lab: Lab) -> int:
    """Multicast entries of ours on all switches."""
    return sum(is_ours(one) for switch in lab.topology.switches for one in entries(lab, switch))


def reaches(lab: Lab, a: str, b: str) -> bool:
    """By unicast, through Faucet's entries."""
    address = str(lab.topology.servers[b].address)
    return "1 received" in lab.execute(a, ["ping", "-c", "1", "-W", "1", address], check=False)


@contextlib.contextmanager
def canaries(lab: Lab) -> Iterator[None]:
    """Entries and a group of a third party on each switch, set again where Faucet cleared everything."""
    for switch in lab.topology.switches:
        for flow in CANARY_FLOWS:
            lab.execute("manager", [*OFCTL, "add-flow", switch, flow])
        if "0x50001002" not in hex_groups(lab, switch):
            lab.execute("manager", [*OFCTL, "add-group", switch, CANARY_GROUP])
    yield


def hex_groups(lab: Lab, switch: str) -> str:
    found = re.findall(r"group_id=(\d+)", lab.execute("manager", [*OFCTL, "dump-groups", switch]))
    return " ".join(hex(int(one)) for one in found)


class Trial:
    """One lab: what was done, and whether it held."""

    def __init__(self, lab: Lab, other: Other, size: int) -> None:
        self.lab, self.other = lab, other
        self.data = os.urandom(size)
        self.sent = 0
        self.began = time.monotonic()
        self.steps: list[dict[str, Any]] = []

    def note(self, step: str, ok: bool, **facts: Any) -> None:
        self.steps.append({"step": step, "ok": ok, "at_s": round(time.monotonic() - self.began, 1), **facts})
        OUT.print(f"{step}: {'ok' if ok else 'NOT OK'} {facts or ''}")

    def transfer(self, step: str) -> None:
        """From h1 to all others, over one tree; each has the very bytes."""
        self.sent += 1
        receivers = ["h2", "h3", "h4"]
        with Agent(self.lab.agent_socket("h1")) as agent:
            agent.add(self.sent, self.data)
            result = agent.send(self.sent, receivers, wait=60.0).wait(BOUND_S)
        ok = result.ok
        for name in receivers if ok else ():
            with Agent(self.lab.agent_socket(name)) as reader, reader.read(self.sent, wait=10.0) as copy:
                ok = ok and copy.bytes() == self.data
        self.note(step, ok, **({} if ok else {"cause": result.cause}))

    def manager_ready(self) -> bool:
        try:
            health = self.lab.rest.get("/v1/health")
            agents = self.lab.rest.get("/v1/agents")["agents"]
        except LabError:
            return False
        return bool(health["ready"]) and sum(row["connected"] for row in agents) == len(self.lab.topology.servers)

    def both_work(self) -> None:
        until(self.manager_ready, "the manager with its switches and agents")
        try:
            until(lambda: reaches(self.lab, "h1", "h4") and reaches(self.lab, "h2", "h3"), "unicast by Faucet")
        except LabError as error:
            raise LabError(f"{error}; {self.other.text()}") from error

    def unharmed(self, step: str, before: dict[str, list[str]]) -> None:
        """Nothing of others' went; nothing of ours but multicast entries came."""
        now = of_others(self.lab)
        gone = {name: [one for one in before[name] if one not in now[name]] for name in before}
        gone = {name: lines for name, lines in gone.items() if lines}
        every = [one for name in self.lab.topology.switches for one in entries(self.lab, name)]
        strange = [one for one in every if is_ours(one) and cookie(one) & 0xFF != 1]
        roles = self.lab.execute("manager", ["ovs-vsctl", "--bare", "--columns=role", "list", "controller"]).split()
        ok = not gone and not strange and "master" not in roles and "slave" not in roles
        self.note(step, ok, **({} if ok else {"gone": gone, "not multicast": strange, "roles": roles}))


def run(size: int) -> dict[str, Any]:
    """The figures of one lab. Raises LabError where nothing can be told."""
    if not FAUCET.exists():
        raise LabError(f"Faucet is not installed in {FAUCET.parents[1]}: make setup does it")
    with tempfile.TemporaryDirectory(prefix="rostrum-coexist-") as name:
        folder = Path(name)
        file = folder / "beside.yaml"
        file.write_text(TOPOLOGY)
        with Lab.start(file, name="coexist", or_another=True) as lab:
            other = Other(lab, folder)
            try:
                return _trial(lab, other, size)
            finally:
                other.kill()


def _trial(lab: Lab, other: Other, size: int) -> dict[str, Any]:
    trial, facts = Trial(lab, other, size), dict[str, Any]()
    manager = str(lab.topology.manager.address)
    targets = [f"tcp:{manager}:{lab.topology.manager.openflow_port}", f"tcp:127.0.0.1:{FAUCET_PORT}"]
    for switch in lab.topology.switches:
        lab.execute("manager", ["ovs-vsctl", "set-controller", switch, *targets])
    for record in lab.execute("manager", ["ovs-vsctl", "--bare", "--columns=_uuid", "list", "controller"]).split():
        lab.execute("manager", ["ovs-vsctl", "set", "controller", record, "max_backoff=1000"])
    other.start()
    trial.both_work()
    with canaries(lab):
        before = of_others(lab)
        facts["others_entries"] = sum(map(len, before.values()))
        trial.transfer("a transfer beside Faucet")
        trial.unharmed("Faucet's and a third party's entries are there after it", before)
    _standing_path(trial, facts)
    for step, first in (("manager", "manager"), ("faucet", "faucet"), ("both", "manager"), ("both", "faucet")):
        _restart(trial, step, first)
    found = lab.rest.get("/v1/doctor")["findings"]
    facts["doctor"] = [one["what"] for one in found]
    trial.note("rostrum doctor finds no error", not [one for one in found if one["severity"] == "error"])
    ok = all(step["ok"] for step in trial.steps)
    return {"summary": {"ok": ok, "steps": len(trial.steps), **facts}, "steps": trial.steps}


def _standing_path(trial: Trial, facts: dict[str, Any]) -> None:
    """A path in use while Faucet starts again and clears all tables: its entries come again by themselves."""
    lab = trial.lab
    body = {"sender": "h1", "receivers": ["h2", "h3", "h4"], "kind": "packet"}
    status, path = lab.rest.call("POST", "/v1/paths", body)
    if status not in (200, 201):
        raise LabError(f"no path: {status}: {path}")
    place = f"/v1/paths/{path['id']}"
    until(lambda: bool(lab.rest.get(place)["state"] == "active"), "an active path")
    there = rules_of(lab)
    trial.other.kill()
    lost = _rules_lost(lab)
    trial.other.start()
    until(lambda: _rules_lost(lab) > lost, "Faucet's start, which clears all tables")
    facts["entries_back_s"] = round(until(lambda: rules_of(lab) >= there, "our entries after Faucet's start"), 2)
    trial.both_work()
    until(lambda: rules_of(lab) >= there, "our entries after Faucet cleared its last switch")  # one after the other
    trial.note("entries that Faucet cleared at its start are set again", True, entries=there)
    lab.rest.call("DELETE", place)


def _rules_lost(lab: Lab) -> float:
    text = lab.execute("manager", ["curl", "-s", "--unix-socket", str(lab.run / "manager.sock"), "http://m/metrics"])
    found = re.search(r"^rostrum_rules_lost_total(?:\{.*\})? ([0-9.e+]+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _restart(trial: Trial, who: str, first: str) -> None:
    lab, other = trial.lab, trial.other
    text = {"manager": "the manager was killed", "faucet": "Faucet was killed"}.get(who, f"both were, {first} is first")
    with canaries(lab):
        before = of_others(lab)
        if who in ("manager", "both"):
            lab.kill("manager")
        if who in ("faucet", "both"):
            other.kill()
        if who == "manager":
            trial.note("Faucet forwards while the manager is away", reaches(lab, "h1", "h4"))
        for one in (first, {"manager": "faucet", "faucet": "manager"}[first]):
            if one == "manager" and who in ("manager", "both"):
                lab.start_program("manager")
                until(trial.manager_ready, "the manager's return")
            if one == "faucet" and who in ("faucet", "both"):
                other.start()
        trial.both_work()
        if who == "manager":
            trial.unharmed("after the manager's restart all of others' is there", before)
        trial.transfer(f"a transfer after {text}")


@click.command()
@click.option("--size", default="4M", show_default=True, type=Size(), help="Of each object.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/coexist.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(size: int, json_file: Path) -> None:
    """Send beside Faucet, which drives the same switches, while both controllers are killed and started in any order.

    Checks that nothing of Faucet's or of a third party's on the switches goes by our doing, and that what Faucet
    clears at its start is set again.
    """
    try:
        report = {**run(size), "manifest": manifest(0, {"size": size})}
    except (LabError, RostrumError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    OUT.print(f"summary: {json.dumps(report['summary'])}")
    OUT.print(f"figures in {json_file}")
    if not report["summary"]["ok"]:
        sys.exit(1)
