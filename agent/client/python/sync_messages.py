"""What the two sides of a sync say to each other: small objects that only they read, and that go once they are read."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from .agent import Agent
from .objects import ReadObject
from .values import Busy, Code, NotFound, RostrumError

PARTS_MISSED_MOST = 16  # numbers in a row of which no part is here, where agents know no names


def message_id(name: str, what: str) -> str:
    return f"rostrum sync {name}: {what}"


def take_message(agent: Agent, data_id: str, wait: float) -> ReadObject:
    """An object that is for this program alone: it is gone from the agent when it is closed here."""
    taken = agent.read(data_id, wait=wait)
    drop(agent, data_id)
    return taken


def drop(agent: Agent, data_id: str, wait: float = 5.0) -> None:
    """It goes; its transfer may be giving the last repairs."""
    until = time.monotonic() + wait
    while True:
        try:
            agent.delete(data_id)
            return
        except NotFound:
            return
        except Busy:
            if time.monotonic() > until:
                return
            time.sleep(0.005)


def parse(data: ReadObject, *keys: str) -> dict[str, Any]:
    """A JSON object with these keys.

    Raises:
        RostrumError: it is something else.
    """
    try:
        value = json.loads(data.bytes())
    except ValueError as error:
        raise RostrumError(f"what came is no message of a sync: {error}", Code.PROTOCOL) from error
    if not isinstance(value, dict) or not set(keys) <= set(value):
        raise RostrumError("what came is no message of a sync", Code.PROTOCOL)
    return value


def forget_parts(agent: Agent, name: str, token: str) -> None:
    """Parts that came and nobody read. Their names were told with them, where both agents know names."""
    number, gap = 0, 0
    for row in agent.status().objects:
        if token and row.name.startswith(message_id(name, "part ")) and row.name.endswith(f" of {token}"):
            with contextlib.suppress(RostrumError):
                agent.delete(row.data_id)
    while token and gap < PARTS_MISSED_MOST:
        try:
            agent.delete(message_id(name, f"part {number} of {token}"))
            gap = 0
        except NotFound:
            gap += 1
        except RostrumError:
            gap += 1
        number += 1
