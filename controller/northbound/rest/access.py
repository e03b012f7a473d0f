"""Who may use REST: nobody is asked on the unix socket and on loopback; elsewhere a bearer token or a client's
certificate says who calls. Every write leaves a line in the audit log, whoever calls; of those that are refused a few
of each source, with a count of the others.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from rostrum.controller import certificates
from rostrum.controller.audit import Audit, Value
from rostrum.controller.certificates import Identity, Trust, stamp
from rostrum.controller.keyvalue import SparingBySource, line
from rostrum.controller.northbound.rest import problems
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("rostrum.access")
_now_s = time.monotonic
audit = logging.getLogger("rostrum.audit")

Role = Literal["read", "write"]
CALLER = "rostrum.caller"  # key in an ASGI scope: who calls, a Caller
DOOR = "rostrum.door"  # key in an ASGI scope: where the request came in, a Door
PEER = "rostrum.peer"  # key in the scope's state: the client's certificate, as ssl gives it
REFUSED_LINES = (5, 50, 10.0)  # of one source, and of all, in so many seconds, about writes that were refused
RIGHTS: dict[str, Role] = {"operator": "write", "reader": "read"}  # by the role that a certificate says
READS = ("GET", "HEAD", "OPTIONS")
CREDENTIALS_MAX = 10_000
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
ASK = "send Authorization: Bearer TOKEN (rostrum manager token makes one)"


class AccessError(Exception):
    """What is wrong with the options or files that say who may call, as text."""


@dataclass(frozen=True)
class Caller:
    """`listed`: by a line of the token file, which names the tenant."""

    name: str
    tenant: str
    role: Role
    listed: bool = False


@dataclass(frozen=True)
class Door:
    """A place to listen at. `caller`: whom those are taken for that come in here unasked; None = they are asked."""

    caller: Caller | None


SOCKET = Door(Caller("unix socket", "local", "write"))
LOOPBACK = Door(Caller("loopback", "local", "write"))
OPEN = Door(Caller("anybody", "open", "write"))
GUARDED = Door(None)


@dataclass(frozen=True)
class AccessOptions:
    """As the manager's options say. `tls`: certificate chain and key of the manager, PEM. `client_ca`: who signs
    clients' certificates. `open`: nobody is asked anywhere.
    """

    tokens: Path | None = None
    tls: tuple[Path, Path] | None = None
    client_ca: Path | None = None
    open: bool = False


class Access:
    """`required`: security is, so that nobody is taken for known by where it comes from but on the unix socket. Raises
    AccessError on options that do not fit together, and files that cannot be read.
    """

    def __init__(self, options: AccessOptions, required: bool = False) -> None:
        if options.client_ca and not options.tls:
            raise AccessError("--rest-client-ca needs the manager's own certificate: give --rest-tls CERTIFICATE KEY")
        if options.open and (options.tokens or options.client_ca):
            raise AccessError("--rest-open lets everybody in; leave it out, or --rest-tokens and --rest-client-ca")
        self.options, self.required = options, required
        self.audit: Audit | None = None
        self.beyond: Callable[[Scope, Caller], str] = lambda scope, caller: ""  # why a request is not for its tenant
        self._callers: dict[str, Caller] = {}
        self._seen: tuple[int, int, int] | None = None
        self._refused = SparingBySource(*REFUSED_LINES)
        if options.tokens:
            self._callers, self._seen = read(options.tokens), stamp(options.tokens)

    def door(self, host: str) -> Door:
        """How to listen at an address. Raises AccessError if that would let everybody in unasked."""
        if _loopback(host) and not self.required:
            return LOOPBACK
        if self.options.open:
            return OPEN
        if self.options.tokens or self.options.client_ca:
            return GUARDED
        raise AccessError(
            f"REST would listen on {host}, where whoever reaches it could take paths. Give --rest-tokens FILE "
            "(rostrum manager token makes one), or --rest-tls with --rest-client-ca; or, if the network is private to "
            "the manager's users, --rest-open; or --listen 127.0.0.1"
        )

    def tls(self, door: Door) -> Trust | None:
        """For a door; None: plain HTTP, which loopback speaks. Raises AccessError."""
        if door is LOOPBACK or self.options.tls is None:
            return None
        certificate, key = self.options.tls
        return Trust((certificate, key, self.options.client_ca or certificate), self._context)

    def _context(self) -> ssl.SSLContext:
        assert self.options.tls
        certificate, key = self.options.tls
        try:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            made.minimum_version = ssl.TLSVersion.TLSv1_3 if self.required else ssl.TLSVersion.TLSv1_2
            certificates.take(made, certificate, key)
            if self.options.client_ca:
                certificates.trust(made, self.options.client_ca)
                # With tokens as well, either will do.
                made.verify_mode = ssl.CERT_OPTIONAL if self.options.tokens else ssl.CERT_REQUIRED
        except OSError as error:
            raise AccessError(f"--rest-tls {certificate} {key}: {error}") from error
        return made

    def reload(self) -> None:
        """Takes the token file again; one that cannot be read is told of, and what was known stays."""
        if self.options.tokens is None:
            return
        try:
            self._seen = stamp(self.options.tokens)
            self._callers = read(self.options.tokens)
            log.info(line("tokens read", file=self.options.tokens, callers=len(self._callers)))
        except AccessError as error:
            log.warning(line("tokens not read, the old ones stay valid", cause=error))

    def caller(self, scope: Scope) -> Caller | None:
        """Who calls; None = nobody known."""
        door = scope.get(DOOR, GUARDED)
        if door.caller:
            return Caller(door.caller.name, door.caller.tenant, door.caller.role)
        known_by_token = self.by_token(scope)
        shown = scope.get("state", {}).get(PEER)
        if shown and isinstance(known := self._certified(certificates.identity(shown)), Caller):
            return known
        return known_by_token

    def by_token(self, scope: Scope) -> Caller | None:
        """Whose token was sent, whether or not this door asks for one; None = none, or nobody's."""
        if self.options.tokens and stamp(self.options.tokens) != self._seen:
            self.reload()
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) == 1 and values[0][:7].lower() == b"bearer ":
            return self._callers.get("sha256:" + hashlib.sha256(values[0][7:].strip()).hexdigest())
        return None

    def _certified(self, shown: Identity) -> Caller | str:
        """Whom a certificate is taken for; or why for nobody. The CA signs for agents and switches too: it takes the
        role of an operator, or, with no role, a line in the token file.
        """
        role = next((one for one in RIGHTS if one in shown.roles), "")
        if shown.roles and not role:
            return (
                f"this certificate is for {shown}, and is worth nothing here: operators and readers have their own "
                '(subjectAltName=URI:rostrum:operator:NAME; docs/care.md, "Roles")'
            )
        name = shown.common_name or min(shown.names_as(role), default="")
        known = self._callers.get(f"tls:{name}")
        if known:
            return known
        if self.options.tokens:
            return f"this certificate is for {shown}, and --rest-tokens has no line with tls:{name}"
        if not shown.roles:
            return (
                f"this certificate is for {shown} and says no role: have it signed again with "
                f"subjectAltName=URI:rostrum:operator:{name or 'NAME'}, or give the manager --rest-tokens with a line "
                f'for tls:{name} (docs/care.md, "Roles")'
            )
        tenants = shown.names_as("tenant") if shown.roles else frozenset()
        return Caller(name, min(tenants, default=name), RIGHTS[role], listed=bool(tenants))

    def _note(self, file: Audit, scope: Scope, caller: Caller | None, status: int, place: str) -> None:
        shown, client = scope.get("state", {}).get(PEER), scope.get("client")
        certified = str(certificates.identity(shown)) if shown else ""
        peer = f"{client[0]}:{client[1]}" if client else ""
        facts: dict[str, Value] = {"tenant": caller.tenant if caller else "", "certificate": certified}
        facts |= {"target": scope["path"], "status": status, "made": place}
        file.note("rest", caller.name if caller else "unknown", peer, scope["method"], **facts)

    def _refusal(self, scope: Scope) -> Response:
        """Of a caller whom nobody knows."""
        shown = scope.get("state", {}).get(PEER)
        text = self._certified(certificates.identity(shown)) if shown and self.options.client_ca else None
        if isinstance(text, str):
            return problems.answer(403, f"{text}. Or {ASK}" if self.options.tokens else text)
        refusal = problems.answer(401, f"who are you? {ASK}")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    def around(self, app: ASGIApp, open_to_all: Collection[str] = ()) -> ASGIApp:
        """ASGI middleware: asks who calls, refuses who may not, writes the audit log. `open_to_all`: paths that whoever
        reaches a door may read.
        """

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            caller = self.caller(scope)
            scope[CALLER] = caller
            writes = scope["method"] not in READS
            status, place = 0, ""

            async def watched(message: Message) -> None:
                nonlocal status, place
                if message["type"] == "http.response.start":
                    status = message["status"]
                    headers = dict(message.get("headers", ()))
                    place = headers.get(b"location", b"").decode("latin-1")
                await send(message)

            refusal: Response | None = None
            if caller is None and (writes or scope["path"] not in open_to_all):
                refusal = self._refusal(scope)
            elif caller and writes and caller.role != "write":
                text = f"{caller.name} may only read; a token with role write is needed for {scope['method']}"
                refusal = problems.answer(403, text)
            elif caller and scope["path"] not in open_to_all and (text := self.beyond(scope, caller)):
                refusal = problems.answer(404 if text.startswith("there is no") else 403, text)
            try:
                await (refusal or app)(scope, receive, watched)
            finally:
                left_out = self._refused.may(_source(scope, caller), _now_s()) if writes and refusal else 0
                if writes and left_out is not None:
                    _audit(scope, caller, status, place, left_out)
                    if self.audit:
                        self._note(self.audit, scope, caller, status, place)

        return guarded


def _source(scope: Scope, caller: Caller | None) -> str:
    """Who causes lines about refused writes."""
    client = scope.get("client")
    return f"caller {caller.name}" if caller else str(client[0]) if client else ""


def _audit(scope: Scope, caller: Caller | None, status: int, place: str, left_out: int) -> None:
    client = scope.get("client")
    more = {"not_logged": left_out} if left_out else {}
    audit.info(
        line(
            "write",
            who=caller.name if caller else "unknown",
            tenant=caller.tenant if caller else "",
            peer=f"{client[0]}:{client[1]}" if client else "",
            method=scope["method"],
            target=scope["path"][:200],
            status=status or "none: the caller left",
            made=place,
            **more,
        )
    )


def read(file: Path) -> dict[str, Caller]:
    """Credential -> caller, from lines `NAME TENANT ROLE CREDENTIAL`. Raises AccessError that names the wrong line."""
    try:
        if file.stat().st_mode & 0o022:
            raise AccessError(f"{file} can be written by others; chmod 0640 it")
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"the token file cannot be read: {error}") from error
    found: dict[str, Caller] = {}
    for number, text in enumerate(lines, 1):
        fields = text.split("#")[0].split()
        if not fields:
            continue
        if len(fields) != 4 or not _credential(fields[3]):
            raise AccessError(f"{file} line {number}: write NAME TENANT read|write sha256:HEX (or tls:COMMON-NAME)")
        name, tenant, role, credential = fields
        if not NAME.fullmatch(name) or not NAME.fullmatch(tenant):
            raise AccessError(f"{file} line {number}: names and tenants have 1 to 64 of A-Z a-z 0-9 _ . @ -")
        if role not in ("read", "write"):
            raise AccessError(f"{file} line {number}: the role is {role[:20]}; it can be read or write")
        if credential in found or len(found) >= CREDENTIALS_MAX:
            raise AccessError(f"{file} line {number}: the same credential twice, or more than {CREDENTIALS_MAX} lines")
        found[credential] = Caller(name, tenant, "write" if role == "write" else "read", listed=True)
    return found


def new_token(file: Path, name: str, tenant: str, role: Role) -> str:
    """Adds a caller to a token file, made if need be. Returns the token: only its hash is kept. Raises AccessError."""
    if not NAME.fullmatch(name) or not NAME.fullmatch(tenant):
        raise AccessError("names and tenants have 1 to 64 of A-Z a-z 0-9 _ . @ -")
    if file.exists() and any(one.name == name for one in read(file).values()):
        raise AccessError(f"{file} has a caller {name} already; delete its line first, or choose another name")
    token = secrets.token_urlsafe(32)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        with os.fdopen(handle, "a") as out:
            out.write(f"{name} {tenant} {role} sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
    except OSError as error:
        raise AccessError(f"the token file cannot be written: {error}") from error
    return token


def _credential(text: str) -> bool:
    return bool(re.fullmatch(r"sha256:[0-9a-f]{64}|tls:\S{1,200}", text))


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
