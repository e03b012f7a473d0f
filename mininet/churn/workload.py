"""What programs do with a lab during churn: objects, streams, messages, REST paths. Each outcome is judged here."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import random
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rostrum.client import Agent, NotFound, RostrumError, TimedOut
from rostrum.lab.churn.disruptions import Disruption
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

END_BOUND_S = 150.0  # of any transfer: 20 s of waiting for a path, and every phase has its bound
PATH_WAIT_S = 20.0
REST_LEASE_MS = 20_000  # of a path whose answer a killed manager took with it, nobody knows; it ends soon
SIZES_LOG2 = (8.0, 22.0)
PROTOCOLS = ("auto", "republic", "rdcm")
MESSAGE_PACE_S = 0.05
LINGER_S = 2.0  # an agent forgets a group that no program here uses after this long
JOIN_MARGIN_S = 4.0  # views of a join or leave are with everybody
GROUPS = ("churn-plain", "churn-ricochet")
_MESSAGE = struct.Struct("<QQ")


@dataclass(frozen=True)
class Failure:
    """Something a program was told or found. `server`: who failed; `among`: all that took part."""

    what: str
    server: str
    among: tuple[str, ...]
    begin_s: float
    end_s: float
    cause: str
    never_excused: bool = False  # wrong bytes, silence about losses: nothing that breaks explains them


@dataclass
class Workload:
    """Programs on a lab, until told to stop. `now` gives the seconds of the run."""

    lab: Lab
    seed: int
    now: Callable[[], float]
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lives: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _threads: list[threading.Thread] = field(default_factory=list)
    messages: dict[str, Messages] = field(default_factory=dict)

    def start(self) -> None:
        servers = sorted(self.lab.topology.servers)
        rng = random.Random(self.seed)
        jobs: list[tuple[str, Callable[[random.Random], None]]] = [
            ("objects-1", self._object),
            ("objects-2", self._object),
            ("streams", self._stream),
            ("paths", self._rest_path),
        ]
        for group in GROUPS:
            members = rng.sample(servers, 4)
            record = self.messages[group] = Messages(group)
            for server in members[:2]:
                jobs.append((f"{group} from {server}", functools.partial(self._publish, server, record)))
            for server in members[2:]:
                jobs.append((f"{group} to {server}", functools.partial(self._subscribe, server, record)))
        for name, job in jobs:
            own = random.Random(f"{self.seed} {name}")
            thread = threading.Thread(target=self._repeat, args=(name, job, own), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Lets what is under way come to its end. Raises LabError if something hangs."""
        self.stop.set()
        deadline = time.monotonic() + END_BOUND_S + 2 * PATH_WAIT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hanging = [thread.name for thread in self._threads if thread.is_alive()]
        if hanging:
            raise LabError(f"these programs hang: {', '.join(hanging)}")

    def _repeat(self, name: str, job: Callable[[random.Random], None], rng: random.Random) -> None:
        while not self.stop.is_set():
            try:
                job(rng)
            except Exception as error:  # a fault of ours or of the client's: told, and the others go on
                now = self.now()
                self._fail(Failure(name, "", (), now, now, f"{type(error).__name__}: {error}", never_excused=True))
            self.stop.wait(rng.uniform(0.0, 0.3))

    def _fail(self, failure: Failure) -> None:
        with self._lock:
            self.failures.append(failure)

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def _some(self, rng: random.Random) -> tuple[str, list[str]]:
        sender, *others = rng.sample(sorted(self.lab.topology.servers), rng.randint(2, 5))
        return sender, others

    def _forget(self, servers: list[str], number: int) -> None:
        for name in servers:
            with contextlib.suppress(RostrumError, OSError), Agent(self.lab.agent_socket(name)) as agent:
                agent.delete(number)

    # -- objects -------------------------------------------------------------------------------------------------

    def _object(self, rng: random.Random) -> None:
        sender, receivers = self._some(rng)
        data = rng.randbytes(int(2 ** rng.uniform(*SIZES_LOG2)))
        protocol = rng.choice(PROTOCOLS) if len(receivers) > 1 else "auto"  # rdcm is for two or more
        number, begin = next(self._ids), self.now()
        what, among = f"object {number} by {protocol}", (sender, *receivers)
        self._count("objects")
        try:
            with Agent(self.lab.agent_socket(sender)) as agent:
                handle = agent.send(number, receivers, wait=PATH_WAIT_S, protocol=protocol, source=data)
                result = handle.wait(END_BOUND_S)
            for row in result.receivers:
                if row.state != "done":
                    self._fail(Failure(what, row.name, among, begin, self.now(), row.cause or result.cause))
            self._count("objects_complete", result.ok)
            self._count("receivers_done", sum(row.state == "done" for row in result.receivers))
            done = [row.name for row in result.receivers if row.state == "done"]
            if done:
                self._read_back(rng.choice(done), number, data, what, begin)
        except (RostrumError, OSError) as error:
            self._fail(Failure(what, sender, among, begin, self.now(), str(error), isinstance(error, TimedOut)))
        finally:
            self._forget(list(among), number)

    def _read_back(self, server: str, number: int, data: bytes, what: str, begin: float) -> None:
        try:
            with Agent(self.lab.agent_socket(server)) as agent, agent.read(number, wait=5.0) as copy:
                same = copy.bytes() == data
        except (RostrumError, OSError) as error:
            self._fail(Failure(f"reading {what}", server, (server,), begin, self.now(), str(error)))
            return
        if not same:
            self._fail(Failure(what, server, (server,), begin, self.now(), "other bytes than were sent", True))

    # -- streams -------------------------------------------------------------------------------------------------

    def _stream(self, rng: random.Random) -> None:
        sender, receivers = self._some(rng)
        receivers = receivers[:2]
        number, begin = next(self._ids), self.now()
        what, among = f"stream {number}", (sender, *receivers)
        self._count("streams")
        came: dict[str, tuple[str, str]] = {}  # server: (digest of what came, why it ended early)
        readers = [
            threading.Thread(target=self._read_stream, args=(name, number, rng.uniform(0.0, 2.0), came), daemon=True)
            for name in receivers
        ]
        for reader in readers:
            reader.start()
        digest = hashlib.sha256()
        failed = ""
        try:
            with (
                Agent(self.lab.agent_socket(sender)) as agent,
                agent.stream_send(number, receivers, wait=PATH_WAIT_S) as stream,
            ):
                for _ in range(rng.randint(1, 8)):
                    piece = rng.randbytes(rng.randint(1, 1 << 16))
                    digest.update(piece)
                    stream.write(piece)
                    time.sleep(rng.choice((0.0, 0.1, 0.5)))
                result = stream.finish(END_BOUND_S)
            rows = {row.name: row for row in result.receivers}
            self._count("streams_complete", result.ok)
        except (RostrumError, OSError) as error:
            failed, rows = str(error), {}
        for reader in readers:
            reader.join(END_BOUND_S)
        if failed:
            self._fail(Failure(what, sender, among, begin, self.now(), failed))
            return
        for name in receivers:
            got, why = came.get(name, ("", "the reader hangs"))
            if rows[name].state != "done":
                self._fail(Failure(what, name, among, begin, self.now(), rows[name].cause or result.cause))
            elif why:
                self._fail(Failure(f"reading {what}", name, among, begin, self.now(), why))
            elif got != digest.hexdigest():
                self._fail(Failure(what, name, among, begin, self.now(), "other bytes than were sent", True))

    def _read_stream(self, server: str, number: int, late_s: float, came: dict[str, tuple[str, str]]) -> None:
        time.sleep(late_s)
        digest = hashlib.sha256()
        try:
            with (
                Agent(self.lab.agent_socket(server)) as agent,
                agent.stream_receive(number, wait=PATH_WAIT_S + 10.0) as stream,
            ):
                for piece in stream:
                    digest.update(piece)
            came[server] = (digest.hexdigest(), "")
        except (RostrumError, OSError) as error:
            came[server] = ("", str(error) or type(error).__name__)

    # -- REST paths ----------------------------------------------------------------------------------------------

    def _rest_path(self, rng: random.Random) -> None:
        sender, receivers = self._some(rng)
        self._count("rest_paths")
        with contextlib.suppress(LabError):  # a manager that is away answers nobody; paths it knows of end by lease
            body = {"sender": sender, "receivers": receivers, "lease_ms": REST_LEASE_MS}
            status, made = self.lab.rest.call("POST", "/v1/paths", body)
            if status == 201:
                self.lab.rest.get(f"/v1/paths/{made['id']}?wait=active&timeout_ms=3000")
                time.sleep(rng.uniform(0.0, 1.0))
                self._release(f"/v1/paths/{made['id']}")
        self.stop.wait(rng.uniform(0.5, 3.0))

    def _release(self, path: str) -> None:
        """As a careful program does: until the manager is there to hear it."""
        for _ in range(30):
            with contextlib.suppress(LabError):
                self.lab.rest.call("DELETE", path)
                return
            time.sleep(0.5)

    # -- messages ------------------------------------------------------------------------------------------------

    def _publish(self, server: str, record: Messages, rng: random.Random) -> None:
        """One program's life: it publishes numbered messages, ends, and another comes some time later."""
        life, count, begin = next(self._lives), 0, self.now()
        try:
            with (
                Agent(self.lab.agent_socket(server)) as agent,
                agent.publisher(record.group, record.protocol, "fifo") as out,
            ):
                begin = self.now()
                for _ in range(rng.randint(1, 100)):
                    out.publish(_MESSAGE.pack(life, count))
                    count += 1
                    if self.stop.wait(MESSAGE_PACE_S):
                        break
        except (RostrumError, OSError) as error:
            self._fail(Failure(f"publishing to {record.group}", server, (server,), begin, self.now(), str(error)))
        if count:
            record.published.append(Published(server, life, count, begin, self.now()))
        self._count("messages_published", count)
        self.stop.wait(rng.choice((0.0, LINGER_S / 2, LINGER_S * 2)))

    def _subscribe(self, server: str, record: Messages, rng: random.Random) -> None:
        begin, took = self.now(), Subscribed(server, self.now())
        until = time.monotonic() + rng.uniform(5.0, 40.0)
        try:
            with (
                Agent(self.lab.agent_socket(server)) as agent,
                agent.join(record.group, record.protocol, "fifo") as group,
            ):
                took.begin_s = self.now()
                record.subscribed.append(took)
                while time.monotonic() < until and not self.stop.is_set():
                    with contextlib.suppress(TimedOut):
                        message = group.next(0.5)
                        if message.lost is not None:
                            took.losses.append((self.now(), message.sender))
                        elif len(message.data) == _MESSAGE.size:
                            took.messages.append((self.now(), *_MESSAGE.unpack(message.data)))
        except (RostrumError, OSError) as error:
            self._fail(Failure(f"subscribing to {record.group}", server, (server,), begin, self.now(), str(error)))
        took.end_s = self.now()
        self._count("messages_delivered", len(took.messages))
        self._count("losses_told", len(took.losses))


@dataclass(frozen=True)
class Published:
    """One life of a publisher: messages 0 ... count - 1 of `life`."""

    server: str
    life: int
    count: int
    begin_s: float
    end_s: float


@dataclass
class Subscribed:
    """One life of a subscriber."""

    server: str
    begin_s: float
    end_s: float = float("inf")
    messages: list[tuple[float, int, int]] = field(default_factory=list)  # when, life, number
    losses: list[tuple[float, str]] = field(default_factory=list)  # when, sender


@dataclass
class Messages:
    """What was published to a group, and what came."""

    group: str
    published: list[Published] = field(default_factory=list)
    subscribed: list[Subscribed] = field(default_factory=list)

    @property
    def protocol(self) -> str:
        return self.group.removeprefix("churn-")

    def silent_losses(self) -> list[Failure]:
        """Messages that a subscriber missed in the middle of its life without a message of it, and disorder."""
        found = []
        for took in self.subscribed:
            for life in self.published:
                if life.begin_s < took.begin_s + JOIN_MARGIN_S or life.end_s > took.end_s - JOIN_MARGIN_S:
                    continue
                numbers = [number for _, one, number in took.messages if one == life.life]
                told = any(
                    sender in (life.server, "") and life.begin_s <= when <= life.end_s + SETTLE_S
                    for when, sender in took.losses
                )
                where = (took.server, (life.server, took.server), life.begin_s, life.end_s)
                if numbers != sorted(set(numbers)):
                    found.append(Failure(f"{self.group}, life {life.life}", *where, "messages out of order", True))
                elif len(numbers) < life.count and not told:
                    text = f"{life.count - len(numbers)} of {life.count} messages did not come, and nobody said so"
                    found.append(Failure(f"{self.group}, life {life.life}", *where, text))
        return found


SETTLE_S = 6.0  # word of losses comes at most this long after the last message


def sweep(lab: Lab) -> None:
    """Deletes every object that a killed agent's program could not delete."""
    for server in lab.topology.servers:
        with Agent(lab.agent_socket(server)) as agent:
            rows = agent.status().objects
        for row in rows:
            with Agent(lab.agent_socket(server), row.app) as agent, contextlib.suppress(NotFound):
                agent.delete(row.data_id)


def _whose(one: Failure) -> Sequence[str]:
    """Whose failures these are: a sender that lost each of its receivers speaks of them, everybody else of itself."""
    all_of_them = re.search(r"\b(\d+) of \1 receivers failed", one.cause)
    return one.among[1:] if all_of_them and one.among[:1] == (one.server,) and one.among[1:] else (one.server,)


def judge(failures: list[Failure], disruptions: list[Disruption], racks: dict[str, str]) -> list[dict[str, Any]]:
    """Each failure with `excused_by`: the disruption that explains it, or None. `racks`: server -> its ToR."""
    rows = []
    for one in failures:
        found = []
        for server in _whose(one):
            mine = {server, *one.among[:1]}
            tors = {racks[name] for name in mine if name in racks}
            found.append(next((d for d in disruptions if d.excuses(mine, tors, one.begin_s, one.end_s)), None))
        reason = found[0] if all(found) else None
        excused = None if one.never_excused or not one.cause else reason
        rows.append({**asdict(one), "excused_by": asdict(excused) if excused else None})
    return rows
