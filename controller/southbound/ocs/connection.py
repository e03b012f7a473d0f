"""One TCP connection to a TL1 switch: commands out, answers matched to them by ctag, autonomous messages handed on."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.runtime.run_clock import Within
from rostrum.controller.southbound.ocs.tl1 import (
    MAX_MESSAGE_BYTES,
    Answer,
    Autonomous,
    Command,
    Framer,
    Tl1Error,
    parse_message,
)
from rostrum.controller.southbound.tls import check_name, why

log = logging.getLogger(__name__)

CONNECT_S = 3.0
ANSWER_S = 3.0  # what no reconfiguration delays
MAX_IN_PROGRESS = 32  # commands sent and not answered; more wait their turn
MAX_ROWS = 65_536  # of one answer in parts
MAX_ANSWER_CHARACTERS = 16 << 20  # in these: 256 a row, twice what a switch says of a cross-connect


ORDERS = ("ENT-", "DLT-")  # verbs that change something

UNSENT_MS = 400  # of who may be deposed: what the switch's TCP has not taken by then is given up with the connection

MayOrder = Callable[[], bool]


class AnswerTimeout(SouthboundError):
    """The switch is connected but did not answer a command in time."""


@dataclass
class _Asked:
    done: asyncio.Future[Answer]
    rows: list[str] = field(default_factory=list)
    characters: int = 0  # in them


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have TCP end the connection some 25 s after the far side went away without a message."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Tl1Connection(asyncio.Protocol):
    """Use `open_connection`. `lost` is done, with the cause as text, when the connection has ended. `may_order`: asked
    when a command that changes something is about to leave. A TL1 switch cannot tell a deposed manager from its
    successor, so whoever may be deposed has to keep silent.
    """

    def __init__(
        self, name: str, on_autonomous: Callable[[Autonomous], None], may_order: MayOrder | None = None
    ) -> None:
        self.name = name
        self._may_order = may_order
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_autonomous = on_autonomous
        self._transport: asyncio.Transport | None = None
        self._framer = Framer(MAX_MESSAGE_BYTES, b";>")
        self._ctags = itertools.count(1)
        self._asked: dict[str, _Asked] = {}
        self._turns = asyncio.Semaphore(MAX_IN_PROGRESS)

    async def ask(self, command: Command, timeout_s: float = ANSWER_S) -> Answer:
        """Send a command and return its whole answer, whatever its code. Raises AnswerTimeout, or SouthboundError when
        the connection ends meanwhile: what the switch has done is then not known."""
        async with self._turns:
            ctag = str(next(self._ctags))
            asked = _Asked(asyncio.get_running_loop().create_future())
            if self._transport is None or self._transport.is_closing():
                raise SouthboundError(f"{self.name}: not connected, cannot send {command.verb}")
            if self._may_order and command.verb.startswith(ORDERS) and not self._may_order():
                raise SouthboundError(f"{self.name}: {command.verb} not sent: this manager may lead no more")
            self._asked[ctag] = asked
            self._transport.write(f"{replace(command, ctag=ctag)}\r\n".encode("ascii", "replace"))
            try:
                async with Within(timeout_s):
                    answer = await asked.done
            except TimeoutError:
                raise AnswerTimeout(f"{self.name} did not answer {command.verb} within {timeout_s:.3g} s") from None
            finally:
                self._asked.pop(ctag, None)
            return replace(answer, rows=tuple(asked.rows))

    def drop(self, cause: str) -> None:
        if not self.lost.done():
            self.lost.set_result(cause)
        if self._transport is not None:
            self._transport.abort()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by its class
        keep_alive(transport)
        if self._may_order:
            # A network that comes back must not deliver what was ordered by one who has a successor by now.
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT_MS)

    def data_received(self, data: bytes) -> None:
        for item in self._framer.feed(data):
            if isinstance(item, Tl1Error):
                log.warning("%s: %s", self.name, item)
                self.drop(f"it sent something that is not TL1: {item}")
                return
            message = parse_message(*item)
            if isinstance(message, Answer):
                self._answered(message)
            elif isinstance(message, Autonomous):
                self._on_autonomous(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        cause = f"connection lost: {error}" if error else "the switch closed the connection"
        if not self.lost.done():
            self.lost.set_result(cause)
        for asked in self._asked.values():
            if not asked.done.done():
                asked.done.set_exception(
                    SouthboundError(f"{self.name}: {self.lost.result()}, with a command unanswered")
                )

    def _answered(self, answer: Answer) -> None:
        asked = self._asked.get(answer.ctag)
        if asked is None or asked.done.done():
            return  # late: whoever asked has given up
        asked.rows.extend(answer.rows)
        asked.characters += sum(map(len, answer.rows))
        if len(asked.rows) > MAX_ROWS or asked.characters > MAX_ANSWER_CHARACTERS:
            what = f"more than {MAX_ROWS} rows" if len(asked.rows) > MAX_ROWS else "more than 16 MiB"
            asked.rows.clear()
            self.drop(f"it sent an answer of {what}")
        elif not answer.more:
            asked.done.set_result(answer)


async def open_connection(
    name: str,
    host: str,
    port: int,
    on_autonomous: Callable[[Autonomous], None],
    may_order: MayOrder | None = None,
    tls: Trust | None = None,
) -> Tl1Connection:
    """Connect, without login. Raises SouthboundError."""
    loop = asyncio.get_running_loop()
    secured: dict[str, Any] = {}
    if tls:
        tls.renew()
        secured = {"ssl": tls.context, "server_hostname": host}
    try:
        async with Within(CONNECT_S):
            transport, connection = await loop.create_connection(
                lambda: Tl1Connection(name, on_autonomous, may_order), host, port, **secured
            )
            if tls:
                check_name(name, transport)
            return connection
    except SouthboundError as error:
        transport.abort()
        raise SouthboundError(f"{name} at {host}:{port}: {error}") from None
    except ssl.SSLError as error:
        raise SouthboundError(f"{name}: no TLS with {host}:{port}: {why(error)}") from None
    except TimeoutError:
        raise SouthboundError(f"{name}: no connection to {host}:{port} within {CONNECT_S:g} s") from None
    except OSError as error:
        raise SouthboundError(f"{name}: cannot connect to {host}:{port}: {error.strerror or error}") from error
