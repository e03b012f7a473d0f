"""Components of the circuit network that failed lately, kept out of use for a while: by what the circuit switch said of
them (here), and by what receivers saw (darkness.py).

A cross-connect that faults has two ends and the switch does not say which is broken. A splitter's end is suspected at
once (there are others); a ToR's fibre only when it failed with two different partners.
"""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.controller.core.light.darkness import Darkness
from rostrum.controller.core.model import Pair
from rostrum.controller.core.text import seconds
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
        self.darkness = Darkness(quarantine_ns)

    @property
    def spotless(self) -> bool:
        """Nothing failed lately."""
        return not self._strikes and not self.darkness

    def fork(self) -> Health:
        """Read-only use: the copy shares what is known."""
        return self

    def fault(self, ocs: Ocs, pair: Pair, cause: str, now: int) -> None:
        """The switch says that a cross-connect faulted, or that it is dim."""
        self._strike((ocs.name, "pair", pair), Strike(now, None, cause))
        self._strike((ocs.name, "input", pair.input), Strike(now, pair.output, cause))
        self._strike((ocs.name, "output", pair.output), Strike(now, pair.input, cause))
        for splitter in ocs.splitters.values():
            if pair.output == splitter.input or pair.input in splitter.outputs:
                self.suspect_splitter(ocs, splitter.name, cause, now)

    def suspect_splitter(self, ocs: Ocs, name: str, cause: str, now: int) -> None:
        self._strike((ocs.name, "splitter", name), Strike(now, None, cause))

    def works(self, ocs: Ocs, pair: Pair) -> None:
        """The switch says that it is steady, with power enough: what it said against its fibres and its splitter before
        is forgotten. What receivers saw is not: the switch does not see behind its outputs.
        """
        if not self._strikes:
            return
        for kind, what in (("pair", pair), ("input", pair.input), ("output", pair.output)):
            self._strikes.pop((ocs.name, kind, what), None)
        for splitter in ocs.splitters.values():
            if pair.input in splitter.outputs:
                self._strikes.pop((ocs.name, "splitter", splitter.name), None)

    # (cause, until) if a part is to be left alone: by requests of `asker`; None: by those of anybody.

    def splitter(self, ocs: Ocs, name: str, now: int, asker: str | None = None) -> tuple[str, int] | None:
        """Itself, or one of its fibres."""
        ill = self._verdict((ocs.name, "splitter", name), 1, now)
        if ill is not None or not self.darkness:
            return ill
        found = (self.darkness.verdict((ocs.name, *one), asker, now) for one in _of_splitter(ocs, name))
        return next((one for one in found if one is not None), None)

    def suspected(self, ocs: Ocs, name: str, now: int, asker: str) -> bool:
        """Not condemned, but another splitter is to be preferred."""
        return any(self.darkness.suspected((ocs.name, *one), asker, now) for one in _of_splitter(ocs, name))

    def pair(self, ocs: Ocs, pair: Pair, now: int, asker: str | None = None) -> tuple[str, int] | None:
        ill = self._verdict((ocs.name, "pair", pair), 1, now)
        return ill or self.darkness.verdict((ocs.name, "pair", pair), asker, now)

    def input(self, ocs: Ocs, port: int, now: int, asker: str | None = None) -> tuple[str, int] | None:
        ill = self._verdict((ocs.name, "input", port), 2, now)
        return ill or self.darkness.verdict((ocs.name, "input", port), asker, now)

    def output(self, ocs: Ocs, port: int, now: int, asker: str | None = None) -> tuple[str, int] | None:
        ill = self._verdict((ocs.name, "output", port), 2, now)
        return ill or self.darkness.verdict((ocs.name, "output", port), asker, now)

    def expire(self, now: int) -> None:
        self.darkness.expire(now)
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


def _of_splitter(ocs: Ocs, name: str) -> list[tuple[str, int | str]]:
    one = ocs.splitters[name]
    return [("splitter", name), ("output", one.input), *(("input", output) for output in one.outputs)]
