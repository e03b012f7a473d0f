"""When the runtime writes what it decided, and when it lets it out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.persistence import recovery
from rostrum.controller.core.persistence.persistence import Change, Json
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import REST, PathRequest, State, Wanted
from rostrum.controller.runtime.journal import Journal, show
from rostrum.controller.runtime.runtime import LATER_S, Runtime
from rostrum.controller.runtime.store import StoreError, encode_each
from rostrum.topologies import load_text
from rostrum.topologies.generate import Hybrid, hybrid

from tests.controller.fakes import until


class Transactions:
    """A store that remembers what came together."""

    way_out = ""

    def __init__(self) -> None:
        self.written: list[list[tuple[str, str]]] = []

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        self.written.append([(one.part, one.key) for one in changes])
        return None

    def whole(self) -> None:
        """All of it is here."""

    def close(self) -> None:
        """Nothing is open."""


class SlowTransactions(Transactions):
    """Whose transactions take until `end` is called."""

    under_way: asyncio.Future[None] | None = None

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        super().write(changes)
        self.under_way = asyncio.get_running_loop().create_future()
        return self.under_way

    def end(self) -> None:
        assert self.under_way is not None
        self.under_way.set_result(None)


def begun(store: Transactions | None = None) -> tuple[Runtime, Transactions]:
    runtime, store = Runtime(Manager(load_text(hybrid(Hybrid(4, 2, 8, 2, fanout=2))))), store or Transactions()
    runtime.begin(store, [])
    for switch in runtime.manager.core.topology.switches:
        runtime.post(ev.SwitchUp(switch))
        runtime.post(ev.RulesFound(switch, frozenset(), runtime.clock()))
    return runtime, store


def ask(runtime: Runtime, number: int) -> None:
    request = PathRequest(f"r{number}", REST, "h1", ("h3",), data_size=1, remaining_size=1, wanted=Wanted.PACKET)
    runtime.post(ev.RequestReceived(request))


async def test_requests_that_keep_coming_share_a_transaction() -> None:
    runtime, store = begun()
    await until(lambda: not runtime.writing(), "what the start led to is written")
    store.written.clear()
    for number in range(0, 6, 2):  # two in each turn of the loop
        ask(runtime, number)
        ask(runtime, number + 1)
        await asyncio.sleep(0)
    await until(lambda: store.written, "the requests are written")
    assert len(store.written) == 1 and len({key for _, key in store.written[0]}) == 6
    runtime.close()


async def test_one_request_by_itself_does_not_wait_for_others() -> None:
    runtime, store = begun()
    await until(lambda: not runtime.writing(), "what the start led to is written")
    store.written.clear()
    ask(runtime, 1)
    await asyncio.sleep(0)
    assert len(store.written) == 1
    runtime.close()


async def test_requests_that_never_stop_coming_are_answered_all_the_same() -> None:
    runtime, store = begun()
    for number in range(0, 200, 2):
        ask(runtime, number)
        ask(runtime, number + 1)
        await asyncio.sleep(0)
    assert len(store.written) > 10
    runtime.close()


async def test_what_nothing_waits_for_is_written_some_time_later() -> None:
    runtime, store = begun()
    await until(lambda: not runtime.writing(), "what the start led to is written")
    store.written.clear()
    runtime.manager.core.persistence.mark_later("leaving", "ocs")
    runtime.post(ev.KeepAlive("h1"))
    await asyncio.sleep(0)
    assert store.written == []
    await until(lambda: store.written == [[("leaving", "ocs")]], "the record is written")
    runtime.close()


async def writing() -> tuple[Runtime, SlowTransactions]:
    """A transaction is under way."""
    store = SlowTransactions()
    runtime, _ = begun(store)
    ask(runtime, 1)
    await until(lambda: store.under_way, "a transaction is under way")
    store.written.clear()
    return runtime, store


async def test_what_changes_without_an_action_while_a_transaction_is_under_way_is_written_after_it() -> None:
    runtime, store = await writing()
    runtime.manager.core.persistence.mark("agent", "h1")  # by a handler that has nothing to say
    store.end()
    await until(lambda: store.written == [[("agent", "h1")]], "the record is written")
    runtime.close()


async def test_what_is_due_while_a_transaction_is_under_way_is_written_after_it() -> None:
    runtime, store = await writing()
    runtime.manager.core.persistence.mark_later("leaving", "ocs")
    runtime.post(ev.KeepAlive("h1"))
    await asyncio.sleep(2 * LATER_S)
    store.end()
    await until(lambda: store.written == [[("leaving", "ocs")]], "the record is written")
    runtime.close()


class Deliveries:
    """What leaves for devices and agents, by name of the action and the path it is for."""

    def __init__(self, runtime: Runtime) -> None:
        self.left: list[tuple[str, str]] = []
        for kind in (act.InstallRules, act.RemoveRules, act.Connect, act.Disconnect):
            runtime.subscribers[kind] = [self._note]

    def _note(self, action: Any) -> None:
        self.left.append((type(action).__name__, getattr(action, "path_id", "")))

    def of(self, path_id: str) -> set[str]:
        return {name for name, of in self.left if of == path_id}


def paths_of(runtime: Runtime) -> dict[str, str]:
    """Request -> path."""
    return {one.request.request_id: one.id for one in runtime.manager.core.paths.values()}


@pytest.mark.parametrize("kind", ["its dump raises", "what it dumps is no JSON"])
@pytest.mark.parametrize("where", ["journal", "shared"])
async def test_a_record_that_cannot_be_made__costs_only_its_own_path(
    kind: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write-ahead: the other records of the turn are written, and nothing leaves that only the missing one explains."""
    dump, broken = recovery.Paths.dump, set[str]()

    def sometimes(self: recovery.Paths, core: Core, key: str) -> Json | None:
        path = core.paths.get(key)
        if path and path.request.request_id == "r1" and not path.final:
            broken.add(key)
            if kind == "its dump raises":
                raise ZeroDivisionError("a defect")
            return {"request": object()}
        return dump(self, core, key)

    monkeypatch.setattr(recovery.Paths, "dump", sometimes)
    journal = Journal(tmp_path / "journal", "t") if where == "journal" else None
    store: Any = journal or Encoding()
    runtime, _ = begun(store)
    deliveries = Deliveries(runtime)
    for number in range(3):
        ask(runtime, number)
    ids = paths_of(runtime)
    await until(lambda: not runtime.writing(), "all is written")
    assert broken == {ids["r1"]}
    assert deliveries.of(ids["r0"]) == deliveries.of(ids["r2"]) == {"InstallRules"}
    assert "InstallRules" not in deliveries.of(ids["r1"])
    found = runtime.path(ids["r1"])
    assert found is not None and found.state is State.FAILED and "its record cannot be written" in found.cause
    assert runtime.manager.core.counts["records_failed"] == 1
    runtime.close()
    if journal:
        journal.close()
        assert set(show(tmp_path / "journal")["records"]["path"]) == {ids["r0"], ids["r2"]}
    else:
        assert {key for part, key in store.rows if part == "path"} == {ids["r0"], ids["r2"]}


async def test_a_circuit_whose_record_cannot_be_made__is_not_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: recovery.Circuits, core: Core, key: str) -> Json | None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(recovery.Circuits, "dump", fails)
    runtime, _ = begun()
    for ocs in runtime.manager.core.topology.ocs:
        runtime.post(ev.OcsUp(ocs))
        runtime.post(ev.CrossConnectsFound(ocs, (), runtime.clock()))
    await until(lambda: not runtime.writing(), "what the start led to is written")
    deliveries = Deliveries(runtime)
    request = PathRequest("r0", REST, "h1", ("h3",), data_size=1, remaining_size=1, wanted=Wanted.CIRCUIT)
    runtime.post(ev.RequestReceived(request))
    assert len(list(runtime.manager.core.resources.circuits)) == 1
    await until(lambda: not runtime.writing(), "all is written")
    assert not [name for name, _ in deliveries.left if name == "Connect"]
    assert not list(runtime.manager.core.resources.circuits)
    found = runtime.path(paths_of(runtime)["r0"])
    assert found is not None and found.state is State.FAILED and "circuit" in found.cause
    runtime.close()


async def test_a_store_that_fails_without_a_word_of_why__lets_nothing_out() -> None:
    class Broken(Transactions):
        def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
            raise ZeroDivisionError("a defect")

    runtime = Runtime(Manager(load_text(hybrid(Hybrid(4, 2, 8, 2, fanout=2)))))
    lost: list[StoreError] = []
    runtime.on_lost = lost.append
    runtime.begin(Broken(), [])
    for switch in runtime.manager.core.topology.switches:
        runtime.post(ev.SwitchUp(switch))
    deliveries = Deliveries(runtime)
    ask(runtime, 1)
    await until(lambda: lost, "the runtime gives up")
    assert "records could not be written" in str(lost[0]) and not deliveries.left


class Encoding(Transactions):
    """Encodes before it starts, as the shared store."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[str, str], str] = {}

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        for one, value in zip(changes, encode_each(changes, json.dumps), strict=True):
            if value is not None:
                self.rows[one.part, one.key] = value
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done
