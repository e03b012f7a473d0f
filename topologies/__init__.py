"""Topology files and the one loader for them: `load(path_or_name)` -> `Topology`.

The loader is imported when it is used: most commands need only other modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostrum.topologies.loader import builtin_names, load, load_text, rate_bps
    from rostrum.topologies.problems import Problem, TopologyError

__all__ = ["Problem", "TopologyError", "builtin_names", "load", "load_text", "rate_bps"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rostrum.topologies import loader

    return getattr(loader, name)
