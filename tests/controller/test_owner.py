"""When the owner of the state writes what it decided, and when it lets it out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rostrum.controller.core import events as ev
from rostrum.controller.core.durable import Change
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.values import REST, PathRequest, Wanted
from rostrum.controller.owner import LATER_S, Owner
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


def begun(store: Transactions | None = None) -> tuple[Owner, Transactions]:
    owner, store = Owner(Manager(load_text(hybrid(Hybrid(4, 2, 8, 2, fanout=2))))), store or Transactions()
    owner.begin(store, [])
    for switch in owner.manager.core.topology.switches:
        owner.post(ev.SwitchUp(switch))
    return owner, store


def ask(owner: Owner, number: int) -> None:
    request = PathRequest(f"r{number}", REST, "h1", ("h3",), data_size=1, remaining_size=1, wanted=Wanted.PACKET)
    owner.post(ev.RequestReceived(request))


async def test_requests_that_keep_coming_share_a_transaction() -> None:
    owner, store = begun()
    await until(lambda: not owner.writing(), "what the start led to is written")
    store.written.clear()
    for number in range(0, 6, 2):  # two in each turn of the loop
        ask(owner, number)
        ask(owner, number + 1)
        await asyncio.sleep(0)
    await until(lambda: store.written, "the requests are written")
    assert len(store.written) == 1 and len({key for _, key in store.written[0]}) == 6
    owner.close()


async def test_one_request_by_itself_does_not_wait_for_others() -> None:
    owner, store = begun()
    await until(lambda: not owner.writing(), "what the start led to is written")
    store.written.clear()
    ask(owner, 1)
    await asyncio.sleep(0)
    assert len(store.written) == 1
    owner.close()


async def test_requests_that_never_stop_coming_are_answered_all_the_same() -> None:
    owner, store = begun()
    for number in range(0, 200, 2):
        ask(owner, number)
        ask(owner, number + 1)
        await asyncio.sleep(0)
    assert len(store.written) > 10
    owner.close()


async def test_what_nothing_waits_for_is_written_some_time_later() -> None:
    owner, store = begun()
    await until(lambda: not owner.writing(), "what the start led to is written")
    store.written.clear()
    owner.manager.core.durable.mark_later("leaving", "ocs")
    owner.post(ev.KeepAlive("h1"))
    await asyncio.sleep(0)
    assert store.written == []
    await until(lambda: store.written == [[("leaving", "ocs")]], "the record is written")
    owner.close()


async def writing() -> tuple[Owner, SlowTransactions]:
    """A transaction is under way."""
    store = SlowTransactions()
    owner, _ = begun(store)
    ask(owner, 1)
    await until(lambda: store.under_way, "a transaction is under way")
    store.written.clear()
    return owner, store


async def test_what_changes_without_an_action_while_a_transaction_is_under_way_is_written_after_it() -> None:
    owner, store = await writing()
    owner.manager.core.durable.mark("agent", "h1")  # by a handler that has nothing to say
    store.end()
    await until(lambda: store.written == [[("agent", "h1")]], "the record is written")
    owner.close()


async def test_what_is_due_while_a_transaction_is_under_way_is_written_after_it() -> None:
    owner, store = await writing()
    owner.manager.core.durable.mark_later("leaving", "ocs")
    owner.post(ev.KeepAlive("h1"))
    await asyncio.sleep(2 * LATER_S)
    store.end()
    await until(lambda: store.written == [[("leaving", "ocs")]], "the record is written")
    owner.close()
