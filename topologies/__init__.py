"""Topology files and the one loader for them: `load(path_or_name)` -> `Topology`."""

from rostrum.topologies.loader import builtin_names, load, load_text, rate_bps
from rostrum.topologies.problems import Problem, TopologyError

__all__ = ["Problem", "TopologyError", "builtin_names", "load", "load_text", "rate_bps"]
