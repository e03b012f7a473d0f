"""Who holds groups with guarantees up, as their members tell it: programs that are slow, members that are silent.

A member of which others hear nothing, though the manager does, keeps all waiting, so one of them is put out of the
group. What is told counts from members, and as long as it is repeated. The coordinator hears from all, and all from it:

- More than half of the others accuse the coordinator: it goes.
- Fewer do: they go, as the others vouch for it; but a coordinator that loses half of its group so in a minute goes.
- The coordinator alone accuses one that hears it, so does not accuse it: nobody vouches for either, and the coordinator
  goes. If the next one accuses the same, that one goes. So what one member says costs nobody else its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rostrum.controller.core.groups.values import SlowProgram
from rostrum.controller.core.values import S

TOLD_NS = 5 * S // 2  # agents repeat it each second
STANDS_NS = 3 * S // 2  # others have told what they see
ALONE_NS = 4 * S  # of fewer than half: all who would say the same have
REMEMBERED_NS = 60 * S
PUT_OUT_MAX = 16  # programs, so long: their servers may have left by then


@dataclass
class Told:
    """By one member; `since`: members that it hears nothing of, by number."""

    at: int
    slow: tuple[SlowProgram, ...]
    since: dict[int, int]


@dataclass
class Trouble:
    """Of one group. `suspected`: whom coordinators suspected alone lately, and which; `lost`: when they lost others.
    `put_out_programs`: by server and name, and until when they are shown.
    """

    told: dict[int, Told] = field(default_factory=dict)
    suspected: dict[int, dict[int, int]] = field(default_factory=dict)
    lost: dict[int, list[int]] = field(default_factory=dict)
    put_out_programs: dict[tuple[int, str], tuple[SlowProgram, int]] = field(default_factory=dict)

    def take(self, server: int, slow: tuple[SlowProgram, ...], silent: frozenset[int], now: int) -> bool:
        """Whether the slow programs of that member are others than before."""
        before = self.told.get(server)
        since = before.since if before and now - before.at < TOLD_NS else {}
        self.told[server] = Told(now, slow, {one: since.get(one, now) for one in silent})
        if not slow and not silent:
            del self.told[server]
        for one_out in slow:
            if one_out.state == "put-out":
                self.put_out_programs[server, one_out.program] = (one_out, now + REMEMBERED_NS)
        while len(self.put_out_programs) > PUT_OUT_MAX:
            del self.put_out_programs[next(iter(self.put_out_programs))]
        was = {(one.program, one.state) for one in before.slow} if before else set()
        return was != {(one.program, one.state) for one in slow}

    def slow(self) -> dict[int, tuple[SlowProgram, ...]]:
        """Slow programs by their servers' numbers; and those that were put out in the last minute."""
        found = dict[int, tuple[SlowProgram, ...]]()
        for server, one in self.told.items():
            if now_slow := tuple(each for each in one.slow if each.state != "put-out"):
                found[server] = now_slow
        for (server, _), (program, _) in self.put_out_programs.items():
            found[server] = (*found.get(server, ()), program)
        return found

    def expire(self, now: int) -> None:
        for key in [key for key, (_, until) in self.put_out_programs.items() if until <= now]:
            del self.put_out_programs[key]

    def put_out(self, members: tuple[int, ...], now: int) -> tuple[int, str] | None:
        """Who is to go, and why; None: nobody. `members`: those whose agents are connected, the coordinator first."""
        if len(members) < 2:
            return None
        first, others = members[0], members[1:]
        said = {
            (server, one): now - since
            for server, told in self.told.items()
            if now - told.at < TOLD_NS
            for one, since in told.since.items()
        }
        accusers = [one for one in others if (one, first) in said]
        if len(others) > 1 and 2 * len(accusers) > len(others):
            stand = [one for one in accusers if said[one, first] >= STANDS_NS]
            return (first, "most members of the group hear nothing of it") if 2 * len(stand) > len(others) else None
        accusers = [one for one in accusers if said[one, first] >= ALONE_NS]
        if accusers:
            lost = self.lost[first] = [at for at in self.lost.get(first, ()) if now - at < REMEMBERED_NS]
            if len(others) > 1 and 2 * len(lost) >= len(others):
                return first, "half of the members of the group have heard nothing of it"
            lost.append(now)
            return accusers[0], "it hears nothing of the group's coordinator, and others do"
        for one in others:
            if (one, first) not in said and said.get((first, one), 0) >= ALONE_NS:
                by = {each: at for each, at in self.suspected.get(one, {}).items() if now - at < REMEMBERED_NS}
                self.suspected[one] = by | {first: now}
                if by.keys() - {first}:
                    return one, "several members of the group hear nothing of it"
                return first, "it alone hears nothing of another member"
        return None
