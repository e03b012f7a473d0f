"""Rules on ToRs that lead packets into an optical circuit switch though nothing that is granted explains them.

Whoever they were set for may be stopped, and sends by them when it goes on. So no circuit begins at the port of a ToR
where such a rule leads, before the ToR has confirmed that it is out; nor at any port of a ToR that was not read since
it connected. This needs no record of what was granted before: a manager that has just started, or has taken over, finds
these rules on the switches themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rostrum.controller.core.model import MulticastRule
from rostrum.controller.core.packet.rules import RuleKey, key
from rostrum.topologies.model import Topology

LATE_NS = 1 << 62  # what should be over by now, and is not: nobody should wait for it who need not


class StaleRules:
    """All times: when it is likely to be over (ns)."""

    def __init__(self, topology: Topology) -> None:
        ends = [end for ocs in topology.ocs.values() for end in ocs.attached.values()]
        self._optical = {(end.node, end.port) for end in ends}
        self._tors = {end.node for end in ends}
        self.unread: dict[str, int] = {}  # connected switches that have not told their rules
        self._rules: dict[RuleKey, tuple[int, ...]] = {}  # -> the optical ports they lead to
        self._ports: dict[tuple[str, int], dict[RuleKey, int]] = {}

    def __bool__(self) -> bool:
        return bool(self.unread or self._ports)

    def to_read(self, switch: str, until: int) -> None:
        """What it has is not known."""
        if switch in self._tors:
            self.unread[switch] = until

    def leads_out(self, rule: MulticastRule, wanted: MulticastRule | None = None) -> bool:
        """Whether it leads into an OCS where the rule that should be in its place does not."""
        may = wanted.out_ports if wanted else ()
        return any((rule.switch, port) in self._optical and port not in may for port in rule.out_ports)

    def found(self, switch: str, stale: Iterable[tuple[MulticastRule, int]]) -> bool:
        """A switch was read, and these of its rules are stale. Returns whether a port may have become free."""
        unread = self.unread.pop(switch, None) is not None
        before = self._forget(switch)
        for rule, until in stale:
            ports = tuple([port for port in rule.out_ports if (switch, port) in self._optical])
            self._rules[key(rule)] = ports
            for port in ports:
                self._ports.setdefault((switch, port), {})[key(rule)] = until
        return unread or not before <= self._ports.keys()

    def disconnected(self, switch: str) -> None:
        """It is read when it is back."""
        self.unread.pop(switch, None)
        self._forget(switch)

    def gone(self, keys: Collection[RuleKey]) -> bool:
        """These are not on their switches any more, or others are in their place. Returns whether a port is free."""
        free = False
        for one in keys:
            switch = one[0]
            for port in self._rules.pop(one, ()):
                left = self._ports[switch, port]
                del left[one]
                if not left:
                    del self._ports[switch, port]
                    free = True
        return free

    def obstacle(self, switch: str, port: int, now: int) -> tuple[str, int] | None:
        """Why no circuit may begin at this port, and until when."""
        until = self.unread.get(switch)
        if until is not None:
            return f"waits for {switch} to tell which rules it has", until if until > now else now + LATE_NS
        leading = self._ports.get((switch, port))
        if not leading:
            return None
        until = max(leading.values())
        return f"is where old rules of {switch} still lead", until if until > now else now + LATE_NS

    def _forget(self, switch: str) -> set[tuple[str, int]]:
        ports = {one for one in self._ports if one[0] == switch}
        for one in ports:
            for rule in self._ports.pop(one):
                self._rules.pop(rule, None)
        return ports
