"""Sends to receivers in several sites: which ways there are, and who passes the object on in each site. Pure; what is
decided here is kept by the agents that carry it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rostrum.controller.core.text import listed
from rostrum.controller.core.values import ServerAddress
from rostrum.topologies.model import Site, Topology

AHEAD = 16  # relays behind one another whose ways are told beforehand; those further on ask
NOWHERE = "0.0.0.0"  # an address that is not known, because of a translation of addresses on the way


@dataclass(frozen=True)
class Present:
    """An agent that is connected and knows sites. `relay`: it was started to be one. `address`: where its connection
    comes from. `terms`: as a relay it holds to what was asked of the send.
    """

    control_port: int
    relay: bool = False
    address: str = ""
    terms: bool = True


@dataclass(frozen=True)
class Leg:
    """One way of a send. `relay` None: the sender's own site. `origin`: the sender, as the relay reaches it. `onward`:
    the relay's own legs to the other receivers; none if it has to ask later.
    """

    site: str
    receivers: tuple[str, ...]
    reason: str
    relay: ServerAddress | None = None
    relay_dials: bool = False
    origin: ServerAddress | None = None
    onward: tuple[Leg, ...] = ()


@dataclass(frozen=True)
class Split:
    """`legs` is empty when some receivers have no way: `reason` says why, `ever` that waiting does not help."""

    legs: tuple[Leg, ...]
    reason: str = ""
    ever: bool = False


def spans(topology: Topology, sender: str, receivers: Collection[str]) -> str:
    """Names a receiver of another site than the sender's, with its site; empty if there is none."""
    if not topology.sites or sender not in topology.servers:
        return ""
    own = topology.site_of(sender)
    for name in receivers:
        if name in topology.servers and topology.site_of(name) != own:
            return f"{name} is in site {topology.site_of(name)}, {sender} in {own}"
    return ""


def split(
    topology: Topology,
    sender: str,
    receivers: Sequence[str],
    avoid: Collection[str],
    present: Mapping[str, Present],
    ahead: int = AHEAD,
    terms: bool = False,
) -> Split:
    """`receivers` are servers of the topology, which has sites. `ahead`: relays' own legs are found so deep. `terms`:
    the send has some, and its relays have to know them.
    """
    own = topology.site_of(sender)
    ways: dict[str, list[str]] = {}
    for name in receivers:
        ways.setdefault(_next_site(topology, own, topology.site_of(name)), []).append(name)
    legs = []
    for site_name, names in ways.items():
        if site_name == own:
            legs.append(Leg(own, tuple(names), ""))
            continue
        leg = _leg(topology, sender, topology.sites[site_name], names, avoid, present, ahead, terms)
        if isinstance(leg, Split):
            return leg
        legs.append(leg)
    return Split(tuple(legs))


def _next_site(topology: Topology, own: str, site: str) -> str:
    """The site whose relay the sender in `own` sends to for `site`: the first on the way from there."""
    while site != own and topology.sites[site].via not in ("", own):
        site = topology.sites[site].via
    return site


def _leg(
    topology: Topology,
    sender: str,
    site: Site,
    names: Sequence[str],
    avoid: Collection[str],
    present: Mapping[str, Present],
    ahead: int,
    terms: bool,
) -> Leg | Split:
    own = topology.sites[topology.site_of(sender)]
    if own.nat and site.nat:
        text = f"sites {own.name} and {site.name} both translate addresses, so neither reaches the other"
        return Split((), f"{text}; give one of them `via` a site that does not", ever=True)
    relay, reason = _relay(site, names, avoid, present, terms)
    if not relay:
        may = [one for one in (*site.relays, *names) if one in site.servers and one not in avoid and one != sender]
        return Split((), reason, ever=not may)
    others = [one for one in names if one != relay]
    onward = split(topology, relay, others, avoid, present, ahead - 1, terms).legs if ahead else ()
    return Leg(
        site.name,
        tuple(names),
        f"site {site.name} over the wide area by wan to relay {relay}, {reason}",
        _address(topology, site, relay, present),
        site.nat,
        ServerAddress(sender, NOWHERE, 1) if own.nat else _address(topology, own, sender, present),
        onward,
    )


def _relay(
    site: Site, names: Sequence[str], avoid: Collection[str], present: Mapping[str, Present], terms: bool
) -> tuple[str, str]:
    """Who passes the object on in that site, and why it; or nobody, and why."""
    flagged = [one for one in site.servers if one in present and present[one].relay]
    receivers = [one for one in names if one in site.servers]
    relays = list(dict.fromkeys((*site.relays, *flagged)))
    ranks = (
        (site.relays, "the first of the site's relays that is there"),
        (flagged, "which was started as one"),
        (receivers, f"a receiver, as {_why_none(relays, avoid) if relays else 'the site has no relay of its own'}"),
    )
    for ones, why in ranks:
        for one in ones:
            if one in present and one not in avoid and (present[one].terms or not terms or names == [one]):
                return one, why
    known = list(dict.fromkeys((*relays, *receivers)))
    if not known:
        return "", f"site {site.name} has no relay, and no receiver that could be one; name `relays` in the topology"
    if terms and any(one in present and one not in avoid for one in known):
        old = [one for one in known if one in present and one not in avoid]
        why = f"the release of rostrumd on {listed(old, 4)} passes nothing on with options or a policy for stragglers"
        return "", f"site {site.name} has no relay: {why}"
    return "", f"site {site.name} has no relay: {_why_none(known, avoid)}"


def _why_none(ones: Sequence[str], avoid: Collection[str]) -> str:
    """Why none of them is the relay."""
    failed = [one for one in ones if one in avoid]
    away = [one for one in ones if one not in avoid]
    parts = [f"{listed(failed, 4)} failed"] if failed else []
    if len(away) == 1:
        parts.append(f"the agent of {away[0]} is not connected, or does not know sites")
    elif away:
        parts.append(f"the agents of {listed(away, 4)} are not connected, or do not know sites")
    return ", ".join(parts)


def _address(topology: Topology, site: Site, server: str, present: Mapping[str, Present]) -> ServerAddress:
    """Where it is reached from other sites."""
    port = present[server].control_port if server in present else topology.control_port
    outside, inside = site.outside.get(server), str(topology.servers[server].address)
    if outside is not None:
        return ServerAddress(server, str(outside.address), outside.port or port)
    if site.nat:  # the manager sees it translated, unless it is within the site itself
        seen = present[server].address if server in present else ""
        return ServerAddress(server, NOWHERE if seen in ("", inside) else seen, port)
    return ServerAddress(server, inside, port)
