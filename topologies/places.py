"""Where rostrum keeps on this machine what it makes. Here because every other package may import this one."""

from __future__ import annotations

import os
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]


def build_folder() -> Path:
    """`build` of the source tree that this runs from; for an installed rostrum `$XDG_STATE_HOME/rostrum`."""
    if (TREE / "meson.build").is_file():
        return TREE / "build"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rostrum"


def labs_folder() -> Path:
    """A folder for each lab: its sockets and logs."""
    return build_folder() / "lab"


def short(path: str | Path) -> str:
    """A path for people: from the current folder on, if it is in there."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)
