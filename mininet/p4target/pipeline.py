"""A loaded program: its generated code, tables, counters, registers and meters."""

from __future__ import annotations

import builtins
from typing import Any, Protocol

from rostrum.lab.p4target.expressions import SHIFT_MAX_BITS
from rostrum.lab.p4target.meters import Meters
from rostrum.lab.p4target.pipeline_code import PipelineCode
from rostrum.lab.p4target.program import MALFORMED, Program, ProgramError
from rostrum.lab.p4target.tables import Table, TableError

# What generated code uses of objects.
ATTRIBUTES = {
    "from_bytes",
    "to_bytes",
    "miss",
    "look_up",
    "action",
    "arguments",
    "packets",
    "octets",
    "meter",
    "colour",
}


class Around(Protocol):
    """What generated code calls of the switch around it."""

    drop_port: int

    def enqueue(self, port: int, priority: int, rid: int, shared: tuple[Any, ...]) -> None: ...
    def replicate(self, group: int, priority: int, shared: tuple[Any, ...]) -> None: ...
    def learn(self, number: int, values: tuple[int, ...]) -> None: ...
    def dropped(self, why: str) -> None: ...
    def clock_us(self) -> int: ...


class Pipeline:
    """`ingress`, `egress`: the generated functions (pipeline_code.py); `source`: their text."""

    def __init__(self, program: Program, around: Around) -> None:
        self.program = program
        try:
            self.tables = {name: Table(info) for name, info in program.tables.items()}
        except TableError as error:
            raise ProgramError(str(error)) from error
        except (*MALFORMED, OverflowError) as error:
            raise ProgramError(f"tables: not of the expected form ({error})") from error
        # Packets and bytes of each counter array.
        self.counters = {
            name: ([0] * array.size, [0] * array.size)
            for name, array in program.counters.items()
            if array.table is None
        }
        self.registers = {name: [0] * array.size for name, array in program.registers.items()}
        self.meters = {name: Meters(array.unit, array.size, around.clock_us) for name, array in program.meters.items()}
        try:
            self.source = PipelineCode(program, around.drop_port).text()
            code = compile(self.source, "<p4 program>", "exec")
        except RecursionError as error:
            raise ProgramError("an expression is nested too deeply") from error
        except MALFORMED as error:
            raise ProgramError(f"not of the expected form ({error})") from error
        except (SyntaxError, OverflowError, MemoryError) as error:
            raise ProgramError(f"the program is beyond what this target can generate code for: {error}") from error
        module = self._module(around)
        exec(code, module)
        self.ingress, self.egress = module["ingress"], module["egress"]
        self._check_names(module)

    @staticmethod
    def _check_names(module: dict[str, Any]) -> None:
        """Nothing the code uses is missing: better now than when the first packet comes by."""
        for name in ("ingress", "egress"):
            unknown = set(module[name].__code__.co_names) - set(module) - set(dir(builtins)) - ATTRIBUTES
            if unknown:
                raise ProgramError(f"{name} uses what it never sets ({', '.join(sorted(unknown))})")

    def _module(self, around: Around) -> dict[str, Any]:
        program = self.program
        module: dict[str, Any] = {
            "DROP_PORT": around.drop_port,
            "csum16": csum16,
            "shift_left": shift_left,
            "shift_right": shift_right,
            "divide": divide,
            "modulo": modulo,
            "register": register,
        }
        for name in ("enqueue", "replicate", "learn", "dropped", "clock_us"):
            module[name] = getattr(around, name)
        for table in self.tables.values():
            module[f"T{table.info.index}"] = table
            module[f"F{table.info.index}"] = table.find.get
        for name, (packets, octets) in self.counters.items():
            number = program.counters[name].index
            module[f"CP{number}"], module[f"CB{number}"] = packets, octets
        for name, cells in self.registers.items():
            module[f"R{program.registers[name].index}"] = cells
        for name, meters in self.meters.items():
            module[f"M{program.meters[name].index}"] = meters
        return module

    def table(self, name: str) -> Table:
        if name not in self.tables:
            raise TableError("invalid", f"the program has no table {name}")
        return self.tables[name]


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071). A sum of 16-bit text with end-around carry is a remainder modulo 65535."""
    value = int.from_bytes(data + b"\0" if len(data) % 2 else data, "big")
    return 0xFFFF - (value % 0xFFFF or (0xFFFF if value else 0))


def shift_left(value: int, by: int) -> int:
    return value << by if 0 <= by <= SHIFT_MAX_BITS else 0


def shift_right(value: int, by: int) -> int:
    return value >> by if by >= 0 else 0


def divide(value: int, by: int) -> int:
    """0 for what has no quotient: a packet must not stop the switch."""
    return value // by if by > 0 else 0


def modulo(value: int, by: int) -> int:
    return value % by if by > 0 else 0


def register(cells: list[int], index: int) -> int:
    return cells[index] if 0 <= index < len(cells) else 0
