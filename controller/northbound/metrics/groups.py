"""Message groups in `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from rostrum.controller.core.state import Core


def collect(core: Core) -> Iterator[Metric]:
    m = core.members
    yield GaugeMetricFamily("rostrum_groups", "Message groups.", len(m.groups))
    joined = sum(group.members.bit_count() for group in m.groups.values())
    yield GaugeMetricFamily("rostrum_group_members", "Members of all message groups, added up.", joined)
    yield GaugeMetricFamily("rostrum_group_addresses", "Multicast addresses of message groups.", len(m.sharing.all))
    waste = sum(m.sharing.waste(group.id) for group in m.groups.values())
    text = "Servers outside their group that a message of each group is delivered to, added up over groups."
    yield GaugeMetricFamily("rostrum_group_waste", text, waste)
    yield GaugeMetricFamily("rostrum_group_rules_budget", "Rules for message groups on each switch.", m.sharing.budget)
    rules = GaugeMetricFamily("rostrum_group_rules", "Of the budget, what the switch holds.", labels=("switch",))
    for name in core.topology.switches:
        rules.add_metric((name,), m.sharing.entries(name))
    yield rules
    slow = GaugeMetricFamily(
        "rostrum_group_slow_program",
        "Programs that do not take the messages of a group with guarantees in time: messages lost to each so far.",
        labels=("group", "server", "program", "state"),
    )
    for group_name, trouble in m.trouble.items():
        for server, rows in trouble.slow().items():
            for one in rows:
                slow.add_metric((group_name, m.places.names[server], one.program, one.state), one.lost)
    yield slow
    for name, text, key in (
        ("rostrum_group_joins", "Joins and uses of groups that were taken.", "group_joins"),
        ("rostrum_group_leaves", "Leaves.", "group_leaves"),
        ("rostrum_group_refusals", "Joins that were refused.", "groups_refused"),
        ("rostrum_group_members_lost", "Servers put out of groups because they were silent.", "group_members_lost"),
        ("rostrum_group_moves", "Groups that got another address.", "group_moves"),
        ("rostrum_group_versions", "Views made.", "group_versions"),
        ("rostrum_group_views_pushed", "Views told to agents.", "group_views"),
        ("rostrum_group_pushes", "Calls that told them.", "group_pushes"),
    ):
        yield CounterMetricFamily(name, text, core.counts[key])
