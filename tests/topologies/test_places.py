"""Where what rostrum makes is kept."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from rostrum.topologies import places


def test_home_of_somebody_else__is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo -u bob rostrum status` keeps root's $HOME: it ended with a traceback."""

    stat = Path.stat

    def closed(path: Path, **options: bool) -> os.stat_result:
        if path.name == "rostrum":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(places, "TREE", tmp_path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places.labs_folder() == tmp_path / ".local/state/rostrum/lab"
    monkeypatch.setattr(Path, "stat", closed)
    own = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert places.labs_folder() == own / ".local/state/rostrum/lab"
