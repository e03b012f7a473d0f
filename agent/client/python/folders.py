"""Folders as objects: one tar archive in memory, so that many small files are one transfer.

Names, modes, times (whole seconds), symbolic and hard links are kept; owners are whoever unpacks.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from pathlib import Path

from .objects import part_of
from .values import Code, RostrumError


def pack(folder: Path) -> int:
    """A descriptor of the archive, in memory, which the caller closes. Files are in the order of their names.

    Raises:
        RostrumError: something in it is neither file, folder nor link.
        OSError: something cannot be read, or changed its size meanwhile.
    """

    def known(member: tarfile.TarInfo) -> tarfile.TarInfo:
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise RostrumError(f"{folder / member.name} is neither a file, a folder nor a link", Code.INVALID)
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    descriptor = os.memfd_create(folder.name or "folder")
    try:
        with (
            open(descriptor, "wb", closefd=False, buffering=1 << 20) as out,
            tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            archive.add(folder, ".", filter=known)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _place(top: Path, name: str) -> Path:
    """Where a member belongs.

    Raises:
        RostrumError: elsewhere than in the folder, by its name or by a link that came before it.
    """
    parts = Path(name).parts
    place = top.joinpath(*parts)
    inside = not Path(name).is_absolute() and ".." not in parts
    if not inside or not place.parent.resolve().is_relative_to(top.parent if place == top else top):
        raise RostrumError(f"it is not a folder that was sent by rostrum send: {name!r} is elsewhere", Code.INVALID)
    return place


def _extract(archive: tarfile.TarFile, top: Path) -> int:
    """All members; modes but for set-user-id and its like. Returns how many files there are."""
    folders: list[tuple[Path, tarfile.TarInfo]] = []
    count = 0
    for member in archive:
        place = _place(top, member.name)
        if member.isdir():
            place.mkdir(mode=0o700, exist_ok=place == top)
            folders.append((place, member))
        elif member.issym():
            place.symlink_to(member.linkname)
        elif member.islnk():
            os.link(_place(top, member.linkname), place, follow_symlinks=False)
            count += 1
        elif (content := archive.extractfile(member)) is not None:
            with content, open(place, "xb", buffering=0) as out:
                shutil.copyfileobj(content, out, 1 << 20)
                os.fchmod(out.fileno(), member.mode & 0o777)
                os.utime(out.fileno(), (member.mtime, member.mtime))
            count += 1
        else:
            raise RostrumError(f"it is not a folder that was sent by rostrum send: {member.name!r}", Code.INVALID)
    for place, member in reversed(folders):
        place.chmod(member.mode & 0o777)
        os.utime(place, (member.mtime, member.mtime))
    return count


def unpack(archive: int, target: Path) -> int:
    """Makes the folder `target` of the archive at a descriptor; it appears when it is complete. Returns its files.

    Raises:
        RostrumError: there is something at `target`, or this is no archive, or one that would write elsewhere.
    """
    if target.exists() or target.is_symlink():
        raise RostrumError(f"{target} is there already: name a folder that is not", Code.EXISTS)
    if not target.parent.is_dir():  # and not of the name below, which nobody typed
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
    part = part_of(target.parent.resolve() / target.name)  # members' places are compared with it
    try:
        os.lseek(archive, 0, os.SEEK_SET)
        with (
            open(archive, "rb", closefd=False, buffering=1 << 20) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            part.mkdir(mode=0o700)
            count = _extract(tar, part)
        part.rename(target)
    except tarfile.TarError as error:
        raise RostrumError(f"it is not a folder that was sent by rostrum send: {error}", Code.INVALID) from error
    finally:
        if part.exists():
            shutil.rmtree(part)
    return count
