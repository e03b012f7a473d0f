"""Records of runs as a bench writes them, made up: what a figure comes to can be computed by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rostrum.bench.cases import Case

Record = dict[str, Any]


def record(case: Case, tool: str, time_s: float = 1.0, *, round: int = 0, **changes: Any) -> Record:
    """A good run: by default 0.4 s of processor time at the sender, half of it for forwarding, 0.6 s at receivers."""
    return {
        "case": {**asdict(case), "name": case.name},
        "tool": tool,
        "round": round,
        "outcome": "ok",
        "time_s": time_s,
        "goodput_bps": case.size * 8 / time_s,
        "sender_s": 0.4,
        "receivers_s": 0.6,
        "machine_s": 1.5,
        "others_s": 0.5,
        "sender_softirq_s": 0.2,
        "receivers_softirq_s": 0.0,
        "frames_passed": 0,
        "frames_dropped": 0,
        "resident_mb": {"sender": 6.0, "receivers": 7.0},
        "load": 0.1,
        "facts": {"io": "udp"} if tool == "rostrum" else {},
        "digests": "equal",
        **changes,
    }


def failed(case: Case, tool: str, outcome: str, text: str) -> Record:
    """A run that came to nothing."""
    return {
        "case": {**asdict(case), "name": case.name},
        "tool": tool,
        "round": 0,
        "outcome": outcome,
        "text": text,
        "facts": {},
    }
