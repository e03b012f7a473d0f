"""Generates the parser: a loop over states, left by `break` at its end or at an error.

Variables: `data` the frame, `size` its length, `pos` bytes parsed, `state` the next state's number, `error` the value
of the parser's error. `transition_key` and `transitions` are compared field by field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rostrum.lab.p4target.expressions import Data, Translator, literal, unwrap
from rostrum.lab.p4target.program import Header, Program, ProgramError, construct
from rostrum.lab.p4target.source import Source

STATES_MAX = 512  # a parser that does not end by then has a loop without extracting anything


class ParserCode:
    def __init__(
        self, program: Program, translate: Translator, out: Source, primitive: Callable[[dict[str, Any]], None]
    ) -> None:
        """`primitive` writes the code of a statement that actions may have too."""
        self.program, self.translate, self.out, self.primitive = program, translate, out, primitive
        self.numbers = {name: number for number, name in enumerate(program.parser_states)}

    def error(self, name: str) -> int:
        """An error's value; 0 if the program does not name it, as it cannot look at it then."""
        return self.program.errors.get(name, 0)

    def write(self) -> None:
        out = self.out
        out.line("pos = 0")
        out.line(f"error = {self.error('NoError')}")
        if self.program.parser_first is None:
            return
        out.line(f"state = {self.numbers[self.program.parser_first]}")
        out.line(f"left = {STATES_MAX}")
        with out.block("while True:"):
            with out.block("if not left:"):
                self._fail("ParserTimeout")
            out.line("left -= 1")
            for place, (name, state) in enumerate(self._ordered()):
                with (
                    construct(f"parser state {name}"),
                    out.block(f"{'el' if place else ''}if state == {self.numbers[name]}:"),
                ):
                    self._state(state)
            with out.block("else:"):
                out.line("break")

    def _ordered(self) -> list[tuple[str, dict[str, Any]]]:
        """States as they are usually met, so that the chain of comparisons is short for most packets."""
        first, states = self.program.parser_first, self.program.parser_states
        assert first is not None
        names, waiting = [], [first]
        while waiting:
            name = waiting.pop(0)
            if name in names:
                continue
            if name not in states:
                raise ProgramError(f"no parser state {name!r}")
            names.append(name)
            waiting += [each["next_state"] for each in states[name]["transitions"] if each["next_state"] is not None]
        return [(name, states[name]) for name in names]

    def _fail(self, name: str) -> None:
        self.out.line(f"error = {self.error(name)}")
        self.out.line("break")

    def _need(self, size: str) -> None:
        with self.out.block(f"if size - pos < {size}:"):
            self._fail("PacketTooShort")

    def _state(self, state: dict[str, Any]) -> None:
        for position, operation in enumerate(state["parser_ops"]):
            with construct(f"operation {position} ({operation['op']})"):
                self._operation(operation["op"], operation["parameters"])
        with construct("transitions"):
            self._transitions(state)

    # -- operations ---------------------------------------------------------------------------------------------

    def _operation(self, name: str, parameters: list[Any]) -> None:
        match name:
            case "extract":
                self._extract(parameters[0])
            case "set":
                self._set(parameters[0], parameters[1])
            case "advance":
                self._advance(parameters[0])
            case "shift":
                self._skip(Data(str(int(parameters[0])), None))
            case "verify":
                with self.out.block(f"if not {self.translate.boolean(parameters[0])}:"):
                    self.out.line(f"error = {self.translate.data(parameters[1]).source}")
                    self.out.line("break")
            case "primitive":
                self.primitive(parameters[0])
            case _:
                raise ProgramError("not supported")

    def _extract(self, what: dict[str, Any]) -> None:
        if what["type"] == "regular":
            header = self.translate.header_named(what["value"])
            self._need(str(header.width_bytes))
            self._read(header)
        else:
            raise ProgramError(f"extracting into a {what['type']!r} is not supported")

    def _read(self, header: Header) -> None:
        width = header.width_bytes
        self.out.line(f"h{header.index} = int.from_bytes(data[pos:pos + {width}], 'big')")
        self.out.line(f"v{header.index} = True")
        self.out.line(f"pos += {width}")

    def _set(self, target: dict[str, Any], source: dict[str, Any]) -> None:
        leaf = unwrap(source)
        if leaf.get("type") == "lookahead":
            self._need(str((leaf["value"][0] + leaf["value"][1] + 7) // 8))
        self.out.lines(self.translate.assign(target, self.translate.data(leaf)))

    def _advance(self, amount: Any) -> None:
        bits = self.translate.data(amount)
        self.out.line(f"t = {bits.source}")
        with self.out.block("if t < 0 or t & 7:"):
            self._fail("ParserInvalidArgument")
        self._skip(Data("(t >> 3)", None))

    def _skip(self, amount: Data) -> None:
        self._need(amount.source)
        self.out.line(f"pos += {amount.source}")

    # -- transitions --------------------------------------------------------------------------------------------

    def _key(self, state: dict[str, Any]) -> list[int]:
        """Computes `k0`, `k1`, ...; their widths."""
        widths = []
        for number, part in enumerate(state["transition_key"]):
            if part["type"] == "lookahead":
                self._need(str((part["value"][0] + part["value"][1] + 7) // 8))
            elif part["type"] != "field":
                raise ProgramError(f"a key of type {part['type']!r} is not supported")
            value = self.translate.data(part)
            if value.bits is None:
                info = self._signed(part)
                value = Data(f"({value.source} & {literal((1 << info) - 1)})", info)
            self.out.line(f"k{number} = {value.source}")
            widths.append(value.bits or 1)
        return widths

    def _signed(self, part: dict[str, Any]) -> int:
        name, member = part["value"]
        return self.program.field_of(name, member).width_bits

    def _transitions(self, state: dict[str, Any]) -> None:
        widths, first = self._key(state), True
        for transition in state["transitions"]:
            if transition.get("type", "default") == "default" or transition["value"] == "default":
                if first:
                    self._go(transition["next_state"])
                else:
                    with self.out.block("else:"):
                        self._go(transition["next_state"])
                return
            with self.out.block(f"{'if' if first else 'elif'} {self._condition(transition, widths)}:"):
                self._go(transition["next_state"])
            first = False
        # No select expression without a default can be told from one: BMv2 accepts the packet.
        if not state["transitions"]:
            self.out.line("break")
        else:
            with self.out.block("else:"):
                self.out.line("break")

    def _condition(self, transition: dict[str, Any], widths: list[int]) -> str:
        if transition["type"] != "hexstr":
            raise ProgramError(f"type {transition['type']!r} is not supported")
        value = int(transition["value"], 16)
        mask = int(transition["mask"], 16) if transition.get("mask") is not None else None
        conditions: list[str] = []
        for number in reversed(range(len(widths))):
            padded = (widths[number] + 7) // 8 * 8
            part, value = value & ((1 << padded) - 1), value >> padded
            full = (1 << widths[number]) - 1
            part_mask = full
            if mask is not None:
                part_mask, mask = mask & full, mask >> padded
            if part_mask == full:
                conditions.append(f"k{number} == {literal(part)}")
            elif part_mask:
                conditions.append(f"k{number} & {literal(part_mask)} == {literal(part & part_mask)}")
        return " and ".join(reversed(conditions)) or "True"

    def _go(self, name: str | None) -> None:
        self.out.line("break" if name is None else f"state = {self.numbers[name]}")
