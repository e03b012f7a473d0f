"""What a schema cannot say about a topology: that its parts fit together. Each check yields (place, sentence)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from rostrum.topologies.model import End, Ocs, Topology
from rostrum.topologies.problems import Place, did_you_mean, place_text

Finding = tuple[Place, str]
P4_PORT_MAX = 509
P4_CPU_PORT = 510  # to and from the manager
ETHERNET_BITS = 23  # of a group's IPv4 address, as many are in its Ethernet address


def all_of(topology: Topology) -> Iterator[Finding]:
    """Every contradiction in the topology."""
    yield from names(topology)
    yield from shared_devices(topology)
    yield from p4_targets(topology)
    yield from plain_switches(topology)
    yield from networks(topology)
    yield from addresses(topology)
    yield from links(topology)
    yield from servers_switches(topology)
    yield from packet_network(topology)
    yield from sites(topology)
    yield from tenants(topology)
    yield from regions(topology)
    yield from manager_ports(topology)
    for ocs in topology.ocs.values():
        yield from fibres(ocs, topology)
        yield from optics(ocs)
    yield from emulation(topology)


def names(topology: Topology) -> Iterator[Finding]:
    """A link names its ends by node alone, so a name must mean one thing."""
    kinds: dict[str, Mapping[str, object]] = {
        "switches": topology.switches,
        "servers": topology.servers,
        "ocs": topology.ocs,
    }
    first: dict[str, str] = {}
    for kind, nodes in kinds.items():
        for name in nodes:
            if name in first:
                yield (kind, name), f"{name} is also in {first[name]}; rename one"
            first.setdefault(name, kind)


def shared_devices(topology: Topology) -> Iterator[Finding]:
    """Logical switches with the same dpid are parts of one device: each port is one's, and all are treated alike."""
    ports: dict[tuple[int, int], str] = {}
    for switch in topology.switches.values():
        if switch.dpid == 0:
            continue
        for port in sorted(switch.neighbours):
            if (other := ports.setdefault((switch.dpid, port), switch.name)) != switch.name:
                yield (
                    ("switches", switch.name, "dpid"),
                    f"dpid {switch.dpid} is that of {other} too, and both have port {port}: give each switch its own "
                    "dpid, or, if they are parts of one device, ports of their own",
                )
                break
        first = topology.switches[topology.sharing(switch.name)[0]]
        if (switch.coexist, switch.queue) != (first.coexist, first.queue):
            yield ("switches", switch.name), f"is one device with {first.name}: write the same coexist and queue"


def p4_targets(topology: Topology) -> Iterator[Finding]:
    """A P4Runtime server may serve several devices, but not one as two switches; port numbers have nine bits."""
    seen: dict[tuple[IPv4Address, int, int], str] = {}
    for switch in topology.switches.values():
        if switch.p4 is None:
            continue
        place: Place = ("switches", switch.name, "p4runtime")
        key = (switch.p4.address, switch.p4.port, switch.p4.device_id)
        if key in seen:
            yield place, f"device {key[2]} at {key[0]}:{key[1]} is {seen[key]} already; give each switch its own"
        seen.setdefault(key, switch.name)
        high = max(switch.neighbours, default=0)
        if high > P4_PORT_MAX:
            yield place, f"port {high} of {switch.name}: the P4 program knows ports 1 to {P4_PORT_MAX}"


def is_plain(topology: Topology) -> bool:
    """Nobody drives its switches; data and management may be one network."""
    return any(switch.southbound == "none" for switch in topology.switches.values())


def plain_switches(topology: Topology) -> Iterator[Finding]:
    if not is_plain(topology):
        return
    for switch in topology.switches.values():
        if switch.southbound != "none":
            yield (
                ("switches", switch.name, "southbound"),
                f"is {switch.southbound}, and another switch's is none: all are driven, or none is",
            )
    for ocs in topology.ocs.values():
        yield ("ocs", ocs.name), "circuits need switches that are driven: no switch may have southbound: none"


def networks(topology: Topology) -> Iterator[Finding]:
    named = [("data", topology.data), ("management", topology.management), ("multicast", topology.multicast)]
    anything = IPv4Network("0.0.0.0/0")  # the loader's stand-in for what did not parse: already reported
    for index, (name, network) in enumerate(named):
        for other_name, other in named[:index]:
            one_network = is_plain(topology) and {name, other_name} == {"data", "management"} and network == other
            if anything not in (network, other) and network.overlaps(other) and not one_network:
                yield ("network", name), f"{network} overlaps the {other_name} network {other}; choose another"
    multicast = topology.multicast
    if multicast != anything and not multicast.is_multicast:
        yield (
            ("network", "multicast"),
            f"{multicast} is not multicast; choose from 224.0.0.0/4, for example 239.192.0.0/16",
        )
    elif multicast.overlaps(IPv4Network("224.0.0.0/24")) and multicast != anything:
        yield (
            ("network", "multicast"),
            f"{multicast} holds 224.0.0.0/24, reserved for routing protocols; choose 239.192.0.0/16",
        )
    elif multicast != anything and int(multicast.network_address) % (1 << ETHERNET_BITS) < 1 << 8:
        yield (
            ("network", "multicast"),
            f"{multicast} has groups with the Ethernet addresses of 224.0.0.x (01:00:5e:00:00:xx), which switches send "
            "to every port, snooping or not; choose 239.192.0.0/16",
        )


def addresses(topology: Topology) -> Iterator[Finding]:
    """Every address inside its network, and none twice."""
    rows: list[tuple[Place, IPv4Address, str, IPv4Network]] = []
    management = ("management", topology.management)
    for server in topology.servers.values():
        rows.append((("servers", server.name, "address"), server.address, "data", topology.data))
        rows.append((("servers", server.name, "management"), server.management, *management))
    rows.append((("manager", "address"), topology.manager.address, *management))
    for number, address in enumerate(topology.manager.standbys):
        rows.append((("manager", "standbys", number), address, *management))
    rows += [(("ocs", ocs.name, "address"), ocs.address, *management) for ocs in topology.ocs.values()]
    seen: dict[IPv4Address, Place] = {}
    plain = is_plain(topology)
    for place, address, network_name, network in rows:
        if address == IPv4Address(0):
            continue
        if address not in network:
            yield (
                place,
                f"{address} is outside the {network_name} network {network}; change it or network.{network_name}",
            )
        elif address in (network.network_address, network.broadcast_address) and network.prefixlen < 31:
            yield place, f"{address} is the network or broadcast address of {network}; choose another"
        # a server's own two, and a manager that runs on a server
        both = plain and (seen.get(address, ())[:2] == place[:2] or place[0] == "manager")
        if address in seen and not both:
            yield place, f"{address} is already that of {place_text(seen[address])}; each needs its own"
        seen.setdefault(address, place)


def links(topology: Topology) -> Iterator[Finding]:
    nodes = {*topology.switches, *topology.servers, *topology.ocs}
    used: dict[End, Place] = {}
    for index, link in enumerate(topology.links):
        for side, end in (("a", link.a), ("b", link.b)):
            place: Place = ("links", index, side)
            if end.node not in nodes:
                yield place, f"no node is called {end.node}{did_you_mean(end.node, nodes)}"
                continue
            if end.node in topology.ocs and end.port > topology.ocs[end.node].ports:
                yield place, f"{end.node} has ports 1 to {topology.ocs[end.node].ports}, not {end.port}"
            if end in used and end.port >= 0:
                what = end.node if end.node in topology.servers else f"{end.node}:{end.port}"
                yield place, f"{what} is already used by {place_text(used[end])}; a port takes one link"
            used.setdefault(end, place)
        if link.a.node == link.b.node:
            yield ("links", index), f"joins {link.a.node} with itself; remove it"
            continue
        yield from _kinds(index, link.a.node, link.b.node, topology)


def _kinds(index: int, a: str, b: str, topology: Topology) -> Iterator[Finding]:
    """A server is joined to a ToR, the OCS to ToRs."""
    for own, far in ((a, b), (b, a)):
        switch = topology.switches.get(far)
        known = switch is not None or far in topology.servers or far in topology.ocs
        if own in topology.servers and known and (switch is None or switch.role != "tor"):
            yield ("links", index), f"joins the server {own} to {far}; a server is joined to a ToR switch"
        elif own in topology.ocs and known and far not in topology.servers and (switch is None or switch.role != "tor"):
            yield ("links", index), f"joins {own} to {far}; an OCS port is joined to a ToR switch"


def servers_switches(topology: Topology) -> Iterator[Finding]:
    """A software switch on a server has that server, and no other, at one of its ports."""
    first: dict[str, str] = {}
    for switch in topology.switches.values():
        place: Place = ("switches", switch.name, "server")
        if not switch.server:
            continue
        if switch.server not in topology.servers:
            yield place, f"no server is called {switch.server}{did_you_mean(switch.server, topology.servers)}"
            continue
        attached = sorted({end.node for end in switch.neighbours.values() if end.node in topology.servers})
        if attached != [switch.server]:
            what = f"servers at its ports are {', '.join(attached)}" if attached else "no server is at its ports"
            yield place, f"{switch.name} is on {switch.server}, but {what}; link it to {switch.server} alone"
        if switch.server in first:
            yield place, f"{switch.server} has the switch {first[switch.server]} already; a server has one"
        first.setdefault(switch.server, switch.name)


def packet_network(topology: Topology) -> Iterator[Finding]:
    """Control channels and packet paths need every ToR of a site to reach every other one without the OCS. Between
    sites there may be anything that carries unicast.
    """
    groups = [site.servers for site in topology.sites.values()] or [tuple(topology.servers)]
    for names_ in groups:
        servers = [topology.servers[name] for name in names_ if name in topology.servers]
        yield from _reach_each_other(sorted({one.tor for one in servers} & set(topology.switches)), topology)


def _reach_each_other(tors: list[str], topology: Topology) -> Iterator[Finding]:
    if not tors:
        return
    reached, todo = {tors[0]}, [tors[0]]
    while todo:
        for far in topology.switches[todo.pop()].neighbours.values():
            if far.node in topology.switches and far.node not in reached:
                reached.add(far.node)
                todo.append(far.node)
    for tor in tors:
        if tor not in reached:
            yield ("switches", tor), f"no way from {tor} to {tors[0]} through packet switches; link it to the core"


def sites(topology: Topology) -> Iterator[Finding]:
    """Every server is in one site, each relay in its own, and each site is reached."""
    known, first = topology.sites, dict[str, str]()
    for site in known.values():
        for index, name in enumerate(site.servers):
            place: Place = ("sites", site.name, "servers", index)
            if name not in topology.servers:
                yield place, f"no server is called {name}{did_you_mean(name, topology.servers)}"
            elif name in first:
                yield place, f"{name} is in site {first[name]} already; a server is in one"
            first.setdefault(name, site.name)
        for index, name in enumerate(site.relays):
            if name not in site.servers:
                yield (
                    ("sites", site.name, "relays", index),
                    f"{name} is no server of site {site.name}{did_you_mean(name, site.servers)}",
                )
        for name in site.outside:
            if name not in site.servers:
                yield ("sites", site.name, "outside", name), f"{name} is no server of site {site.name}"
        yield from _reached(site.name, topology)
    missing = [name for name in topology.servers if name not in first] if known else []
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        yield ("sites",), f"{', '.join(missing[:4])}{more} in no site; where there are sites, every server is in one"
    racks: dict[str, str] = {}
    for name, site_name in first.items():
        server = topology.servers.get(name)
        other = racks.setdefault(server.tor, site_name) if server else site_name
        if server and other != site_name:
            yield (
                ("sites", site_name, "servers"),
                f"{name} is at {server.tor}, which is in site {other}; a rack is in one site",
            )


def tenants(topology: Topology) -> Iterator[Finding]:
    """Every server is in one, and a group's name is one's."""
    first: dict[str, str] = {}
    for tenant in topology.tenants.values():
        for index, name in enumerate(tenant.servers):
            place: Place = ("tenants", tenant.name, "servers", index)
            if name not in topology.servers:
                yield place, f"no server is called {name}{did_you_mean(name, topology.servers)}"
            elif name in first:
                yield place, f"{name} is in tenant {first[name]} already; a server is in one"
            first.setdefault(name, tenant.name)
    missing = [name for name in topology.servers if name not in first] if topology.tenants else []
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        yield (
            ("tenants",),
            f"{', '.join(missing[:4])}{more} in no tenant; where there are tenants, every server is in one",
        )
    named: list[tuple[str, str]] = []
    for tenant in topology.tenants.values():
        for index, group in enumerate(tenant.groups):
            other = next((name for name, has in named if name != tenant.name and _both(has, group)), "")
            if other:
                yield ("tenants", tenant.name, "groups", index), f"{group} is also tenant {other}'s; keep it in one"
            named.append((tenant.name, group))


def regions(topology: Topology) -> Iterator[Finding]:
    """A group's name is in one set."""
    named: list[tuple[int, str]] = []
    for number, names in enumerate(topology.regions):
        for index, group in enumerate(names):
            other = next((one for place, one in named if place != number and _both(one, group)), "")
            if other:
                yield ("regions", number, index), f"{group} is in another set, too, by {other}; make them one"
            named.append((number, group))


def _both(a: str, b: str) -> bool:
    """Whether a name can match both."""
    if a.endswith("*") and b.endswith("*"):
        return a.startswith(b[:-1]) or b.startswith(a[:-1])
    if a.endswith("*"):
        return b.startswith(a[:-1])
    return a.startswith(b[:-1]) if b.endswith("*") else a == b


def _reached(name: str, topology: Topology) -> Iterator[Finding]:
    """By going back along `via` from each site one comes to one that is reached directly."""
    place: Place = ("sites", name, "via")
    seen, at = {name}, topology.sites[name].via
    if at and at not in topology.sites:
        yield place, f"no site is called {at}{did_you_mean(at, topology.sites)}"
    while at in topology.sites:
        if at in seen:
            yield place, f"goes in a circle through {at}; one site of it must be reached directly"
            return
        seen.add(at)
        at = topology.sites[at].via


def manager_ports(topology: Topology) -> Iterator[Finding]:
    manager, seen = topology.manager, dict[int, str]()
    for name in ("openflow_port", "thrift_port", "rest_port"):
        port = getattr(manager, name)
        if port in seen:
            yield ("manager", name), f"port {port} is already {seen[port]}; choose another"
        seen.setdefault(port, name)


def fibres(ocs: Ocs, topology: Topology) -> Iterator[Finding]:
    """Port n has an input fibre n and an output fibre n; each is plugged into one thing at most."""
    inputs: dict[int, str] = {port: f"the link to {far.node}" for port, far in ocs.attached.items()}
    outputs = dict(inputs)
    for splitter in ocs.splitters.values():
        place: Place = ("ocs", ocs.name, "splitters", splitter.name)
        if len(splitter.outputs) != splitter.fanout:
            yield (
                (*place, "outputs"),
                f"names {len(splitter.outputs)} OCS inputs, but the fanout is {splitter.fanout}; make them equal",
            )
        plugs = [((*place, "input"), splitter.input, outputs, "output")]
        plugs += [((*place, "outputs", i), port, inputs, "input") for i, port in enumerate(splitter.outputs)]
        for where, port, taken, kind in plugs:
            if port > ocs.ports:
                yield where, f"{ocs.name} has ports 1 to {ocs.ports}, not {port}"
            elif port in taken:
                yield (
                    where,
                    f"{kind} fibre {port} of {ocs.name} is already used by {taken[port]}; a fibre goes to one place",
                )
            taken.setdefault(port, f"splitter {splitter.name}")


def optics(ocs: Ocs) -> Iterator[Finding]:
    light, place = ocs.light, ("ocs", ocs.name)
    if light.transmit_dbm - light.cross_connect_loss_db < light.sensitivity_dbm:
        yield (
            (*place, "light"),
            f"not even one cross-connect gives light: {light.transmit_dbm} dBm - {light.cross_connect_loss_db} dB is "
            f"below the sensitivity of {light.sensitivity_dbm} dBm",
        )
    for splitter in ocs.splitters.values():
        least = 10 * math.log10(splitter.fanout)
        if splitter.loss_db < least - 0.05:
            yield (
                (*place, "splitters", splitter.name, "loss_db"),
                f"{splitter.loss_db} dB: dividing light {splitter.fanout} ways costs at least {least:.1f} dB",
            )


def emulation(topology: Topology) -> Iterator[Finding]:
    reconfiguration, place = topology.emulation.reconfiguration, ("emulation", "reconfiguration", "spread_ms")
    least_s = reconfiguration.mean_s
    if reconfiguration.distribution == "fixed" and reconfiguration.spread_s:
        yield place, "a fixed distribution has no spread; leave it out, or say distribution: uniform or normal"
    if reconfiguration.distribution == "uniform":
        least_s -= reconfiguration.spread_s
        if least_s < 0:
            yield place, "larger than mean_ms: a reconfiguration cannot take less than no time"
    if topology.emulation.ringing_s > reconfiguration.mean_s:
        yield (
            ("emulation", "ringing", "duration_ms"),
            "longer than the whole reconfiguration, whose last part it is; make it shorter",
        )
