"""What the log says about a write to switches: it ties the write to the request that it was for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rostrum.controller.core.model import MulticastRule
from rostrum.controller.keyvalue import Facts
from rostrum.controller.rule_batches import Failures
from rostrum.topologies.model import Switch


def facts(
    path_id: str,
    request_id: str,
    rules: Sequence[MulticastRule],
    switches: Mapping[str, Switch],
    op: int,
    failures: Failures,
    took_ns: int,
) -> Facts:
    names = sorted({rule.switch for rule in rules})
    kinds = sorted({switches[name].southbound for name in names})
    return (
        ("path", path_id),
        ("request", request_id),
        ("by", ",".join(kinds)),
        ("switches", ",".join(names)),
        ("rules", len(rules)),
        ("op", op),
        ("failed", ",".join([name for name, _ in failures])),
        ("ms", took_ns / 1e6),
    )
