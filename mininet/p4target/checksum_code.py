"""Generates checksums over fields."""

from __future__ import annotations

from typing import Any, NamedTuple

from rostrum.lab.p4target.expressions import Data, Translator, literal, unwrap
from rostrum.lab.p4target.program import Field, Header, ProgramError, construct
from rostrum.lab.p4target.source import Source


def calculation_source(item: dict[str, Any], translate: Translator, out: Source) -> str:
    """Code that collects the input; the source of the result."""
    if item["algo"] not in ("csum16", "cksum16"):
        raise ProgramError(f"algorithm {item['algo']!r} is not supported")
    inputs = _inputs(item["input"], translate)
    payload = any(part["type"] == "payload" for part in item["input"])
    conditions = {part.condition for part in inputs}
    if len(conditions) <= 1 and not payload:
        # A sum of 16-bit text with end-around carry is the remainder modulo 65535. An invalid header's value is 0.
        width = sum(part.width_bits for part in inputs)
        out.line(f"bits = {_joined(inputs, -width % 16)}")
        return "(0xffff - (bits % 0xffff or (0xffff if bits else 0)))"
    if conditions <= {None}:
        width = sum(part.width_bits for part in inputs)
        out.line(f"bits, wide = {_joined(inputs, 0)}, {width}")
    else:
        _collect(inputs, out)
    out.line("buffer = (bits << -wide % 8).to_bytes((wide + 7) // 8, 'big')")
    if payload:
        out.line("buffer += data[pos:]")
    return "csum16(buffer)"


class Input(NamedTuple):
    """Part of what is hashed. `condition`: it is left out if this is false. `header`, `shift_bits`: where it is, if
    in a packet's header."""

    condition: str | None
    source: str
    width_bits: int
    header: Header | None = None
    shift_bits: int = 0


def _inputs(inputs: list[dict[str, Any]], translate: Translator) -> list[Input]:
    """All but the payload; neighbours in a header are one."""
    parts: list[Input] = []
    for part in inputs:
        if part["type"] == "payload":
            continue
        new = _input(part["type"], part.get("value"), part, translate)
        last = parts[-1] if parts else None
        if last and last.header and last.header is new.header and last.shift_bits == new.shift_bits + new.width_bits:
            parts[-1] = _of_header(last.header, new.shift_bits, last.width_bits + new.width_bits, translate)
        else:
            parts.append(new)
    return parts


def _of_header(header: Header, shift_bits: int, width_bits: int, translate: Translator) -> Input:
    source = translate.member(header, Field("", width_bits, False, False, shift_bits)).source
    return Input(f"v{header.index}", source, width_bits, header, shift_bits)


def _input(kind: str, value: Any, part: dict[str, Any], translate: Translator) -> Input:
    if kind == "field":
        header, info = translate.header_named(value[0]), translate.program.field_of(*value)
        if not header.metadata:
            return _of_header(header, info.shift_bits, info.width_bits, translate)
        source = translate.field(*value).source
        return Input(None, f"({source} & {literal(info.mask)})" if info.signed else source, info.width_bits)
    if kind == "hexstr":
        width = part["bitwidth"]
        return Input(None, literal(int(value, 16) & ((1 << width) - 1)), width)
    if kind == "header":
        header = translate.header_named(value)
        return _of_header(header, 0, header.width_bits, translate)
    raise ProgramError(f"input of type {kind!r} is not supported")


def _joined(inputs: list[Input], after_bits: int) -> str:
    """The inputs side by side in one number, and so many zero bits after them."""
    sources: list[str] = []
    for part in reversed(inputs):
        sources.append(f"({part.source} << {after_bits})" if after_bits else part.source)
        after_bits += part.width_bits
    return " | ".join(reversed(sources)) or "0"


def _collect(inputs: list[Input], out: Source) -> None:
    """Leaves out what is of headers that are not there: `bits` and `wide` grow."""
    out.line("bits = wide = 0")
    for part in inputs:
        add = f"bits, wide = bits << {part.width_bits} | {part.source}, wide + {part.width_bits}"
        out.lines([add] if part.condition is None else [f"if {part.condition}:", f"    {add}"])


def verify_checksums(translate: Translator, out: Source) -> None:
    """`wrong` becomes 1 if a checksum of the packet is not right."""
    out.line("wrong = 0")
    for item in translate.program.checksums:
        if item.get("verify", True):
            with construct(f"checksum {item['name']}"), out.block(f"if {_condition(item, translate)}:"):
                value = calculation_source(translate.program.calculations[item["calculation"]], translate, out)
                with out.block(f"if {value} != {translate.field(*item['target']).source}:"):
                    out.line("wrong = 1")


def update_checksums(translate: Translator, out: Source) -> None:
    """Puts checksums into their fields."""
    for item in translate.program.checksums:
        if item.get("update", True):
            with construct(f"checksum {item['name']}"), out.block(f"if {_condition(item, translate)}:"):
                value = calculation_source(translate.program.calculations[item["calculation"]], translate, out)
                out.lines(translate.assign({"type": "field", "value": item["target"]}, Data(value, None)))


def _condition(item: dict[str, Any], translate: Translator) -> str:
    """The header is there, and the program's condition holds."""
    header = translate.header_named(item["target"][0])
    conditions = [] if header.metadata else [f"v{header.index}"]
    if item.get("if_cond") is not None and unwrap(item["if_cond"]) != {"type": "bool", "value": True}:
        conditions.append(translate.boolean(item["if_cond"]))
    return " and ".join(conditions) or "True"
