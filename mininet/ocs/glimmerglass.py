"""TL1 in the style of Glimmerglass: input n is port 10000 + n, output n is port 20000 + n.

ENT-CRS-FIBER::10001&10002,20001&20002:<ctag>:::OPMODE=SYNC|ASYNC;
DLT-CRS-FIBER::10001&10003:<ctag>;   DLT-CRS-FIBER::10001,20001:<ctag>;   DLT-CRS-FIBER::ALL:<ctag>;
RTRV-CRS-FIBER::ALL:<ctag>;          RTRV-CRS-FIBER::10001&20007:<ctag>;
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs.glimmerglass import INPUT_BASE, OUTPUT_BASE, format_cross_connect
from rostrum.controller.southbound.ocs.tl1 import Answer, Autonomous, Command, Tl1Error, parse_list
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.server import Handler, Refusal

BAD = (CrossConnectState.FAULT, CrossConnectState.INVALID)


class GlimmerglassServer:
    name = "Glimmerglass"

    def __init__(self) -> None:
        self.handlers: Mapping[str, Handler] = {
            "ENT-CRS-FIBER": enter,
            "DLT-CRS-FIBER": delete,
            "RTRV-CRS-FIBER": retrieve,
        }

    def report(self, engine: Engine, changed: CrossConnect, atag: str) -> Autonomous:
        fault = changed.state is CrossConnectState.FAULT
        verb, alarm = ("REPT ALM CRS-FIBER", "*C") if fault else ("REPT EVT CRS-FIBER", "A")
        return Autonomous(atag, verb, alarm, (format_cross_connect(changed),))


async def enter(engine: Engine, command: Command) -> Answer:
    mode = command.parameters().get("OPMODE", "SYNC").upper()
    if mode not in ("SYNC", "ASYNC"):
        raise Refusal("IDNV", f"OPMODE is SYNC or ASYNC, not {mode[:20]}")
    inputs, outputs = _ends(engine, command)
    if len(inputs) != len(outputs):
        raise Refusal("IDNV", f"{len(inputs)} inputs and {len(outputs)} outputs do not make pairs")
    pairs = [Pair(i, o) for i, o in zip(inputs, outputs, strict=True)]
    results = engine.connect(pairs)
    if mode == "SYNC":
        await engine.settled(r.pair for r in results if r.state not in BAD)
        results = [r if r.state in BAD else _now(engine, r) for r in results]
    return _judge(command, results)


async def delete(engine: Engine, command: Command) -> Answer:
    if command.aid.upper() in ("ALL", "ALL,ALL"):
        return _judge(command, engine.disconnect([c.pair for c in engine.cross_connects()]))
    inputs, outputs = _ends(engine, command)
    if not inputs:
        raise Refusal("IDNV", "name the inputs to disconnect, or ALL")
    if outputs and len(inputs) != len(outputs):
        raise Refusal("IDNV", f"{len(inputs)} inputs and {len(outputs)} outputs do not make pairs")
    pairs, absent = [], []
    for at, port in enumerate(inputs):
        pair = engine.model.pair_at(input=port)
        if pair is None or (outputs and pair.output != outputs[at]):
            asked = Pair(port, outputs[at] if outputs else 0)
            absent.append(CrossConnect(asked, CrossConnectState.INVALID, cause="there is no such cross-connect"))
        else:
            pairs.append(pair)
    return _judge(command, [*engine.disconnect(pairs), *absent])


async def retrieve(engine: Engine, command: Command) -> Answer:
    found = engine.cross_connects()
    if command.aid.upper() not in ("", "ALL"):
        ports = set(parse_list(command.aid, INPUT_BASE + 1, OUTPUT_BASE + engine.ocs.ports))
        found = [c for c in found if {INPUT_BASE + c.pair.input, OUTPUT_BASE + c.pair.output} & ports]
    return Answer(command.ctag or "0", "COMPLD", tuple(map(format_cross_connect, found)))


def _ends(engine: Engine, command: Command) -> tuple[list[int], list[int]]:
    """The command's inputs and outputs by number. Raises Tl1Error."""
    inputs, comma, outputs = command.aid.partition(",")
    if not inputs.strip():
        raise Tl1Error("no ports: name them as inputs,outputs")
    ports = engine.ocs.ports
    return (
        [n - INPUT_BASE for n in parse_list(inputs, INPUT_BASE + 1, INPUT_BASE + ports)],
        [n - OUTPUT_BASE for n in parse_list(outputs, OUTPUT_BASE + 1, OUTPUT_BASE + ports)] if comma else [],
    )


def _now(engine: Engine, result: CrossConnect) -> CrossConnect:
    """A cross-connect after the wait; someone may have taken it down meanwhile."""
    gone = CrossConnect(result.pair, CrossConnectState.INVALID, cause="it was disconnected meanwhile")
    return engine.find(result.pair) or gone


def _judge(command: Command, results: Sequence[CrossConnect]) -> Answer:
    """All well: COMPLD. Some pairs failed: PRTL. All failed: DENY. A row for each pair in every case."""
    bad = [r for r in results if r.state in BAD]
    rows = tuple(map(format_cross_connect, results))
    if not bad:
        return Answer(command.ctag or "0", "COMPLD", rows)
    text = "; ".join(f"{r.pair.input} to {r.pair.output}: {r.cause}" for r in bad[:8])
    code = "DENY" if len(bad) == len(results) else "PRTL"
    return Answer(command.ctag or "0", code, rows, "SROF", text)
