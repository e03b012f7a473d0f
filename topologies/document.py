"""Reads a topology file's YAML into plain values and remembers on which line each stands."""

from __future__ import annotations

import math
from typing import Any

import yaml
from rostrum.topologies.problems import Place, Problem

BYTES_MAX = 32 << 20  # a file of 65,536 servers and 262,144 links has some 17 MB
DEPTH_MAX = 16

# libyaml where PyYAML has it: ten times as fast, which a large file needs.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

TAG = "tag:yaml.org,2002:"


class Document:
    """`value`: the plain Python value of the file; `problems`: why it cannot be used as one (then `value` is None)."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.problems: list[Problem] = []
        self._root: yaml.Node | None = None
        self._indices: dict[int, dict[str, yaml.Node]] = {}  # of mappings, by the node's id
        try:
            loader = LOADER(text)
            try:
                self._root = _compose(loader)
                if self._root is None:
                    self._add((), "the file is empty; `rostrum topology generate hybrid` prints one to start from")
                    return
                self.value = self._value(loader, self._root, ())
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
                below = self._index(node).get(str(step))
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                below = node.value[step]
            if below is None:
                break
            node = below
        return int(node.start_mark.line) + 1

    def _add(self, place: Place, text: str, line: int | None = None) -> None:
        self.problems.append(Problem(place, self.line(place) if line is None else line, text))

    def _index(self, mapping: yaml.MappingNode) -> dict[str, yaml.Node]:
        """The first value of each key: thousands of problems may stand in one mapping."""
        found = self._indices.get(id(mapping))
        if found is None:
            found = self._indices[id(mapping)] = {}
            for key, value in mapping.value:
                if isinstance(key, yaml.ScalarNode):
                    found.setdefault(key.value, value)
        return found

    def _value(self, loader: Any, node: yaml.Node, place: Place) -> Any:
        """Keys must be plain names and stand only once in their mapping (YAML itself would silently keep the last)."""
        if isinstance(node, yaml.ScalarNode):
            if node.tag == f"{TAG}str":
                return node.value
            value = loader.construct_object(node)
            if isinstance(value, float) and not math.isfinite(value):
                self._add(place, f"{value} is not a usable number")
            return value
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
            return [self._value(loader, item, (*place, index)) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode) or node.tag != f"{TAG}map":
            return loader.construct_object(node, deep=True)
        found: dict[str, Any] = {}
        first: dict[str, yaml.Node] = {}
        for key, item in node.value:
            line = int(key.start_mark.line) + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != f"{TAG}str":
                self._add(
                    place,
                    "a key here is not a name; names begin with a letter (quote them if YAML reads them otherwise)",
                    line,
                )
                continue
            if key.value in first:
                self._add(
                    (*place, key.value),
                    f"stands here twice, first on line {first[key.value].start_mark.line + 1}; remove or rename one",
                    line,
                )
            first.setdefault(key.value, key)
            found[key.value] = self._value(loader, item, (*place, key.value))
        return found


def _compose(loader: Any) -> yaml.Node | None:
    """The file's one document as nodes; None if it has none. Aliases are refused: a few lines of them can stand for
    gigabytes. Raises MarkedYAMLError, and RecursionError for what is nested too deeply, which libyaml's own composer
    does not survive.
    """
    root: yaml.Node | None = None
    open_: list[tuple[Any, list[yaml.Node]]] = []  # collections, and what stands in each so far
    while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
        node: yaml.Node
        where: Any = event.start_mark
        if isinstance(event, yaml.ScalarEvent):
            tag = event.tag
            if tag is None or tag == "!":
                tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            node = yaml.ScalarNode(tag, event.value, where)
        elif isinstance(event, yaml.CollectionStartEvent):
            kind = yaml.MappingNode if isinstance(event, yaml.MappingStartEvent) else yaml.SequenceNode
            tag = event.tag
            if tag is None or tag == "!":
                tag = loader.resolve(kind, None, event.implicit)
            open_.append((kind(tag, [], where), []))
            if len(open_) > DEPTH_MAX:
                raise RecursionError
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            node, items = open_.pop()
            node.value = (
                list(zip(items[::2], items[1::2], strict=True)) if isinstance(node, yaml.MappingNode) else items
            )
        elif isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem=f"alias *{event.anchor}: write the value out", problem_mark=where)
        elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise yaml.MarkedYAMLError(problem="a second document; keep one", problem_mark=where)
        else:
            continue
        if open_:
            open_[-1][1].append(node)
        else:
            root = node
    return root
