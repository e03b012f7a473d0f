"""The emulated OCS in virtual time. Times in a test are milliseconds from its beginning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.model import CrossConnectState, Pair
from rostrum.lab.ocs.faults import Astray, DeadPort, DimSplitter, FaultError, Ghost, Noisy, Slow, Stuck, parse
from rostrum.lab.ocs.model import MAX_FAULTS, Branch, Model
from rostrum.topologies.loader import load
from rostrum.topologies.model import Ocs, Reconfiguration

TOPOLOGY = load(Path(__file__).parents[2] / "topologies" / "hybrid-4x2.yaml")
OCS = TOPOLOGY.ocs["ocs"]  # ToRs at 1 ... 4; output 5 -> s1 -> inputs 5 ... 8; output 6 -> s2 -> inputs 9 ... 12; 0 dBm
TRANSITION, STEADY, FAULT, INVALID, DISCONNECTING = (
    CrossConnectState.TRANSITION,
    CrossConnectState.STEADY,
    CrossConnectState.FAULT,
    CrossConnectState.INVALID,
    CrossConnectState.DISCONNECTING,
)
MS = 1_000_000


class Timeline:
    """A model with fixed 70 ms, ringing in the last 5, driven in milliseconds."""

    def __init__(self, ocs: Ocs = OCS, reconfiguration: Reconfiguration | None = None, seed: int = 1) -> None:
        self.model = Model(ocs, reconfiguration or Reconfiguration("fixed", 0.070, 0.0), 0.005, 0.5, seed)

    def connect(self, at: float, *pairs: tuple[int, int]) -> list[CrossConnectState]:
        return [c.state for c in self.model.connect(round(at * MS), [Pair(*p) for p in pairs])]

    def disconnect(self, at: float, *pairs: tuple[int, int]) -> list[CrossConnectState]:
        return [c.state for c in self.model.disconnect(round(at * MS), [Pair(*p) for p in pairs])]

    def state(self, at: float, pair: tuple[int, int]) -> CrossConnectState | None:
        found = self.model.find(round(at * MS), Pair(*pair))
        return found.state if found else None

    def news(self, at: float) -> list[tuple[int, int, CrossConnectState]]:
        return [(c.pair.input, c.pair.output, c.state) for c in self.model.poll(round(at * MS))]

    def light(self, at: float, port: int) -> list[tuple[int, float, float, float]]:
        """Where light from this ToR comes out: (output, dark until, ringing until, dBm)."""
        return [
            (b.output, b.dark_until_ns / MS, b.ringing_until_ns / MS, round(b.power_dbm, 3))
            for b in self.model.paths(round(at * MS))[port]
        ]

    def power(self, at: float, output: int) -> float | None:
        value = self.model.output_dbm(round(at * MS), output)
        return None if value is None else round(value, 3)


def test_one_cross_connect__dark_then_ringing_then_steady() -> None:
    t = Timeline()
    assert t.connect(0, (1, 2)) == [TRANSITION]
    assert t.light(0, 1) == [(2, 65.0, 70.0, -1.0)]
    assert t.power(64.9, 2) is None
    assert t.power(65, 2) == -4.0  # swings while it rings
    assert t.power(67.5, 2) == -2.5
    assert t.state(69.9, (1, 2)) is TRANSITION
    assert t.model.deadline() == 70 * MS
    assert t.news(69.9) == []
    assert t.news(70) == [(1, 2, STEADY)]
    assert t.news(70) == []
    assert t.power(70, 2) == -1.0
    assert t.model.deadline() is None


def test_circuit_through_a_splitter__dark_until_its_last_cross_connect_is_ready() -> None:
    t = Timeline()
    t.connect(0, (1, 5), (5, 2))
    t.connect(10, (6, 3))
    assert t.light(10, 1) == [(2, 65.0, 70.0, -9.0), (3, 75.0, 80.0, -9.0)]  # -1 and -7 and -1 dB
    assert t.light(10, 2) == []
    t.disconnect(20, (1, 5))
    assert t.light(20, 1) == []
    t.connect(30, (1, 5))
    assert t.light(30, 1) == [(2, 95.0, 100.0, -9.0), (3, 95.0, 100.0, -9.0)]


def test_cascade__every_stage_costs_its_loss_until_light_is_below_sensitivity() -> None:
    t = Timeline()
    t.connect(0, (1, 5), (5, 6), (9, 2), (6, 3))
    assert t.light(0, 1) == [(2, 65.0, 70.0, -17.0), (3, 65.0, 70.0, -9.0)]
    t.connect(0, (10, 7), (13, 4))  # a third stage: -25 dBm, sensitivity is -18
    assert [output for output, *_ in t.light(0, 1)] == [2, 3]
    assert t.power(100, 4) == -25.0  # a power meter still sees it


def test_dim_splitter__its_branches_go_out_and_come_back() -> None:
    t = Timeline()
    t.connect(0, (1, 5), (5, 6), (9, 2), (6, 3))
    fault = t.model.add_fault(100 * MS, DimSplitter("s2", 3.0))
    assert t.light(100, 1) == [(3, 65.0, 70.0, -9.0)]
    assert t.power(100, 2) == -20.0
    t.model.clear_fault(fault)
    assert [output for output, *_ in t.light(100, 1)] == [2, 3]


def test_stuck__never_lit_and_in_fault_after_twice_the_time() -> None:
    t = Timeline()
    t.model.add_fault(0, Stuck(1, 2))
    assert t.connect(0, (1, 2), (3, 4)) == [TRANSITION, TRANSITION]
    assert t.light(0, 1) == []
    assert t.model.deadline() == 70 * MS
    assert t.news(70) == [(3, 4, STEADY)]
    assert t.model.deadline() == 140 * MS
    assert t.state(139, (1, 2)) is TRANSITION
    assert t.news(140) == [(1, 2, FAULT)]
    found = t.model.find(140 * MS, Pair(1, 2))
    assert found is not None
    assert found.cause == "the mirrors did not get steady"


def test_stuck_for_one_output__others_from_that_input_work() -> None:
    t = Timeline()
    t.model.add_fault(0, Stuck(1, 2))
    t.connect(0, (1, 3))
    assert t.news(70) == [(1, 3, STEADY)]


def test_dead_port__a_live_circuit_goes_dark_and_reports_it() -> None:
    t = Timeline()
    t.connect(0, (1, 2))
    assert t.news(70) == [(1, 2, STEADY)]
    fault = t.model.add_fault(100 * MS, DeadPort(2, "output"))
    assert t.news(100) == [(1, 2, FAULT)]
    assert t.light(100, 1) == []
    t.model.clear_fault(fault)
    assert t.state(110, (1, 2)) is FAULT  # until somebody makes it again
    assert t.connect(120, (1, 2)) == [TRANSITION]
    assert t.news(190) == [(1, 2, STEADY)]


def test_dead_port__a_new_cross_connect_through_it_fails() -> None:
    t = Timeline()
    t.model.add_fault(0, DeadPort(1, "input"))
    t.connect(0, (1, 2))
    assert t.news(140) == [(1, 2, FAULT)]
    found = t.model.find(140 * MS, Pair(1, 2))
    assert found is not None
    assert found.cause == "input 1 is dead"


def test_noisy__losses_of_an_output_add_up() -> None:
    t = Timeline()
    t.connect(0, (1, 2))
    t.model.add_fault(0, Noisy(2, 0.5))
    t.model.add_fault(0, Noisy(2, 0.5))
    assert t.model.paths(0)[1] == (Branch(2, 65 * MS, 70 * MS, 0.5, 0.75, -1.0),)


def test_refusals__ports_in_use_or_unknown_leave_the_others_alone() -> None:
    t = Timeline()
    assert t.connect(0, (1, 2), (1, 3), (3, 2), (0, 1), (1, 33), (4, 4)) == [
        TRANSITION, INVALID, INVALID, INVALID, INVALID, TRANSITION,
    ]  # fmt: skip
    assert t.disconnect(0, (1, 3), (1, 2)) == [INVALID, DISCONNECTING]
    assert t.connect(0, (3, 2)) == [TRANSITION]


def test_making_what_exists__changes_nothing() -> None:
    t = Timeline()
    t.connect(0, (1, 2))
    assert t.connect(30, (1, 2)) == [TRANSITION]
    assert t.connect(80, (1, 2)) == [STEADY]
    assert t.light(80, 1) == [(2, 65.0, 70.0, -1.0)]


def test_taken_down_while_moving__is_never_reported() -> None:
    t = Timeline()
    t.connect(0, (1, 2))
    assert t.disconnect(75, (1, 2)) == [DISCONNECTING]
    assert t.news(80) == []
    assert t.power(80, 2) is None


def test_ringing_longer_than_the_delay__rings_all_the_time() -> None:
    t = Timeline(reconfiguration=Reconfiguration("fixed", 0.002, 0.0))
    t.connect(0, (1, 2))
    assert t.light(0, 1) == [(2, 0.0, 2.0, -1.0)]


def test_no_delay__steady_at_once() -> None:
    t = Timeline(reconfiguration=Reconfiguration("fixed", 0.0, 0.0))
    assert t.connect(5, (1, 2)) == [STEADY]
    assert t.news(5) == [(1, 2, STEADY)]


@pytest.mark.parametrize("distribution", ["fixed", "uniform", "normal"])
def test_delays__drawn_per_cross_connect_and_the_same_for_the_same_seed(distribution: str) -> None:
    given_time = Reconfiguration(distribution, 0.070, 0.010)
    drawn = []
    for seed in (7, 7, 8):
        t = Timeline(reconfiguration=given_time, seed=seed)
        t.connect(0, (1, 2), (2, 3), (3, 4), (4, 1))
        drawn.append([t.light(0, port)[0][2] for port in (1, 2, 3, 4)])
    assert drawn[0] == drawn[1]
    if distribution == "fixed":
        assert drawn[0] == [70.0] * 4
    else:
        assert len(set(drawn[0])) == 4
        assert drawn[0] != drawn[2]
    if distribution == "uniform":
        assert all(60.0 <= ms <= 80.0 for ms in drawn[0])


def test_normal_distribution__never_below_zero() -> None:
    t = Timeline(reconfiguration=Reconfiguration("normal", 0.001, 0.1), seed=3)
    for n in range(200):
        t.connect(0, (1, 2))
        assert t.light(0, 1)[0][1] >= 0.0, n
        t.disconnect(0, (1, 2))


def test_light_in_a_ring_without_a_source__is_dark() -> None:
    t = Timeline()
    t.connect(0, (5, 5))  # s1's output back into s1
    assert t.power(100, 5) is None
    assert all(not branches for branches in t.model.paths(100 * MS).values())


ports = st.integers(1, OCS.ports)
steps = st.lists(st.tuples(st.sampled_from(["connect", "disconnect"]), ports, ports, st.integers(0, 50)), max_size=40)


@given(steps, st.integers(0, 2**16))
def test_any_history__each_output_has_at_most_one_source(history: list[tuple[str, int, int, int]], seed: int) -> None:
    t, now = Timeline(seed=seed, reconfiguration=Reconfiguration("uniform", 0.05, 0.05)), 0
    for verb, source, target, wait in history:
        now += wait
        getattr(t, verb)(now, (source, target))
        lit = [b.output for branches in t.model.paths(now * MS).values() for b in branches]
        assert len(lit) == len(set(lit))
        for c in t.model.cross_connects(now * MS):
            assert (c.output_dbm is not None) <= (c.input_dbm is not None)
    deadline = t.model.deadline()
    while deadline is not None:
        t.model.poll(deadline)
        assert t.model.deadline() is None or t.model.deadline() > deadline
        deadline = t.model.deadline()
    assert all(c.state is STEADY for c in t.model.cross_connects(now * MS))


def test_liar__says_that_all_is_as_ordered_and_its_light_goes_elsewhere_or_nowhere() -> None:
    t, honest = Timeline(), Timeline()
    for one in (t, honest):
        one.connect(0, (1, 5), (5, 2), (6, 3), (2, 1))
    t.model.add_fault(0, Astray(6, 4))
    t.model.add_fault(0, Astray(2, None))
    assert t.model.cross_connects(100 * MS) == honest.model.cross_connects(100 * MS)
    assert [one[0] for one in t.light(100, 1)] == [2, 4] and [one[0] for one in honest.light(100, 1)] == [2, 3]
    assert t.light(100, 2) == [] and honest.light(100, 2)
    t.model.add_fault(0, Astray(5, 4))
    assert [one[0] for one in t.light(100, 1)] == [4], "one fibre, one branch"


def test_liar__lists_what_nobody_made_and_does_not_take_it_down() -> None:
    t = Timeline()
    t.model.add_fault(0, Ghost(9, 3))
    assert t.disconnect(0, (9, 3)) == [INVALID]
    assert [(one.pair, one.state) for one in t.model.cross_connects(0)] == [(Pair(9, 3), STEADY)]
    assert t.connect(0, (9, 3)) == [TRANSITION], "who makes it has it"
    assert len(t.model.cross_connects(0)) == 1


def test_liar__is_slow_as_the_slowest_of_its_faults() -> None:
    t = Timeline()
    for seconds in (0.5, 2.0, 1.0):
        t.model.add_fault(0, Slow(seconds))
    assert t.model.delay_s() == 2.0


def test_faults__bounded() -> None:
    t = Timeline()
    for _ in range(MAX_FAULTS):
        t.model.add_fault(0, Noisy(2, 0.0))
    with pytest.raises(ValueError, match="clear some"):
        t.model.add_fault(0, Noisy(2, 0.0))


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "no fault of kind"),
        ({"kind": "dead-port", "port": 33}, "1 ... 32"),
        ({"kind": "dead-port", "port": True}, "port must be"),
        ({"kind": "dead-port", "port": 1, "side": "left"}, "side must be"),
        ({"kind": "stuck", "input": "1"}, "input must be"),
        ({"kind": "dim-splitter", "splitter": "s9", "db": 1}, "there are: s1, s2, s3, s4"),
        ({"kind": "dim-splitter", "splitter": ["s1"], "db": 1}, "no splitter"),
        ({"kind": "dim-splitter", "splitter": "s1", "db": float("nan")}, "db must be"),
        ({"kind": "noisy", "port": 1, "loss": 1.5}, "from 0 to 1"),
        ({"kind": "astray", "input": 1, "output": 5}, "in a ring"),
        ({"kind": "ghost", "input": 1}, "output must be"),
        ({"kind": "slow", "seconds": 61}, "from 0 to 60"),
    ],
)
def test_fault_requests__refused_with_a_reason(request_: dict[str, object], text: str) -> None:
    with pytest.raises(FaultError) as refused:
        parse(request_, OCS)
    assert text in str(refused.value)


def test_dead_port_by_default_is_the_input() -> None:
    assert parse({"kind": "dead-port", "port": 3}, OCS) == DeadPort(3, "input")
    assert parse({"kind": "stuck", "input": 3}, replace(OCS)) == Stuck(3, None)
    assert parse({"kind": "astray", "input": 3}, OCS) == Astray(3, None)
    assert parse({"kind": "ghost", "input": 3, "output": 4}, OCS) == Ghost(3, 4)
    assert parse({"kind": "slow", "seconds": 1}, OCS) == Slow(1.0)
