"""How fast the membership core is: `python -m tests.controller.bench_membership [--profile]`.

No switches and no wire: events in, actions out, as the manager's runtime does. Times are CPU seconds of one core.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import time
from collections import deque

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import Engine, GroupUse
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.values import MS, Settings

from tests.controller.group_network import spine

STEP_NS = MS  # of virtual time between two events of a storm: a manager that keeps up takes 1,000 a second at least


class Run:
    """A manager on a virtual clock whose switches do at once what they are told."""

    def __init__(self, racks: int, servers: int, cores: int, budget: int) -> None:
        self.topology = spine(racks, servers, cores)
        self.manager = Manager(self.topology, Settings(group_rules=budget, groups_max=20_000, lease_ns=10**15))
        self.now, self.pushes, self.rules, self.longest = 10**9, 0, 0, 0.0
        for name in self.topology.switches:
            self.do(ev.SwitchUp(name))
        for name in self.topology.servers:
            self.do(ev.AgentUp(name, 1, 7071, group_engines=(Engine("plain"),)))

    def do(self, event: ev.Event) -> None:
        events = deque([event])
        while events:
            began = time.process_time()
            actions = self.manager.step(events.popleft(), self.now)
            self.longest = max(self.longest, time.process_time() - began)
            for action in actions:
                if isinstance(action, act.InstallRules):
                    self.rules += len(action.rules)
                    events.append(ev.RulesInstalled(action.op))
                elif isinstance(action, act.RemoveRules):
                    events.append(ev.RulesRemoved(action.op))
                elif isinstance(action, act.ReadRules):
                    events.append(ev.RulesFound(action.switch, frozenset(), self.now))
                elif isinstance(action, act.PushGroups):
                    self.pushes += 1
            self.manager.core.persistence.take()

    def wait(self, ns: int) -> None:
        end = self.now + ns
        while (due := self.manager.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(ev.Tick())
        self.now = end

    def joins(self, wanted: list[tuple[str, str]], gap_ns: int) -> dict[str, float]:
        """Each join `gap_ns` after the one before; until everybody has been told."""
        began, pushes, rules, versions = time.process_time(), self.pushes, self.rules, self._versions()
        self.longest = 0.0
        for server, group in wanted:
            self.do(ev.GroupJoined(server, GroupUse(group)))
            self.wait(gap_ns)
        self.wait(100 * MS)
        taken = time.process_time() - began
        core = self.manager.core
        return {
            "joins": len(wanted),
            "cpu_s": round(taken, 3),
            "joins_per_cpu_s": round(len(wanted) / taken),
            "calls_to_agents": self.pushes - pushes,
            "views_made": self._versions() - versions,
            "rules_ordered": self.rules - rules,
            "longest_step_ms": round(self.longest * 1e3, 1),
            "groups": len(core.members.groups),
            "addresses": len(core.members.sharing.all),
            "mean_waste": round(
                sum(core.members.sharing.waste(one.id) for one in core.members.groups.values())
                / max(1, len(core.members.groups)),
                2,
            ),
        }

    def _versions(self) -> int:
        return self.manager.core.counts["group_versions"]


def cases(seed: int) -> dict[str, dict[str, float]]:
    rng = random.Random(seed)
    found = {}
    for name, budget, near in (
        ("own addresses", 20_000, 0),
        ("1,024 rules", 1_024, 0),
        ("1,024 rules, near", 1_024, 1),
    ):
        run = Run(32, 32, 4, budget)
        racks = [[one.name for one in run.topology.servers_of(f"tor{rack}")] for rack in range(32)]
        everybody = list(run.topology.servers)
        wanted = []
        for group in range(10_000):
            pool = racks[group % 32] + racks[(group + 1) % 32] if near else everybody
            wanted += [(server, f"g{group}") for server in rng.sample(pool, 10)]
        found[f"10,000 groups of 10, {name}: group by group"] = run.joins(wanted, 10_000)
        churn = [(rng.choice(everybody), f"g{rng.randrange(10_000)}") for _ in range(2_000)]
        found[f"10,000 groups of 10, {name}: one join a ms more"] = run.joins(churn, STEP_NS)
    run = Run(32, 32, 4, 1_024)
    found["one group of 1,024, one join a ms"] = run.joins([(name, "all") for name in run.topology.servers], STEP_NS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(cases, given.seed)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    else:
        print(json.dumps({"seed": given.seed, **cases(given.seed)}, indent=2))


if __name__ == "__main__":
    main()
