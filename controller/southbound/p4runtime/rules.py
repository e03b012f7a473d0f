"""The multicast rules on one P4 switch: which numbers each uses there, and the updates that change them. Pure.

A rule is a multicast group of the packet replication engine, an entry of `multicast` that names it, an entry of
`admission` that lets its source in, and perhaps one of `first_light`. A switch may carry out a batch in any order, so
a change is a list of batches: what is used comes before what uses it, and goes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network

from finsy.proto import p4r
from rostrum.controller.core.model import ANY_SOURCE, MulticastRule, SouthboundError
from rostrum.controller.southbound.p4runtime.entries import (
    Entities,
    Found,
    RuleKey,
    Watch,
    delete,
    insert,
    modify,
    source_of,
)

REPLICATIONS_MAX = 4095  # multicast groups: as many as `multicast` has entries
INSTANCES_MAX = 16383
SLOTS_MAX = 4095
EPOCH_MAX = (1 << 32) - 1

Batches = list[list[p4r.Update]]


class Numbers:
    """Hands out first ... last, one after the other, so that a number returned comes again as late as possible."""

    def __init__(self, what: str, first: int, last: int, used: Iterable[int] = ()) -> None:
        self._what, self._first, self._last = what, first, last
        self._used = {number for number in used if first <= number <= last}
        self._next = max(self._used, default=first - 1) + 1

    def take(self) -> int:
        """Raises SouthboundError."""
        if len(self._used) > self._last - self._first:
            raise SouthboundError(f"all {self._last - self._first + 1} {self._what} are in use")
        while True:
            number = self._next if self._next <= self._last else self._first
            self._next = number + 1
            if number not in self._used:
                self._used.add(number)
                return number

    def give_back(self, numbers: Iterable[int]) -> None:
        self._used.difference_update(numbers)


@dataclass(frozen=True)
class Installed:
    """A rule as it is on the switch."""

    rule: MulticastRule
    replication: int
    instances: dict[int, int]  # out port -> index of its counter; 0 = not counted
    grant: IPv4Network
    watch: Watch | None = None


@dataclass
class Change:
    """What to write, and what is true once that is confirmed."""

    batches: Batches
    after: dict[RuleKey, Installed | None] = field(default_factory=dict)


class RuleBook:
    """`learn` what the switch has; `install`, `remove` and `rearm` give changes, `done` says that one is confirmed.

    A change that failed leaves numbers in doubt: learn again.
    """

    def __init__(self, switch: str, entities: Entities, epoch: int) -> None:
        self._switch, self._make = switch, entities
        self._epoch = epoch  # the highest used; none is ever used twice for a slot
        self.rules: dict[RuleKey, Installed] = {}
        self.backups = False  # the switch knows backup replicas
        self._number(Found())

    def learn(self, found: Found) -> Batches:
        """Takes over the whole rules among what was found; returns the updates that remove the rest: entries of half
        a rule, second grants, groups that nothing uses.
        """
        self.rules = {}
        used: set[int] = set()
        entries: list[p4r.Update] = []
        for key in sorted({*found.multicast, *found.grants, *found.watches}):
            replication, level = found.multicast.get(key, (0, 0))
            grants = sorted(found.grants.get(key, ()))
            watch = found.watches.get(key)
            whole = [one for one in grants if one.prefixlen in (0, 32)]
            ports = found.groups.get(replication, {})
            if ports and whole and replication not in used:
                used.add(replication)
                source = whole[0].network_address if whole[0].prefixlen else ANY_SOURCE
                backups = found.backups.get(replication, ())
                rule = MulticastRule(self._switch, key[0], key[1], tuple(sorted(ports)), source, level, backups=backups)
                self.rules[key] = Installed(rule, replication, ports, whole[0], watch)
                grants.remove(whole[0])
            else:
                entries += [delete(self._make.watch(key, watch))] if watch else []
                entries += [delete(self._make.multicast(key, replication, level))] if key in found.multicast else []
            entries += [delete(self._make.grant(key, one)) for one in grants]
        groups = [
            delete(self._make.group(number, {})) for number in found.groups if number not in used and self._ours(number)
        ]
        self._number(found)
        return [batch for batch in (entries, groups) if batch]

    def install(self, rules: Sequence[MulticastRule]) -> Change:
        """Raises SouthboundError for a rule that cannot be."""
        change = Change([])
        groups: list[p4r.Update] = []
        entries: list[p4r.Update] = []
        for rule in {(one.in_port, one.group): one for one in rules}.values():
            if not rule.out_ports:
                raise SouthboundError(f"{self._switch}: the rule for {rule.group} has no out ports")
            for port in (rule.in_port, *rule.out_ports, *(backup for _, backup in rule.backups)):
                self._make.port(port)
            key = (rule.in_port, rule.group)
            change.after[key] = self._put(key, rule, self.rules.get(key), groups, entries)
        change.batches = [batch for batch in (groups, entries) if batch]
        return change

    def remove(self, rules: Sequence[MulticastRule]) -> Change:
        change = Change([])
        groups: list[p4r.Update] = []
        entries: list[p4r.Update] = []
        for key in dict.fromkeys((rule.in_port, rule.group) for rule in rules):
            old = self.rules.get(key)
            if old is None:
                continue
            # The grant first: from then on nothing enters.
            entries.append(delete(self._make.grant(key, old.grant)))
            entries += [delete(self._make.watch(key, old.watch))] if old.watch else []
            entries.append(delete(self._make.multicast(key, old.replication, old.rule.level)))
            groups.append(delete(self._make.group(old.replication, {})))
            change.after[key] = None
        change.batches = [batch for batch in (entries, groups) if batch]
        return change

    def rearm(self, rules: Sequence[MulticastRule]) -> Change:
        """First light of these is told once more."""
        change, entries = Change([]), list[p4r.Update]()
        for key, confirm in {(rule.in_port, rule.group): rule.confirm for rule in rules}.items():
            old = self.rules.get(key)
            if old is not None and confirm:
                watch = self._watch(key, confirm, old.watch, entries)
                change.after[key] = replace(old, watch=watch)
        change.batches = [entries] if entries else []
        return change

    def done(self, change: Change) -> None:
        for key, now in change.after.items():
            old = self.rules.pop(key, None)
            if now is not None:
                self.rules[key] = now
            if old is not None:
                self._replications.give_back({old.replication} - ({now.replication} if now else set()))
                self._instances.give_back(set(old.instances.values()) - set(now.instances.values() if now else ()))
                self._slots.give_back({old.watch.slot} - ({now.watch.slot} if now and now.watch else set())
                                      if old.watch else ())  # fmt: skip

    def awaits(self, key: RuleKey, epoch: int) -> bool:
        """Whether a digest is of the watch as it is armed now."""
        one = self.rules.get(key)
        return one is not None and one.watch is not None and one.watch.epoch == epoch

    def _put(
        self,
        key: RuleKey,
        rule: MulticastRule,
        old: Installed | None,
        groups: list[p4r.Update],
        entries: list[p4r.Update],
    ) -> Installed:
        make, grant = self._make, source_of(rule)
        replication = old.replication if old else self._replications.take()
        had = old.instances if old else {}
        instances = {port: had.get(port) or self._instances.take() for port in rule.out_ports}
        groups += [modify(make.zero(new)) for port, new in instances.items() if had.get(port) != new]
        backups = tuple(sorted(rule.backups)) if self.backups else ()
        if instances != had or (old and backups != tuple(sorted(old.rule.backups))):
            group = make.group(replication, instances, backups)
            groups.append(modify(group) if old else insert(group))
        if old is None or old.rule.level != rule.level:
            entry = make.multicast(key, replication, rule.level)
            entries.append(modify(entry) if old else insert(entry))
        watch = old.watch if old else None
        if rule.confirm:
            watch = self._watch(key, rule.confirm, watch, entries)
        elif watch:
            entries.append(delete(make.watch(key, watch)))
            watch = None
        if old is None or old.grant != grant:
            entries.append(insert(make.grant(key, grant)))
            entries += [delete(make.grant(key, old.grant))] if old else []
        return Installed(replace(rule, backups=backups), replication, instances, grant, watch)

    def _watch(self, key: RuleKey, confirm: int, old: Watch | None, entries: list[p4r.Update]) -> Watch:
        self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1
        watch = Watch(old.slot if old else self._slots.take(), self._epoch, confirm)
        entry = self._make.watch(key, watch)
        entries.append(modify(entry) if old else insert(entry))
        return watch

    def _number(self, found: Found) -> None:
        """Which numbers are taken, and the epochs to stay above."""
        kept = self.rules.values()
        self._replications = Numbers("multicast groups of a switch", 1, REPLICATIONS_MAX, found.groups)
        instances = (number for one in kept for number in one.instances.values())
        self._instances = Numbers("delivery counters of a switch", 1, INSTANCES_MAX, instances)
        self._slots = Numbers("first-light slots of a switch", 0, SLOTS_MAX, (w.slot for w in found.watches.values()))
        self._epoch = max([self._epoch, *(watch.epoch for watch in found.watches.values())])

    @staticmethod
    def _ours(replication: int) -> bool:
        return 1 <= replication <= REPLICATIONS_MAX
