"""Transfers as fluids: each link is shared equally by the flows on it, and a flow runs at its least share.

That is less than max-min fairness where a flow is held back elsewhere (what it leaves is not given to the others), and
it knows nothing of packets: enough to compare orders of service, not to predict a goodput.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Link = tuple[str, int]  # a switch's port, outward; or (server, 0): its NIC towards the switch


@dataclass
class Flow:
    id: str
    links: tuple[Link, ...]
    left: float  # bytes
    rate_bps: float = 0.0
    held: bool = False  # sends, but nothing arrives


class Flows:
    """All flows under way, advanced from one change to the next. Times in ns."""

    def __init__(self, capacity_bps: dict[Link, int]) -> None:
        self._capacity = capacity_bps
        self._flows: dict[str, Flow] = {}
        self._on: dict[Link, set[str]] = {}
        self._now = 0

    def __len__(self) -> int:
        return len(self._flows)

    def begin(self, flow_id: str, links: Iterable[Link], size: int, now: int) -> None:
        self.advance(now)
        flow = self._flows[flow_id] = Flow(flow_id, tuple(links), float(size))
        for link in flow.links:
            self._on.setdefault(link, set()).add(flow_id)
        self._share(flow.links)

    def end(self, flow_id: str, now: int) -> None:
        """Ends a flow, done or not; an unknown one is ignored."""
        self.advance(now)
        flow = self._flows.pop(flow_id, None)
        for link in flow.links if flow else ():
            self._on[link].discard(flow_id)
        self._share(flow.links if flow else ())

    def hold(self, flow_ids: Iterable[str], now: int) -> None:
        """Nothing of these arrives until they `go_on`; they keep their shares of the links."""
        self.advance(now)
        for flow_id in flow_ids:
            self._flows[flow_id].held = True

    def go_on(self, flow_ids: Iterable[str], now: int) -> None:
        self.advance(now)
        for flow_id in flow_ids:
            self._flows[flow_id].held = False

    def advance(self, now: int) -> None:
        elapsed = now - self._now
        self._now = now
        if elapsed <= 0:
            return
        for flow in self._flows.values():
            if not flow.held:
                flow.left -= min(flow.left, flow.rate_bps / 8e9 * elapsed)

    def next_end(self) -> tuple[int, str] | None:
        """When the first flow will be done if nothing changes, and which; None = no flow gets on."""
        ends = [(self._now + self._last_ns(flow), flow.id) for flow in self._flows.values() if not flow.held]
        return min(ends, default=None)

    def _last_ns(self, flow: Flow) -> int:
        return -int(-flow.left * 8e9 // flow.rate_bps) if flow.left > 0 else 0

    def _share(self, links: Iterable[Link]) -> None:
        for flow_id in {flow_id for link in links for flow_id in self._on.get(link, ())}:
            flow = self._flows[flow_id]
            flow.rate_bps = min(self._capacity[link] / len(self._on[link]) for link in flow.links)
