"""Attacks on a secured lab: by whoever hears all, by certified agents that lie, by a thief of a certificate."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import click
import httpx
from cryptography.exceptions import InvalidTag
from rich.console import Console
from rich.table import Table
from rostrum.client import Agent, RostrumError, TimedOut
from rostrum.lab.experiments.sites import MEMORY, Area, Sites
from rostrum.lab.intruder import opened
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError, PrivateNamespace
from rostrum.lab.results import rounded, save
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Size

OUT = Console(highlight=False, soft_wrap=True)
SENDER, RECEIVERS, OUTSIDER = "h1", ["h3", "h5"], "h2"
INSIDER, BELOW = "h7", "h8"  # at one switch: reports of the latter go by the former
GROUP, REGIONAL = "scene", "scene-of-regions"
GROUP_KEY, REGION_KEY = 2, 3  # KeyFor.GROUP, .REGION of controller/rostrum.thrift
REGION = 1 << 31  # in what a datagram of a region shows
MESSAGES = 20  # published in each scene that is about groups
TURNS = 5  # transfers of others in each scene
HONEST = 400  # datagrams beside transfers that nobody attacks
BOUND_S = 60.0
FAR_AHEAD = 1 << 30  # of a sender's counter: what it sends itself counts as replayed then
OLD_KEY_S = 9.0  # an old epoch is taken for 2 + 5 s at most (docs/security.md)
SIGNED = ("--security", "signed", "--direct-receivers", "3")  # four receivers report by a tree
QUICK = {"emulation.reconfiguration.mean_ms": 20, "ocs.ocs.reconfiguration_ms": 20}
Line = dict[str, Any]


class Hosts(Protocol):
    """What starts a program on a server."""

    def popen(self, server: str, argv: Sequence[str], **options: Any) -> Entered: ...


class Intruder:
    """`rostrum.lab.intruder` on a server; its lines."""

    def __init__(self, lab: Hosts, server: str, what: str, plan: Line) -> None:
        argv = [sys.executable, "-m", "rostrum.lab.intruder", what, json.dumps(plan)]
        self.program: Entered = lab.popen(server, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[Line] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.program.stdout
        for line in self.program.stdout:
            self.lines.append(json.loads(line))

    def tell(self, *lines: str) -> None:
        assert self.program.stdin
        self.program.stdin.write("".join(line + "\n" for line in lines))
        self.program.stdin.flush()

    def end(self, *lines: str) -> list[Line]:
        """Says these lines and no more, and waits for its end. Raises LabError."""
        self.tell(*lines)
        assert self.program.stdin
        self.program.stdin.close()
        if self.program.wait(BOUND_S) != 0:
            raise LabError("an intruder did not end well")
        self._reader.join(BOUND_S)
        return self.lines


def until(seen: Callable[[], Any], what: str, bound_s: float = BOUND_S) -> Any:
    ends = time.monotonic() + bound_s
    while not (found := seen()):
        if time.monotonic() > ends:
            raise LabError(f"waited {bound_s:.0f} s for {what}")
        time.sleep(0.05)
    return found


class Stage:
    """A secured lab, what others do there meanwhile, and what was tried."""

    def __init__(self, lab: Lab, size: int, seed: int) -> None:
        self.lab, self.seed = lab, seed
        self.data = random.Random(seed).randbytes(size)
        self.numbers = itertools.count(1_000_000)  # nobody else's objects here
        self.took: dict[bool, list[float]] = {True: [], False: []}
        self.scenes: list[Line] = []
        self.certificates = lab.run / "certificates"

    def address(self, server: str) -> str:
        return str(self.lab.topology.servers[server].address)

    def plan(self, server: str, **more: Any) -> Line:
        folder = self.certificates
        return {"server": server, "me": self.address(server), "nic": f"{server}-eth0", "seed": self.seed,
                "manager": str(self.lab.topology.manager.address), "certificate": str(folder / f"{server}.pem"),
                "key": str(folder / f"{server}.key"), "authority": str(folder / "ca.pem"), "group": GROUP,
                "regional": REGIONAL, **more}  # fmt: skip

    def refused(self) -> float:
        """Datagrams that the receivers' agents have refused so far, for their seal or their signature."""
        return self._counted("rostrum_agent_packets_refused_total", "rostrum_agent_group_datagrams_refused")

    def mended(self) -> float:
        """Pieces whose digest was wrong, fetched again by TLS."""
        return self._counted("rostrum_agent_digest_chunks_fetched_again_total")

    def _counted(self, *names: str) -> float:
        total = 0.0
        for server in (*RECEIVERS, BELOW):
            transport = httpx.HTTPTransport(uds=str(self.lab.run / server / "metrics.sock"))
            with httpx.Client(transport=transport, base_url="http://agent") as http:
                for line in http.get("/metrics").text.splitlines():
                    if line.startswith(names):
                        total += float(line.split()[-1])
        return total

    def transfer(self, receivers: list[str] = RECEIVERS, protocol: str = "auto") -> tuple[float, int]:
        """Seconds, and how many receivers have it wrong."""
        number, began = next(self.numbers), time.monotonic()
        with Agent(self.lab.agent_socket(SENDER)) as agent:
            agent.add(number, self.data)
            agent.send(number, receivers, protocol=protocol).wait(BOUND_S)
            took = time.monotonic() - began
            agent.delete(number)
        wrong = 0
        for server in [one for one in receivers if one != INSIDER]:
            with Agent(self.lab.agent_socket(server)) as agent:
                with agent.read(number, wait=BOUND_S) as copy:
                    wrong += copy.mmap()[:] != self.data
                agent.delete(number)
        return took, wrong

    def others(self, attacked: bool) -> int:
        """Transfers that the scene is not about; how many receivers have one wrong. Where nobody attacks, a program
        like the attacker's sends as many datagrams from the same server meanwhile, to one that drops them: what an
        attack costs is compared with what honest work beside it costs, not with a lab that does nothing else.
        """
        if attacked:
            return self._others(True)
        to, rng = self.address(OUTSIDER), random.Random(self.seed)
        work = [json.dumps({"to": to, "port": 9, "bytes": rng.randbytes(1400).hex()}) for _ in range(HONEST)]
        worker = Intruder(self.lab, SENDER, "throw", self.plan(SENDER))
        working = threading.Thread(target=worker.end, args=work, daemon=True)
        working.start()
        wrong = self._others(False)
        working.join()
        return wrong

    def _others(self, attacked: bool) -> int:
        wrong = 0
        for _ in range(TURNS):
            took, bad = self.transfer()
            self.took[attacked].append(took)
            wrong += bad
        return wrong

    def note(self, name: str, tried: int, accepted: int, text: str, **more: Any) -> None:
        self.scenes.append({"scene": name, "tried": tried, "accepted": accepted, "text": text, **more})

    @contextmanager
    def heard(self, server: str) -> Iterator[list[Line]]:
        """The datagrams that come to a server meanwhile."""
        ear, datagrams = Intruder(self.lab, server, "eavesdrop", self.plan(server)), list[Line]()
        until(lambda: ear.lines, "the listener")
        yield datagrams
        datagrams += ear.end()[1:]


class Members:
    """A publisher and a subscriber, and what came that was not published."""

    def __init__(self, stage: Stage, group: str = GROUP, protocol: str = "plain") -> None:
        self._one, self._three, self._five = (Agent(stage.lab.agent_socket(one)) for one in (SENDER, *RECEIVERS))
        self.receiver = self._three.join(group, protocol=protocol)
        self._other = self._five.join(group, protocol=protocol)
        self.publisher = self._one.publisher(group)
        self.count = self.wrong = self.came = 0
        self._seen = set[bytes]()

    def publish(self) -> None:
        self.publisher.publish_all([b"number %d" % (self.count + n) for n in range(MESSAGES)])
        self.count += MESSAGES

    def listen(self, quiet_s: float = 1.0) -> None:
        """Takes what comes until nothing does for a while: each once, and only what was published."""
        while True:
            try:
                got = self.receiver.next(quiet_s)
            except TimedOut:
                return
            if got.lost is None:
                self.came += 1
                number = got.data.removeprefix(b"number ")
                right = number.isdigit() and int(number) < self.count and got.data not in self._seen
                self.wrong += not right
                self._seen.add(got.data)

    def close(self) -> None:
        for one in (self.publisher, self.receiver, self._other, self._one, self._three, self._five):
            one.close()


# ---------------------------------------------------------------------------------------------------------- scenes


def on_the_way(stage: Stage, members: Members) -> None:
    """Whoever hears all that comes to a receiver sends it again, changed, and cut."""
    with stage.heard(RECEIVERS[0]) as heard:
        stage.transfer()
        members.publish()
        members.listen()
    rng = random.Random(stage.seed)
    kept = rng.sample(heard, min(len(heard), 400))
    changed, cut = [], []
    for one in kept:
        raw = bytearray.fromhex(one["bytes"])
        cut.append({**one, "bytes": bytes(raw[: rng.randrange(len(raw))]).hex()})
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        changed.append({**one, "bytes": bytes(raw).hex()})
    texts = {"replay": "all that came to a receiver, once more", "forged": "one bit is another", "cut": "its beginning"}
    for name, lies in (("replay", kept), ("forged", changed), ("cut", cut)):
        before, wrong = stage.refused(), members.wrong
        thrower = Intruder(stage.lab, SENDER, "throw", stage.plan(SENDER))
        feeding = threading.Thread(target=thrower.end, args=[json.dumps(one) for one in lies])
        feeding.start()
        bad = stage.others(attacked=True)
        feeding.join()
        members.listen()
        refused = stage.refused() - before
        stage.note(name, len(lies), bad + members.wrong - wrong, f"{texts[name]}: dropped", refused=refused)


def insider(stage: Stage, members: Members) -> None:
    """A certified agent that is a receiver of the transfer and a member of the group, and lies about both; then it is
    out, and tries the old key."""
    lab = stage.lab
    lab.kill(INSIDER)
    peers = {server: stage.address(server) for server in (SENDER, *RECEIVERS, BELOW)}
    one = Intruder(lab, INSIDER, "inside", stage.plan(INSIDER, peers=peers))
    try:
        key = until(lambda: next((x for x in one.lines if x.get("purpose") == GROUP_KEY), None), "the insider's key")
        _lies_about_objects(stage, one)
        _lies_in_reports(stage, one)
        _lies_in_a_region(stage, one)
        _lies_about_messages(stage, members, one, key)
    finally:
        one.end("end")
        lab.start_program(INSIDER)
    until(lambda: _is_up(lab, INSIDER), "the insider's server to be whole again")


def _is_up(lab: Lab, server: str) -> bool:
    return any(row["server"] == server and row["connected"] for row in lab.rest.get("/v1/agents")["agents"])


def _lies_about_objects(stage: Stage, one: Intruder) -> None:
    before, known = stage.refused(), len(one.lines)
    liar, told = Intruder(stage.lab, SENDER, "forge", stage.plan(SENDER)), threading.Event()

    def pass_on() -> None:
        while not told.wait(0.002):
            for line in [x for x in one.lines[pass_on_from[0] :] if x.get("kind") == "transfer"]:
                liar.tell(json.dumps({**line, "counter": FAR_AHEAD}))
            pass_on_from[0] = len(one.lines)

    pass_on_from = [known]
    passing = threading.Thread(target=pass_on)
    passing.start()
    try:
        outcomes = [stage.transfer([*RECEIVERS, INSIDER]) for _ in range(TURNS)]
    finally:
        told.set()
        passing.join()
        sent = liar.end()
    wrong = sum(bad for _, bad in outcomes)
    slowed = statistics.median(took for took, _ in outcomes) / statistics.median(stage.took[False])
    stage.note("insider, object", sent[-1]["sent"] if sent else 0, wrong,
               "other bytes as the sender's, counters far ahead of its own: what was refused came by TLS",
               refused=stage.refused() - before, own_slowdown=slowed)  # fmt: skip


def _lies_in_reports(stage: Stage, one: Intruder) -> None:
    """What a receiver says of itself, of more than there is, and of others, and what it gives to those it repairs or
    speaks for: it costs time, and no right byte."""
    three, four = [*RECEIVERS, INSIDER], [*RECEIVERS, INSIDER, BELOW]
    for kind, protocol, receivers, text in (
        ("reports", "republic", three, "far beyond the object, at a bit a second, all once more, another's end"),
        ("acknowledgements", "rdcm", three, "of all, of more than there is, of nothing, by each flag, to all"),
        ("parent", "rdcm", three, "other bytes as repairs, to successors and all others: wrong pieces came by TLS"),
        (
            "aggregator",
            "republic",
            four,
            "who speaks for another: nobody misses anything, all do; other bytes as repairs",
        ),
    ):
        before, mended = _lies_told(one, kind), stage.mended()
        one.tell(f"lie {kind}")

        def told(kind: str = kind, before: int = before) -> int:
            return _lies_told(one, kind) - before

        outcomes = [stage.transfer(receivers, protocol) for _ in range(2)]
        bad = stage.others(attacked=True)
        tried = until(told, f"lies in {kind}")
        slowed = statistics.median(took for took, _ in outcomes) / statistics.median(stage.took[False])
        stage.note(f"insider, {kind}", tried, bad + sum(wrong for _, wrong in outcomes), text, own_slowdown=slowed,
                   mended=stage.mended() - mended)  # fmt: skip


def _lies_told(one: Intruder, kind: str) -> int:
    return sum(line.get(kind, 0) for line in one.lines if line.get("kind") == "lies")


def _lies_in_a_region(stage: Stage, one: Intruder) -> None:
    """By QSM: a member of the group is in its region, and has its key. It makes packets in the publisher's name, and
    tokens, acknowledgements, requests and positions in everybody's.
    """
    members = Members(stage, REGIONAL, "qsm")
    try:
        one.tell(f"join {REGIONAL}")
        found = until(lambda: _packet_heard(stage, members, one, INSIDER), "a packet of the insider's region")
        before, wrong, known = stage.refused(), members.wrong, len(one.lines)
        one.tell("region " + json.dumps(found))
        for _ in range(TURNS):
            members.publish()
            members.listen(0.1)
        bad = stage.others(attacked=True)
        told = until(lambda: next((x for x in one.lines[known:] if x.get("kind") == "lies in region"), None), "lies")
        members.listen()
        came, count = members.came, members.count
        members.publish()
        members.listen()
        stage.note("insider, region", told["multicast"] + told["unicast"], bad + members.wrong - wrong,
                   "QSM: packets, tokens, acknowledgements, requests, positions that are not true, in all names",
                   refused=stage.refused() - before, published=count, came=came,
                   came_afterwards=members.came - came)  # fmt: skip
    finally:
        members.close()


def _region_keys(one: Intruder) -> list[Line]:
    return [x for x in one.lines if x.get("purpose") == REGION_KEY]


def _lies_about_messages(stage: Stage, members: Members, one: Intruder, key: Line) -> None:
    sample = until(lambda: _message_heard(stage, members, key), "a message to be heard")
    group = {**key, "kind": "group", "to": sample["to"], "port": sample["port"]}
    for name, text in (("insider, messages", "a member publishes in another's name: the signature is wrong"),
                       ("old key", "who left seals with the key it had")):  # fmt: skip
        if name == "old key":
            one.tell(f"leave {GROUP}")
            time.sleep(OLD_KEY_S)  # what is told of here
        before, wrong = stage.refused(), members.wrong
        liar = Intruder(stage.lab, SENDER, "forge", stage.plan(SENDER))
        lie = {**group, "sample": sample["bytes"], "counter": 1000 if name == "old key" else 0}
        lying = threading.Thread(target=liar.end, args=[json.dumps(lie)])
        lying.start()
        members.publish()
        bad = stage.others(attacked=True)
        lying.join()
        members.listen()
        refused = stage.refused() - before
        if refused == 0:
            raise LabError(f"{name}: no lie has come to a receiver")
        stage.note(name, liar.lines[-1]["sent"], bad + members.wrong - wrong, text, refused=refused)


def _message_heard(stage: Stage, members: Members, key: Line) -> Line | None:
    found = _heard_with(stage, members, RECEIVERS[0], lambda: [key])
    return found[1] if found else None


def _packet_heard(stage: Stage, members: Members, one: Intruder, server: str) -> Line | None:
    """A datagram of a region that comes to the insider, and what its key needs to be used."""
    found = _heard_with(stage, members, server, lambda: _region_keys(one), REGION)
    if found is None:
        return None
    key, sample = found
    return {**key, "to": sample["to"], "port": sample["port"], "sample": sample["bytes"], "counter": 0}


def _heard_with(
    stage: Stage, members: Members, server: str, keys: Callable[[], list[Line]], mark: int = 0
) -> tuple[Line, Line] | None:
    """A datagram of a group, or region, with messages in it, that comes there, and the key that opens it."""
    heard: list[Line]
    with stage.heard(server) as heard:
        members.publish()
        members.listen()
    for one in reversed(heard):
        datagram = bytes.fromhex(one["bytes"])
        for key in keys():
            if datagram[:5] == (key["id"] | mark).to_bytes(4, "little") + b"\xe1":
                with suppress(InvalidTag):  # of another epoch
                    if b"number " in opened({**key, **one}, datagram):
                        return key, one
    return None


class Across:
    """An object to two sites, by certified agents: over and over to the second, whoever relays in the first."""

    def __init__(self, sites: Sites, data: bytes, numbers: Iterator[int]) -> None:
        self.sites, self.data, self.numbers = sites, data, numbers

    def popen(self, server: str, argv: Sequence[str], **options: Any) -> Entered:
        return self.sites.namespace.popen(["ip", "netns", "exec", server, *argv], **options)

    def transfer(self, receivers: list[str]) -> tuple[float, int]:
        """Seconds, and how many receivers have it wrong, or do not have it though the sender says so."""
        agents, number, began = self.sites.agents, next(self.numbers), time.monotonic()
        agents["h0"].add(number, self.data)
        result = agents["h0"].send(number, receivers).wait(BOUND_S)
        took, wrong = time.monotonic() - began, 0
        for one in result.receivers:
            if one.state == "done":
                with agents[one.name].read(number, wait=0) as copy:
                    wrong += copy.bytes() != self.data
                agents[one.name].delete(number)
        agents["h0"].delete(number)
        if any(one.state != "done" for one in result.receivers):
            raise LabError(f"an object did not come through: {result.cause}")
        return took, wrong

    def beside(self, attacked: bool) -> tuple[list[float], int, float]:
        """Transfers of others while one to the first site is relayed; how many have something wrong, and its time."""
        outcome: list[tuple[float, int]] = []
        one = threading.Thread(target=lambda: outcome.append(self.transfer(["s1h2", "s1h3"])), daemon=True)
        one.start()
        others = [self.transfer(self.sites.area.names(2)) for _ in range(TURNS)]
        one.join(BOUND_S)
        if not outcome:
            raise LabError("an object to the first site did not end")
        return [took for took, _ in others], sum(bad for _, bad in (*others, *outcome)), outcome[0][0]


def relay(stage: Stage) -> None:
    """In a network of sites a certified relay takes an object, passes on bytes and a digest of its own, and says that
    all whom it is for have it.
    """
    area = Area((4.0, 4.0), 3, 1e9, 0.0, secure=True)
    where = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="rostrum-relay-", dir=where) as name,
        PrivateNamespace(switches=False) as namespace,
    ):
        sites = Sites(namespace, Path(name), area, stage.seed)
        across = Across(sites, stage.data, stage.numbers)
        try:
            sites.start()
            across.transfer(["s1h2", "s1h3", *area.names(2)])
            quiet, bad, honest = across.beside(False)
            sites.kill("s1h1")
            own = f"{sites.certificates}/s1h1"
            liar = Intruder(across, "s1h1", "relay", {
                "server": "s1h1", "me": "10.0.1.1", "manager": "10.0.0.1", "certificate": f"{own}.pem",
                "key": f"{own}.key", "authority": f"{sites.certificates}/ca.pem", "seed": stage.seed,
                "addresses": {"s1h2": "10.0.1.2", "s1h3": "10.0.1.3"},
            })  # fmt: skip
            until(lambda: liar.lines, "the relay that lies")
            attacked, wrong, took = across.beside(True)
            tried = sum(x.get("kind") == "passed on" for x in liar.end("end"))
        finally:
            sites.stop()
    if not tried:
        raise LabError("the relay that lies was not asked to pass anything on")
    stage.note("relay", tried, bad + wrong, "other bytes, with their digest, and that all have it: not the origin's; "
               "another relay took its place", own_slowdown=took / honest,
               others_slowdown=statistics.median(attacked) / statistics.median(quiet))  # fmt: skip


def thief(stage: Stage) -> None:
    """An agent's certificate at every door that it is not for, older TLS, none at all."""
    dpid = next(one.dpid for one in stage.lab.topology.switches.values() if one.dpid)
    plan = stage.plan(OUTSIDER, agent=stage.address(RECEIVERS[0]), victim=SENDER, dpid=dpid)
    attempts = Intruder(stage.lab, OUTSIDER, "doors", plan)
    bad = stage.others(attacked=True)
    lines = attempts.end()
    own, rest = lines[0], lines[1:]
    if not own["got_in"]:
        raise LabError("the door that the certificate is for is closed, too: the others show nothing")
    for name, among in (("thief", [x for x in rest if "TLS" not in x["door"]]),
                        ("downgrade", [x for x in rest if "TLS" in x["door"]])):  # fmt: skip
        open_ones = [x["door"] for x in among if x["got_in"]]
        text = "open: " + ", ".join(open_ones) if open_ones else ", ".join(x["door"] for x in among) + ": closed"
        stage.note(name, len(among), len(open_ones) + (bad if name == "thief" else 0), text)


def half_open(stage: Stage, count: int) -> None:
    """Connections that say nothing, at an agent and at the manager."""
    places = [[stage.address(RECEIVERS[0]), 7071], [str(stage.lab.topology.manager.address), 9090]]
    crowd = Intruder(stage.lab, OUTSIDER, "half-open", stage.plan(OUTSIDER, count=count, places=places))
    bad = stage.others(attacked=True)
    line = until(lambda: crowd.lines, "connections")[0]
    crowd.end("end")
    stage.note("half-open", count, bad, "connections that say nothing hold nobody up", opened=line["opened"])


def run(lab: Lab, size: int, seed: int, connections: int) -> list[Line]:
    """All scenes, and how long transfers of others took. Raises LabError, RostrumError."""
    stage = Stage(lab, size, seed)
    stage.transfer()  # the first one waits for circuits
    members = Members(stage)
    try:
        members.publish()
        members.listen()
        scenes: list[Callable[[], None]] = [
            lambda: on_the_way(stage, members),
            lambda: insider(stage, members),
            lambda: relay(stage),
            lambda: thief(stage),
            lambda: half_open(stage, connections),
        ]
        for scene in scenes:
            stage.others(attacked=False)
            scene()
        stage.others(attacked=False)
    finally:
        members.close()
    quiet, attacked = (statistics.median(stage.took[which]) for which in (False, True))
    stage.scenes.append({"scene": "others", "quiet_s": quiet, "attacked_s": attacked, "messages": members.came,
                         "published": members.count})  # fmt: skip
    return stage.scenes


def summarize(scenes: list[Line]) -> Line:
    others = scenes[-1]
    slowed = [
        others["attacked_s"] / others["quiet_s"],
        *(x["others_slowdown"] for x in scenes if "others_slowdown" in x),
    ]
    return {
        "scenes": len(scenes) - 1,
        "tried": sum(one["tried"] for one in scenes[:-1]),
        "accepted": sum(one["accepted"] for one in scenes[:-1]),
        "others_slowdown": max(slowed),
    }


@click.command()
@click.option("--size", default="16M", show_default=True, type=Size(), help="Of each object.")
@click.option("--connections", default=10_000, show_default=True, type=click.IntRange(1, 20_000),
              help="That are opened and say nothing.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of data and lies.")
@click.option("--name", default="adversary", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/adversary.json",
              show_default=True, help="Where the outcome goes.")  # fmt: skip
def command(size: int, connections: int, seed: int, name: str, json_file: Path) -> None:
    """Attack a lab with `security: required` whose agents sign, while others send objects.

    \b
    replay, forged, cut     all that came to a receiver comes again, changed, or in part
    insider                 a certified receiver of the transfer, or member of the group, lies with the keys it has:
                            in data, messages, reports, acknowledgements, repairs, for others, in a region of QSM
    relay                   a certified relay of another site passes on other bytes, and says that all have them
    old key                 who has left the group goes on with the key it had
    thief, downgrade        an agent's certificate at every other door; older TLS, and none
    half-open               connections that say nothing

    summary.accepted counts what got in: wrong bytes or messages that a program saw, doors that opened;
    summary.others_slowdown is the time of others' transfers meanwhile over that beside honest work: as many
    datagrams, by the same program, from the same server; of the relay's scene beside an honest relay's work, if that is
    more. The exit status is 0 if nothing got in.
    """
    try:
        with Lab.start("hybrid-4x2", name=name, or_another=True, seed=seed, secure=True, changes=QUICK,
                       agent_options=SIGNED, progress=lambda _: None) as lab:  # fmt: skip
            scenes = run(lab, size, seed, connections)
    except (LabError, RostrumError) as error:
        raise click.ClickException(str(error)) from error
    summary = summarize(scenes)
    about = manifest(seed, {"size": size, "connections": connections})
    save(rounded({"experiment": "adversary", "summary": summary, "scenes": scenes, "manifest": about}), json_file)
    shown = Table("scene", "tried", "accepted", "what happened")
    for one in scenes[:-1]:
        shown.add_row(one["scene"], str(one["tried"]), str(one["accepted"]), one["text"])
    OUT.print(whole(shown))
    OUT.print(f"summary: {json.dumps(rounded(summary))}")
    OUT.print(f"figures in {json_file}")
    if summary["accepted"]:
        raise SystemExit(1)
