"""What switches counted, as REST shows it."""

from __future__ import annotations

from collections.abc import Iterable

from rostrum.controller.core.model import Count, RuleCounters, SwitchCounters
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.northbound.rest import schemas as view
from rostrum.topologies.model import Topology


def path(topology: Topology, one: Path, found: Iterable[RuleCounters]) -> view.PathCountersView:
    rows = [
        view.RuleCountersView(
            switch=each.rule.switch,
            in_port=each.rule.in_port,
            received=count(each.received),
            granted=count(each.granted),
            delivered=[
                view.DeliveryView(port=port, to=_at(topology, each.rule.switch, port), **_numbers(copies))
                for port, copies in each.delivered
            ],
        )
        for each in sorted(found, key=lambda each: each.rule)
    ]
    counted = {row.switch for row in rows}
    without = sorted({rule.switch for rule in one.rules} - counted)
    return view.PathCountersView(
        path=one.id, group=str(one.group) if one.group else None, switches=rows, without=without
    )


def switch(topology: Topology, name: str, found: SwitchCounters) -> view.SwitchCountersView:
    return view.SwitchCountersView(
        switch=name,
        ports=[
            view.PortCountersView(
                port=each.port,
                to=_at(topology, name, each.port),
                received=count(each.received),
                sent_multicast=count(each.sent_multicast),
                sent_unicast=count(each.sent_unicast),
                refused=count(each.refused),
                control_excess=count(each.control_excess),
            )
            for each in found.ports
        ],
        dropped=[view.DroppedView(reason=reason, **_numbers(frames)) for reason, frames in found.dropped],
    )


def count(one: Count) -> view.CountView:
    return view.CountView(**_numbers(one))


def _numbers(one: Count) -> dict[str, int]:
    return {"packets": one.packets, "bytes": one.bytes}


def _at(topology: Topology, name: str, port: int) -> str:
    end = topology.switches[name].neighbours.get(port)
    return end.node if end else ""
