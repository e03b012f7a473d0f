"""A trace of requests through the manager's own core, in virtual time.

Nothing of the manager is written twice: its core gets the events it would get in a data center, from agents, switches
and circuit switches that are only delays. Data moves as fluids (`flows.py`). Partial acceptance works as in the agent:
the rest is asked for at once, and waits for its turn; so are the receivers that a path does not serve (`split`).

Circuit switches are of two kinds. With *not-all-stop*, a reconfiguration darkens only the circuits that it makes; with
*all-stop* (mirrors that move together, or one controller that halts), all of that switch until it is done.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import CrossConnect, CrossConnectState, PathKind
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import Decision, PathRequest, PathResponse, Settings, State
from rostrum.sim.flows import Flows, Link
from rostrum.sim.workload import Demand
from rostrum.topologies.model import Topology

RULES_NS = 1_000_000  # to set rules on switches
TAKE_DOWN_NS = 1_000_000  # to take cross-connects down
YEAR_NS = 365 * 86_400 * 10**9
FOREVER_NS = 1000 * YEAR_NS


class Stalled(Exception):
    """The scheduler has left requests behind for good."""


@dataclass
class Outcome:
    """One demand's way. Times in ns; -1 = not reached."""

    number: int
    demand: Demand
    first_grant: int = -1
    done: int = -1
    sessions: int = 0
    reused: int = 0
    packet: int = 0  # sessions over the packet network
    split: int = 0  # paths to some of the receivers that were asked for
    denied: str = ""
    open: int = 0  # requests that wait or are served
    delivered: Counter[str] = field(default_factory=Counter)  # bytes by receiver


@dataclass
class Result:
    outcomes: list[Outcome]
    end: int


@dataclass
class _Session:
    outcome: Outcome
    left: int  # bytes of the object not accepted before this session
    receivers: tuple[str, ...]
    path_id: str = ""
    started: bool = False
    accepted: int = 0


@dataclass
class Replay:
    """One run. `progress` is called with the number of demands that have ended."""

    topology: Topology
    settings: Settings
    progress: Callable[[int], None] = lambda ended: None
    all_stop: bool = False
    now: int = 0
    _heap: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manager = Manager(self.topology, self.settings, 0)
        self.flows = Flows(_capacity(self.topology))
        self.sessions: dict[str, _Session] = {}  # by request id
        self.setting_up: dict[str, _Session] = {}  # granted, not active yet: by path id
        self._on_ocs: dict[str, dict[str, None]] = {name: {} for name in self.topology.ocs}  # flows through it
        self._dark_until = dict.fromkeys(self.topology.ocs, 0)
        self._ids = itertools.count()
        self._ended = 0

    def run(self, demands: Sequence[Demand]) -> Result:
        """Until every demand has ended, served or denied."""
        self._start()
        outcomes = [Outcome(number, demand) for number, demand in enumerate(demands)]
        for outcome in outcomes:
            demand = outcome.demand
            outcome.open = 1
            self._at(demand.at, partial(self._ask, outcome, demand.size, demand.receivers))
        while self._ended < len(outcomes):
            self._next()
        return Result(outcomes, self.now)

    def _start(self) -> None:
        for name in self.topology.switches:
            self._step(ev.SwitchUp(name))
        for name in self.topology.ocs:
            self._step(ev.OcsUp(name))
        for name in self.topology.servers:
            self._step(ev.AgentUp(name, 1, self.topology.control_port))

    def _at(self, when: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._ids), what))

    def _next(self) -> None:
        """Goes to whatever is due first: the manager's deadline, an event, the end of a flow."""
        ends = self.flows.next_end()
        due = self.manager.deadline()
        event = self._heap[0][0] if self._heap else FOREVER_NS
        if ends and ends[0] <= min(event, due or FOREVER_NS):
            self.now = max(self.now, ends[0])
            self._done(ends[1])
        elif due is not None and due <= event:
            if not self._heap and not ends and due > self.now + YEAR_NS:
                raise Stalled(f"{len(self.manager.core.queue)} requests wait, and nothing will change any more")
            self.now = max(self.now, due)
            self._step(ev.Tick())
        else:
            when, _, what = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            what()

    def _step(self, event: ev.Event) -> None:
        for action in self.manager.step(event, self.now):
            self._perform(action)
        for path_id in list(self.setting_up):
            path = self.manager.core.paths[path_id]
            if path.state is State.ACTIVE:
                self._begin(path, self.setting_up.pop(path_id))

    def _perform(self, action: act.Action) -> None:
        """What devices and agents do about it, and when they answer."""
        if isinstance(action, act.Respond):
            self._answered(action.response)
        elif isinstance(action, act.InstallRules):
            self._later(RULES_NS, ev.RulesInstalled(action.op))
        elif isinstance(action, act.RemoveRules):
            self._later(RULES_NS, ev.RulesRemoved(action.op))
        elif isinstance(action, act.Connect):
            ocs = self.topology.ocs[action.ocs]
            lit = tuple(CrossConnect(pair, CrossConnectState.STEADY) for pair in action.pairs)
            duration = round(ocs.reconfiguration_s * 1e9)
            self._later(duration, ev.CircuitResult(action.op, lit))
            self._darken(action.ocs, duration)
        elif isinstance(action, act.Disconnect):
            self._later(TAKE_DOWN_NS, ev.DisconnectResult(action.op))
            self._darken(action.ocs, TAKE_DOWN_NS)
        elif isinstance(action, act.ReadRules):
            self._later(0, ev.RulesFound(action.switch, frozenset(), self.now))
        elif isinstance(action, act.ReadCrossConnects):
            self._later(0, ev.CrossConnectsFound(action.ocs, (), self.now))

    def _later(self, delay: int, event: ev.Event) -> None:
        self._at(self.now + delay, partial(self._step, event))

    def _darken(self, ocs: str, duration: int) -> None:
        """All-stop: no light through the circuit switch; what is sent meanwhile is lost and has to be sent again."""
        if not self.all_stop:
            return
        self._dark_until[ocs] = max(self._dark_until[ocs], self.now + duration)
        self.flows.hold(self._on_ocs[ocs], self.now)
        self._at(self.now + duration, partial(self._lighten, ocs))

    def _lighten(self, ocs: str) -> None:
        if self.now >= self._dark_until[ocs]:
            self.flows.go_on(self._on_ocs[ocs], self.now)

    def _ask(self, outcome: Outcome, left: int, receivers: tuple[str, ...]) -> None:
        demand = outcome.demand
        request = PathRequest(
            f"r{next(self._ids)}",
            demand.sender,
            demand.sender,
            receivers,
            demand.size,
            left,
            data_id=outcome.number,
            splits=True,
        )
        self.sessions[request.request_id] = _Session(outcome, left, receivers)
        self._step(ev.RequestReceived(request))

    def _answered(self, response: PathResponse) -> None:
        session = self.sessions[response.request_id]
        outcome = session.outcome
        if response.decision is Decision.DENIED:
            outcome.denied = response.reason
            self._part_over(outcome)
        elif response.decision is Decision.ACCEPTED and not session.path_id:
            session.path_id, session.accepted = response.response_id, min(response.accepted_size, session.left)
            outcome.first_grant = outcome.first_grant if outcome.first_grant >= 0 else self.now
            outcome.sessions += 1
            outcome.packet += response.kind is PathKind.PACKET
            self.setting_up[response.response_id] = session
            served = tuple(one.server for one in response.receivers)
            others = tuple(name for name in session.receivers if name not in set(served))
            session.receivers = served
            outcome.split += bool(others)
            for left, receivers in ((session.left - session.accepted, served), (session.left, others)):
                if left and receivers:
                    outcome.open += 1
                    self._at(self.now, partial(self._ask, outcome, left, receivers))

    def _begin(self, path: Path, session: _Session) -> None:
        session.outcome.reused += path.reused_circuit
        links: list[Link] = [(path.request.sender, 0)]
        links += [(switch, port) for switch, _, ports in path.hops for port in ports]
        self.flows.begin(path.request.request_id, links, session.accepted, self.now)
        if path.ocs:
            self._on_ocs[path.ocs][path.request.request_id] = None
            if self.now < self._dark_until[path.ocs]:
                self.flows.hold([path.request.request_id], self.now)

    def _done(self, request_id: str) -> None:
        session = self.sessions.pop(request_id)
        self.flows.end(request_id, self.now)
        for through in self._on_ocs.values():
            through.pop(request_id, None)
        session.outcome.delivered.update(dict.fromkeys(session.receivers, session.accepted))
        self._part_over(session.outcome)
        origin = session.outcome.demand.sender
        self._step(ev.Released(session.path_id, request_id, origin))

    def _part_over(self, outcome: Outcome) -> None:
        outcome.open -= 1
        if outcome.open:
            return
        if not outcome.denied:
            outcome.done = self.now
        self._ended += 1
        self.progress(self._ended)


def _capacity(topology: Topology) -> dict[Link, int]:
    links: dict[Link, int] = {(name, 0): server.rate_bps for name, server in topology.servers.items()}
    for name, switch in topology.switches.items():
        links |= {(name, port): rate for port, rate in switch.rates.items()}
    return links
