"""A manager that is given an encrypted key says so and ends: asked for its password nobody would answer."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.controller.certificates import Authority

BOUND_S = 60
READERS = {
    "rest": "access.Access(access.AccessOptions(tls=(certificate, key), client_ca=authority)).tls(access.GUARDED)",
    "agents": "tls.read((certificate, key, authority))",
    "switches": "southbound.door_trust((certificate, key, authority))",
    "etcd": "etcd.Etcd(['127.0.0.1:1'], etcd.Tls(authority, certificate, key))",
}
SCRIPT = """
import sys
from pathlib import Path
from rostrum.controller.northbound.rest import access
from rostrum.controller.northbound.thrift import tls
from rostrum.controller.runtime import etcd
from rostrum.controller.southbound import tls as southbound
certificate, key, authority = map(Path, sys.argv[1:])
"""


@pytest.mark.parametrize("door", READERS)
def test_encrypted_key__nobody_is_asked_for_its_password(door: str, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key = ours.sign("manager")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"a password")
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    status, said = at_terminal(SCRIPT + READERS[door], certificate, key, ours.certificate)
    assert status != 0 and f"{key} is encrypted" in said.replace("\r\n", "\n"), said


def at_terminal(script: str, *arguments: Path) -> tuple[int, str]:
    """The exit status and the text of a program that has a terminal to itself."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", script, *map(str, arguments)])
    said, end = b"", time.monotonic() + BOUND_S
    try:
        while select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            said += os.read(terminal, 4096)
        os.kill(child, signal.SIGKILL)  # it waits
    except OSError:
        pass  # it has ended
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode(errors="replace")
