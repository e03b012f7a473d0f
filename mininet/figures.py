"""What a transfer came to, from the sender's own account of it and the manager's account of its path.

Pure: results in, numbers out, named as in build/demo.json; docs/lab.md says how each is computed.
"""

from __future__ import annotations

from typing import Any

from rostrum.client.values import SendResult

WIRE_HEADERS_BYTES = (
    48 + 8 + 20 + 14 + 24
)  # ours (docs/protocol.md), UDP, IPv4, Ethernet, and preamble with FCS and gap
MS = 1e6  # ns


def transfer(result: SendResult, path: dict[str, Any] | None, emulated_ms: float | None) -> dict[str, Any]:
    """The figures of one transfer.

    `path`: the manager's view of its path (GET /v1/paths/{id}), None if it forgot it. `emulated_ms`: the
    reconfiguration time the OCS was told to take, None if it is drawn for each cross-connect.
    """
    rate_bps = _least(result.rate_bps, path["rate_bps"] if path else 0)
    reconfiguration_ms = reconfiguration(result, path, emulated_ms)
    line_ms = ideal(result.size, result.fragment_size, rate_bps)
    ideal_ms = reached(result) or line_ms
    total_ms = (result.done_ns - result.accepted_ns) / MS
    return {
        "ok": result.ok,
        "cause": result.cause,
        "bytes": result.size,
        "path": str(result.path),
        "reason": result.reason,
        "response_ms": (result.accepted_ns - result.requested_ns) / MS,
        "reconfiguration_ms": reconfiguration_ms,
        "setup_ms": (result.high_rate_ns - result.accepted_ns) / MS,
        "total_ms": total_ms,
        "ideal_ms": ideal_ms,
        "extra_ms": total_ms - reconfiguration_ms - ideal_ms,
        "ideal_at_line_rate_ms": line_ms,
        "extra_at_line_rate_ms": total_ms - reconfiguration_ms - line_ms,
        "goodput_bps": result.size * 8e9 / max(1, result.done_ns - result.accepted_ns),
        "data_channel_goodput_bps": result.size * 8e9 / max(1, result.data_done_ns - result.high_rate_ns),
        "rate_bps": rate_bps,
        "packets_sent": result.packets_sent,
        "packets_attempt": result.packets_attempt,
        "packets_redundant": result.packets_redundant,
        "packets_patched": result.packets_patched,
        "loss_ratio": loss_ratio(result),
        "cross_connects": len(path["circuit"]["cross_connects"]) if path and path["circuit"] else 0,
        "rules": len(path["rules"]) if path else 0,
        "sessions": result.sessions,
        "timeline": timeline(result, path),
    }


def reconfiguration(result: SendResult, path: dict[str, Any] | None, emulated_ms: float | None) -> float:
    """What the OCS took (ms): 0 on a live circuit or the packet network; else the emulated time, or if that is drawn
    for each cross-connect, the time until all were steady."""
    if result.reconfiguration_ns == 0:
        return 0.0
    if emulated_ms is not None:
        return emulated_ms
    steady = path["timeline"]["cross_connects_steady_ns"] if path else None
    return (steady - result.accepted_ns) / MS if steady else result.reconfiguration_ns / MS


def reached(result: SendResult) -> float:
    """Time (ms) the whole object takes at the rate that high-rate sending reached; 0 if there was none."""
    packets = result.packets_sent - result.packets_attempt
    if not result.fragment_size or packets <= 0 or not 0 < result.high_rate_ns < result.data_done_ns:
        return 0.0
    fragments = max(1, -(-result.size // result.fragment_size))
    return (result.data_done_ns - result.high_rate_ns) / MS * fragments / packets


def ideal(size: int, fragment_size: int, rate_bps: float) -> float:
    """Time (ms) on the wire of an object at a rate, each fragment sent once, headers and gaps counted."""
    fragments = max(1, -(-size // fragment_size)) if fragment_size else 1
    return (size + fragments * WIRE_HEADERS_BYTES) * 8000 / rate_bps if rate_bps else 0.0


def loss_ratio(result: SendResult) -> float:
    """Share of the fragments owed to all receivers that came by patches instead of the data channel."""
    fragments = max(1, -(-result.size // result.fragment_size)) if result.fragment_size else 1
    owed = fragments * max(1, len(result.receivers))
    return sum(receiver.patched_fragments for receiver in result.receivers) / owed


def timeline(result: SendResult, path: dict[str, Any] | None) -> list[dict[str, Any]]:
    """What happened when: [{"ms": since the request, "what": text}], in order of time."""
    rows: list[tuple[int, str]] = [
        (result.requested_ns, "requested"),
        (result.accepted_ns, "accepted"),
        (result.high_rate_ns, "high rate"),
        (result.data_done_ns, "data channel done"),
        (result.released_ns, "path released"),
        (result.done_ns, "all receivers done" if result.ok else "over"),
    ]
    if path:
        stamps = path["timeline"]
        rows.append((stamps["cross_connects_steady_ns"] or 0, "cross-connects steady"))
        rows.append((stamps["rules_in_ns"] or 0, "rules in"))
        rows.append((stamps["moved_ns"] or 0, "moved to the packet network"))
    for receiver in result.receivers:
        rows.append((receiver.first_light_ns, f"first light at {receiver.name}, fragment {receiver.initial_sn}"))
        rows.append((receiver.complete_ns, f"{receiver.name} done"))
    start = result.requested_ns
    return [{"ms": (at - start) / MS, "what": what} for at, what in sorted(row for row in rows if row[0] > 0)]


def receivers(result: SendResult, digests: dict[str, bool]) -> list[dict[str, Any]]:
    """A row for each receiver, times since the acceptance. `digests`: verdicts of an independent check."""
    return [
        {
            "host": receiver.name,
            "digest_ok": digests.get(receiver.name, False),
            "state": str(receiver.state),
            "cause": receiver.cause,
            "initial_sn": receiver.initial_sn,
            "patched_fragments": receiver.patched_fragments,
            "first_light_ms": (receiver.first_light_ns - result.accepted_ns) / MS if receiver.first_light_ns else None,
            "complete_ms": (receiver.complete_ns - result.accepted_ns) / MS if receiver.complete_ns else None,
        }
        for receiver in result.receivers
    ]


def _least(*rates: float) -> float:
    return min((rate for rate in rates if rate > 0), default=0.0)
