"""The TL1 face of the emulated OCS: TCP sessions, login, and commands handed to the switch's dialect.

Made for programs and for a person with telnet alike: no echo, a `<` prompt, refusals as text. Everything has a bound:
connections, sessions, a command's length, commands in progress, what a slow client may leave unread, and the time a
connection may stand open without a login.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, cast

from rostrum.controller.core.model import CrossConnect
from rostrum.controller.southbound.ocs.connection import keep_alive
from rostrum.controller.southbound.ocs.tl1 import (
    MAX_COMMAND_BYTES,
    Answer,
    Autonomous,
    Command,
    Framer,
    Tl1Error,
    format_answer,
    format_autonomous,
    parse_command,
)
from rostrum.lab.ocs.engine import EFFECTS, Effects, Engine
from rostrum.topologies import secrets

log = logging.getLogger(__name__)

MAX_SESSIONS = 16  # logged in, as the switches it stands for
MAX_CONNECTIONS = 64
MAX_IN_PROGRESS = 64  # commands of one connection that are not answered yet
COMMANDS_MAX = 1000  # of the log
COMMAND_CHARACTERS = 200
MAX_UNREAD_BYTES = 4 * 1_048_576
LOGIN_S = 120.0
VERDICTS = {"COMPLD": "done", "PRTL": "partly", "DENY": "refused"}

Handler = Callable[[Engine, Command], Awaitable[Answer]]


class Refusal(Exception):
    """A command is denied: TL1's four-letter code, and why as text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Dialect(Protocol):
    """One manufacturer's way of putting things."""

    name: str
    handlers: Mapping[str, Handler]

    def report(self, engine: Engine, changed: CrossConnect, atag: str) -> Autonomous:
        """What the switch says of itself when a cross-connect becomes STEADY or goes to FAULT."""


@dataclass
class LogEntry:
    """One command, for who judges what several clients did to the switch. Times are CLOCK_MONOTONIC in ns. `session`: a
    number of its connection, not used again; `peer`: its other end. `verdict`: `done`, `partly` (some pairs) or
    `refused`, and `error` says why; `pending` before there is an answer; `lost`: the connection went before.
    """

    at_ns: int
    session: int
    peer: str
    command: str
    verdict: str = "pending"
    error: str = ""
    answered_ns: int = 0
    effects: Effects = field(default_factory=Effects)

    def as_dict(self) -> dict[str, Any]:
        return {
            "at_ns": self.at_ns,
            "session": self.session,
            "from": self.peer,
            "command": self.command,
            "verdict": self.verdict,
            "error": self.error,
            "answered_ns": self.answered_ns,
            "made": [[pair.input, pair.output] for pair in self.effects.made],
            "removed": [[pair.input, pair.output] for pair in self.effects.removed],
        }


class Server:
    """Serves one emulated OCS on one TCP address."""

    def __init__(self, engine: Engine, dialect: Dialect, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: as of a wrapper before the device; None: TL1 in clear. Raises SecretError."""
        self.engine, self._tls = engine, tls
        self.password = secrets.password(engine.ocs)
        self.dialect = dialect
        self.sessions: set[Session] = set()
        self.commands: deque[LogEntry] = deque(maxlen=COMMANDS_MAX)
        self._numbers = itertools.count(1)
        self._atags = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._stop_listening = engine.listen(self._announce)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(lambda: Session(self), host, port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._stop_listening()
        if self._server is not None:
            self._server.close()
        self.drop_sessions()
        if self._server is not None:
            await self._server.wait_closed()

    def drop_sessions(self) -> int:
        """Cut every connection, as a crash of the switch's controller card would; returns how many there were."""
        sessions = list(self.sessions)
        for session in sessions:
            session.abort()
        return len(sessions)

    def logged_in(self) -> int:
        return sum(1 for session in self.sessions if session.user)

    def next_session(self) -> int:
        return next(self._numbers)

    def header(self) -> str:
        return f"{self.engine.ocs.name} {datetime.now():%y-%m-%d %H:%M:%S}"

    def _announce(self, changed: list[CrossConnect]) -> None:
        for one in changed:
            message = self.dialect.report(self.engine, one, str(next(self._atags)))
            for session in tuple(self.sessions):
                if session.user:
                    session.write(format_autonomous(message, self.header()))


class Session(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, server: Server) -> None:
        self.user = ""
        self.number = server.next_session()
        self._server = server
        self._framer = Framer(MAX_COMMAND_BYTES)
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._login_timer: asyncio.TimerHandle | None = None

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport)  # a session whose client vanished must not hold one of the few for ever
        engine = self._server.engine
        if len(self._server.sessions) >= MAX_CONNECTIONS:
            self.write(f"{engine.ocs.name}: {MAX_CONNECTIONS} connections are open already\r\n;\r\n")
            self._transport.close()
            return
        self._server.sessions.add(self)
        self._login_timer = asyncio.get_running_loop().call_later(LOGIN_S, self._late)
        self.write(
            f"\r\nrostrum emulated OCS {engine.ocs.name}, {engine.ocs.ports} ports, TL1 in the style of "
            f"{self._server.dialect.name}.\r\nLog in with ACT-USER::user:1::password;  HELP; lists the commands.\r\n< "
        )

    def data_received(self, data: bytes) -> None:
        for item in self._framer.feed(data):
            entry = self._note(item)
            if self._transport is None or self._transport.is_closing():
                return
            try:
                if isinstance(item, Tl1Error):
                    raise item
                command = parse_command(item[0])
            except Tl1Error as error:
                self._answer(Answer("0", "DENY", error="IICM", text=str(error)), entry)
                continue
            if len(self._tasks) >= MAX_IN_PROGRESS:
                text = f"{MAX_IN_PROGRESS} commands of this connection are in progress; wait for their answers"
                self._answer(Answer(command.ctag or "0", "DENY", error="SARB", text=text), entry)
                continue
            task = asyncio.create_task(self._perform(command, entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.sessions.discard(self)
        if self._login_timer is not None:
            self._login_timer.cancel()
        for task in self._tasks:
            task.cancel()

    # ours

    def write(self, text: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(text.encode("ascii", "replace"))
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            log.warning("%s: dropped a client that does not read", self._server.engine.ocs.name)
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _note(self, item: tuple[str, str] | Tl1Error) -> LogEntry:
        """As it came in, for who looks for the order of what several clients asked."""
        text = "(no command)" if isinstance(item, Tl1Error) else item[0].strip()[:COMMAND_CHARACTERS]
        peer = self._transport.get_extra_info("peername") if self._transport else None
        where = f"{peer[0]}:{peer[1]}" if peer else "?"
        shown = text.split(":")[0] if text.startswith("ACT-USER") else text  # no passwords
        entry = LogEntry(self._server.engine.now(), self.number, where, shown)
        self._server.commands.append(entry)
        return entry

    def _answer(self, answer: Answer, entry: LogEntry) -> None:
        entry.verdict, entry.answered_ns = VERDICTS[answer.code], self._server.engine.now()
        if answer.code != "COMPLD":
            entry.error = f"{answer.error}: {answer.text}"[:COMMAND_CHARACTERS]
        self.write(format_answer(answer, self._server.header()) + "< ")

    def _late(self) -> None:
        if not self.user and self._transport is not None:
            self.write(f"\r\nno login within {LOGIN_S:g} s; good bye\r\n;\r\n")
            self._transport.close()

    async def _perform(self, command: Command, entry: LogEntry) -> None:
        ctag = command.ctag or "0"
        EFFECTS.set(entry.effects)
        try:
            answer = await self._handle(command)
        except Refusal as refusal:
            answer = Answer(ctag, "DENY", error=refusal.code, text=str(refusal))
        except Tl1Error as error:
            answer = Answer(ctag, "DENY", error="IDNV", text=str(error))
        except Exception as error:  # a mistake of ours shall cost one command, not the switch
            log.exception("%s: %s failed", self._server.engine.ocs.name, command.verb)
            answer = Answer(ctag, "DENY", error="SROF", text=f"internal error: {error!r}")
        except asyncio.CancelledError:
            entry.verdict, entry.answered_ns = "lost", self._server.engine.now()
            raise
        self._answer(answer, entry)
        if command.verb == "CANC-USER" and answer.code == "COMPLD" and self._transport is not None:
            self._transport.close()

    async def _handle(self, command: Command) -> Answer:
        ctag = command.ctag or "0"
        if command.verb == "ACT-USER":
            return self._login(command, ctag)
        if command.verb == "HELP":
            known = ["ACT-USER", "CANC-USER", "RTRV-HDR", *sorted(self._server.dialect.handlers)]
            return Answer(ctag, "COMPLD", text="commands: " + ", ".join(known))
        if not self.user:
            raise Refusal("PLNA", "log in first: ACT-USER::user:1::password;")
        if command.verb == "CANC-USER":
            self.user = ""
            return Answer(ctag, "COMPLD")
        if command.verb == "RTRV-HDR":
            return Answer(ctag, "COMPLD")
        await asyncio.sleep(self._server.engine.model.delay_s())
        handler = self._server.dialect.handlers.get(command.verb)
        if handler is None:
            raise Refusal("ICNV", f"{command.verb} is not a command of this switch; HELP; lists them")
        return await handler(self._server.engine, command)

    def _login(self, command: Command, ctag: str) -> Answer:
        ocs = self._server.engine.ocs
        given = next((block for block in reversed(command.blocks) if block), "").strip('"')
        user_ok = hmac.compare_digest(command.aid.strip('"').encode(), ocs.user.encode())
        password_ok = hmac.compare_digest(given.encode(), self._server.password.encode())
        if not (user_ok and password_ok):
            raise Refusal("PIUC", "user or password is wrong")
        if not self.user and self._server.logged_in() >= MAX_SESSIONS:
            raise Refusal("SARB", f"all {MAX_SESSIONS} sessions are in use")
        self.user = command.aid
        if self._login_timer is not None:
            self._login_timer.cancel()
        return Answer(ctag, "COMPLD")
