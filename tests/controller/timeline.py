"""The manager's core on a virtual clock and a software network: tests read as timelines."""

from __future__ import annotations

import itertools
from collections import deque
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import (
    MS,
    REST,
    Decision,
    LivePath,
    PathRequest,
    PathResponse,
    Protocol,
    Settings,
    Wanted,
)
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.controller.network import Network


def hybrid() -> Topology:
    return loader.load("hybrid-4x2")


class Timeline:
    """`devices_answer`: switches and OCS do at once what they are told; otherwise their answers wait in `held` for
    `let`.
    """

    def __init__(self, topology: Topology | None = None, settings: Settings | None = None, up: bool = True) -> None:
        self.topology = topology or hybrid()
        self.network = Network(self.topology)
        self.settings = settings or Settings()
        self.now = 1_000 * MS
        self.manager = Manager(self.topology, self.settings, self.now)
        self.devices_answer = True
        self.held: deque[ev.Event] = deque()
        self.actions: list[act.Action] = []
        self.ids = itertools.count(1)
        if up:
            self.all_up()

    def all_up(self) -> None:
        for name in self.topology.switches:
            self.do(ev.SwitchUp(name))
        for name in self.topology.ocs:
            self.do(ev.OcsUp(name))
        self.actions.clear()

    def do(self, event: ev.Event) -> list[act.Action]:
        """One event, and everything that devices answer to what follows from it."""
        done: list[act.Action] = []
        events = deque([event])
        while events:
            actions = self.manager.step(events.popleft(), self.now)
            done += actions
            for action in actions:
                answer = self.network.perform(action, self.now)
                if answer is None:
                    continue
                (events if self.devices_answer else self.held).append(answer)
        self.actions += done
        return done

    def let(self, count: int | None = None) -> None:
        """Delivers answers held back."""
        for _ in range(len(self.held) if count is None else count):
            self.do(self.held.popleft())

    def wait(self, ms: float) -> None:
        """Time passes; the manager is called at each of its deadlines."""
        end = self.now + round(ms * MS)
        while (due := self.manager.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(ev.Tick())
        self.now = end

    def hello(self, server: str, boot: int = 1, live: tuple[LivePath, ...] = ()) -> None:
        self.do(ev.AgentUp(server, boot, 7071, live))

    def ask(
        self,
        sender: str,
        *receivers: str,
        size: int = 1 << 20,
        wanted: Wanted = Wanted.AUTO,
        wait_ms: int | None = None,
        lease_ms: int | None = None,
        origin: str = REST,
        request_id: str = "",
        remaining: int | None = None,
        protocol: Protocol = Protocol.AUTO,
        deadline_ms: int | None = None,
        splits: bool = False,
        round_trip_us: int = 0,
    ) -> Path:
        """A request; returns its path."""
        request_id = request_id or f"r{next(self.ids)}"
        rest = size if remaining is None else remaining
        request = PathRequest(
            request_id,
            origin,
            sender,
            receivers,
            size,
            rest,
            b"a" * 16,
            7,
            wait_ms,
            deadline_ms,
            wanted,
            lease_ms,
            protocol=protocol,
            splits=splits,
            round_trip_us=round_trip_us,
        )
        self.do(ev.RequestReceived(request))
        return self.path(self.manager.core.by_request[origin, request_id])

    def ask_as_agent(self, sender: str, *receivers: str, **more: object) -> Path:
        if sender not in self.manager.core.agents:
            self.hello(sender)
        return self.ask(sender, *receivers, origin=sender, **more)  # type: ignore[arg-type]

    def release(self, path: Path) -> None:
        self.do(ev.Released(path.id, path.request.request_id, path.request.origin))

    def path(self, path_id: str) -> Path:
        return self.manager.core.paths[path_id]

    def responses(self) -> list[PathResponse]:
        return [action.response for action in self.actions if isinstance(action, act.Respond)]

    def decisions(self) -> list[Decision]:
        return [response.decision for response in self.responses()]

    def of(self, kind: type[act.Action]) -> list[act.Action]:
        return [action for action in self.actions if isinstance(action, kind)]

    def assert_delivers(self, path: Path) -> None:
        """Each receiver gets exactly one copy, nobody else any."""
        assert path.group is not None
        copies = self.network.deliver(path.request.sender, path.group)
        assert copies == dict.fromkeys(path.request.receivers, 1), f"{path.kind}: {copies}"

    def assert_nothing_held(self) -> None:
        core = self.manager.core
        assert not core.resources.in_use()
        assert not core.queue
        assert all(circuit.user is None for circuit in core.resources.circuits)
        assert not core.rule_ops and not core.disconnect_ops and not core.circuit_ops
        assert core.groups.used == len(core.idle_rules)
        assert self.network.rules() == {rule for one in core.idle_rules.all() for rule in one.rules}
        live = {pair for circuit in core.resources.circuits for pair in circuit.cascade.pairs}
        assert live == {pair for ocs in self.topology.ocs for pair in self.network.pairs(ocs)}


def live_path(path: Path) -> LivePath:
    """What the path's agent would tell at hello."""
    assert path.group is not None and path.kind is not None
    return LivePath(
        path.request.request_id,
        path.id,
        IPv4Address(path.group),
        PathKind(path.kind),
        path.request.receivers,
        path.accepted_size,
        path.protocol,
    )
