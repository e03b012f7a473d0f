"""Ricochet, Fig. 12: lateral error correction against the loss rate, for three kinds of loss."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study

BURST = 10  # of bursty and, in the mean, of markov losses


def points(quick: bool) -> Points:
    rates = (1, 5, 25) if quick else (1, 2, 5, 10, 15, 20, 25)
    models = {"uniform": 1, "bursty": BURST, "markov": BURST}
    return {
        (model, str(rate)): Setting(loss_percent=rate, model=model, burst=burst)
        for model, burst in models.items()
        for rate in rates
    }


command = Study(
    "ricochet-loss",
    """Recovery at 1 to 25 % loss: uniform, in bursts of 10, and markov with runs of 10 on average (figure 12).

    64 nodes, 128 groups each, of 10; (r, c) = (8, 5), no NAKs.
    """,
    "loss, %",
    points,
).command()
