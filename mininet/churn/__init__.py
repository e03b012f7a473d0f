"""Churn: a lab under load whose parts are killed, paused, cut and set to other times at random, for minutes or hours.

`disruptions.py` breaks and mends, `workload.py` uses the fabric as programs do and judges what came of it,
`inventory.py` counts what a lab holds, so that its state at the end can be compared with that at the start.
"""
