"""The parts of the state that survive a crash (durable.py says how), all in one list."""

from __future__ import annotations

from collections.abc import Mapping

from rostrum.controller.core import failed_links, membership_recovery, recovery, repeats
from rostrum.controller.core.durable import Change, Json, Part
from rostrum.controller.core.state import Core

PARTS: tuple[Part, ...] = (  # in the order in which they are restored
    failed_links.Records(),
    recovery.Circuits(),
    recovery.Leaving(),
    recovery.Agents(),
    recovery.Paths(),
    membership_recovery.GroupsPart(),
    repeats.Keys(),
)

Records = Mapping[str, Mapping[str, Json]]  # part -> key -> value


def changes(core: Core) -> list[Change]:
    """What has to be written because of the steps since the last call."""
    return [Change(name, key, _BY_NAME[name].dump(core, key)) for name, key in core.durable.take()]


def restore(core: Core, records: Records, now: int) -> None:
    """Brings back what an earlier manager remembered, into a new core. Records of unknown parts are left alone."""
    for part in PARTS:
        part.restore(core, records.get(part.name, {}), now)
    for path_id in core.paths if core.quotas.limits else ():
        core.count_held(path_id)


_BY_NAME = {part.name: part for part in PARTS}
