"""`rostrum bench order`: agreed order among members that all send, beside corosync's CPG and JGroups' SEQUENCER."""

from __future__ import annotations

import json
import selectors
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rostrum.bench import history
from rostrum.bench.install import JGROUPS, NATIVE, install
from rostrum.bench.session import OUT
from rostrum.client import Agent, Group, RostrumError
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import save
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.places import build_folder

READY_S = 90.0
MARGIN_S = 60.0  # for what was sent last to come
LOOK_S = 0.1
LEASE_S = 3.0  # rostrum-manager --lease, as it is usual: views are to come within two
Record = dict[str, Any]
Rounds = dict[str, list[Record]]  # of each tool
COROSYNC = """\
totem {{
    version: 2
    cluster_name: order
    transport: knet
    ip_version: ipv4
    crypto_cipher: none
    crypto_hash: none
    interface {{
        linknumber: 0
    }}
}}
logging {{
    to_stderr: yes
    to_syslog: no
}}
system {{
    sched_rr: no
    move_to_root_cgroup: no
}}
quorum {{
    provider: corosync_votequorum
    expected_votes: {members}
}}
nodelist {{
{nodes}
}}
"""


class Failed(Exception):
    """A tool did not do it; the text says why."""


@dataclass(frozen=True)
class Plan:
    members: int
    bytes: int
    seconds: float
    rounds: int
    rate: float  # of each member, where delays are measured


Starter = Callable[[Lab, Plan, Path], list[Entered]]


def _started(lab: Lab, server: str, argv: list[str]) -> Entered:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return lab.popen(server, argv, bufsize=0, **pipes)


def _servers(lab: Lab, plan: Plan) -> list[str]:
    return list(lab.topology.servers)[: plan.members]


def _ours(lab: Lab, plan: Plan, order: str) -> list[Entered]:
    program, group = str(bench_programs() / "order"), f"{order}{time.monotonic_ns()}"
    words = [group, "plain", order, str(plan.members), str(plan.bytes)]
    return [_started(lab, one, [program, str(lab.agent_socket(one)), *words]) for one in _servers(lab, plan)]


def agreed(lab: Lab, plan: Plan, folder: Path) -> list[Entered]:
    """As the others deliver: a message is given out where its place in the order is known."""
    return _ours(lab, plan, "agreed")


def total(lab: Lab, plan: Plan, folder: Path) -> list[Entered]:
    """Order total, which neither of the others has: given out once all members have the message."""
    return _ours(lab, plan, "total")


def jgroups(lab: Lab, plan: Plan, folder: Path) -> list[Entered]:
    place = build_folder() / "bench-tools"
    start = ["java", "-XX:+UseSerialGC", "-Xmx256m", "-Djava.net.preferIPv4Stack=true"]
    start += ["-cp", f"{place / f'jgroups-{JGROUPS}.jar'}:{place}", "JGroupsOrder"]
    found: list[Entered] = []
    deadline = time.monotonic() + READY_S
    try:
        for one in _servers(lab, plan):
            words = [str(lab.topology.servers[one].address), str(plan.members), str(plan.bytes)]
            found.append(_started(lab, one, [*start, *words]))
            # Those that begin at once find nobody, and make groups of their own.
            while _read(found[-1], deadline) != f"view {len(found)}":
                pass
    except Failed:
        for program in found:
            program.kill()
            program.wait()
        raise
    return found


def corosync(lab: Lab, plan: Plan, folder: Path) -> list[Entered]:
    """A daemon on each server and a program beside it. /run, state and shared memory are its own: files there are named
    by process numbers, which namespaces have alike. No real-time priority: eight of them on few processors would keep
    the switches from forwarding tokens.
    """
    program = folder / "order_cpg"
    if not program.exists():
        _run("cc", "-O2", "-o", str(program), str(NATIVE / "order_cpg.c"), "-lcpg")
    servers, found = _servers(lab, plan), []
    node = "    node {{\n        ring0_addr: {}\n        nodeid: {}\n        name: {}\n    }}"
    rows = [node.format(lab.topology.servers[one].address, place, one) for place, one in enumerate(servers, 1)]
    (folder / "nsswitch.conf").write_text("hosts: files\n")  # it asks for names of addresses, and no DNS answers here
    for one in servers:
        file = folder / f"{one}.conf"
        file.write_text(COROSYNC.format(members=len(servers), nodes="\n".join(rows)))
        words = f"{program} order {plan.members} {plan.bytes}"
        script = (
            "mount -t tmpfs none /run && mkdir -p /run/corosync /var/lib/corosync && "
            "mount -t tmpfs none /var/lib/corosync && mount -t tmpfs none /dev/shm && "
            f"mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf && "
            f"{{ corosync -f -c {file} 2>{folder}/{one}.log & }} && exec {words}"
        )
        found.append(_started(lab, one, ["unshare", "-m", "--kill-child", "-p", "-f", "sh", "-c", script]))
    return found


TOOLS: dict[str, Starter] = {"rostrum": agreed, "total": total, "corosync": corosync, "jgroups": jgroups}
NEEDS = {"corosync": "corosync", "jgroups": "jgroups_order"}


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Failed(f"{argv[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def _read(program: Entered, deadline: float) -> str:
    assert program.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise Failed("its members did not answer in time")
    line: str = program.stdout.readline().decode().strip()
    if not line:
        assert program.stderr is not None
        raise Failed(f"a member ended: {program.stderr.read().decode()[-300:].strip()}")
    return line


def _phase(programs: Sequence[Entered], rate: float, seconds: float) -> Record:
    """All send at that rate (0: as fast as they may) so long; what each got. With a rate each sends at moments of its
    own, as members do that know nothing of each other.
    """
    for place, one in enumerate(programs):
        assert one.stdin is not None
        offset = place / len(programs) / rate if rate else 0.0
        one.stdin.write(f"{rate} {seconds} {offset}\n".encode())
        one.stdin.flush()
    deadline = time.monotonic() + seconds + MARGIN_S
    rows: list[Record] = [json.loads(_read(one, deadline)) for one in programs]
    took_s = [max(row["last_ns"] - row["first_ns"], 1) / 1e9 for row in rows]
    return {
        "messages": rows[0]["messages"],
        "rate_per_s": min(row["messages"] / took for row, took in zip(rows, took_s, strict=True)),
        "p50_ms": statistics.median(row["p50_us"] for row in rows) / 1e3,
        "p99_ms": max(row["p99_us"] for row in rows) / 1e3,
        "one_order": len({(row["messages"], row["hash"]) for row in rows}) == 1,
    }


@contextmanager
def _running(lab: Lab, start: Starter, plan: Plan, folder: Path) -> Iterator[list[Entered]]:
    programs = start(lab, plan, folder)
    try:
        deadline = time.monotonic() + READY_S
        for one in programs:
            while _read(one, deadline) != "ready":
                pass
        yield programs
    finally:
        for one in programs:
            one.kill()
        for one in programs:
            one.wait()


def measure(lab: Lab, names: Sequence[str], plan: Plan, folder: Path, skipped: dict[str, str]) -> Rounds:
    """Rounds of each by turns: delays at a rate that all take, then a flood. All stay up; who has no turn is silent.
    Who fails is skipped from there on.
    """
    found: Rounds = {}
    with ExitStack() as stack:
        running: dict[str, list[Entered]] = {}

        def trying(name: str, what: Callable[[], Any]) -> Any:
            try:
                return what()
            except Failed as error:
                skipped[name] = str(error)
                running.pop(name, None)
                return None

        def begin(name: str) -> None:
            running[name] = stack.enter_context(_running(lab, TOOLS[name], plan, folder))
            _phase(running[name], 0, min(1.0, plan.seconds))  # to be warm

        def turn(name: str) -> None:
            one = {
                "paced": _phase(running[name], plan.rate, plan.seconds),
                "flood": _phase(running[name], 0, plan.seconds),
            }
            found.setdefault(name, []).append(one)

        for name in names:
            trying(name, partial(begin, name))
        for _ in range(plan.rounds):
            for name in [name for name in names if name in running]:
                trying(name, partial(turn, name))
    return found


def view_times(lab: Lab, plan: Plan) -> list[float]:
    """Seconds from the kill of a member's agent to the view without it at the program of another, which hears nothing
    of the kill: of the one that coordinates, and of the last one. Raises Failed.
    """
    servers, found = _servers(lab, plan), []
    for killed, at in ((servers[0], servers[1]), (servers[-1], servers[1])):
        with ExitStack() as stack:
            agents = {one: stack.enter_context(_agent(lab, one)) for one in servers}
            name = f"views{time.monotonic_ns()}"
            groups = {one: stack.enter_context(agents[one].join(name, "plain", "total")) for one in servers}
            _await_view(groups[at], len(servers))
            lab.kill(killed)
            began = time.monotonic()
            _await_view(groups[at], len(servers) - 1)
            found.append(time.monotonic() - began)
        lab.start_program(killed)
    return found


def _agent(lab: Lab, server: str) -> Agent:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            agent = Agent(lab.agent_socket(server))
            if agent.status().manager_up:
                return agent
            agent.close()
        except RostrumError as error:
            if time.monotonic() > deadline:
                raise Failed(f"the agent of {server}: {error}") from error
        time.sleep(LOOK_S)


def _await_view(group: Group, members: int) -> None:
    """Of so many members."""
    try:
        while (message := group.next(READY_S)).view is None or len(message.view.members) != members:
            pass
    except RostrumError as error:
        raise Failed(f"no view of {members} members: {error}") from error


def flood_rules(lab: Lab) -> None:
    """The others' multicast goes everywhere: the network is a tree."""
    for name, switch in lab.topology.switches.items():
        ends = lab.topology.servers.keys() | lab.topology.switches.keys()
        ports = [str(port) for port, end in switch.neighbours.items() if end.node in ends]
        flow = f"priority=60000,ip,nw_dst=239.192.100.0/24,actions={','.join(f'output:{port}' for port in ports)}"
        lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", name, flow])


def summarize(found: dict[str, list[Record]]) -> Record:
    """Of each tool the medians of its rounds; ours over theirs."""

    def middle(rounds: list[Record], phase: str, key: str) -> float:
        return float(statistics.median(one[phase][key] for one in rounds))

    tools: Record = {
        name: {"rate_per_s": middle(rounds, "flood", "rate_per_s"),
               "p50_ms": middle(rounds, "paced", "p50_ms"),
               "p99_ms": middle(rounds, "paced", "p99_ms"),
               "p99_ms_of_rounds": sorted(one["paced"]["p99_ms"] for one in rounds),
               "flood_p99_ms": middle(rounds, "flood", "p99_ms"),
               "one_order": all(one[phase]["one_order"] for one in rounds for phase in ("flood", "paced"))}
        for name, rounds in found.items() if rounds
    }  # fmt: skip
    summary: Record = {"tools": tools}
    for name in ("corosync", "jgroups"):
        if "rostrum" in tools and name in tools:
            summary[f"vs_{name}"] = tools["rostrum"]["rate_per_s"] / tools[name]["rate_per_s"]
            summary[f"p99_vs_{name}"] = tools["rostrum"]["p99_ms"] / max(tools[name]["p99_ms"], 1e-3)
    return summary


@click.command()
@click.option("--quick", is_flag=True, help="Five rounds of 2 s, not seven of 10 s.")
@click.option("--tools", default=",".join(TOOLS), show_default=True, help="Only these, separated by commas.")
@click.option("--members", default=8, show_default=True, type=click.IntRange(2, 32), help="All of them send.")
@click.option("--bytes", "size", default=1024, show_default=True, help="Of a message.")
@click.option("--rate", default=50.0, show_default=True, help="Of each member, where delays are measured.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Figures here.")
def order(quick: bool, tools: str, members: int, size: int, rate: float, output: Path | None) -> None:
    """Messages in one order for all: how many a second, and how late, beside corosync and JGroups.

    Members in namespaces, a program and an agent (corosync: its daemon) on each; all send and all get everything.
    "rostrum" is order agreed, which is what corosync and SEQUENCER do; "total" holds messages back until all have them.
    The tools have rounds by turns, and figures are the medians of their rounds. The rate is that of a flood, in the
    slowest member's program; delays are from a sender's program to each, at worst, when each sends --rate messages a
    second, at moments of its own. Tools that are not there are installed.

    \b
      rostrum bench order --quick --json order.json
    """
    chosen = [name for name in tools.split(",") if name]
    if unknown := [name for name in chosen if name not in TOOLS]:
        raise click.BadParameter(f"there is no {', '.join(unknown)}: {', '.join(TOOLS)}", param_hint="--tools")
    plan = Plan(members, size, 2.0 if quick else 10.0, 5 if quick else 7, rate)
    needs = [NEEDS[name] for name in chosen if name in NEEDS]
    missing = install(needs, build_folder() / "bench-tools", OUT.print)
    skipped = {name: missing[need] for name in chosen if (need := NEEDS.get(name)) in missing}
    found: Rounds = {}
    views: list[float] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "racks.yaml"
            racks = 2 if members % 2 == 0 else 1
            file.write_text(hybrid(Hybrid(racks=racks, servers=members // racks, rate="10G", mtu=1500)))
            with Lab.start(file, name="order", or_another=True) as lab:
                flood_rules(lab)
                ready = [name for name in chosen if name not in skipped]
                found = measure(lab, ready, plan, Path(folder), skipped)
                if "rostrum" in chosen:
                    try:
                        views = view_times(lab, plan)
                    except Failed as error:
                        skipped["views"] = str(error)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    summary = summarize(found) | {"skipped": skipped}
    if views:
        summary |= {"view_after_kill_s": max(views), "view_leases": max(views) / LEASE_S}
        OUT.print(f"a view after a kill: {max(views):.2f} s, {max(views) / LEASE_S:.2f} leases")
    for name, one in summary["tools"].items():
        OUT.print(f"{name:9} {one['rate_per_s']:9,.0f} messages/s; p50 {one['p50_ms']:.2f} ms, p99 {one['p99_ms']:.2f}")
    for name, why in skipped.items():
        OUT.print(f"SKIP {name}: {why}")
    if output:
        facts = manifest(0, {"quick": quick, "members": members, "bytes": size, "rate": rate})
        save({"summary": summary, "runs": found, "manifest": facts}, output)
        for line in history.told({"summary": summary, "manifest": facts}):
            OUT.print(f"[red]{line}[/red]")
