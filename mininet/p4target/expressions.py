"""Expressions of the program as Python source.

Naming in generated code: `h3`, `v3` value (an int, the whole header) and validity of header 3; `m2_5` field 5 of
metadata instance 2; `p0` an action's parameter. An invalid header's value is 0.
Arithmetic is done on unbounded integers and cut to width where p4c says so or where a field is assigned, as in BMv2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rostrum.lab.p4target.program import Field, Header, Program, ProgramError, construct

SHIFT_MAX_BITS = 4096  # farther than any value is wide: shifting left by more gives 0

BOOLEAN = frozenset(("==", "!=", ">", ">=", "<", "<=", "and", "or", "not", "valid", "d2b"))
COMPARISON = {"==": "==", "!=": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}


class Data(NamedTuple):
    """Source of an integer. `bits`: it is known to be 0 or more and below 2**bits; None: nothing is known. `part`: it
    is bits of a variable, (variable, shift, mask), so that further shifts and masks can be joined to it."""

    source: str
    bits: int | None
    part: tuple[str, int, int] | None = None


def bits_of(name: str, shift: int, mask: int, whole: bool) -> Data:
    """Some bits of a variable. `whole`: there are none above them."""
    if not mask:
        return Data("0", 0)
    source = f"({name} >> {shift})" if shift else name
    if not whole:
        source = f"({source} & {literal(mask)})"
    return Data(source, mask.bit_length(), (name, shift, mask))


def unwrap(node: Any) -> dict[str, Any]:
    """The innermost of nested `expression` objects: an operation (with `op`) or a leaf (with `type`)."""
    while isinstance(node, dict) and node.get("type") == "expression":
        node = node["value"]
    if not isinstance(node, dict) or ("op" not in node and "type" not in node):
        raise ProgramError(f"{str(node)[:60]!r} is no expression")
    return node


def constant(node: Any) -> int | None:
    """The value, if it is one."""
    leaf = unwrap(node)
    return int(leaf["value"], 16) if leaf.get("type") == "hexstr" else None


def literal(value: int) -> str:
    return hex(value) if value > 9 else f"({value})" if value < 0 else str(value)


class Translator:
    """Makes Python of expressions and assignments. `parameters`: widths of the action's parameters, in bits."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.parameters: Sequence[int] = ()

    # -- places -------------------------------------------------------------------------------------------------

    def metadata(self, header: Header, name: str) -> str:
        return f"m{header.index}_{list(header.fields).index(name)}"

    def place(self, target: tuple[str, str]) -> str:
        """The variable of a metadata field."""
        self.program.field_of(*target)
        header = self.program.headers[target[0]]
        if not header.metadata:
            raise ProgramError(f"{target[0]}.{target[1]} is no metadata")
        return self.metadata(header, target[1])

    def standard(self, name: str) -> str | None:
        """The variable of a field the architecture knows, if the program has it."""
        target = self.program.standard(name)
        return self.place(target) if target else None

    def field(self, name: str, member: str) -> Data:
        """Reads a field."""
        if member == "$valid$":
            return Data(f"(1 if v{self.header_named(name).index} else 0)", 1)
        info, header = self.program.field_of(name, member), self.program.headers[name]
        if header.metadata:
            return Data(self.metadata(header, member), None if info.signed else info.width_bits)
        return self.member(header, info)

    def member(self, header: Header, info: Field) -> Data:
        whole = info.shift_bits + info.width_bits == header.width_bits
        found = bits_of(f"h{header.index}", info.shift_bits, info.mask, whole)
        if info.signed:
            top = literal(1 << (info.width_bits - 1))
            return Data(f"(({found.source} ^ {top}) - {top})", None)
        return found

    def header_named(self, name: str) -> Header:
        if name not in self.program.headers:
            raise ProgramError(f"no header {name!r}")
        return self.program.headers[name]

    def header(self, node: Any) -> Header:
        """The header of an expression."""
        leaf = unwrap(node)
        if leaf.get("type") != "header":
            raise ProgramError(f"{leaf.get('op') or leaf.get('type')!r} is no header")
        return self.header_named(leaf["value"])

    def assign(self, node: Any, value: Data) -> list[str]:
        """Statements that put a value into a field, cut to the field's width."""
        leaf = unwrap(node)
        if leaf.get("type") == "field":
            name, member = leaf["value"]
            info, header = self.program.field_of(name, member), self.header_named(name)
            if header.metadata:
                return [f"{self.metadata(header, member)} = {cut(value, info, pattern=False)}"]
            return self.store(header, info, value)
        raise ProgramError(f"{leaf.get('type') or leaf.get('op')!r} cannot be assigned to")

    def store(self, header: Header, info: Field, value: Data) -> list[str]:
        """A field of a header that is not there stays as it is."""
        name, source = f"h{header.index}", cut(value, info, pattern=True)
        if info.shift_bits:
            source = f"({source} << {info.shift_bits})"
        keep = ((1 << header.width_bits) - 1) ^ (info.mask << info.shift_bits)
        if keep:
            source = f"{name} & {literal(keep)} | {source}"
        return [f"if v{header.index}:", f"    {name} = {source}"]

    # -- values -------------------------------------------------------------------------------------------------

    def is_boolean(self, node: Any) -> bool:
        leaf = unwrap(node)
        if leaf.get("op") == "?":
            return self.is_boolean(leaf["left"])
        return leaf.get("type") == "bool" or leaf.get("op") in BOOLEAN

    def boolean(self, node: Any) -> str:
        """Source of a truth value."""
        leaf = unwrap(node)
        if leaf.get("type") == "bool":
            return "True" if leaf["value"] else "False"
        op = leaf.get("op")
        if op not in BOOLEAN and op != "?":
            return f"({self.data(leaf).source} != 0)"
        with construct(f"operation {op!r}"):
            if op == "d2b":
                inner = unwrap(leaf["right"])
                if inner.get("type") == "field" and inner["value"][1] == "$valid$":
                    return f"v{self.header_named(inner['value'][0]).index}"
                return f"({self.data(inner).source} != 0)"
            if op == "valid":
                return f"v{self.header(leaf['right']).index}"
            if op == "not":
                return f"(not {self.boolean(leaf['right'])})"
            if op in ("and", "or"):
                return f"({self.boolean(leaf['left'])} {op} {self.boolean(leaf['right'])})"
            if op == "?":
                cond, left, right = (self.boolean(leaf[side]) for side in ("cond", "left", "right"))
                return f"({left} if {cond} else {right})"
            if unwrap(leaf["left"]).get("type") == "header":
                return self._same_headers(leaf)
            if self.is_boolean(leaf["left"]):
                return f"({self.boolean(leaf['left'])} {op} {self.boolean(leaf['right'])})"
            return f"({self.data(leaf['left']).source} {COMPARISON[op]} {self.data(leaf['right']).source})"

    def _same_headers(self, leaf: dict[str, Any]) -> str:
        if leaf["op"] not in ("==", "!="):
            raise ProgramError("headers are equal or not, and in no order")
        a, b = self.header(leaf["left"]).index, self.header(leaf["right"]).index
        same = f"(v{a} and v{b} and h{a} == h{b})"
        return same if leaf["op"] == "==" else f"(not {same})"

    def data(self, node: Any) -> Data:
        """Source of an integer."""
        leaf = unwrap(node)
        if "op" in leaf:
            with construct(f"operation {leaf['op']!r}"):
                return self._operation(leaf)
        kind = leaf["type"]
        value: Any = leaf.get("value")
        if kind == "hexstr":
            number = int(str(value), 16)
            return Data(literal(number), number.bit_length() if number >= 0 else None)
        if kind == "field":
            return self.field(*value)
        if kind in ("local", "runtime_data"):
            if not isinstance(value, int) or not 0 <= value < len(self.parameters):
                raise ProgramError(f"the action has no parameter {value}")
            return Data(f"p{value}", self.parameters[value])
        if kind == "bool":
            return Data("1" if value else "0", 1)
        if kind == "register":
            array = self.program.registers[value[0]]
            return Data(f"register(R{array.index}, {self.data(value[1]).source})", array.width_bits)
        if kind == "lookahead":
            return self.lookahead(*value)
        raise ProgramError(f"values of type {kind!r} are not supported")

    def lookahead(self, offset_bits: int, width_bits: int) -> Data:
        """Bits ahead of the parser's position. The parser sees to it that they are there."""
        first, last = offset_bits // 8, (offset_bits + width_bits + 7) // 8
        source = f"int.from_bytes(data[pos + {first}:pos + {last}], 'big')" if first else (
            f"int.from_bytes(data[pos:pos + {last}], 'big')"
        )  # fmt: skip
        after = last * 8 - offset_bits - width_bits
        source = f"({source} >> {after})" if after else source
        if offset_bits % 8:
            source = f"({source} & {literal((1 << width_bits) - 1)})"
        return Data(source, width_bits)

    def _operation(self, leaf: dict[str, Any]) -> Data:
        op = leaf["op"]
        if op in BOOLEAN or (op == "?" and self.is_boolean(leaf)):
            return Data(f"(1 if {self.boolean(leaf)} else 0)", 1)
        if op == "b2d":
            return Data(f"(1 if {self.boolean(leaf['right'])} else 0)", 1)
        if op == "?":
            left, right = self.data(leaf["left"]), self.data(leaf["right"])
            return Data(f"({left.source} if {self.boolean(leaf['cond'])} else {right.source})", widest(left, right))
        if op == "~":
            return Data(f"(~{self.data(leaf['right']).source})", None)
        left, right = self.data(leaf["left"]), self.data(leaf["right"])
        if op in ("two_comp_mod", "usat_cast", "sat_cast"):
            return self._cast(op, left, constant(leaf["right"]))
        if op in ("<<", ">>"):
            return self._shift(op, left, right, constant(leaf["right"]))
        if op in ("/", "%"):
            return Data(f"{'divide' if op == '/' else 'modulo'}({left.source}, {right.source})", left.bits)
        mask = constant(leaf["right"])
        if op == "&" and mask is not None and mask >= 0:
            return masked(left, mask)
        return self._arithmetic(op, left, right)

    def _cast(self, op: str, left: Data, width: int | None) -> Data:
        if width is None or not 1 <= width <= SHIFT_MAX_BITS:
            raise ProgramError("the width is no constant")
        if op == "usat_cast":
            if left.bits is not None and left.bits <= width:
                return left
            return Data(f"min(max({left.source}, 0), {literal((1 << width) - 1)})", width)
        top = 1 << (width - 1)
        if op == "sat_cast":
            return Data(f"min(max({left.source}, {literal(-top)}), {literal(top - 1)})", None)
        return Data(f"((({left.source} + {literal(top)}) & {literal((1 << width) - 1)}) - {literal(top)})", None)

    def _shift(self, op: str, left: Data, right: Data, by: int | None) -> Data:
        if by is None:
            name = "shift_left" if op == "<<" else "shift_right"
            return Data(f"{name}({left.source}, {right.source})", left.bits if op == ">>" else None)
        if by < 0:
            return Data("0", 0)
        if op == ">>":
            if left.part is not None:
                name, shift, mask = left.part
                return bits_of(name, shift + by, mask >> by, False)
            return Data(f"({left.source} >> {by})", max(0, left.bits - by) if left.bits is not None else None)
        if by > SHIFT_MAX_BITS:
            return Data("0", 0)
        return Data(f"({left.source} << {by})", left.bits + by if left.bits is not None else None)

    def _arithmetic(self, op: str, left: Data, right: Data) -> Data:
        if op not in ("+", "-", "*", "&", "|", "^"):
            raise ProgramError("not supported")
        bits: int | None = None
        if op == "&":
            known = [side.bits for side in (left, right) if side.bits is not None]
            bits = min(known) if known else None
        elif left.bits is not None and right.bits is not None and op != "-":
            bits = {"+": max(left.bits, right.bits) + 1, "*": left.bits + right.bits}.get(
                op, max(left.bits, right.bits)
            )
        return Data(f"({left.source} {op} {right.source})", bits)


def masked(value: Data, mask: int) -> Data:
    """A value and a constant mask, which may change nothing, or join one that is there."""
    if value.bits is not None and not ((1 << value.bits) - 1) & ~mask:
        return value
    if value.part is not None:
        name, shift, inner = value.part
        return bits_of(name, shift, inner & mask, False)
    bits = mask.bit_length() if value.bits is None else min(mask.bit_length(), value.bits)
    return Data(f"({value.source} & {literal(mask)})", bits)


def widest(left: Data, right: Data) -> int | None:
    return None if left.bits is None or right.bits is None else max(left.bits, right.bits)


def cut(value: Data, info: Field, *, pattern: bool) -> str:
    """A value as a field keeps it: cut (or held, if the field saturates) to its width. `pattern`: as a bit pattern,
    for a place in a header; else a signed field's value is negative where it should be."""
    width, mask = info.width_bits, info.mask
    if info.saturating:
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if info.signed else (0, mask)
        source = f"min(max({value.source}, {literal(low)}), {literal(high)})"
        return f"({source} & {literal(mask)})" if pattern and info.signed else source
    if info.signed and not pattern:
        top = literal(1 << (width - 1))
        return f"((({value.source} + {top}) & {literal(mask)}) - {top})"
    return masked(value, mask).source
