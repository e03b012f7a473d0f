"""Models in the cache of a hub's client: blobs by digest, snapshots of links to them, refs with names.

The layout is that of huggingface_hub (models--ORG--NAME/{blobs,snapshots,refs}); nothing of it is imported.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .trees import Entry, stays_inside
from .values import Code, RostrumError

KINDS = ("models", "datasets", "spaces")
FOLDER = re.compile(r"(?:models|datasets|spaces)--[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,200})")
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
COMMIT = re.compile(r"[0-9a-f]{40}")
BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*){0,4}")
SKIPPED = {".git", ".cache", ".huggingface"}


def bad(text: str) -> RostrumError:
    return RostrumError(text, Code.INVALID)


@dataclass
class Snapshot:
    """One revision of a repository. `files`: where the bytes of each blob are; `links`: the blob of each path."""

    folder: str  # models--ORG--NAME
    commit: str
    ref: str  # empty: named by its commit only
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def entries(self) -> tuple[list[Entry], dict[str, Path]]:
        """What is to be in a cache, folders before what is in them; and where the bytes of each file are."""
        base = f"{self.folder}/snapshots/{self.commit}"
        folders = {self.folder, f"{self.folder}/blobs", f"{self.folder}/refs", f"{self.folder}/snapshots", base}
        for path in self.links:
            parts = path.split("/")[:-1]
            folders |= {"/".join([base, *parts[: depth + 1]]) for depth in range(len(parts))}
        parts = self.ref.split("/")[:-1]
        folders |= {"/".join([self.folder, "refs", *parts[: depth + 1]]) for depth in range(len(parts))}
        rows = [Entry(path, "d", 0o755, 0) for path in sorted(folders)]
        files: dict[str, Path] = {}
        for blob, source in self.files.items():
            info = os.stat(source, follow_symlinks=False)
            path = f"{self.folder}/blobs/{blob}"
            rows.append(Entry(path, "f", 0o644, max(0, info.st_mtime_ns), info.st_size, digest=blob))
            files[path] = source
        for path, blob in self.links.items():
            place = f"{base}/{path}"
            rows.append(Entry(place, "l", 0o777, 0, to="../" * (place.count("/") - 1) + f"blobs/{blob}"))
        return rows, files


def cache_folder() -> Path:
    """Where the hub's client keeps it on this server."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(home).expanduser() / "hub"


def folder_of(repository: str) -> str:
    """models--ORG--NAME of ORG/NAME, and so on. Raises RostrumError: it is no name of a repository."""
    parts = repository.split("/")
    kind = parts.pop(0) if parts[0] in KINDS and len(parts) > 1 else "models"
    if not 1 <= len(parts) <= 2 or not all(PART.fullmatch(part) and ".." not in part for part in parts):
        raise bad(f"{repository[:100]!r} is no repository: it is as NAME, ORG/NAME or datasets/ORG/NAME")
    return "--".join([kind, *parts])


def snapshot_of(source: str, name: str | None) -> Snapshot:
    """What `hf:SOURCE` means: a repository in the cache (REPO[@REV]), a repository's folder of a cache (DIR[@REV]), or
    any folder with a model, which `name` (REPO[@REV]) names.

    Raises:
        RostrumError: it is none of these, or not whole.
    """
    whole, (text, revision) = Path(source), _revision(source)
    folder = whole if whole.is_dir() else Path(text)
    if whole.is_dir():
        revision = ""
    if folder.is_dir():
        if (folder / "snapshots").is_dir() and FOLDER.fullmatch(folder.resolve().name):
            return _cached(folder.resolve(), revision or "main")
        if not name:
            raise bad(
                f"{folder} is a plain folder: say what the model is called there, with --name ORG/NAME[@REVISION]"
            )
        return _plain(folder, *_revision(name))
    there = cache_folder() / folder_of(text)
    if not (there / "snapshots").is_dir():
        raise RostrumError(
            f"{text} is not in {cache_folder()}: get it first, by hf download {text} --revision {revision or 'main'}",
            Code.UNKNOWN,
        )
    return _cached(there, revision or "main")


def _revision(text: str) -> tuple[str, str]:
    name, _, revision = text.partition("@")
    if revision and not good_ref(revision):
        raise bad(f"{revision[:100]!r} is no revision: a branch, a tag or a commit is")
    return name, revision


def good_ref(text: str) -> bool:
    return len(text) <= 200 and bool(REF.fullmatch(text)) and ".." not in text


def _cached(folder: Path, revision: str) -> Snapshot:
    commit, ref = revision, ""
    if not COMMIT.fullmatch(revision):
        ref = revision
        try:
            with open(folder / "refs" / revision) as named:
                commit = named.read(64).strip()
        except (FileNotFoundError, NotADirectoryError):
            have = ", ".join(sorted(one.name for one in (folder / "refs").glob("*"))[:8]) or "none"
            raise RostrumError(f"{folder} has no revision {revision}; there are: {have}", Code.UNKNOWN) from None
        if not COMMIT.fullmatch(commit):
            raise bad(f"{folder}/refs/{revision} names no commit")
    top = folder / "snapshots" / commit
    if not top.is_dir():
        raise RostrumError(f"{folder} has no snapshot {commit}: get it again", Code.UNKNOWN)
    found = Snapshot(folder.name, commit, ref)
    blobs = (folder / "blobs").resolve()
    for path, file in _files(top):
        try:
            real = file.resolve(strict=True)
        except OSError:
            raise RostrumError(f"{file} leads to nothing: the download is not whole", Code.UNKNOWN) from None
        if file.is_symlink() and real.parent != blobs:
            raise bad(f"{file} is a link out of {blobs}")
        name = real.name if file.is_symlink() and BLOB.fullmatch(real.name) else _sha256(real)
        _take(found, path, name, real)
    return found


def _plain(folder: Path, repository: str, revision: str) -> Snapshot:
    found = Snapshot(folder_of(repository), "", "")
    for path, file in _files(folder):
        if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
            raise bad(f"{file} is a link out of the folder")
        real = file.resolve(strict=True)
        _take(found, path, _sha256(real), real)
    if not found.links:
        raise bad(f"{folder} has no files")
    rows = "".join(f"{path} {blob}\n" for path, blob in sorted(found.links.items()))
    if COMMIT.fullmatch(revision):
        found.commit = revision
    else:
        found.commit, found.ref = hashlib.sha1(rows.encode(), usedforsecurity=False).hexdigest(), revision or "main"
    return found


def _take(found: Snapshot, path: str, blob: str, real: Path) -> None:
    if not stat.S_ISREG(real.stat().st_mode):
        raise bad(f"{real} is no file")
    found.links[path] = blob
    found.files.setdefault(blob, real)


def _files(top: Path) -> Iterator[tuple[str, Path]]:
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(files + [one for one in names if (Path(folder) / one).is_symlink()]):
            path = Path(folder) / name
            if path.is_dir():
                raise bad(f"{path} is a link to a folder: copy the model without such links")
            yield str(path.relative_to(top)), path


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_for(blob: str, size: int) -> hashlib._Hash:
    """What blobs of that name are checked by: 64 digits are SHA-256, 40 are git's of a file."""
    if len(blob) == 64:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def why_not(entry: Entry, folder: str, commit: str) -> str:
    """Why an entry that another server offers has no place in a cache; empty: it has."""
    base = f"{folder}/snapshots/{commit}"
    if entry.kind == "d":
        known = {folder, f"{folder}/blobs", f"{folder}/snapshots", f"{folder}/refs", base}
        inside = entry.path.startswith((base + "/", f"{folder}/refs/"))
        return "" if entry.path in known or inside else "it is no folder of a hub's cache"
    if entry.kind == "f":
        place, _, blob = entry.path.rpartition("/")
        return "" if place == f"{folder}/blobs" and BLOB.fullmatch(blob) else "it is no blob of a hub's cache"
    ups = "../" * (entry.path.count("/") - 1)
    name = entry.to.removeprefix(f"{ups}blobs/")
    right = entry.path.startswith(base + "/") and entry.to.startswith(f"{ups}blobs/") and BLOB.fullmatch(name)
    return "" if entry.kind == "l" and right and stays_inside(entry.path, entry.to) else "it is no link to a blob"
