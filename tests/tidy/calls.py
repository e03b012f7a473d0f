"""Who calls whom among the agent's C files, by the symbol tables of the compiled ones (build/agent)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.tidy.tree import ROOT

BUILD = ROOT / "build" / "agent"
Calls = dict[str, dict[str, set[str]]]  # file -> file it calls -> names
CODE = "TW"  # of nm's kinds: functions; the others are data, such as the rows of a table


def source_of(made: Path) -> str:
    """build/agent/agent/core/libcore.a.p/rate_model.c.o -> agent/core/rate/model.c; "" if it is no file of ours."""
    folder = made.relative_to(BUILD).parent.parent
    name = made.name.removesuffix(".o")
    if name.startswith(".._"):
        folder, name = folder.parent, name.removeprefix(".._")
    for place in [name, *(name[: at.start()] + "/" + name[at.end() :] for at in re.finditer("_", name))]:
        if (ROOT / folder / place).is_file():
            return str(folder / place)
    return ""


def symbols(made: Iterable[Path], kinds: str = "TWDBRV") -> tuple[dict[str, str], dict[str, set[str]]]:
    """(external name of one of nm's kinds -> file that defines it, file -> external names it needs)."""
    sources = {str(one): source_of(one) for one in made}
    sources = {name: source for name, source in sources.items() if source}
    defined: dict[str, str] = {}
    needed: dict[str, set[str]] = {}
    command = ["nm", "-A", "-g", *sources]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout if sources else ""
    for line in shown.splitlines():
        place, _, rest = line.partition(":")
        *_, kind, name = rest.split()
        if kind == "U":
            needed.setdefault(sources[place], set()).add(name)
        elif kind in kinds:
            defined[name] = sources[place]
    return defined, needed


def calls(under: str, kinds: str = "TWDBRV") -> Calls:
    """Among the files in a folder of the agent, such as "agent/core"; `kinds`: only what is called so (CODE)."""
    defined, needed = symbols(sorted((BUILD / under).rglob("*.o")), kinds)
    found: Calls = {}
    for source, names in needed.items():
        for name in names:
            target = defined.get(name)
            if target and target != source:
                found.setdefault(source, {}).setdefault(target, set()).add(name)
    return found


def circles(edges: Calls) -> list[list[str]]:
    """Files that reach each other by calls, two or more together, the largest circle first (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        on_stack.add(node)
        for other in edges.get(node, {}):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            circle = []
            while (top := stack.pop()) != node:
                on_stack.discard(top)
                circle.append(top)
            on_stack.discard(node)
            if circle:
                found.append(sorted([*circle, node]))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return sorted(found, key=len, reverse=True)
