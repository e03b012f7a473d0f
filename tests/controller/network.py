"""A software data center for tests: flow tables and cross-connects, and where a packet put into it comes out."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import ANY_PORT, CrossConnect, CrossConnectState, MulticastRule, Pair, UnicastRule
from rostrum.topologies.model import Topology

HOPS_MAX = 64


class Network:
    """What is on the devices. `faults`: pairs that end in FAULT. `dim`: splitters whose outputs lack this many dB.
    `refusing`: devices that do nothing they are told. `deaf`: switches that orders do not reach; they answer nothing.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.tables: dict[str, dict[tuple[int, IPv4Address], MulticastRule]] = {name: {} for name in topology.switches}
        self.unicast: dict[str, tuple[UnicastRule, ...]] = {}
        self.crossed: dict[str, dict[int, Pair]] = {name: {} for name in topology.ocs}
        self.faults: set[tuple[str, Pair]] = set()
        self.dim: dict[str, float] = {}
        self.refusing: set[str] = set()
        self.deaf: set[str] = set()
        self.blind: set[tuple[str, int | str]] = (
            set()
        )  # ("input" | "output" | "splitter", which): light ends there, unseen
        self.astray: dict[Pair, int | None] = {}  # pairs whose light leaves by that output, or nowhere: the OCS lies
        self.ghosts: tuple[Pair, ...] = ()  # listed by the OCS, though nobody made them
        self.room: dict[str, int] = {}  # switches whose tables hold no more rules than that
        self.lenient = False  # ports that are taken answer FAULT, as after a Disconnect that was refused

    def install(self, rules: tuple[MulticastRule, ...]) -> None:
        for rule in rules:
            self.tables[rule.switch][rule.in_port, rule.group] = rule

    def remove(self, rules: tuple[MulticastRule, ...]) -> None:
        for rule in rules:
            self.tables[rule.switch].pop((rule.in_port, rule.group), None)

    def rules(self) -> set[MulticastRule]:
        return {rule for table in self.tables.values() for rule in table.values()}

    def pairs(self, ocs: str = "ocs") -> set[Pair]:
        return set(self.crossed[ocs].values())

    def connect(self, ocs: str, pairs: tuple[Pair, ...]) -> tuple[CrossConnect, ...]:
        """A port that is taken is a failed test, unless `lenient`."""
        results = []
        for pair in pairs:
            clash = [
                one for one in self.pairs(ocs) if one != pair and (one.input == pair.input or one.output == pair.output)
            ]
            assert not clash or self.lenient, f"{ocs}: {pair} while {clash} is connected"
            if (ocs, pair) in self.faults or clash:
                results.append(CrossConnect(pair, CrossConnectState.FAULT, cause="mirror stuck"))
            else:
                self.crossed[ocs][pair.input] = pair
        for pair in pairs:
            if self.crossed[ocs].get(pair.input) == pair:
                results.append(self.row(ocs, pair))
        return tuple(results)

    def disconnect(self, ocs: str, pairs: tuple[Pair, ...]) -> None:
        for pair in pairs:
            if self.crossed[ocs].get(pair.input) == pair:
                del self.crossed[ocs][pair.input]

    def row(self, ocs: str, pair: Pair) -> CrossConnect:
        power = self._power(ocs, pair.input)
        loss = self.topology.ocs[ocs].light.cross_connect_loss_db
        return CrossConnect(pair, CrossConnectState.STEADY, power, None if power is None else power - loss)

    def found(self, ocs: str = "ocs") -> tuple[CrossConnect, ...]:
        return tuple(self.row(ocs, pair) for pair in sorted(self.pairs(ocs) | set(self.ghosts)))

    def _power(self, ocs: str, fibre: int) -> float | None:
        device = self.topology.ocs[ocs]
        splitter = next((one for one in device.splitters.values() if fibre in one.outputs), None)
        if splitter is None:
            return device.light.transmit_dbm if fibre in device.attached else None
        feed = next((pair for pair in self.pairs(ocs) if pair.output == splitter.input), None)
        power = self._power(ocs, feed.input) if feed else None
        if power is None:
            return None
        return power - device.light.cross_connect_loss_db - splitter.loss_db - self.dim.get(splitter.name, 0.0)

    def deliver(self, sender: str, group: IPv4Address) -> Counter[str]:
        """Copies that each server gets of one packet that `sender` sends to `group`."""
        server = self.topology.servers[sender]
        copies: Counter[str] = Counter()
        flying = [(server.tor, server.tor_port)]
        hops = 0
        while flying:
            hops += 1
            assert hops <= HOPS_MAX, "the packet loops"
            switch, in_port = flying.pop()
            rule = self.tables[switch].get((in_port, group))
            out_ports = rule.out_ports if rule else ()
            if rule is None and (rule := self.tables[switch].get((ANY_PORT, group))):
                out_ports = tuple(port for port in rule.out_ports if port != in_port)
            for port in out_ports:
                assert port != in_port, f"{rule} sends back where it came from"
                end = self.topology.switches[switch].neighbours[port]
                if end.node in self.topology.servers:
                    copies[end.node] += 1
                elif end.node in self.topology.switches:
                    flying.append((end.node, end.port))
                else:
                    flying += self._through(end.node, end.port)
        return copies

    def _through(self, ocs: str, fibre: int) -> list[tuple[str, int]]:
        device = self.topology.ocs[ocs]
        lit, ends = [fibre], []
        while lit:
            pair = self.crossed[ocs].get(lit.pop())
            if pair is None or {("input", pair.input), ("output", pair.output)} & self.blind:
                continue
            output = self.astray.get(pair, pair.output)
            splitter = next((one for one in device.splitters.values() if one.input == output), None)
            if splitter:
                lit += () if ("splitter", splitter.name) in self.blind else splitter.outputs
            elif output in device.attached:
                end = device.attached[output]
                ends.append((end.node, end.port))
        return ends

    def perform(self, action: act.Action, now: int) -> ev.Event | None:
        """Carries out what concerns devices and returns their answer."""
        if isinstance(action, act.InstallRules | act.RemoveRules) and self.deaf & {one.switch for one in action.rules}:
            reached = tuple(rule for rule in action.rules if rule.switch not in self.deaf)
            (self.install if isinstance(action, act.InstallRules) else self.remove)(reached)
            return None
        if isinstance(action, act.ReadRules) and action.switch in self.deaf:
            return None
        if isinstance(action, act.InstallRules):
            done, refused = self._split(action.rules)
            self.install(done)
            return ev.RulesFailed(action.op, refused) if refused else ev.RulesInstalled(action.op)
        if isinstance(action, act.RemoveRules):
            self.remove(tuple(rule for rule in action.rules if rule.switch not in self.refusing))
            names = sorted({rule.switch for rule in action.rules} & self.refusing)
            return ev.RulesRemoved(action.op, tuple((name, "refused") for name in names))
        if isinstance(action, act.InstallUnicast):
            self.unicast[action.switch] = action.rules
        if isinstance(action, act.ReadRules):
            return ev.RulesFound(action.switch, frozenset(self.tables[action.switch].values()), now)
        if isinstance(action, act.ReadCrossConnects):
            return ev.CrossConnectsFound(action.ocs, self.found(action.ocs), now)
        if isinstance(action, act.Connect):
            if action.ocs in self.refusing:
                return ev.CircuitResult(action.op, (), f"{action.ocs}: DENY")
            return ev.CircuitResult(action.op, self.connect(action.ocs, action.pairs))
        if isinstance(action, act.Disconnect):
            if action.ocs in self.refusing:
                return ev.DisconnectResult(action.op, f"{action.ocs}: DENY")
            self.disconnect(action.ocs, action.pairs)
            return ev.DisconnectResult(action.op)
        return None

    def _split(self, rules: tuple[MulticastRule, ...]) -> tuple[tuple[MulticastRule, ...], tuple[tuple[str, str], ...]]:
        """What is carried out, and who refuses."""
        full = {name for name in self.room if self._more(name, rules)}
        done = tuple(rule for rule in rules if rule.switch not in self.refusing | full)
        refused = [(name, "refused") for name in {rule.switch for rule in rules} & self.refusing]
        return done, tuple(sorted([*refused, *((name, "table full") for name in full - self.refusing)]))

    def _more(self, switch: str, rules: tuple[MulticastRule, ...]) -> bool:
        """Whether these are more than the switch's table has room for."""
        new = {(rule.in_port, rule.group) for rule in rules if rule.switch == switch}
        return bool(new) and len(new | self.tables[switch].keys()) > self.room[switch]
