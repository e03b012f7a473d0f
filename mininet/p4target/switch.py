"""The switch: ports with priority queues, replication, digests, and the pipeline in the middle.

It has no thread and no socket of its own: `receive` takes a frame and everything that follows happens within the call,
but for what a busy port leaves in its queues (`resume`). Who uses it from several threads holds `lock`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from rostrum.lab.p4target.pipeline import Pipeline
from rostrum.lab.p4target.program import Program

DROP_PORT = 511  # simple_switch's


class FairLock:
    """A lock that is taken in turns: who asks while another has it comes next, however soon that one asks again."""

    def __init__(self) -> None:
        self._door, self._room = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._door:
            self._room.acquire()

    def __exit__(self, *_: object) -> None:
        self._room.release()


class Port:
    """An output. `send` takes a frame and tells whether it went; if not, the port is busy until `Switch.resume`."""

    def __init__(self, number: int, send: Callable[[bytes], bool], queues: int, depth: int) -> None:
        self.number, self.send, self.depth = number, send, depth
        self.busy = False
        self.unsent: bytes | None = None
        self.queues: list[deque[tuple[int, tuple[Any, ...], int, int]]] = [deque() for _ in range(queues)]


class Switch:
    """`drops`: how many packets ended here, by reason: ingress, egress, priority, queue, no port, no group,
    no pipeline."""

    def __init__(
        self,
        *,
        queues: int = 8,
        queue_depth: int = 1000,
        drop_port: int = DROP_PORT,
        on_digest: Callable[[int, tuple[int, ...]], None] | None = None,
    ) -> None:
        """`queues`: priorities at every port, the highest number first. `queue_depth`: packets each of them holds."""
        self.queues, self.queue_depth, self.drop_port = queues, queue_depth, drop_port
        self.lock = FairLock()
        self.ports: dict[int, Port] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self.backups: dict[int, dict[tuple[int, int], tuple[tuple[int, int], ...]]] = {}  # of copies, by group
        self.down: set[int] = set()  # ports without light, or switched off
        self.drops: Counter[str] = Counter()
        self.pipeline: Pipeline | None = None
        self.on_digest = on_digest
        self._began_ns = time.monotonic_ns()
        self._everywhere: Callable[[int, bytes], None] | None = None

    # -- setting up ---------------------------------------------------------------------------------------------

    def compile(self, program: Program) -> Pipeline:
        """A pipeline for this switch that does not forward yet."""
        return Pipeline(program, self)

    def load(self, program: Program) -> Pipeline:
        """Forwards by a program from now on. Groups are gone, as is what the queues held."""
        return self.commit(self.compile(program))

    def commit(
        self,
        pipeline: Pipeline,
        groups: dict[int, tuple[tuple[int, int], ...]] | None = None,
        backups: dict[int, dict[tuple[int, int], tuple[tuple[int, int], ...]]] | None = None,
    ) -> Pipeline:
        """Forwards by a pipeline, with its groups and their backups, from now on."""
        for port in self.ports.values():
            for queue in port.queues:
                queue.clear()
        self.groups = {} if groups is None else groups
        self.backups = {} if backups is None else backups
        self.pipeline = pipeline
        return pipeline

    def add_port(self, number: int, send: Callable[[bytes], bool]) -> Port:
        self.ports[number] = port = Port(number, send, self.queues, self.queue_depth)
        return port

    # -- frames -------------------------------------------------------------------------------------------------

    def receive(self, port: int, data: bytes) -> None:
        """One frame in at a port. Never raises, whatever the frame is."""
        pipeline = self.pipeline
        if pipeline is None:
            self.drops["no pipeline"] += 1
            return
        pipeline.ingress(data, port)

    def inject(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """One frame in; the frames that come out, each with its port. For tests: every port is there and never busy."""
        out: list[tuple[int, bytes]] = []
        self._everywhere = lambda number, frame: out.append((number, frame))
        try:
            self.receive(port, data)
        finally:
            self._everywhere = None
        return out

    def resume(self, port: Port) -> None:
        """Sends what waits at a port that can send again, the highest priority first."""
        pipeline = self.pipeline
        if port.unsent is not None:
            if not port.send(port.unsent):
                return
            port.unsent = None
        port.busy = False
        if pipeline is None:
            return
        for priority in reversed(range(len(port.queues))):
            queue = port.queues[priority]
            while queue:
                rid, shared, since_us, depth = queue.popleft()
                now_us = self.clock_us()
                queued = (since_us, depth, now_us - since_us, len(queue), priority)
                self._egress(pipeline, port, rid, shared, queued)
                if port.busy:
                    return

    def _egress(
        self, pipeline: Pipeline, port: Port, rid: int, shared: tuple[Any, ...], queued: tuple[int, ...]
    ) -> None:
        frame = pipeline.egress(port.number, rid, shared, queued)
        if frame is not None and not port.send(frame):
            port.unsent, port.busy = frame, True

    # -- what generated code calls ------------------------------------------------------------------------------

    def enqueue(self, port: int, priority: int, rid: int, shared: tuple[Any, ...]) -> None:
        pipeline = self.pipeline
        assert pipeline is not None
        if priority >= self.queues:
            self.drops["priority"] += 1
            return
        out = self.ports.get(port)
        if out is None or self._everywhere is not None:
            self._nowhere(pipeline, port, priority, rid, shared)
            return
        if not out.busy:
            frame = pipeline.egress(port, rid, shared, (0, 0, 0, 0, priority))
            if frame is not None and not out.send(frame):
                out.unsent, out.busy = frame, True
            return
        queue = out.queues[priority]
        if len(queue) >= out.depth:
            self.drops["queue"] += 1
            return
        queue.append((rid, shared, self.clock_us(), len(queue)))

    def _nowhere(self, pipeline: Pipeline, port: int, priority: int, rid: int, shared: tuple[Any, ...]) -> None:
        """A port without interface. The program still counts what it sends there."""
        frame = pipeline.egress(port, rid, shared, (0, 0, 0, 0, priority))
        if frame is None:
            return
        if self._everywhere is not None:
            self._everywhere(port, frame)
        else:
            self.drops["no port"] += 1

    def replicate(self, group: int, priority: int, shared: tuple[Any, ...]) -> None:
        copies = self.groups.get(group)
        if copies is None:
            self.drops["no group"] += 1
            return
        if self.down and (backups := self.backups.get(group)):
            copies = tuple(self._standing(one, backups.get(one, ())) for one in copies)
        for port, rid in copies:
            self.enqueue(port, priority, rid, shared)

    def _standing(self, copy: tuple[int, int], backups: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        """The copy, or while its port is down the first of its backups whose port is not."""
        return next((one for one in (copy, *backups) if one[0] not in self.down), copy)

    def learn(self, number: int, values: tuple[int, ...]) -> None:
        if self.on_digest is not None:
            self.on_digest(number, values)

    def dropped(self, why: str) -> None:
        self.drops[why] += 1

    def clock_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000
