"""The runtime, which alone owns the manager's state: feeds events to the core, carries out actions, keeps the timer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import GroupPeer, GroupRegion, GroupView
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.persistence import parts
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import OverlayView, PathResponse
from rostrum.controller.keyvalue import line
from rostrum.controller.logs import Said, say_all
from rostrum.controller.runtime.execution import Devices
from rostrum.controller.runtime.store import Store, StoreError, Unencodable

log = logging.getLogger("rostrum.manager")

LATER_S = 0.2  # until records are written that nothing waits for
GATHERED_MAX = 8  # turns of the loop whose events go into one transaction, while each brings some


class Agents(Protocol):
    """The way to agents; what cannot be delivered is dropped: an agent that comes back repeats its requests."""

    def respond(self, server: str, response: PathResponse) -> None: ...

    def moved(self, server: str, path_id: str, kind: PathKind, reason: str) -> None: ...

    def failed(self, server: str, path_id: str, reason: str) -> None: ...

    def light(self, server: str, path_id: str) -> None: ...

    def view(self, server: str, view: OverlayView) -> None: ...

    def group_view(
        self, server: str, peers: Sequence[GroupPeer], views: Sequence[GroupView], regions: Sequence[GroupRegion]
    ) -> None: ...

    def group_refused(self, server: str, group: str, reason: str) -> None: ...


class Runtime:
    """Everything here runs on one asyncio loop; `post` handles an event, and those it leads to, before it returns."""

    def __init__(self, manager: Manager, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.manager = manager
        self.clock = clock
        self.agents: Agents | None = None
        self.devices: Devices | None = None
        self.subscribers: dict[type[Any], list[Callable[[Any], None]]] = {}  # of each kind of action, after it is done
        self._events: deque[ev.Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._timing = False  # it is set at the end of this turn of the loop
        self.store: Store | None = None  # where records go; None: nothing is remembered
        self.on_lost: Callable[[StoreError], None] = _lost  # the store takes nothing any more; called once
        self._held: list[act.Action] = []  # wait for their records to be in the store
        self._writing = False
        self._planned = False
        self._steps = self._steps_seen = self._gathered = 0
        self._later: asyncio.TimerHandle | None = None  # then records are written that nothing waits for
        self._late = False
        self._said: list[Said] = []  # lines of the log, said at the end of a step
        self._written: list[asyncio.Future[None]] = []  # who waits for that
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._closed = False

    def begin(self, store: Store, actions: list[act.Action]) -> None:
        """From now on nothing leaves before what it rests on is in `store`. `actions`: what restoring led to."""
        self.store = store
        self._held += actions
        self._plan()

    def post(self, event: ev.Event) -> None:
        """In order of arrival; from within a step it is handled after that step."""
        self._events.append(event)
        if self._busy or self._closed:
            return
        self._busy = True
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._busy = False
        if not self._timing:
            self._timing = True
            asyncio.get_running_loop().call_soon(self._set_timer)

    def path(self, path_id: str) -> Path | None:
        return self.manager.core.paths.get(path_id)

    def writing(self) -> asyncio.Future[None] | None:
        """Done when all that was posted so far is in the store, and what follows from it under way, or ended with
        StoreError; None = it is.
        """
        if self.store is None or not (self._closed or self._held or self._writing or self._planned):
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(StoreError("this manager ends, and writes nothing any more"))
            return done
        self._written.append(done)
        self._plan()
        return done

    def watch(self, path_id: str) -> asyncio.Future[None]:
        """Done with the next change of a path; `unwatch` it in any case."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(path_id, set()).add(change)
        return change

    def unwatch(self, path_id: str, change: asyncio.Future[None]) -> None:
        watchers = self._watchers.get(path_id, set())
        watchers.discard(change)
        if not watchers:
            self._watchers.pop(path_id, None)

    def close(self) -> None:
        """No event is handled any more; paths, rules and circuits stay as they are."""
        self._closed = True
        for timer in (self._timer, self._later):
            if timer:
                timer.cancel()
        for watchers in self._watchers.values():
            for change in watchers:
                change.cancel()

    def _step(self, event: ev.Event) -> None:
        self._steps += 1
        try:
            actions = self.manager.step(event, self.clock())
        except Exception:
            # One event must not take the manager down; what it asked for may be lost, so it is loud.
            log.exception(line("event could not be handled", type=type(event).__name__))
            actions = self.manager.take_actions()
        if self.store is None:
            self.manager.drop_records()
            self._let(actions)
        elif actions or self.manager.core.persistence.urgent:
            self._held += actions
            self._plan()
        elif self._later is None and len(self.manager.core.persistence):
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._write_later)

    def _let(self, actions: list[act.Action]) -> None:
        for action in actions:
            self._carry_out(action)
            for hear in self.subscribers.get(type(action), ()):
                hear(action)
        said, self._said = self._said, []
        if said:
            say_all(log, said)

    def _plan(self) -> None:
        """Write at the end of this turn of the loop: all that it brought goes in one transaction."""
        if not self._planned and not self._writing:
            self._planned = True
            self._steps_seen, self._gathered = self._steps, 1
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        if self._steps != self._steps_seen and self._gathered < GATHERED_MAX:
            # Several came in one turn, so more may be on their way. A transaction, the orders to switches and a line of
            # answers cost little more for several requests than for one.
            self._steps_seen, self._gathered = self._steps, self._gathered + 1
            asyncio.get_running_loop().call_soon(self._write)
            return
        self._planned = False
        if self._closed or self.store is None:
            return
        held, self._held = self._held, []
        waiting, self._written = self._written, []
        changes: list[Change] = []
        failed: list[parts.Unrecorded] = []
        if self._late or self.manager.core.persistence.urgent:
            changes, failed = self.manager.take_records()
        self._late = False
        try:
            under_way = self._hand_over(changes, failed)
        except StoreError as error:
            self._lose(error, waiting)
            return
        if failed:
            held = self._without(held, waiting, failed)
        if under_way is None:
            self._now_written(held, waiting)
        else:
            self._writing = True
            under_way.add_done_callback(lambda done: self._write_done(done, held, waiting))

    def _hand_over(self, changes: list[Change], failed: list[parts.Unrecorded]) -> asyncio.Future[None] | None:
        """To the store, all that it can encode; the others are added to `failed`. Raises StoreError."""
        if self.store is None or not changes:
            return None
        try:
            return self.store.write(changes)
        except Unencodable as error:
            wrong = error.failed
        except StoreError:
            raise
        except Exception as fault:
            raise StoreError(f"records could not be written: {fault!r}") from fault
        failed += [parts.Unrecorded(part, key, cause) for (part, key), cause in wrong.items()]
        return self._hand_over([one for one in changes if (one.part, one.key) not in wrong], failed)

    def _without(
        self, held: list[act.Action], waiting: list[asyncio.Future[None]], failed: list[parts.Unrecorded]
    ) -> list[act.Action]:
        """What may leave of `held` although records could not be made: one that cannot must not take the manager, nor
        others' paths, down with it.
        """
        for one in failed:
            log.error(line("record could not be made", part=one.part, key=one.key, cause=one.cause))
        may, instead = parts.withhold(self.manager.core, held, failed)
        for event in instead:
            self.post(event)
        if any(one.part == "repeat" for one in failed):  # after a crash the same request would make a second path
            for future in waiting:
                if not future.done():
                    future.set_exception(StoreError(f"records could not be written: {failed[0].cause}"))
        return may

    def _write_later(self) -> None:
        self._later, self._late = None, True
        self._plan()

    def _write_done(
        self, done: asyncio.Future[None], held: list[act.Action], waiting: list[asyncio.Future[None]]
    ) -> None:
        self._writing = False
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        if error is not None:
            self._lose(error if isinstance(error, StoreError) else StoreError(str(error)), waiting)
            return
        self._now_written(held, waiting)
        if self._held or self._written or self._late or self.manager.core.persistence.urgent:
            self._plan()

    def _now_written(self, held: list[act.Action], waiting: list[asyncio.Future[None]]) -> None:
        self._let(held)
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _lose(self, error: StoreError, waiting: list[asyncio.Future[None]]) -> None:
        """What was decided and not written is told to nobody: the next manager knows nothing of it."""
        for one in (*waiting, *self._written):
            if not one.done():
                one.set_exception(error)
        self.close()
        self.on_lost(error)

    def _carry_out(self, action: act.Action) -> None:
        carry = _CARRIERS.get(type(action))
        if carry:
            carry(self, action)
        elif self.devices:
            self.devices.perform(action)

    def _changed(self, action: act.PathChanged) -> None:
        for change in self._watchers.get(action.path_id, ()):
            if not change.done():
                change.set_result(None)

    def _say(self, action: act.Log) -> None:
        self._said.append((logging.WARNING if action.level == "warning" else logging.INFO, action.event, action.facts))

    def _tell(self, action: act.Action) -> None:
        """What is for an agent."""
        agents = self.agents
        if agents is None:
            return
        if isinstance(action, act.Respond):
            agents.respond(action.server, action.response)
        elif isinstance(action, act.NotifyMoved):
            agents.moved(action.server, action.path_id, action.kind, action.reason)
        elif isinstance(action, act.NotifyFailed):
            agents.failed(action.server, action.path_id, action.reason)
        elif isinstance(action, act.NotifyLight):
            agents.light(action.server, action.path_id)
        elif isinstance(action, act.PushView):
            agents.view(action.server, action.view)
        elif isinstance(action, act.PushGroups):
            agents.group_view(action.server, action.peers, action.views, action.regions)
        elif isinstance(action, act.RefuseGroup):
            agents.group_refused(action.server, action.group, action.reason)

    def _set_timer(self) -> None:
        self._timing = False
        if self._closed:
            return
        due = self.manager.deadline()
        if due is None or (self._timer and not self._timer.cancelled() and self._timer_due == due):
            return
        if self._timer:
            self._timer.cancel()
        self._timer_due = due
        delay = max(due - self.clock(), 0) / 1e9
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(ev.Tick())


_TOLD = (
    act.Respond, act.NotifyMoved, act.NotifyFailed, act.NotifyLight, act.PushView, act.PushGroups, act.RefuseGroup
)  # fmt: skip
_CARRIERS: dict[type[Any], Callable[[Runtime, Any], None]] = {
    **dict.fromkeys(_TOLD, Runtime._tell),
    act.PathChanged: Runtime._changed,
    act.Log: Runtime._say,
}  # the others are for devices


def _lost(error: StoreError) -> None:
    log.critical(line("nothing is remembered any more", cause=error))
