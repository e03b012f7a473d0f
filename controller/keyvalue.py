"""Log lines as `event key=value ...`, one line each whatever the values hold; or the same as JSON."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

Facts = Sequence[tuple[str, object]]


class Line:
    """What is said, as a message of the standard library's logging; a text when somebody writes it."""

    def __init__(self, event: str, facts: Facts) -> None:
        self.event, self.facts = event, facts

    def __str__(self) -> str:
        return text(self.event, self.facts)


def line(event: str, /, **facts: object) -> Line:
    """Facts that are empty are left out; texts with spaces or odd characters are quoted."""
    return Line(event, tuple(facts.items()))


def text(event: str, facts: Facts) -> str:
    """As one line."""
    parts = [event]
    for key, value in facts:
        shown = _shown(value)
        if shown:
            parts.append(f"{key}={shown}")
    return " ".join(parts)


def noted(created: float, level: str, logger: str, event: str, facts: Facts) -> str:
    """As one line of the log. `created`: s since the epoch."""
    return f"{stamp(created)} {level} {logger} {text(event, facts)}"


class _Stamps:
    """The last one: many lines are of one moment."""

    def __init__(self) -> None:
        self.ms, self.second = -1, -1
        self.upto_second = self.text = ""

    def of(self, ms: int) -> str:
        if ms != self.ms:
            second = ms // 1000
            if second != self.second:
                self.second = second
                self.upto_second = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
            self.ms, self.text = ms, f"{self.upto_second}.{_thousandths(ms % 1000)}"
        return self.text


_stamps: Final = _Stamps()


def stamp(created: float) -> str:
    """`2024-05-04T10:11:12.345`, in local time."""
    return _stamps.of(int(created * 1000))


def _thousandths(number: int) -> str:
    """Three digits; as `:03`, which compiled code leaves to Python."""
    zeros = "00" if number < 10 else "0" if number < 100 else ""
    return zeros + str(number)


class Sparing:
    """Lines that anybody can cause, as often as he likes: at most `lines` of them in `period_s`; the first one after
    that says how many were left out.
    """

    def __init__(self, lines: int, period_s: float) -> None:
        self._lines, self._period_s = lines, period_s
        self._begin = -period_s
        self._said = self._left_out = 0

    @property
    def left_out(self) -> int:
        """Since the last line that was not."""
        return self._left_out

    def may(self, now_s: float) -> int | None:
        """None = leave it out; else how many were left out before this one."""
        if now_s >= self._begin + self._period_s:
            self._begin, self._said = now_s, 0
        if self._said >= self._lines:
            self._left_out += 1
            return None
        self._said += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


class SparingBySource:
    """As `Sparing`, for each source of its own, so that one does not hide another's lines; and for all together, as
    sources can be had without end. Those of which nothing was heard for longest are forgotten.
    """

    def __init__(self, lines: int, all_lines: int, period_s: float, sources_max: int = 256) -> None:
        self._lines, self._period_s, self._sources_max = lines, period_s, sources_max
        self._all = Sparing(all_lines, period_s)
        self._sources: OrderedDict[str, Sparing] = OrderedDict()
        self._forgotten = 0  # left out, of sources that were forgotten

    def may(self, source: str, now_s: float) -> int | None:
        """None = leave it out; else how many were left out before this one: of this source, and of forgotten ones."""
        one = self._sources.pop(source, None) or Sparing(self._lines, self._period_s)
        self._sources[source] = one
        if len(self._sources) > self._sources_max:
            self._forgotten += self._sources.popitem(last=False)[1].left_out
        left_out = one.may(now_s)
        if left_out is None:
            return None
        if self._all.may(now_s) is None:
            self._forgotten += left_out + 1
            return None
        left_out += self._forgotten
        self._forgotten = 0
        return left_out


def _shown(value: object) -> str:
    """Empty = there is nothing to say."""
    if type(value) is str:
        return _quoted(value) if value else ""
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    if isinstance(value, float):
        return _with_thousandths(value)
    return _quoted(str(value))


def _with_thousandths(value: float) -> str:
    if not 0 <= value < 1e12:
        return f"{value:.3f}"
    thousandths = int(value * 1000 + 0.5)
    return f"{thousandths // 1000}.{_thousandths(thousandths % 1000)}"


def _plain(text: str) -> bool:
    """Nothing in it that would have to be told from what is around it."""
    if not (text.isascii() and text.isprintable()):
        return False
    return not (" " in text or "=" in text or '"' in text or "\\" in text)


def _quoted(text: str) -> str:
    shown = _known.get(text)
    if shown is None:
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        shown = _known[text] = text if _plain(text) else _json_text(text)
    return shown


KNOWN_MAX: Final = 1 << 12
_json_text: Final = json.encoder.encode_basestring_ascii  # as json.dumps of a text, which takes ten times as long
_known: Final[dict[str, str]] = {}  # what was shown lately: each id is said in several lines


class JsonFormatter(logging.Formatter):
    """An object a line: "time", "level", "logger", "event", and the facts as members; of other lines their "text"."""

    def format(self, record: logging.LogRecord) -> str:
        seconds, ms = divmod(record.created, 1)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        made: dict[str, object] = {
            "time": f"{stamp}.{int(ms * 1e6):06d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, Line):
            made["event"] = record.msg.event
            made |= {key: _json(value) for key, value in record.msg.facts if value is not None and value != ""}
        else:
            made |= {"event": "log", "text": record.getMessage()}
        if record.exc_info:
            made["exception"] = self.formatException(record.exc_info)
        return json.dumps(made)


def _json(value: object) -> object:
    return value if isinstance(value, (bool, int, float)) else str(value)
