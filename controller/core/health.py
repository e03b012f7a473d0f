"""Components of the circuit network that failed lately, kept out of use for a while.

A cross-connect that faults has two ends and the switch does not say which is broken. A splitter's end is suspected at
once (there are others); a ToR's fibre only when it failed with two different partners.
"""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.controller.core.model import Pair
from rostrum.controller.core.words import seconds
from rostrum.topologies.model import Ocs

Suspect = Pair | int | str | None  # ports, pairs of them, splitters by name


@dataclass(frozen=True)
class Strike:
    at: int
    partner: Suspect
    cause: str


class Health:
    def __init__(self, quarantine_ns: int) -> None:
        self._quarantine_ns = quarantine_ns
        self._strikes: dict[tuple[str, str, Suspect], list[Strike]] = {}

    @property
    def spotless(self) -> bool:
        """Nothing failed lately."""
        return not self._strikes

    def fork(self) -> Health:
        """Read-only use: the copy shares what is known."""
        return self

    def fault(self, ocs: Ocs, pair: Pair, cause: str, now: int) -> None:
        """A cross-connect faulted, or gave no light."""
        self._strike((ocs.name, "pair", pair), Strike(now, None, cause))
        self._strike((ocs.name, "input", pair.input), Strike(now, pair.output, cause))
        self._strike((ocs.name, "output", pair.output), Strike(now, pair.input, cause))
        for splitter in ocs.splitters.values():
            if pair.output == splitter.input or pair.input in splitter.outputs:
                self.suspect_splitter(ocs, splitter.name, cause, now)

    def suspect_splitter(self, ocs: Ocs, name: str, cause: str, now: int) -> None:
        self._strike((ocs.name, "splitter", name), Strike(now, None, cause))

    def works(self, ocs: Ocs, pair: Pair) -> None:
        """Steady with light: what was held against its fibres is forgotten."""
        for kind, what in (("pair", pair), ("input", pair.input), ("output", pair.output)):
            self._strikes.pop((ocs.name, kind, what), None)

    def splitter(self, ocs: Ocs, name: str, now: int) -> tuple[str, int] | None:
        """(cause, until) if the splitter is to be left alone."""
        return self._verdict((ocs.name, "splitter", name), 1, now)

    def pair(self, ocs: Ocs, pair: Pair, now: int) -> tuple[str, int] | None:
        return self._verdict((ocs.name, "pair", pair), 1, now)

    def input(self, ocs: Ocs, port: int, now: int) -> tuple[str, int] | None:
        return self._verdict((ocs.name, "input", port), 2, now)

    def output(self, ocs: Ocs, port: int, now: int) -> tuple[str, int] | None:
        return self._verdict((ocs.name, "output", port), 2, now)

    def expire(self, now: int) -> None:
        for key, strikes in list(self._strikes.items()):
            kept = [strike for strike in strikes if strike.at + self._quarantine_ns > now]
            if kept:
                self._strikes[key] = kept
            else:
                del self._strikes[key]

    def _strike(self, key: tuple[str, str, Suspect], strike: Strike) -> None:
        others = [old for old in self._strikes.get(key, []) if old.partner != strike.partner]
        self._strikes[key] = [*others, strike][-8:]

    def _verdict(self, key: tuple[str, str, Suspect], partners: int, now: int) -> tuple[str, int] | None:
        strikes = [strike for strike in self._strikes.get(key, []) if strike.at + self._quarantine_ns > now]
        if len(strikes) < partners:
            return None
        last = strikes[-1]
        until = last.at + self._quarantine_ns
        return f"out of use for {seconds(until - now)} more after: {last.cause}", until
