"""Blast: the heaviest set of requests that fit beside each other.

Each waiting request is a hyperedge over the racks it touches, weighted by its volume; which of them to serve together
is weighted set packing. Greedy in the order weight / sqrt(racks) is within a factor of sqrt(all racks) of the best,
and no polynomial algorithm is known to be better than that order of magnitude. The packing is made again whenever the
manager asks, which is at every arrival and release.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import ClassVar

from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Scheduler, Waiting


class Blast(Scheduler):
    name: ClassVar[str] = "blast"
    each_alone: ClassVar[bool] = True

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        heaviest = sorted(queue[:LOOK_AHEAD], key=lambda waiting: -weight(waiting, resources))  # stable: then by age
        return [self.serve(waiting, resources, now) for waiting in heaviest]


def weight(waiting: Waiting, resources: Resources) -> float:
    """Bytes for each square root of a rack that the request would occupy, the sender's rack among them."""
    racks = 1 + len(resources.remote_racks(waiting.request))
    return waiting.request.remaining_size / sqrt(racks)
