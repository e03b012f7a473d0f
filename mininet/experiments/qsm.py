"""Fig. 1 of QSM in the lab: what many overlapping groups cost, with real agents, beside JGroups on the same network.

All servers are in all groups; one publishes messages to them in turn, as fast as it may, and each of the others counts
what comes. The rate is that of the slowest receiver. JGroups has a channel and a multicast address for each group; the
switches forward these by rules that this experiment sets. All run on the cores of this machine: rates say how many
groups cost, not how fast a network is.
"""

from __future__ import annotations

import json
import math
import selectors
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.processor import used, used_s
from rostrum.lab.results import save
from rostrum.topologies.generate import Hybrid, hybrid

JGROUPS = "5.3.18.Final"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
BUILD_S = 300.0
READY_S = 150.0  # for all members of all groups to be there: 256 channels of JGroups take a minute
IDLE_S = 3.0
CALM_S, CALM_MOST_S, CALM_SHARE = 0.5, 60.0, 0.2  # of a processor, of the manager and all agents together
SETTLE_S = 4.0  # without anything more that comes: the rest does not come
ASKED = {256: 0.97, 10_000: 0.9}  # of ours, of one group's rate
THEIRS = 0.4  # what the paper found of JGroups with 256 groups (-60 %)
CHANNELS_MOST = 512  # of JGroups on one machine, each with threads and sockets of its own: beyond it, fewer members
FEW = 4  # members of JGroups then
PEERS_S = 3.0  # of traffic at least: each run of JGroups is a new virtual machine, which takes a second to warm up
Record = dict[str, Any]


class Skipped(Exception):
    """This cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Case:
    """`members`: the sender among them."""

    groups: int
    members: int
    bytes: int
    seconds: float


Program = Callable[[Case, str, bool], list[str]]


def measure(
    lab: Lab, case: Case, program: Program, calls: bool = False, around: Callable[[], object] = lambda: None
) -> Record:
    """One run. `calls`: the sender calls until all receivers say that they heard it in every group: what is published
    before its agent knows a member does not reach that one. Without it, they join one after the other: JGroups' members
    that begin at once find nobody, and make groups of their own that never merge. What `around`
    finds before and after the traffic is told. Raises Skipped: its members were not ready in time."""
    looks: list[Any] = []
    began = time.monotonic()
    servers = list(lab.topology.servers)[: case.members]
    argvs = [(server, program(case, server, server == servers[0])) for server in servers]
    with _running(lab, argvs, None if calls else "joined") as programs:
        _until(programs, "ready", READY_S)
        for one in programs[::-1]:
            _line(one)
        ready_s = time.monotonic() - began
        if calls:
            _until(programs[1:], "heard", READY_S)
            ready_s = time.monotonic() - began
            _line(programs[0])
            _until(programs[:1], "called", READY_S)
            calm(lab)
            looks.append(around())
            _line(programs[0])
        sent = _counted(programs[0], case.seconds + 20)
        received = _settled(programs[1:], sent["messages"])
        looks.append(around())
    slowest = min(received, key=lambda one: one["messages"])
    took_s = max(max(one["last_ns"] for one in received) - sent["first_ns"], 1) / 1e9
    return {
        "groups": case.groups,
        "rate": slowest["messages"] / took_s,
        "sent": sent["messages"],
        "received_least": slowest["messages"],
        "told_lost": sum(one["lost"] for one in received),
        "complete": all(one["messages"] == sent["messages"] for one in received),
        "seconds": took_s,
        "ready_s": ready_s,
        **({"looks": looks} if any(one is not None for one in looks) else {}),
    }


def _settled(receivers: Sequence[Entered], sent: int) -> list[Record]:
    """What they have when they have all, or when no more comes."""
    deadline, before = time.monotonic() + SETTLE_S, -1
    while True:
        for one in receivers:
            _line(one)
        received = [_counted(one, 20.0) for one in receivers]
        total = sum(one["messages"] for one in received)
        if total != before:
            before, deadline = total, time.monotonic() + SETTLE_S
        if all(one["messages"] >= sent for one in received) or time.monotonic() > deadline:
            return received
        time.sleep(0.2)


@contextmanager
def _running(lab: Lab, programs: Sequence[tuple[str, list[str]]], word: str | None) -> Iterator[list[Entered]]:
    """Each begins when the one before has said the word."""
    started: list[Entered] = []
    try:
        for server, argv in programs:
            # Without buffers: what Python had read ahead would not be seen as ready to be read.
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            started.append(lab.popen(server, argv, bufsize=0, **pipes))
            if word:
                _until(started[-1:], word, READY_S)
        yield started
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()


def _line(program: Entered) -> None:
    assert program.stdin is not None
    program.stdin.write(b"\n")
    program.stdin.flush()


def _until(programs: Sequence[Entered], word: str, bound_s: float) -> None:
    deadline = time.monotonic() + bound_s
    for program in programs:
        while _read(program, deadline) != word:
            pass


def _read(program: Entered, deadline: float) -> str:
    """The next line. Raises Skipped."""
    assert program.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise Skipped("its members were not ready in time on this machine")
    line: str = program.stdout.readline().decode().strip()
    if not line:
        assert program.stderr is not None
        raise Skipped(f"a member ended: {program.stderr.read().decode()[-300:].strip()}")
    return line


def _counted(program: Entered, bound_s: float) -> Record:
    counted: Record = json.loads(_read(program, time.monotonic() + bound_s))
    return counted


def ours(lab: Lab, name: str, protocol: str = "qsm") -> Program:
    def argv(case: Case, server: str, sends: bool) -> list[str]:
        where = [str(lab.agent_socket(server)), f"{name}{case.groups}", protocol, str(case.groups)]
        more = [str(case.bytes), str(case.seconds)] if sends else []
        return [str(bench_programs() / "many_groups"), "send" if sends else "receive", *where, *more]

    return argv


def calm(lab: Lab) -> None:
    """What groups' views left to do is done: ten thousand that were entered or left get their regions a moment later,
    of which all hear."""
    pids = {name: one["pid"] for name, one in lab.status()["programs"].items()}
    deadline, before = time.monotonic() + CALM_MOST_S, sum(used_s(lab, pids).values())
    while time.monotonic() < deadline:
        time.sleep(CALM_S)
        before, last = sum(used_s(lab, pids).values()), before
        if before - last < CALM_SHARE * CALM_S:
            return


class Idle:
    """What agents need whose groups are silent: called before the traffic, and after it."""

    def __init__(self, lab: Lab, members: int) -> None:
        self.lab, self.called = lab, 0
        programs = lab.status()["programs"]
        self.pids = {name: programs[name]["pid"] for name in list(lab.topology.servers)[:members]}

    def __call__(self) -> Record | None:
        self.called += 1
        if self.called > 1:
            return None
        before = used(self.lab, self.pids)
        time.sleep(IDLE_S)
        after = used(self.lab, self.pids)
        spent = [(after[name].seconds - before[name].seconds) / IDLE_S for name in self.pids]
        held = statistics.mean(one.resident_bytes for one in after.values())
        return {"cpu_share": statistics.mean(spent), "resident_bytes": held}


def jgroups(lab: Lab, place: Path) -> Program:
    start = ["java", "-XX:+UseSerialGC", "-Xss256k", "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    start += ["-Djava.net.preferIPv4Stack=true", "-cp", f"{place / f'jgroups-{JGROUPS}.jar'}:{place}", "JGroupsMany"]

    def argv(case: Case, server: str, sends: bool) -> list[str]:
        where = [str(lab.topology.servers[server].address), str(case.groups), str(case.members)]
        more = [str(case.bytes), str(case.seconds)] if sends else []
        return [*start, "send" if sends else "receive", *where, *more]

    return argv


def flood_rules(lab: Lab) -> None:
    """JGroups' addresses go everywhere: the network is a tree."""
    for name, switch in lab.topology.switches.items():
        ends = lab.topology.servers.keys() | lab.topology.switches.keys()
        ports = [str(port) for port, end in switch.neighbours.items() if end.node in ends]
        for block in (100, 101):
            match = f"priority=60000,ip,nw_dst=239.192.{block}.0/24"
            flow = f"{match},actions={','.join(f'output:{port}' for port in ports)}"
            lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", name, flow])


def java_place() -> Path:
    """Where JGroups and the program for it are, had from Maven's registry and compiled if they are not. Raises
    Skipped."""
    build = bench_programs().parents[1]
    source, place = build.parents[1] / "bench" / "native" / "JGroupsMany.java", build.parent / "jgroups"
    lacking = [program for program in ("java", "javac", "mvn") if not shutil.which(program)]
    if lacking:
        raise Skipped(f"there is no {', '.join(lacking)}: apt-get install default-jdk-headless maven")
    place.mkdir(parents=True, exist_ok=True)
    jar = place / f"jgroups-{JGROUPS}.jar"
    if not jar.exists():
        _run("mvn", "-q", "-B", COPY, f"-Dartifact=org.jgroups:jgroups:{JGROUPS}", f"-DoutputDirectory={place}")
    _run("javac", "-cp", str(jar), "-d", str(place), str(source))
    return place


def _run(*argv: str) -> None:
    """Raises Skipped."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise Skipped(f"{argv[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def peer(lab: Lab) -> Program:
    place = java_place()
    flood_rules(lab)
    return jgroups(lab, place)


def run_tool(tool: str, lab: Lab, cases: Sequence[Case], rounds: int, prepare: Callable[[], Program]) -> Record:
    """Rates by groups; what was skipped, and why. Of ours: before there is any traffic, what silent groups cost; and
    one run of each that does not count, in which memory is touched for the first time."""
    theirs, first = tool.startswith("jgroups"), min(case.groups for case in cases)
    runs: list[Record] = []
    silent: list[Record] = []
    skipped: dict[str, str] = {}
    try:
        program = prepare()
    except Skipped as error:
        return {"runs": runs, "silent": silent, "rate_by_groups": {}, "skipped": {"all": str(error)}}

    def run(case: Case, around: Callable[[], object] = lambda: None) -> list[Record]:
        if str(case.groups) in skipped:
            return []
        if not theirs:
            calm(lab)
        try:
            return [measure(lab, case, program, not theirs, around)]
        except Skipped as error:
            skipped[str(case.groups)] = str(error)
            click.echo(f"SKIP {tool}, {case.groups} groups: {error}")
            return []

    for case in () if theirs else cases:
        silent += run(replace(case, seconds=0.0), Idle(lab, case.members))
    for case in () if theirs else cases:
        run(case)
    for turn in range(rounds):
        for case in in_turn(cases, turn, first):
            for one in run(case):
                runs.append({"round": turn, **one})
                click.echo(f"{tool}, {case.groups} groups: {one['rate']:.0f} messages/s")
    rates = {
        str(case.groups): statistics.median(found)
        for case in cases
        if (found := [one["rate"] for one in runs if one["groups"] == case.groups])
    }
    return {"runs": runs, "silent": silent, "rate_by_groups": rates, "skipped": skipped}


def in_turn(cases: Sequence[Case], turn: int, first: int) -> list[Case]:
    """One group is first as often as last, in turns that a slow change of the machine meets alike; the others take
    turns in being next to it."""
    ones, others = [c for c in cases if c.groups == first], [c for c in cases if c.groups != first]
    others = others[turn // 2 % len(others) :] + others[: turn // 2 % len(others)] if others else []
    return [*ones, *others] if turn % 4 in (0, 3) else [*others[::-1], *ones]


def idle_costs(silent: Sequence[Record]) -> Record:
    """By groups, before any traffic: until all were ready, what silent ones cost, and what each takes more than one."""
    first = {str(one["groups"]): one for one in silent}
    found: Record = {}
    for groups, one in first.items():
        idle = one["looks"][0]
        found[groups] = {"ready_s": one["ready_s"], "idle_cpu_share": idle["cpu_share"]}
        if groups != "1" and "1" in first:
            more = idle["resident_bytes"] - first["1"]["looks"][0]["resident_bytes"]
            found[groups]["agent_bytes_a_group"] = more / (int(groups) - 1)
    return found


def of_one_by_turns(runs: Sequence[Record]) -> dict[str, list[float]]:
    """By groups: in each round the rate with so many over that with one group. What the machine does besides changes
    from one round to the next, less within one."""
    rounds: dict[int, dict[int, float]] = {}
    for run in runs:
        rounds.setdefault(run["round"], {})[run["groups"]] = run["rate"]
    found: dict[str, list[float]] = {}
    for rates in rounds.values():
        for groups, rate in rates.items():
            if groups != 1 and rates.get(1):
                found.setdefault(str(groups), []).append(rate / rates[1])
    return found


def interval(ratios: Sequence[float]) -> list[float]:
    """Where the median of as many rounds again would be, of 20 times 19 (order statistics; all there are, if few)."""
    ordered, n, left, below = sorted(ratios), len(ratios), 0, 0.0
    while 2 * (left + 1) < n and (below := below + math.comb(n, left) / 2**n) <= 0.025:
        left += 1
    return [ordered[max(left - 1, 0)], ordered[-max(left, 1)]]


def verdicts(tools: dict[str, Record]) -> list[Record]:
    """Rates with many groups over that with one in the same round, the median of rounds: each with what is asked of
    ours, or claimed of JGroups."""
    found: list[Record] = []
    for tool, measured in tools.items():
        for groups, ratios in of_one_by_turns(measured["runs"]).items():
            of_one = statistics.median(ratios)
            row: Record = {"tool": tool, "groups": int(groups), "of_one_group": of_one, "by_rounds": ratios}
            row["interval"] = interval(ratios)
            if tool == "rostrum":
                asked = next((least for most, least in ASKED.items() if int(groups) <= most), min(ASKED.values()))
                row |= {"asked": asked, "verdict": "holds" if of_one >= asked else "does not hold"}
            elif groups == "256":
                row |= {"claimed": THEIRS, "verdict": "found" if of_one <= (1 + THEIRS) / 2 else "not found"}
            found.append(row)
    return found


def peer_cases(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """By name: those that JGroups runs with all members; and with few, the others and one group to compare with."""
    cases = [replace(case, seconds=max(case.seconds, PEERS_S)) for case in cases]
    whole = [case for case in cases if case.groups * case.members <= CHANNELS_MOST]
    few = [replace(case, members=FEW) for case in cases if case.groups * case.members > CHANNELS_MOST]
    few = [case for case in few if case.groups * FEW <= 4 * CHANNELS_MOST]
    named = {
        "jgroups": whole,
        f"jgroups, {FEW} members": [replace(cases[0], groups=1, members=FEW), *few] if few else [],
    }
    return {name: some for name, some in named.items() if some}


def network(servers: int) -> str:
    racks = 2 if servers % 2 == 0 else 1
    return hybrid(Hybrid(racks=racks, servers=servers // racks, rate="10G", mtu=1500))


@click.command()
@click.option("--groups", default="1,2,4,8,16,32,64,128,256,10000", show_default=True)
@click.option("--servers", default=16, show_default=True, help="Each is in all groups.")
@click.option("--bytes", "size", default=1000, show_default=True, help="Of a message.")
@click.option("--seconds", default=3.0, show_default=True, help="Of traffic, for each number of groups.")
@click.option("--rounds", default=10, show_default=True, help="By turns; medians of so many, of JGroups three at most.")
@click.option("--loss", default=1.0, show_default=True, help="Per cent that each agent loses, in a run of its own.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="JGroups, too.")
@click.option("--quick", is_flag=True, help="1, 16 and 256 groups, 1 s; JGroups one round.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Figures here.")
def command(quick: bool, output: Path | None, groups: str, peers: bool, loss: float, **given: Any) -> None:
    """Rates with many overlapping groups, of QSM and of JGroups (QSM, figure 1).

    Every server is in all groups, and one sends. JGroups has a channel for each group: it runs with fewer members where
    there would be more than 512 of them, and is compared with one group of as many.

    \b
      rostrum lab run qsm --quick --json qsm.json
    """
    if quick:
        groups = "1,16,256"
        given["seconds"] = 1.0
    counts = [int(one) for one in groups.split(",")]
    cases = [Case(count, given["servers"], given["size"], given["seconds"]) for count in counts]
    try:
        tools, lossy = _measure_all(cases, given["rounds"], 1 if quick else min(3, given["rounds"]), loss, peers)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    rates = {tool: found["rate_by_groups"] for tool, found in tools.items()}
    summary = {"rate_by_groups": rates, "verdicts": verdicts(tools), **lossy}
    summary["idle"] = idle_costs(tools["rostrum"]["silent"])
    summary["skipped"] = {tool: found["skipped"] for tool, found in tools.items() if found["skipped"]}
    for row in summary["verdicts"]:
        click.echo(f"{row['tool']}: {row['groups']} groups have {row['of_one_group']:.2f} of one group's rate"
                   f" (rounds {', '.join(f'{one:.2f}' for one in row['by_rounds'])}; 19 of 20 medians in"
                   f" {row['interval'][0]:.2f} to {row['interval'][1]:.2f})"
                   f"{': ' + row['verdict'] if 'verdict' in row else ''}")  # fmt: skip
    for count, one in summary["idle"].items():
        each = one.get("agent_bytes_a_group")
        click.echo(f"{count} groups were ready after {one['ready_s']:.1f} s; while silent an agent needs "
                   f"{100 * one['idle_cpu_share']:.2f} % of a processor"
                   f"{'' if each is None else f', {each:.0f} bytes a group'}")  # fmt: skip
    if output:
        facts = manifest(0, {**given, "groups": groups, "loss": loss, "quick": quick})
        save({"summary": summary, "tools": tools, "manifest": facts}, output)


def _measure_all(
    cases: Sequence[Case], rounds: int, peer_rounds: int, loss: float, peers: bool
) -> tuple[dict[str, Record], Record]:
    tools: dict[str, Record] = {}
    lossy: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "racks.yaml"
        file.write_text(network(cases[0].members))
        with ExitStack() as stack:
            lab = stack.enter_context(Lab.start(file, name="qsm", or_another=True))
            tools["rostrum"] = run_tool("rostrum", lab, cases, rounds, lambda: ours(lab, "r"))
            for name, some in peer_cases(cases).items() if peers else ():
                tools[name] = run_tool(name, lab, some, min(rounds, peer_rounds), lambda: peer(lab))
        if loss > 0:
            with ExitStack() as stack:
                options = ["--loss", f"uniform:{loss / 100:g}", "--seed", "1"]
                lab = stack.enter_context(Lab.start(file, name="qsm", or_another=True, agent_options=options))
                found = run_tool("rostrum with losses", lab, cases[:1], rounds, lambda: ours(lab, "l"))
                without = tools["rostrum"]["rate_by_groups"].get(str(cases[0].groups))
                rate = found["rate_by_groups"].get(str(cases[0].groups))
                lossy = {"loss_percent": loss, "lossy": found["runs"]}
                if rate and without:
                    lossy["with_losses_of_without"] = rate / without
                    click.echo(f"{loss:g} % lost: {rate / without:.2f} of the rate without losses")
    return tools, lossy
