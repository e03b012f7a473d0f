"""Topology files and the one loader for them: `load(path_or_name)` -> `Topology`."""
