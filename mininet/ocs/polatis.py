"""TL1 in the style of Polatis: of an N x N switch, input n is port n and output n is port N + n.

    ENT-PATCH::<in>,<out>:<ctag>:;     DLT-PATCH::<in>:<ctag>:;     RTRV-PATCH:::<ctag>:;
    RTRV-PORT-POWER::1&&64:<ctag>:;    rows "port:dBm", NONE for a dark fibre

A command is answered when it is accepted: whether light has come is seen by polling. `&` lists and `&&` ranges are
taken wherever a port is.
"""

from __future__ import annotations

from collections.abc import Mapping

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs.polatis import format_power
from rostrum.controller.southbound.ocs.tl1 import Answer, Autonomous, Command, parse_list
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.server import Handler, Refusal


class PolatisServer:
    name = "Polatis"

    def __init__(self) -> None:
        self.handlers: Mapping[str, Handler] = {
            "ENT-PATCH": enter,
            "DLT-PATCH": delete,
            "RTRV-PATCH": retrieve,
            "RTRV-PORT-POWER": retrieve_power,
        }

    def report(self, engine: Engine, changed: CrossConnect, atag: str) -> Autonomous:
        fault = changed.state is CrossConnectState.FAULT
        verb, alarm = ("REPT ALM PATCH", "*C") if fault else ("REPT EVT PATCH", "A")
        return Autonomous(atag, verb, alarm, (_row(engine, changed.pair),), changed.cause)


async def enter(engine: Engine, command: Command) -> Answer:
    ports = engine.ocs.ports
    inputs, comma, outputs = command.aid.partition(",")
    if not comma:
        raise Refusal("IDNV", "name a patch as input,output")
    ins, outs = parse_list(inputs, 1, ports), parse_list(outputs, ports + 1, 2 * ports)
    if len(ins) != len(outs):
        raise Refusal("IDNV", f"{len(ins)} inputs and {len(outs)} outputs do not make pairs")
    results = engine.connect([Pair(i, o - ports) for i, o in zip(ins, outs, strict=True)])
    bad = [r for r in results if r.state is CrossConnectState.INVALID]
    if not bad:
        return Answer(command.ctag or "0", "COMPLD")
    code = "DENY" if len(bad) == len(results) else "PRTL"
    return Answer(command.ctag or "0", code, error="SROF", text="; ".join(r.cause for r in bad[:8]))


async def delete(engine: Engine, command: Command) -> Answer:
    if command.aid.upper() == "ALL":
        engine.disconnect([c.pair for c in engine.cross_connects()])
        return Answer(command.ctag or "0", "COMPLD")
    ports = engine.ocs.ports
    pairs, absent = [], []
    for number in parse_list(command.aid, 1, 2 * ports):
        pair = engine.model.pair_at(input=number) if number <= ports else engine.model.pair_at(output=number - ports)
        if pair is None:
            absent.append(number)
        else:
            pairs.append(pair)
    engine.disconnect(pairs)
    if absent:
        raise Refusal("SNVS", f"no patch at port {', '.join(map(str, absent[:8]))}")
    return Answer(command.ctag or "0", "COMPLD")


async def retrieve(engine: Engine, command: Command) -> Answer:
    pairs = [c.pair for c in engine.cross_connects()]
    if command.aid.upper() not in ("", "ALL"):
        ports = engine.ocs.ports
        wanted = set(parse_list(command.aid, 1, 2 * ports))
        pairs = [p for p in pairs if {p.input, ports + p.output} & wanted]
    return Answer(command.ctag or "0", "COMPLD", tuple(_row(engine, p) for p in pairs))


async def retrieve_power(engine: Engine, command: Command) -> Answer:
    ports = engine.ocs.ports
    every = command.aid.upper() in ("", "ALL")
    wanted = range(1, 2 * ports + 1) if every else parse_list(command.aid, 1, 2 * ports)
    inputs, outputs = engine.powers()
    rows = (format_power(n, inputs[n] if n <= ports else outputs[n - ports]) for n in wanted)
    return Answer(command.ctag or "0", "COMPLD", tuple(rows))


def _row(engine: Engine, pair: Pair) -> str:
    return f"{pair.input},{engine.ocs.ports + pair.output}"
