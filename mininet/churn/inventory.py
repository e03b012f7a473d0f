"""What a lab holds: descriptors, memory, flows, cross-connects, groups, journal. Two inventories can be compared."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from rostrum.client import Agent
from rostrum.lab.lab import Lab

DESCRIPTORS_MORE = 4  # connections come and go
MEMORY_MORE_BYTES = 24 << 20  # and a quarter: arenas of the C library, Python's free lists
JOURNAL_MORE_BYTES = 512 << 10  # rows wait to be folded at 128 KiB a turn
JOURNAL_LOG_BYTES_MAX = 16 << 20
COUNTED = (
    "flows",
    "openflow_groups",
    "other_flows",
    "meters",
    "cross_connects",
    "paths",
    "transfers",
    "objects",
    "message_groups",
    "store_bytes",
)

_COUNT = """
for pid in {pids}; do
  echo program $pid $(ls /proc/$pid/fd | wc -l) $(sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status) \
       $(sed -n 's/RssShmem:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status)
done
for switch in {switches}; do
  for kind in flows groups meters; do ovs-ofctl -O OpenFlow13 dump-$kind $switch | sed "s/^/$kind $switch /"; done
done
"""


@dataclass
class Inventory:
    """Counts of one moment. `unexplained`: what devices hold and the manager does not know of, or for nobody."""

    descriptors: dict[str, int] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)  # resident, without the objects that are mapped
    flows: int = 0  # multicast flows of paths and groups in use; those kept for reuse are told apart
    openflow_groups: int = 0  # group-table entries of those flows; replication groups at P4 switches
    other_flows: int = 0  # unicast, ARP, LLDP: what every switch has all the time
    meters: int = 0
    cross_connects: int = 0  # of circuits in use; idle ones are kept for reuse
    paths: int = 0
    transfers: int = 0
    objects: int = 0
    store_bytes: int = 0
    message_groups: int = 0
    journal_bytes: int = 0
    journal_log_bytes: int = 0  # its write-ahead log, which is moved into it whenever it has some MiB
    unexplained: list[str] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Something is under way, or is just being taken away: message groups' rules go two seconds after their last
        program.
        """
        under_way = (self.paths, self.transfers, self.cross_connects, self.flows, self.openflow_groups)
        return any(under_way) or bool(self.unexplained)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def take(lab: Lab) -> Inventory:
    """Raises LabError or RostrumError if a part does not answer."""
    found = Inventory()
    _manager(lab, found)
    for server in lab.topology.servers:
        with Agent(lab.agent_socket(server)) as agent:
            status = agent.status()
        found.transfers += len(status.transfers)
        found.objects += len(status.objects)
        found.store_bytes += status.store_used
    _machine(lab, found)
    for name in ("journal_bytes", "journal_log_bytes"):
        file = lab.run / ("manager.journal" + ("-wal" if "log" in name else ""))
        setattr(found, name, file.stat().st_size if file.exists() else 0)
    return found


def _manager(lab: Lab, found: Inventory) -> None:
    rest = lab.rest
    states = ("queued", "configuring", "active")  # a list of all of them shows the newest hundred
    found.paths = sum(len(rest.get(f"/v1/paths?state={state}")["paths"]) for state in states)
    found.message_groups = len(rest.get("/v1/groups")["groups"])
    circuits = rest.get("/v1/circuits")
    told = set()
    for one in circuits["circuits"]:
        told |= {(row["input"], row["output"]) for row in one["cross_connects"]}
        if one["path"] is not None:
            found.cross_connects += len(one["cross_connects"])
    for name in lab.topology.ocs:
        there = {(row["input"], row["output"]) for row in lab.ocs_state(name)["cross_connects"]}
        found.unexplained += [f"cross-connect {a}-{b} of {name} is in no circuit" for a, b in sorted(there - told)]


def _machine(lab: Lab, found: Inventory) -> None:
    programs = lab.status()["programs"]
    names = {str(row["pid"]): name for name, row in programs.items() if row["pid"]}
    rules = lab.rest.get("/v1/rules")["rules"]
    known = {(row["switch"], row["group"]) for row in rules}
    used = {(row["switch"], row["group"]) for row in rules if row["use"] != "kept for reuse"}
    switches = [name for name, one in lab.topology.switches.items() if not one.p4]
    script = _COUNT.format(pids=" ".join(names), switches=" ".join(switches))
    shown = lab.execute("manager", ["sh", "-c", script])
    if len(switches) < len(lab.topology.switches):
        p4 = [sys.executable, "-m", "rostrum.lab.p4entries", str(lab.run / "topology.yaml")]
        shown += lab.execute("manager", p4)
    for line in shown.splitlines():
        if match := re.fullmatch(r"program (\d+) (\d+) (\d+) (\d+)", line):
            name = names[match[1]]
            found.descriptors[name] = int(match[2])
            found.memory_bytes[name] = (int(match[3]) - int(match[4])) << 10
    tables(shown, known, used, found)


def tables(shown: str, known: set[tuple[str, str]], used: set[tuple[str, str]], found: Inventory) -> None:
    """Counts the switches' tables, as ovs-ofctl shows them, each line behind its kind and switch. `known`: switch and
    multicast address of the manager's rules; `used`: of those in use.
    """
    there: set[tuple[str, str]] = set()  # switch and number of each group-table entry
    wanted: dict[tuple[str, str], bool] = {}  # of those that a flow uses: whether it is in use
    for line in shown.splitlines():
        kind, switch, *_ = [*line.split(None, 2), "", ""]
        if kind == "flows" and "actions=" in line:
            match = re.search(r"nw_dst=(239\.[0-9.]+)[ ,]", line)
            if match is None:
                found.other_flows += 1
                continue
            rule = (switch, match[1])
            found.flows += rule in used
            if rule not in known:
                found.unexplained.append(f"flow of {match[1]} on {switch}, of which the manager does not know")
            for number in re.findall(r"group:(\d+)", line):
                wanted[switch, number] = wanted.get((switch, number), False) or rule in used
        elif kind == "groups" and (match := re.search(r"group_id=(\d+)", line)):
            there.add((switch, match[1]))
        elif kind == "meters" and re.search(r"meter=\d+", line):
            found.meters += 1
    found.openflow_groups += sum(wanted.get(one, False) for one in there)
    found.unexplained += [
        f"entry {number} of {switch}'s group table, which no flow uses"
        for switch, number in sorted(there - set(wanted))
    ]


def leaks(before: Inventory, after: Inventory) -> list[str]:
    """What there is more of than at the start, as text; empty: nothing."""
    found = [*after.unexplained]
    for name in COUNTED:
        was, now = getattr(before, name), getattr(after, name)
        if now > was:
            found.append(f"{name}: {was} at the start, {now} at the end")
    if after.journal_bytes > before.journal_bytes + JOURNAL_MORE_BYTES:
        found.append(f"journal: {before.journal_bytes} bytes at the start, {after.journal_bytes} at the end")
    if after.journal_log_bytes > JOURNAL_LOG_BYTES_MAX:
        found.append(f"the journal's log has {after.journal_log_bytes} bytes, more than {JOURNAL_LOG_BYTES_MAX}")
    for name, now in after.descriptors.items():
        if now > (was := before.descriptors.get(name, now)) + DESCRIPTORS_MORE:
            found.append(f"descriptors of {name}: {was} at the start, {now} at the end")
    for name, now in after.memory_bytes.items():
        if now > (was := before.memory_bytes.get(name, now)) * 1.25 + MEMORY_MORE_BYTES:
            found.append(f"memory of {name}: {was >> 20} MiB at the start, {now >> 20} MiB at the end")
    return found
