"""A certificate authority for tests."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate, _ = self.sign(name, authority=True)

    def sign(
        self,
        name: str,
        authority: bool = False,
        dns: Sequence[str] = ("localhost",),
        hours: tuple[float, float] = (-1, 1),
        uris: Sequence[str] = (),
        common: bool = True,
    ) -> tuple[Path, Path]:
        """Certificate and key of `name` (its common name, or, unless `common`, organization), for `dns`, `uris` and
        127.0.0.1, valid from now on `hours`.
        """
        key = self.key if authority else ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME if common else NameOID.ORGANIZATION_NAME, name)])
            )
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(hours=hours[0]))
            .not_valid_after(now + datetime.timedelta(hours=hours[1]))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        *map(x509.DNSName, dns),
                        *map(x509.UniformResourceIdentifier, uris),
                        x509.IPAddress(ip_address("127.0.0.1")),
                    ]
                ),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        paths = self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key"
        paths[0].write_bytes(made.public_bytes(pem))
        paths[1].write_bytes(private)
        return paths
