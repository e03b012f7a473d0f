"""TLS on the Thrift port: agents show certificates that our CA signed, and speak as the servers that these name.

asyncio's own TLS keeps to itself why a handshake failed, and closes before the other side has heard it; here both ends
learn it, as text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from rostrum.controller import certificates
from rostrum.controller.certificates import Files, Identity
from rostrum.controller.keyvalue import Sparing, line
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift.codec import BadMessage, encode

log = logging.getLogger("rostrum.thrift")

HANDSHAKE_S = 5.0
HANDSHAKES_MAX = 256  # at a time; others are to come again, as agents do by themselves
STALL_S = 1.0  # with a handshake while others find no room: silence must not keep them out
LINGER_S = 1.0  # for what the other side still sends, so that it hears why it is refused
READ_MAX = 1 << 16
HANDSHAKE_RECORD = 0x16  # TLS: the first byte of a connection; plain Thrift begins with 0
_CLIENT_HELLO = range(HANDSHAKE_RECORD << 24 | 0x030000, HANDSHAKE_RECORD << 24 | 0x040000)  # read as a length

PLAIN = "this manager takes agents by TLS only: start rostrumd with --manager-tls CERTIFICATE KEY CA"
SPOKE_TLS = "this port speaks no TLS: start rostrum-manager with --thrift-tls, or rostrumd without --manager-tls"

_REFUSALS = {  # by OpenSSL's reason
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate (rostrumd --manager-tls CERTIFICATE KEY CA)",
    "UNSUPPORTED_PROTOCOL": "it speaks no TLS from 1.2 on",
    "WRONG_VERSION_NUMBER": "that is no TLS",
    "HTTP_REQUEST": "that is HTTP; agents connect here, REST has a port of its own",
}


class Upper(Protocol):
    """What speaks through the connection: as asyncio.Protocol. `server`: whose agent it is, "" before its hello."""

    server: str

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class TlsDoor:
    """What the port shows and asks for. The files are read again when they change. Raises access.AccessError."""

    def __init__(self, files: Files, lines: Sparing, on_trust: Callable[[], None] | None = None) -> None:
        """`on_trust`: security is required, TLS is 1.3, and it is called when the CA's file is another."""
        self.files, self._strict, self._on_trust = files, on_trust is not None, on_trust
        self.shaking: dict[TlsConnection, float] = {}  # in the order of their beginning, which it holds
        self.open: set[TlsConnection] = set()
        self.refused = 0
        self._lines = lines
        self._seen = self._stamps()
        self._context = read(files, self._strict)
        self._ends_s = _end_of(self._context, files[0])

    def wrap(self, upper: Upper) -> TlsConnection:
        self.reload()
        return TlsConnection(self, self._context, upper)

    def reload(self) -> None:
        """Files that are wrong are told, and what they said before stays."""
        now = self._stamps()
        if now == self._seen:
            return
        before, self._seen = self._seen, now
        try:
            self._context = read(self.files, self._strict)
            self._ends_s = _end_of(self._context, self.files[0])
            log.info(line("certificate read", file=self.files[0]))
        except AccessError as error:
            log.error(line("certificate not read, the old one stays", cause=error))
            return
        if self._on_trust and before[2] != now[2]:
            self._on_trust()

    def begin(self, new: TlsConnection) -> bool:
        """Whether there is room for its handshake, if need be in the place of one that does not go on."""
        now = time.monotonic()
        if len(self.shaking) >= HANDSHAKES_MAX:
            oldest, began = next(iter(self.shaking.items()))
            if now - began < STALL_S:
                return False
            del self.shaking[oldest]
            oldest.give_up(f"its handshake did not go on for {now - began:.1f} s, and others wait")
        self.shaking[new] = now
        return True

    def close(self) -> None:
        for one in list(self.shaking):
            one.abort()

    def certificates(self) -> dict[str, float]:
        """Seconds that they still hold: the manager's (""), and those that agents showed, by server."""
        self.reload()
        now = time.time()
        found = {one.server: one.ends_s - now for one in self.open if one.server}
        return found | {"": self._ends_s - now}

    def tell_refused(self, peer: str, cause: str) -> None:
        self.refused += 1
        left_out = self._lines.may(time.monotonic())
        if left_out is not None:
            more = {"not_logged": left_out} if left_out else {}
            log.warning(line("tls refused", peer=peer, cause=cause, **more))

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [certificates.stamp(file) for file in self.files]


def read(files: Files, strict: bool = False) -> ssl.SSLContext:
    """For agents that connect to us; what the CA's file revokes is refused (`rostrum pki revoke`). Raises AccessError
    that names what is wrong with the files.
    """
    try:
        made = certificates.context(files, True, strict)
    except OSError as error:
        raise AccessError(f"--thrift-tls {' '.join(map(str, files))}: {error}") from error
    made.num_tickets = 0  # agents stay connected
    return made


def admit(server: str, certified: Identity | None, tenant: str | None = None) -> None:
    """Raises BadMessage unless the certificate is that server's agent's, and of its tenant ("": none; None: whatever
    it is). `certified` None: it came without TLS.
    """
    if certified is not None and not certified.is_for("agent", server):
        raise BadMessage(
            f"the agent calls itself {server}, and its certificate is for {certified}; give rostrumd --manager-tls the "
            f"certificate of {server} (subjectAltName=DNS:{server},URI:rostrum:agent:{server})"
        )
    if certified is None or tenant is None:
        return
    named = certified.roles.get("tenant", frozenset())
    if named != ({tenant} if tenant else set()):
        ours, theirs = (f"tenant {one}" if one else "no tenant" for one in (tenant, min(named, default="")))
        raise BadMessage(
            f"the certificate of {server} is of {theirs}, and by the topology file it is of {ours}: rostrum pki issue "
            f"agent {server} --replace{' --tenant ' + tenant if tenant else ''}"
        )


def meant_tls(length: int) -> bool:
    """Whether what was read as a frame's length is how TLS begins."""
    return length in _CLIENT_HELLO


class TlsConnection(asyncio.Protocol):
    """TLS between a TCP connection and `upper`, to which it is the transport. `upper` hears of it after the handshake.

    get_extra_info("certified"): the Identity that the agent's certificate says.
    """

    def __init__(self, door: TlsDoor, context: ssl.SSLContext, upper: Upper) -> None:
        self._door, self._upper = door, upper
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._certified = Identity()
        self.ends_s = 0.0  # of the agent's certificate, since the epoch
        self._peer = "?"
        self._error: Exception | None = None
        self._heard = self._open = self._closing = False
        self._hearing = False  # what is said meanwhile goes out at once, in one write

    # ---- towards the network ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self._door.begin(self):
            self.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._late)

    def connection_lost(self, error: Exception | None) -> None:
        self._door.shaking.pop(self, None)
        self._door.open.discard(self)
        if self._timer:
            self._timer.cancel()
        if self._open:
            self._upper.connection_lost(self._error or error)
        elif self._heard and not self._closing:
            self._door.tell_refused(self._peer, "it went away in TLS's handshake")
        self._closing = True

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._heard and data[0] != HANDSHAKE_RECORD:
            self._refuse(PLAIN, encode("Agent", "goodbye", {"reason": PLAIN}))
            return
        self._heard = self._hearing = True
        try:
            self._in.write(data)
            if self._open or self._shake():
                self._read()
        finally:
            self._hearing = False
            if not self._closing:
                self._flush()

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._refuse(_why(error), self._out.read())
            return False
        self._open = True
        self._door.shaking.pop(self, None)
        if self._timer:
            self._timer.cancel()
        shown: Any = self._tls.getpeercert()
        self._certified = certificates.identity(shown)
        self.ends_s = _end(shown)
        self._door.open.add(self)
        self._upper.connection_made(cast(asyncio.Transport, self))
        return True

    def _read(self) -> None:
        while not self._closing:
            try:
                data = self._tls.read(READ_MAX)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:  # what does not decrypt is not its agent's
                self._error = ConnectionError(_why(error))
                self.abort()
                return
            if not data:
                self.close()
                return
            self._upper.data_received(data)

    def _flush(self) -> None:
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())

    def _late(self) -> None:
        self.give_up(f"TLS's handshake was not done in {HANDSHAKE_S:g} s")

    def give_up(self, cause: str) -> None:
        self._refuse(cause, b"")

    def _refuse(self, cause: str, last: bytes) -> None:
        """Ends it with `last` text, and waits a moment: with anything unread, closing would take them back."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        self._door.tell_refused(self._peer, cause)
        self._transport.write(last)
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    # ---- towards what speaks through it ----

    @property
    def server(self) -> str:
        return self._upper.server

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "certified":
            return self._certified
        return self._transport.get_extra_info(name, default) if self._transport else default

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._closing:
            try:
                left = left[self._tls.write(left) :]
            except ssl.SSLError:
                self.abort()
                return
        if not self._hearing:
            self._flush()

    def pause_reading(self) -> None:
        """What was read and deciphered already is still handed up."""
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    def close(self) -> None:
        """What was written still goes out."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()  # our goodbye; the other's is not waited for
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


def _why(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if "_ALERT_" in reason:
        alert = reason.split("_ALERT_", 1)[1].replace("_", " ").lower()
        return f"it refuses this manager's certificate or TLS ({alert}); its log says why"
    return _REFUSALS.get(reason, f"TLS failed: {reason.replace('_', ' ').lower()}")


def _end(certificate: Any) -> float:
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def _end_of(context: ssl.SSLContext, file: Path) -> float:
    """When our own certificate ends, which Python tells of those only that a peer shows; past if it has ended."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it vouches for itself
    client.load_verify_locations(file)
    to_us, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, other = context.wrap_bio(to_us, to_client, server_side=True), client.wrap_bio(to_client, to_us)
    with contextlib.suppress(ssl.SSLError):
        for end in (other, ours, other):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        return _end(other.getpeercert())
    return 0.0
