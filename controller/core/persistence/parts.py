"""The parts of the state that survive a crash (persistence.py says how), all in one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import Pair
from rostrum.controller.core.packet import failed_links
from rostrum.controller.core.persistence import groups as membership_recovery
from rostrum.controller.core.persistence import recovery
from rostrum.controller.core.persistence.persistence import Change, Json, Part
from rostrum.controller.core.requests import idempotency, path_setup, relay_orders, requests
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import Obstacle, ObstacleKind

PARTS: tuple[Part, ...] = (  # in the order in which they are restored
    failed_links.Records(),
    failed_links.DrainRecords(),
    recovery.Circuits(),
    recovery.Leaving(),
    recovery.Agents(),
    recovery.Paths(),
    membership_recovery.GroupsPart(),
    membership_recovery.RegionsPart(),
    idempotency.Keys(),
    relay_orders.Records(),
)

Records = Mapping[str, Mapping[str, Json]]  # part -> key -> value


@dataclass(frozen=True)
class Unrecorded:
    """A record that could not be made: a defect, which must cost nobody else anything. `cause`: as text."""

    part: str
    key: str
    cause: str


def changes(core: Core) -> tuple[list[Change], list[Unrecorded]]:
    """What has to be written because of the steps since the last call, and what of it cannot be."""
    made, failed = [], []
    for name, key in core.persistence.take():
        try:
            made.append(Change(name, key, _BY_NAME[name].dump(core, key)))
        except Exception as error:  # whatever it is, it is this record's alone
            failed.append(Unrecorded(name, key, f"{type(error).__name__}: {error}"))
    return made, failed


def withhold(
    core: Core, actions: Sequence[act.Action], failed: Sequence[Unrecorded]
) -> tuple[list[act.Action], list[ev.Event]]:
    """The actions that may leave although these records are not written: those that rest on others. And what is to be
    posted instead of the rest: their failure, as if the devices had told it, and that their subjects cannot go on.
    """
    keys: dict[str, dict[str, str]] = {}
    for one in failed:
        keys.setdefault(one.part, {})[one.key] = f"its record cannot be written ({one.part} {one.key}: {one.cause})"
    paths = dict(keys.get("path", {}))
    for circuit_id, cause in keys.get("circuit", {}).items():
        circuit = core.resources.circuits.get(circuit_id)
        paths |= dict.fromkeys(circuit.users if circuit else (), cause)
    leaving = {
        (ocs, pair): cause
        for key, cause in keys.get("leaving", {}).items()
        for ocs, pairs in [core.leaving.get(key, ("", set()))]
        for pair in pairs
    }
    groups = {core.members.groups[name].id for name in keys.get("group", ()) if name in core.members.groups}
    may: list[act.Action] = []
    instead: list[ev.Event] = [
        ev.NotRecorded(part, key, cause) for part, by_key in keys.items() for key, cause in by_key.items()
    ]
    for action in actions:
        if isinstance(action, act.Respond):
            if action.response.response_id not in paths:
                may.append(action)
        elif isinstance(action, act.NotifyMoved | act.NotifyFailed | act.NotifyLight | act.RearmRules):
            if action.path_id not in paths:
                may.append(action)
        elif isinstance(action, act.PushView):
            if action.view.path_id not in paths:
                may.append(action)
        elif isinstance(action, act.Connect) and (why := paths.get(action.path_id)):
            instead.append(ev.CircuitResult(action.op, (), why))
        elif isinstance(action, act.InstallRules) and (why := paths.get(action.path_id)):
            instead.append(ev.RulesFailed(action.op, tuple((one.switch, why) for one in action.rules[:1])))
        elif isinstance(action, act.Disconnect) and (why := _any(leaving, action)):
            instead.append(ev.DisconnectResult(action.op, why))
        elif isinstance(action, act.PushGroups):
            told = tuple(view for view in action.views if view.id not in groups)
            if told or action.regions or not action.views:
                may.append(replace(action, views=told))
        else:  # lines of the log, reading, taking out: nothing that a record would have to explain
            may.append(action)
    return may, instead


def _any(leaving: Mapping[tuple[str, Pair], str], action: act.Disconnect) -> str:
    return next((leaving[action.ocs, pair] for pair in action.pairs if (action.ocs, pair) in leaving), "")


def not_recorded(core: Core, event: ev.NotRecorded, now: int) -> None:
    """What nobody would know of after a crash does not go on: a path ends, a circuit is taken down."""
    core.counts["records_failed"] += 1
    core.warn("record not written", part=event.part, key=event.key, cause=event.cause)
    path = core.paths.get(event.key) if event.part == "path" else None
    if path and path.granted:
        path_setup.fail(core, path, event.cause, now)
        requests.run_queue(core, now)
    elif path and not path.final:
        if path.id in core.queue:
            core.queue.remove(path.id)
        requests.deny(core, path, Obstacle(ObstacleKind.STORE, event.cause), now)
    circuit = core.resources.circuits.get(event.key) if event.part == "circuit" else None
    if circuit:
        path_setup.lose_circuit(core, circuit, event.cause, now)
        requests.run_queue(core, now)


def restore(core: Core, records: Records, now: int) -> None:
    """Brings back what an earlier manager remembered, into a new core. Records of unknown parts are left alone."""
    for part in PARTS:
        part.restore(core, records.get(part.name, {}), now)
    for path_id in core.paths if core.quotas.limits else ():
        core.count_held(path_id)


_BY_NAME = {part.name: part for part in PARTS}
