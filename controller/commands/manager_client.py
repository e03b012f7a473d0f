"""Which manager answers a command: one of those that are named, or the leader that a standby points to."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx
from rostrum.topologies.places import labs_folder

CONNECT_S = 3.0
TAKEOVER_S = 12.0  # while one stands by and none leads: a lease, an election, and reading its records
REFUSED_S = 3.0  # of several, none may listen for a moment: one has gone, another is taking over
LOOK_S = 0.4  # between two looks for a leader
HOPS_MAX = 3
LAB = "lab"  # when none is named
SYSTEM_SOCKET = Path("/run/rostrum-manager/manager.sock")


class Managers:
    """Those of one topology, asked in turn until one answers as the leader, which is asked first from then on."""

    def __init__(self, named: str | None, lab: str) -> None:
        """`named`: URLs, addresses or sockets, with commas between; else the managers of a running lab, or, where no
        lab was named and none of that name runs, this machine's, or the only lab's.
        """
        self.places = [_place(one.strip()) for one in named.split(",") if one.strip()] if named else []
        self.places = self.places or _running(lab) or (_of_system() or _of_only_lab() if lab == LAB else [])
        is_lab = lab != LAB or (labs_folder() / lab).is_dir()
        self.places = self.places or (_of_lab(lab)[:1] if is_lab else [str(SYSTEM_SOCKET)])
        self._clients: dict[str, httpx.Client] = {}

    @property
    def where(self) -> str:
        return self.places[0]

    def request(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any],
        timeout_s: float,
        away_s: float = 0.0,
        tell: Callable[[str], None] = lambda text: None,
    ) -> httpx.Response:
        """What the leader answers. `away_s`: how long one that is away is waited for; `tell` gets the text of that,
        once. Raises httpx.HTTPError, of the last one that was tried, when none does.
        """
        # Whoever does not answer may have heard it all the same: the next one must not do it again.
        headers = {"Idempotency-Key": str(uuid.uuid4())} if (method, path) == ("POST", "/v1/paths") else {}
        bounds = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        began = time.monotonic()
        told, away_s = False, away_s if any(map(_may_come_back, self.places)) else 0.0
        while True:
            answer, failure, standing = self._ask_each(method, path, body, query, headers, bounds, away_s > 0)
            if answer is not None:
                return answer
            timeout = TAKEOVER_S if standing is not None else REFUSED_S if len(self.places) > 1 else 0.0
            if failure is not None and standing is None and away_s > timeout:
                timeout = away_s
                if not told:
                    tell(f"waiting for the manager at {' or '.join(self.places)}, {away_s:g} s at most: {failure}")
                told = True
            if time.monotonic() >= began + timeout:
                if standing is not None:
                    return standing
                assert failure is not None
                raise failure
            time.sleep(LOOK_S)

    def _ask_each(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any],
        headers: dict[str, str],
        bounds: httpx.Timeout,
        again: bool = False,
    ) -> tuple[httpx.Response | None, httpx.HTTPError | None, httpx.Response | None]:
        """The leader's answer; else why the last one did not answer, and what somebody said who stands by. `again`: all
        are asked once more if none answers.
        """
        failure: httpx.HTTPError | None = None
        standing: httpx.Response | None = None
        places, asked = list(self.places), set[str]()
        safe = method != "POST" or bool(headers)
        while places and len(asked) < len(self.places) + HOPS_MAX:
            place = places.pop(0)
            if place in asked:
                continue
            asked.add(place)
            try:
                client = self._client(place)
                answer = client.request(method, path, json=body, params=query, headers=headers, timeout=bounds)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
                continue
            except httpx.HTTPError as error:
                failure = error
                if safe and (again or len(self.places) > 1) and not isinstance(error, httpx.ReadTimeout):
                    continue
                raise
            if answer.status_code == 307:
                standing = answer
                leader = _origin(answer.headers.get("Location", ""))
                if place.startswith("https:") and not leader.startswith("https:"):
                    leader = ""  # the token is not for everybody's eyes
                # From outside a lab its sockets can be reached, and its addresses not.
                places[: 0 if place.startswith("http") else len(places)] = [leader] if leader else []
            elif answer.status_code == 503 and "Retry-After" in answer.headers:
                standing = answer
            else:
                self._prefer(place)
                return answer, None, None
        return None, failure, standing

    def _prefer(self, place: str) -> None:
        with contextlib.suppress(ValueError):
            self.places.remove(place)
        self.places.insert(0, place)

    def _client(self, place: str) -> httpx.Client:
        if place not in self._clients:
            self._clients[place] = _connect(place)
        return self._clients[place]


def _place(name: str) -> str:
    """A unix socket's path, a folder with manager.sock, or a URL. Raises click.ClickException."""
    if name.startswith(("/", ".", "~")):
        return name
    place = name if "://" in name else f"http://{name}"
    try:
        parts = urlsplit(place)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of what is in brackets, or the port
        known = False
    if not known or re.search(r"\s", place):
        raise click.ClickException(
            f"{name!r} names no manager: a URL (http://10.255.0.1:8080), an ADDRESS:PORT or a socket's path does"
        )
    return place


def _may_come_back(place: str) -> bool:
    """Not one of a lab that does not run."""
    return place.startswith("http") or Path(place).expanduser().parent.is_dir()


def _of_lab(lab: str) -> list[str]:
    """Its managers' sockets: those in its folder, the first manager's in any case."""
    run = labs_folder() / lab
    first = run / "manager.sock"
    return [str(one) for one in dict.fromkeys([first, *sorted(run.glob("manager[0-9]*/manager.sock"))])]


def _running(lab: str) -> list[str]:
    """Those sockets of a lab that are there; the first manager's too when another one's is, since it may come back."""
    places = _of_lab(lab)
    return places if len(places) > 1 or Path(places[0]).exists() else []


def _of_only_lab() -> list[str]:
    """The managers of the lab that runs, if it is one."""
    found = [one.parent.name for one in labs_folder().glob("*/manager.sock")]
    return _running(found[0]) if len(found) == 1 else []


def _of_system() -> list[str]:
    """The socket of the manager that systemd runs here (docs/systemd). Raises click.ClickException."""
    try:
        return [str(SYSTEM_SOCKET)] if SYSTEM_SOCKET.exists() else []
    except PermissionError as error:
        raise click.ClickException(
            f"a manager runs here, and {SYSTEM_SOCKET.parent} is for its group: become a member of that (usermod -aG "
            "rostrum USER), be root, or name its address with --manager and a token in $ROSTRUM_TOKEN"
        ) from error


def _origin(location: str) -> str:
    """http://10.255.0.1:8080 of a longer address; "" if it is none of the web."""
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") and parts.netloc else ""


def _connect(place: str) -> httpx.Client:
    if place.startswith("http"):
        token = _token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        verify = _tls() if place.startswith("https") else True
        return httpx.Client(base_url=place, trust_env=False, headers=headers, verify=verify)
    socket = Path(place).expanduser()
    if socket.is_dir():
        socket = socket / "manager.sock"
    return httpx.Client(base_url="http://manager", transport=httpx.HTTPTransport(uds=str(socket)))


def _token() -> str:
    """$ROSTRUM_TOKEN, else what is in the file $ROSTRUM_TOKEN_FILE. Raises click.ClickException."""
    where, file = "ROSTRUM_TOKEN", os.environ.get("ROSTRUM_TOKEN_FILE")
    token = os.environ.get(where, "").strip()
    if file and not token:
        where += "_FILE"
        try:
            token = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"{where}: {error}") from error
    if re.search(r"[^!-~]", token):
        raise click.ClickException(f"{where}: a token is one word of ASCII, as rostrum manager token prints it")
    return token


def _tls() -> ssl.SSLContext:
    """For https: $ROSTRUM_CA is whom to trust (default: the system's); $ROSTRUM_CERT and $ROSTRUM_KEY are ours."""
    try:
        made = ssl.create_default_context(cafile=os.environ.get("ROSTRUM_CA"))
        if os.environ.get("ROSTRUM_CERT"):
            made.load_cert_chain(os.environ["ROSTRUM_CERT"], os.environ.get("ROSTRUM_KEY"))
    except (OSError, ssl.SSLError) as error:
        raise click.ClickException(f"ROSTRUM_CA, ROSTRUM_CERT or ROSTRUM_KEY: {error}") from error
    return made
