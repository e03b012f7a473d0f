"""`rostrum bench manager`: how many requests for paths the manager answers, and how soon (docs/benchmarks.md).

`cases` says what is measured; `serve` is the manager, with devices that answer at once; `load` asks, in a process of
its own; `echo` answers in the manager's place, to see what the load generator can do; `commands` runs and reports.
"""
