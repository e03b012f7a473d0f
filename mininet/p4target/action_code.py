"""Generates the primitives of actions, in the place where the action is called.

`p0`, `p1`, ... are the action's arguments. Names in capital letters, and those of functions, are what `Pipeline` puts
into the generated module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rostrum.lab.p4target.expressions import Data, Translator, constant, literal
from rostrum.lab.p4target.program import Action, Program, ProgramError, construct
from rostrum.lab.p4target.source import Source

BINARY = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}


class ActionCode:
    def __init__(self, program: Program, translate: Translator, out: Source) -> None:
        self.program, self.translate, self.out = program, translate, out
        self._primitives: dict[str, Callable[..., None]] = {
            "assign": self._assign,
            "modify_field": self._assign,
            "assign_header": self._assign_header,
            "copy_header": self._assign_header,
            "add_header": self._add_header,
            "remove_header": self._remove_header,
            "mark_to_drop": lambda *_: self._drop(),
            "drop": self._drop,
            "no_op": lambda: None,
            "exit": lambda: self.out.line("leave = True"),
            "count": self._count,
            "execute_meter": self._meter,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "generate_digest": lambda _, number: self.out.line(f"digest = {self.translate.data(number).source}"),
        }

    def action(self, action: Action) -> None:
        """The body of an action whose arguments are in p0, p1, ..."""
        with construct(f"action {action.name}"):
            self.translate.parameters = action.parameter_widths_bits
            try:
                if any(item["op"].startswith("_jump") for item in action.primitives):
                    self._with_jumps(action.primitives)
                else:
                    for item in action.primitives:
                        self.primitive(item)
            finally:
                self.translate.parameters = ()

    def primitive(self, item: dict[str, Any]) -> None:
        name = item["op"]
        with construct(f"primitive {name}"):
            if name not in self._primitives:
                raise ProgramError("not supported")
            self._primitives[name](*item["parameters"])

    def _with_jumps(self, primitives: list[dict[str, Any]]) -> None:
        """p4c's jumps lead forward only, so a primitive is skipped while the target is further on."""
        self.out.line("go = 0")
        for number, item in enumerate(primitives):
            with self.out.block(f"if go <= {number}:"):
                if not item["op"].startswith("_jump"):
                    self.primitive(item)
                    continue
                target = constant(item["parameters"][-1])
                if target is None or target <= number:
                    raise ProgramError("only jumps forward, to a constant place, are supported")
                if item["op"] == "_jump":
                    self.out.line(f"go = {target}")
                else:
                    condition = self._truth(item["parameters"][0])
                    with self.out.block(f"if not {condition}:"):
                        self.out.line(f"go = {target}")

    def _truth(self, node: Any) -> str:
        return self.translate.boolean(node)

    # -- fields and headers -------------------------------------------------------------------------------------

    def _assign(self, target: Any, source: Any) -> None:
        self.out.lines(self.translate.assign(target, self.translate.data(source)))

    def _assign_header(self, target: Any, source: Any) -> None:
        to, of = self.translate.header(target).index, self.translate.header(source).index
        self.out.line(f"h{to}, v{to} = h{of}, v{of}")

    def _add_header(self, node: Any) -> None:
        header = self.translate.header(node)
        with self.out.block(f"if not v{header.index}:"):
            self.out.line(f"h{header.index}, v{header.index} = 0, True")
            self.out.line(f"plen += {header.width_bytes}")

    def _remove_header(self, node: Any) -> None:
        header = self.translate.header(node)
        with self.out.block(f"if v{header.index}:"):
            self.out.line(f"h{header.index}, v{header.index} = 0, False")
            self.out.line(f"plen -= {header.width_bytes}")

    # -- what becomes of the packet -----------------------------------------------------------------------------

    def _drop(self, *_: Any) -> None:
        port = self.translate.standard("standard_metadata.egress_spec")
        if port is None:
            raise ProgramError("the program has no egress_spec")
        self.out.line(f"{port} = DROP_PORT")
        if group := self.translate.standard("intrinsic_metadata.mcast_grp"):
            self.out.line(f"{group} = 0")

    # -- counters, meters, registers ----------------------------------------------------------------------------

    def _index(self, index: Any, size: int) -> str:
        """Puts an index into `i`; a condition under which it is one."""
        self.out.line(f"i = {self.translate.data(index).source}")
        return f"if i < {size}:"

    def _count(self, array: Any, index: Any) -> None:
        counter = self.program.counters[array["value"]]
        with self.out.block(self._index(index, counter.size)):
            self.out.line(f"CP{counter.index}[i] += 1")
            self.out.line(f"CB{counter.index}[i] += length")

    def _meter(self, array: Any, index: Any, target: Any) -> None:
        meter = self.program.meters[array["value"]]
        with self.out.block(self._index(index, meter.size)):
            self.out.line(f"t = M{meter.index}.colour(i, length)")
            self.out.lines(self.translate.assign(target, Data("t", 2)))

    def _register_read(self, target: Any, array: Any, index: Any) -> None:
        register = self.program.registers[array["value"]]
        with self.out.block(self._index(index, register.size)):
            value = Data(f"R{register.index}[i]", register.width_bits)
            self.out.lines(self.translate.assign(target, value))

    def _register_write(self, array: Any, index: Any, value: Any) -> None:
        register = self.program.registers[array["value"]]
        data = self.translate.data(value)
        source = data.source
        if data.bits is None or data.bits > register.width_bits:
            source = f"{source} & {literal((1 << register.width_bits) - 1)}"
        with self.out.block(self._index(index, register.size)):
            self.out.line(f"R{register.index}[i] = {source}")
