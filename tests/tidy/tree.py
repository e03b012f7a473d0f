"""The repository's files as the tidy tests see them: tracked, or new and not ignored."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def all_files() -> tuple[str, ...]:
    """Paths relative to the root, sorted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return tuple(sorted(name for name in set(listed.stdout.splitlines()) if (ROOT / name).is_file()))


def files(*suffixes: str, under: str = "") -> list[str]:
    """The files with one of the suffixes (all, if none is given) in a folder."""
    return [name for name in all_files() if name.startswith(under) and (not suffixes or name.endswith(suffixes))]


@functools.cache
def text(name: str) -> str:
    """A file's text; bytes that are not UTF-8 are replaced. Nothing for a picture or the like (as git tells: a NUL)."""
    content = (ROOT / name).read_bytes()
    return "" if b"\0" in content[:8000] else content.decode(errors="replace")


def complaint(rule: str, offenders: list[str]) -> str:
    """What a failed test says: the rule, then one offender a line."""
    return "\n  ".join([rule, *offenders])
