"""TLS for switches: OpenFlow's door, and gRPC's credentials for P4Runtime. Both ends show certificates."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from typing import Any

from rostrum.controller import certificates
from rostrum.controller.certificates import Identity
from rostrum.controller.core.model import SouthboundError

log = logging.getLogger(__name__)

Files = tuple[Path, Path, Path]  # our certificate chain and key, the CA of the other side: PEM
CHUNK = 1 << 16
HANDSHAKE_S = 10.0
CONNECTIONS_MAX = 1024


def server_context(files: Files) -> ssl.SSLContext:
    """For switches that connect to us. Raises SouthboundError that names what is wrong with the files."""
    certificate, key, authority = files
    try:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        certificates.take(made, certificate, key)
        made.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise SouthboundError(f"TLS of switches: {certificate}, {key} or {authority}: {error}") from error
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def channel_credentials(files: Files) -> Any:
    """gRPC's, for switches that we connect to. Raises SouthboundError."""
    import grpc

    certificate, key, authority = files
    server_context(files)  # what is wrong with files, gRPC says to nobody
    return grpc.ssl_channel_credentials(
        root_certificates=authority.read_bytes(),
        private_key=key.read_bytes(),
        certificate_chain=certificate.read_bytes(),
    )


class TlsDoor:
    """Listens for TLS and hands what is inside to a plain port of this machine: os-ken's connections read and write in
    two threads, which one TLS connection does not stand.
    """

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context = context
        self._port = port  # on loopback
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self._shown: dict[int, Identity] = {}  # by the port of the connection to the plain port

    def shown(self, address: Any) -> Identity | None:
        """Whose certificate stands behind a connection to the plain port; None: it did not come through here."""
        return self._shown.get(address[1])

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises SouthboundError."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S, limit=CHUNK
            )
        except OSError as error:
            raise SouthboundError(f"cannot listen for OpenFlow over TLS on {host}:{port}: {error.strerror}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open.add(task)
        inner: asyncio.StreamWriter | None = None
        own = 0
        try:
            inside, inner = await asyncio.open_connection("127.0.0.1", self._port, limit=CHUNK)
            own = inner.get_extra_info("sockname")[1]
            self._shown[own] = certificates.identity(writer.get_extra_info("peercert") or {})
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, inner))
                both.create_task(_pass(inside, writer))
        except* (OSError, _Ended):
            pass
        finally:
            self._open.discard(task)
            self._shown.pop(own, None)
            for one in (writer, inner):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.close()


class _Ended(Exception):
    """One side is done; so is the other."""


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    raise _Ended
