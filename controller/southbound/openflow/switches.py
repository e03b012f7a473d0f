"""OpenFlow 1.3 switches behind `api.SwitchFabric`. asyncio owns everything here; os-ken works in `openflow_thread`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import (
    MulticastRule,
    Remark,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.core.requests.validation import servers_by_address
from rostrum.controller.keyvalue import Sparing, SparingBySource
from rostrum.controller.runtime.run_clock import Within
from rostrum.controller.southbound.api import (
    OnPort,
    OnRulesLost,
    OnSighting,
    OnSwitchDown,
    OnSwitchUp,
    by_switch,
    together,
)
from rostrum.controller.southbound.discovery import Discovery, Frames
from rostrum.controller.southbound.openflow import capabilities, messages
from rostrum.controller.southbound.openflow import discovery as openflow_discovery
from rostrum.controller.southbound.openflow.capabilities import Capabilities
from rostrum.controller.southbound.openflow.messages import Encoding
from rostrum.controller.southbound.openflow.thread import Connection, OpenFlowThread
from rostrum.controller.southbound.tls import TlsDoor
from rostrum.topologies.model import Switch, Topology

log = logging.getLogger(__name__)

CONFIRM_S = 3.0  # a switch confirms with a barrier within this, or the call fails
ECHO_INTERVAL_S = 1.0
ECHO_MISSES = 3  # unanswered echo requests in a row before the switch counts as dead
GREETING_LINES = (5, 50, 10.0)  # of one switch, and of all, in so many seconds, that did not stay until it was read
STRANGERS_LINES = (20, 10.0)  # in so many seconds, about connections that were no switch of ours
MAX_DESCRIPTIONS = 100_000  # entries of one flow or group table we are willing to hold
LOST_PAUSE_S = (0.05, 5.0)  # from the first entry that somebody removed until it is told; doubled, if it goes on
LOST_QUIET_S = 30.0  # without a loss: the next one is the first again


class Refused(SouthboundError):
    """The switch answered with errors, of these types."""

    def __init__(self, text: str, types: set[int]) -> None:
        super().__init__(text)
        self.types = types


@dataclass
class _Waiting:
    """Messages sent together; done with the barrier's reply, or the last part of a description."""

    done: asyncio.Future[None]
    errors: list[str] = field(default_factory=list)
    types: set[int] = field(default_factory=set)  # of the errors
    body: list[Any] = field(default_factory=list)
    xids: tuple[int, ...] = ()


Key = tuple[int, int, IPv4Address]  # of a flow entry: priority, in_port, group


class _SwitchLink:
    """A live switch, or a logical one of the device behind the connection: asks and awaits its answers, by xid."""

    def __init__(self, switch: Switch, connection: Connection) -> None:
        self.switch = switch
        self.connection = connection
        self.up = False
        self.can = Capabilities()
        self.how = Encoding()
        self.groups: set[int] = set()  # ours, on the switch
        self.flows: set[Key] = set()  # our multicast entries on the switch
        self.others = 0  # entries in our table that are none of these
        self.lost = 0  # entries of ours that somebody else removed
        self.lost_at = 0.0
        self.lost_pause_s = LOST_PAUSE_S[0]
        self.lost_timer: asyncio.TimerHandle | None = None
        self.refused_groups = ""  # what it said when it took no group
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
            errors = list(dict.fromkeys(waiting.errors))[:4]  # one for each entry of a full table
            raise Refused(f"{self.switch.name} refused to {what}: {'; '.join(errors)}", waiting.types)
        return waiting

    async def ask(self, request: Any, what: str) -> Any:
        """As `describe`, of a switch that need not answer this: None if it does not."""
        try:
            return await self.describe(request, what)
        except Refused as error:
            log.info("%s", error)
            return None

    def is_in(self, port: int) -> bool:
        """Whether packets of this port, of the device, are this switch's."""
        return not self.how.ports or port in self.how.ports

    def receive(self, message: Any) -> None:
        """A barrier reply, an error or a part of a description, if it is an answer to this link."""
        waiting = self._waiting.get(message.xid)
        if waiting is None or waiting.done.done():
            return
        if message.msg_type == ofp.OFPT_ERROR:
            waiting.errors.append(messages.explain(message))
            waiting.types.add(message.type)
            if message.xid == waiting.xids[-1]:  # the barrier or the request itself: no reply will follow
                waiting.done.set_result(None)
            return
        body = getattr(message, "body", None)
        if body is not None:
            waiting.body.extend(body if isinstance(body, list) else [body])
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
        if self.lost_timer is not None:
            self.lost_timer.cancel()

    def echoed(self) -> None:
        self._unanswered = 0

    async def keep_alive(self) -> None:
        """Echo requests, so that a switch that died without a message is noticed."""
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
    it is gone, `on_port(name, port, up)` when one of its ports changes, `on_lost(name, entries)` when somebody else
    removed entries of ours.

    Logical switches with one dpid share a connection. On a switch with `coexist` there is another controller: we take
    no role, send nothing out of its ports, and neither unicast nor table-miss entries nor groups are ours.
    """

    def __init__(
        self,
        topology: Topology,
        on_switch_up: OnSwitchUp,
        on_switch_down: OnSwitchDown,
        on_port: OnPort | None = None,
        on_sighting: OnSighting | None = None,
        tls: Trust | None = None,
        *,
        discovery_key: bytes = b"",
        on_lost: OnRulesLost | None = None,
    ) -> None:
        ours = [s for s in topology.switches.values() if s.southbound == "openflow"]
        self._topology = topology
        self._by_dpid = {s.dpid: [topology.switches[name] for name in topology.sharing(s.name)] for s in ours}
        self._names = {s.name for s in ours}
        self._on_lost = on_lost
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
        self._by_connection: dict[Connection, list[_SwitchLink]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: OpenFlowThread | None = None
        self._strangers = Sparing(*STRANGERS_LINES)
        self._greetings = SparingBySource(*GREETING_LINES)
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
        for connection in list(self._by_connection):
            self._gone(connection, "the manager is closing")
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
        parts = await together(self._count(self._link(name), own) for name, own in by_switch(rules).items())
        return [one for part in parts for one in part]

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return None

    def facts(self, switch: str) -> SwitchFacts | None:
        link = self._links.get(switch)
        if link is None or not link.up:
            return None
        found = capabilities.facts(link.switch, link.can, link.how, link.others + len(link.flows))
        more = []
        if link.refused_groups:
            text = f"{switch} takes no group table entries: {link.refused_groups}; action lists are used instead"
            more.append(Remark("note", text, "none needed; see its manual for the bounds of its group table"))
        if link.lost:
            ago = time.monotonic() - link.lost_at
            text = f"somebody else removed {link.lost} entries of ours from {switch}, last {ago:.0f} s ago; set again"
            mend = "find out who: another controller that starts clears the whole table, which passes by itself"
            more.append(Remark("note" if link.switch.coexist else "warning", text, mend))
        return replace(found, remarks=(*found.remarks, *more))

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        if self._discovery:
            self._discovery.round(ports)

    def _connections(self) -> dict[str, Connection]:
        return {name: link.connection for name, link in self._links.items() if link.up and not link.switch.coexist}

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
        by_group = {messages.group_id(rule): rule for rule in rules}
        _refuse_clashes(link.switch.name, by_group, rules)
        new = {key for rule in by_group.values() for key in messages.flow_keys(rule, link.how)} - link.flows
        await self._check_room(link, len(new))
        try:
            try:
                await self._write(link, list(by_group.values()))
            except Refused as error:
                if ofp.OFPET_GROUP_MOD_FAILED not in error.types or not (link.how.groups or link.how.failover):
                    raise
                link.refused_groups = str(error)
                log.warning("%s; its outputs are written as action lists from now on", error)
                link.how = replace(link.how, groups=False, failover=False)
                await self._read(link)
                await self._write(link, list(by_group.values()))
        except SouthboundError:
            await self._relearn(link)
            raise

    async def _write(self, link: _SwitchLink, rules: Sequence[MulticastRule]) -> None:
        c, how = link.connection, link.how
        room = link.can.groups_most - len(link.groups) if link.can.groups_most else len(rules)
        groups: list[Any] = []
        added: set[int] = set()
        flows: list[Any] = []
        without: set[int] = set()  # groups of earlier versions of these rules, which need none now
        for rule in rules:
            group, own = messages.group_id(rule), how
            if how.failover:
                for port, backup in rule.backups:
                    if (one := messages.failover_id(port, backup)) not in link.groups | added:
                        groups.append(messages.set_failover(c, port, backup))
                        added.add(one)
            if how.uses_group(rule) and group not in link.groups and len(added) >= room:
                own = replace(how, groups=False)  # its group table is full
            if own.uses_group(rule):
                groups.append(messages.set_group(c, rule, group in link.groups))
                added.add(group)
            elif group in link.groups:
                without.add(group)
            flows += messages.add_multicast_flows(c, rule, own)
        # A switch may reorder what no barrier separates, and a flow needs its group.
        batch = [*groups, c.ofproto_parser.OFPBarrierRequest(c)] if groups else []
        batch += flows
        if without:
            batch += [
                c.ofproto_parser.OFPBarrierRequest(c),
                *(messages.delete_group(c, one) for one in sorted(without)),
            ]
        link.flows |= {key for rule in rules for key in messages.flow_keys(rule, how)}
        await link.transact(batch, f"install {_say(rules)}")
        link.groups |= added
        link.groups -= without

    async def _check_room(self, link: _SwitchLink, new: int) -> None:
        """Raises SouthboundError rather than send what its table has no room for."""
        most = link.can.entries
        if not most or link.others + len(link.flows) + new <= most:
            return
        await self._count_others(link)  # others' may have gone
        if (used := link.others + len(link.flows)) + new > most:
            table = f"table {link.how.table} of {link.switch.name}"
            raise SouthboundError(f"{table} is full: it holds {used} of {most} entries, and {new} more are needed")

    async def _count_others(self, link: _SwitchLink) -> None:
        c = link.connection
        counts = await link.ask(c.ofproto_parser.OFPTableStatsRequest(c, 0), "count its entries") or ()
        active = next((int(one.active_count) for one in counts if one.table_id == link.how.table), 0)
        link.others = max(0, active - len(link.flows))

    async def _remove(self, link: _SwitchLink, rules: list[MulticastRule]) -> None:
        c = link.connection
        groups = {messages.group_id(rule) for rule in rules} & link.groups
        link.flows -= {key for rule in rules for key in messages.flow_keys(rule, link.how)}
        batch = [m for rule in rules for m in messages.delete_multicast_flows(c, rule, link.how)]
        if groups:
            batch.append(c.ofproto_parser.OFPBarrierRequest(c))
            batch += [messages.delete_group(c, group) for group in sorted(groups)]
        try:
            await link.transact(batch, f"remove {_say(rules)}")
            link.groups -= groups
        except SouthboundError:
            await self._relearn(link)
            raise

    async def _install_unicast(self, link: _SwitchLink, rules: list[UnicastRule]) -> None:
        if link.switch.coexist:
            return  # the other controller's business
        c, how = link.connection, link.how
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_UNICAST), "describe its unicast flows")
        stale = messages.unicast_addresses(flows, how) - {rule.address for rule in rules}
        batch = [messages.drop_the_rest(c)]
        batch += [m for address in sorted(stale) for m in messages.delete_unicast_flows(c, address, how)]
        batch += [m for rule in rules for m in messages.add_unicast_flows(c, rule, how)]
        await link.transact(batch, f"install {len(rules)} unicast rules")
        await self._count_others(link)

    async def _read(self, link: _SwitchLink) -> set[MulticastRule]:
        c, how = link.connection, link.how
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_MULTICAST), "describe its multicast flows")
        flows = [flow for flow in flows if link.is_in(flow.match.get("in_port", 0))]
        groups = () if link.switch.coexist else await link.ask(messages.ask_groups(c), "describe its groups") or ()
        link.groups = {
            g.group_id
            for g in groups
            if messages.is_ours(g.group_id) and link.is_in(messages.port_of_group(g.group_id))
        }
        link.flows = {key for flow in flows if (key := messages.removed_key(flow)) is not None}
        return messages.multicast_rules(link.switch.name, flows, groups, how)

    async def _count(self, link: _SwitchLink, rules: list[MulticastRule]) -> list[RuleCounters]:
        c = link.connection
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_MULTICAST), "count packets")
        groups = await link.ask(messages.ask_group_counters(c), "count copies") if link.groups else ()
        return messages.counters(rules, flows, groups or (), link.how)

    async def _relearn(self, link: _SwitchLink) -> None:
        """After a failed change: what exists is in doubt, and the next change depends on it."""
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
        device = self._by_dpid.get(connection.id)
        if device is None:
            connection.drop(f"its datapath id {connection.id:#x} is not in the topology")
            return
        first = device[0]
        shown = self._door.shown(connection.address) if self._door else None
        if self._door and (shown is None or not any(shown.is_for("switch", one.name) for one in device)):
            connection.drop(
                f"by its datapath id it is {first.name}, and its certificate is for {shown or 'nobody'}; give it one "
                f"with subjectAltName=DNS:{first.name},URI:rostrum:switch:{first.name}"
            )
            return
        owners = self._servers_at.get(str(connection.address[0])) if not self._door else None
        if owners:
            connection.drop(
                f"by its datapath id it is {first.name}, and it comes from {connection.address[0]}, which is "
                f"{min(owners)}'s address in the topology; a switch has one of its own"
            )
            return
        if self._thread is None:
            return
        old = self._links.get(first.name)
        if old is not None:
            old.connection.drop("it connected again")
            self._gone(old.connection, "it connected again")
        links = self._by_connection[connection] = [_SwitchLink(switch, connection) for switch in device]
        self._links.update({link.switch.name: link for link in links})
        links[0].keeper = asyncio.create_task(links[0].keep_alive())
        self._spawn(self._greet_all(links))

    async def _greet_all(self, links: Sequence[_SwitchLink]) -> None:
        for link in links:
            await self._greet(link)

    async def _greet(self, link: _SwitchLink) -> None:
        """Learn what a new switch can do and has on it, drop entries and groups of ours that an earlier configuration
        or a crash left, and report it up."""
        try:
            async with link.lock:
                await self._claim(link)
                if not self._leads:
                    return
                await self._learn(link)
                await self._drop_leftovers(link)
                await self._count_others(link)
                await self._watch_ports(link)
        except SouthboundError as error:
            left_out = self._greetings.may(link.switch.name, time.monotonic())
            if left_out is not None:
                log.warning("%s%s", error, f" ({left_out} more like it were not logged)" if left_out else "")
            link.connection.drop(str(error))
            return
        link.up = True
        self._on_switch_up(link.switch.name)

    async def _learn(self, link: _SwitchLink) -> None:
        """What it can do; logical switches of one device are asked once."""
        c, switch = link.connection, link.switch
        first = self._by_connection.get(c, [link])[0]
        if first is not link:
            link.can = first.can
        else:
            table = switch.coexist.table if switch.coexist else 0
            p = c.ofproto_parser
            about = await link.ask(p.OFPDescStatsRequest(c, 0), "describe itself") or (None,)
            tables = await link.ask(p.OFPTableFeaturesStatsRequest(c, 0, []), "describe its tables") or ()
            counts = await link.ask(p.OFPTableStatsRequest(c, 0), "count its entries") or ()
            groups = await link.ask(p.OFPGroupFeaturesStatsRequest(c, 0), "say what groups it has") or (None,)
            every = (ofp.OFPP_ANY, ofp.OFPQ_ALL)
            queues = ()
            if switch.queue is not None:
                queues = await link.ask(p.OFPQueueStatsRequest(c, 0, *every), "name its queues") or ()
            link.can = capabilities.learned(table, about[0], tables, counts, groups[0], queues)
        link.how = capabilities.encoding(self._topology, switch, link.can)

    async def _drop_leftovers(self, link: _SwitchLink) -> None:
        c, how = link.connection, link.how
        batch = []
        if link.switch.coexist:
            for cookie in (messages.COOKIE_UNICAST, messages.COOKIE_MISS, openflow_discovery.COOKIE_DISCOVERY):
                left = await link.describe(messages.ask_flows(c, cookie), "describe its flows")
                batch += [messages.delete_flow(c, flow) for flow in left if link.is_in(flow.match.get("in_port", 0))]
        flows = await link.describe(messages.ask_flows(c, messages.COOKIE_MULTICAST), "describe its multicast flows")
        ours = [flow for flow in flows if link.is_in(flow.match.get("in_port", 0))]
        misplaced = [f for f in ours if f.table_id != how.table or f.priority not in (how.priority, how.priority_any)]
        batch += [messages.delete_flow(c, flow) for flow in misplaced]
        if batch:
            await link.transact(batch, f"remove {len(batch)} entries that an earlier configuration left")
        rules = await self._read(link)
        used = messages.groups_used(flows)
        orphans = link.groups - {messages.group_id(rule) for rule in rules} - used
        if orphans:
            await link.transact([messages.delete_group(c, g) for g in sorted(orphans)], "remove unused groups")
            link.groups -= orphans

    async def _claim(self, link: _SwitchLink) -> None:
        """One of several managers: MASTER, or SLAVE of the other one. A switch refuses an older term than it knows."""
        if self._term is None or link.switch.coexist:
            return  # terms are counted for all controllers of a switch, also those that are none of ours
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
        if self._discovery and not link.switch.coexist:
            await link.transact(openflow_discovery.rules(c, self._discovery.ports(name)), "set the rules of discovery")
        if self._on_port:
            known = await link.describe(c.ofproto_parser.OFPPortDescStatsRequest(c, 0), "describe its ports")
            up = {one.port_no for one in known if _port_up(one)}
            for port in sorted(link.switch.neighbours):
                self._on_port(name, port, port in up)

    def _gone(self, connection: Connection, cause: str) -> None:
        links = self._by_connection.pop(connection, None)
        if links is None:
            left_out = self._strangers.may(time.monotonic())
            if left_out is not None:
                more = f" ({left_out} more like it were not logged)" if left_out else ""
                text = "OpenFlow from %s: ended, and was no switch in use: %s%s"
                log.warning(text, connection.address, cause or "closed", more)
            return
        for link in links:
            link.lose(cause)
            was_up, link.up = link.up, False
            if self._links.get(link.switch.name) is link:
                del self._links[link.switch.name]
            if was_up:
                self._on_switch_down(link.switch.name, cause)

    def _message(self, connection: Connection, message: Any) -> None:
        links = self._by_connection.get(connection)
        if links is None:
            return
        if message.msg_type == ofp.OFPT_ECHO_REPLY:
            links[0].echoed()
        elif message.msg_type == ofp.OFPT_PORT_STATUS:
            self._port_status(links, message)
        elif message.msg_type == ofp.OFPT_PACKET_IN:
            port = int(message.match.get("in_port") or 0)
            for link in links if self._discovery and port else ():
                if link.is_in(port) and self._discovery:
                    self._discovery.packet_in(link.switch.name, port, message.data)
        elif message.msg_type == ofp.OFPT_FLOW_REMOVED:
            self._removed(links, message)
        else:
            for link in links:
                link.receive(message)

    def _port_status(self, links: Sequence[_SwitchLink], message: Any) -> None:
        port = message.desc.port_no
        if self._on_port is None or port > ofp.OFPP_MAX:
            return
        up = message.reason != ofp.OFPPR_DELETE and _port_up(message.desc)
        for link in links:
            if link.is_in(port):
                self._on_port(link.switch.name, port, up)

    def _removed(self, links: Sequence[_SwitchLink], message: Any) -> None:
        """An entry of ours is gone. Those that we removed ourselves are not in `flows` any more."""
        key = messages.removed_key(message)
        for link in links:
            if key is None or key not in link.flows or message.table_id != link.how.table:
                continue
            link.flows.discard(key)
            now = time.monotonic()
            if now - link.lost_at > LOST_QUIET_S:
                link.lost_pause_s = LOST_PAUSE_S[0]
            link.lost += 1
            link.lost_at = now
            if link.lost_timer is None:
                link.lost_timer = asyncio.get_running_loop().call_later(link.lost_pause_s, self._tell_lost, link)

    def _tell_lost(self, link: _SwitchLink) -> None:
        link.lost_timer = None
        link.lost_pause_s = min(2 * link.lost_pause_s, LOST_PAUSE_S[1])
        if self._on_lost and link.up:
            self._on_lost(link.switch.name)

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
