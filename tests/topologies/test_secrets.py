"""Passwords of devices outside the topology file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rostrum.topologies import TopologyError, load
from rostrum.topologies.loader import builtin_file, load_text
from rostrum.topologies.secrets import SecretError, password

OCS = load("hybrid-4x2").ocs["ocs"]


def given(**values: str) -> str:
    return password(dataclasses.replace(OCS, **values))  # type: ignore[arg-type]


def test_it_comes_from_a_file_a_variable_or_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ocs"
    file.write_text("a secret!\nmore\n")
    file.chmod(0o640)
    assert given(password_file=str(file)) == "a secret!"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert given(password_file="ocs") == "a secret!"
    monkeypatch.setenv("OCS_SECRET", "another")
    assert given(password_env="OCS_SECRET") == "another"
    assert given() == "rostrum"


@pytest.mark.parametrize("text", ["", "\n", "x" * 256, "é", "a\x07b"])
def test_what_is_no_password_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ocs"
    file.write_text(text)
    file.chmod(0o640)
    with pytest.raises(SecretError, match="does not hold a password") as caught:
        given(password_file=str(file))
    assert len(text) < 5 or text not in str(caught.value)


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.delenv("OCS_SECRET", raising=False)
    file = tmp_path / "ocs"
    with pytest.raises(SecretError, match="cannot be read"):
        given(password_file=str(file))
    file.write_text("a secret")
    file.chmod(0o644)
    with pytest.raises(SecretError, match="chmod 0640"):
        given(password_file=str(file))
    with pytest.raises(SecretError, match="LoadCredential"):
        given(password_file="ocs")
    with pytest.raises(SecretError, match="OCS_SECRET"):
        given(password_env="OCS_SECRET")


def test_the_topology_file_names_one_source_and_shows_none() -> None:
    text = builtin_file("hybrid-4x2").read_text()
    with pytest.raises(TopologyError, match="stands beside password; keep one"):
        load_text(text.replace("    password: rostrum\n", "    password: rostrum\n    password_env: OCS\n"))
    made = load_text(text.replace("    password: rostrum\n", "    password_file: /etc/rostrum/ocs\n    tls: true\n"))
    assert made.ocs["ocs"].password_file == "/etc/rostrum/ocs" and made.ocs["ocs"].tls
    assert "rostrum" not in repr(OCS)
