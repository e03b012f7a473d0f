"""A narrow place that two senders share: sim/engine/narrow.h, for Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from rostrum.sim.network import LIBRARY, SimError

KINDS = ("friendly", "cubic", "bbr")
WARM_MS = 3000


class _Place(ctypes.Structure):
    _fields_ = (
        ("link_bps", ctypes.c_double),
        ("queue", ctypes.c_double),
        ("mark", ctypes.c_double),
        ("rtt_ms", ctypes.c_int32),
        ("narrows_ms", ctypes.c_int32),
        ("late_ms", ctypes.c_double),
        ("unpaced", ctypes.c_bool),
    )


class _Flow(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("begins_ms", ctypes.c_int32), ("ends_ms", ctypes.c_int32))


class _Result(ctypes.Structure):
    _fields_ = (
        ("carried", ctypes.c_double * 2),
        ("events", ctypes.c_int32 * 2),
        ("sent_for", ctypes.c_double * 2),
        ("late", ctypes.c_double * 2),
        ("late_sent", ctypes.c_double * 2),
    )


@dataclass(frozen=True)
class Place:
    """`queue` and `mark` are bytes; packets that find more than `mark` there are marked (ECN), 0: none is. `late_ms`:
    as much, in the mean, our receiver's host delays the packets of which its statuses tell. `unpaced`: CUBIC sends when
    it is acknowledged, as Linux's does."""

    link_bps: float
    rtt_ms: int
    queue: float
    mark: float = 0.0
    late_ms: float = 0.0
    unpaced: bool = False


@dataclass(frozen=True)
class Shared:
    """What the first and the second carried, in bytes, and how often a CUBIC among them shrank its window."""

    carried: tuple[float, float]
    events: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.carried[0] / max(self.carried[1], 1.0)


def share(place: Place, kinds: tuple[str, str], first_leads: bool, seconds: int) -> Shared:
    """Both without an end, the later of them from WARM_MS on, from when `seconds` (3,600 at most) are counted.

    Raises SimError.
    """
    library = ctypes.CDLL(str(LIBRARY))
    library.sim_narrow_run.restype = ctypes.c_bool
    begins = (0, WARM_MS) if first_leads else (WARM_MS, 0)
    flows = (_Flow * 2)(*(_Flow(KINDS.index(kind), at, 0) for kind, at in zip(kinds, begins, strict=True)))
    where = _Place(place.link_bps, place.queue, place.mark, place.rtt_ms, 0, place.late_ms, place.unpaced)
    result = _Result()
    if not library.sim_narrow_run(ctypes.byref(where), flows, ctypes.c_int32(seconds), ctypes.byref(result)):
        raise SimError(f"no memory, or a place that is none: {place}, {seconds} s")
    return Shared((result.carried[0], result.carried[1]), (result.events[0], result.events[1]))
