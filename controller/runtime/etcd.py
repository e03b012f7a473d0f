"""An etcd cluster by the JSON gateway of its v3 API (etcd 3.4 and later): leases, transactions, ranges.

Endpoints are tried in turn, the one that answered last first. What an endpoint did not answer may happen all the same,
and later than what is asked next: everything asked here may be repeated without harm, and a change has its turn.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rostrum.controller import certificates
from rostrum.controller.certificates import Trust
from rostrum.controller.runtime.store import StoreError, StoreRefused

CALL_S = 1.0  # an endpoint answers within this, or the next one is asked
UNAVAILABLE = (4, 14)  # gRPC: late, or without its cluster; another member may do better
PASSING = ("leader", "too many requests")  # said of what another member, or the same one later, may do all the same
REMEDIES = {  # what etcd says -> what to do
    "database space exceeded": "compact, defragment and disarm the alarm with etcdctl, or raise --quota-backend-bytes",
    "request is too large": "raise etcd's --max-request-bytes",
    "permission denied": "let this certificate or user write under /rostrum",
    "CommonName of client": "beside users etcd takes certificates without a common name alone: rostrum pki issue "
    "manager --replace makes one",
}
LOGIN = "auth/authenticate"
EXPIRED = ("invalid auth token", "auth: revision in header is old")  # what it says of a token that is good no more
RANGE_ROWS = 2000  # of one answer


@dataclass(frozen=True)
class Row:
    key: str
    value: str
    created: int  # revision of the cluster at which the key was made


@dataclass(frozen=True)
class Turn:
    """A change happens once, and in order: the key `key` has the value `before` ("": it is not there), then `after`."""

    key: str
    before: str
    after: str


@dataclass(frozen=True)
class Tls:
    """PEM files: whom to trust, and who we are."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class User:
    name: str
    password: str = field(repr=False)


def read_user(file: Path) -> User:
    """From a file `NAME:PASSWORD` that others cannot read. Raises OSError that names what is wrong, and no password."""
    try:
        if file.stat().st_mode & 0o007:
            raise OSError("it is open to everybody on this machine; chmod 0640 it")
        name, colon, password = file.read_text().split("\n")[0].partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"--etcd-user {file}: {error}") from None
    if not name or not colon or not password:
        raise OSError(f"--etcd-user {file}: its first line is to be NAME:PASSWORD")
    return User(name, password)


class Etcd:
    """Raises StoreError when no endpoint answers, StoreRefused when one refuses."""

    def __init__(
        self, endpoints: Sequence[str], tls: Tls | None = None, strict: bool = False, user: User | None = None
    ) -> None:
        """`strict`: TLS 1.3. `user`: whom etcd knows this manager as, with a role of its own."""
        self._endpoints = [one.rstrip("/") for one in endpoints]
        self.revision = 0  # of the cluster, when it answered last
        self._trust = Trust((tls.certificate, tls.key, tls.ca), partial(_context, tls, strict)) if tls else None
        self._client = self._connected()
        self._user, self._token = user, ""

    async def close(self) -> None:
        await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(trust_env=False, verify=self._trust.context if self._trust else True)

    async def grant(self, ttl_s: int) -> int:
        """A lease of `ttl_s`, unless it is kept alive."""
        return int((await self._ask("lease/grant", {"TTL": ttl_s}))["ID"])

    async def keep_alive(self, lease: int, call_s: float = CALL_S) -> int:
        """Seconds the lease has from now; 0 = it is gone."""
        answer = await self._ask("lease/keepalive", {"ID": lease}, call_s)
        return int(answer.get("result", {}).get("TTL", 0))

    async def revoke(self, lease: int) -> None:
        await self._ask("lease/revoke", {"ID": lease})

    async def get(self, key: str) -> Row | None:
        answer = await self._ask("kv/range", {"key": _code(key)})
        rows = [_row(one) for one in answer.get("kvs", ())]
        return rows[0] if rows else None

    async def under(self, prefix: str) -> list[Row]:
        """All keys that begin with `prefix`, as of one revision."""
        rows: list[Row] = []
        first, revision = prefix, 0
        while True:
            wanted: dict[str, Any] = {"key": _code(first), "range_end": _code(_end(prefix)), "limit": RANGE_ROWS}
            answer = await self._ask("kv/range", {**wanted, "revision": revision} if revision else wanted)
            revision = revision or int(answer["header"]["revision"])
            rows += [_row(one) for one in answer.get("kvs", ())]
            if not answer.get("more"):
                return rows
            first = rows[-1].key + "\0"

    async def create(self, key: str, value: str, lease: int) -> None:
        """Makes the key, if it is not there, to live with the lease; `get` tells whose it is."""
        compare = [{"key": _code(key), "target": "CREATE", "create_revision": 0}]
        put = {"request_put": {"key": _code(key), "value": _code(value), "lease": lease}}
        await self._ask("kv/txn", {"compare": compare, "success": [put]})

    async def change(self, puts: Mapping[str, str], gone: Sequence[str], guard: Row, turn: Turn | None = None) -> bool:
        """All of it, if the key `guard` is still the one that was made then; False = it is not, and nothing changed.

        With a `turn`, what was asked twice because the answer got lost happens once, and nothing that comes late: not
        even after a later change.
        """
        mine = {"key": _code(guard.key), "target": "CREATE", "create_revision": guard.created}
        compare: list[dict[str, Any]] = [mine]
        orders: list[dict[str, Any]] = [
            {"request_put": {"key": _code(key), "value": _code(value)}} for key, value in puts.items()
        ]
        orders += [{"request_delete_range": {"key": _code(key)}} for key in gone]
        if turn:
            absent = {"target": "CREATE", "create_revision": 0}
            present = {"target": "VALUE", "value": _code(turn.before)}
            compare.append({"key": _code(turn.key), **(present if turn.before else absent)})
            orders.append({"request_put": {"key": _code(turn.key), "value": _code(turn.after)}})
        if (await self._ask("kv/txn", {"compare": compare, "success": orders})).get("succeeded"):
            return True
        if turn is None:
            return False
        done = {"key": _code(turn.key), "target": "VALUE", "value": _code(turn.after)}  # by the time before
        return bool((await self._ask("kv/txn", {"compare": [mine, done], "success": []})).get("succeeded"))

    async def compact(self, revision: int) -> None:
        """What was replaced or deleted before `revision` is forgotten."""
        await self._ask("kv/compaction", {"revision": revision})

    async def _ask(self, what: str, body: Mapping[str, Any], call_s: float | None = None) -> Any:
        if self._trust and self._trust.renew():
            await self._client.aclose()
            self._client = self._connected()
        if self._user and not self._token and what != LOGIN:
            await self._log_in(self._user)
        wrong = []
        for endpoint in list(self._endpoints):
            try:
                headers = {"Authorization": self._token} if self._token else {}
                url, bound_s = f"{endpoint}/v3/{what}", call_s or CALL_S
                answer = await self._client.post(url, json=body, timeout=bound_s, headers=headers)
                value: Any = answer.text.strip() if _is_text(answer) else answer.json()
            except (httpx.HTTPError, OSError, ValueError) as error:  # OSError: a certificate that is refused late
                wrong.append(f"{endpoint}: {str(error) or type(error).__name__}")
                self._put_last(endpoint)
                continue
            if answer.is_success:
                self.revision = int(value.get("header", {}).get("revision", self.revision))
                return value
            text = value.get("message") or value.get("error") if isinstance(value, dict) else value
            code = value.get("code") if isinstance(value, dict) else None
            if self._token and any(one in str(text) for one in EXPIRED) and what != LOGIN:
                self._token = ""  # etcd forgets tokens after some minutes, and when it starts again
                return await self._ask(what, body, call_s)
            if code not in UNAVAILABLE and not any(one in str(text) for one in PASSING):
                raise StoreRefused(f"etcd at {endpoint} refused {what}: {text}{_remedy(str(text))}")
            wrong.append(f"{endpoint}: {text}")
            self._put_last(endpoint)
        raise StoreError(f"no etcd answers ({'; '.join(wrong)})")

    async def _log_in(self, user: User) -> None:
        self._token = str((await self._ask(LOGIN, {"name": user.name, "password": user.password}))["token"])

    def _put_last(self, endpoint: str) -> None:
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            self._endpoints.append(endpoint)


def _is_text(answer: httpx.Response) -> bool:
    """It refuses in words before its API has seen the request."""
    return answer.is_client_error and answer.headers.get("Content-Type", "").startswith("text/plain")


def _remedy(text: str) -> str:
    return next((f"; {remedy}" for said, remedy in REMEDIES.items() if said in text), "")


def _context(tls: Tls, strict: bool) -> ssl.SSLContext:
    """Raises OSError naming the option."""
    try:
        made = ssl.create_default_context(cafile=tls.ca)
        if strict:
            made.minimum_version = ssl.TLSVersion.TLSv1_3
        certificates.take(made, tls.certificate, tls.key)
    except OSError as error:
        raise OSError(f"--etcd-tls {tls.ca} {tls.certificate} {tls.key}: {error}") from error
    return made


def _code(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _row(row: Mapping[str, Any]) -> Row:
    value = base64.b64decode(row.get("value", "")).decode()
    return Row(base64.b64decode(row["key"]).decode(), value, int(row["create_revision"]))


def _end(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
