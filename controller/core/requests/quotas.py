"""Quotas of tenants: circuits, splitters, rules, rate, paths at a time. Pure bookkeeping of what granted paths take.

A grant that would take a tenant over its quota waits until the tenant gives something back, or is denied, as the quota
says. A request that need not have a circuit goes over the packet network when only the circuit is beyond the quota: at
once where waiting has no sense, else when its wait for a circuit is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.resources import Plan
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import Obstacle, ObstacleKind, Quota, Wanted

EVERYBODY = "*"  # the quota of each tenant that has none of its own
Policy = Literal["wait", "deny"]


@dataclass(frozen=True)
class Use:
    """What a path takes, or a tenant's paths together. `rate_bps`: what the paths can carry at most."""

    paths: int = 0
    circuits: int = 0
    splitters: int = 0
    rules: int = 0
    rate_bps: int = 0

    def plus(self, other: Use, sign: int = 1) -> Use:
        return Use(*(getattr(self, one.name) + sign * getattr(other, one.name) for one in fields(Use)))


@dataclass(frozen=True)
class Over:
    """Why a grant is beyond the quota. `circuit`: only because of the circuit it would use; `ever`: it alone takes more
    than the tenant may have.
    """

    tenant: str
    text: str
    circuit: bool
    ever: bool
    policy: Policy
    generation: int

    @property
    def obstacle(self) -> Obstacle:
        if self.ever:
            text = f"beyond the quota of tenant {self.tenant}: {self.text}"
        else:
            text = f"waiting for the quota of tenant {self.tenant}: {self.text} in use"
        return Obstacle(ObstacleKind.OVER_QUOTA, text, ever=self.ever)


def need(plan: Plan) -> Use:
    """What carrying out a plan takes."""
    circuit = isinstance(plan, CircuitPlan)
    splitters = len(plan.cascade.splitters) if isinstance(plan, CircuitPlan) else 0
    return Use(1, int(circuit), splitters, len(plan.hops), plan.rate_bps)


class Quotas:
    """`limits`: by tenant, EVERYBODY for those not named. None at all: nothing is counted."""

    def __init__(self, limits: Mapping[str, Quota]) -> None:
        self.limits = dict(limits)
        self._used: dict[str, Use] = {}
        self._held: dict[str, tuple[str, Use]] = {}  # path -> (tenant, what it takes)
        self._generation: dict[str, int] = defaultdict(int)  # of a tenant: grows when it gives something back

    def quota(self, tenant: str) -> Quota | None:
        return self.limits.get(tenant) or self.limits.get(EVERYBODY)

    def used(self, tenant: str) -> Use:
        return self._used.get(tenant, Use())

    def tenants(self) -> list[str]:
        """Those that hold something or have a quota of their own."""
        return sorted({*self._used, *self.limits} - {EVERYBODY})

    def note(self, path: Path) -> None:
        """To be called when a path was granted, moved, or has ended."""
        before = self._held.pop(path.id, None)
        if before is not None:
            left = self._used[before[0]].plus(before[1], -1)
            if left == Use():
                del self._used[before[0]]
            else:
                self._used[before[0]] = left
            self._generation[before[0]] += 1
        if path.granted:
            tenant = path.request.tenant
            splitters = len(path.cascade.splitters) if path.cascade else 0
            use = Use(1, int(path.circuit_id is not None), splitters, len(path.rules), path.rate_bps)
            self._held[path.id] = tenant, use
            self._used[tenant] = self.used(tenant).plus(use)

    def change(self, limits: Mapping[str, Quota], paths: Collection[Path]) -> None:
        """Other limits from now on; what is held stays. `paths`: all there are."""
        self.limits = dict(limits)
        for path in paths:
            self.note(path)
        for tenant in {path.request.tenant for path in paths}:
            self._generation[tenant] += 1

    def over(self, tenant: str, wanted: Use) -> Over | None:
        """What a further grant of that size would be beyond; None = nothing."""
        quota = self.quota(tenant) if self.limits else None
        if quota is None:
            return None
        used = self.used(tenant)
        for name in ("paths", "rules", "rate_bps", "circuits", "splitters"):
            limit, more, have = getattr(quota, name), getattr(wanted, name), getattr(used, name)
            if limit is None or more == 0 or have + more <= limit:
                continue
            ever = more > limit
            text = _in_use_text(name, more if ever else have, limit)
            circuit = name in ("circuits", "splitters")
            return Over(tenant, text, circuit, ever, quota.over, self._generation[tenant])
        return None

    def holds(self, path: Path, now: int) -> bool:
        """Whether a queued path need not be looked at."""
        over = path.over_quota
        if over is None:
            return False
        if over.generation != self._generation[over.tenant]:
            path.over_quota = None
            return False
        return not self.packet_only(path, now)

    def packet_only(self, path: Path, now: int) -> bool:
        """Only the circuit is beyond the quota, and the path goes without one."""
        over = path.over_quota
        if over is None or not over.circuit or path.request.wanted is not Wanted.AUTO:
            return False
        return over.ever or over.policy == "deny" or now >= path.circuit_until


def _in_use_text(name: str, count: int, limit: int) -> str:
    if name == "rate_bps":
        return f"{count / 1e9:g} of {limit / 1e9:g} Gbit/s"
    return f"{count} of {limit} {name}"
