"""The Polatis dialect: one patch per command, answered when accepted; light is seen by polling port powers. Facts only;
texts and code are ours.

Of an N x N switch input n is port n and output n is port N + n. Patch rows are `in,out`, power rows `port:dBm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.controller.southbound.ocs.connection import Tl1Connection
from rostrum.controller.southbound.ocs.dialect import settle_s
from rostrum.controller.southbound.ocs.glimmerglass import parse_power
from rostrum.controller.southbound.ocs.tl1 import Autonomous, Command, format_list, parse_number
from rostrum.topologies.model import Ocs

POLLS = 20  # polls in one reconfiguration time
STEADY_DB = 0.1  # two polls whose power differs by no more than this have seen steady light


class Polatis:
    """Implements `dialect.Dialect` by polling: steady is what shows the same light twice."""

    def __init__(self, ocs: Ocs) -> None:
        self._ports = ocs.ports
        self._settle_s = settle_s(ocs)
        self._interval_s = min(0.05, max(0.002, ocs.reconfiguration_s / POLLS))
        self._moving: set[Pair] = set()

    async def connect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> list[CrossConnect]:
        self._moving.update(pairs)
        try:
            there = await self._patches(link)
            missing = [pair for pair in pairs if pair not in there]
            answers = await asyncio.gather(*(link.ask(connect(pair, self._ports)) for pair in missing))
            refused = [(p, answer) for p, answer in zip(missing, answers, strict=True) if answer.code != "COMPLD"]
            # What was refused may be there all the same: of an order whose answer was lost, or of somebody else.
            there = await self._patches(link) if refused else there
            results = {
                pair: CrossConnect(pair, CrossConnectState.INVALID, cause=answer.why())
                for pair, answer in refused
                if pair not in there
            }
            results |= await self._watch(link, [p for p in pairs if p not in results])
            return [results[pair] for pair in pairs]
        finally:
            self._moving.difference_update(pairs)

    async def _watch(self, link: Tl1Connection, pairs: Sequence[Pair]) -> dict[Pair, CrossConnect]:
        """Poll powers until each pair has steady light or time runs out."""
        deadline = CLOCK.s() + self._settle_s
        results: dict[Pair, CrossConnect] = {}
        before: dict[Pair, float | None] = {}
        while todo := [p for p in pairs if p not in results]:
            seen = await self._powers(link, todo)
            late = CLOCK.s() >= deadline
            for pair in todo:
                source, light = seen.get(pair.input), seen.get(self._ports + pair.output)
                last, before[pair] = before.get(pair), light
                if light is not None and last is not None and abs(light - last) <= STEADY_DB:
                    results[pair] = CrossConnect(pair, CrossConnectState.STEADY, source, light)
                elif late:
                    cause = f"{_darkness(pair, source, light)} after {self._settle_s:.3g} s"
                    results[pair] = CrossConnect(pair, CrossConnectState.FAULT, source, light, cause)
            if len(results) < len(pairs):
                await asyncio.sleep(self._interval_s)
        return results

    async def disconnect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> str:
        there = await self._patches(link)
        # The command names the input alone, whose patch may be another by now, and not ours to take.
        answers = await asyncio.gather(*(link.ask(disconnect(pair)) for pair in pairs if pair in there))
        return "; ".join(answer.why() for answer in answers if answer.code != "COMPLD")

    async def read(self, link: Tl1Connection) -> list[CrossConnect]:
        found = sorted(await self._patches(link))
        seen = await self._powers(link, found) if found else {}
        return [self._judge(p, seen.get(p.input), seen.get(self._ports + p.output)) for p in found]

    def _judge(self, pair: Pair, source: float | None, light: float | None) -> CrossConnect:
        if light is not None:
            return CrossConnect(pair, CrossConnectState.STEADY, source, light)
        if pair in self._moving:
            return CrossConnect(pair, CrossConnectState.TRANSITION, source, light)
        return CrossConnect(pair, CrossConnectState.FAULT, source, light, _darkness(pair, source, light))

    async def _patches(self, link: Tl1Connection) -> set[Pair]:
        return set(parse_patches((await link.ask(retrieve())).rows, self._ports))

    async def _powers(self, link: Tl1Connection, wanted: Sequence[Pair]) -> dict[int, float | None]:
        numbers = sorted({p.input for p in wanted} | {self._ports + p.output for p in wanted})
        return parse_powers((await link.ask(retrieve_power(numbers))).rows)

    def changed(self, message: Autonomous) -> list[CrossConnect]:
        if not message.verb.startswith("REPT ALM"):
            return []
        found = parse_patches(message.rows, self._ports)
        return [CrossConnect(p, CrossConnectState.FAULT, cause=message.text) for p in found]


def _darkness(pair: Pair, source: float | None, light: float | None) -> str:
    if light is not None:
        return f"light at output {pair.output} is not steady"
    if source is None:
        return f"no light enters input {pair.input}"
    return f"no light leaves output {pair.output} though input {pair.input} has {source:.1f} dBm"


def connect(pair: Pair, ports: int) -> Command:
    return Command("ENT-PATCH", aid=f"{pair.input},{ports + pair.output}", blocks=("",))


def disconnect(pair: Pair) -> Command:
    return Command("DLT-PATCH", aid=str(pair.input), blocks=("",))


def retrieve() -> Command:
    return Command("RTRV-PATCH", blocks=("",))


def retrieve_power(numbers: Iterable[int]) -> Command:
    return Command("RTRV-PORT-POWER", aid=format_list(numbers), blocks=("",))


def parse_patches(rows: Iterable[str], ports: int) -> list[Pair]:
    """Patch rows -> pairs; a row that is none of an N x N switch is left out."""
    found = []
    for row in rows:
        first, _, second = row.partition(",")
        low, high = sorted((parse_number(first) or 0, parse_number(second) or 0))
        if 1 <= low <= ports < high <= 2 * ports:
            found.append(Pair(low, high - ports))
    return found


def parse_powers(rows: Iterable[str]) -> dict[int, float | None]:
    """Power rows -> dBm by port number; None = dark."""
    found = {}
    for row in rows:
        port, _, value = row.partition(":")
        number = parse_number(port)
        if number is not None:
            found[number] = parse_power(value.split(",")[0])
    return found


def format_power(number: int, dbm: float | None) -> str:
    return f"{number}:{'NONE' if dbm is None else f'{dbm:.2f}'}"
