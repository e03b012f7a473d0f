"""The journal: what is written is there after a kill, damage is told with a way out, it does not grow for ever."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.controller.app import App
from rostrum.controller.commands.paths import manager as manager_command
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.core.values import State
from rostrum.controller.runtime import journal
from rostrum.controller.runtime.journal import Journal
from rostrum.controller.runtime.store import StoreError

from tests.controller.fakes import running, until

WRITER = """
import sys
from pathlib import Path
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.runtime.journal import Journal
made = Journal(Path(sys.argv[1]), "t")
number = 0
while True:
    number += 1
    pair = [Change("a", str(number % 50), {"n": number}), Change("b", str(number % 50), {"n": number})]
    made.write([*pair, Change("a", str((number + 25) % 50), None), Change("b", str((number + 25) % 50), None)])
    print(number, flush=True)
"""


def meddle(file: Path, statements: str) -> None:
    raw = sqlite3.connect(file)
    raw.executescript(statements)
    raw.close()


@pytest.mark.parametrize("before", [False, True])
def test_files__are_nobody_elses_to_read(tmp_path: Path, before: bool) -> None:
    if before:  # by a release that did not see to it
        (tmp_path / "journal").touch()
        (tmp_path / "journal").chmod(0o644)
    made = Journal(tmp_path / "journal", "t")
    made.write([Change("path", "p-1", {"app": "an application's id"})])
    assert all(one.stat().st_mode & 0o027 == 0 for one in tmp_path.iterdir())
    made.close()


def test_write__read_back_replaced_and_gone(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    first = Journal(file, "t")
    assert first.records == {} and not first.complete
    first.write([Change("path", "p-1", {"n": 1}), Change("path", "p-2", ["ä", None, 1.5])])
    first.write([Change("path", "p-1", {"n": 2}), Change("circuit", "c-1", {}), Change("path", "p-9", None)])
    first.write([Change("path", "p-2", None)])
    first.whole()
    first.close()
    again = Journal(file, "t")
    assert again.records == {"path": {"p-1": {"n": 2}}, "circuit": {"c-1": {}}} and again.complete
    again.close()


def test_killed__every_transaction_that_was_told_is_whole(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(4):
        file = tmp_path / f"journal-{number}"
        with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            last = 0
            for _ in range(rng.randint(1, 3000)):
                last = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            last = max([last, *(int(row) for row in writer.stdout.read().split("\n")[:-1])])
        found = Journal(file, "t")
        assert found.records["a"] == found.records["b"]  # of each transaction both or none
        newest = max(record["n"] for record in found.records["a"].values())
        assert newest in (last, last + 1)
        found.close()


async def test_full_sync__the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    made = Journal(tmp_path / "journal", "t", "full")
    for number in range(20):
        under_way = made.write([Change("a", str(number), number)])
        assert isinstance(under_way, asyncio.Future)
        await under_way
    made.close()
    again = Journal(tmp_path / "journal", "t", "full")
    assert len(again.records["a"]) == 20
    again.close()


def test_power_cut__the_records_are_not_taken_for_all_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sync, complete in (("normal", False), ("full", True)):
        machine = tmp_path / "boot_id"
        machine.write_text("before")
        monkeypatch.setattr(journal, "MACHINE", machine)
        file = tmp_path / sync
        made = Journal(file, "t", sync)
        made.whole()
        made._give_up()  # killed with its machine
        machine.write_text("after")
        again = Journal(file, "t", sync)
        assert again.complete is complete
        again.whole()
        again.close()  # an orderly end: all of it is on the disk
        machine.write_text("later")
        last = Journal(file, "t", sync)
        assert last.complete
        last.close()


def test_size__is_that_of_what_is_held_not_of_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    text = "x" * 600
    for number in range(1500):
        rows = [Change("path", f"p-{number}-{one}", {"text": text}) for one in range(20)]
        made.write([*rows, *(Change("path", f"p-{number - 2}-{one}", None) for one in range(20))])
    grown = sum(Path(f"{file}{suffix}").stat().st_size for suffix in ("", "-wal"))
    assert grown < journal.LOG_BYTES_MAX + (4 << 20)  # 18 MB of records were written, as some 60 MB of pages
    made.close()
    assert file.stat().st_size < 1 << 20 and not Path(f"{file}-wal").exists()


def test_turns__are_folded_into_records_that_say_the_same(tmp_path: Path, seed: int) -> None:
    rng, file, expected = random.Random(seed), tmp_path / "journal", {}
    made = Journal(file, "t")
    most = 0
    for number in range(2000):
        changes = []
        for key in {str(rng.randint(1, 40)) for _ in range(rng.randint(1, 4))}:
            gone = rng.random() < 0.4
            changes.append(Change("path", key, None if gone else {"n": number, "text": "x" * rng.randint(0, 900)}))
            if gone:
                expected.pop(key, None)
            else:
                expected[key] = changes[-1].value
        made.write(changes)
        most = max(most, made._turns_bytes)
        if rng.random() < 0.02:
            assert journal.show(file)["records"].get("path", {}) == expected  # while it is written
        if rng.random() < 0.005:
            made._give_up()  # killed
            made = Journal(file, "t")
            assert made.records.get("path", {}) == expected
    assert 0 < most < journal.TURNS_BYTES
    made.close()
    assert journal.check(file) == {"path": len(expected)}


@pytest.mark.parametrize("schema", [1, 2])
def test_file_of_an_earlier_release__is_read_shown_and_gone_on_with(tmp_path: Path, schema: int) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    made.write([Change("path", "p-1", {"n": 1}), Change("path", "p-2", {"n": 2})])
    made.close()
    with sqlite3.connect(file) as old:
        for key, value in old.execute("SELECT key, value FROM record").fetchall():  # sums were of the values alone
            old.execute("UPDATE record SET crc = ? WHERE key = ?", (zlib.crc32(value.encode()), key))
    old.close()
    meddle(file, f"{'DROP TABLE turn; ' if schema == 1 else ''}PRAGMA user_version={schema}")  # schema 1 had no turns
    assert journal.check(file) == {"path": 2}
    again = Journal(file, "t")
    assert again.records == {"path": {"p-1": {"n": 1}, "p-2": {"n": 2}}}
    again.write([Change("path", "p-1", None)])
    assert journal.show(file)["records"] == {"path": {"p-2": {"n": 2}}}
    again.close()
    third = Journal(file, "t")
    assert third.records == {"path": {"p-2": {"n": 2}}}
    third.close()


def test_damage__a_turn_that_is_not_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    made.write([Change("path", "p-1", {"n": 1})])
    made._give_up()
    meddle(file, 'UPDATE turn SET changes = CAST(\'[["path","p-1",{"n":7}]]\' AS BLOB)')
    with pytest.raises(StoreError, match="turn 1 is not what was written"):
        Journal(file, "t")


def test_damage__is_told_with_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    made.write([Change("path", f"p-{number}", {"text": "x" * 600}) for number in range(200)])
    made.close()
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(size // 2)
        raw.write(os.urandom(8192))
    with pytest.raises(StoreError, match=r"cannot be read: .*rostrum manager journal reset"):
        Journal(file, "t")
    told = CliRunner().invoke(manager_command, ["journal", "check", str(file)])
    assert told.exit_code == 1 and "cannot be read" in told.output
    told = CliRunner().invoke(manager_command, ["journal", "reset", str(file)])
    assert told.exit_code == 0 and "now " in told.output
    fresh = Journal(file, "t")
    assert fresh.records == {} and not fresh.complete
    fresh.close()


def test_damage__a_record_that_is_not_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    made.write([Change("path", "p-1", {"n": 1})])
    made.close()
    meddle(file, "UPDATE record SET value = '{\"n\":7}'")
    with pytest.raises(StoreError, match="record path p-1 is not what was written"):
        Journal(file, "t")


def test_open__what_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    with pytest.raises(StoreError, match="in use by another manager"):
        Journal(file, "t")
    assert journal.show(file)["about"]["topology"] == "t"  # looking is allowed
    with pytest.raises(StoreError, match="in use"):
        journal.reset(file)
    made.write([Change("path", "p-1", {})])
    made.close()
    with pytest.raises(StoreError, match="journal of topology t, this manager's is u"):
        Journal(file, "u")
    (tmp_path / "text").write_text("not a database, but long enough to look like one " * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        Journal(tmp_path / "text", "t")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE a (b)")
    other.close()
    with pytest.raises(StoreError, match="no journal of a manager"):
        Journal(tmp_path / "other", "t")
    newer = sqlite3.connect(file)
    newer.execute(f"PRAGMA user_version={journal.SCHEMA + 1}")
    newer.close()
    with pytest.raises(StoreError, match="another release"):
        Journal(file, "t")


def test_command__shows_and_checks(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    made = Journal(file, "t")
    made.write([Change("path", "p-1", {"n": 1}), Change("agent", "h1", {"boot": 7})])
    shown = CliRunner().invoke(manager_command, ["journal", "show", str(file)])
    assert shown.exit_code == 0 and '"boot": 7' in shown.output
    checked = CliRunner().invoke(manager_command, ["journal", "check", str(file)])
    assert "is whole: 1 agent, 1 path" in checked.output
    made.close()
    gone = CliRunner().invoke(manager_command, ["journal", "show", str(tmp_path / "none")])
    assert gone.exit_code == 1 and "there is no journal" in gone.output


async def test_manager__killed_and_started_again_has_its_paths(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with running(tmp_path, journal=file) as first:
        agent = await first.agent("h1", 5)
        agent.request("r1", "h1", "h3", "h5")
        path_id = (await agent.response("r1", 1)).response_id
        network, paths = first.network, first.app.runtime.manager.core.paths
        await until(lambda: paths[path_id].state is State.ACTIVE, "the path to be active")
        kill(first.app)
        rules, pairs = network.rules(), network.pairs()
    async with running(tmp_path, journal=file, network=network) as second:
        core = second.app.runtime.manager.core
        path = core.paths[path_id]
        await until(lambda: path.state is State.ACTIVE, "the path to be active again")
        assert network.rules() == rules and network.pairs() == pairs
        assert core.agents["h1"].boot_id == 5 and not core.agents["h1"].connected


async def test_manager__that_cannot_write_tells_nobody_anything_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path, journal=tmp_path / "journal") as one:
        agent = await one.agent("h1")
        assert one.app.journal and one.app.lost
        one.app.journal._file.execute("PRAGMA query_only=1")  # as when the disk is full
        agent.request("r1", "h1", "h3", "h5")
        error = await asyncio.wait_for(one.app.lost, 60)
        assert "takes nothing any more" in str(error)
        assert not [call for call, _ in agent.heard if call == "response"]
        assert one.network.rules() == set() and one.network.pairs() == set()


def kill(app: App) -> None:
    """It does and writes nothing any more; its file is free."""
    assert app.journal is not None
    app.runtime.close()
    app.journal._give_up()
    app.journal = None


def test_open__one_in_which_nothing_is_yet_takes_another_topology(tmp_path: Path) -> None:
    """A manager that was started with the topology file of the package, whose addresses are not there, ended; with the
    right file it was refused from then on."""
    Journal(tmp_path / "journal", "sample").close()
    other = Journal(tmp_path / "journal", "ours")
    assert not other.complete and not any(other.records.values())
    other.write([Change("paths", "p-1", {"id": "p-1"})])
    other.close()
    with pytest.raises(StoreError, match="journal of topology ours, this manager's is sample"):
        Journal(tmp_path / "journal", "sample")


def test_open__without_room_is_not_called_damaged(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "full") as file, pytest.raises(sqlite3.OperationalError) as full:
        file.execute("PRAGMA max_page_count = 1")
        file.execute("CREATE TABLE one (two)")
    assert "there is no room for the journal" in str(text := journal._damaged(tmp_path, full.value)), text
    assert "reset" not in str(text)
