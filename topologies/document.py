"""Reads a topology file's YAML into plain values and remembers on which line each stands."""

from __future__ import annotations

import math
from typing import Any

import yaml
from rostrum.topologies.problems import Place, Problem

BYTES_MAX = 4 << 20
DEPTH_MAX = 16


class _Loader(yaml.SafeLoader):
    """Plain YAML values only. Aliases are refused: a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"alias *{event.anchor}: write the value out", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


class Document:
    """`value`: the plain Python value of the file; `problems`: why it cannot be used as one (then `value` is None)."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.problems: list[Problem] = []
        self._root: yaml.Node | None = None
        try:
            loader = _Loader(text)
            try:
                self._root = loader.get_single_node()
                if self._root is None:
                    self._add(
                        (), "the file is empty; `python -m rostrum.topologies generate hybrid` prints one to start from"
                    )
                    return
                self._inspect(self._root, ())
                if not self.problems:
                    self.value = loader.construct_document(self._root)
                    self._finite(self.value, ())
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            self.problems.append(Problem((), line, f"not valid YAML: {error.problem or error.context}"))
        except RecursionError:
            self._add((), "not a topology file: nested too deeply")
        except (yaml.YAMLError, ValueError, OverflowError, TypeError, AttributeError) as error:
            # PyYAML's own constructors raise the last three on broken dates, numbers and tags.
            self._add((), f"not valid YAML: {str(error)[:200]}")
        if self.problems:
            self.value = None

    def line(self, place: Place) -> int:
        """The line on which the value at `place` (or the nearest one around it) stands; 0 if nothing is known."""
        node = self._root
        if node is None:
            return 0
        for step in place:
            below: yaml.Node | None = None
            if isinstance(node, yaml.MappingNode):
                below = next((value for key, value in node.value if getattr(key, "value", None) == str(step)), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                below = node.value[step]
            if below is None:
                break
            node = below
        return int(node.start_mark.line) + 1

    def _add(self, place: Place, text: str, line: int | None = None) -> None:
        self.problems.append(Problem(place, self.line(place) if line is None else line, text))

    def _inspect(self, node: yaml.Node, place: Place) -> None:
        """Keys must be plain names and stand only once in their mapping (YAML itself would silently keep the last)."""
        if len(place) > DEPTH_MAX:
            raise RecursionError
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._inspect(item, (*place, index))
        if not isinstance(node, yaml.MappingNode):
            return
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = int(key.start_mark.line) + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                self._add(
                    place,
                    "a key here is not a name; names begin with a letter (quote them if YAML reads them otherwise)",
                    line,
                )
                continue
            if key.value in seen:
                self._add(
                    (*place, key.value),
                    f"stands here twice, first on line {seen[key.value]}; remove or rename one",
                    line,
                )
            seen.setdefault(key.value, line)
            self._inspect(value, (*place, key.value))

    def _finite(self, value: Any, place: Place) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            self._add(place, f"{value} is not a usable number")
        elif isinstance(value, dict):
            for key, item in value.items():
                self._finite(item, (*place, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self._finite(item, (*place, index))
