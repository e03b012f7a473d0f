"""A schema as a function that says quickly whether a value has that shape. Of one that has not it says nothing more:
jsonschema does, which takes half a minute for the 160,000 links of a large data center.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Accepts = Callable[[Any], bool]

TYPES = {"object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "boolean": (bool,),
         "number": (int, float)}  # fmt: skip
ABOUT = {"$schema", "$defs", "title", "description", "default"}  # say nothing of values


def accepts(schema: dict[str, Any]) -> Accepts:
    """True = the value is as the schema wants. It may say False of an odd value that is so all the same, such as 1.0
    for a whole number. Raises ValueError for a schema with words that it does not know.
    """
    return _Compiler(schema.get("$defs", {})).compiled(schema)


class _Compiler:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def compiled(self, schema: dict[str, Any]) -> Accepts:
        tests: list[Accepts] = []
        for word, wanted in schema.items():
            if word in ABOUT or word in ("additionalProperties", "type"):
                continue
            tests.append(self._test(word, wanted, schema))
        if "properties" in schema or "additionalProperties" in schema:
            tests.append(self._properties(schema))
        types = schema.get("type")
        if types is None:
            return lambda value: all(test(value) for test in tests)
        exact = tuple(one for name in ([types] if isinstance(types, str) else types) for one in TYPES[name])
        if not tests:
            return lambda value: type(value) in exact
        return lambda value: type(value) in exact and all(test(value) for test in tests)

    def _test(self, word: str, wanted: Any, schema: dict[str, Any]) -> Accepts:
        match word:
            case "$ref":
                return self.compiled(self._definitions[str(wanted).removeprefix("#/$defs/")])
            case "properties":
                return lambda value: True  # with additionalProperties
            case "required":
                return lambda value: type(value) is not dict or all(name in value for name in wanted)
            case "propertyNames":
                is_name = self.compiled(wanted)
                return lambda value: type(value) is not dict or all(map(is_name, value))
            case "items":
                is_item = self.compiled(wanted)
                return lambda value: type(value) is not list or all(map(is_item, value))
            case "pattern":
                found = re.compile(wanted).search
                return lambda value: type(value) is not str or found(value) is not None
            case "enum":
                words = frozenset(wanted)
                return lambda value: type(value) is str and value in words
            case "const":
                return lambda value: type(value) is type(wanted) and bool(value == wanted)
            case "minimum":
                return lambda value: type(value) not in TYPES["number"] or value >= wanted
            case "maximum":
                return lambda value: type(value) not in TYPES["number"] or value <= wanted
            case "minLength" | "minItems" | "minProperties":
                return lambda value: not isinstance(value, (str, list, dict)) or len(value) >= wanted
            case "maxLength" | "maxItems" | "maxProperties":
                return lambda value: not isinstance(value, (str, list, dict)) or len(value) <= wanted
        raise ValueError(f"no test for {word!r} in a schema")

    def _properties(self, schema: dict[str, Any]) -> Accepts:
        known = {name: self.compiled(one) for name, one in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties", True)
        other: Accepts = self.compiled(more) if isinstance(more, dict) else lambda value: bool(more)

        def test(value: Any) -> bool:
            if type(value) is not dict:
                return True
            return all(known.get(name, other)(item) for name, item in value.items())

        return test
