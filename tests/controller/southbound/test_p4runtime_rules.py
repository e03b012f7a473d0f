"""Rules as changes of a P4 switch: whatever order a switch carries a batch out in, no entry ever names what is not."""

from __future__ import annotations

import random
from ipaddress import IPv4Address
from typing import Any

import pytest
from finsy import P4MulticastGroupEntry, P4TableEntry
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st
from rostrum.controller.core.model import ANY_SOURCE, MulticastRule, SouthboundError
from rostrum.controller.southbound.p4runtime import rules as p4runtime_rules
from rostrum.controller.southbound.p4runtime.entries import Entities, differences
from rostrum.controller.southbound.p4runtime.rules import Batches, Change, Numbers, RuleBook

from tests.controller.southbound.p4_servers import identity
from tests.controller.southbound.p4_world import PIPELINE

MAKE = Entities("tor1", PIPELINE.schema)
GROUPS = [IPv4Address(0xEFC00001 + n) for n in range(3)]
RULES = st.builds(
    MulticastRule,
    st.just("tor1"),
    st.sampled_from([1, 50]),
    st.sampled_from(GROUPS),
    st.sets(st.integers(1, 5), min_size=1).map(lambda ports: tuple(sorted(ports))),
    st.sampled_from([ANY_SOURCE, IPv4Address("10.0.1.1"), IPv4Address("10.0.1.2")]),
    st.sampled_from([0, 5]),
    st.sampled_from([0, 1, 3]),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["install", "remove", "rearm", "restart", "fail"]), st.lists(RULES, max_size=3))
)


class Switch:
    """Carries out batches in any order, and knows what must never be."""

    def __init__(self, seed: int) -> None:
        self.entities: dict[bytes, p4r.Entity] = {}
        self.epochs: set[tuple[int, int]] = set()
        self.clock = 100  # seconds: a manager that starts later begins with higher epochs
        self._chance = random.Random(seed)

    def carry_out(self, batches: Batches, some: bool = False) -> None:
        """`some`: only a part of them, as when the switch fails in the middle."""
        for batch in batches:
            updates = list(batch)
            self._chance.shuffle(updates)
            refused = some and self._chance.random() < 0.7
            for update in updates:
                if not refused or self._chance.random() < 0.5:
                    self._update(update)
                    self._check()
            if refused:
                return

    def _update(self, update: p4r.Update) -> None:
        if update.entity.HasField("counter_entry"):
            return
        key = identity(update.entity)
        assert (key in self.entities) == (update.type != p4r.Update.INSERT), update
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
            return
        self.entities[key] = update.entity
        if update.entity.table_entry.table_id == PIPELINE.schema.tables["first_light"].id:
            arguments = P4TableEntry.decode(update.entity, PIPELINE.schema).action.args  # type: ignore[union-attr]
            armed = (arguments["slot"], arguments["epoch"])
            assert armed not in self.epochs, "an epoch used twice for a slot tells nothing"
            self.epochs.add(armed)

    def _check(self) -> None:
        """Every entry of `multicast` names a group that is there, and no group serves two of them."""
        groups, named = set(), []
        for one in self.entities.values():
            if one.HasField("packet_replication_engine_entry"):
                groups.add(P4MulticastGroupEntry.decode(one, PIPELINE.schema).multicast_group_id)
            elif one.table_entry.table_id == PIPELINE.schema.tables["multicast"].id:
                entry = P4TableEntry.decode(one, PIPELINE.schema)
                named.append(entry.action.args["replication"])  # type: ignore[union-attr]
        assert len(named) == len(set(named)) and set(named) <= groups

    def book(self) -> RuleBook:
        """What a manager that meets the switch learns, and mends."""
        book = RuleBook("tor1", MAKE, self.clock)
        self.clock += 1000
        self.carry_out(book.learn(MAKE.found(self.entities.values())))
        return book

    def instances(self) -> list[int]:
        """Every delivery counter in use."""
        groups = [one for one in self.entities.values() if one.HasField("packet_replication_engine_entry")]
        found = [P4MulticastGroupEntry.decode(one, PIPELINE.schema) for one in groups]
        replicas: list[Any] = [replica for group in found for replica in group.replicas]
        return [replica.instance for replica in replicas]


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_any_history__the_switch_holds_the_rules_and_nothing_else(steps: list[Any], seed: int) -> None:
    switch = Switch(seed)
    book = switch.book()
    wanted: dict[tuple[int, IPv4Address], MulticastRule] = {}
    for what, rules in steps:
        if what == "restart":
            book = switch.book()
            continue
        change = plan(book, "install" if what == "fail" else what, rules)
        if what == "fail":
            switch.carry_out(change.batches, some=True)
            switch.carry_out(book.learn(MAKE.found(switch.entities.values())))
            wanted = {key: one.rule for key, one in book.rules.items()}
            continue
        switch.carry_out(change.batches)
        book.done(change)
        for rule in rules:
            key = (rule.in_port, rule.group)
            if what == "install":
                wanted[key] = rule
            elif what == "remove":
                wanted.pop(key, None)
    fresh = switch.book()
    assert {key: one.rule for key, one in fresh.rules.items()} == wanted
    assert {key: one.rule for key, one in book.rules.items()} == wanted
    numbers = switch.instances()
    assert len(numbers) == len(set(numbers)) and 0 not in numbers, "each delivery has a counter of its own"
    kinds = [one.WhichOneof("entity") for one in switch.entities.values()]
    watched = sum(one.watch is not None for one in fresh.rules.values())
    assert kinds.count("packet_replication_engine_entry") == len(wanted)
    assert kinds.count("table_entry") == 2 * len(wanted) + watched


def plan(book: RuleBook, what: str, rules: list[MulticastRule]) -> Change:
    return {"install": book.install, "remove": book.remove, "rearm": book.rearm}[what](rules)


def test_repeating_a_rule__writes_nothing() -> None:
    book, rule = RuleBook("tor1", MAKE, 100), MulticastRule("tor1", 1, GROUPS[0], (2, 3))
    book.done(book.install([rule]))
    assert book.install([rule]).batches == []


def test_numbers__come_again_as_late_as_possible_and_run_out_with_a_reason() -> None:
    numbers = Numbers("slots of a switch", 1, 3)
    assert [numbers.take(), numbers.take()] == [1, 2]
    numbers.give_back([1, 2])
    assert [numbers.take(), numbers.take(), numbers.take()] == [3, 1, 2]
    with pytest.raises(SouthboundError, match="all 3 slots of a switch are in use"):
        numbers.take()


def test_groups_run_out__the_install_fails_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p4runtime_rules, "REPLICATIONS_MAX", 2)
    book = RuleBook("tor1", MAKE, 100)
    with pytest.raises(SouthboundError, match="all 2 multicast groups of a switch are in use"):
        book.install([MulticastRule("tor1", 1, group, (2,)) for group in GROUPS])


def test_epochs__begin_above_every_one_found() -> None:
    switch = Switch(1)
    book = switch.book()
    watched = MulticastRule("tor1", 50, GROUPS[0], (1,), confirm=1)
    for step in (book.install, book.rearm):
        change = step([watched])
        switch.carry_out(change.batches)
        book.done(change)
    switch.clock = 50
    again = switch.book()
    change = again.rearm([watched])
    switch.carry_out(change.batches)  # which asserts that no epoch comes twice
    assert change.after[50, GROUPS[0]].watch.epoch == 103  # type: ignore[union-attr]


def test_differences__delete_change_insert_and_leave_alone() -> None:
    one, two = (MAKE.entry("unicast", {"destination": (n, 32)}, "forward", port=1) for n in (1, 2))
    moved = MAKE.entry("unicast", {"destination": (2, 32)}, "forward", port=2)
    three = MAKE.entry("unicast", {"destination": (3, 32)}, "forward", port=1)
    updates = differences([one, moved], [one, two, three])
    assert [(update.type, update.entity) for update in updates] == [
        (p4r.Update.DELETE, three),
        (p4r.Update.MODIFY, moved),
    ]
    assert [update.type for update in differences([one], [])] == [p4r.Update.INSERT]
