"""The log: complete and in order, one line each, and a warning never late."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import threading
from collections.abc import Iterator

import pytest
from rostrum.controller.logs import LINES_MAX, TextFormatter, TurnHandler


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = TurnHandler(stream)
    handler.setFormatter(TextFormatter())
    logger = logging.Logger("rostrum.test", logging.INFO)
    logger.addHandler(handler)
    yield logger, stream
    handler.close()


def said(stream: io.StringIO) -> list[str]:
    return [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()]


def test_without_a_loop__lines_are_there_at_once(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.info("one")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} INFO rostrum\.test one\n", stream.getvalue())


async def test_in_a_loop__lines_are_there_after_the_turn_and_in_order(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    for turn in range(3):
        logger.info("a%d", turn)
        logger.info("b%d", turn)
        await asyncio.sleep(0)
    assert said(stream) == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_a_warning__is_written_at_once_behind_what_was_said_before(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = log
    logger.info("before")
    logger.warning("now")
    assert said(stream) == ["before", "now"]
    logger.info("after")
    await asyncio.sleep(0)
    assert said(stream) == ["before", "now", "after"]


async def test_another_thread__writes_at_once_and_loses_nothing(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.info("here")
    thread = threading.Thread(target=logger.info, args=("there",))
    thread.start()
    thread.join()
    assert said(stream) == ["here", "there"]


async def test_a_turn_that_says_very_much__does_not_keep_it_all(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    for number in range(LINES_MAX + 1):
        logger.info("%d", number)
    assert said(stream) == [str(number) for number in range(LINES_MAX)]
    await asyncio.sleep(0)
    assert len(said(stream)) == LINES_MAX + 1


def test_an_exception__is_told_whole(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    try:
        raise ValueError("odd")
    except ValueError:
        logger.exception("failed")
    assert "ERROR rostrum.test failed\nTraceback" in stream.getvalue()
    assert stream.getvalue().endswith("ValueError: odd\n")
