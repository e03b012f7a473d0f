"""Folders kept alike: what is sent, what is left alone, what hostile servers cannot do. Agents are a table here."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rostrum.client import Agent, NotFound, ReadObject, RostrumError, TimedOut, data_id_of, trees
from rostrum.client import sync as syncing
from rostrum.client.sync import SyncResult, SyncSender, sync_folder, take_folder
from rostrum.client.trees import Entry, Tree, boundary, boundary_for, checked, cut, scan, stays_inside

BOUND_S = 60.0


class Hub:
    """Servers whose objects arrive at once. `sent`: (data id, receivers, bytes) of each send."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stores: dict[str, dict[int, bytes]] = {}
        self.sent: list[tuple[int, tuple[str, ...], bytes]] = []
        self.before_send: Callable[[int, bytes], None] = lambda number, content: None

    def agent(self, server: str) -> Agent:
        self.stores.setdefault(server, {})
        return cast(Agent, HubAgent(self, server))


class HubAgent:
    closed = False

    def __init__(self, hub: Hub, server: str) -> None:
        self.hub, self.server = hub, server

    def send(self, data_id: str, receivers: list[str], wait: float | None = None, source: Any = b"") -> Any:
        content = os.pread(source, os.fstat(source).st_size, 0) if isinstance(source, int) else source
        number = data_id_of(data_id)
        self.hub.before_send(number, content)
        rows = []
        with self.hub.changed:
            for name in receivers:
                store = self.hub.stores.get(name)
                ok = store is not None and store.setdefault(number, content) == content
                rows.append(SimpleNamespace(name=name, digest_ok=ok, state="done", cause="" if ok else "it is away"))
            self.hub.sent.append((number, tuple(receivers), content))
            self.hub.changed.notify_all()
        cause = "".join(row.cause for row in rows)
        result = SimpleNamespace(ok=not cause, cause=cause, receivers=rows)
        return SimpleNamespace(wait=lambda: result, cancel=lambda: None)

    def read(self, data_id: str, wait: float | None = None) -> Any:
        number = data_id_of(data_id)
        store = self.hub.stores[self.server]
        with self.hub.changed:
            if not self.hub.changed.wait_for(lambda: number in store, wait or 0):
                raise TimedOut("not in time") if wait else NotFound("not here")
            content = store[number]
        fd = os.memfd_create("object")
        os.write(fd, content)
        return ReadObject(number, fd, len(content), "")

    def delete(self, data_id: str) -> None:
        with self.hub.changed:
            if self.hub.stores[self.server].pop(data_id_of(data_id), None) is None:
                raise NotFound("not here")

    def status(self) -> Any:
        return SimpleNamespace(transfers=(), objects=())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(syncing, "POLL_S", 0.05)
    it = Hub()
    yield it
    assert not any(it.stores.values()), "nothing of a sync stays in a store"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "site"
    (top / "inner" / "deep").mkdir(parents=True)
    (top / "plain").write_bytes(b"x" * 5000)
    (top / "nothing").write_bytes(b"")
    (top / "inner" / "program").write_text("#!/bin/sh\n")
    (top / "inner" / "program").chmod(0o755)
    (top / "inner" / "secret").write_text("s")
    (top / "inner" / "secret").chmod(0o600)
    os.link(top / "inner" / "secret", top / "shared")
    (top / "to").symlink_to("inner/program")
    (top / "inner" / "deep" / "up").symlink_to("../../plain")
    (top / "large").write_bytes(random.Random(1).randbytes(2 << 20))
    os.utime(top / "plain", ns=(1_000_000_000, 1_234_567_890_123))
    (top / "inner" / "deep").chmod(0o500)
    os.utime(top / "inner", ns=(5, 7_000_000_000))
    return top


def run(hub: Hub, source: Path, targets: dict[str, Path], **options: Any) -> SyncResult:
    """One sync from h1, each receiver in a thread."""
    failed: list[BaseException] = []

    def receive(name: str, into: Path) -> None:
        try:
            take_folder(hub.agent(name), "site", into, wait=BOUND_S)
        except (RostrumError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=receive, args=item) for item in targets.items()]
    for name in targets:
        hub.agent(name)
    for thread in threads:
        thread.start()
    result = sync_folder(hub.agent("h1"), source, list(targets), name="site", wait=BOUND_S, **options)
    for thread in threads:
        thread.join()
    return result


def state(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        content: object = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(top))] = (stat.filemode(info.st_mode), info.st_mtime_ns, content)
    return found


def data_sent(hub: Hub, since: int = 0) -> int:
    return sum(len(content) for _, receivers, content in hub.sent[since:] if receivers != ("h1",))


def test_folders__become_alike_and_what_is_alike_is_not_sent_again(hub: Hub, source: Path, tmp_path: Path) -> None:
    targets = {"h2": tmp_path / "h2", "h3": tmp_path / "h3"}
    result = run(hub, source, targets)
    assert result.ok, result
    for top in targets.values():
        assert state(top) == state(source)
        assert (top / "shared").samefile(top / "inner" / "secret")
    assert result.sent == sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and
                              not path.is_symlink() and path.name != "shared")  # fmt: skip
    again = run(hub, source, targets)
    assert again.ok and again.sent == 0 and state(targets["h2"]) == state(source)
    (source / "plain").chmod(0o640)
    assert run(hub, source, targets).sent == 0 and state(targets["h3"]) == state(source)  # modes alone cost nothing
    (source / "inner" / "deep").chmod(0o700)


@pytest.mark.parametrize("seed", range(4))
def test_parts__of_files_of_all_sizes_hold_what_each_file_has(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What is collected of small files goes before a large one, and what changes while it is read goes nowhere."""
    rng = random.Random(seed)
    monkeypatch.setattr(syncing.SyncSender, "part", rng.choice([1 << 16, 1 << 18, syncing.PART]))
    source, targets = tmp_path / "site", {"h2": tmp_path / "h2", "h3": tmp_path / "h3"}
    sizes = [0, 1, 4096, trees.SMALL - 1, trees.SMALL, trees.SMALL + 1, 200_000, syncing.SMALL_TOGETHER + 1]
    for number in range(60):
        path = source / rng.choice(["", "a", "b"]) / f"{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice(sizes)))
    changing = rng.sample([path for path in sorted(source.rglob("*")) if path.is_file()], 3)
    opened = SyncSender.open

    def open_and_change(self: SyncSender, entry: Entry) -> int:
        file = opened(self, entry)
        if source / entry.path in changing:
            os.utime(source / entry.path, ns=(1, 1))
        return file

    monkeypatch.setattr(SyncSender, "open", open_and_change)
    result = run(hub, source, targets)
    changed = {str(path.relative_to(source)) for path in changing if path.stat().st_size}
    assert {path for path, why in result.left_out if "changed" in why} == changed
    monkeypatch.setattr(SyncSender, "open", opened)
    for top in targets.values():
        assert set(state(source)) - set(state(top)) == changed
        assert all(state(source)[path][2] == row[2] for path, row in state(top).items())
    assert run(hub, source, targets).ok and all(state(top) == state(source) for top in targets.values())


def test_changed_large_file__goes_in_chunks_that_somebody_lacks(hub: Hub, source: Path, tmp_path: Path) -> None:
    targets = {"h2": tmp_path / "h2", "h3": tmp_path / "h3", "h4": tmp_path / "h4"}
    old = (source / "large").read_bytes()
    assert run(hub, source, {"h2": targets["h2"], "h3": targets["h3"]}).ok
    (targets["h3"] / "large").write_bytes(old[: len(old) // 2])  # another state; and h4 has nothing
    (source / "large").write_bytes(old[:700_000] + b"inserted" + old[700_000:])
    result = run(hub, source, targets)
    assert result.ok, result
    assert [name for top in targets.values() for name, row in state(top).items() if row != state(source)[name]] == []
    h2, h3, h4 = result.receivers
    assert h2.received < len(old) // 4 < h3.received < len(old) * 3 // 4 < h4.received
    assert result.sent == h4.received  # each byte once
    (source / "inner" / "deep").chmod(0o700)


def test_what_one_alone_lacks__goes_to_it_alone(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "OWN_PART_LEAST", 1 << 16)
    monkeypatch.setattr(syncing.SyncSender, "part", 1 << 15)
    monkeypatch.setattr(syncing.SyncSender, "ahead", 2)
    monkeypatch.setattr(syncing.SyncReceiver, "ahead", 2)
    source, targets = tmp_path / "site", {name: tmp_path / name for name in ("h2", "h3", "h4")}
    source.mkdir()
    (source / "old").write_bytes(random.Random(2).randbytes(200_000))
    (source / "little").write_bytes(b"little")
    assert run(hub, source, {"h2": targets["h2"], "h3": targets["h3"]}).ok
    (source / "new").write_bytes(random.Random(3).randbytes(200_000))
    before = len(hub.sent)
    result = run(hub, source, targets)
    assert result.ok and all(state(top) == state(source) for top in targets.values())
    assert result.sent == 400_006
    assert [row.received for row in result.receivers] == [200_000, 200_000, 400_006]
    parts = [receivers for _, receivers, content in hub.sent[before:] if len(content) > 1 << 15]
    assert parts.count(("h4",)) >= 6 and parts.count(("h2", "h3", "h4")) >= 6
    assert hub.agent("h1").server == "h1"


def data_blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_sparse_files__stay_sparse(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what they have goes, and takes room: new ones, all of a hole, with holes at either end, and changed ones."""
    monkeypatch.setattr(syncing.SyncSender, "part", 1 << 17)
    source, targets = tmp_path / "site", {"h2": tmp_path / "h2", "h3": tmp_path / "h3"}
    source.mkdir()
    rng = random.Random(7)
    contents: dict[str, list[tuple[int, bytes]]] = {
        "hole": [],
        "last": [(32 << 20, rng.randbytes(300_000))],
        "first": [(0, rng.randbytes(100_000))],
        "many": [(number << 20, rng.randbytes(rng.choice([1, 4096, 70_000]))) for number in range(0, 60, 3)],
    }
    for name, pieces in contents.items():
        with open(source / name, "wb") as out:
            out.truncate(64 << 20)
            for at, data in pieces:
                out.seek(at)
                out.write(data)
    (source / "dense").write_bytes(bytes(1 << 20))  # zeros that are there
    assert data_blocks(source / "many") < 4 << 20, "the tests' folder is on a file system without holes"
    first = run(hub, source, targets)
    assert first.ok, first
    least = sum(len(data) for pieces in contents.values() for _, data in pieces) + (1 << 20)
    assert least <= first.sent <= sum(data_blocks(path) for path in source.iterdir())
    for top in targets.values():
        for path in source.iterdir():
            assert (top / path.name).read_bytes() == path.read_bytes(), path.name
            assert data_blocks(top / path.name) <= data_blocks(path), path.name
    with open(source / "many", "r+b") as out:
        out.seek(40 << 20)
        out.write(b"changed")
    second = run(hub, source, targets)
    assert second.ok and second.sent <= 2 * trees.CHUNK_MOST
    for top in targets.values():
        assert (top / "many").read_bytes() == (source / "many").read_bytes()
        assert data_blocks(top / "many") <= data_blocks(source / "many") + (64 << 10)  # ends of chunks


@pytest.mark.parametrize("delete", [False, True])
def test_renamed_and_copied__are_not_sent_again(hub: Hub, tmp_path: Path, delete: bool) -> None:
    """A moved folder, a file that took another's name and the other its, copies with and without their times."""
    source, targets = tmp_path / "site", {"h2": tmp_path / "h2", "h3": tmp_path / "h3"}
    rng = random.Random(8)
    for name in ("old/inner/a", "old/inner/b", "old/c", "one", "two", "large", "touched"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(rng.randbytes(1 << 20 if name == "large" else 10_000))
    (source / "old" / "tiny").write_bytes(b"tiny")
    os.link(source / "old" / "c", source / "old" / "also")
    assert run(hub, source, targets).ok
    inodes = {path.relative_to(targets["h2"] / "old"): path.stat().st_ino
              for path in (targets["h2"] / "old").rglob("*") if path.is_file()}  # fmt: skip
    (source / "old").rename(source / "new")
    (source / "one").rename(source / "three")
    (source / "two").rename(source / "one")
    (source / "three").rename(source / "two")
    (source / "large").rename(source / "huge")
    (source / "copy").write_bytes((source / "huge").read_bytes())
    (source / "copy").chmod(0o640)
    (source / "new" / "again").write_bytes((source / "one").read_bytes())
    os.utime(source / "touched", ns=(3, 3))
    result = run(hub, source, targets, delete=delete)
    assert result.ok and result.sent == 0, result
    for top in targets.values():
        there = state(top)
        assert {path: there[path] for path in state(source)} == state(source)
        assert (top / "new" / "c").samefile(top / "new" / "also")
        assert (top / "old").exists() is not delete
        for path in ("one", "huge", "new/inner/a"):
            assert (top / path).stat().st_nlink == 1
    if delete:  # what goes anyway is moved, whatever its size
        assert (targets["h2"] / "new/inner/a").stat().st_ino == inodes[Path("inner/a")]
    assert run(hub, source, targets, delete=delete).sent == 0


def test_alike_by_size_and_time_alone__is_sent(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another content of the same size and time is no copy; and what changes while it is copied is none either."""
    source, targets = tmp_path / "site", {"h2": tmp_path / "h2"}
    source.mkdir()
    (source / "old").write_bytes(b"a" * 9000)
    (source / "other").write_bytes(b"o" * 9001)
    assert run(hub, source, targets).ok
    (source / "new").write_bytes(b"b" * 9000)
    shutil.copystat(source / "old", source / "new")
    shutil.copy2(source / "other", source / "copy")
    staged = trees.Tree.stage_copy

    def change_and_stage(self: Tree, entry: Entry, file: int, move: bool) -> str:
        monkeypatch.setattr(trees, "copy_bytes", lambda *_: (targets["h2"] / "other").write_bytes(b"p" * 9001))
        return staged(self, entry, file, move)

    monkeypatch.setattr(Tree, "stage_copy", change_and_stage)
    result = run(hub, source, targets)
    assert result.ok and result.sent == 18_001, result
    assert (targets["h2"] / "new").read_bytes() == b"b" * 9000
    assert (targets["h2"] / "copy").read_bytes() == b"o" * 9001


@pytest.mark.parametrize("asks", [{-1}, {10**6}, {"x"}, {None}])
def test_receiver_that_asks_for_what_was_not_offered__fails_alone(
    hub: Hub, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: set[Any]
) -> None:
    of_all = syncing.SyncReceiver.say

    def say(self: syncing.SyncReceiver, what: str, **message: object) -> None:
        if self.agent.server != "h2":
            of_all(self, what, **message)
            return
        if what == "answer" and not message.get("cause"):
            of_all(self, what, **{**message, "alike": list(asks)})
        raise RostrumError("it goes away")

    monkeypatch.setattr(syncing.SyncReceiver, "say", say)
    bad, good = run(hub, source, {"h2": tmp_path / "h2", "h3": tmp_path / "h3"}).receivers
    assert not bad.ok and "not offered" in bad.cause and good.ok
    assert state(tmp_path / "h3") == state(source)
    (source / "inner" / "deep").chmod(0o700)


def test_with_whole__nothing_is_looked_for(hub: Hub, source: Path, tmp_path: Path) -> None:
    targets = {"h2": tmp_path / "h2"}
    assert run(hub, source, targets).ok
    (source / "plain").rename(source / "renamed")
    assert run(hub, source, targets, whole=True).sent == 5000
    (source / "inner" / "deep").chmod(0o700)


def test_deletes__by_option_alone(hub: Hub, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "h2"
    assert run(hub, source, {"h2": target}).ok
    (target / "more" / "deep").mkdir(parents=True)
    (target / "more" / "deep" / "file").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (target / "way").symlink_to(outside)
    assert run(hub, source, {"h2": target}).ok
    assert (target / "more" / "deep" / "file").exists()
    would = run(hub, source, {"h2": target}, delete=True, dry_run=True)
    assert "delete more/deep/file" in would.receivers[0].would and (target / "more").exists() and would.ok
    result = run(hub, source, {"h2": target}, delete=True)
    assert result.ok and result.receivers[0].deleted == 4
    assert state(target) == state(source) and (outside / "precious").exists()
    (source / "inner" / "deep").chmod(0o700)


def test_dry_run__changes_nothing_and_says_what_would(hub: Hub, source: Path, tmp_path: Path) -> None:
    result = run(hub, source, {"h2": tmp_path / "h2"}, dry_run=True)
    assert result.ok and not (tmp_path / "h2").exists()
    row = result.receivers[0]
    assert "new large" in row.would and "new to" in row.would and row.received > 2 << 20
    assert data_sent(hub) < 10_000


def test_checksum__finds_what_size_and_time_hide(hub: Hub, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "h2"
    assert run(hub, source, {"h2": target}).ok
    info = (target / "plain").stat()
    (target / "plain").write_bytes(b"y" * 5000)
    os.utime(target / "plain", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert run(hub, source, {"h2": target}).sent == 0
    assert run(hub, source, {"h2": target}, checksum=True).sent == 5000
    assert state(target) == state(source)


def test_other_kinds__take_each_others_places(hub: Hub, tmp_path: Path) -> None:
    source, target = tmp_path / "site", tmp_path / "h2"
    for top in (source, target):
        top.mkdir()
    (source / "a").write_text("file")
    (target / "a").mkdir()
    (target / "a" / "inner").write_text("x")
    (source / "b").mkdir()
    (source / "b" / "inner").write_text("y")
    outside = tmp_path / "outside"
    outside.mkdir()
    (target / "b").symlink_to(outside)
    result = run(hub, source, {"h2": target})
    assert not result.ok and result.receivers[0].refused[0][0] == "a"  # a folder goes by --delete alone
    assert (target / "a" / "inner").exists() and (target / "b" / "inner").read_text() == "y"
    assert list(outside.iterdir()) == []  # written beside the link, not through it
    assert run(hub, source, {"h2": target}, delete=True).ok
    assert state(target) == state(source)


def test_what_cannot_go__is_named(hub: Hub, tmp_path: Path) -> None:
    source = tmp_path / "site"
    source.mkdir()
    os.mkfifo(source / "pipe")
    (source / "out").symlink_to("/etc/passwd")
    (source / "up").symlink_to("../x")
    (source / "program").write_text("x")
    (source / "program").chmod(0o4755)
    result = run(hub, source, {"h2": tmp_path / "h2"})
    assert result.ok and [path for path, _ in result.left_out] == ["out", "pipe", "up"]
    assert stat.S_IMODE((tmp_path / "h2" / "program").stat().st_mode) == 0o755
    assert sorted(os.listdir(tmp_path / "h2")) == ["program"]


def test_interrupted__shows_no_half_files_and_goes_on(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing.SyncSender, "part", 1 << 16)
    source, target = tmp_path / "site", tmp_path / "h2"
    source.mkdir()
    for number in range(40):
        (source / f"{number:02}").write_bytes(random.Random(number).randbytes(5000))
    seen: list[int] = []
    parts: list[int] = []

    def cut_off(number: int, content: bytes) -> None:
        parts.append(len(content))
        if sum(size > 1 << 16 for size in parts) == 3:
            until = time.monotonic() + BOUND_S
            while not (target / "00").exists() and time.monotonic() < until:
                time.sleep(0.01)
            shown = [path for path in target.iterdir() if path.name != trees.STAGING]  # which changes meanwhile
            assert all(len(path.read_bytes()) == 5000 for path in shown)
            seen.append(len(shown))
            hub.before_send = lambda number, content: None
            raise KeyboardInterrupt

    hub.before_send = cut_off
    receiver = threading.Thread(target=take_folder, args=(hub.agent("h2"), "site", target), kwargs={"once": True})
    receiver.start()
    with pytest.raises(KeyboardInterrupt):
        sync_folder(hub.agent("h1"), source, ["h2"], wait=BOUND_S)
    result = sync_folder(hub.agent("h1"), source, ["h2"], wait=BOUND_S)  # the same receiver leaves the old one for it
    receiver.join()
    assert result.ok and state(target) == state(source) and seen
    assert result.sent < 40 * 5000  # what was complete is not sent again


def test_new_folder__is_seen_when_its_files_are_there(tmp_path: Path) -> None:
    def names(top: Path) -> list[str]:
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if trees.STAGING not in path.parts)

    top = tmp_path / "top"
    with Tree(top) as tree:
        tree.begin("token")
        for path in ("taken", "shown", "left"):
            tree.make_folder(Entry(path, "d", 0o755, 1), fresh=True)
            tree.write_file(Entry(f"{path}/one", "f", 0o640, 5 * 10**9, 3), memoryview(b"one"))
        assert names(top) == []
        tree.show("shown")
        (top / "taken").mkdir()  # by somebody else
        (top / "taken" / "another").write_text("x")
        tree.show("taken")
        assert names(top) == ["shown", "shown/one", "taken", "taken/another", "taken/one"]
        tree.make_folder(Entry("taken", "d", 0o755, 1), fresh=True)
        tree.write_file(Entry("taken/two", "f", 0o640, 5 * 10**9, 3), memoryview(b"two"))
        assert "taken/two" in names(top)
    assert (top / "left" / "one").read_bytes() == b"one"  # a run that ends early leaves what is whole
    assert not (top / trees.STAGING).exists()


def test_receiver_that_does_not_answer__fails_alone(
    hub: Hub, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others waited for something of the sender's, which waited for that one, as long as it did, and failed too."""
    monkeypatch.setattr(syncing, "ALIVE_EACH_S", 0.1)
    monkeypatch.setattr(syncing, "ANSWER_WAIT_S", 0.5)
    hub.agent("h3")  # where no rostrum sync --into runs
    receiver = threading.Thread(target=take_folder, args=(hub.agent("h2"), "site", tmp_path / "h2"),
                                kwargs={"once": True, "wait": BOUND_S})  # fmt: skip
    receiver.start()
    result = sync_folder(hub.agent("h1"), source, ["h2", "h3"], name="site", wait=2)
    receiver.join()
    assert [row.ok for row in result.receivers] == [True, False], result
    assert state(tmp_path / "h2") == state(source)
    hub.stores["h3"].clear()


def test_nobody_there__is_said(hub: Hub, source: Path) -> None:
    hub.agent("h2")
    told: list[str] = []
    result = sync_folder(hub.agent("h1"), source, ["h2", "h9"], wait=0.2, report=told.append)
    assert not result.ok
    assert [text for text in told if "failed" in text] == ["h9 failed: the others go on"], "the result says why"
    text = {row.name: row.cause for row in result.receivers}
    assert "--into DIR run there" in text["h2"] and "it does not take the offer" in text["h9"]
    hub.stores["h2"].clear()


EVIL: list[tuple[str, str, str, str]] = [
    ("../out", "f", "", "no folder"), ("/etc/out", "f", "", "no folder"), ("dir/./b", "f", "", "no folder"),
    ("", "f", "", "no name"), ("..", "d", "", "no name"), ("dir/..", "d", "", "no name"), ("dir/", "f", "", "no name"),
    ("dir//b", "f", "", "no folder"), ("/out", "f", "", "no folder"), ("a\0b", "f", "", "no name"),
    ("missing/file", "f", "", "no folder"),
    ("way/file", "f", "", "no folder"), (".rostrum-sync", "d", "", "taken"), ("x" * 300, "f", "", "no name"),
    ("link", "l", "/etc", "out of the folder"), ("link", "l", "../x", "out of"), ("dir/link", "l", "../../x", "out of"),
    ("dir/link", "l", "x/../../../y", "out of"), ("link", "l", "dir/..", "out of"),
    ("hard", "h", "/etc/shadow", "hard"), ("hard", "h", "way", "hard"),
    ("device", "c", "", "neither"), ("dir", "f", "", "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "to", "text"), EVIL)
def test_hostile_names__are_refused(path: str, kind: str, to: str, text: str) -> None:
    rows: list[object] = [
        Entry("dir", "d", 0o755, 1), Entry("way", "l", 0o777, 1, to="dir"),
        Entry(path, kind, 0o6755, 1, 3, to), Entry("good", "f", 0o6755, 1, 3),
    ]  # fmt: skip
    entries, refused = checked(rows)
    assert [entry.path for entry in entries if entry] == ["dir", "way", "good"]
    assert refused[0][0] == path and text in refused[0][1]
    assert entries[3] is not None and entries[3].mode == 0o755


@pytest.mark.parametrize("seed", range(3))
def test_garbage__is_no_list(seed: int) -> None:
    rng = random.Random(seed)
    good = Entry("a", "f", 0o644, 1, 3)
    for _ in range(300):
        row = list(good)
        row[rng.randrange(7)] = rng.choice([None, -1, 1 << 70, [], {}, 1.5, True, "\ud800x", "\x00"])
        for rows in ([row], row, [[*row, 1]], [row[:3]], {"a": 1}, None):
            try:
                entries, refused = checked(rows)
            except RostrumError:
                continue
            assert all(entry is None or entry.path == "a" for entry in entries) or refused


def test_hostile_sender__ends_at_the_receiver(hub: Hub, tmp_path: Path) -> None:
    """Parts that name what was not asked for, or lie outside their file, change nothing."""
    offer = {"token": "t", "sender": "h1", "delete": False, "dry_run": False, "checksum": False, "whole": False,
             "entries": [Entry("a", "f", 0o644, 1, 10)]}  # fmt: skip
    for table in ([(7, 0, 3)], [(0, 8, 9)], [(0, 0, 1 << 60)], [(0, 0, 0)]):
        sender, receiver = hub.agent("h1"), hub.agent("h2")
        sender.send("rostrum sync site: offer", ["h2"], source=json.dumps(offer).encode())
        plan = b"{}"
        part = b"x" * 20 + b"".join(syncing.ITEM.pack(*item) for item in table) + plan + syncing.TAIL.pack(1, len(plan))
        sender.send("rostrum sync site: part 0 of t", ["h2"], source=part)
        with pytest.raises(RostrumError, match="no part of a sync"):
            take_folder(receiver, "site", tmp_path / "h2", wait=BOUND_S)
        assert list((tmp_path / "h2").iterdir()) == []
        hub.stores["h1"].clear()


def test_links__that_stay_inside() -> None:
    assert stays_inside("a", "b") and stays_inside("x/a", "../b/c") and stays_inside("x/y/a", "../../b")
    for path, to in (("a", ""), ("a", "/b"), ("a", ".."), ("x/a", "../../b"), ("x/a", "b/../../.."), ("a", "b/..")):
        assert not stays_inside(path, to), (path, to)


@pytest.mark.parametrize("kind", ["random", "text", "zeros"])
def test_chunks__find_their_places_again_after_an_insertion(kind: str) -> None:
    rng = random.Random(5)
    text = [rng.randbytes(rng.randrange(2, 9)).hex() for _ in range(500)]
    data = {"random": rng.randbytes(4 << 20), "text": " ".join(rng.choices(text, k=300_000)).encode(),
            "zeros": bytes(4 << 20)}[kind]  # fmt: skip
    ends = boundary(boundary_for(data[: trees.SAMPLE]))
    old = list(cut(data, ends))
    assert [one.offset for one in old] == [sum(one.length for one in old[:n]) for n in range(len(old))]
    assert sum(one.length for one in old) == len(data) and len(old) < len(data) / trees.CHUNK_LEAST + 1
    here = {one.digest for one in old}
    lacks = sum(
        one.length for one in cut(data[:100_000] + b"inserted" + data[100_000:], ends) if one.digest not in here
    )
    assert lacks <= 2 * trees.CHUNK_MOST


def test_scan__of_many_files_takes_each_once(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}").write_bytes(b"x")
    began = time.monotonic()
    entries, left_out = scan(tmp_path)
    assert len(entries) == 50 and not left_out and time.monotonic() >= began
