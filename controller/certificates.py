"""The manager's own certificates, one for each of its doors; and whom a peer's certificate is for.

A certificate says what its holder may be by URIs in its subjectAltName: `rostrum:ROLE:NAME`, such as
`rostrum:agent:h1`, or `rostrum:ROLE`, and then its common name and DNS names are the names. One CA can sign for all:
an agent's certificate is worth nothing where operators or switches come in.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREFIX = "rostrum:"


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
