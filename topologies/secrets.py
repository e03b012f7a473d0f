"""Passwords of devices that do not stand in the topology file: in a file of their own, or in the environment."""

from __future__ import annotations

import os
from pathlib import Path

from rostrum.topologies.model import Ocs

PASSWORD_MAX = 255
CREDENTIALS = "CREDENTIALS_DIRECTORY"  # where systemd puts what LoadCredential= names


class SecretError(ValueError):
    """Why there is no password, as text that does not hold it."""


def password(ocs: Ocs) -> str:
    """Of the manager's user at an OCS. Raises SecretError."""
    if ocs.password_env:
        found = os.environ.get(ocs.password_env)
        if found is None:
            raise SecretError(f"{ocs.name}: its password_env says {ocs.password_env}, which the environment lacks")
        return _checked(found, f"{ocs.name}: the variable {ocs.password_env}")
    if ocs.password_file:
        return _checked(_read(ocs), f"{ocs.name}: {ocs.password_file}")
    return ocs.password


def _read(ocs: Ocs) -> str:
    path = Path(ocs.password_file)
    if not path.is_absolute():
        folder = os.environ.get(CREDENTIALS)
        if not folder:
            raise SecretError(
                f"{ocs.name}: password_file {path} is a name of systemd's LoadCredential=, and this program was not "
                "started with one; write a whole path instead"
            )
        path = Path(folder, path)
    try:
        if path.stat().st_mode & 0o007:
            raise SecretError(f"{ocs.name}: {path} is open to everybody on this machine; chmod 0640 it")
        return path.read_text().split("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise SecretError(f"{ocs.name}: its password_file {path} cannot be read: {error}") from None


def _checked(found: str, where: str) -> str:
    if not 0 < len(found) <= PASSWORD_MAX or not (found.isascii() and found.isprintable()):
        raise SecretError(f"{where} does not hold a password: 1 to {PASSWORD_MAX} printable ASCII characters")
    return found
