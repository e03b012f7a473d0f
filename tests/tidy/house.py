"""The agent's rooms: who may call whom, who has a header of its own.

`python -m tests.tidy.house` prints how it stands."""

from __future__ import annotations

import re
import sys

from tests.tidy.calls import BUILD, CODE, Calls, calls, circles
from tests.tidy.tree import ROOT, files, text

CIRCLE_FILES = 4

_BASE = ("agent/core/base",)
_SHARED = (*_BASE, "agent/core/rate", "agent/core/repair", "agent/core/feedback")
_CORE = "agent/core/"
# Room -> what its functions may call besides the room itself: the arrows of docs/architecture.md. The rows of a table
# of engines are data, not calls: that is how the node reaches an engine.
MAY_CALL: dict[str, tuple[str, ...]] = {
    "agent/core/base": (),
    "agent/core/rate": _BASE,
    "agent/core/repair": _BASE,
    "agent/core/feedback": _BASE,
    "agent/core/transfer": _SHARED,
    "agent/core/groups": _SHARED,
    "agent/core/order": _BASE,
    **{f"agent/core/{engine}": (*_SHARED, "agent/core/transfer") for engine in ("republic", "rdcm", "wan")},
    **{f"agent/core/{engine}": (*_SHARED, "agent/core/groups") for engine in ("plain", "ricochet", "qsm")},
    "agent/io": _BASE,
    "agent/api": (),
    "agent/client": ("agent/api",),
    "agent/daemon": (_CORE, "agent/io", "agent/api"),
}


# What a whole room offers to those outside it stands in one header; a file's own says what it offers to its neighbours.
SURFACES = {
    "agent/client": tuple(f"agent/include/rostrum/{name}.h" for name in ("rostrum", "groups", "replicas")),
    "agent/core/groups": ("agent/core/groups/messages.h", "agent/core/groups/engine.h"),
    "agent/core/order": ("agent/core/order/order.h",),
    "agent/core/transfer": ("agent/core/transfer/node.h",),
    "agent/io": ("agent/io/io.h",),
}


def room_of(name: str) -> str:
    """agent/core/rate/path_model.c -> agent/core/rate; agent/daemon/store/store.c -> agent/daemon."""
    return max((room for room in MAY_CALL if name.startswith(room + "/")), key=len, default="")


def outward(edges: Calls) -> dict[tuple[str, str], set[str]]:
    """Calls against the arrows: (from this room, to that one) -> "file: function" for each."""
    found: dict[tuple[str, str], set[str]] = {}
    for source, targets in edges.items():
        here = room_of(source)
        for target, names in targets.items():
            there = room_of(target)
            if there != here and not there.startswith(MAY_CALL.get(here, ())):
                found.setdefault((here, there), set()).update(f"{source}: {name}" for name in names)
    return found


def without_header(edges: Calls) -> dict[str, list[str]]:
    """Folder -> its .c files with functions that other files call and their own header does not name."""
    called: dict[str, set[str]] = {}
    for targets in edges.values():
        for target, names in targets.items():
            called.setdefault(target, set()).update(names)
    found: dict[str, list[str]] = {}
    for name in files(".c", under="agent/"):
        folder, _, short = name.rpartition("/")
        if short == "main.c" or "examples" in folder:
            continue
        own = name.removesuffix(".c") + ".h"
        offered = text(own) if (ROOT / own).exists() else ""
        offered += "".join(text(surface) for surface in SURFACES.get(folder, ()))
        if any(not re.search(rf"\b{one}\b", offered) for one in called.get(name, ())):
            found.setdefault(folder, []).append(short)
    return found


def lines_of(folder: str) -> tuple[int, int]:
    """Files and lines of C in it, below it too."""
    names = files(".c", ".h", under=folder + "/")
    return len(names), sum(text(name).count("\n") for name in names)


def main() -> int:
    if not (BUILD / "build.ninja").exists():
        print("house: build/agent is missing; make build")
        return 1
    edges = calls("agent")
    folders = sorted({name.rpartition("/")[0] for name in files(".c", ".h", under="agent/")})
    print(f"agent: {lines_of('agent')[1]} lines of C in {lines_of('agent')[0]} files")
    for folder in folders:
        names = [name for name in files(".c", ".h", under=folder + "/") if name.rpartition("/")[0] == folder]
        print(f"  {folder:28} {len(names):4} files {sum(text(name).count(chr(10)) for name in names):6} lines")
    large = [circle for circle in circles(edges) if len(circle) > CIRCLE_FILES]
    print(f"circles of more than {CIRCLE_FILES} files, by calls: {len(large)}")
    for circle in large:
        print(f"  {len(circle):3} files: {', '.join(name.removeprefix('agent/') for name in circle)}")
    against = outward(calls("agent", CODE))
    print(f"calls against the arrows: {sum(map(len, against.values()))}")
    for (here, there), names_called in sorted(against.items()):
        print(f"  {here} -> {there}: {len(names_called)}")
    bare = without_header(calls("agent", CODE))
    print(f"files without a header of their own that names what others call: {sum(map(len, bare.values()))}")
    for folder, shorts in sorted(bare.items()):
        print(f"  {folder}: {', '.join(shorts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
