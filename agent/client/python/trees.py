"""Folders that are kept alike on many servers: what is in one, what another lacks, and how it gets there.

Nothing here follows a symbolic link, or a name out of the folder: every step goes by descriptors of folders, whoever
changes them meanwhile. A file is written under a name of its own beside the others and takes its place when it is
complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import mmap
import os
import re
import shutil
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .values import Code, RostrumError

STAGING = ".rostrum-sync"  # in the folder, so that a rename suffices
FOLDERS_OPEN = 64
NAME_MAX, PATH_MAX = 255, 4000
ENTRIES_MOST = 4_000_000
NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
SMALL = 1 << 16  # so few bytes are copied by way of this program
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # nothing can be written any more

# Chunks end behind a certain byte and a few in a row of certain bytes: where that is stays the same whatever is
# inserted before. Which bytes, and how many: such that a sample has an end every 64 KiB or so.
CHUNK_LEAST, CHUNK_AIM, CHUNK_MOST = 16 << 10, 64 << 10, 512 << 10
CHUNKED_FROM = 256 << 10  # smaller files go whole: what chunks save there costs as much as asking
SAMPLE = 1 << 20
FOLLOWERS_MOST = 8


def boundary(spec: str) -> re.Pattern[bytes]:
    """Where chunks end, as `boundary_for` says it: how many bytes of which follow which one.

    Raises:
        ValueError: it says something else.
    """
    followers, byte, *of = bytes.fromhex(spec)
    if followers > FOLLOWERS_MOST or not of:
        raise ValueError("followers")
    some = b"[" + b"".join(rb"\x%02x" % one for one in of) + b"]"
    return re.compile(re.escape(bytes([byte])) + some * followers, re.DOTALL)


def boundary_for(sample: bytes) -> str:
    """What suits data like that: the search is fast behind a byte that is rare, and useless behind one that is none."""
    counts = [sample.count(byte) for byte in range(256)]
    there = sorted((byte for byte in range(256) if counts[byte]), key=lambda byte: -counts[byte])
    if not there:
        return "000000"
    byte = next((byte for byte in there if counts[byte] * 100 <= len(sample)), there[-1])
    of = bytearray()  # an eighth of what there is
    for one in sorted(there, key=lambda one: hashlib.blake2b(bytes([one])).digest()):
        of.append(one)
        if sum(counts[some] for some in of) * 8 >= len(sample):
            break
    best, best_off = 0, float("inf")
    for followers in range(FOLLOWERS_MOST + 1):
        found = sum(1 for _ in boundary(bytes([followers, byte, *of]).hex()).finditer(sample))
        off = abs(math.log(max(found, 0.01) * CHUNK_AIM / len(sample)))
        if off < best_off:
            best, best_off = followers, off
    return bytes([best, byte, *of]).hex()


class Entry(NamedTuple):
    """Something in a folder. `kind`: d folder, f file, l symbolic link, h hard link to the file `to`."""

    path: str
    kind: str
    mode: int
    mtime_ns: int
    size: int = 0
    to: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    offset: int
    length: int
    digest: str


def cut(data: mmap.mmap | bytes, ends: re.Pattern[bytes]) -> Iterator[Chunk]:
    """Chunks by content: the same bytes make the same chunks, wherever they are."""
    view = memoryview(data)
    at, size = 0, len(data)
    try:
        while at < size:
            end = min(size, at + CHUNK_MOST)
            found = ends.search(data, at + CHUNK_LEAST, end)
            end = found.end() if found else end
            yield Chunk(at, end - at, hashlib.sha256(view[at:end]).hexdigest()[:32])
            at = end
    finally:
        view.release()


def sample_of(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, SAMPLE, max(0, size - SAMPLE) // 2)


def chunks_of(descriptor: int, size: int, spec: str) -> list[Chunk]:
    """Of a file of that size now.

    Raises:
        OSError: it has become shorter.
    """
    if os.fstat(descriptor).st_size != size:
        raise OSError(errno.ESTALE, "its size changed while it was read")
    if size == 0:
        return []
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
        return list(cut(data, boundary(spec)))


def digest_of(descriptor: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    at = 0
    while piece := os.pread(descriptor, 1 << 20, at):
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()


def data_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where a file has data between these, as its file system says: the rest are holes, which read as zeros."""
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # none behind
                return
            raise
        if start >= end:
            return
        stop = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
        yield start, stop
        start = stop


def copy_bytes(source: int, target: int, offset: int, at: int, length: int) -> None:
    """Copies bytes of one file to a place of another.

    Raises:
        OSError: the source is shorter.
    """
    end = offset + length
    if length <= SMALL:
        data = os.pread(source, length, offset)
        if os.pwrite(target, data, at) != length:
            raise OSError(errno.ESTALE, "it became shorter while it was read: sync again")
        return
    os.lseek(target, at, os.SEEK_SET)
    while offset < end:
        done = os.sendfile(target, source, offset, end - offset)
        if done == 0:
            raise OSError(errno.ESTALE, "it became shorter while it was read: sync again")
        offset += done


def stamp_of(descriptor: int) -> tuple[int, ...]:
    """What changes with a file's content."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def stays_inside(path: str, to: str) -> bool:
    """A link at `path` that leads nowhere out of the folder: upwards first, as far as it is deep at most, then down."""
    parts = to.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return bool(to) and not to.startswith("/") and ups <= path.count("/") and ".." not in parts[ups:]


def scan(top: Path, checksum: bool = False) -> tuple[list[Entry], list[tuple[str, str]]]:
    """All that is in a folder, folders before what is in them; and what is left out, and why.

    Raises:
        OSError: a folder cannot be read.
    """
    entries: list[Entry] = []
    left_out: list[tuple[str, str]] = []
    first_names: dict[tuple[int, int], str] = {}

    def take(item: os.DirEntry[str], path: str) -> None:
        info = item.stat(follow_symlinks=False)
        mode, kind = info.st_mode & 0o777, stat.S_IFMT(info.st_mode)
        mtime_ns = max(0, info.st_mtime_ns)
        if kind == stat.S_IFDIR:
            entries.append(Entry(path, "d", mode, mtime_ns))
            look(path)
        elif kind == stat.S_IFLNK:
            to = os.readlink(item.path)
            if stays_inside(path, to):
                entries.append(Entry(path, "l", 0o777, mtime_ns, to=to))
            else:
                left_out.append((path, f"it is a link out of the folder, to {to}"))
        elif kind == stat.S_IFREG:
            first = first_names.setdefault((info.st_dev, info.st_ino), path) if info.st_nlink > 1 else path
            if first != path:
                entries.append(Entry(path, "h", mode, mtime_ns, to=first))
                return
            digest = ""
            if checksum:
                try:
                    with open(item.path, "rb", buffering=0) as file:
                        digest = digest_of(file.fileno())
                except OSError as error:
                    left_out.append((path, error.strerror or str(error)))
                    return
            entries.append(Entry(path, "f", mode, mtime_ns, info.st_size, digest=digest))
        else:
            left_out.append((path, "it is neither a file, a folder nor a link"))

    def look(folder: str) -> None:
        with os.scandir(top / folder) as items:
            found = sorted(items, key=lambda item: item.name)
        for item in found:
            if folder or item.name != STAGING:
                take(item, f"{folder}/{item.name}" if folder else item.name)

    look("")
    return entries, left_out


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(os.fsencode(text))


def _why_not(entry: Entry, kinds: dict[str, str]) -> str:
    """Why an entry is not taken; empty: it is. What is in a folder that was taken needs a good last name only."""
    parent, slash, name = entry.path.rpartition("/")
    if slash and kinds.get(parent) != "d":
        return "it is in no folder that was named before it"
    if name in ("", ".", "..") or "\0" in name or _length(name) > NAME_MAX or _length(entry.path) > PATH_MAX:
        return "that is no name in a folder"
    if entry.path == STAGING:
        return "that name is taken by what is coming"
    if entry.path in kinds:
        return "it is named twice"
    if entry.kind == "l" and not stays_inside(entry.path, entry.to):
        return f"it is a link out of the folder, to {entry.to}"
    if entry.kind == "h" and kinds.get(entry.to) != "f":
        return f"it is a hard link to {entry.to}, which is no file that was named before it"
    return "" if entry.kind in ("d", "f", "l", "h") else "it is neither a file, a folder nor a link"


def checked(rows: object) -> tuple[list[Entry | None], list[tuple[str, str]]]:
    """What another server says is in its folder: entries in their places (None: refused), and what is refused, and why.

    Modes lose set-user-id and its like.

    Raises:
        RostrumError: it is malformed.
    """
    entries: list[Entry | None] = []
    refused: list[tuple[str, str]] = []
    kinds: dict[str, str] = {}
    try:
        if not isinstance(rows, list) or len(rows) > ENTRIES_MOST:
            raise ValueError("rows")
        for row in rows:
            path, kind, mode, mtime_ns, size, to, digest = row
            if not (type(path) is type(kind) is type(to) is type(digest) is str):
                raise ValueError("text")
            if not (type(mode) is type(mtime_ns) is type(size) is int):
                raise ValueError("number")
            if not (0 <= mode <= 0o7777 and 0 <= mtime_ns <= 1 << 62 and 0 <= size <= 1 << 62):
                raise ValueError("number")
            if not (path.isascii() and to.isascii()):
                os.fsencode(path + to)  # what is no name at all raises UnicodeEncodeError, a ValueError
            entry = Entry(path, kind, mode & 0o777, mtime_ns, size, to, digest)
            why = _why_not(entry, kinds)
            if why:
                refused.append((entry.path, why))
            else:
                kinds[entry.path] = entry.kind
            entries.append(None if why else entry)
    except (ValueError, TypeError) as error:
        raise RostrumError(f"what came is no list of a folder ({error})", Code.PROTOCOL) from error
    return entries, refused


class Tree:
    """The folder that is made like another one; with `delete` a folder goes that is where a file is to be.

    Use `with`; what was not completed is gone afterwards."""

    def __init__(self, top: Path, delete: bool = False) -> None:
        top.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.top, self.delete = top, delete
        self._top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._staging = -1
        self._fresh: dict[str, str] = {}  # folders that nobody sees yet, and their names in the staging one
        self._made = 0
        umask = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask"))
        self._umask = int(umask.split()[1], 8)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.show_all()
        self._forget_folders()
        if self._staging >= 0:
            os.close(self._staging)
            self._staging = -1
        with contextlib.suppress(OSError):
            shutil.rmtree(STAGING, dir_fd=self._top)
        os.close(self._top)

    def _forget_folders(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def folder(self, path: str) -> int:
        """A descriptor of a folder in it, this object's to close.

        Raises:
            OSError: it is not there, or something else is in its place.
        """
        if not path:
            return self._top
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        parent, _, name = path.rpartition("/")
        within = self.folder(parent)
        if path in self._fresh:
            name, within = self._fresh[path], self._staging
        found = os.open(name, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW, dir_fd=within)
        self._open[path] = found
        if len(self._open) > FOLDERS_OPEN:
            os.close(self._open.popitem(last=False)[1])
        return found

    def _at(self, path: str) -> tuple[str, int]:
        parent, _, name = path.rpartition("/")
        return name, self.folder(parent)

    def look(self, path: str) -> os.stat_result | None:
        """What is there, itself; None: nothing."""
        try:
            name, folder = self._at(path)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link where a folder is to be
                return None
            raise

    def open(self, path: str) -> int:
        name, folder = self._at(path)
        return os.open(name, os.O_RDONLY | os.O_NONBLOCK | NOFOLLOW, dir_fd=folder)

    def same(self, entry: Entry, info: os.stat_result) -> bool:
        """What is there is that, mode aside."""
        kind = stat.S_IFMT(info.st_mode)
        if entry.kind == "d":
            return kind == stat.S_IFDIR
        if entry.kind == "l":
            name, folder = self._at(entry.path)
            return kind == stat.S_IFLNK and os.readlink(name, dir_fd=folder) == entry.to
        if kind != stat.S_IFREG:
            return False
        if entry.kind == "h":
            other = self.look(entry.to)
            return other is not None and (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino)
        if entry.digest:
            return info.st_size == entry.size and self._digest(entry.path) == entry.digest
        return info.st_size == entry.size and info.st_mtime_ns == entry.mtime_ns

    def _digest(self, path: str) -> str:
        file = self.open(path)
        try:
            return digest_of(file)
        finally:
            os.close(file)

    def extra(self, entries: Sequence[Entry | None]) -> list[str]:
        """What is in it and not in the other, what is in folders before them."""
        named = {entry.path for entry in entries if entry}
        found: list[str] = []

        def look(folder: str) -> None:
            with os.scandir(self.folder(folder)) as items:
                names = sorted((item.name, item.is_dir(follow_symlinks=False)) for item in items)
            for name, is_folder in names:
                path = f"{folder}/{name}" if folder else name
                if path == STAGING:
                    continue
                if is_folder:
                    look(path)
                if path not in named:
                    found.append(path)

        look("")
        return found

    def files(self, sizes: set[int]) -> dict[int, list[tuple[str, int]]]:
        """The files of these sizes in it: paths and times, by sizes."""
        found: dict[int, list[tuple[str, int]]] = {}

        def look(folder: str) -> None:
            inner: list[str] = []
            with os.scandir(self.folder(folder)) as items:
                for item in items:
                    path = f"{folder}/{item.name}" if folder else item.name
                    if item.is_dir(follow_symlinks=False):
                        inner.append(path)
                    elif item.is_file(follow_symlinks=False):
                        info = item.stat(follow_symlinks=False)
                        if info.st_size in sizes:
                            found.setdefault(info.st_size, []).append((path, info.st_mtime_ns))
            for path in inner:
                if path != STAGING:
                    with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError):
                        look(path)

        look("")
        return found

    # -- changes

    def begin(self, token: str) -> None:
        """The place for what comes is made; what an interrupted one left there goes."""
        with contextlib.suppress(FileNotFoundError):
            os.stat(STAGING, dir_fd=self._top, follow_symlinks=False)
            try:
                shutil.rmtree(STAGING, dir_fd=self._top)
            except NotADirectoryError:
                os.unlink(STAGING, dir_fd=self._top)
        os.mkdir(STAGING, 0o700, dir_fd=self._top)
        self._staging = os.open(STAGING, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW, dir_fd=self._top)
        with open(os.open("run", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self._staging), "w") as out:
            out.write(token)

    def interrupted(self) -> str:
        """The token of a run that ended before it was complete; empty: there is none."""
        try:
            with open(self.open(f"{STAGING}/run")) as file:
                return file.read(64)
        except (OSError, ValueError):
            return ""

    def make_folder(self, entry: Entry, fresh: bool = False) -> None:
        """With `fresh` one that was not there is seen from `show` on: what is in it needs no other place before."""
        info = self.look(entry.path)
        name, folder = self._at(entry.path)
        if info is None and fresh:
            self._made += 1
            self._fresh[entry.path] = f"{self._made}"
            os.mkdir(self._fresh[entry.path], 0o700, dir_fd=self._staging)
            return
        if info is not None and not stat.S_ISDIR(info.st_mode):
            os.unlink(name, dir_fd=folder)
            info = None
        if info is None:
            os.mkdir(name, 0o700, dir_fd=folder)
        elif info.st_mode & 0o700 != 0o700:
            os.fchmod(self.folder(entry.path), stat.S_IMODE(info.st_mode) | 0o700)

    def show(self, path: str) -> None:
        """A fresh folder takes its place, with what is in it."""
        staged = self._fresh.pop(path, "")
        if not staged:
            return
        name, folder = self._at(path)
        try:
            os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            source = self._open.pop(path, -1)  # somebody else made one there meanwhile
            if source < 0:
                source = os.open(staged, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW, dir_fd=self._staging)
            try:
                for one in os.listdir(source):
                    os.rename(one, one, src_dir_fd=source, dst_dir_fd=self.folder(path))
            finally:
                os.close(source)

    def show_all(self) -> None:
        for path in list(self._fresh):
            self.show(path)

    def new_file(self, mode: int) -> tuple[int, str]:
        """A file that nobody sees yet: descriptor and name."""
        self._made += 1
        name = str(self._made)
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | NOFOLLOW, mode, dir_fd=self._staging), name

    def write_file(self, entry: Entry, content: memoryview) -> None:
        """A whole file takes its place."""
        for error in self.write_files(entry.path.rpartition("/")[0], [(entry, 0)], content).values():
            raise error

    def write_files(self, parent: str, files: Sequence[tuple[Entry, int]], data: memoryview) -> dict[int, OSError]:
        """Whole files of one folder take their places, each with what begins there in `data`. Returns which of them do
        not, by their numbers in `files`, and why.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        failed: dict[int, OSError] = {}
        fresh = parent in self._fresh
        try:
            folder = self.folder(parent)
        except OSError as error:
            return dict.fromkeys(range(len(files)), error)
        within, last_at = folder if fresh else self._staging, len(parent) + 1 if parent else 0
        flags, umask = os.O_CREAT | os.O_EXCL | os.O_WRONLY | NOFOLLOW, self._umask
        for number, (entry, at) in enumerate(files):
            path, _, mode, mtime_ns, size, _, _ = entry
            name = last = path[last_at:]
            if not fresh:
                self._made += 1
                name = str(self._made)
            try:
                descriptor = os.open(name, flags, mode, dir_fd=within)
                try:
                    if os.write(descriptor, data[at : at + size]) != size:
                        raise OSError(errno.ENOSPC, "it could be written in part only")
                    if mode & umask:
                        os.fchmod(descriptor, mode)
                    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                except BaseException:
                    os.unlink(name, dir_fd=within)
                    raise
                finally:
                    os.close(descriptor)
                if not fresh:
                    try:
                        os.rename(name, last, src_dir_fd=within, dst_dir_fd=folder)
                    except OSError:
                        self._place(name, path)
                        folder = self.folder(parent)
            except OSError as error:
                if error.errno in FULL:
                    raise
                failed[number] = error
        return failed

    def stage_copy(self, entry: Entry, source: int, move: bool) -> str:
        """A file that nobody sees yet, of what `source` has; with `move` that very file, if it has one name only.
        Returns its name for `place_staged`. Raises OSError, as when the source changed meanwhile."""
        before = stamp_of(source)
        if move and os.fstat(source).st_nlink == 1:
            self._made += 1
            name = str(self._made)
            with contextlib.suppress(OSError):  # not of this user, for one
                os.link(f"/proc/self/fd/{source}", name, dst_dir_fd=self._staging, follow_symlinks=True)
                os.fchmod(source, entry.mode)
                os.utime(source, ns=(entry.mtime_ns, entry.mtime_ns))
                return name
        descriptor, name = self.new_file(entry.mode)
        try:
            os.ftruncate(descriptor, entry.size)
            for start, end in data_ranges(source, 0, entry.size):
                copy_bytes(source, descriptor, start, start, end - start)
            if stamp_of(source) != before:
                raise OSError(errno.ESTALE, "it changed while it was read")
            os.fchmod(descriptor, entry.mode)
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        except BaseException:
            os.unlink(name, dir_fd=self._staging)
            raise
        finally:
            os.close(descriptor)
        return name

    def place_staged(self, entry: Entry, name: str) -> None:
        self._place(name, entry.path)

    def place_file(self, entry: Entry, descriptor: int, name: str) -> None:
        """It is complete: it takes its place. The descriptor stays the caller's."""
        if entry.mode & self._umask:
            os.fchmod(descriptor, entry.mode)
        os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        self._place(name, entry.path)

    def _place(self, staged: str, path: str) -> None:
        name, folder = self._at(path)
        try:
            os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=folder)
        except (IsADirectoryError, FileExistsError) as error:
            if not self.delete:
                os.unlink(staged, dir_fd=self._staging)
                raise OSError(errno.EISDIR, "a folder is in its place, which goes by --delete alone") from error
            self.remove(path)
            os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=folder)

    def make_link(self, entry: Entry) -> None:
        self._made += 1
        name = str(self._made)
        if entry.kind == "l":
            os.symlink(entry.to, name, dir_fd=self._staging)
            os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=self._staging, follow_symlinks=False)
        else:
            source, folder = self._at(entry.to)
            os.link(source, name, src_dir_fd=folder, dst_dir_fd=self._staging, follow_symlinks=False)
        self._place(name, entry.path)
        with contextlib.suppress(FileNotFoundError):  # a rename to another name of the same file does nothing
            os.unlink(name, dir_fd=self._staging)

    def remove(self, path: str) -> None:
        """Whatever is there, with what is in it."""
        name, folder = self._at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            self._forget_folders()
            name, folder = self._at(path)
            shutil.rmtree(name, dir_fd=folder)

    def settle(self, entries: Sequence[Entry | None]) -> None:
        """Modes of files that were there, modes and times of folders, the innermost first."""
        for entry in reversed(entries):
            if entry is None or entry.kind in ("l", "h"):
                continue
            info = self.look(entry.path)
            if info is None:
                continue
            if entry.kind == "f":
                if stat.S_ISREG(info.st_mode) and (
                    stat.S_IMODE(info.st_mode) != entry.mode or info.st_mtime_ns != entry.mtime_ns
                ):
                    file = self.open(entry.path)
                    try:
                        os.fchmod(file, entry.mode)
                        os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
                    finally:
                        os.close(file)
            elif stat.S_IMODE(info.st_mode) != entry.mode or info.st_mtime_ns != entry.mtime_ns:
                inner = self.folder(entry.path)
                os.fchmod(inner, entry.mode)
                os.utime(inner, ns=(entry.mtime_ns, entry.mtime_ns))
