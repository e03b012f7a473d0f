"""The manager's own certificates, one for each of its doors; and whom a peer's certificate is for.

A certificate says what its holder may be by URIs in its subjectAltName: `rostrum:ROLE:NAME`, such as
`rostrum:agent:h1`, or `rostrum:ROLE`, and then its common name and DNS names are the names. One CA can sign for all:
an agent's certificate is worth nothing where operators or switches come in.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rostrum.controller.keyvalue import line

PREFIX = "rostrum:"
REVOKES = b"-----BEGIN X509 CRL-----"
LOOK_S = 1.0  # how often files are looked at
VERIFY_S = 30.0  # for openssl, with as many certificates as a manager has devices

Files = tuple[Path, Path, Path]  # our certificate chain and key, the CA of the other side: PEM
Key = TypeVar("Key", bound=Hashable)

log = logging.getLogger("rostrum.certificates")


@dataclass(frozen=True)
class Identity:
    """`names`: common name and DNS names. `roles`: those that it says, each with the names that go with it; empty: it
    says none, as certificates of earlier releases.
    """

    common_name: str = ""
    names: frozenset[str] = frozenset()
    roles: dict[str, frozenset[str]] = field(default_factory=dict)

    def is_for(self, role: str, name: str) -> bool:
        """Without any role it is taken for what its names say."""
        return name in (self.roles.get(role, frozenset()) if self.roles else self.names)

    def names_as(self, role: str) -> frozenset[str]:
        return self.roles.get(role, frozenset()) if self.roles else self.names

    def __str__(self) -> str:
        """`h1 (agent)`, for those who look for what is wrong."""
        if not self.roles:
            return ", ".join(sorted(self.names)) or "nobody"
        rows = [f"{', '.join(sorted(names)) or 'nobody'} ({role})" for role, names in sorted(self.roles.items())]
        return ", ".join(rows)


def identity(shown: Any) -> Identity:
    """Of a certificate as ssl gives it (RFC 6125: letter by letter). Nothing in it is trusted to be well-formed."""
    subject = [pair for group in shown.get("subject", ()) for pair in group]
    alternatives = shown.get("subjectAltName", ())
    common = next((value for key, value in subject if key == "commonName"), "")
    every = {value for key, value in subject if key == "commonName"}
    names = frozenset(every | {value for kind, value in alternatives if kind == "DNS"})
    roles: dict[str, frozenset[str]] = {}
    for kind, value in alternatives:
        if kind == "URI" and value.startswith(PREFIX):
            role, named, name = value.removeprefix(PREFIX).partition(":")
            roles[role] = roles.get(role, frozenset()) | (frozenset({name}) if named else names)
    return Identity(common, names, roles)


def take(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Has the context show this chain (PEM). Raises OSError. Nobody is asked for the password of a key that has one."""

    def password() -> str:
        raise OSError(
            f"{key} is encrypted, and nobody is there to be asked for its password; "
            f"`openssl pkey -in {key} -out FILE` writes one that is not, for the manager's user alone"
        )

    context.load_cert_chain(certificate, key, password=password)


def context(files: Files, server: bool, strict: bool) -> ssl.SSLContext:
    """For a door of ours (`server`) or a way to a device; both ends show certificates, and what the CA's file revokes
    (`rostrum pki revoke`) is refused. `strict`: TLS 1.3, else from 1.2 on. Raises OSError.
    """
    certificate, key, authority = files
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3 if strict else ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    take(made, certificate, key)
    trust(made, authority)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def trust(made: ssl.SSLContext, authority: Path) -> None:
    """Has the context trust a CA's file, and its list of those that are revoked, if it has one. Raises OSError."""
    made.load_verify_locations(authority)
    if REVOKES in authority.read_bytes():
        made.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


class Trust:
    """What one of our doors, or our ways to devices, shows and asks for. The files are read again when they change: who
    renews a certificate, or revokes one, restarts nothing.
    """

    def __init__(self, files: Files, make: Callable[[], ssl.SSLContext]) -> None:
        """Raises what `make` raises. `files`: what it reads."""
        self.files, self._make = files, make
        self._seen = self._stamps()
        self.context = make()

    def renew(self) -> bool:
        """Whether the context is another now. What is wrong is told, and what the files said before stays."""
        now = self._stamps()
        if now == self._seen:
            return False
        self._seen = now
        try:
            self.context = self._make()
        except Exception as error:
            log.error(line("certificate not read, the old one stays", file=self.files[0], cause=error))
            return False
        log.info(line("certificate read", file=self.files[0]))
        return True

    async def watch(self, on_change: Callable[[bool], Awaitable[None]]) -> None:
        """Until it is cancelled. `on_change(whether the CA's file is another)`, after each change."""
        while True:
            await asyncio.sleep(LOOK_S)
            before = self._seen[-1]
            if self.renew():
                await on_change(before != self._seen[-1])

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [stamp(file) for file in self.files]


def stamp(file: Path) -> tuple[int, int, int] | None:
    """Another one when the file is."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def refused(authority: Path, shown: Mapping[Key, bytes]) -> set[Key]:
    """Whose certificate (DER) this CA's file, with its list, takes no more; of open connections, which TLS does not
    look at again. Where that cannot be found out, all of them: they come again, and are looked at then.
    """
    return await asyncio.to_thread(_refused, authority, dict(shown)) if shown else set()


def _refused(authority: Path, shown: dict[Key, bytes]) -> set[Key]:
    try:
        lists = ["-crl_check", "-CRLfile", str(authority)] if REVOKES in authority.read_bytes() else []
        with tempfile.TemporaryDirectory() as folder:
            files = {f"{folder}/{number}": key for number, key in enumerate(shown)}
            for file, key in files.items():
                Path(file).write_text(ssl.DER_cert_to_PEM_cert(shown[key]))
            done = subprocess.run(
                ["openssl", "verify", "-CAfile", str(authority), *lists, *files],
                capture_output=True, text=True, timeout=VERIFY_S, check=False,
            )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(line("certificates of open connections not looked at", cause=error, then="they are ended"))
        return set(shown)
    good = {row.removesuffix(": OK") for row in done.stdout.splitlines() if row.endswith(": OK")}
    return {key for file, key in files.items() if file not in good}
