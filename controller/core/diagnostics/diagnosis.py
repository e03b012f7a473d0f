"""What is wrong with the fabric, and how it is mended: the manager's state and what devices and agents answered, looked
at by one check after another. Pure; `doctor.py` asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rostrum.controller.core.circuits.circuits import Circuit, OcsState
from rostrum.controller.core.circuits.splitters import expected_dbm
from rostrum.controller.core.diagnostics.findings import Finding, ordered
from rostrum.controller.core.model import CrossConnectState, MulticastRule, PathKind, SwitchFacts
from rostrum.controller.core.packet import cabling
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import listed, seconds
from rostrum.controller.core.values import S
from rostrum.topologies.model import Ocs

DIM_DB = 3.0  # below what the budget says: worth a look
MARGIN_LOW_DB = 1.0
CLOCK_OFF_NS = 100 * 1_000_000  # an agent's wall clock this far off spoils timelines across machines
WAIT_LONG_NS = 10 * S
PLACES_MAX = 200  # where something is wrong, that are held against what cannot be reached
_FAR = 1 << 20  # links
DAY_S = 86_400
RENEW_DAYS = 14  # before its end a certificate is to be renewed


@dataclass(frozen=True)
class AgentFacts:
    """What an agent said of itself; with a cause it said nothing. `clock_off_ns`: its wall clock minus the manager's,
    known to `clock_error_ns`.
    """

    server: str
    cause: str = ""
    software: str = ""
    interface: str = ""
    mtu: int = 0
    rate_bps: int = 0
    clock_off_ns: int = 0
    clock_error_ns: int = 0


@dataclass(frozen=True)
class Unreached:
    """`server`'s agent could not connect to the control port of `to`."""

    server: str
    to: str
    cause: str


@dataclass(frozen=True)
class Evidence:
    """`rules`: what is on each switch, or why it could not be read. `changing`: switches with orders under way when
    they were read: a difference there is no finding. `certificates`: seconds that those of the Thrift port still hold,
    by server; "" = the manager's. `switches`: what those that were asked can do, and cannot.
    """

    version: str
    rules: Mapping[str, Collection[MulticastRule] | str] = field(default_factory=dict)
    changing: Collection[str] = ()
    agents: Mapping[str, AgentFacts] = field(default_factory=dict)
    unreached: Collection[Unreached] = ()
    certificates: Mapping[str, float] = field(default_factory=dict)
    switches: Mapping[str, SwitchFacts] = field(default_factory=dict)


Check = Callable[[Core, Evidence, int], Iterator[Finding]]


def diagnose(core: Core, evidence: Evidence, now: int) -> list[Finding]:
    """All findings: causes first, and below each what follows from it."""
    places = _ill_places(core, now)
    found = [_explained(core, places, one) for check in _CHECKS for one in check(core, evidence, now)]
    return ordered([*found, *_reach(core, evidence, places)])


@dataclass(frozen=True)
class _Place:
    """Where something is wrong that packets notice. `port` None: the whole switch. `subject`: of its finding."""

    subject: str
    switch: str
    port: int | None = None


def _ill_places(core: Core, now: int) -> list[_Place]:
    """Switches and ports of which another check tells, those first that are surer. Both ends of a link that is ill are
    one place.
    """
    found = [_Place(name, name) for name in core.resources.switches_down]
    ports = list(core.resources.ports_down)
    wrong = [link for link in cabling.links(core, now) if link.state in ("miscabled", "silent")]
    ports += [(link.switch, link.port) for link in sorted(wrong, key=lambda link: link.state)]
    seen: set[tuple[str, int]] = set()
    for switch, port in ports:
        end = core.topology.switches[switch].neighbours.get(port)
        if end is not None and (end.node, end.port) not in seen and (switch, port) not in seen:
            seen.add((switch, port))
            found.append(_Place(f"{switch} port {port}", switch, port))
    return found[:PLACES_MAX]


def _explained(core: Core, places: list[_Place], one: Finding) -> Finding:
    """With the place that explains it, if it is about the other end of an ill link, or a server behind one."""
    server = core.topology.servers.get(one.subject) if one.check == "dark" else None
    for place in places if server or one.check in ("port", "cabling") else ():
        if place.subject == one.subject:
            break
        end = core.topology.switches[place.switch].neighbours.get(place.port) if place.port is not None else None
        if server:
            ill = end.node == server.name if end else place.switch == server.tor and place.port is None
        else:
            ill = end is not None and one.subject == f"{end.node} port {end.port}"
        if ill:
            return replace(one, because=place.subject)
    return one


def _between(core: Core, place: _Place, server: str, to: str) -> bool:
    """Whether it is on a shortest way between two servers."""
    fabric, topology = core.resources.fabric, core.topology
    here, there = topology.servers[server].tor, topology.servers[to].tor
    far, near = fabric.depths(there), fabric.depths(here)
    if place.port is None:
        via = place.switch
        return via in (here, there) or near.get(via, _FAR) + far.get(via, _FAR) == near.get(there, _FAR)
    end = topology.switches[place.switch].neighbours[place.port].node
    if end in topology.servers:
        return end in (server, to)
    if end not in topology.switches:
        return False
    ways = ((place.switch, end), (end, place.switch))
    return any(near.get(one, _FAR) + 1 + far.get(other, _FAR) == near.get(there, -1) for one, other in ways)


def _switches(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for name, cause in core.resources.switches_down.items():
        switch = core.topology.switches[name]
        if switch.p4:
            mend = (
                f"see that it listens for P4Runtime at {switch.p4.address}:{switch.p4.port} with device id "
                f"{switch.p4.device_id}, and that no manager with a higher --election-id holds it"
            )
        else:
            mend = (
                f"see that it has power and that its controller is this manager (OpenFlow 1.3, datapath id "
                f"{switch.dpid:#x}); for Open vSwitch: ovs-vsctl get-controller {name}"
            )
        yield Finding("error", "switch", name, f"{name} is not connected: {cause or 'it has not answered yet'}", mend)


def _ocs(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for name, status in core.resources.ocs.items():
        ocs = core.topology.ocs[name]
        if status.state is not OcsState.UP:
            what = f"{name} is {status.state.value}" + (f": {status.cause}" if status.cause else "")
            mend = f"see that it answers at {ocs.address}:{ocs.management_port} and takes the topology file's login"
            yield Finding("error", "ocs", name, what, mend)
        for splitter in ocs.splitters.values():
            ill = core.resources.health.splitter(ocs, splitter.name, now)
            if ill:
                yield _ill(f"{name} {splitter.name}", ill[0])
        for port in sorted(ocs.attached):
            for side, verdict in (("input", core.resources.health.input), ("output", core.resources.health.output)):
                ill = verdict(ocs, port, now)
                if ill:
                    yield _ill(f"{name} {side} {port}", ill[0])


def _ill(subject: str, text: str) -> Finding:
    mend = "clean or replace its fibre; it is tried again by itself when the time is over"
    return Finding("warning", "optics", subject, f"{subject} is {text}", mend)


def _dark(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    by_packets = {one.server for one in core.resources.health.darkness.suspects(now) if one.kind is PathKind.PACKET}
    for one in core.resources.health.darkness.suspects(now):
        if one.kind is PathKind.CIRCUIT and one.server in by_packets:
            continue  # the packet path says more
        name, seen, tor = one.server, one.seen, core.topology.servers[one.server].tor
        what = f"{name} got no multicast packet on {seen.times} {one.kind.value} path(s) from {listed(one.origins, 4)}"
        what += f", last {seen.path}"
        look = f"the firewall of {name} (nft list ruleset, iptables -L), its IGMP and multicast filters"
        look += f", and its port of {tor}"
        if core.topology.switches[tor].southbound == "none":  # nor can it be asked
            snoops = "whether it or another switch snoops IGMP while no querier asks (rostrum doctor --lan, as root)"
            look += f"; {snoops}"
        if seen.beside:
            what += f", though {listed(seen.beside)} behind the same switch did"
        elif seen.elsewhere:
            what += f", though {seen.elsewhere} others did"
            look += f"; if they are well, {tor}'s fibre" if one.kind is PathKind.CIRCUIT else f"; {tor}'s uplinks"
        else:
            what += "; no other receiver of these had light either"
            look += f"; the same on {listed(one.origins, 4)}, and the light between them"
        mend = f"look at {look}. Until it has light it is served by unicast and nobody waits for it"
        yield Finding("warning", "dark", name, what, mend)


def _light(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for circuit in core.resources.circuits:
        yield from _light_of(core.topology.ocs[circuit.ocs], circuit)
    for foreign in core.resources.circuits.foreign():
        pair = foreign.cross_connect.pair
        subject = f"{foreign.ocs} {pair.input}>{pair.output}"
        what = f"cross-connect {subject} was not made by this manager; its ports are not used"
        mend = "take it down on the OCS if nobody needs it; one that an earlier manager left goes by itself"
        yield Finding("warning", "cross-connect", subject, what, mend)


def _light_of(ocs: Ocs, circuit: Circuit) -> Iterator[Finding]:
    expected = expected_dbm(circuit.cascade, ocs.splitters, ocs.light)
    for one in circuit.powers:
        subject = f"{ocs.name} {one.pair.input}>{one.pair.output}"
        if one.state is CrossConnectState.FAULT:
            what = f"cross-connect {subject} of circuit {circuit.id} is in FAULT: {one.cause or 'no cause given'}"
            yield Finding("error", "light", subject, what, "look at the OCS's alarms; the circuit moves by itself")
        elif one.input_dbm is not None and one.input_dbm < expected[one.pair] - DIM_DB:
            what = f"{one.input_dbm:.1f} dBm enter {subject}, {expected[one.pair]:.1f} dBm are expected"
            mend = "clean the fibre into that port, or look at what feeds it (splitter, transceiver)"
            yield Finding("warning", "light", subject, what, mend)
        elif one.output_dbm is not None and one.output_dbm < ocs.light.sensitivity_dbm + MARGIN_LOW_DB:
            spare = one.output_dbm - ocs.light.sensitivity_dbm
            what = f"{one.output_dbm:.1f} dBm leave {subject}, {spare:.1f} dB above what receivers need"
            yield Finding("warning", "light", subject, what, "use fewer splitters in a row, or stronger transceivers")


def _cabling(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    blind = []
    for link in cabling.links(core, now):
        subject = f"{link.switch} port {link.port}"
        if link.state == "miscabled":
            mend = (
                f"plug it where the topology file says, {link.expected.node}:{link.expected.port}, or correct the file"
            )
            yield Finding("error", "cabling", subject, link.text, mend)
        elif link.state == "silent":
            mend = "check the cable and both ports; a switch between them that filters LLDP looks the same"
            yield Finding("warning", "cabling", subject, link.text, mend)
        elif link.state == "not looked at" and core.topology.switches[link.switch].p4:
            blind.append(link.switch)
    if blind:
        what = f"the cabling of {listed(blind)} is not looked at: no discovery frame of theirs was heard yet"
        mend = "if it stays so, give them their CPU port, 510; rostrum preflight tells whether packets get through"
        yield Finding("note", "cabling", listed(blind), what, mend)


def _links(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for one in core.resources.failed:
        subject = "-".join(one.link)
        mend = "check the cable, the optics and both ports; rostrum links drain takes it out of use meanwhile"
        if one.silent:
            yield Finding("error", "link", subject, f"{subject} is out of service: {one.cause}", mend)
        else:
            what = f"{subject} is out of service for {seconds(max(one.until - now, 0))} more: {one.cause}"
            yield Finding("warning", "link", subject, what, mend)
    for drained in core.resources.failed.all_drained:
        subject = "-".join(drained.link)
        what = f"{subject} is drained" + (f": {drained.reason}" if drained.reason else "")
        yield Finding("note", "link", subject, what, f"rostrum links undrain {' '.join(drained.link)} puts it back")


def _ports(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for (switch, port), text in core.resources.ports_down.items():
        mend = f"see that {switch}'s port {port} is enabled and that both ends have power and light"
        yield Finding("error", "port", f"{switch} port {port}", text, mend)


def _rules(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for name, found in evidence.rules.items():
        if name in core.resources.switches_down:
            continue
        if isinstance(found, str):
            yield Finding("error", "rules", name, f"the rules of {name} could not be read: {found}", "look at its log")
        elif name not in evidence.changing:
            yield from _differences(core, name, found)


def _differences(core: Core, name: str, found: Collection[MulticastRule]) -> Iterator[Finding]:
    expected = core.expected_rules(name)
    there = {rule_making.key(rule): rule for rule in found}
    missing = [rule for key, rule in expected.items() if not rule_making.holds(there.get(key), rule)]
    foreign = [rule for key, rule in there.items() if key not in expected]
    if missing:
        groups = listed(str(rule.group) for rule in missing)
        what = f"{len(missing)} multicast rules are missing or altered on {name} (groups {groups})"
        mend = (
            "somebody else changes its tables: find out who; reconnecting the switch sets them again "
            f"(for Open vSwitch: ovs-vsctl del-controller {name} and set-controller)"
        )
        yield Finding("error", "rules", name, what, mend)
    if foreign:
        groups = listed(str(rule.group) for rule in foreign)
        what = f"{len(foreign)} multicast rules on {name} belong to no path (groups {groups})"
        held = all(rule_making.key(rule) in core.foreign_rules for rule in foreign)
        mend = "found at start, removed by itself when no agent claims them" if held else "remove them on the switch"
        yield Finding("note" if held else "warning", "rules", name, what, mend)


def _capabilities(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    """What switches cannot do, or have too little of."""
    for name, text in core.topology.not_promised.items():
        mend = "see that the network keeps room for it; where priority counts, let this manager drive the switches"
        yield Finding("note", "capability", name, text, mend)
    for name, facts in evidence.switches.items():
        for one in facts.remarks:
            yield Finding("warning" if one.severity == "warning" else "note", "capability", name, one.what, one.mend)
        if core.settings.fast_failover and not facts.failover:
            what = f"{name} cannot go around a port that is down by itself, which --fast-failover asks for"
            yield Finding("note", "capability", name, what, "the manager does it, when it has heard of the port")


def _agents(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    for name in core.topology.servers:
        agent = core.agents.get(name)
        if agent is None or not agent.connected:
            cause = agent.cause if agent and agent.cause else "it has never said hello to this manager"
            mend = f"start rostrumd on {name} with --manager {core.topology.manager.address}:PORT, or see its log"
            yield Finding("error", "agent", name, f"the agent of {name} is not connected: {cause}", mend)
            continue
        facts = evidence.agents.get(name)
        if facts is None:
            continue
        if facts.cause:
            yield Finding("warning", "agent", name, facts.cause, f"see the log of rostrumd on {name}")
            continue
        yield from _agent(core, facts)


def _agent(core: Core, facts: AgentFacts) -> Iterator[Finding]:
    name, mtu = facts.server, core.topology.mtu
    if facts.mtu and facts.mtu != mtu:
        severity = "error" if facts.mtu < mtu else "warning"
        what = f"{name}'s {facts.interface} has an MTU of {facts.mtu}, the topology says {mtu}"
        mend = f"ip link set {facts.interface} mtu {mtu} on {name}, or correct network.mtu in the topology file"
        yield Finding("error" if severity == "error" else "warning", "mtu", name, what, mend)
    if abs(facts.clock_off_ns) - facts.clock_error_ns > CLOCK_OFF_NS:
        way = "ahead of" if facts.clock_off_ns > 0 else "behind"
        what = f"the clock of {name} is {seconds(abs(facts.clock_off_ns))} {way} the manager's"
        mend = f"run an NTP client (chrony) on {name}; transfers work, but times across machines do not compare"
        yield Finding("warning", "clock", name, what, mend)
    said = core.topology.servers[name].rate_bps
    if facts.rate_bps and facts.rate_bps < said:
        what = f"{name}'s {facts.interface} runs at {facts.rate_bps / 1e9:g} Gbit/s, the topology says {said / 1e9:g}"
        yield Finding("warning", "rate", name, what, "check the transceiver and auto-negotiation, or correct the file")


def _versions(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    versions = Counter(one.software for one in evidence.agents.values() if one.software)
    for version, count in sorted(versions.items()):
        if version != evidence.version:
            who = listed(one.server for one in evidence.agents.values() if one.software == version)
            what = f"{count} agents run rostrum {version}, the manager {evidence.version}: {who}"
            yield Finding("warning", "version", who, what, "install the same release everywhere")


def _certificates(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    ends: dict[int, list[str]] = {}  # most are made on one day
    for name, left_s in evidence.certificates.items():
        if left_s < RENEW_DAYS * DAY_S:
            ends.setdefault(int(left_s // DAY_S), []).append(name)
    for days, names in sorted(ends.items()):
        when = f"expires in {days} days" if days >= 0 else "has expired"
        make = 'make a new one (docs/care.md, "Agents by TLS") and put it in place of the old'
        if "" in names:
            what = f"the certificate that the manager shows agents {when}"
            yield Finding("warning" if days >= 0 else "error", "certificate", "manager", what, make)
        if agents := listed(name for name in names if name):
            what = f"the certificate that the agent of {agents} showed {when}"
            yield Finding("warning", "certificate", agents, what, f"{make}; the agent shows it when it connects next")


def _reach(core: Core, evidence: Evidence, places: list[_Place]) -> Iterator[Finding]:
    """Blame falls on what most of the failed connections have in common: an ill place on their ways, else a server."""
    left = sorted(
        (one for one in evidence.unreached if (agent := core.agents.get(one.to)) and agent.connected),
        key=lambda one: (one.server, one.to),
    )  # others are told as agents that are not there
    while left:
        through = {place: [one for one in left if _between(core, place, one.server, one.to)] for place in places}
        place, failed = max(through.items(), key=lambda item: len(item[1]), default=(None, []))
        if place is None or not failed:
            break
        left = [one for one in left if one not in failed]
        one, more = failed[0], f" and {len(failed) - 1} other connections" if len(failed) > 1 else ""
        what = f"{one.server} cannot connect to the control port of {one.to}{more}: {one.cause}"
        mend = f"their ways go by {place.subject}: mend that first"
        yield Finding("error", "reachability", listed(one.to for one in failed), what, mend, place.subject)
    while left:
        count = Counter(name for one in left for name in (one.server, one.to))
        targets = Counter(one.to for one in left)
        name = max(sorted(count), key=lambda each: (count[each], targets[each]))
        failed = [one for one in left if name in (one.server, one.to)]
        left = [one for one in left if one not in failed]
        into, out_of = [one.server for one in failed if one.to == name], [one.to for one in failed if one.to != name]
        if not out_of:
            what = f"{listed(into)} cannot connect to the control port of {name}"
        elif not into:
            what = f"{name} cannot connect to the control port of {listed(out_of)}"
        else:
            what = f"no connection works between {name} and {listed([*into, *out_of])}"
        mend = f"check the links towards {name}, its address in the topology, and firewalls"
        yield Finding("error", "reachability", name, f"{what}: {failed[0].cause}", mend)


def _queue(core: Core, evidence: Evidence, now: int) -> Iterator[Finding]:
    reasons: Counter[str] = Counter()
    for path_id in core.queue:
        path = core.paths[path_id]
        if now - path.waiting_since > WAIT_LONG_NS:
            reasons[path.reason] += 1
    for reason, count in reasons.most_common(5):
        what = f"{count} requests wait longer than {seconds(WAIT_LONG_NS)}: {reason}"
        yield Finding("note", "queue", "queue", what, "the reason says what has to become free, or be mended")


_CHECKS: tuple[Check, ...] = (
    _switches,
    _ocs,
    _dark,
    _light,
    _ports,
    _links,
    _cabling,
    _rules,
    _capabilities,
    _agents,
    _versions,
    _certificates,
    _queue,
)
