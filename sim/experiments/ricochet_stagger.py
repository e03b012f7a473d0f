"""Ricochet, Fig. 14: stagger against long bursts of loss."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study


def points(quick: bool) -> Points:
    bursts, staggers = ((10, 100), (1, 6)) if quick else ((10, 50, 100), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    return {
        (f"bursts of {burst}", str(stagger)): Setting(model="bursty", burst=burst, stagger=stagger)
        for burst in bursts
        for stagger in staggers
    }


command = Study(
    "ricochet-stagger",
    """Recovery of losses in bursts of 10, 50 and 100 packets with stagger 1 to 10 (Ricochet, figure 14).

    64 nodes, 128 groups each, of 10; 1 % lost, (r, c) = (8, 5), no NAKs.
    """,
    "stagger",
    points,
).command()
