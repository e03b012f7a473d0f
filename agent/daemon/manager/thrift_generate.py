"""Makes the C types and tables of the agent-manager interface from its one statement, controller/rostrum.thrift.

    thrift_generate.py rostrum.thrift thrift_schema.h thrift_schema.c

Reads the part of Thrift's language that the file uses: constants, enumerations, structs, services of oneway calls;
bool, i32, i64, string, binary, lists, and annotations of fields:

    (max = "4096")         bytes of a text or binary, elements of a list (default: 255 bytes; lists must say it)
    (text_max = "255")     of a list of texts: bytes of each (default: 255)
    (unknown = "pass")     of a required enumeration: values that are not known here are handed on, not refused

Needs nothing but Python's standard library: it runs whenever the agent is built. thrift_codec.h says how the types
look.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "rs_thrift"
TEXT_MAX = 255
SCALARS = {"bool": ("BOOL", "bool"), "i32": ("I32", "int32_t"), "i64": ("I64", "int64_t")}
TOKEN = re.compile(r'//[^\n]*|#[^\n]*|/\*.*?\*/|"[^"\n]*"|[A-Za-z_][\w.]*|-?\d+|[{}()<>:;,=]|\S', re.DOTALL)
FIELDS_MAX = 32  # of a struct: the codec keeps a bit for each


class SchemaError(Exception):
    """The file says something that this generator does not know; the text names it."""


@dataclass
class Field:
    number: int
    name: str
    type: str  # of a list: "list"
    element: str = ""  # of a list
    required: bool = True
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def inner(self) -> str:
        """The type of the value, or of a list's elements."""
        return self.element or self.type


@dataclass
class Struct:
    name: str
    fields: list[Field]


@dataclass
class Schema:
    constants: dict[str, int] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    services: dict[str, list[Struct]] = field(default_factory=dict)


class Parser:
    """Recursive descent over the file's tokens."""

    def __init__(self, text: str) -> None:
        found = (one[0] for one in TOKEN.finditer(text))
        self._tokens = [one for one in found if not one.startswith(("//", "#", "/*"))]
        self._at = 0

    def schema(self) -> Schema:
        made = Schema()
        while self._at < len(self._tokens):
            kind = self._next()
            if kind == "namespace":
                self._next(), self._next()
            elif kind == "const":
                _, name = self._next(), self._next()
                self._expect("=")
                made.constants[name] = int(self._next())
            elif kind == "enum":
                name = self._next()
                made.enums[name] = dict(self._enum())
            elif kind == "struct":
                name = self._next()
                made.structs[name] = Struct(name, list(self._fields("{", "}", optional=True)))
            elif kind == "service":
                name = self._next()
                made.services[name] = list(self._calls())
            else:
                raise SchemaError(f"{kind!r} begins nothing that is known here")
        return made

    def _enum(self) -> Iterator[tuple[str, int]]:
        self._expect("{")
        while not self._accept("}"):
            name = self._next()
            self._expect("=")
            yield name, int(self._next())
            self._accept(",")

    def _calls(self) -> Iterator[Struct]:
        self._expect("{")
        while not self._accept("}"):
            self._expect("oneway")
            self._expect("void")
            yield Struct(self._next(), list(self._fields("(", ")", optional=False)))
            self._accept(",")

    def _fields(self, begin: str, end: str, optional: bool) -> Iterator[Field]:
        self._expect(begin)
        while not self._accept(end):
            number = int(self._next())
            self._expect(":")
            required = True
            if optional:
                word = self._next()
                if word not in ("required", "optional"):
                    raise SchemaError(f"field {number}: {word!r} is neither required nor optional")
                required = word == "required"
            kind, element = self._next(), ""
            if kind == "list":
                self._expect("<")
                element = self._next()
                self._expect(">")
            name = self._next()
            yield Field(number, name, kind, element, required, self._annotations())
            self._accept(",") or self._accept(";")

    def _annotations(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._accept("("):
            while not self._accept(")"):
                name = self._next()
                self._expect("=")
                found[name] = self._next().strip('"')
                self._accept(",")
        return found

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            raise SchemaError("the file ends early")
        return self._tokens[self._at]

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise SchemaError(f"{token!r} is expected, not {found!r}")


def snake(name: str) -> str:
    """PathRequest -> path_request."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Writer:
    """The C text of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        for one in schema.structs.values():
            self._check(one)
        for calls in schema.services.values():
            for one in calls:
                self._check(one)

    def _check(self, struct: Struct) -> None:
        where = struct.name
        if len(struct.fields) > FIELDS_MAX:
            raise SchemaError(f"{where} has more than {FIELDS_MAX} fields")
        known = {*SCALARS, "string", "binary", *self._schema.enums, *self._schema.structs}
        for one in struct.fields:
            if one.inner not in known or (one.element and one.element in ("bool", "i64", "binary")):
                raise SchemaError(f"{where}.{one.name}: the type {one.inner} is not known here")
            if one.element and "max" not in one.notes:
                raise SchemaError(f'{where}.{one.name}: a list needs its bound, such as (max = "1024")')
            if unknown := set(one.notes) - {"max", "text_max", "unknown"}:
                raise SchemaError(f"{where}.{one.name}: no annotation is called {', '.join(unknown)}")

    def _ordered(self) -> list[Struct]:
        """Structs after those that they hold."""
        done: dict[str, Struct] = {}

        def visit(name: str, trail: tuple[str, ...]) -> None:
            if name in trail:
                raise SchemaError(f"{name} holds itself")
            if name in done:
                return
            for one in self._schema.structs[name].fields:
                if one.inner in self._schema.structs:
                    visit(one.inner, (*trail, name))
            done[name] = self._schema.structs[name]

        for name in self._schema.structs:
            visit(name, ())
        return list(done.values())

    # -- header ----------------------------------------------------------------------------------------------------

    def header(self, source: str) -> str:
        guard = "RS_DAEMON_MANAGER_THRIFT_SCHEMA_H"
        parts = [f"/* Made from {source} by thrift_generate.py. */", f"#ifndef {guard}", f"#define {guard}", ""]
        parts += ['#include "daemon/manager/thrift_codec.h"', ""]
        parts += [f"#define {PREFIX.upper()}_{name} {value}" for name, value in self._schema.constants.items()]
        for name, values in self._schema.enums.items():
            rows = ", ".join(f"{self._constant(name, one)} = {number}" for one, number in values.items())
            parts += ["", f"typedef enum {{ {rows} }} {PREFIX}_{snake(name)};"]
        for struct in self._ordered():
            parts += ["", *self._typedef(struct, f"{PREFIX}_{snake(struct.name)}")]
            parts.append(f"extern const rs_thrift_struct {self._shape(struct.name)};")
        for service, calls in self._schema.services.items():
            rows = ", ".join(f"{self._constant(service, one.name)}" for one in calls)
            last = self._constant(service, "unknown")
            parts += ["", f"enum {{ {rows}, {last} }};"]
            for one in calls:
                if one.fields:
                    parts += self._typedef(one, f"{PREFIX}_{snake(service)}_{one.name}")
            parts.append(f"extern const rs_thrift_service {PREFIX}_service_{snake(service)};")
        return "\n".join([*parts, "", "#endif", ""])

    def _constant(self, group: str, name: str) -> str:
        return f"{PREFIX}_{snake(group)}_{name}".upper()

    def _shape(self, name: str) -> str:
        return f"{PREFIX}_shape_{snake(name)}"

    def _typedef(self, struct: Struct, name: str) -> list[str]:
        rows = []
        for one in struct.fields:
            if self._has(one):
                rows.append(f"    bool has_{one.name};")
            rows.append(f"    {self._declaration(one)};")
        return ["typedef struct {", *rows, f"}} {name};"]

    def _has(self, one: Field) -> bool:
        """Whether a flag says that the optional field is there; others say it by their pointer."""
        if one.required:
            return False
        return bool(one.element) or one.type == "binary" or one.type in SCALARS or one.type in self._schema.enums

    def _declaration(self, one: Field) -> str:
        if one.element:
            return f"rs_thrift_list {one.name}"
        if one.type == "string":
            return f"const char *{one.name}"
        if one.type == "binary":
            return f"rs_thrift_bytes {one.name}"
        if one.type in self._schema.structs:
            return (
                f"{'' if one.required else 'const '}{PREFIX}_{snake(one.type)} {'' if one.required else '*'}{one.name}"
            )
        return f"{SCALARS.get(one.type, ('I32', 'int32_t'))[1]} {one.name}"

    # -- source ----------------------------------------------------------------------------------------------------

    def source(self, source: str) -> str:
        parts = [f"/* Made from {source} by thrift_generate.py. */", '#include "thrift_schema.h"', ""]
        for struct in self._ordered():
            name = f"{PREFIX}_{snake(struct.name)}"
            parts += self._table(struct, name, f"{snake(struct.name)}_fields")
            entry = self._entry(struct, snake(struct.name), name, f"{snake(struct.name)}_fields")
            parts += [f"const rs_thrift_struct {self._shape(struct.name)} = {entry};", ""]
        for service, calls in self._schema.services.items():
            for one in calls:
                if one.fields:
                    c_name = f"{PREFIX}_{snake(service)}_{one.name}"
                    parts += self._table(one, c_name, f"{snake(service)}_{one.name}_args")
            rows = []
            for one in calls:
                c_name, table = f"{PREFIX}_{snake(service)}_{one.name}", f"{snake(service)}_{one.name}_args"
                rows.append(f"    {self._entry(one, one.name, c_name, table)},")
            parts += [f"static const rs_thrift_struct {snake(service)}_calls[] = {{", *rows, "};"]
            parts += [f"const rs_thrift_service {PREFIX}_service_{snake(service)} = "
                      f"{{{len(calls)}, {snake(service)}_calls}};", ""]  # fmt: skip
        return "\n".join(parts)

    def _entry(self, struct: Struct, shown: str, c_name: str, table: str) -> str:
        name = struct.name if struct.name in self._schema.structs else shown
        if not struct.fields:
            return f'{{"{name}", 1, 0, NULL}}'
        return f'{{"{name}", sizeof({c_name}), {len(struct.fields)}, {table}}}'

    def _table(self, struct: Struct, c_name: str, table: str) -> list[str]:
        rows = []
        for one in struct.fields:
            kind = "LIST" if one.element else self._wire(one.type)
            element = f"RS_THRIFT_{self._wire(one.element)}" if one.element else "0"
            has = f"offsetof({c_name}, has_{one.name})" if self._has(one) else "SIZE_MAX"
            shape = f"&{self._shape(one.inner)}" if one.inner in self._schema.structs else "NULL"
            text_max = one.notes.get("text_max", TEXT_MAX) if one.element == "string" else 0
            rows.append(
                f"    {{{one.number}, RS_THRIFT_{kind}, {element}, {_c(one.required)}, {_c(one.type == 'binary')}, "
                f"offsetof({c_name}, {one.name}), {has}, {self._max(one)}, {text_max}, {shape}}},"
            )
        return [f"static const rs_thrift_field {table}[] = {{", *rows, "};"]

    def _wire(self, kind: str) -> str:
        if kind in SCALARS:
            return SCALARS[kind][0]
        if kind in ("string", "binary"):
            return "STRING"
        return "I32" if kind in self._schema.enums else "STRUCT"

    def _max(self, one: Field) -> int:
        if "max" in one.notes:
            return int(one.notes["max"])
        if one.type in ("string", "binary"):
            return TEXT_MAX
        if one.type in self._schema.enums and one.required and one.notes.get("unknown") != "pass":
            return max(self._schema.enums[one.type].values())
        return 0


def _c(value: bool) -> str:
    return "true" if value else "false"


def main() -> None:
    idl, header, source = map(Path, sys.argv[1:4])
    try:
        writer = Writer(Parser(idl.read_text()).schema())
        header.write_text(writer.header(idl.name))
        source.write_text(writer.source(idl.name))
    except (SchemaError, ValueError, OSError) as error:
        sys.exit(f"{idl}: {error}")


if __name__ == "__main__":
    main()
