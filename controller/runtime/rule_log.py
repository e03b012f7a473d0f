"""What the log says about a write to switches: it ties the write to the request that it was for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rostrum.controller.core.model import MulticastRule
from rostrum.controller.keyvalue import Facts
from rostrum.controller.runtime.rule_queue import Failures
from rostrum.topologies.model import Switch


class RuleLog:
    """Of one topology's switches."""

    def __init__(self, switches: Mapping[str, Switch]) -> None:
        self._kinds = {name: switch.southbound for name, switch in switches.items()}

    def facts(
        self,
        path_id: str,
        request_id: str,
        rules: Sequence[MulticastRule],
        op: int,
        failures: Failures,
        took_ns: int,
    ) -> Facts:
        kinds, names = self._where([rule.switch for rule in rules])
        return (
            ("path", path_id),
            ("request", request_id),
            ("by", kinds),
            ("switches", names),
            ("rules", len(rules)),
            ("op", op),
            ("failed", ",".join([name for name, _ in failures]) if failures else ""),
            ("ms", took_ns / 1e6),
        )

    def _where(self, switches: Sequence[str]) -> tuple[str, str]:
        """What they speak, and which they are."""
        names = sorted(set(switches))
        return ",".join(sorted({self._kinds[name] for name in names})), ",".join(names)
