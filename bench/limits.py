"""Socket buffers as large as tools ask for, while a bench runs; the machine's own settings afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

BYTES = 128 << 20  # what tools may ask for; ours needs no such setting
FILES = (Path("/proc/sys/net/core/rmem_max"), Path("/proc/sys/net/core/wmem_max"))
# What the settings were before the first of several benches at once. Of the machine, not of a source tree.
KEPT = Path("/run/rostrum-bench-limits.json")


@contextlib.contextmanager
def large_socket_buffers(files: tuple[Path, ...] = FILES, kept: Path = KEPT) -> Iterator[None]:
    """Raises the limits. Whoever of several benches is the last puts them back."""
    with kept.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        file.seek(0)
        if not file.read():
            json.dump({str(path): path.read_text().strip() for path in files}, file)
            file.flush()
        for path in files:
            path.write_text(str(max(int(path.read_text()), BYTES)))
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.seek(0)
                for name, value in json.load(file).items():
                    Path(name).write_text(value)
                kept.unlink()
