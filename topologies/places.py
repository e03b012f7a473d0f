"""Where rostrum keeps on this machine what it makes. Here because every other package may import this one."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]


def build_folder() -> Path:
    """`build` of the source tree that this runs from; for an installed rostrum `$XDG_STATE_HOME/rostrum`."""
    if (TREE / "meson.build").is_file():
        return TREE / "build"
    found = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rostrum"
    try:
        found.stat()
    except PermissionError:  # $HOME is somebody else's, as of `sudo -u`
        with contextlib.suppress(KeyError):
            return Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state" / "rostrum"
        return Path("/nonexistent/rostrum")  # of a user without an entry of its own
    except OSError:
        pass
    return found


def labs_folder() -> Path:
    """A folder for each lab: its sockets and logs."""
    return build_folder() / "lab"


def short(path: str | Path) -> str:
    """A path for people: from the current folder on, if it is in there."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)
