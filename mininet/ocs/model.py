"""The emulated optical circuit switch: which cross-connects there are, when each is ready, and where light goes.

Pure, in virtual time: every method takes `now` (nanoseconds) and the random numbers come from the seed, so a test can
tell its story as a timeline. One cross-connect's life, with reconfiguration time d drawn for it when it is made at t:

    t                        t + d - ringing               t + d
    |--------- dark ---------|-------- ringing ------------|---- steady ---->
    TRANSITION                                             STEADY

Light follows fibres: ToR transmitter -> input n -> cross-connect -> output m -> a ToR's receiver, or a splitter, whose
outputs enter other inputs. A circuit over several cross-connects is dark until the last of them is, and rings until the
last one stops. Each passage costs its loss; what arrives below the receiver's sensitivity is no light.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.lab.ocs.faults import Astray, DeadPort, DimSplitter, Fault, Ghost, Noisy, Slow, Stuck
from rostrum.topologies.model import Ocs, Reconfiguration

STUCK_FACTOR = 2  # a cross-connect that should be ready after d is given up, and in FAULT, after this many d
RINGING_SWING_DB = 3.0  # how far a reported power is off when ringing begins
MAX_FAULTS = 256


@dataclass
class _Made:
    """A cross-connect that exists."""

    pair: Pair
    rings_ns: int  # light begins, unsteady
    ready_ns: int  # steady from here on
    fails_ns: int | None  # stuck: declared FAULT here
    state: CrossConnectState = CrossConnectState.TRANSITION
    cause: str = ""


@dataclass(frozen=True)
class Branch:
    """Where light that enters an input comes out at a ToR: the output, from when, and how well."""

    output: int
    dark_until_ns: int
    ringing_until_ns: int
    ringing_loss: float  # share of frames lost while ringing
    loss: float  # share of frames lost always
    power_dbm: float


class Model:
    """One emulated OCS. Not thread-safe; whoever holds the clock calls it."""

    def __init__(
        self, ocs: Ocs, reconfiguration: Reconfiguration, ringing_s: float, ringing_loss: float, seed: int
    ) -> None:
        self.ocs = ocs
        self.reconfiguration = reconfiguration
        self.ringing_s = ringing_s
        self.ringing_loss = ringing_loss
        self.faults: dict[str, Fault] = {}
        self._faults_made = 0
        self._random = random.Random(seed)
        self._made: dict[int, _Made] = {}  # by input
        self._input_of: dict[int, int] = {}  # output -> input
        self._feeds = {output: s for s in ocs.splitters.values() for output in s.outputs}  # OCS input <- splitter
        self._fed = {s.input: s for s in ocs.splitters.values()}  # OCS output -> splitter
        self._news: list[Pair] = []

    def set_timing(
        self, reconfiguration: Reconfiguration | None, ringing: tuple[float, float] | None, seed: int | None
    ) -> None:
        """Another timing for cross-connects made from now on; None = as it is. `ringing`: seconds, share lost."""
        if reconfiguration is not None:
            self.reconfiguration = reconfiguration
        if ringing is not None:
            self.ringing_s, self.ringing_loss = ringing
        if seed is not None:
            self._random.seed(seed)

    # What an operator asks for.

    def connect(self, now: int, pairs: Sequence[Pair]) -> list[CrossConnect]:
        """Start making cross-connects; one result per pair, in order: TRANSITION, what it is already, or INVALID with
        the cause. An INVALID pair does not keep the others from being made."""
        self.poll_quietly(now)
        return [self._connect(now, pair) for pair in pairs]

    def _connect(self, now: int, pair: Pair) -> CrossConnect:
        for side, port in (("input", pair.input), ("output", pair.output)):
            if not 1 <= port <= self.ocs.ports:
                return _invalid(pair, f"there is no {side} {port}: ports are 1 to {self.ocs.ports}")
        made = self._made.get(pair.input)
        if made is not None and made.pair == pair and made.state is not CrossConnectState.FAULT:
            return self._report(now, made)
        if made is not None and made.pair != pair:
            return _invalid(pair, f"input {pair.input} is in use: it goes to output {made.pair.output}")
        user = self._input_of.get(pair.output)
        if user is not None and user != pair.input:
            return _invalid(pair, f"output {pair.output} is in use: input {user} goes to it")
        delay = self._draw_ns()
        ringing = min(round(self.ringing_s * 1e9), delay)
        fails = now + STUCK_FACTOR * delay if self._obstructed(pair) else None
        made = _Made(pair, now + delay - ringing, now + delay, fails)
        self._made[pair.input] = made
        self._input_of[pair.output] = pair.input
        self._settle(now, made)
        return self._report(now, made)

    def disconnect(self, now: int, pairs: Iterable[Pair]) -> list[CrossConnect]:
        """Take cross-connects down; light goes at once. One result per pair: DISCONNECTING, or INVALID if there is no
        such cross-connect."""
        self.poll_quietly(now)
        results = []
        for pair in pairs:
            made = self._made.get(pair.input)
            if made is None or made.pair != pair:
                results.append(_invalid(pair, f"there is no cross-connect {pair.input} to {pair.output}"))
                continue
            del self._made[pair.input], self._input_of[pair.output]
            self._news = [p for p in self._news if p != pair]
            results.append(CrossConnect(pair, CrossConnectState.DISCONNECTING))
        return results

    def cross_connects(self, now: int) -> list[CrossConnect]:
        """All there are, by input, as an operator sees them now."""
        self.poll_quietly(now)
        ghosts = [f for f in self.faults.values() if isinstance(f, Ghost) and f.input not in self._made]
        claimed = [CrossConnect(Pair(f.input, f.output), CrossConnectState.STEADY) for f in ghosts]
        made = [self._report(now, one) for one in self._made.values()]
        return sorted(made + claimed, key=lambda one: one.pair.input)

    def find(self, now: int, pair: Pair) -> CrossConnect | None:
        self.poll_quietly(now)
        made = self._made.get(pair.input)
        return self._report(now, made) if made is not None and made.pair == pair else None

    def pair_at(self, *, input: int | None = None, output: int | None = None) -> Pair | None:
        """The cross-connect at an input or output fibre."""
        if output is not None:
            input = self._input_of.get(output)
        made = self._made.get(input) if input is not None else None
        return made.pair if made is not None else None

    # Faults.

    def add_fault(self, now: int, fault: Fault) -> str:
        """Returns the fault's id. Raises ValueError beyond MAX_FAULTS."""
        if len(self.faults) >= MAX_FAULTS:
            raise ValueError(f"there are {MAX_FAULTS} faults already; clear some")
        self.poll_quietly(now)
        self._faults_made += 1
        name = f"f{self._faults_made}"
        self.faults[name] = fault
        if isinstance(fault, DeadPort):
            for made in self._made.values():
                if self._dead(made.pair) and made.state is not CrossConnectState.FAULT:
                    self._fail(made)
        return name

    def clear_fault(self, name: str) -> None:
        """Takes the fault away; a cross-connect in FAULT stays so until it is made again. Raises KeyError."""
        del self.faults[name]

    def delay_s(self) -> float:
        """How long a command waits before it is carried out."""
        return max((f.seconds for f in self.faults.values() if isinstance(f, Slow)), default=0.0)

    # Time.

    def deadline(self) -> int | None:
        """When the next cross-connect changes state by itself; None = never."""
        if self._news:
            return 0
        moving = [m for m in self._made.values() if m.state is CrossConnectState.TRANSITION]
        return min((m.ready_ns if m.fails_ns is None else m.fails_ns for m in moving), default=None)

    def poll(self, now: int) -> list[CrossConnect]:
        """The cross-connects that became STEADY or went to FAULT since the last poll."""
        self.poll_quietly(now)
        news, self._news = self._news, []
        return [self._report(now, self._made[pair.input]) for pair in news]

    def poll_quietly(self, now: int) -> None:
        for made in self._made.values():
            self._settle(now, made)

    def _settle(self, now: int, made: _Made) -> None:
        if made.state is not CrossConnectState.TRANSITION:
            return
        if made.fails_ns is not None:
            if now >= made.fails_ns:
                self._fail(made)
        elif now >= made.ready_ns:
            made.state = CrossConnectState.STEADY
            self._news.append(made.pair)

    def _fail(self, made: _Made) -> None:
        made.state = CrossConnectState.FAULT
        dead = self._dead(made.pair)
        made.cause = f"{dead} is dead" if dead else "the mirrors did not get steady"
        self._news.append(made.pair)

    def _draw_ns(self) -> int:
        mean, spread = self.reconfiguration.mean_s, self.reconfiguration.spread_s
        if self.reconfiguration.distribution == "uniform":
            mean = self._random.uniform(mean - spread, mean + spread)
        elif self.reconfiguration.distribution == "normal":
            mean = self._random.gauss(mean, spread)
        return max(0, round(mean * 1e9))

    def _obstructed(self, pair: Pair) -> bool:
        stuck = (f for f in self.faults.values() if isinstance(f, Stuck) and f.input == pair.input)
        return bool(self._dead(pair)) or any(f.output in (None, pair.output) for f in stuck)

    def _dead(self, pair: Pair) -> str:
        """The dead port of a pair as text, or nothing."""
        for fault in self.faults.values():
            if isinstance(fault, DeadPort):
                port = pair.input if fault.side == "input" else pair.output
                if fault.port == port:
                    return f"{fault.side} {port}"
        return ""

    # Light.

    def paths(self, now: int) -> dict[int, tuple[Branch, ...]]:
        """For each input fed by a ToR: where its light comes out at ToRs, now or later, as things stand. Branches whose
        light is below sensitivity, or that will not be lit (FAULT, stuck), are left out."""
        self.poll_quietly(now)
        return {port: tuple(self._branches(port)) for port in sorted(self.ocs.attached)}

    def _branches(self, port: int) -> list[Branch]:
        light = self.ocs.light
        found: list[Branch] = []
        # Each input has one source and each output one sink, so light from a ToR spreads as a tree: no loops to fear.
        todo = [(port, light.transmit_dbm, 0, 0)]
        while todo:
            at, power, dark, ringing = todo.pop()
            made = self._made.get(at)
            if made is None or made.fails_ns is not None or made.state is CrossConnectState.FAULT:
                continue
            power -= light.cross_connect_loss_db
            dark, ringing = max(dark, made.rings_ns), max(ringing, made.ready_ns)
            output = made.pair.output
            astray = next((f for f in self.faults.values() if isinstance(f, Astray) and f.input == at), None)
            if astray is not None:
                if astray.output is None:
                    continue
                output = astray.output
            splitter = self._fed.get(output)
            if splitter is not None:
                beyond = power - splitter.loss_db - self._dim_db(splitter.name)
                todo += [(out, beyond, dark, ringing) for out in splitter.outputs]
            elif output in self.ocs.attached and power >= light.sensitivity_dbm:
                found.append(Branch(output, dark, ringing, self.ringing_loss, self._noise(output), power))
        return sorted({branch.output: branch for branch in found}.values(), key=lambda b: b.output)

    def input_dbm(self, now: int, port: int) -> float | None:
        """Power measured at input fibre `port`; None = dark."""
        splitter = self._feeds.get(port)
        if splitter is not None:
            power = self.output_dbm(now, splitter.input)
            return None if power is None else power - splitter.loss_db - self._dim_db(splitter.name)
        return self.ocs.light.transmit_dbm if port in self.ocs.attached else None

    def output_dbm(self, now: int, port: int) -> float | None:
        """Power measured at output fibre `port`; None = dark. It swings while its cross-connect rings."""
        power, at = 0.0, port
        for _ in range(2 * self.ocs.ports):  # a bound for light that runs in a ring with no source
            source = self._input_of.get(at)
            made = self._made.get(source) if source is not None else None
            if made is None or source is None or now < made.rings_ns or made.fails_ns is not None:
                return None
            if made.state is CrossConnectState.FAULT:
                return None
            power -= self.ocs.light.cross_connect_loss_db
            if now < made.ready_ns:
                power -= RINGING_SWING_DB * (made.ready_ns - now) / (made.ready_ns - made.rings_ns)
            splitter = self._feeds.get(source)
            if splitter is None:
                return power + self.ocs.light.transmit_dbm if source in self.ocs.attached else None
            power -= splitter.loss_db + self._dim_db(splitter.name)
            at = splitter.input
        return None

    def _dim_db(self, splitter: str) -> float:
        faults = self.faults.values()
        return sum(f.db for f in faults if isinstance(f, DimSplitter) and f.splitter == splitter)

    def _noise(self, output: int) -> float:
        passed = 1.0
        for fault in self.faults.values():
            if isinstance(fault, Noisy) and fault.port == output:
                passed *= 1 - fault.loss
        return 1 - passed

    def _report(self, now: int, made: _Made) -> CrossConnect:
        base = CrossConnect(made.pair, made.state, cause=made.cause)
        return replace(
            base,
            input_dbm=self.input_dbm(now, made.pair.input),
            output_dbm=self.output_dbm(now, made.pair.output),
        )


def _invalid(pair: Pair, cause: str) -> CrossConnect:
    return CrossConnect(pair, CrossConnectState.INVALID, cause=cause)
