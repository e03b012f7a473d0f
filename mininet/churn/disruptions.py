"""What goes wrong during churn: each disruption breaks one part of a lab, waits, and mends it."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rostrum.lab import links
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

SETTLE_S = 6.0  # an effect may show this long after its cause was mended: bounds on silence are 5 s
SILENCE_BOUND_S = 5.0  # rostrumd --silence-bound
SWITCH_BACK_S = 3.0  # until a switch that is there again has its rules
CLOCK_STEPS_S = (-86400, -60, -3, 3, 60, 86400)


@dataclass
class Disruption:
    """One thing that was broken. Times are monotonic seconds since the run began; `end_s` None: still broken."""

    kind: str
    subject: str
    begin_s: float
    end_s: float | None = None

    def excuses(self, servers: set[str], racks: set[str], begin_s: float, end_s: float) -> bool:
        """Whether a transfer among these servers (and the ToRs they hang on) may have failed because of it.

        Only what no protocol can bridge counts: a killed agent of one of them, an agent that stood still for longer
        than others wait for it, a rack whose only packet link was cut for as long. A manager, an OCS or a fibre that
        fails is no excuse. A P4 switch that is away is its rack's link, and one between racks is everybody's.
        """
        last = self.end_s if self.end_s is not None else float("inf")
        if last + SETTLE_S < begin_s or self.begin_s > end_s:
            return False
        length = last - self.begin_s
        if self.kind == "kill-agent":
            return self.subject in servers
        if self.kind == "pause-agent":
            return self.subject in servers and length > SILENCE_BOUND_S - 1.0
        if self.kind in ("kill-switch", "pause-switch"):
            return not racks.isdisjoint(self.subject.split()) and length > SILENCE_BOUND_S - SWITCH_BACK_S
        if self.kind == "cut-link":
            return not racks.isdisjoint(self.subject.split()) and length > SILENCE_BOUND_S - 1.0
        return False


@dataclass
class Disruptor:
    """Breaks and mends parts of a lab, one after the other, from a seed. `clocks`: folder of the agents' clock files
    (libfaketime), or None.
    """

    lab: Lab
    seed: int
    pace_s: float  # mean pause between two disruptions
    clocks: Path | None = None
    done: list[Disruption] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what could not be broken or mended
    began: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)

    def now(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        """Until told to stop; then everything is mended."""
        rng = random.Random(self.seed)
        kinds: list[tuple[Callable[[random.Random], None], int]] = [
            (self._kill_agent, 3),
            (self._pause_agent, 3),
            (self._kill_manager, 2),
            (self._pause_manager, 2),
            (self._kill_ocs, 1),
            (self._pause_ocs, 1),
            (self._drop_sessions, 1),
            (self._cut_link, 2),
            (self._fault, 2),
        ]
        if self.clocks is not None:
            kinds.append((self._step_clock, 2))
        if self._p4():
            kinds += [(self._kill_switch, 2), (self._pause_switch, 2)]
        while not self.stop.wait(rng.expovariate(1.0 / self.pace_s)):
            (chosen,) = rng.choices([one for one, _ in kinds], [weight for _, weight in kinds])
            try:
                chosen(rng)
            except LabError as error:
                self.problems.append(f"{chosen.__name__.strip('_')} at {self.now():.1f} s: {error}")

    @contextlib.contextmanager
    def _disrupted(self, kind: str, subject: str) -> Any:
        row = Disruption(kind, subject, self.now())
        self.done.append(row)
        try:
            yield row
        finally:
            row.end_s = self.now()

    def _server(self, rng: random.Random) -> str:
        return rng.choice(sorted(self.lab.topology.servers))

    def _kill(self, program: str, kind: str, rng: random.Random, longest_s: float, also: str = "") -> None:
        number = rng.choice((signal.SIGKILL, signal.SIGTERM))
        with self._disrupted(kind, program + also):
            self.lab.kill(program, number)
            time.sleep(rng.uniform(0.0, longest_s))
            self.lab.start_program(program)

    def _pause(self, program: str, kind: str, seconds: float, also: str = "") -> None:
        with self._disrupted(kind, program + also):
            self.lab.signal(program, signal.SIGSTOP)
            time.sleep(seconds)
            self.lab.signal(program, signal.SIGCONT)

    def _kill_agent(self, rng: random.Random) -> None:
        self._kill(self._server(rng), "kill-agent", rng, 4.0)

    def _pause_agent(self, rng: random.Random) -> None:
        self._pause(self._server(rng), "pause-agent", rng.choice((0.3, 1.0, 4.0, 8.0)))

    def _kill_manager(self, rng: random.Random) -> None:
        self._kill("manager", "kill-manager", rng, 4.0)

    def _pause_manager(self, rng: random.Random) -> None:
        self._pause("manager", "pause-manager", rng.choice((0.3, 1.0, 4.0, 8.0)))

    def _kill_ocs(self, rng: random.Random) -> None:
        self._kill("ocs", "kill-ocs", rng, 3.0)

    def _pause_ocs(self, rng: random.Random) -> None:
        self._pause("ocs", "pause-ocs", rng.choice((0.3, 1.0, 4.0)))

    def _p4(self) -> list[str]:
        """Switches that are programs of the lab's own."""
        return sorted(name for name, one in self.lab.topology.switches.items() if one.p4)

    def _kill_switch(self, rng: random.Random) -> None:
        """What it held is gone."""
        switch = rng.choice(self._p4())
        self._kill(switch, "kill-switch", rng, 3.0, self._racks_of(switch))

    def _pause_switch(self, rng: random.Random) -> None:
        switch = rng.choice(self._p4())
        self._pause(switch, "pause-switch", rng.choice((0.3, 1.0, 4.0)), self._racks_of(switch))

    def _racks_of(self, switch: str) -> str:
        """Those that one between racks joins; nothing at a rack's own."""
        racks = {server.tor for server in self.lab.topology.servers.values()}
        return "" if switch in racks else " " + " ".join(sorted(racks))

    def _drop_sessions(self, rng: random.Random) -> None:
        with self._disrupted("drop-sessions", "ocs"):
            self.lab.ask_ocs("ocs", {"op": "drop-sessions"})

    def _cut_link(self, rng: random.Random) -> None:
        switches = self.lab.topology.switches
        pairs = [
            sorted((one.a.node, one.b.node))
            for one in self.lab.topology.links
            if one.a.node in switches and one.b.node in switches
        ]
        a, b = rng.choice(sorted(pairs))
        with self._disrupted("cut-link", f"{a} {b}"):
            links.cut(self.lab, a, b)
            time.sleep(rng.choice((0.2, 1.0, 3.0, 7.0)))
            links.up(self.lab, a, b)

    def _fault(self, rng: random.Random) -> None:
        ocs = next(iter(self.lab.topology.ocs.values()))
        port = rng.randint(1, ocs.ports)
        faults: list[dict[str, Any]] = [
            {"kind": "dead-port", "port": port, "side": rng.choice(("input", "output"))},
            {"kind": "stuck", "input": port},
            {"kind": "noisy", "port": port, "loss": 0.02},
        ]
        if ocs.splitters:
            faults.append({"kind": "dim-splitter", "splitter": rng.choice(sorted(ocs.splitters)), "db": 12.0})
        with self._disrupted("ocs-fault", "ocs"):
            self.lab.ocs_fault(**rng.choice(faults))
            time.sleep(rng.uniform(0.5, 4.0))
            self.lab.ocs_clear()

    def _step_clock(self, rng: random.Random) -> None:
        """The wall clock of a server jumps, and stays there: its agent's later lives have it too."""
        server = self._server(rng)
        with self._disrupted("clock-step", server):
            set_clock(self.clocks, server, rng.choice(CLOCK_STEPS_S))

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.done]


def set_clock(clocks: Path | None, server: str, offset_s: int) -> None:
    """The wall clock of a server's agent is that of the machine plus `offset_s`, within a second."""
    if clocks is not None:
        part = clocks / f".{server}"
        part.write_text(f"{offset_s:+d}s\n")
        part.rename(clocks / server)
