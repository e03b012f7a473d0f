"""The manager's own certificates, one for each of its doors."""

from __future__ import annotations

import ssl
from pathlib import Path


def take(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Has the context show this chain (PEM). Raises OSError. Nobody is asked for the password of a key that has one."""

    def password() -> str:
        raise OSError(
            f"{key} is encrypted, and nobody is there to be asked for its password; "
            f"`openssl pkey -in {key} -out FILE` writes one that is not, for the manager's user alone"
        )

    context.load_cert_chain(certificate, key, password=password)
