"""A trace of requests through the manager's own core, in virtual time.

Nothing of the manager is written twice: its core gets the events it would get in a data center, from agents, switches
and circuit switches that are only delays. Data moves as fluids (`flows.py`). Partial acceptance works as in the agent:
the rest is asked for at once, and waits for its turn.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import CrossConnect, CrossConnectState, PathKind
from rostrum.controller.core.paths import Path
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
    denied: str = ""


@dataclass
class Result:
    outcomes: list[Outcome]
    end: int


@dataclass
class _Session:
    outcome: Outcome
    left: int  # bytes of the object not accepted before this session
    path_id: str = ""
    started: bool = False
    accepted: int = 0


@dataclass
class Replay:
    """One run. `progress` is called with the number of demands that have ended."""

    topology: Topology
    settings: Settings
    progress: Callable[[int], None] = lambda ended: None
    now: int = 0
    _heap: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manager = Manager(self.topology, self.settings, 0)
        self.flows = Flows(_capacity(self.topology))
        self.sessions: dict[str, _Session] = {}  # by request id
        self.setting_up: dict[str, _Session] = {}  # granted, not active yet: by path id
        self._ids = itertools.count()
        self._ended = 0

    def run(self, demands: Sequence[Demand]) -> Result:
        """Until every demand has ended, served or denied."""
        self._start()
        outcomes = [Outcome(number, demand) for number, demand in enumerate(demands)]
        for outcome in outcomes:
            self._at(outcome.demand.at, partial(self._ask, outcome, outcome.demand.size))
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
            self._later(round(ocs.reconfiguration_s * 1e9), ev.CircuitResult(action.op, lit))
        elif isinstance(action, act.Disconnect):
            self._later(TAKE_DOWN_NS, ev.DisconnectResult(action.op))
        elif isinstance(action, act.ReadRules):
            self._later(0, ev.RulesFound(action.switch, frozenset(), self.now))
        elif isinstance(action, act.ReadCrossConnects):
            self._later(0, ev.CrossConnectsFound(action.ocs, (), self.now))

    def _later(self, delay: int, event: ev.Event) -> None:
        self._at(self.now + delay, partial(self._step, event))

    def _ask(self, outcome: Outcome, left: int) -> None:
        demand = outcome.demand
        number = next(self._ids)
        request = PathRequest(
            f"r{number}", demand.sender, demand.sender, demand.receivers, demand.size, left, data_id=outcome.number
        )
        self.sessions[request.request_id] = _Session(outcome, left)
        self._step(ev.RequestReceived(request))

    def _answered(self, response: PathResponse) -> None:
        session = self.sessions[response.request_id]
        outcome = session.outcome
        if response.decision is Decision.DENIED:
            outcome.denied = response.reason
            self._over()
        elif response.decision is Decision.ACCEPTED and not session.path_id:
            session.path_id, session.accepted = response.response_id, min(response.accepted_size, session.left)
            outcome.first_grant = outcome.first_grant if outcome.first_grant >= 0 else self.now
            outcome.sessions += 1
            outcome.packet += response.kind is PathKind.PACKET
            self.setting_up[response.response_id] = session
            rest = session.left - session.accepted
            if rest:
                self._at(self.now, partial(self._ask, outcome, rest))

    def _begin(self, path: Path, session: _Session) -> None:
        session.outcome.reused += path.reused_circuit
        links: list[Link] = [(path.request.sender, 0)]
        links += [(hop.switch, port) for hop in path.hops for port in hop.out_ports]
        self.flows.begin(path.request.request_id, links, session.accepted, self.now)

    def _done(self, request_id: str) -> None:
        session = self.sessions.pop(request_id)
        self.flows.end(request_id, self.now)
        if session.left == session.accepted:
            session.outcome.done = self.now
            self._over()
        origin = session.outcome.demand.sender
        self._step(ev.Released(session.path_id, request_id, origin))

    def _over(self) -> None:
        self._ended += 1
        self.progress(self._ended)


def _capacity(topology: Topology) -> dict[Link, int]:
    links: dict[Link, int] = {(name, 0): server.rate_bps for name, server in topology.servers.items()}
    for name, switch in topology.switches.items():
        links |= {(name, port): rate for port, rate in switch.rates.items()}
    return links
