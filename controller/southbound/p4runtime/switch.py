"""The life of one P4 switch as its manager sees it: connect, stand for election, push the program, reconcile, watch.

    away --connected--> backup --elected--> primary: program pushed if it differs, tables read and mended --> up
     ^                     ^________________|  lost the election: nothing is written any more
     |______ stream ended, no sign of life: again, after a wait that grows to BACKOFF_MAX_S ______|

What a running program of ours holds is kept: traffic goes on while the manager is away. Rules that the manager does not
know are reported like any others and its core decides; halves of rules are removed at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from rostrum.controller.certificates import Trust
from rostrum.controller.core.groups.trees import packet_ports
from rostrum.controller.core.model import (
    Count,
    Light,
    MulticastRule,
    PortCounters,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    UnicastRule,
)
from rostrum.controller.southbound.discovery import Discovery, Frames
from rostrum.controller.southbound.p4runtime import entries
from rostrum.controller.southbound.p4runtime.any_port import collapse, expand
from rostrum.controller.southbound.p4runtime.connection import Connection, raised
from rostrum.controller.southbound.p4runtime.entries import DROP_REASONS, PORT_COUNTERS, Entities
from rostrum.controller.southbound.p4runtime.pipeline import Pipeline
from rostrum.controller.southbound.p4runtime.rules import Batches, Change, RuleBook
from rostrum.topologies.model import Switch, Topology

log = logging.getLogger(__name__)

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0
STEADY_S = 5.0  # after a connection that held so long the next one is made soon
PULSE_S = 1.0  # between signs of life asked for
PULSE_MISSES = 3  # in a row before the switch counts as dead
TAKE_OVER_S = 1.0  # a primary that left may be back so soon: then it is one again
TAKE_OVER_MAX_S = 30.0  # between tries, with a switch that lets nobody be primary
BACKUPS_SINCE = (1, 5)  # the version of P4Runtime whose replicas have backups
RULE_TABLES = ("multicast", "admission", "first_light")
SETTING_TABLES = ("group_range", "priority_tags", "discovery")


class P4Switch:
    """`up`: primary, running our program, its tables known. Callbacks as those of `P4RuntimeFabric`."""

    def __init__(
        self,
        switch: Switch,
        topology: Topology,
        pipeline: Pipeline,
        election_id: int,
        on_up: Callable[[str], None],
        on_down: Callable[[str, str], None],
        on_light: Callable[[Light], None],
        tls: Trust | None = None,
        discovery: Discovery | None = None,
    ) -> None:
        assert switch.p4 is not None
        self.switch, self.up = switch, False
        self.version: tuple[int, ...] = (0,)  # of P4Runtime, as it says
        self.standing = "is not connected"  # why it is not up
        self._topology, self._pipeline = topology, pipeline
        self._on_up, self._on_down, self._on_light = on_up, on_down, on_light
        self._election_id, self._tls, self._discovery = election_id, tls, discovery
        self._candidacy = election_id  # what it stands with: more than its own, once others were there (`raised`)
        self._make = Entities(switch.name, pipeline.schema)
        self._book = RuleBook(switch.name, self._make, int(time.time()))
        self._ports = packet_ports(topology, switch.name)  # for rules for any port
        ends = switch.neighbours.items() if topology.tenants else ()
        self._barrable = [port for port, end in ends if end.node in topology.servers]
        self._lock = asyncio.Lock()  # one change at a time: the book says what is there
        self._connection: Connection | None = None
        self._changed = asyncio.Event()  # who is primary
        self._task: asyncio.Task[None] | None = None
        self._acknowledgements: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._lost("the manager is closing")

    # -- orders --------------------------------------------------------------------------------------------------

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await self._change(lambda: self._book.install(expand(rules, self._ports)), f"install {_say(rules)}")

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await self._change(lambda: self._book.remove(expand(rules, self._ports, barred=True)), f"remove {_say(rules)}")

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        await self._change(lambda: self._book.rearm(rules), f"watch for light of {_say(rules)}")

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        """These and no others."""
        async with self._lock:
            link = self._link()
            found = await link.read(self._make.all_of("unicast"), "read its unicast entries")
            updates = entries.differences([self._make.unicast(rule) for rule in rules], found)
            if updates:
                await link.write(updates, f"install {len(rules)} unicast rules")

    async def read(self) -> set[MulticastRule]:
        """The rules on the switch now; what is no whole rule is removed."""
        async with self._lock:
            await self._learn(self._link())
            return collapse((one.rule for one in self._book.rules.values()), self._ports, self._barrable)

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        """Of those among these rules that are on the switch."""
        async with self._lock:
            link = self._link()
            here = [one for rule in rules if (one := self._book.rules.get((rule.in_port, rule.group)))]
            questions = []
            for one in here:
                match = {"ingress_port": one.rule.in_port, "group": int(one.rule.group)}
                grant = {**match, "source": (int(one.grant.network_address), 32)} if one.grant.prefixlen else match
                questions += [self._make.ask_direct("multicast", match), self._make.ask_direct("admission", grant)]
                questions += [self._make.ask_count("delivered", number) for number in one.instances.values()]
            answers = await link.read(questions, "read the counters of its rules") if questions else []
        direct, indexed = self._make.direct_counts(answers), self._make.counts(answers)
        found = []
        for one in here:
            key = (one.rule.in_port, one.rule.group)
            copies = [(port, indexed.get(("delivered", n), Count())) for port, n in sorted(one.instances.items())]
            received, granted = (direct.get((table, key), Count()) for table in ("multicast", "admission"))
            found.append(RuleCounters(one.rule, received, granted, tuple(copies)))
        return found

    async def counters(self) -> SwitchCounters:
        ports = sorted(self.switch.neighbours)
        reasons = range(1, len(DROP_REASONS) + 1)
        questions = [self._make.ask_count(name, port) for name in PORT_COUNTERS for port in ports]
        questions += [self._make.ask_count("dropped", reason) for reason in reasons]
        found = self._make.counts(await self._link().read(questions, "read its counters"))
        return SwitchCounters(
            tuple(PortCounters(port, *(found.get((name, port), Count()) for name in PORT_COUNTERS)) for port in ports),
            tuple((DROP_REASONS[reason - 1], found.get(("dropped", reason), Count())) for reason in reasons),
        )

    async def send_out(self, frames: Frames) -> None:
        """Each by its port; their loss does not matter."""
        for port, frame in frames:
            if self._connection is not None and self.up:
                await self._connection.send(self._make.packet_out(port, frame))

    def _link(self) -> Connection:
        if self._connection is None or not self.up:
            raise SouthboundError(f"{self.switch.name} {self.standing}")
        return self._connection

    async def _change(self, plan: Callable[[], Change], what: str) -> None:
        async with self._lock:
            link = self._link()
            try:
                change = plan()
                await self._write(link, change.batches, what)
                self._book.done(change)
            except SouthboundError:
                await self._relearn(link)
                raise

    async def _write(self, link: Connection, batches: Batches, what: str) -> None:
        for batch in batches:
            await link.write(batch, what)

    async def _relearn(self, link: Connection) -> None:
        """After a failed change: what is there is in doubt, and the next change depends on it."""
        try:
            await self._learn(link)
        except SouthboundError as error:
            await link.close(f"its state is in doubt: {error}")  # it will be connected to again and read

    async def _learn(self, link: Connection) -> None:
        questions = [*self._make.all_of(*RULE_TABLES), self._make.all_groups()]
        found = self._make.found(await link.read(questions, "read its multicast entries"))
        leftovers = self._book.learn(found)
        if leftovers:
            count = sum(len(batch) for batch in leftovers)
            log.warning("%s: removing %d entries that are halves of rules", self.switch.name, count)
            await self._write(link, leftovers, "remove what is left of rules")

    # -- life ----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Connects again and again, as long as the manager runs."""
        assert self.switch.p4 is not None
        at, wait_s, told = self.switch.p4, BACKOFF_MIN_S, ""
        while True:
            link = Connection(
                self.switch.name, f"{at.address}:{at.port}", at.device_id, self._candidacy,
                self._changed.set, self._digest, self._tls, self._packet,
            )  # fmt: skip
            link.schema = self._pipeline.schema
            cause, began = "the manager is closing", math.inf
            try:
                await link.open()
                began = time.monotonic()
                self.version = await link.version(PULSE_S * PULSE_MISSES)
                self._book.backups = self.version >= BACKUPS_SINCE
                self._connection = link
                cause = await self._live(link)
            except SouthboundError as error:
                if (cause := str(error)) != told:
                    log.warning("%s: %s; trying again", self.switch.name, cause)
                told = cause
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a defect here must not leave the switch without a manager
                log.exception("%s: connection given up", self.switch.name)
                cause = f"{type(error).__name__}: {error}"
            finally:
                self._connection = None
                self._lost(cause)
                await link.close(cause)
            if time.monotonic() - began >= STEADY_S:
                wait_s = BACKOFF_MIN_S
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)

    async def _live(self, link: Connection) -> str:
        """Until the connection ends: greets the switch whenever this manager becomes its primary. Returns the cause."""
        pulse = asyncio.create_task(self._pulse(link))
        told, retry_s = "", TAKE_OVER_S
        try:
            while not link.ended.done():
                self._changed.clear()
                wait_s: float | None = None
                claim: int | None = None
                if link.primary:
                    retry_s = TAKE_OVER_S
                    if not self.up:
                        await self._greet(link)
                else:
                    self._lost(link.standing)
                    if told != link.standing:
                        log.warning("%s: %s", self.switch.name, link.standing)
                    told = link.standing
                    claim = raised(self._election_id, link.leader, link.vacant)
                    wait_s = None if claim is None else retry_s if link.vacant else retry_s - TAKE_OVER_S
                news = asyncio.create_task(self._changed.wait())
                await asyncio.wait((news, link.ended), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if claim is not None and not self._changed.is_set() and not link.ended.done():
                    log.warning("%s: standing for election with %#x", self.switch.name, claim)
                    retry_s = min(2 * retry_s, TAKE_OVER_MAX_S)
                    self._candidacy = claim
                    await link.stand(claim)
            return link.ended.result()
        finally:
            pulse.cancel()

    async def _greet(self, link: Connection) -> None:
        """Our program, its settings, and knowledge of its rules; then it is up."""
        async with self._lock:
            running = await link.cookie(PULSE_S * PULSE_MISSES)
            if running != self._pipeline.cookie:
                before = "none" if running is None else f"another one (cookie {running:#018x})"
                log.info("%s: program pushed; it ran %s", self.switch.name, before)
                await link.push(self._pipeline)
            await self._settle(link)
            await self._learn(link)
        if link.primary and not link.ended.done():
            self.up, self.standing = True, ""
            self._on_up(self.switch.name)

    async def _settle(self, link: Connection) -> None:
        assert self.switch.p4 is not None
        found = await link.read(self._make.all_of(*SETTING_TABLES), "read its settings")
        watched = self._discovery.ports(self.switch.name) if self._discovery else []
        queues, rates = self.switch.p4.queues, sorted(self.switch.rates.items())
        updates = entries.differences(self._make.settings(self._topology.multicast, queues, watched), found)
        updates.append(entries.modify(self._make.queues(queues)))
        # Before there are unicast entries: nobody has more than this share for a moment, either.
        updates += [entries.modify(self._make.control_share(port, rate_bps)) for port, rate_bps in rates]
        await link.write(updates, "set levels, queues and the range of groups")
        digest = self._make.digest()
        try:
            await link.write([entries.insert(digest)], "subscribe to first light")
        except SouthboundError:
            await link.write([entries.modify(digest)], "subscribe to first light")  # a subscription is there

    def _lost(self, cause: str) -> None:
        self.standing = f"is not usable: {cause}"
        if self.up:
            self.up = False
            self._on_down(self.switch.name, cause)

    async def _pulse(self, link: Connection) -> None:
        """Asks for signs of life, and whether the program is still ours."""
        missed = 0
        while True:
            await asyncio.sleep(PULSE_S)
            try:
                running = await link.cookie(PULSE_S)
                missed = 0
            except SouthboundError as error:
                missed += 1
                if missed >= PULSE_MISSES:
                    await link.close(f"no sign of life {missed} times in a row: {error}")
                continue
            if self.up and link.primary and running != self._pipeline.cookie:
                await link.close("somebody replaced its program")

    def _packet(self, packet: Any) -> None:
        if self._discovery is None:
            return
        try:
            port = self._make.packet_in_port(packet)
        except SouthboundError as error:
            log.warning("%s", error)
            return
        self._discovery.packet_in(self.switch.name, port, packet.payload)

    def _digest(self, digest: Any) -> None:
        link = self._connection
        if link is None:
            return
        task = asyncio.create_task(link.acknowledge(digest))
        self._acknowledgements.add(task)
        task.add_done_callback(self._acknowledgements.discard)
        try:
            for epoch, light in self._make.lights(digest):
                if self._book.awaits((light.in_port, light.group), epoch):
                    self._on_light(light)
        except SouthboundError as error:
            log.warning("%s", error)


def _say(rules: Sequence[MulticastRule]) -> str:
    groups = sorted({rule.group for rule in rules})
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
    return f"the multicast rules for {', '.join(map(str, groups[:3]))}{more}"
