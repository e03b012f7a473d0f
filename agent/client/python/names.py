"""Where agents listen, and how objects are named by people."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TypeGuard
from uuid import NAMESPACE_URL, UUID, uuid5

from rostrum.topologies.places import labs_folder

from .values import Code, RostrumError

#: Application id of the `rostrum` command, so that what one `rostrum send` sends another `rostrum read` finds.
COMMAND_APP_ID = uuid5(NAMESPACE_URL, "rostrum:command")

SYSTEM_SOCKET = Path("/run/rostrum/agent.sock")
DEFAULT_LAB = "lab"  # what `rostrum lab up` calls it
NAMED_MAX = 16  # servers in an error's text
DATA_ID_MAX = 2**64 - 1
NAMES_MAX = 4096
_NUMBER = re.compile(r"(?<![\w/])(?:[0-9a-f]{8}(?:-[0-9a-f-]{27})?/)?(\d{1,20})(?!\w)")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        try:
            link.connect(str(path))
        except OSError:
            return False
    return True


def agent_socket(server: str | None = None, lab: str | None = None) -> Path:
    """The agent's socket: of `server` in a lab: `lab`, or the only one that has it, or else the one called "lab".

    With neither: $ROSTRUM_SOCKET, else the system's agent, else the only lab server there is.

    Raises:
        RostrumError: it cannot be told which one; the text lists the choices.
    """
    if server is None and lab is None:
        given = os.environ.get("ROSTRUM_SOCKET")
        if given:
            return Path(given)
        if SYSTEM_SOCKET.exists():
            return SYSTEM_SOCKET
    there = labs_folder().glob("*/*/agent.sock")
    found = sorted(path for path in there if lab in (None, _lab(path)) and server in (None, path.parent.name))
    if server is None and lab is None:  # a lab that was killed left its sockets: nobody means these
        found = [path for path in found if _answers(path)]
    if len(found) > 1:
        found = [path for path in found if _answers(path)] or found
        found = [path for path in found if _lab(path) == DEFAULT_LAB] or found
    if len(found) == 1:
        return found[0]
    if server is None and lab is None and not found:
        return SYSTEM_SOCKET
    if not found:
        raise RostrumError(_not_found(server, lab), Code.UNAVAILABLE)
    servers = sorted({path.parent.name for path in found})
    choices = sorted({_lab(path) for path in found})
    if len(choices) > 1:
        raise RostrumError(f"several labs are there; say which with --lab: {', '.join(choices)}", Code.INVALID)
    raise RostrumError(
        f"say which agent with --server: {', '.join(servers)} (or --socket PATH, or $ROSTRUM_SOCKET)", Code.INVALID
    )


def _not_found(server: str | None, lab: str | None) -> str:
    """What is there instead of that server, or that lab."""
    there = sorted(labs_folder().glob("*/*/agent.sock"))
    labs = sorted({_lab(path) for path in there})
    if not there:
        return f"no lab runs here ({labs_folder()}): start one with rostrum lab up, or name an agent with --socket PATH"
    if lab and lab not in labs:
        return f"there is no lab {lab} under {labs_folder()}; there is: {', '.join(labs)}"
    found = sorted({path.parent.name for path in there if lab in (None, _lab(path))}, key=_by_number)
    more = f", and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    where = f"lab {lab}" if lab else f"lab {labs[0]}" if len(labs) == 1 else f"any lab ({', '.join(labs)})"
    return f"{server} is no server of {where}; those with an agent: {', '.join(found[:NAMED_MAX])}{more}"


def _lab(path: Path) -> str:
    """Of an agent's socket."""
    return path.parent.parent.name


def _by_number(name: str) -> tuple[str, int, str]:
    """h2 before h10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name[: len(name) - len(digits)], int(digits or 0), name


def data_id_of(name: str | int) -> int:
    """The dataID that `name` stands for: a number (decimal, or 0x...) is itself, other text is its BLAKE2b of 8 bytes.

    Raises:
        RostrumError: a number outside 0 ... 2**64 - 1, or no text, or text that is no UTF-8 (of a file's name).
    """
    value: int | None = name if isinstance(name, int) else None
    if isinstance(name, str):
        if not name:
            raise RostrumError("a data id is a number or a name, not nothing", Code.INVALID)
        try:
            value = int(name, 0)
        except ValueError:
            value = int.from_bytes(hashlib.blake2b(_utf8(name), digest_size=8).digest(), "little")
    if value is None or not 0 <= value <= DATA_ID_MAX:
        raise RostrumError(f"{name} is not a data id: numbers go from 0 to 2**64 - 1", Code.INVALID)
    return value


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise RostrumError(f"{name!a} is no UTF-8, as names are: give the object another (--data-id)",
                           Code.INVALID) from None  # fmt: skip


def has_name(data_id: int | str) -> TypeGuard[str]:
    """Whether it is a name, and no number."""
    return isinstance(data_id, str) and not is_number(data_id)


def is_number(name: str) -> bool:
    """Whether data_id_of takes it for the number itself."""
    try:
        int(name, 0)
    except ValueError:
        return False
    return True


def app_id_of(text: str | UUID | bytes | None) -> UUID:
    """The application id: a UUID, its text, its 16 bytes, or None for the command's own.

    Raises:
        RostrumError: it is none of these.
    """
    if text is None:
        return COMMAND_APP_ID
    try:
        if isinstance(text, UUID):
            return text
        return UUID(bytes=text) if isinstance(text, bytes) else UUID(text)
    except ValueError as error:
        raise RostrumError(f"{text!r} is not an application id (a UUID)", Code.INVALID) from error


def servers_of(names: str | Iterable[str]) -> list[str]:
    """A list of servers; text is one, or several with commas between them.

    Raises:
        RostrumError: it has something else.
    """
    found = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) and name for name in found):
        raise RostrumError(f"servers are named by text, such as ['h3', 'h5'], not {names!r:.60}", Code.INVALID)
    return found


class ObjectNames:
    """Names that were turned into numbers: what the agent says of a number is told with its name again."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def number(self, name: int | str) -> int:
        """The dataID, as of `data_id_of`; a name is remembered (the last NAMES_MAX of them)."""
        number = data_id_of(name)
        if isinstance(name, str) and not name.isdigit():
            self._names[number] = name
            if len(self._names) > NAMES_MAX:
                del self._names[next(iter(self._names))]
        return number

    def name(self, number: int) -> str:
        return self._names.get(number, str(number))

    def text(self, text: str) -> str:
        """The agent's text, with names instead of application and number."""
        return _NUMBER.sub(lambda found: self._names.get(int(found[1]), found[0]), text) if self._names else text
