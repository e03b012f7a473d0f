"""What certified agents cost a manager with `security: required`: handshakes, and the keys by which each writes to each
of the others.
"""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rostrum.bench.manager.cases import Case
from rostrum.bench.manager.load import ProcessTime
from rostrum.bench.manager.run import serving
from rostrum.controller.northbound.thrift.codec import decode, encode, idl
from rostrum.lab.namespace import LabError

AGENTS = 1000
WAIT_S = 60.0
HOURS = datetime.timedelta(hours=2)
Files = tuple[Path, Path]


class Authority:
    """Issues certificates as `rostrum pki` does, without a process for each: EC keys of P-256, SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self.file, _ = self._write("ca", self._key, self._made("ca", self._key, None))

    def issue(self, name: str, uri: str) -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, self._made(name, key, uri))

    def _made(self, name: str, key: ec.EllipticCurvePrivateKey, uri: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOURS)
            .not_valid_after(now + HOURS)
            .add_extension(x509.BasicConstraints(ca=uri is None, path_length=None), critical=True)
        )
        if uri is not None:
            names = [x509.UniformResourceIdentifier(uri), x509.DNSName(name)]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self._key, hashes.SHA256())

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Files:
        pem = serialization.Encoding.PEM
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(pem))
        files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return files


class Caller:
    """The connection of an agent, as far as keys."""

    def __init__(self, port: int, server: str, own: Files, authority: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(authority)
        context.load_cert_chain(*own)
        raw = socket.create_connection(("127.0.0.1", port), WAIT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = context.wrap_socket(raw)
        info = idl.AgentInfo(version=idl.VERSION, server=server, boot_id=1, control_port=7071, live_paths=[],
                             seals=True)  # fmt: skip
        self._link.sendall(encode("Manager", "hello", {"info": info}))

    def ask(self, servers: list[str]) -> None:
        self._link.sendall(encode("Manager", "peer_keys", {"servers": servers}))

    def keys(self, purpose: int, count: int) -> None:
        """Takes what comes until that many keys of a purpose have. Raises LabError."""
        while count > 0:
            method, said = decode("Agent", self._exactly(struct.unpack(">I", self._exactly(4))[0]))
            if method == "goodbye":
                raise LabError(f"the manager refuses an agent: {said.reason}")
            if method == "keys":
                count -= sum(one.purpose == purpose for one in said.keys)

    def close(self) -> None:
        self._link.close()

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            more = self._link.recv(count - len(got))
            if not more:
                raise LabError("the manager ended an agent's connection")
            got += more
        return bytes(got)


def measure(folder: Path, agents: int = AGENTS) -> dict[str, Any]:
    """Processor time of the manager, in s: of all handshakes with greetings, and of all keys for all others.
    `agents`: one of bench.manager.cases.RACKS. Raises LabError.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "certificates").mkdir(parents=True)
    authority, case = Authority(folder / "certificates"), Case("handshakes", servers=agents, journal=False)
    names = [f"h{number}" for number in range(1, agents + 1)]
    own = {name: authority.issue(name, f"rostrum:agent:{name}") for name in names}
    tls = [*authority.issue("manager", "rostrum:manager"), authority.file]
    file = folder / "job.json"
    file.write_text(json.dumps({"case": case.facts(), "hybrid": asdict(case.hybrid), "folder": str(folder),
                                "place": str(folder), "tls": list(map(str, tls))}))  # fmt: skip
    try:
        with serving(case, file, folder) as there, ExitStack() as open_ones:
            spent, callers = ProcessTime(there["pid"]), list[Caller]()

            def took(what: Callable[[], None]) -> float:
                before = spent.read()[0]
                what()
                return spent.read()[0] - before

            def greet() -> None:
                for name in names:
                    callers.append(Caller(there["thrift"], name, own[name], authority.file))
                    open_ones.callback(callers[-1].close)
                    callers[-1].keys(idl.KeyFor.SELF, 1)

            def tell_all() -> None:
                for one in callers:
                    one.ask(names)
                    one.keys(idl.KeyFor.PEER, agents - 1)

            return {"agents": agents, "handshakes_s": took(greet), "keys": agents * (agents - 1),
                    "keys_s": took(tell_all)}  # fmt: skip
    except OSError as error:
        raise LabError(f"handshakes: {error}") from error
