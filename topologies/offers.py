"""What a shell offers behind TAB besides commands and options: experiments and their options, and labs, servers, groups
and paths of what runs here. What cannot be known at once is not offered, and nothing is said about it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, _resolve_incomplete
from rostrum.topologies.places import labs_folder

if TYPE_CHECKING:
    from http.client import HTTPConnection

ANSWER_S = 0.5  # a person waits at the key
SYSTEM_SOCKET = Path("/run/rostrum-manager/manager.sock")
ROWS = 1000
Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def labs(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Labs that run."""
    return _fitting((one.parent.name for one in labs_folder().glob("*/manager.sock")), begun)


def servers(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Servers of the lab, else of the manager's topology; of a list the one behind the last comma."""
    return _servers(context, context.params.get("lab"), begun)


def servers_of_named(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """As `servers`, where --name says which lab."""
    return _servers(context, context.params.get("name"), begun)


def _servers(context: click.Context, lab: str | None, begun: str) -> list[CompletionItem]:
    there = labs_folder().glob("*/*/agent.sock")
    found = {one.parent.name for one in there if not lab or one.parent.parent.name == lab}
    if not found:
        found = {one["name"] for one in _asked(context, "/v1/topology", "servers")}
    before, comma, last = begun.rpartition(",")
    return [CompletionItem(f"{before}{comma}{one.value}") for one in _fitting(found, last)]


def groups(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Message groups."""
    return _fitting((one["name"] for one in _asked(context, f"/v1/groups?limit={ROWS}", "groups")), begun)


def paths(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Paths that are there."""
    rows = _asked(context, f"/v1/paths?limit={ROWS}", "paths")
    return _fitting((one["id"] for one in rows if one["state"] not in ("released", "failed")), begun)


def nodes(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Switches of the manager's topology."""
    return _fitting((one["name"] for one in _asked(context, "/v1/switches", "switches")), begun)


class Choosing(click.Command):
    """A command that runs another one of `known`, with that one's own arguments."""

    known: Callable[[], dict[str, click.Command]] = dict

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        name, *given = ctx.params.get("arguments") or [""]
        known = type(self).known()
        if not name:
            return [
                CompletionItem(one, help=known[one].get_short_help_str()) for one in known if one.startswith(incomplete)
            ]
        if name not in known:
            return []
        inner = known[name].make_context(name, [*given], resilient_parsing=True)
        part, incomplete = _resolve_incomplete(inner, given, incomplete)
        return part.shell_complete(inner, incomplete)


def choosing(known: Callable[[], dict[str, click.Command]]) -> type[Choosing]:
    """The class of such a command, for `cls=`; its argument has `shell_complete=chosen`."""
    return type("Choosing", (Choosing,), {"known": staticmethod(known)})


def chosen(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    return context.command.shell_complete(context, begun)


def _fitting(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in sorted(names) if one.startswith(begun)]


def _asked(context: click.Context, path: str, rows: str) -> list[dict[str, Any]]:
    """What the manager that the command would ask tells; nothing if it does not at once."""
    from http.client import HTTPException  # here and below: commands that a person has typed need not wait for it

    with contextlib.suppress(OSError, ValueError, KeyError, HTTPException):
        asked = _connection(context)
        with contextlib.closing(asked):
            token = os.environ.get("ROSTRUM_TOKEN", "").strip()
            asked.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            found = json.loads(asked.getresponse().read())[rows]
            return list(found)
    return []


def _connection(context: click.Context) -> HTTPConnection:
    import socket
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.parse import urlsplit

    class Local(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(ANSWER_S)
            self.sock.connect(str(place / "manager.sock" if place.is_dir() else place))

    named = str(context.params.get("manager") or os.environ.get("ROSTRUM_MANAGER") or "").split(",")[0].strip()
    if named and not named.startswith(("/", ".", "~")):
        parts = urlsplit(named if "://" in named else f"http://{named}")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=ANSWER_S)
    place = Path(named).expanduser() if named else _socket(str(context.params.get("lab") or "lab"))
    return Local("manager", timeout=ANSWER_S)


def _socket(lab: str) -> Path:
    """The named lab's, else this machine's, else the only lab's."""
    own = labs_folder() / lab / "manager.sock"
    if own.exists() or lab != "lab":
        return own
    found = list(labs_folder().glob("*/manager.sock"))
    return found[0] if len(found) == 1 and not SYSTEM_SOCKET.exists() else SYSTEM_SOCKET
