"""Generates the primitives of actions, in the place where the action is called.

`p0`, `p1`, ... are the action's arguments. Names in capital letters, and those of functions, are what `Pipeline` puts
into the generated module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rostrum.lab.p4target.checksum_code import calculation_source
from rostrum.lab.p4target.expressions import Data, Translator, constant, literal, unwrap
from rostrum.lab.p4target.program import Action, Header, Program, ProgramError, construct
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
            "assign_header_stack": self._assign_stack,
            "add_header": self._add_header,
            "remove_header": self._remove_header,
            "push": self._push,
            "pop": self._pop,
            "mark_to_drop": lambda *_: self._drop(),
            "drop": self._drop,
            "no_op": lambda: None,
            "exit": lambda: self.out.line("leave = True"),
            "count": self._count,
            "execute_meter": self._meter,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "generate_digest": lambda _, number: self._note("digest", number),
            "clone_ingress_pkt_to_egress": self._clone,
            "clone_egress_pkt_to_egress": self._clone,
            "resubmit": lambda number: self._note("resubmitted", number),
            "recirculate": lambda number: self._note("recirculated", number),
            "modify_field_with_hash_based_offset": self._hash,
            "modify_field_rng_uniform": self._random,
            "truncate": lambda size: self.out.line(f"trunc = min(trunc, {self.translate.data(size).source})"),
            "log_msg": self._log,
            "assert": lambda condition: self._check(condition, "assert"),
            "assume": lambda condition: self._check(condition, "assume"),
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

    def _each(self, node: Any, write: Callable[[Header], None]) -> None:
        """Code for the header of an expression, under conditions if it is known only at run time."""
        for condition, header in self.translate.headers(node):
            if condition is None:
                write(header)
            else:
                with self.out.block(f"if {condition}:"):
                    write(header)

    def _assign_header(self, target: Any, source: Any) -> None:
        def read(header: Header) -> None:
            self.out.line(f"t, u = h{header.index}, v{header.index}")

        def write(header: Header) -> None:
            self.out.line(f"h{header.index}, v{header.index} = t, u")

        if len(self.translate.headers(source)) > 1:
            self.out.line("t, u = 0, False")
        self._each(source, read)
        self._each(target, write)

    def _assign_stack(self, target: Any, source: Any) -> None:
        to, of = self.translate.stack(target), self.translate.stack(source)
        self.out.line(f"x{to.index} = x{of.index}")
        for one, other in zip(to.headers, of.headers, strict=True):
            self.out.line(f"h{one.index}, v{one.index} = h{other.index}, v{other.index}")

    def _add_header(self, node: Any) -> None:
        def write(header: Header) -> None:
            with self.out.block(f"if not v{header.index}:"):
                self.out.line(f"h{header.index}, v{header.index} = 0, True")
                self.out.line(f"plen += {header.width_bytes}")

        self._each(node, write)

    def _remove_header(self, node: Any) -> None:
        def write(header: Header) -> None:
            with self.out.block(f"if v{header.index}:"):
                self.out.line(f"h{header.index}, v{header.index} = 0, False")
                self.out.line(f"plen -= {header.width_bytes}")

        self._each(node, write)

    def _shifted(self, node: Any, amount: Any, forward: bool) -> None:
        stack, by = self.translate.stack(node), constant(amount)
        if by is None:
            raise ProgramError("the number of headers is no constant")
        indexes, count = [header.index for header in stack.headers], len(stack.headers)
        by = min(by, count)
        sources = [None] * by + indexes[: count - by] if forward else indexes[by:] + [None] * by
        left = [f"h{index}, v{index}" for index in indexes]
        right = ["0, False" if source is None else f"h{source}, v{source}" for source in sources]
        self.out.line(f"{', '.join(left)} = {', '.join(right)}")
        name = f"x{stack.index}"
        self.out.line(f"{name} = min({count}, {name} + {by})" if forward else f"{name} = max(0, {name} - {by})")

    def _push(self, node: Any, amount: Any) -> None:
        self._shifted(node, amount, True)

    def _pop(self, node: Any, amount: Any) -> None:
        self._shifted(node, amount, False)

    # -- what becomes of the packet -----------------------------------------------------------------------------

    def _drop(self, *_: Any) -> None:
        port = self.translate.standard("standard_metadata.egress_spec")
        if port is None:
            raise ProgramError("the program has no egress_spec")
        self.out.line(f"{port} = DROP_PORT")
        if group := self.translate.standard("intrinsic_metadata.mcast_grp"):
            self.out.line(f"{group} = 0")

    def _note(self, name: str, number: Any) -> None:
        self.out.line(f"{name} = {self.translate.data(number).source}")

    def _clone(self, session: Any, field_list: Any) -> None:
        fields = self.translate.data(field_list).source
        self.out.line(f"cloned = ({self.translate.data(session).source} & 0x7fff, {fields})")

    # -- counters, meters, registers, hashes --------------------------------------------------------------------

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

    def _hash(self, target: Any, base: Any, calculation: Any, size: Any) -> None:
        item = self.program.calculations[calculation["value"]]
        with construct(f"calculation {calculation['value']}"):
            value = calculation_source(item, self.translate, self.out)
        low, count = self.translate.data(base).source, self.translate.data(size).source
        self.out.line(f"t = {value} % (({count}) or 1) + {low}")
        self.out.lines(self.translate.assign(target, Data("t", None)))

    def _random(self, target: Any, low: Any, high: Any) -> None:
        self.out.line(f"t, u = {self.translate.data(low).source}, {self.translate.data(high).source}")
        with self.out.block("if t <= u:"):
            self.out.lines(self.translate.assign(target, Data("random_between(t, u)", None)))

    # -- telling --------------------------------------------------------------------------------------------------

    def _log(self, text: Any, values: Any) -> None:
        sources = [self.translate.data(value).source for value in values["value"]]
        self.out.line(f"log({text['value']!r}, ({''.join(f'{source}, ' for source in sources)}))")

    def _check(self, condition: Any, name: str) -> None:
        leaf = unwrap(condition)
        with self.out.block(f"if not {self.translate.boolean(leaf)}:"):
            self.out.line(f"raise Abandoned({name!r})")
