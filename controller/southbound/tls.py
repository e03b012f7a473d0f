"""TLS for devices: OpenFlow's door, and the ways to switches that speak P4Runtime, and to OCSs by gNMI or TL1. Both
ends show certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
import tempfile
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rostrum.controller import certificates
from rostrum.controller.certificates import Files, Identity, Trust
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.keyvalue import line

log = logging.getLogger(__name__)

CHUNK = 1 << 16
HANDSHAKE_S = 10.0
CONNECTIONS_MAX = 1024
ROLE = "switch"  # of packet and circuit switches alike


def door_trust(files: Files, strict: bool = False) -> Trust:
    """For switches that connect to us. `strict`: TLS 1.3. Raises SouthboundError that names what is wrong."""
    return Trust(files, partial(_context, files, True, strict))


def way_trust(files: Files, strict: bool = False) -> Trust:
    """For devices that we connect to; otherwise the same."""
    return Trust(files, partial(_context, files, False, strict))


def _context(files: Files, server: bool, strict: bool) -> ssl.SSLContext:
    try:
        return certificates.context(files, server, strict)
    except OSError as error:  # ssl.SSLError too
        certificate, key, authority = files
        raise SouthboundError(f"TLS of switches: {certificate}, {key} or {authority}: {error}") from error


def check_name(name: str, writer: Any) -> None:
    """That a device which we connected to is who we want, by its certificate; without roles its address is enough,
    which TLS has looked at. Raises SouthboundError.
    """
    shown = certificates.identity(writer.get_extra_info("peercert") or {})
    if shown.roles and not shown.is_for(ROLE, name):
        raise SouthboundError(
            f"its certificate is for {shown}; give it one with subjectAltName=URI:rostrum:{ROLE}:{name} and its address"
        )


@dataclass
class _Open:
    """One connection that goes through. `shown`: its certificate (DER)."""

    task: asyncio.Task[Any]
    shown: bytes


class _Passing:
    """Connections that are passed on between TLS and a plain end of this machine; those whose certificate is good no
    more are ended as soon as the CA's file says so.
    """

    def __init__(self, trust: Trust, what: str) -> None:
        self.trust, self._what = trust, what
        self._open: dict[Hashable, _Open] = {}
        self._watching: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._watching = asyncio.create_task(self.trust.watch(self._changed))

    async def end(self) -> None:
        if self._watching:
            self._watching.cancel()
        tasks = [one.task for one in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def changed(self) -> None:
        """The files are others: for those who come from now on."""

    async def _changed(self, authority: bool) -> None:
        await self.changed()
        if authority:
            gone = await certificates.refused(self.trust.files[2], {key: one.shown for key, one in self._open.items()})
            for key in gone & set(self._open):
                log.warning(line("connection ended", what=self._what, cause="its certificate is good no more"))
                self._open[key].task.cancel()

    def full(self) -> bool:
        return len(self._open) >= CONNECTIONS_MAX

    @contextlib.contextmanager
    def counted(self, secured: asyncio.StreamWriter) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        tls = secured.get_extra_info("ssl_object")
        self._open[task] = _Open(task, tls.getpeercert(True) if tls else b"")
        try:
            yield
        finally:
            self._open.pop(task, None)


class TlsDoor(_Passing):
    """Listens for TLS and hands what is inside to a plain port of this machine: os-ken's connections read and write in
    two threads, which one TLS connection does not stand.
    """

    def __init__(self, trust: Trust, port: int) -> None:
        super().__init__(trust, "OpenFlow switch")
        self._port = port  # on loopback
        self._sock: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._shown: dict[int, Identity] = {}  # by the port of the connection to the plain port

    def shown(self, address: Any) -> Identity | None:
        """Whose certificate stands behind a connection to the plain port; None: it did not come through here."""
        return self._shown.get(address[1])

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises SouthboundError."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._sock = socket.create_server((host, port), family=family)
        except OSError as error:
            raise SouthboundError(f"cannot listen for OpenFlow over TLS on {host}:{port}: {error.strerror}") from error
        await self.changed()
        self.begin()
        return int(self._sock.getsockname()[1])

    async def changed(self) -> None:
        """A server of asyncio's keeps the context that it began with: another one takes its place at the same port."""
        assert self._sock
        before, shared = self._server, self._sock.dup()
        shared.setblocking(False)
        self._server = await asyncio.start_server(
            self._serve, sock=shared, ssl=self.trust.context, ssl_handshake_timeout=HANDSHAKE_S, limit=CHUNK
        )
        if before:
            before.close()

    async def close(self) -> None:
        if self._server:
            self._server.close()
        if self._sock:
            self._sock.close()
        await self.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.full():
            writer.close()
            return
        inner: asyncio.StreamWriter | None = None
        own = 0
        try:
            with self.counted(writer):
                inside, inner = await asyncio.open_connection("127.0.0.1", self._port, limit=CHUNK)
                own = inner.get_extra_info("sockname")[1]
                self._shown[own] = certificates.identity(writer.get_extra_info("peercert") or {})
                await _pass_both(reader, writer, inside, inner)
        except OSError:
            pass
        finally:
            self._shown.pop(own, None)
            _close(writer, inner)


class TlsWay(_Passing):
    """A way by TLS to a device that speaks gRPC, which by itself looks neither at roles nor at what is revoked: gRPC is
    given a socket that this user alone can open, and what comes there goes on by TLS to the device.
    """

    def __init__(self, trust: Trust, name: str, host: str, port: int) -> None:
        super().__init__(trust, name)
        self._name, self._host, self._port = name, host, port
        self._server: asyncio.Server | None = None
        self._folder = ""
        self.trouble = ""  # why the last connection did not come about; "" = it did

    async def start(self) -> str:
        """Returns where gRPC is to connect. Raises SouthboundError."""
        try:
            self._folder = tempfile.mkdtemp(prefix="rostrum-")  # mode 0700
            path = str(Path(self._folder, "way"))
            self._server = await asyncio.start_unix_server(self._serve, path, limit=CHUNK)
        except OSError as error:
            raise SouthboundError(f"{self._name}: no socket for its TLS: {error}") from error
        self.begin()
        return f"unix:{path}"

    async def close(self) -> None:
        if self._server:
            self._server.close()
        await self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outer: asyncio.StreamWriter | None = None
        try:
            self.trust.context.set_alpn_protocols(["h2"])
            outside, outer = await asyncio.open_connection(
                self._host, self._port, ssl=self.trust.context, server_hostname=self._host,
                ssl_handshake_timeout=HANDSHAKE_S, limit=CHUNK,
            )  # fmt: skip
            check_name(self._name, outer)
            self.trouble = ""
            with self.counted(outer):
                await _pass_both(reader, writer, outside, outer)
        except (OSError, SouthboundError) as error:
            self.trouble = self.trouble or f"TLS: {why(error)}"
        finally:
            _close(writer, outer)


def why(error: Exception) -> str:
    """Of a connection that did not come about, or ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _pass_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    inside: asyncio.StreamReader,
    inner: asyncio.StreamWriter,
) -> None:
    """Until one side is done; so is the other then."""
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_pass(reader, inner))
            both.create_task(_pass(inside, writer))
    except* (OSError, _Ended):
        pass


def _close(*writers: asyncio.StreamWriter | None) -> None:
    for one in writers:
        if one is not None:
            with contextlib.suppress(OSError):
                one.close()


class _Ended(Exception):
    """One side is done."""


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    raise _Ended
