"""`rostrum pki`: what it issues is taken by TLS for the role and name it was issued for; nothing is overwritten."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rostrum.client.cli import main
from rostrum.controller.certificates import Identity, identity
from rostrum.controller.northbound.thrift import tls

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ca"


@pytest.fixture
def run(folder: Path) -> Run:
    def call(*words: str, ca: bool = True) -> Result:
        given = [*words, "--dir", str(folder)] if ca else list(words)
        return CliRunner().invoke(main, ["pki", *given])

    assert call("init", str(folder), ca=False).exit_code == 0
    return call


def shown(folder: Path, server: str, address: str, client: str, ca: Path | None = None) -> tuple[Identity, Identity]:
    """A handshake in memory: what the client learns of the server, and the server of the client."""
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.verify_mode = ssl.CERT_REQUIRED
    for context, name in ((ours, client), (theirs, server)):
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        context.load_verify_locations((ca or folder) / "ca.pem")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ours.wrap_bio(back, there, server_hostname=address)
    other = theirs.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for end in (one, other):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return identity(one.getpeercert()), identity(other.getpeercert())


def test_certificates__are_taken_for_their_role_and_name_alone(run: Run, folder: Path) -> None:
    assert run("issue", "manager", "m1", "--address", "10.255.0.1", "--address", "::1").exit_code == 0
    for role, name in (("agent", "h1"), ("switch", "tor1"), ("operator", "alice")):
        assert run("issue", role, name).exit_code == 0
        manager, holder = shown(folder, "m1", "10.255.0.1", name)
        assert manager.names_as("manager") and not manager.names_as("agent")
        assert holder.is_for(role, name) and str(holder) == f"{name} ({role})"
        assert not any(holder.is_for(other, name) for other in {"agent", "switch", "operator"} - {role})
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shown(folder, "m1", "10.255.0.2", "h1")
    listed = run("list").output
    for word in ("ca.pem", "CA", "agent h1", "switch tor1", "operator alice", "manager"):
        assert word in listed
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}
    assert not [path for path in folder.iterdir() if path.suffix not in (".pem", ".key")]


def test_another_ca__is_worth_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("issue", "manager", "m1", "--address", "10.255.0.1").exit_code == 0
    assert run("init", str(tmp_path / "other"), ca=False).exit_code == 0
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shown(folder, "m1", "10.255.0.1", "m1", ca=tmp_path / "other")


def test_what_is_there__is_replaced_when_asked_only(run: Run, folder: Path) -> None:
    assert run("issue", "agent", "h1").exit_code == 0
    before = [(folder / name).read_text() for name in ("h1.pem", "h1.key", "ca.pem", "ca.key")]
    refused = run("issue", "agent", "h1")
    assert refused.exit_code == 1 and "--replace" in refused.output
    refused = run("init", str(folder), ca=False)
    assert refused.exit_code == 1 and "exists" in refused.output
    assert [(folder / name).read_text() for name in ("h1.pem", "h1.key", "ca.pem", "ca.key")] == before
    assert run("issue", "agent", "h1", "--replace", "--days", "1").exit_code == 0
    after = [(folder / name).read_text() for name in ("h1.pem", "h1.key", "ca.pem", "ca.key")]
    assert [one == two for one, two in zip(before, after, strict=True)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("issue", "agent", "../h1"), "is no name"),
        (("issue", "agent", "ca"), "is no name"),
        (("issue", "agent", "h1,URI:rostrum:operator:h1"), "is no name"),
        (("issue", "agent", "h1\nx"), "is no name"),
        (("issue", "manager", "m1"), "--address 10.255.0.1"),
        (("issue", "switch", "tor1", "--address", "tor1"), "--address"),
        (("issue", "agent", "h1", "--days", "0"), "from 1 to 36500"),
        (("issue", "king", "h1"), "king"),
    ],
)
def test_nonsense__is_refused_and_leaves_nothing(run: Run, folder: Path, words: tuple[str, ...], why: str) -> None:
    refused = run(*words)
    assert refused.exit_code == 2 and why in refused.output
    assert sorted(path.name for path in folder.iterdir()) == ["ca.key", "ca.pem"]


def test_folder_without_a_ca__is_told(tmp_path: Path) -> None:
    refused = CliRunner().invoke(main, ["pki", "issue", "agent", "h1", "--dir", str(tmp_path)])
    assert refused.exit_code == 1 and f"rostrum pki init {tmp_path}" in refused.output


def test_full_disk__no_empty_key_is_left(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openssl ends with 0 there."""
    openssl = tmp_path / "bin" / "openssl"
    openssl.parent.mkdir()
    openssl.write_text('#!/bin/sh\nfor word; do case $before in -keyout|-out) : >"$word"; esac; before=$word; done\n')
    openssl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{openssl.parent}:{os.environ['PATH']}")
    for refused in (run("issue", "agent", "h1"), run("init", str(tmp_path / "other"), ca=False)):
        assert refused.exit_code == 1 and "is there room on its disk?" in refused.output, refused.output
    assert sorted(path.name for path in folder.iterdir()) == ["ca.key", "ca.pem"]
    assert not list((tmp_path / "other").iterdir())


def test_revoked__are_refused_by_who_reads_the_list_and_others_are_not(run: Run, folder: Path) -> None:
    assert run("issue", "manager", "m1", "--address", "10.255.0.1").exit_code == 0
    for name in ("h1", "h2", "h3"):
        assert run("issue", "agent", name).exit_code == 0
    for name in ("h1", "h3"):
        kept = (folder / f"{name}.pem").read_bytes()
        assert run("revoke", name).exit_code == 0
        (folder / f"{name}.pem").write_bytes(kept)  # a thief has one
    assert (folder / "ca.pem").read_text().count("BEGIN X509 CRL") == 1
    for name in ("h1", "h2", "h3"):
        context = tls.read((folder / "m1.pem", folder / "m1.key", folder / "ca.pem"), strict=True)
        if name == "h2":
            handshake(context, folder, name)
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
                handshake(context, folder, name)
    assert "is not there" in run("revoke", "h9").output
    assert run("issue", "agent", "h1", "--replace").exit_code == 0  # a new one is another
    handshake(tls.read((folder / "m1.pem", folder / "m1.key", folder / "ca.pem"), strict=True), folder, "h1")


def test_revoked__are_those_too_that_were_replaced(run: Run, folder: Path, tmp_path: Path) -> None:
    """Whoever has a key stolen makes a new one, and revokes the name: before or after."""
    assert run("issue", "manager", "m1", "--address", "10.255.0.1").exit_code == 0
    assert run("issue", "agent", "h1", "h1.x").exit_code == 0
    stolen = {file: (folder / file).read_bytes() for file in ("h1.pem", "h1.key")}
    assert run("issue", "agent", "h1", "h1.x", "--replace").exit_code == 0

    def shows(files: dict[str, bytes]) -> None:
        for file, content in files.items():
            (tmp_path / file).write_bytes(content)
        (tmp_path / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        handshake(tls.read((folder / "m1.pem", folder / "m1.key", folder / "ca.pem"), strict=True), tmp_path, "h1")

    shows(stolen)  # renewed, not revoked
    newest = {file: (folder / file).read_bytes() for file in stolen}
    assert run("revoke", "h1").exit_code == 0
    for files in (stolen, newest):
        with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
            shows(files)
    handshake(tls.read((folder / "m1.pem", folder / "m1.key", folder / "ca.pem"), strict=True), folder, "h1.x")
    assert "is not there" in run("revoke", "h1").output
    assert run("issue", "agent", "h1").exit_code == 0
    shows({file: (folder / file).read_bytes() for file in stolen})


def handshake(context: ssl.SSLContext, folder: Path, client: str) -> None:
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    ours.load_verify_locations(folder / "ca.pem")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ours.wrap_bio(back, there, server_hostname="10.255.0.1")
    other = context.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for end in (one, other):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert identity(other.getpeercert()).is_for("agent", client)


def test_one_program__may_be_several_switches(run: Run, folder: Path) -> None:
    """One Open vSwitch shows one certificate at all of its bridges."""
    assert run("issue", "manager", "m1", "--address", "10.255.0.1").exit_code == 0
    assert run("issue", "switch", "ovs1", "--also", "tor1", "--also", "tor2").exit_code == 0
    _, holder = shown(folder, "m1", "10.255.0.1", "ovs1")
    assert all(holder.is_for("switch", name) for name in ("ovs1", "tor1", "tor2")) and not holder.is_for("switch", "x")


def test_several_names__at_once(run: Run, folder: Path) -> None:
    assert run("issue", "agent", "h1", "h2").exit_code == 0
    assert (folder / "h1.pem").exists() and (folder / "h2.key").exists()
    refused = run("issue", "switch", "tor1", "tor2", "--address", "10.0.0.1")
    assert refused.exit_code == 2 and "are of one NAME" in refused.output
