"""Objects as memory: what is being made in the agent's store, what is read from it, and what can become one.

Both kinds support the buffer protocol, so that NumPy, Arrow, torch and struct use the shared memory itself:

    with agent.create(8 * 1000) as made:
        numpy.frombuffer(made, "f8")[:] = values
        agent.send("values", ["h3"], source=made).wait()

    with agent.read("values") as data:
        values = numpy.frombuffer(data, "f8")          # stays valid after the block, as long as the array is there
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from .values import Code, RostrumError

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

COPY_STEP = 1 << 26
FIELD_NAME = re.compile(":[^:]*:")  # in the format of a structured array (PEP 3118)
Bytes = bytes  # where a method of that name hides it


def flat(data: Buffer) -> memoryview:
    """Its bytes, without a copy.

    Raises:
        RostrumError: they are not one piece of memory.
        TypeError: it does not support the buffer protocol.
    """
    view = memoryview(data)
    if "O" in FIELD_NAME.sub("", view.format):
        raise RostrumError("an array of Python objects has their addresses: send what they are made of", Code.INVALID)
    if not view.c_contiguous:
        text = "the array is not one piece of memory in C order: send numpy.ascontiguousarray(array)"
        raise RostrumError(text, Code.INVALID)
    if not view.nbytes:
        return memoryview(b"")
    try:
        return view.cast("B")
    except (ValueError, TypeError) as error:  # such as of half precision: formats that memoryview does not know
        text = f"bytes of the format {view.format!r} are asked for otherwise: send array.view('u1')"
        raise RostrumError(text, Code.INVALID) from error


class Closing(ABC):
    """What a `with` block closes; that this fails is said where nothing else is wrong."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what the agent keeps for it."""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.close()
        except RostrumError:
            if kind is None:
                raise


class CreatedFile(Closing):
    """A writable file in the agent's store, not an object yet: write into it, then `Agent.add` it, or send it.

    It is memory, too: memoryview(file), numpy.frombuffer(file). What is sent must not be changed afterwards. Leaving
    the `with` block before it is added drops it. `drop` is asked for that.
    """

    def __new__(cls, fd: int, handle: int, size: int, drop: Callable[[int], object]) -> CreatedFile:
        if cls is not CreatedFile:
            return super().__new__(cls)
        made = mmap.mmap.__new__(_MappedFile, fd, size) if size else bytearray.__new__(_EmptyFile)
        return cast(CreatedFile, made)

    def __init__(self, fd: int, handle: int, size: int, drop: Callable[[int], object]) -> None:
        self.fd, self.handle, self.size, self._drop = fd, handle, size, drop
        self.added = False

    if TYPE_CHECKING:

        def __buffer__(self, flags: int, /) -> memoryview: ...

    def write(self, data: Buffer, offset: int = 0) -> None:
        """Writes all of `data` at `offset`."""
        view = flat(data)
        while view:
            done = os.pwrite(self.fd, view[:COPY_STEP], offset)
            view, offset = view[done:], offset + done

    def mmap(self) -> mmap.mmap:
        """A mapping of its own (not for an empty one)."""
        return mmap.mmap(self.fd, self.size)

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        """Closes the descriptor; a file that was not added goes back to the store. Arrays on it stay valid."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        _unmap(self)
        if not self.added:
            self._drop(self.handle)

    def __enter__(self) -> CreatedFile:
        return self


class ReadObject:
    """An object to read: whole, digest-checked, and there until this is closed, even if it is deleted meanwhile.

    It is read-only memory: memoryview(data), numpy.frombuffer(data), pyarrow.py_buffer(data), without a copy. What was
    made of it stays valid when it is closed.
    """

    def __new__(cls, data_id: int, fd: int, size: int, digest: str, name: int | str = "") -> ReadObject:
        if cls is not ReadObject:
            return super().__new__(cls)
        if not size:
            return cast(ReadObject, bytearray.__new__(_EmptyObject))
        try:
            return cast(ReadObject, mmap.mmap.__new__(_MappedObject, fd, size, access=mmap.ACCESS_READ))
        except ValueError:
            os.close(fd)
            raise RostrumError(
                f"the file of object {name or data_id} is shorter than its {size} bytes", Code.IO
            ) from None

    def __init__(self, data_id: int, fd: int, size: int, digest: str, name: int | str = "") -> None:
        self.name, self.data_id, self.fd, self.size, self.digest = str(name or data_id), data_id, fd, size, digest

    if TYPE_CHECKING:

        def __buffer__(self, flags: int, /) -> memoryview: ...

    def mmap(self) -> mmap.mmap:
        """A read-only mapping of its own (not for an empty one)."""
        return mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)

    def bytes(self) -> Bytes:
        """A copy of it all."""
        return b"".join(self.chunks())

    def chunks(self, size: int = 1 << 20) -> Iterator[Bytes]:
        """A copy of it piece by piece."""
        at = 0
        while at < self.size:
            piece = os.pread(self.fd, min(size, self.size - at), at)
            if not piece:
                raise RostrumError(f"object {self.name} is shorter than it was ({at} of {self.size} bytes)", Code.IO)
            yield piece
            at += len(piece)

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Writes it to `path`, which appears only when it is complete."""
        target = Path(path)
        if _is_open(target) or (target.exists() and not target.is_file()):  # a device or a pipe: nothing to rename
            with target.open("wb") as out:
                out.writelines(self.chunks())
            return
        if not target.parent.is_dir():  # and not of the name below, which nobody typed
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
        part = part_of(target)
        try:
            with part.open("wb") as out:
                copy_file(self.fd, out.fileno(), self.size)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def file(self) -> BinaryIO:
        """A file object of its own on the object, at position 0."""
        try:
            return io.FileIO(os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC))
        except PermissionError:  # not of the objects' group: the descriptor is what this program may use
            os.lseek(self.fd, 0, os.SEEK_SET)
            return io.FileIO(os.dup(self.fd))

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        """Closes the descriptor; arrays made of it stay valid."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            _unmap(self)

    def __enter__(self) -> ReadObject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def part_of(target: Path) -> Path:
    """Where it is written until it is complete: beside it. A name may be as long as names can be."""
    return target.with_name(f".{os.fsdecode(os.fsencode(target.name)[:200])}.{os.getpid()}.part")


def _is_open(path: Path) -> bool:
    """Whether it is /dev/stdout or its like: a link to what a process has open, not to be replaced by a file."""
    for _ in range(40):  # links
        if not path.is_symlink() or path.parent.resolve().is_relative_to("/proc"):
            return path.is_symlink()
        path = path.parent / os.readlink(path)
    return False


def _unmap(memory: object) -> None:
    if isinstance(memory, mmap.mmap):
        with contextlib.suppress(BufferError):  # arrays use it; it goes with the last of them
            mmap.mmap.close(memory)


# Before Python 3.12 only a type that is memory itself can lend it: an mmap, which cannot be empty, or else a bytearray.
class _MappedFile(CreatedFile, mmap.mmap):  # type: ignore[misc]
    pass


class _EmptyFile(CreatedFile, bytearray):
    pass


class _MappedObject(ReadObject, mmap.mmap):  # type: ignore[misc]
    pass


class _EmptyObject(ReadObject, bytearray):
    pass


__all__ = ["Buffer", "CreatedFile", "ReadObject", "Source", "content", "copy_file", "flat", "part_of"]
Source = CreatedFile | Buffer | str | os.PathLike[str] | BinaryIO | int


@contextlib.contextmanager
def content(source: Any) -> Iterator[tuple[int, Callable[[CreatedFile], None]]]:
    """How many bytes a source has that has to be copied, and what writes them into a created file."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file, content(file) as found:
            yield found
        return
    try:
        view = flat(source)
    except TypeError:
        if not hasattr(source, "read"):
            kind = type(source).__name__
            text = f"a {kind} is no content: bytes, an array, a path, a file or a descriptor is"
            raise RostrumError(
                text + (" (of a tensor: tensor.numpy())" if kind == "Tensor" else ""), Code.INVALID
            ) from None
    else:
        yield len(view), lambda created: created.write(view)
        return
    try:
        fd, at = source.fileno(), source.tell()
        size = length_of(fd) - at
    except (OSError, AttributeError):  # a pipe, or a file that is none: its length is known when it is read
        size = -1
    if size < 0:
        with content(source.read()) as found:
            yield found
        return
    yield size, lambda created: copy_file(fd, created.fd, size, at)


def length_of(fd: int) -> int:
    """Of a file or a disk, in bytes; -1: it is known when it is read (a file of /proc).

    Raises:
        RostrumError: it has no end.
        OSError: it has no places, as a pipe.
    """
    status, at = os.fstat(fd), os.lseek(fd, 0, os.SEEK_CUR)
    if stat.S_ISBLK(status.st_mode):
        end = os.lseek(fd, 0, os.SEEK_END)
        os.lseek(fd, at, os.SEEK_SET)
        return end
    if status.st_size or not os.pread(fd, 1, 0):
        return status.st_size
    if stat.S_ISCHR(status.st_mode):
        raise RostrumError("a device without an end cannot be sent: head -c SIZE takes so much of it", Code.INVALID)
    return -1


def copy_file(source: int, target: int, size: int, offset: int = 0) -> None:
    """Copies `size` bytes from `offset` of one file to the beginning of another, in the kernel.

    Raises:
        RostrumError: the source is shorter.
    """
    end = offset + size
    os.lseek(target, 0, os.SEEK_SET)
    while offset < end:
        done = os.sendfile(target, source, offset, min(COPY_STEP, end - offset))
        if done == 0:
            raise RostrumError(
                f"the file became shorter while it was copied ({end - offset} bytes are missing)", Code.IO
            )
        offset += done
