"""Images and models put on many servers before anybody asks for them: what each lacks goes once, by multicast.

It is a sync (sync.py) of what is named by its digest: a blob that is there is not sent again, and one that comes counts
only when its bytes are those of its name. An image is in the layout's index, and a model's revision in the cache, when
all that belongs to it is there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import hub
from .agent import Agent
from .oci import LAYOUT, REF_NAME, Descriptor, Layout, bad, descriptor_of, merged_index, name_here, parse_name
from .sync import ANSWER_WAIT_S, Report, SyncReceiver, SyncResult, SyncSender, Watch, take_offers
from .trees import Entry, Tree
from .values import Code, RostrumError

IMAGES, MODELS = "oci", "hf"
PART, AHEAD = 64 << 20, 2  # few large ones: what begins a transfer is paid once each
IMAGES_MOST = 1000
KEPT = ("mediaType", "digest", "size", "platform", "artifactType")  # of an index's row
OCI_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")


class Offered:
    """What is to be on receivers: `entries` of a folder, where their files are here, and what is done at the end."""

    def __init__(self, kind: str, entries: list[Entry], files: dict[str, Path], install: dict[str, Any]) -> None:
        self.kind, self.entries, self.files, self.install = kind, entries, files, install


def offered(source: str, name: str | None = None) -> Offered:
    """What `oci:DIR[:TAG]` or `hf:DIR|REPO[@REVISION]` means; `name`: what the receivers call it.

    Raises:
        RostrumError: it means nothing, is not whole, or malformed.
    """
    kind, _, where = source.partition(":")
    if kind == IMAGES and where:
        return _image(where, name)
    if kind == MODELS and where:
        entries, files = (snapshot := hub.snapshot_of(where, name)).entries()
        install = {"folder": snapshot.folder, "commit": snapshot.commit, "ref": snapshot.ref}
        return Offered(MODELS, entries, files, install)
    raise bad(f"{source!r} is neither oci:DIR[:TAG] nor hf:DIR or hf:REPO@REVISION")


def _image(where: str, name: str | None) -> Offered:
    top, tag = where, ""
    if not Path(where).is_dir() and ":" in where:
        top, _, tag = where.partition(":")
        while not Path(top).is_dir() and ":" in tag:  # a folder's name with a colon
            more, _, tag = tag.partition(":")
            top = f"{top}:{more}"
    layout = Layout(top)
    images = layout.images()
    wanted = [one for one in images if not tag or one[0] == tag]
    if not wanted:
        have = ", ".join(sorted({one[0] for one in images if one[0]})[:8]) or "none with a name"
        raise RostrumError(f"{top} has no image {tag or 'at all'}; there are: {have}", Code.UNKNOWN)
    if len(wanted) > IMAGES_MOST:
        raise bad(f"{top} has {len(wanted)} images: name one (at most {IMAGES_MOST} go at once)")
    if name and len(wanted) > 1 and ":" in name.rpartition("/")[2]:
        raise bad(f"{top} has {len(wanted)} images and {name} is one name: say which, as oci:{top}:TAG")
    blobs: dict[str, Descriptor] = {}
    index: list[dict[str, Any]] = []
    for ref, manifest, row in wanted:
        blobs |= {blob.digest: blob for blob in layout.blobs(manifest)}
        full = name_here(ref, Path(top), name)
        kept: dict[str, Any] = {
            key: row[key] for key in ("mediaType", "digest", "size", "platform", "artifactType") if key in row
        }
        index.append({**kept, "annotations": {REF_NAME: full}} if full else kept)
    entries = [Entry("blobs", "d", 0o755, 0), Entry("blobs/sha256", "d", 0o755, 0)]
    files: dict[str, Path] = {}
    for blob in blobs.values():
        source = layout.path(blob.digest)
        info = os.stat(source, follow_symlinks=False)
        path = f"blobs/sha256/{source.name}"
        entries.append(Entry(path, "f", 0o644, max(0, info.st_mtime_ns), info.st_size, digest=source.name))
        files[path] = source
    return Offered(IMAGES, entries, files, {"index": index})


def preheat(
    agent: Agent,
    what: Offered,
    receivers: Sequence[str],
    *,
    dry_run: bool = False,
    checksum: bool = False,
    wait: float = ANSWER_WAIT_S,
    report: Report = lambda text: None,
    watch: Watch | None = None,
) -> SyncResult:
    """Puts it on these servers, where `take` runs (rostrum preheat KIND --into DIR, rostrum mirror DIR).

    Args:
        dry_run: says what is lacking; nothing is sent.
        checksum: receivers read what they have and check it, too.

    Raises:
        RostrumError: it could not be begun.
    """
    sender = _Sender(agent, what, receivers, dry_run, checksum, report, watch, wait)
    return sender.result()


class _Sender(SyncSender):
    part, ahead, at_once = PART, AHEAD, 1

    def __init__(self, agent: Agent, what: Offered, receivers: Sequence[str], dry_run: bool, checksum: bool,
                 report: Report, watch: Watch | None, wait: float) -> None:  # fmt: skip
        self.what = what
        self.runs_there = f"rostrum preheat {what.kind} --into DIR" + (", or rostrum mirror," * (what.kind == IMAGES))
        options: dict[str, Any] = {
            "delete": False,
            "dry_run": dry_run,
            "checksum": checksum,
            "whole": True,
            "install": what.install,
        }
        super().__init__(agent, Path("/"), list(dict.fromkeys(receivers)), f"preheat {what.kind}", report, watch, wait,
                         options)  # fmt: skip

    def scan(self) -> tuple[list[Entry], list[tuple[str, str]]]:
        return self.what.entries, []

    def open(self, entry: Entry) -> int:
        return os.open(self.what.files[entry.path], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


class _Blobs(Tree):
    """A folder of which files are named by their digests."""

    def __init__(self, top: Path, checksum: bool) -> None:
        super().__init__(top)
        self.checksum = checksum
        try:
            fcntl.flock(self._top, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._top)
            raise RostrumError(f"another rostrum preheat or mirror writes into {top}", Code.BUSY) from None

    def make_folder(self, entry: Entry, fresh: bool = False) -> None:
        """At once, for everybody: what is complete stays, whatever becomes of the rest."""
        info = self.look(entry.path)
        if info is None:
            name, folder = self._at(entry.path)
            os.mkdir(name, 0o777 & ~self._umask, dir_fd=folder)
        elif not stat.S_ISDIR(info.st_mode):
            raise OSError(errno.ENOTDIR, "something else than a folder is in its place", entry.path)

    def same(self, entry: Entry, info: os.stat_result) -> bool:
        if entry.kind != "f":
            return super().same(entry, info)
        if not stat.S_ISREG(info.st_mode) or info.st_size != entry.size:
            return False
        if not self.checksum:
            return True
        file = self.open(entry.path)
        try:
            return self._right(entry, file)
        finally:
            os.close(file)

    def _right(self, entry: Entry, file: int) -> bool:
        digest = hub.digest_for(entry.digest, entry.size)
        at = 0
        while piece := os.pread(file, 1 << 20, at):
            digest.update(piece)
            at += len(piece)
        return digest.hexdigest() == entry.digest

    def write_files(self, parent: str, files: Sequence[tuple[Entry, int]], data: memoryview) -> dict[int, OSError]:
        failed: dict[int, OSError] = {}
        right: list[int] = []
        for number, (entry, at) in enumerate(files):
            if entry.digest:
                digest = hub.digest_for(entry.digest, entry.size)
                digest.update(data[at : at + entry.size])
                if digest.hexdigest() != entry.digest:
                    failed[number] = OSError(errno.EBADMSG, "its bytes are not those of its digest")
                    continue
            right.append(number)
        found = super().write_files(parent, [files[number] for number in right], data)
        return failed | {right[number]: error for number, error in found.items()}

    def place_file(self, entry: Entry, descriptor: int, name: str) -> None:
        if not self._right(entry, descriptor):
            raise OSError(errno.EBADMSG, "its bytes are not those of its digest")
        super().place_file(entry, descriptor, name)


class _Receiver(SyncReceiver):
    """One run: blobs, then what makes them known."""

    ahead = AHEAD

    def __init__(self, agent: Agent, tree: Tree, kind: str, offer: dict[str, Any]) -> None:
        super().__init__(agent, tree, f"preheat {kind}", offer, ANSWER_WAIT_S)
        self.whole = True
        install = offer.get("install")
        if not isinstance(install, dict):
            raise RostrumError("what came is no offer of a preheat", Code.PROTOCOL)
        self.install: dict[str, Any] = install
        if kind == MODELS:
            folder, commit, ref = (str(install.get(key, "")) for key in ("folder", "commit", "ref"))
            if not hub.FOLDER.fullmatch(folder) or ".." in folder or not hub.COMMIT.fullmatch(commit):
                raise RostrumError("what came names no repository and commit of a hub", Code.PROTOCOL)
            if ref and not hub.good_ref(ref):
                raise RostrumError(f"{ref[:100]!r} is no revision of a hub", Code.PROTOCOL)
        for index, entry in enumerate(self.entries):
            why = "" if entry is None else (
                _why_no_blob(entry) if kind == IMAGES else hub.why_not(entry, folder, commit)
            )  # fmt: skip
            if entry is not None and entry.kind == "f" and entry.digest != entry.path.rpartition("/")[2]:
                why = why or "its name is not its digest"
            if why and entry is not None:
                self.refused.append((entry.path, why))
                self.entries[index] = None
        if kind == IMAGES:
            self.index = self._checked_index(install.get("index"))

    def _checked_index(self, rows: object) -> list[dict[str, Any]]:
        """Raises RostrumError: these are no images, or not with names that a registry has."""
        if not isinstance(rows, list) or not 1 <= len(rows) <= IMAGES_MOST:
            raise RostrumError("what came names no images", Code.PROTOCOL)
        for row in rows:
            descriptor_of(row, "what came")
            notes = row.get("annotations", {})
            if not isinstance(notes, dict) or set(notes) - {REF_NAME} or len(json.dumps(row)) > 4096:
                raise RostrumError("what came names no images", Code.PROTOCOL)
            if notes:
                parse_name(str(notes.get(REF_NAME)))
        return rows

    def _make_folders(self) -> None:
        for entry in self.entries:
            if entry and entry.kind == "d":
                self.tree.make_folder(entry)

    def _finish(self) -> None:
        lacking = [entry for index, entry in enumerate(self.entries)
                   if entry and entry.kind == "f" and index not in self.done]  # fmt: skip
        named = {path for path, _ in self.failed}
        self.failed += [(entry.path, "it did not come: it changed at the sender") for entry in lacking
                        if entry.path not in named]  # fmt: skip
        if lacking or self.refused:
            return  # nothing that is not whole is made known
        try:
            if self.name == f"preheat {IMAGES}":
                self._install_images()
            else:
                self._install_model()
        except (RostrumError, OSError) as error:
            self.failed.append(("the index", str(error)))

    def _install_images(self) -> None:
        layout = Layout(self.tree.top)
        for row in self.index:
            for _ in layout.blobs(descriptor_of(row, "what came")):
                pass  # it raises at what is missing
        there = [row for _, _, row in layout.images()] if self.tree.look("index.json") else []
        self._put("oci-layout", LAYOUT)
        self._put("index.json", merged_index(there, self.index))

    def _install_model(self) -> None:
        for index in self.links:
            entry = self.entries[index]
            assert entry
            self.tree.make_link(entry)
        if ref := self.install["ref"]:
            self._put(f"{self.install['folder']}/refs/{ref}", str(self.install["commit"]).encode())

    def _put(self, path: str, content: bytes) -> None:
        entry = Entry(path, "f", 0o644, 0, len(content))
        self.tree.write_file(entry, memoryview(content))
        with contextlib.suppress(OSError):
            os.utime(self.tree.top / path)


def _why_no_blob(entry: Entry) -> str:
    if entry.kind == "d":
        return "" if entry.path in ("blobs", "blobs/sha256") else "it is no folder of an OCI layout"
    return "" if entry.kind == "f" and OCI_BLOB.fullmatch(entry.path) else "it is no blob of an OCI layout"


def take(
    agent: Agent,
    kind: str,
    into: str | os.PathLike[str],
    *,
    once: bool = True,
    wait: float | None = None,
    report: Report = lambda text: None,
) -> None:
    """Puts images ("oci") or models ("hf") that are offered to this server into a layout, or a hub's cache.

    Args:
        once: return after one; otherwise it goes on, whatever becomes of each.
        wait: seconds for an offer; None: forever.

    Raises:
        RostrumError: it failed (with `once`), or the agent went away; TimedOut: nobody offered anything.
    """

    @contextlib.contextmanager
    def receiver(offer: dict[str, Any]) -> Iterator[SyncReceiver]:
        with _Blobs(Path(into), bool(offer["checksum"])) as tree:
            yield _Receiver(agent, tree, kind, offer)

    take_offers(agent, f"preheat {kind}", receiver, once=once, wait=wait, report=report)
