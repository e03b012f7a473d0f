"""A timeline whose manager can be killed at any point: its records are all that the next one has."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.persistence import parts
from rostrum.controller.core.persistence.persistence import Json
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import REST, Decision, LivePath, PathRequest, Settings
from rostrum.topologies.model import Topology

from tests.controller.timeline import Timeline


class Killed(Exception):
    """The manager is gone; what it had not written or done it never will."""


class MortalTimeline(Timeline):
    """`fuse`: fault points that are passed before the manager dies (None = it does not). They are: before the records
    of an event are written, after that, and after each action.

    Agents are those of the paths: they believe what they were told, repeat at hello what was not answered, and releases
    that may have got lost.
    """

    def __init__(self, topology: Topology | None = None, settings: Settings | None = None, up: bool = True) -> None:
        self.fuse: int | None = None
        self.lives = 1
        self.records: dict[str, dict[str, Json]] = {}
        self.believed: dict[str, LivePath] = {}
        self.holders: dict[str, str] = {}  # path -> server
        self.unanswered: dict[tuple[str, str], PathRequest] = {}
        self.unheard: dict[str, ev.Released] = {}
        self.boots: dict[str, int] = {}
        super().__init__(topology, settings, up=False)
        self.manager.restore({}, self.now, complete=True)
        if up:
            self.all_up()

    def do(self, event: ev.Event) -> list[act.Action]:
        if isinstance(event, ev.RequestReceived) and event.request.origin != REST:
            self.unanswered[event.request.origin, event.request.request_id] = event.request
        if isinstance(event, ev.AgentUp):
            self.boots[event.server] = event.boot_id
        if isinstance(event, ev.Released) and event.origin != REST:
            self.believed.pop(event.path_id, None)
            self.unanswered.pop((event.origin, event.request_id), None)
            self.unheard[event.path_id] = event
        done: list[act.Action] = []
        events = deque([event])
        while events:
            actions = self.manager.step(events.popleft(), self.now)
            done += self._let(actions, events)
        self.actions += done
        if isinstance(event, ev.Released):
            self.unheard.pop(event.path_id, None)
        return done

    def restart(self, journal: bool = True, late: Collection[str] = ()) -> None:
        """The next manager; devices and agents come back to it, the switches in `late` do not. May be killed too."""
        self.held.clear()
        self.lives += 1
        self.manager = Manager(self.topology, replace(self.settings, boot_id=1_000_000 * self.lives), self.now)
        if not journal:
            self.records.clear()
        read = json.loads(json.dumps(self.records))
        events: deque[ev.Event] = deque()
        self._let(self.manager.restore(read, self.now, complete=journal), events)
        for switch in self.topology.switches:
            if switch not in late:
                self.do(ev.SwitchUp(switch))
        for ocs in self.topology.ocs:
            self.do(ev.OcsUp(ocs))
        for server, boot in list(self.boots.items()):
            mine = tuple(live for path, live in self.believed.items() if self.holders[path] == server)
            self.do(ev.AgentUp(server, boot, 7071, mine))
        for released in list(self.unheard.values()):
            self.do(released)
        for request in list(self.unanswered.values()):
            self.do(ev.RequestReceived(request))

    def _let(self, actions: list[act.Action], events: deque[ev.Event]) -> list[act.Action]:
        """What the runtime does: records first, then the actions."""
        self._fault_point()
        made, failed = parts.changes(self.manager.core)
        assert not failed
        for change in made:
            if change.value is None:
                self.records.get(change.part, {}).pop(change.key, None)
            else:
                self.records.setdefault(change.part, {})[change.key] = change.value
        self._fault_point()
        for action in actions:
            self._heard(action)
            answer = self.network.perform(action, self.now)
            if answer is not None:
                (events if self.devices_answer else self.held).append(answer)
            self._fault_point()
        return actions

    def _heard(self, action: act.Action) -> None:
        """What agents make of the manager's text."""
        if isinstance(action, act.Respond) and action.response.decision is not Decision.QUEUED:
            response = action.response
            request = self.unanswered.pop((action.server, response.request_id), None)
            if request and response.decision is Decision.ACCEPTED:
                self.holders[response.response_id] = action.server
                self.believed[response.response_id] = LivePath(
                    response.request_id,
                    response.response_id,
                    IPv4Address(response.group),
                    response.kind,
                    request.receivers,
                    response.accepted_size,
                    response.protocol,
                )
        elif isinstance(action, act.NotifyFailed):
            self.believed.pop(action.path_id, None)
        elif isinstance(action, act.NotifyMoved) and action.path_id in self.believed:
            self.believed[action.path_id] = replace(self.believed[action.path_id], kind=action.kind)

    def _fault_point(self) -> None:
        if self.fuse is None:
            return
        if self.fuse == 0:
            self.fuse = None
            raise Killed
        self.fuse -= 1

    def path_of(self, path: Path) -> Path:
        """The path as the manager of now knows it."""
        return self.path(path.id)
