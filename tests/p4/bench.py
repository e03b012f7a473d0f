"""Runs vectors on a target, one after another, and says what happened.

Nothing is waited for by the clock: after a vector's frames, markers are sent behind them, from every port that was used
to every port; when all markers are out, so is everything before them. A marker digest does the same for digests.
"""

from __future__ import annotations

import copy
import itertools
import queue
import time
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from finsy import P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

from tests.p4 import frames
from tests.p4 import vector as v
from tests.p4.target import PORTS, Target

BOUND_S = 60.0  # for all markers of a vector to come through: the reference target is slow
ARRAYS = ("port_received", "port_sent_multicast", "port_sent_unicast", "refused", "control_excess", "dropped")
DELIVERED = "delivered"
DELIVERED_READ = 8  # its first indexes are compared; the array is too large to be read for every vector

MARKER_SOURCE, MARKER_GROUP = "203.0.113.100", "239.255.255.1"
MARKER_PORT, MARKER_REPLICATION, MARKER_SLOT = 6, 4000, 4095


Marks = Counter[tuple[str, int, int]]  # (counter, index, frame's bytes): what markers added


@dataclass
class Outcome:
    """As the fields of a vector say it. Counters are what a vector added."""

    out: dict[int, list[bytes]] = field(default_factory=dict)
    counters: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    direct: list[int] = field(default_factory=list)
    digests: list[v.Light] = field(default_factory=list)


class Bench:
    """A target with the entries that markers need, and none of any vector's."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._serial = itertools.count(1)
        self._epoch = 1
        self._standing: list[v.Entry] = [v.forward(f"{marker_address(port)}/32", port) for port in PORTS]
        self._standing += v.path(MARKER_PORT, MARKER_GROUP, MARKER_REPLICATION, (1,))
        self._standing.append(self._watch())
        target.control.write(insert(entry) for entry in self._standing)

    def _watch(self) -> P4TableEntry:
        return v.watch(MARKER_PORT, MARKER_GROUP, slot=MARKER_SLOT, epoch=self._epoch)

    def run(self, vector: v.Vector) -> Outcome:
        """Installs, sends, waits, reads, removes."""
        control, outcome = self.target.control, Outcome()
        self.drain()
        try:
            control.write(insert(entry) for entry in vector.entries)
            before = self._counters()
            used: set[int] = set()
            marked: Marks = Counter()
            for step in vector.steps:
                if isinstance(step, v.Send):
                    self.target.ports.send(step.port, step.frame)
                    used.add(step.port)
                else:
                    marked += self._flush(outcome, used)  # what was sent before sees the entries as they were
                    control.write(step.updates)
            marked += self._flush(outcome, used)
            marked += self._flush_digests(outcome)
            outcome.counters = difference(self._counters(), before, marked)
            outcome.direct = [control.direct(entry)[0] for entry, _ in vector.direct]
        finally:
            self.clear()
        return outcome

    def clear(self) -> None:
        """Removes whatever is not standing."""
        control = self.target.control
        keep = {identity(entry) for entry in self._standing}
        tables = [entry for entry in control.read(P4TableEntry()) if not entry.is_default_action]
        control.write(-entry for entry in tables if identity(entry) not in keep)
        groups = list(control.read(P4MulticastGroupEntry()))
        control.write(-entry for entry in groups if identity(entry) not in keep)
        control.write([~v.queues(1), *(~v.share(port) for port in PORTS)])

    def drain(self) -> None:
        """Forgets what a failed vector left on the way."""
        while self.target.ports.receive(0):
            pass
        while not self.target.control.digests.empty():
            self.target.control.digests.get()

    def _flush(self, outcome: Outcome, ports: set[int]) -> Marks:
        """Returns when everything sent by `ports` is out, with it in `outcome`."""
        marked: Marks = Counter()
        if ports:
            marked += self._mark(outcome, [(port, out) for port in sorted(ports) for out in PORTS if out != port])
            # To a used port itself, by another one: now what came by the used ones is at least queued.
            marked += self._mark(outcome, [(next(p for p in PORTS if p != port), port) for port in sorted(ports)])
        return marked

    def _mark(self, outcome: Outcome, ways: list[tuple[int, int]]) -> Marks:
        pending: dict[tuple[int, bytes], None] = {}
        marked: Marks = Counter()
        for port, out in ways:
            frame = frames.unicast(MARKER_SOURCE, marker_address(out), b"marker %d" % next(self._serial))
            self.target.ports.send(port, frame)
            pending[out, frame] = None
            marked[("port_received", port, len(frame))] += 1
            marked[("port_sent_unicast", out, len(frame))] += 1
        self._collect(outcome, pending)
        return marked

    def _collect(self, outcome: Outcome, pending: dict[tuple[int, bytes], None]) -> None:
        """Receives until all pending markers are there."""
        deadline = time.monotonic() + BOUND_S
        while pending:
            left = deadline - time.monotonic()
            ways = [port for port, _ in pending]
            assert left > 0, f"{self.target.kind}: markers to ports {ways} did not come through in {BOUND_S:g} s"
            for port, frame in self.target.ports.receive(left):
                if (port, frame) in pending:
                    del pending[port, frame]
                else:
                    outcome.out.setdefault(port, []).append(frame)

    def _flush_digests(self, outcome: Outcome) -> Marks:
        """Raises a digest behind all others and takes those before it."""
        self._epoch += 1
        self.target.control.write([~self._watch()])
        frame = frames.data(MARKER_SOURCE, MARKER_GROUP)
        self.target.ports.send(MARKER_PORT, frame)
        self._collect(outcome, {(1, frame): None})
        while True:
            try:
                digest = as_light(self.target.control.digests.get(timeout=BOUND_S))
            except queue.Empty:
                raise AssertionError(f"{self.target.kind}: no digest within {BOUND_S:g} s") from None
            if digest.group == MARKER_GROUP:
                if digest.epoch == self._epoch:
                    break
            else:
                outcome.digests.append(digest)
        return Counter({("port_received", MARKER_PORT, len(frame)): 1, ("port_sent_multicast", 1, len(frame)): 1})

    def _counters(self) -> dict[tuple[str, int], tuple[int, int]]:
        control = self.target.control
        found = {(name, i): counts for name in ARRAYS for i, counts in control.counter(name).items()}
        found.update({(DELIVERED, i): control.counter_at(DELIVERED, i) for i in range(DELIVERED_READ)})
        return found


def marker_address(port: int) -> str:
    return f"203.0.113.{port}"


def insert(entry: v.Entry) -> Any:
    """The update that installs an entry; default actions and meters are there. Of a copy: finsy marks what it gets."""
    entry = copy.copy(entry)
    if isinstance(entry, P4MeterEntry):
        return ~entry
    return ~entry if isinstance(entry, P4TableEntry) and entry.is_default_action else +entry


def identity(entry: v.Entry) -> tuple[Any, ...]:
    """What tells entries apart on a switch: values as numbers, whichever way they were written."""
    if isinstance(entry, P4MulticastGroupEntry):
        return ("replicas", entry.multicast_group_id)
    if isinstance(entry, P4MeterEntry):
        return (entry.meter_id, entry.index)
    return (entry.table_id, *sorted((name, canonical(value)) for name, value in (entry.match or {}).items()))


def canonical(value: Any) -> tuple[int, int]:
    """A match value -> (number, prefix length or 32)."""
    if isinstance(value, tuple):
        return int(value[0]), int(value[1])
    text, _, length = str(value).partition("/")
    number = int(IPv4Address(text)) if "." in text else int(text, 0)
    return number, int(length) if length else 32


def as_light(digest: Any) -> v.Light:
    group, source = str(IPv4Address(digest["group"])), str(IPv4Address(digest["source"]))
    return v.Light(digest["port"], group, source, digest["epoch"], digest["session"], digest["sn"])


def difference(
    after: dict[tuple[str, int], tuple[int, int]], before: dict[tuple[str, int], tuple[int, int]], marked: Marks
) -> dict[tuple[str, int], tuple[int, int]]:
    """What a vector added, the markers' own part taken off; zeros left out."""
    own: dict[tuple[str, int], tuple[int, int]] = {}
    for (name, index, size), count in marked.items():
        packets, octets = own.get((name, index), (0, 0))
        own[name, index] = packets + count, octets + count * size
    added = {}
    for key, (packets, octets) in after.items():
        was, off = before.get(key, (0, 0)), own.get(key, (0, 0))
        added[key] = packets - was[0] - off[0], octets - was[1] - off[1]
    return {key: counts for key, counts in added.items() if counts != (0, 0)}
