"""The Glimmerglass dialect: cross-connects of many pairs in one command, answered when they are settled (SYNC) or at
once (ASYNC, settled ones then reported). Facts only; texts and code are ours.

A row: `IPORTID=10001,IPORTNAME=,OPORTID=20005,OPORTNAME=,CONNID=...,CONNSTATE=steady,CONNCAUSE=,INPWR=0.00,
OUTPWR=-1.00,PWRLOSS=1.00`, powers in dBm, NONE for a dark fibre.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs.connection import AnswerTimeout, Tl1Connection
from rostrum.controller.southbound.ocs.dialect import SETTLED, settle_s
from rostrum.controller.southbound.ocs.tl1 import (
    Answer,
    Autonomous,
    Command,
    format_list,
    format_row,
    parse_number,
    parse_row,
)
from rostrum.topologies.model import Ocs

INPUT_BASE = 10_000
OUTPUT_BASE = 20_000
MODES = ("SYNC", "ASYNC")
POLLS = 20  # reads in one reconfiguration time, of what was on its way before it was asked for


class Glimmerglass:
    """Implements `dialect.Dialect`. `mode`: SYNC leaves the waiting to the switch; ASYNC waits for its reports."""

    def __init__(self, ocs: Ocs, mode: str = "SYNC") -> None:
        if mode not in MODES:
            raise ValueError(f"OPMODE is one of {', '.join(MODES)}, not {mode}")
        self._mode = mode
        self._settle_s = settle_s(ocs)
        self._interval_s = min(0.05, max(0.002, ocs.reconfiguration_s / POLLS))
        self._awaited: dict[Pair, asyncio.Future[CrossConnect]] = {}

    async def connect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> list[CrossConnect]:
        known = await self._there(link, pairs)
        stuck = [pair for pair, one in known.items() if one.state is CrossConnectState.FAULT]
        if stuck:
            await self.disconnect(link, stuck)
        missing = [pair for pair in pairs if pair not in known or pair in stuck]
        why = ""
        if missing:
            order = self._connect_sync if self._mode == "SYNC" else self._connect_async
            came, why = await order(link, missing)
            known |= came
        # What was refused may be there all the same: of an order whose answer was lost, or of somebody else.
        if any(pair not in known or known[pair].state is CrossConnectState.INVALID for pair in pairs):
            known |= await self._there(link, pairs)
        known |= await self._watch(link, [p for p in pairs if p in known and known[p].state not in SETTLED])
        return [_settled(known.get(pair), pair, why) for pair in pairs]

    async def _there(self, link: Tl1Connection, pairs: Sequence[Pair]) -> dict[Pair, CrossConnect]:
        """What the switch has of these."""
        wanted = set(pairs)
        return {one.pair: one for one in await self.read(link) if one.pair in wanted}

    async def _watch(self, link: Tl1Connection, moving: Sequence[Pair]) -> dict[Pair, CrossConnect]:
        """Reads until those that nobody's answer will settle are settled, or time runs out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settle_s
        found: dict[Pair, CrossConnect] = {}
        while moving:
            found |= await self._there(link, moving)
            moving = [pair for pair in moving if pair in found and found[pair].state not in SETTLED]
            if loop.time() >= deadline:
                break
            if moving:
                await asyncio.sleep(self._interval_s)
        return found

    async def _connect_sync(self, link: Tl1Connection, pairs: Sequence[Pair]) -> tuple[dict[Pair, CrossConnect], str]:
        try:
            answer = await link.ask(connect(pairs, "SYNC"), self._settle_s)
        except AnswerTimeout as late:
            return {}, str(late)
        return {c.pair: c for c in cross_connects(answer.rows)}, _why(answer)

    async def _connect_async(self, link: Tl1Connection, pairs: Sequence[Pair]) -> tuple[dict[Pair, CrossConnect], str]:
        loop = asyncio.get_running_loop()
        awaited = {pair: self._awaited.setdefault(pair, loop.create_future()) for pair in pairs}
        try:
            answer = await link.ask(connect(pairs, "ASYNC"))
            known = {c.pair: c for c in cross_connects(answer.rows)}
            moving = [done for pair, done in awaited.items() if pair not in known or known[pair].state not in SETTLED]
            if moving and answer.code != "DENY":
                reports = asyncio.create_task(_all_done(moving))
                try:  # a lost connection shows in the next command
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait((reports, link.lost), timeout=self._settle_s, return_when=first)
                finally:
                    reports.cancel()
            known |= {pair: done.result() for pair, done in awaited.items() if done.done() and not done.cancelled()}
            return known, _why(answer) or f"not settled within {self._settle_s:.3g} s"
        finally:
            for pair, done in awaited.items():
                if self._awaited.get(pair) is done:
                    del self._awaited[pair]

    async def disconnect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> str:
        return _why(await link.ask(disconnect(pairs)))

    async def read(self, link: Tl1Connection) -> list[CrossConnect]:
        return cross_connects((await link.ask(retrieve())).rows)

    def changed(self, message: Autonomous) -> list[CrossConnect]:
        if not message.verb.startswith("REPT"):
            return []
        found = cross_connects(message.rows)
        for one in found:
            done = self._awaited.get(one.pair)
            if done is not None and not done.done() and one.state in SETTLED:
                done.set_result(one)
        return found


async def _all_done(futures: Iterable[asyncio.Future[CrossConnect]]) -> None:
    for future in futures:
        await asyncio.shield(future)  # it is not ours alone to cancel


def _settled(found: CrossConnect | None, pair: Pair, why: str) -> CrossConnect:
    """What became of a pair, in a final state: one that does not get there is in FAULT for us."""
    if found is None:
        return CrossConnect(pair, CrossConnectState.INVALID, cause=why or "the switch does not list it")
    if found.state in SETTLED:
        return found
    cause = f"still in state {found.state.value}: {why or 'the switch says no more'}"
    return replace(found, state=CrossConnectState.FAULT, cause=cause)


def _why(answer: Answer) -> str:
    return "" if answer.code == "COMPLD" else answer.why()


def connect(pairs: Sequence[Pair], mode: str) -> Command:
    """ENT-CRS-FIBER for all pairs; `mode` is SYNC or ASYNC."""
    inputs = format_list(INPUT_BASE + p.input for p in pairs)
    outputs = format_list(OUTPUT_BASE + p.output for p in pairs)
    return Command("ENT-CRS-FIBER", aid=f"{inputs},{outputs}", blocks=("", "", f"OPMODE={mode}"))


def disconnect(pairs: Sequence[Pair]) -> Command:
    inputs = format_list(INPUT_BASE + p.input for p in pairs)
    outputs = format_list(OUTPUT_BASE + p.output for p in pairs)
    return Command("DLT-CRS-FIBER", aid=f"{inputs},{outputs}")


def retrieve() -> Command:
    return Command("RTRV-CRS-FIBER", aid="ALL")


def format_cross_connect(c: CrossConnect) -> str:
    loss = None if c.input_dbm is None or c.output_dbm is None else c.input_dbm - c.output_dbm
    fields = {
        "IPORTID": str(INPUT_BASE + c.pair.input),
        "IPORTNAME": f"in{c.pair.input}",
        "OPORTID": str(OUTPUT_BASE + c.pair.output),
        "OPORTNAME": f"out{c.pair.output}",
        "CONNID": f"{c.pair.input}>{c.pair.output}",
        "CONNSTATE": c.state.value,
        "CONNCAUSE": c.cause,
        "INPWR": _power(c.input_dbm),
        "OUTPWR": _power(c.output_dbm),
        "PWRLOSS": _power(loss),
    }
    return format_row(fields)


def cross_connects(rows: Iterable[str]) -> list[CrossConnect]:
    """Rows -> cross-connects. A row that names no pair is left out; a state we do not know counts as INVALID."""
    found = []
    for row in rows:
        fields = parse_row(row)
        source, target = parse_number(fields.get("IPORTID", "")), parse_number(fields.get("OPORTID", ""))
        if source is None or target is None or source <= INPUT_BASE or target <= OUTPUT_BASE:
            continue
        found.append(
            CrossConnect(
                Pair(source - INPUT_BASE, target - OUTPUT_BASE),
                _state(fields.get("CONNSTATE", "")),
                parse_power(fields.get("INPWR", "")),
                parse_power(fields.get("OUTPWR", "")),
                fields.get("CONNCAUSE", ""),
            )
        )
    return found


def parse_power(text: str) -> float | None:
    """dBm, or None for NONE and whatever is no number in the range a meter can show."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -90.0 < value < 60.0 else None


def _power(value: float | None) -> str:
    return "NONE" if value is None else f"{value:.2f}"


def _state(text: str) -> CrossConnectState:
    try:
        return CrossConnectState(text.strip().lower())
    except ValueError:
        return CrossConnectState.INVALID
