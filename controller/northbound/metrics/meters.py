"""What is counted as it happens, for `metrics.py`: from the lines that the core logs, each said once. Every label has a
bounded set of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rostrum.controller.core import actions as act
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import ObstacleKind
from rostrum.controller.northbound.metrics.stats import Histogram
from rostrum.controller.northbound.rest.views import WallClock

WAIT_BOUNDS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SETUP_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
TRANSFER_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SHARE_BOUNDS = (0.0, 0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

# The class of a denial, by what was in the way.
CLASSES = {
    ObstacleKind.INVALID: "invalid",
    ObstacleKind.QUEUE_FULL: "queue full",
    ObstacleKind.OVER_QUOTA: "over quota",
    ObstacleKind.NO_CIRCUIT: "circuit impossible",
    ObstacleKind.LIGHT_BUDGET: "circuit impossible",
    ObstacleKind.UNREACHABLE: "unreachable",
    ObstacleKind.DEVICE_DOWN: "device down",
    ObstacleKind.PORT_DOWN: "device down",
    ObstacleKind.DRAINED: "device down",
    ObstacleKind.SERVER_PORT: "server port busy",
    ObstacleKind.CIRCUIT_IN_USE: "circuit busy",
    ObstacleKind.OLD_RULES: "circuit busy",
    ObstacleKind.QUARANTINED: "component failed",
    ObstacleKind.GROUPS_USED: "groups used up",
    ObstacleKind.BEHIND: "behind others",
    ObstacleKind.AGENTS: "waited",
    ObstacleKind.RESOURCES: "waited",
    ObstacleKind.STORE: "waited",
    ObstacleKind.SCHEDULER: "scheduler",
}
REASON_CLASSES = tuple(dict.fromkeys(CLASSES.values()))


class Meters:
    """Hears every action of the core."""

    def __init__(self, core: Core, wall: WallClock) -> None:
        self._core = core
        self._wall = wall
        self.denied: Counter[str] = Counter()
        self.waited = Histogram(WAIT_BOUNDS_S)  # s, from request to grant
        self.configured = {kind: Histogram(SETUP_BOUNDS_S) for kind in ("circuit", "packet")}  # s, grant to active
        self.light = {by: Histogram(SETUP_BOUNDS_S) for by in ("switch", "receiver")}  # s, grant to first light
        self.transfer_s = Histogram(TRANSFER_BOUNDS_S)
        self.patched = Histogram(SHARE_BOUNDS)  # patched packets / packets sent, per transfer
        self.transferred: Counter[str] = Counter()  # of ended transfers: bytes, packets by kind

    def hear(self, action: act.Action) -> None:
        if isinstance(action, act.Log):
            count = _HEARD.get(action.event)
            if count:
                count(self, dict(action.facts))

    def _path(self, facts: dict[str, object]) -> Path | None:
        return self._core.paths.get(str(facts["path"]))

    def _denied(self, facts: dict[str, object]) -> None:
        path = self._path(facts)
        obstacle = path.obstacle if path else None
        self.denied[CLASSES[obstacle.kind if obstacle else ObstacleKind.SCHEDULER]] += 1

    def _accepted(self, facts: dict[str, object]) -> None:
        path = self._path(facts)
        if path and path.stamps.accepted is not None:
            self.waited.add((path.stamps.accepted - path.stamps.requested) / 1e9)

    def _active(self, facts: dict[str, object]) -> None:
        path = self._path(facts)
        # A path that moved becomes active once more; how long it took then is not how long setting up takes.
        if path and path.kind and path.stamps.moved is None:
            active, accepted = path.stamps.active, path.stamps.accepted
            if active is not None and accepted is not None:
                self.configured[path.kind.value].add((active - accepted) / 1e9)

    def _first_light(self, facts: dict[str, object]) -> None:
        self.light["switch"].add(float(str(facts["ms"])) / 1e3)

    def _transfer(self, facts: dict[str, object]) -> None:
        transfer = self._core.transfers.get(str(facts["transfer"]))
        if transfer is None or transfer.report is None or transfer.reported is None:
            return
        report = transfer.report
        self.transferred["bytes"] += max(report.bytes, 0)
        for kind, packets in (
            ("sent", report.sent_packets),
            ("redundant", report.redundant_packets),
            ("patched", report.patched_packets),
        ):
            self.transferred[kind] += max(packets, 0)
        if report.phase == "done":
            self.transfer_s.add((transfer.reported - transfer.begun) / 1e9)
            if report.sent_packets > 0:
                self.patched.add(max(report.patched_packets, 0) / report.sent_packets)
        self._receivers_light(transfer)

    def _receivers_light(self, transfer: Transfer) -> None:
        """From the grant of the last session to the first packet at each receiver, by the clocks of two machines; what
        comes out negative belongs to a session before, or to a wrong clock, and is left out.
        """
        path = self._core.paths.get(transfer.report.response_id) if transfer.report else None
        if transfer.report is None or path is None or path.stamps.accepted is None:
            return
        accepted = self._wall(path.stamps.accepted)
        for one in transfer.report.receivers:
            if one.first_light_ns >= accepted:
                self.light["receiver"].add((one.first_light_ns - accepted) / 1e9)


_HEARD: dict[str, Callable[[Meters, dict[str, object]], None]] = {
    "denied": Meters._denied,
    "accepted": Meters._accepted,
    "active": Meters._active,
    "first light": Meters._first_light,
    "transfer": Meters._transfer,
}
