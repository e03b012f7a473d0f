"""Benches: rostrum beside the ceilings of the machine and the tools people use (docs/benchmarks.md).

`datapath`: one sender to 1, 3, 7 receivers on a bridge, in private namespaces. `cases` says what is measured, `fabric`
is the network, `tools` are what sends, `runner` runs them by turns, `summary` says what came of it.
"""
