"""Networks in virtual time: what is too large, too slow or too rare for the lab.

`replay.py` runs the manager's own core on a trace of requests; `experiments/` has one file per figure or table.
"""
