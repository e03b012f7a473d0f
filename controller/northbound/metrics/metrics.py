"""`GET /metrics`: the manager in Prometheus' text format. docs/manager.md lists the names.

Labels are bounded: switches, OCSs, routes, kinds, states and classes of reasons; nothing per path, transfer or server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client import exposition
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from rostrum.controller.core.circuits.circuits import Circuit, Foreign, OcsState
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.packet import cabling
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import State
from rostrum.controller.northbound.metrics import groups as groups_metrics
from rostrum.controller.northbound.metrics.meters import REASON_CLASSES, Meters
from rostrum.controller.northbound.metrics.stats import Histogram, Latency
from rostrum.controller.northbound.rest import rdcm
from rostrum.controller.northbound.rest.http_server import RestMeter
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.controller.runtime.runtime import Runtime
from rostrum.topologies.model import Ocs

RESOURCES = ("paths", "circuits", "splitters", "rules", "rate_bps")
SPLITTER_STATES = ("busy", "idle", "out of use", "found at start", "free")
PORT_STATES = ("busy", "idle", "found at start", "free")


class Metrics(Collector):
    """Reads the state at each scrape; what leaves no state behind comes from the meters."""

    def __init__(
        self,
        runtime: Runtime,
        meters: Meters,
        rest: RestMeter,
        thrift: Latency,
        refused: Callable[[], int],
        version: str,
        started: int,
        certificates: Callable[[], Mapping[str, float]] = dict,
        console: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        """`certificates`: as diagnosis.Evidence has them, now. `console`: its own."""
        self._runtime, self._meters, self._rest, self._thrift = runtime, meters, rest, thrift
        self._refused, self._version, self._started = refused, version, started
        self._certificates = certificates
        self._console = console
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that the header Accept asks for, and its media type."""
        encode, media_type = exposition.choose_encoder(accept)
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        core = self._runtime.manager.core
        yield from self._manager(core)
        yield from self._requests(core)
        yield from self._tenants(core)
        yield from _care(core, self._runtime.clock())
        yield from _network(core, self._runtime.clock())
        yield from self._times()
        yield from self._transfers(core)
        yield from self._answers()
        yield from groups_metrics.collect(core)
        yield from rdcm.collect(core)
        yield from self._console()

    def _manager(self, core: Core) -> Iterator[Metric]:
        facts = {"version": self._version, "topology": core.topology.name, "scheduler": core.scheduler.name}
        yield InfoMetricFamily("rostrum_manager", "What runs here.", facts)
        uptime_s = (self._runtime.clock() - self._started) / 1e9
        yield GaugeMetricFamily("rostrum_uptime_seconds", "Since the manager's start.", uptime_s)
        text = "Times that the manager did not run for half a second or more: stopped, paused, or starved."
        yield CounterMetricFamily("rostrum_manager_pauses", text, CLOCK.pauses)
        text = "How long the manager did not run, in those."
        yield CounterMetricFamily("rostrum_manager_paused_seconds", text, CLOCK.paused_ns / 1e9)
        connected = sum(agent.connected for agent in core.agents.values())
        yield GaugeMetricFamily("rostrum_agents_connected", "Agents connected now.", connected)
        yield GaugeMetricFamily("rostrum_servers", "Servers of the topology.", len(core.topology.servers))
        text = "Connections of agents ended for what they sent or did not send."
        yield CounterMetricFamily("rostrum_connections_refused", text, self._refused())
        if ends := dict(self._certificates()):
            left = {"manager": ends.pop("")} | ({"agents": min(ends.values())} if ends else {})
            text = "Until the manager's certificate for agents ends; the first of those that agents showed."
            yield _gauge("rostrum_certificate_left_seconds", text, ("of",), _rows(left))
        retries = getattr(self._runtime.store, "retries", 0)
        text = "Writes to the shared records that were tried again because no etcd answered."
        yield CounterMetricFamily("rostrum_store_retries", text, retries)
        busy = self._runtime.devices.busy if self._runtime.devices else 0
        yield GaugeMetricFamily(
            "rostrum_device_orders_under_way", "Orders to switches and OCSs not answered yet.", busy
        )

    def _requests(self, core: Core) -> Iterator[Metric]:
        counts = core.counts
        for name, text, key in (
            ("rostrum_requests", "Requests for paths that entered the queue.", "requested"),
            ("rostrum_requests_queued", "Requests that could not be granted at once.", "queued"),
            ("rostrum_requests_withdrawn", "Requests withdrawn while they waited.", "withdrawn"),
            ("rostrum_circuits_reused", "Grants on a circuit that was live already.", "reused_circuits"),
            ("rostrum_circuits_lost", "Circuits that failed.", "circuits_lost"),
            ("rostrum_rules_lost", "Times that somebody else removed rules of ours from a switch.", "rules_lost"),
            ("rostrum_paths_moved", "Paths moved to the packet network after a fault.", "moved"),
            ("rostrum_paths_released", "Paths given back or taken back.", "released"),
            ("rostrum_paths_failed", "Granted paths that failed.", "failed"),
            ("rostrum_paths_adopted", "Paths of an earlier run that agents claimed.", "adopted"),
            ("rostrum_leases_over", "Paths taken back because nobody kept them.", "leases_over"),
            ("rostrum_records_failed", "Records that could not be made; what they were of ended.", "records_failed"),
        ):
            yield CounterMetricFamily(name, text, counts[key])
        granted = {kind: counts[f"accepted_{kind}"] for kind in ("circuit", "packet")}
        yield _counter("rostrum_grants", "Grants by the kind of path.", "kind", granted)
        denied = {name: self._meters.denied[name] for name in REASON_CLASSES}
        yield _counter("rostrum_denials", "Denials by the class of their reason.", "reason", denied)
        states = Counter(path.state for path in core.paths.values())
        now = {state.value: states[state] for state in (State.QUEUED, State.CONFIGURING, State.ACTIVE)}
        yield _gauge("rostrum_paths", "Paths by state, without those that ended.", ("state",), _rows(now))
        oldest = core.paths[core.queue.first].stamps.requested if core.queue else None
        waits = (self._runtime.clock() - oldest) / 1e9 if oldest is not None else 0.0
        yield GaugeMetricFamily("rostrum_queue_oldest_seconds", "How long the first in the queue has waited.", waits)

    def _tenants(self, core: Core) -> Iterator[Metric]:
        """Of tenants with quotas; who they are, the manager's files say."""
        used: dict[tuple[str, ...], float] = {}
        allowed: dict[tuple[str, ...], float] = {}
        for tenant in core.quotas.tenants():
            quota, use = core.quotas.quota(tenant), core.quotas.used(tenant)
            for name in RESOURCES:
                used[tenant, name] = float(getattr(use, name))
                limit = getattr(quota, name) if quota else None
                if limit is not None:
                    allowed[tenant, name] = float(limit)
        labels = ("tenant", "resource")
        yield _gauge("rostrum_tenant_used", "What a tenant's paths hold (rate in bits/s).", labels, used.items())
        yield _gauge("rostrum_tenant_quota", "What a tenant may hold at a time.", labels, allowed.items())

    def _times(self) -> Iterator[Metric]:
        meters = self._meters
        text = "From a request's arrival by Thrift to the answer handed to the socket."
        yield _histogram("rostrum_thrift_response_seconds", text, "", {"": self._thrift.histogram})
        yield _histogram("rostrum_grant_wait_seconds", "From request to grant.", "", {"": meters.waited})
        text = "From grant to active: switches and OCS have answered."
        yield _histogram("rostrum_configuration_seconds", text, "kind", meters.configured)
        text = "From grant to the first packet at a receivers' rack (switch) or receiver (clocks of two machines)."
        yield _histogram("rostrum_first_light_seconds", text, "by", meters.light)

    def _transfers(self, core: Core) -> Iterator[Metric]:
        outcomes = {phase: core.counts[f"transfers_{phase}"] for phase in ("done", "failed")}
        yield _counter("rostrum_transfers", "Transfers that ended, by the word of their sender.", "outcome", outcomes)
        under_way = [one for one in core.transfers.values() if not one.ended and one.report is not None]
        yield GaugeMetricFamily("rostrum_transfers_under_way", "Transfers with reports, not ended.", len(under_way))
        done = self._meters.transferred
        yield CounterMetricFamily("rostrum_transfer_bytes", "Bytes of objects, of transfers that ended.", done["bytes"])
        packets = {kind: done[kind] for kind in ("sent", "redundant", "patched")}
        text = "Packets of transfers that ended: all sent by multicast, redundant ones, and patched by unicast."
        yield _counter("rostrum_transfer_packets", text, "kind", packets)
        text = "From a transfer's first request to its sender's word that it is done."
        yield _histogram("rostrum_transfer_seconds", text, "", {"": self._meters.transfer_s})
        text = "Patched packets per packet sent, of each transfer done."
        yield _histogram("rostrum_transfer_patched_ratio", text, "", {"": self._meters.patched})

    def _answers(self) -> Iterator[Metric]:
        made = CounterMetricFamily("rostrum_rest_requests", "REST answers.", labels=("method", "route", "status"))
        for (method, route, status), count in sorted(self._rest.answers.items()):
            made.add_metric((method, route, str(status)), count)
        yield made
        text = "REST: from a request's header to its answer's; long polls and event streams included."
        yield _histogram("rostrum_rest_response_seconds", text, "route", self._rest.times)
        yield GaugeMetricFamily("rostrum_rest_requests_under_way", "REST requests not answered.", self._rest.under_way)
        yield _gauge("rostrum_rest_connections", "Connections to REST.", ("door",), _rows(self._rest.connections()))
        text = "Connections to REST that the manager ended: for others, for want of room, for slowness or garbage."
        yield _counter("rostrum_rest_connections_ended", text, "reason", self._rest.ended())


def _care(core: Core, now: int) -> Iterator[Metric]:
    states = Counter(one.state for one in cabling.links(core, now))
    rows = [((state,), float(states[state])) for state in get_args(cabling.State)]
    yield _gauge("rostrum_cabling", "Ports between devices by what discovery says of them.", ("state",), rows)
    down = len(core.resources.ports_down)
    yield GaugeMetricFamily("rostrum_ports_down", "Switch ports that are down, of those in the topology.", down)
    dark = Counter(one.kind.value for one in core.resources.health.darkness.suspects(now))
    rows = [((kind.value,), float(dark[kind.value])) for kind in PathKind]
    yield _gauge("rostrum_dark_servers", "Servers that saw no light of such paths lately.", ("kind",), rows)


def _network(core: Core, now: int) -> Iterator[Metric]:
    down = core.resources.switches_down
    up = [((name,), float(name not in down)) for name in core.topology.switches]
    yield _gauge("rostrum_switch_up", "1 = the switch is connected.", ("switch",), up)
    rules = Counter(rule.switch for path in core.paths.values() if path.granted for rule in path.rules)
    rules.update(rule.switch for kept in core.idle_rules.all() for rule in kept.rules)
    rows = [((name,), float(rules[name])) for name in core.topology.switches]
    yield _gauge("rostrum_switch_rules", "Multicast rules that should be on the switch.", ("switch",), rows)
    yield GaugeMetricFamily("rostrum_groups_in_use", "Multicast groups held by paths and kept rules.", core.groups.used)
    connected = [((name,), float(one.state is OcsState.UP)) for name, one in core.resources.ocs.items()]
    yield _gauge("rostrum_ocs_up", "1 = the OCS is connected.", ("ocs",), connected)
    circuits = Counter((one.ocs, _circuit_state(one)) for one in core.resources.circuits)
    ports: dict[tuple[str, ...], float] = {}
    splitters: dict[tuple[str, ...], float] = {}
    for ocs in core.topology.ocs.values():
        ports |= {(ocs.name, link, state): 0.0 for link in ("uplink", "downlink") for state in PORT_STATES}
        for port in ocs.attached:  # a ToR's light comes in at the port's input: its uplink
            ports[ocs.name, "uplink", _held(core, ocs, "input", port)] += 1
            ports[ocs.name, "downlink", _held(core, ocs, "output", port)] += 1
        splitters |= {(ocs.name, state): 0.0 for state in SPLITTER_STATES}
        for one in ocs.splitters.values():
            state = _held(core, ocs, "output", one.input)
            if state == "free" and core.resources.health.splitter(ocs, one.name, now):
                state = "out of use"
            splitters[ocs.name, state] += 1
    states: dict[tuple[str, ...], float] = {
        (name, state): float(circuits[name, state]) for name in core.topology.ocs for state in _CIRCUIT_STATES
    }
    yield _gauge(
        "rostrum_circuits", "Circuits by state; idle ones are kept for reuse.", ("ocs", "state"), states.items()
    )
    text = "Links of ToRs to the OCS by state; utilisation = busy / all."
    yield _gauge("rostrum_ocs_links", text, ("ocs", "link", "state"), ports.items())
    yield _gauge("rostrum_splitters", "Splitters by state.", ("ocs", "state"), splitters.items())


_CIRCUIT_STATES = ("setting", "in use", "idle")


def _circuit_state(one: Circuit) -> str:
    if one.state.value == "setting":
        return "setting"
    return "in use" if one.user else "idle"


def _held(core: Core, ocs: Ocs, side: str, port: int) -> str:
    holder = core.resources.circuits.holder(ocs.name, side, port)
    if holder is None:
        return "free"
    if isinstance(holder, Foreign):
        return "found at start"
    return "busy" if holder.user else "idle"


def _rows(values: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    return [((name,), float(value)) for name, value in values.items()]


def _counter(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    made = CounterMetricFamily(name, text, labels=(label,))
    for value, count in values.items():
        made.add_metric((value,), count)
    return made


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    made = GaugeMetricFamily(name, text, labels=labels)
    for values, number in rows:
        made.add_metric(values, number)
    return made


def _histogram(name: str, text: str, label: str, each: Mapping[str, Histogram]) -> Metric:
    """Without a label: one histogram, under the key ""."""
    made = HistogramMetricFamily(name, text, labels=(label,) if label else ())
    for value, histogram in each.items():
        made.add_metric((value,) if label else (), histogram.cumulative(), histogram.sum)
    return made
