"""OpenFlow 1.3 switches behind `api.SwitchFabric`. asyncio owns everything here; os-ken works in `openflow_thread`."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from rostrum.controller.core.model import (
    MulticastRule,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    UnicastRule,
)
from rostrum.controller.core.requests.validation import servers_by_address
from rostrum.controller.keyvalue import Sparing
from rostrum.controller.runtime.run_clock import Within
from rostrum.controller.southbound.api import OnPort, OnSighting, OnSwitchDown, OnSwitchUp, by_switch, together
from rostrum.controller.southbound.discovery import Discovery, Frames
from rostrum.controller.southbound.openflow import discovery as openflow_discovery
from rostrum.controller.southbound.openflow import messages
from rostrum.controller.southbound.openflow.thread import Connection, OpenFlowThread
from rostrum.controller.southbound.tls import TlsDoor
from rostrum.topologies.model import Switch, Topology

log = logging.getLogger(__name__)

CONFIRM_S = 3.0  # a switch confirms with a barrier within this, or the call fails
ECHO_INTERVAL_S = 1.0
ECHO_MISSES = 3  # unanswered echo requests in a row before the switch counts as dead
STRANGERS_LINES = (20, 10.0)  # in so many seconds, about connections that were no switch of ours
MAX_DESCRIPTIONS = 100_000  # entries of one flow or group table we are willing to hold


@dataclass
class _Waiting:
    """Messages sent together; done with the barrier's reply, or the last part of a description."""

    done: asyncio.Future[None]
    errors: list[str] = field(default_factory=list)
    body: list[Any] = field(default_factory=list)
    xids: tuple[int, ...] = ()


class _SwitchLink:
    """A live switch: asks and awaits its answers, by xid."""

    def __init__(self, switch: Switch, connection: Connection) -> None:
        self.switch = switch
        self.connection = connection
        self.up = False
        self.groups: set[int] = set()  # ours, on the switch
        self.lock = asyncio.Lock()  # one change at a time: `groups` says what exists
        self.keeper: asyncio.Task[None] | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._unanswered = 0

    async def transact(self, batch: Sequence[Any], what: str) -> None:
        """Send messages and a barrier; return when the switch has confirmed all. Raises SouthboundError."""
        parser = self.connection.ofproto_parser
        await self._exchange([*batch, parser.OFPBarrierRequest(self.connection)], what)

    async def describe(self, request: Any, what: str) -> list[Any]:
        """Ask for a table; return its entries. Raises SouthboundError."""
        return (await self._exchange([request], what)).body

    async def _exchange(self, batch: Sequence[Any], what: str) -> _Waiting:
        for message in batch:
            self.connection.set_xid(message)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), xids=tuple(m.xid for m in batch))
        self._waiting.update(dict.fromkeys(waiting.xids, waiting))
        try:
            if not self.connection.send(messages.serialize(batch)):
                raise SouthboundError(f"{self.switch.name}: cannot {what}: {self.connection.cause}")
            async with Within(CONFIRM_S):
                await waiting.done
        except TimeoutError:
            raise SouthboundError(f"{self.switch.name} did not confirm within {CONFIRM_S:g} s: {what}") from None
        finally:
            for xid in waiting.xids:
                self._waiting.pop(xid, None)
        if waiting.errors:
            raise SouthboundError(f"{self.switch.name} refused to {what}: {'; '.join(waiting.errors)}")
        return waiting

    def receive(self, message: Any) -> None:
        """A barrier reply, an error or a part of a description."""
        waiting = self._waiting.get(message.xid)
        if waiting is None or waiting.done.done():
            return
        if message.msg_type == ofp.OFPT_ERROR:
            waiting.errors.append(messages.explain(message))
            if message.xid == waiting.xids[-1]:  # the barrier or the request itself: no reply will follow
                waiting.done.set_result(None)
            return
        body = getattr(message, "body", None)
        if body is not None:
            waiting.body.extend(body)
            if len(waiting.body) > MAX_DESCRIPTIONS:
                waiting.errors.append(f"its table has more than {MAX_DESCRIPTIONS} entries")
            elif message.flags & ofp.OFPMPF_REPLY_MORE:
                return
        waiting.done.set_result(None)

    def lose(self, cause: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(SouthboundError(f"{self.switch.name} went away: {cause}"))
        if self.keeper is not None:
            self.keeper.cancel()

    def echoed(self) -> None:
        self._unanswered = 0

    async def keep_alive(self) -> None:
        """Echo requests, so that a switch that died without a word is noticed."""
        while self._unanswered < ECHO_MISSES:
            self._unanswered += 1
            request = self.connection.ofproto_parser.OFPEchoRequest(self.connection)
            self.connection.set_xid(request)
            self.connection.send(messages.serialize([request]))
            await asyncio.sleep(ECHO_INTERVAL_S)
        self.connection.drop(f"it did not answer {ECHO_MISSES} echo requests in {ECHO_MISSES * ECHO_INTERVAL_S:g} s")


class OpenFlowFabric:
    """The OpenFlow switches of a topology. Implements `api.SwitchFabric`.

    `on_switch_up(name)` when a switch of the topology has connected and been read, `on_switch_down(name, cause)` when
    it is gone, `on_port(name, port, up)` when one of its ports changes.
    """

    def __init__(
        self,
        topology: Topology,
        on_switch_up: OnSwitchUp,
        on_switch_down: OnSwitchDown,
        on_port: OnPort | None = None,
        on_sighting: OnSighting | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        discovery_key: bytes = b"",
    ) -> None:
        self._by_dpid = {s.dpid: s for s in topology.switches.values() if s.southbound == "openflow"}
        self._names = {s.name for s in self._by_dpid.values()}
        self._servers_at = servers_by_address(topology)
        self._on_switch_up = on_switch_up
        self._on_switch_down = on_switch_down
        self._on_port = on_port
        self._discovery = (
            Discovery(topology, discovery_key, self._connections, self._send_frames, on_sighting)
            if on_sighting is not None
            else None
        )
        self._links: dict[str, _SwitchLink] = {}
        self._by_connection: dict[Connection, _SwitchLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: OpenFlowThread | None = None
        self._strangers = Sparing(*STRANGERS_LINES)
        self._tls = tls
        self._door: TlsDoor | None = None
        self._term: int | None = None  # of several managers: this one's, by which switches know the latest leader
        self._leads = True
        self.port = 0  # the port listened on, once started

    async def start(self, host: str, port: int) -> None:
        if self._thread is None:
            await self._listen(host, port)
        for link in self._links.values():  # those that came while it stood by
            self._spawn(self._greet(link))
        if self._discovery:
            self._discovery.start()

    async def stand_by(self, host: str, port: int) -> None:
        """As `start`, but switches are left to another manager until `lead` and `start`."""
        self._leads = False
        await self._listen(host, port)

    def follow(self, term: int) -> None:
        """While it stands by: the leader's term."""
        self._term = term
        for link in self._links.values():
            self._spawn(self._greet(link))

    def lead(self, term: int) -> None:
        """Switches shall obey this manager (role MASTER) unless they know of a higher term. Before `start`."""
        self._term, self._leads = term, True

    async def _listen(self, host: str, port: int) -> None:
        self._thread = OpenFlowThread(asyncio.get_running_loop(), self._ready, self._message, self._gone)
        if self._tls:
            self._door = TlsDoor(self._tls, self._thread.start("127.0.0.1", 0))
            self.port = await self._door.start(host, port)
        else:
            self.port = self._thread.start(host, port)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if self._discovery:
            self._discovery.close()
        if self._door:
            await self._door.close()
        if thread is not None:
            await asyncio.to_thread(thread.stop)
        for link in list(self._by_connection.values()):
            self._gone(link.connection, "the manager is closing")
        for task in self._tasks:
            task.cancel()

    @property
    def up(self) -> set[str]:
        """Names of the switches that are connected and ready."""
        return {name for name, link in self._links.items() if link.up}

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await self._on_each(rules, self._install)

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await self._on_each(rules, self._remove)

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        """As `api.SwitchFabric`; the rules given are all there shall be on each of their switches: stale ones go."""
        await self._on_each(rules, self._install_unicast)

    async def read(self, switch: str) -> set[MulticastRule]:
        link = self._link(switch)
        async with link.lock:
            return await self._read(link)

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        """Nothing to arm: OpenFlow has no way to tell of a first packet but to send it to the manager."""

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        """None: what is counted per path is read from P4 switches."""
        return []

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return None

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        if self._discovery:
            self._discovery.round(ports)

    def _connections(self) -> dict[str, Connection]:
        return {name: link.connection for name, link in self._links.items() if link.up}

    def _send_frames(self, switch: str, frames: Frames) -> None:
        connection = self._links[switch].connection
        self._send_away(switch, [openflow_discovery.packet_out(connection, port, data) for port, data in frames])

    def _send_away(self, switch: str, batch: Sequence[Any]) -> None:
        """Messages whose loss does not matter."""
        connection = self._links[switch].connection
        for message in batch:
            connection.set_xid(message)
        connection.send(messages.serialize(batch))

    async def _on_each(
        self, rules: Sequence[Any], act: Callable[[_SwitchLink, list[Any]], Coroutine[Any, Any, None]]
    ) -> None:
        """Run `act` with each switch's rules, switches in parallel; raise one error that names all that failed."""

        async def one(switch: str, own: list[Any]) -> None:
            link = self._link(switch)
            async with link.lock:
                await act(link, own)

        shares = by_switch(rules)
        if len(shares) == 1:  # as the runtime orders them
            await one(*shares.popitem())
        else:
            await together(one(switch, own) for switch, own in shares.items())

    async def _install(self, link: _SwitchLink, rules: list[MulticastRule]) -> None:
        c = link.connection
        by_group = {messages.group_id(rule): rule for rule in rules}
        _refuse_clashes(link.switch.name, by_group, rules)
        batch = [messages.set_group(c, rule, group in link.groups) for group, rule in by_group.items()]
        # A switch may reorder what no barrier separates, and a flow needs its group.
        batch.append(c.ofproto_parser.OFPBarrierRequest(c))
        batch += [messages.add_multicast_flow(c, rule) for rule in by_group.values()]
        try:
            await link.transact(batch, f"install {_say(by_group.values())}")
            link.groups |= by_group.keys()
        except SouthboundError:
            await self._relearn_groups(link)
            raise

    async def _remove(self, link: _SwitchLink, rules: list[MulticastRule]) -> None:
        c = link.connection
        groups = {messages.group_id(rule) for rule in rules}
        batch = [messages.delete_multicast_flow(c, rule) for rule in rules]
        batch.append(c.ofproto_parser.OFPBarrierRequest(c))
        batch += [messages.delete_group(c, group) for group in sorted(groups)]
        try:
            await link.transact(batch, f"remove {_say(rules)}")
            link.groups -= groups
        except SouthboundError:
            await self._relearn_groups(link)
            raise

    async def _install_unicast(self, link: _SwitchLink, rules: list[UnicastRule]) -> None:
        c = link.connection
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_UNICAST), "describe its unicast flows")
        stale = messages.unicast_addresses(flows) - {rule.address for rule in rules}
        batch = [messages.drop_the_rest(c)]
        batch += [m for address in sorted(stale) for m in messages.delete_unicast_flows(c, address)]
        batch += [m for rule in rules for m in messages.add_unicast_flows(c, rule)]
        await link.transact(batch, f"install {len(rules)} unicast rules")

    async def _read(self, link: _SwitchLink) -> set[MulticastRule]:
        c = link.connection
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_MULTICAST), "describe its multicast flows")
        groups = await link.describe(messages.ask_groups(c), "describe its groups")
        link.groups = {g.group_id for g in groups if messages.is_ours(g.group_id)}
        return messages.multicast_rules(link.switch.name, flows, groups)

    async def _relearn_groups(self, link: _SwitchLink) -> None:
        """After a failed change: which groups exist is in doubt, and the next change depends on it."""
        try:
            await self._read(link)
        except SouthboundError as error:
            link.connection.drop(f"its state is in doubt: {error}")  # it will connect again and be read

    def _link(self, switch: str) -> _SwitchLink:
        link = self._links.get(switch)
        if link is None or not link.up:
            known = "is not connected" if switch in self._names else "is not an OpenFlow switch of this topology"
            raise SouthboundError(f"{switch} {known}")
        return link

    # Called on the loop by the OpenFlow thread.

    def _ready(self, connection: Connection) -> None:
        switch = self._by_dpid.get(connection.id)
        if switch is None:
            connection.drop(f"its datapath id {connection.id:#x} is not in the topology")
            return
        shown = self._door.shown(connection.address) if self._door else None
        if self._door and (shown is None or not shown.is_for("switch", switch.name)):
            connection.drop(
                f"by its datapath id it is {switch.name}, and its certificate is for {shown or 'nobody'}; give it one "
                f"with subjectAltName=DNS:{switch.name},URI:rostrum:switch:{switch.name}"
            )
            return
        owners = self._servers_at.get(str(connection.address[0])) if not self._door else None
        if owners:
            connection.drop(
                f"by its datapath id it is {switch.name}, and it comes from {connection.address[0]}, which is "
                f"{min(owners)}'s address in the topology; a switch has one of its own"
            )
            return
        if self._thread is None:
            return
        old = self._links.get(switch.name)
        if old is not None:
            old.connection.drop("it connected anew")
            self._gone(old.connection, "it connected anew")
        link = self._links[switch.name] = self._by_connection[connection] = _SwitchLink(switch, connection)
        link.keeper = asyncio.create_task(link.keep_alive())
        self._spawn(self._greet(link))

    async def _greet(self, link: _SwitchLink) -> None:
        """Learn what is on a new switch, drop groups of ours that no flow uses (left by a crash), and report it up."""
        try:
            async with link.lock:
                await self._claim(link)
                if not self._leads:
                    return
                rules = await self._read(link)
                orphans = link.groups - {messages.group_id(rule) for rule in rules}
                if orphans:
                    c = link.connection
                    await link.transact([messages.delete_group(c, g) for g in sorted(orphans)], "remove unused groups")
                    link.groups -= orphans
                await self._watch_ports(link)
        except SouthboundError as error:
            log.warning("%s", error)
            link.connection.drop(str(error))
            return
        link.up = True
        self._on_switch_up(link.switch.name)

    async def _claim(self, link: _SwitchLink) -> None:
        """One of several managers: MASTER, or SLAVE of the other one. A switch refuses an older term than it knows."""
        if self._term is None:
            return
        c = link.connection
        role = ofp.OFPCR_ROLE_MASTER if self._leads else ofp.OFPCR_ROLE_SLAVE
        try:
            await link.describe(c.ofproto_parser.OFPRoleRequest(c, role, self._term), "take its role")
        except SouthboundError as error:
            if self._leads:
                raise
            log.info("%s", error)  # there is a newer leader already; it will be heard of

    async def _watch_ports(self, link: _SwitchLink) -> None:
        """Discovery frames come to us from now on; the ports that are down are told before the switch is up."""
        c, name = link.connection, link.switch.name
        if self._discovery:
            await link.transact(openflow_discovery.rules(c, self._discovery.ports(name)), "set the rules of discovery")
        if self._on_port:
            known = await link.describe(c.ofproto_parser.OFPPortDescStatsRequest(c, 0), "describe its ports")
            up = {one.port_no for one in known if _port_up(one)}
            for port in sorted(link.switch.neighbours):
                self._on_port(name, port, port in up)

    def _gone(self, connection: Connection, cause: str) -> None:
        link = self._by_connection.pop(connection, None)
        if link is None:
            left_out = self._strangers.may(time.monotonic())
            if left_out is not None:
                more = f" ({left_out} more like it were not logged)" if left_out else ""
                words = "OpenFlow from %s: ended, and was no switch in use: %s%s"
                log.warning(words, connection.address, cause or "closed", more)
            return
        link.lose(cause)
        was_up, link.up = link.up, False
        if self._links.get(link.switch.name) is link:
            del self._links[link.switch.name]
        if was_up:
            self._on_switch_down(link.switch.name, cause)

    def _message(self, connection: Connection, message: Any) -> None:
        link = self._by_connection.get(connection)
        if link is None:
            return
        if message.msg_type == ofp.OFPT_ECHO_REPLY:
            link.echoed()
        elif message.msg_type == ofp.OFPT_PORT_STATUS:
            self._port_status(link, message)
        elif message.msg_type == ofp.OFPT_PACKET_IN:
            port = message.match.get("in_port")
            if self._discovery and port is not None:
                self._discovery.packet_in(link.switch.name, int(port), message.data)
        else:
            link.receive(message)

    def _port_status(self, link: _SwitchLink, message: Any) -> None:
        if self._on_port is None or message.desc.port_no > ofp.OFPP_MAX:
            return
        up = message.reason != ofp.OFPPR_DELETE and _port_up(message.desc)
        self._on_port(link.switch.name, message.desc.port_no, up)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _port_up(description: Any) -> bool:
    return not (ofp.OFPPS_LINK_DOWN & description.state or ofp.OFPPC_PORT_DOWN & description.config)


def _say(rules: Iterable[MulticastRule]) -> str:
    groups: list[IPv4Address] = sorted({rule.group for rule in rules})
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
    return f"the multicast rules for {', '.join(map(str, groups[:3]))}{more}"


def _refuse_clashes(switch: str, by_group: dict[int, MulticastRule], rules: Sequence[MulticastRule]) -> None:
    for rule in rules:
        kept = by_group[messages.group_id(rule)]
        if kept.group != rule.group:
            raise SouthboundError(
                f"{switch}: multicast addresses {kept.group} and {rule.group} differ only above their low "
                f"{messages.GROUP_ADDRESS_BITS} bits; use a multicast network of /{32 - messages.GROUP_ADDRESS_BITS}"
            )
