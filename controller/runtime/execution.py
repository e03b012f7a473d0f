"""Actions on devices: carried out through the southbound drivers, their outcome handed back as events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import (
    MulticastRule,
    Pair,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
)
from rostrum.controller.keyvalue import line
from rostrum.controller.logs import say
from rostrum.controller.runtime.rule_log import RuleLog
from rostrum.controller.runtime.rule_writer import Done, Failures, RuleWriter
from rostrum.controller.runtime.run_clock import Within
from rostrum.controller.runtime.sequencer import Sequencer
from rostrum.controller.southbound.api import CircuitSwitch, SwitchFabric
from rostrum.controller.southbound.fabric import MixedFabric
from rostrum.topologies.model import Topology

log = logging.getLogger("rostrum.manager")
writes = logging.getLogger("rostrum.writes")

UNICAST_TRIES = 3
READ_TRIES = 3
RETRY_S = 0.5
READ_BOUND_S = 10.0
LOOK_S = 0.05  # how often is looked whether orders may be given again
DEPOSED = "this manager does not lead any more"

Post = Callable[[ev.Event], None]


class Devices:
    """Drivers; orders keep their order. `bound_s`: a device that does not finish one within this has failed it.

    `may_act`: this manager leads. It is asked when an order's turn has come, not when it was given: those before it may
    have taken longer than the lead. `may_order`: it does, and will for a while: for OCSs, which know no terms.
    """

    def __init__(
        self,
        topology: Topology,
        fabric: SwitchFabric,
        ocs: Mapping[str, CircuitSwitch],
        post: Post,
        clock: Callable[[], int],
        bound_s: float,
        may_act: Callable[[], bool] | None = None,
        may_order: Callable[[], bool] | None = None,
    ) -> None:
        self._topology = topology
        self._fabric = fabric
        self._ocs = ocs
        self._post = post
        self._clock = clock
        self._bound_s = bound_s
        self._may_act = may_act or (lambda: True)
        self._may_order = may_order or self._may_act
        self.request_of: Callable[[str], str] = lambda path_id: ""  # path -> the request it is for, for the log
        self._sequencer = Sequencer()
        driver = fabric.driver if isinstance(fabric, MixedFabric) else lambda switch: fabric
        self._rules = RuleWriter(driver, bound_s, self._may_act)
        self._lines = RuleLog(topology.switches)

    @property
    def busy(self) -> int:
        """Orders under way."""
        return self._sequencer.busy + self._rules.busy

    def perform(self, action: act.Action) -> None:
        """Starts an action on devices; returns at once."""
        if isinstance(action, act.InstallRules):
            self._rules.order(action.op, action.rules, False, self._written(action, self._installed))
        elif isinstance(action, act.RemoveRules):
            self._rules.order(action.op, action.rules, True, self._written(action, self._removed))
        elif isinstance(action, act.RearmRules):
            for switch in {rule.switch for rule in action.rules}:
                self._rules.between(switch, partial(self._rearm, action, switch))
        elif isinstance(action, act.Connect):
            self._sequencer.submit(_fibres(action.ocs, action.pairs), lambda: self._connect(action))
        elif isinstance(action, act.Disconnect):
            self._sequencer.submit(_fibres(action.ocs, action.pairs), lambda: self._disconnect(action))
        elif isinstance(action, act.InstallUnicast):
            self._rules.between(action.switch, lambda: self._unicast(action))
        elif isinstance(action, act.Discover):
            self._fabric.discover(action.ports)
        elif isinstance(action, act.ReadRules):
            self._rules.between(action.switch, lambda: self._read_rules(action.switch))
        elif isinstance(action, act.ReadCrossConnects):
            self._sequencer.submit([], lambda: self._read_cross_connects(action.ocs))

    async def close(self) -> None:
        await self._rules.close()
        await self._sequencer.close()

    def _written(self, action: act.InstallRules | act.RemoveRules, then: Done) -> Done:
        """`then`, after a line in the log that ties the write to the request it was for."""
        if not writes.isEnabledFor(logging.INFO):
            return then
        began = self._clock()

        def done(op: int, failures: Failures) -> None:
            request, took_ns = self.request_of(action.path_id), self._clock() - began
            said = self._lines.facts(action.path_id, request, action.rules, op, failures, took_ns)
            event = "rules written" if isinstance(action, act.InstallRules) else "rules removed"
            say(writes, logging.INFO, event, said)
            then(op, failures)

        return done

    def _installed(self, op: int, failures: Failures) -> None:
        self._post(ev.RulesFailed(op, failures) if failures else ev.RulesInstalled(op))

    def _removed(self, op: int, failures: Failures) -> None:
        self._post(ev.RulesRemoved(op, failures))

    async def _permitted(self, bound_s: float) -> None:
        """Waits while the lead may be over soon. Raises SouthboundError when it stays so."""
        loop = asyncio.get_running_loop()
        until = loop.time() + bound_s
        while not self._may_order():
            if loop.time() >= until or not self._may_act():
                raise SouthboundError(f"no order given: {DEPOSED}")
            await asyncio.sleep(LOOK_S)

    async def _rearm(self, action: act.RearmRules, switch: str) -> None:
        if not self._may_act():
            return
        try:
            async with Within(self._bound_s):
                await self._fabric.rearm([rule for rule in action.rules if rule.switch == switch])
        except (SouthboundError, TimeoutError) as error:
            # Its receivers tell the sender of light too: nothing but time is lost.
            cause = str(error) or f"no answer within {self._bound_s:g} s"
            log.warning(line("first light not watched", path=action.path_id, switch=switch, cause=cause))

    async def _connect(self, action: act.Connect) -> None:
        bound_s = self._bound_s + self._topology.ocs[action.ocs].reconfiguration_s
        try:
            await self._permitted(self._bound_s)
            async with Within(bound_s):
                rows = await self._ocs[action.ocs].connect(action.pairs)
            pairs = ",".join(f"{pair.input}>{pair.output}" for pair in action.pairs)
            request = self.request_of(action.path_id)
            said = (("path", action.path_id), ("request", request), ("ocs", action.ocs), ("pairs", pairs))
            say(writes, logging.INFO, "cross-connects made", said)
            self._post(ev.CircuitResult(action.op, tuple(rows)))
        except SouthboundError as error:
            self._post(ev.CircuitResult(action.op, (), str(error)))
        except TimeoutError:
            self._post(ev.CircuitResult(action.op, (), f"{action.ocs} did not answer within {bound_s:g} s"))

    async def _disconnect(self, action: act.Disconnect) -> None:
        cause = ""
        try:
            await self._permitted(self._bound_s)
            async with Within(self._bound_s):
                await self._ocs[action.ocs].disconnect(action.pairs)
        except SouthboundError as error:
            cause = str(error)
        except TimeoutError:
            cause = f"{action.ocs} did not answer within {self._bound_s:g} s"
        self._post(ev.DisconnectResult(action.op, cause))

    async def _unicast(self, action: act.InstallUnicast) -> None:
        async def order() -> None:
            await self._fabric.install_unicast(action.rules)

        await self._tries("set unicast rules", action.switch, UNICAST_TRIES, order)

    async def _read_rules(self, switch: str) -> None:
        async def order() -> None:
            asked_at = self._clock()
            self._post(ev.RulesFound(switch, frozenset(await self._fabric.read(switch)), asked_at))

        await self._tries("read rules", switch, READ_TRIES, order)

    async def _read_cross_connects(self, ocs: str) -> None:
        async def order() -> None:
            await self._found(ocs)

        if not await self._tries("read cross-connects", ocs, READ_TRIES, order):
            self._post(ev.OcsDown(ocs, "its cross-connects could not be read"))

    async def refresh(self, ocs: str) -> None:
        """Reads an OCS's cross-connects and powers again. Raises SouthboundError, TimeoutError."""
        async with Within(self._bound_s):
            await self._found(ocs)

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        """What these rules did, from the switches that count. Raises SouthboundError, TimeoutError."""
        async with Within(self._bound_s):
            return await self._fabric.rule_counters(rules)

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        """Raises SouthboundError, TimeoutError."""
        async with Within(self._bound_s):
            return await self._fabric.switch_counters(switch)

    def facts(self, switch: str) -> SwitchFacts | None:
        """What a switch said of itself when it connected."""
        return self._fabric.facts(switch)

    def discover(self) -> None:
        """Has the switches send discovery frames now."""
        self._fabric.discover()

    async def read_rules(self, switch: str) -> set[MulticastRule]:
        """The multicast rules that are on a switch now. Raises SouthboundError, TimeoutError."""
        async with Within(self._bound_s):
            return await self._fabric.read(switch)

    async def _found(self, ocs: str) -> None:
        asked_at = self._clock()
        self._post(ev.CrossConnectsFound(ocs, tuple(await self._ocs[ocs].read()), asked_at))

    async def _tries(self, what: str, device: str, tries: int, order: Callable[[], Awaitable[None]]) -> bool:
        for attempt in range(1, tries + 1):
            if not self._may_act():
                log.warning(line(f"cannot {what}", device=device, cause=DEPOSED))
                return False
            try:
                async with Within(READ_BOUND_S):
                    await order()
                return True
            except (SouthboundError, TimeoutError) as error:
                cause = str(error) or f"no answer within {READ_BOUND_S:g} s"
                log.warning(line(f"cannot {what}", device=device, attempt=f"{attempt}/{tries}", cause=cause))
            if attempt < tries:
                await asyncio.sleep(RETRY_S)
        return False


def _fibres(ocs: str, pairs: Sequence[Pair]) -> list[tuple[str, str, int]]:
    return [key for pair in pairs for key in ((ocs, "input", pair.input), (ocs, "output", pair.output))]
