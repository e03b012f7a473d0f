"""A third kind of circuit switch, with a delay and a fan-out of its own, is one file: copying_switch.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
import yaml
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits import technology
from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair, PathKind
from rostrum.controller.core.values import MS, Wanted
from rostrum.controller.southbound.ocs.devices import driver_of
from rostrum.topologies import TopologyError, circuit_kinds, loader
from rostrum.topologies.model import Topology

from tests.controller.copying_switch import EACH_S, CopyingDriver
from tests.controller.network import Network
from tests.controller.timeline import Timeline


def text(dialect: str) -> str:
    value = yaml.safe_load(loader.builtin_file("hybrid-4x2").read_text())
    del value["ocs"]["ocs"]["splitters"], value["ocs"]["ocs"]["management_port"]
    value["ocs"]["ocs"]["dialect"] = dialect
    return yaml.safe_dump(value, sort_keys=False)


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch) -> Iterator[Topology]:
    point = EntryPoint("copying", "tests.controller.copying_switch:KIND", circuit_kinds.ENTRY_POINTS)
    monkeypatch.setattr(circuit_kinds, "entry_points", lambda group: (point,))
    yield loader.load_text(text("copying"), completed=True)
    circuit_kinds.kind.cache_clear()
    technology._of_kind.cache_clear()


class Copies(Network):
    """An input may go to several outputs."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.made: set[Pair] = set()

    def pairs(self, ocs: str = "ocs") -> set[Pair]:
        return set(self.made)

    def connect(self, ocs: str, pairs: tuple[Pair, ...]) -> tuple[CrossConnect, ...]:
        assert not {pair.output for pair in pairs} & {pair.output for pair in self.made - set(pairs)}
        self.made |= set(pairs)
        return tuple(CrossConnect(pair, CrossConnectState.STEADY, 0.0, -5.8) for pair in pairs)

    def disconnect(self, ocs: str, pairs: tuple[Pair, ...]) -> None:
        self.made -= set(pairs)


def line_of(topology: Topology) -> Timeline:
    line = Timeline(topology, up=False)
    line.network = Copies(topology)
    line.all_up()
    return line


def test_its_circuits__are_planned_made_used_again_and_given_up(topology: Topology) -> None:
    line = line_of(topology)
    path = line.ask("h1", "h3", "h5", "h7", wanted=Wanted.CIRCUIT)
    assert path.kind is PathKind.CIRCUIT and path.cascade and not path.cascade.splitters
    assert {pair.input for pair in path.cascade.pairs} == {path.cascade.uplink.ocs_port}
    assert len(path.cascade.pairs) == 3 and path.reconfiguration_ns == round(3 * EACH_S * 1e9)
    assert path.cascade.weakest.power_dbm == pytest.approx(-1.0 - 4.77, abs=0.01)
    assert line.network.made == set(path.cascade.pairs)  # type: ignore[attr-defined]
    line.release(path)
    again = line.ask("h2", "h4", "h6", "h8", wanted=Wanted.CIRCUIT)
    assert again.reconfiguration_ns == 0 and again.cascade == path.cascade
    line.release(again)
    one = line.ask("h1", "h3", wanted=Wanted.CIRCUIT)
    assert one.reconfiguration_ns == round(EACH_S * 1e9)
    assert line.network.made == set(one.cascade.pairs)  # type: ignore[attr-defined, union-attr]
    assert not [one for one in line.actions if isinstance(one, act.PathChanged) and line.path(one.path_id).cause]


def test_one_that_does_not_answer__is_given_up_by_its_own_delay(topology: Topology) -> None:
    line = line_of(topology)
    line.devices_answer = False
    path = line.ask("h1", "h3", "h5", "h7")
    bound_ms = line.settings.configure_bound_ns / MS + 3 * EACH_S * 1e3
    line.held = deque(one for one in line.held if not isinstance(one, ev.CircuitResult))
    line.let()
    line.wait(bound_ms - 10)
    assert path.kind is PathKind.CIRCUIT
    line.wait(20)
    assert path.kind is PathKind.PACKET and "did not answer" in path.reason


async def test_its_driver__is_found_by_the_dialect(topology: Topology) -> None:
    ocs, heard = topology.ocs["ocs"], list[str]()
    assert ocs.management_port == 4711
    up = asyncio.Event()
    driver = driver_of(ocs.dialect)(ocs, up.set, heard.append, None, may_order=None, term=0)
    assert isinstance(driver, CopyingDriver)
    await driver.start()
    await up.wait()
    pairs = [Pair(1, 2), Pair(1, 3)]
    assert [row.pair for row in await driver.connect(pairs)] == pairs
    assert [row.pair for row in await driver.read()] == pairs
    await driver.close()


def test_what_is_not_there__is_told_with_a_reason() -> None:
    with pytest.raises(TopologyError, match="'copying' is none of glimmerglass, polatis, gnmi"):
        loader.load_text(text("copying"), completed=True)
