"""TL1 (Transaction Language 1) framing, commands and answers. Pure and bounded: whatever bytes come, the result is a
message or a `Tl1Error` as text, never more memory than the limits below.

    command       VERB-MODIFIER:TID:AID:CTAG:BLOCK:BLOCK...;
    answer        <header line> M <ctag> COMPLD|PRTL|DENY|DELAY|RTRV <rows> ;      `>` instead of `;`: more parts follow
    autonomous    <header line> A|*|**|*C <atag> <VERB> <rows> ;

Rows are lines, in quotes or bare; a `/* ... */` line is a comment for people. What comes before the M or A line (echo,
prompts, greetings, the header with the switch's name and time) says nothing we need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_COMMAND_BYTES = 16_384
MAX_MESSAGE_BYTES = 1_048_576  # an answer: a row is some 150 bytes and an OCS has some hundred ports
MAX_LIST = 4_096  # entries of one `&` list, ranges expanded
MAX_BLOCKS = 16

CODES = ("COMPLD", "PRTL", "DENY", "DELAY", "RTRV")


class Tl1Error(ValueError):
    """Not TL1, or too much of it; the text says what is wrong with it."""


@dataclass(frozen=True)
class Command:
    """`VERB:TID:AID:CTAG:blocks...;` with the verb in capitals and the rest as it came."""

    verb: str
    tid: str = ""
    aid: str = ""
    ctag: str = ""
    blocks: tuple[str, ...] = ()

    def parameters(self) -> dict[str, str]:
        """`NAME=VALUE` entries in any block, names in capitals."""
        pairs = (entry.partition("=") for block in self.blocks for entry in split_outside_quotes(block, ","))
        return {name.strip().upper(): unquote(value.strip()) for name, found, value in pairs if found}

    def __str__(self) -> str:
        return ":".join((self.verb, self.tid, self.aid, self.ctag, *self.blocks)) + ";"


@dataclass(frozen=True)
class Answer:
    """A switch's answer to the command with `ctag`. `error`: code of a DENY or PRTL; `text`: its comments, one line."""

    ctag: str
    code: str
    rows: tuple[str, ...] = ()
    error: str = ""
    text: str = ""
    more: bool = False

    def why(self) -> str:
        """A refusal as text."""
        return " ".join(part for part in (self.error, self.text) if part) or "no reason given"


@dataclass(frozen=True)
class Autonomous:
    """Something the switch says of itself: `verb` is such as REPT EVT CRS-FIBER."""

    atag: str
    verb: str
    alarm: str = "A"
    rows: tuple[str, ...] = ()
    text: str = ""


Message = Answer | Autonomous


_TOKEN = re.compile(rb'[^"\r\n;>*/]+|.', re.DOTALL)


@dataclass
class Framer:
    """Bytes in, whole messages out: text up to a terminator that stands outside quotes and comments.

    `terminators`: b";" for commands, b";>" for answers (`>` only alone on its line). A message longer than `limit` is
    left out, and named by a Tl1Error in its place; the stream goes on after its terminator. Telnet negotiation is
    dropped. Quotes and comments do not span lines, so a lost quote costs one line, not the stream.
    """

    limit: int
    terminators: bytes = b";"
    _text: bytearray = field(default_factory=bytearray)
    _inside: str = ""  # '"' or "/*"
    _overlong: bool = False
    _telnet: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[tuple[str, str] | Tl1Error]:
        """Yields (text, terminator) or, for what was too long, a Tl1Error."""
        if self._telnet or b"\xff" in data:
            data = self._without_telnet(data)
        data = data.replace(b"\0", b"")  # telnet may end a line by CR NUL, and may fill with NULs
        for token in _TOKEN.findall(data):
            if len(token) == 1 and self._ends_with(token):
                text, overlong = self._text.decode("ascii", "replace"), self._overlong
                self._text, self._overlong = bytearray(), False
                yield Tl1Error(f"a message is longer than {self.limit} bytes") if overlong else (text, token.decode())
                continue
            if len(self._text) + len(token) > self.limit:
                self._overlong = True
                del self._text[:-1]  # `>` and comments look one byte back
                token = token[-1:]
            self._text += token

    def pending(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._text)

    def _ends_with(self, token: bytes) -> bool:
        if token in b"\r\n":
            self._inside = ""
        elif self._inside == "/*":
            if token == b"/" and self._text.endswith(b"*"):
                self._inside = ""
        elif token == b'"':
            if not self._text.endswith(b"\\"):
                self._inside = "" if self._inside else '"'
        elif self._inside:
            pass
        elif token == b"*" and self._text.endswith(b"/"):
            self._inside = "/*"
        elif token == b";":
            return True
        elif token == b">" and b">" in self.terminators:
            return self._text[-1:] in b"\r\n"
        return False

    def _without_telnet(self, data: bytes) -> bytes:
        """Drops IAC x, and IAC WILL/WONT/DO/DONT x, also when cut across calls."""
        out = bytearray()
        for byte in data:
            if not self._telnet and byte != 0xFF:
                out.append(byte)
                continue
            self._telnet.append(byte)
            wanted = 3 if len(self._telnet) > 1 and 0xFB <= self._telnet[1] <= 0xFE else 2
            if len(self._telnet) >= wanted:
                self._telnet.clear()
        return bytes(out)


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split at `separator` where it stands outside double quotes."""
    parts, start, quoted = [], 0, False
    for at, char in enumerate(text):
        if char == '"' and (at == 0 or text[at - 1] != "\\"):
            quoted = not quoted
        elif char == separator and not quoted:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts


def quote(text: str) -> str:
    """As a quoted string; what TL1 cannot carry in one (quotes, line ends, controls) becomes space or apostrophe."""
    clean = "".join("'" if c == '"' else c if c.isprintable() and c.isascii() and c != "\\" else " " for c in text)
    return f'"{clean}"'


def unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def parse_command(text: str) -> Command:
    """The text of a command without its `;`. Raises Tl1Error."""
    text = text.strip().lstrip("<").strip()
    if not text:
        raise Tl1Error("an empty command")
    if not text.isascii() or not text.isprintable():
        raise Tl1Error("characters that TL1 does not have")
    parts = [part.strip() for part in split_outside_quotes(text, ":")]
    if len(parts) > 4 + MAX_BLOCKS:
        raise Tl1Error(f"more than {MAX_BLOCKS} parameter blocks")
    verb = parts[0].upper()
    if not re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+){0,2}", verb) or len(verb) > 64:
        raise Tl1Error(f"{parts[0][:40]!r} is no command word")
    parts += [""] * (4 - len(parts))
    if not re.fullmatch(r"[A-Za-z0-9_.-]{0,20}", parts[3]):
        raise Tl1Error(f"{parts[3][:40]!r} is no ctag: letters and digits, at most 20")
    return Command(verb, unquote(parts[1]), parts[2], parts[3], tuple(parts[4:]))


_ANSWER = re.compile(rf"M\s+(?P<ctag>[A-Za-z0-9_.-]{{1,20}})\s+(?P<code>{'|'.join(CODES)})")
_AUTONOMOUS = re.compile(r"(?P<alarm>A|\*\*|\*C|\*)\s+(?P<atag>\d[\d.]{0,19})\s+(?P<verb>[A-Z][A-Z0-9 -]{1,60})")


def parse_message(text: str, terminator: str = ";") -> Message | None:
    """The text of an answer or autonomous message without its terminator; None if it is neither (a greeting, an
    acknowledgement). Raises Tl1Error for a message cut short."""
    lines = [line.strip().removeprefix("<").strip() for line in re.split(r"[\r\n]+", text)]
    for number, line in enumerate(lines):
        answer = _ANSWER.fullmatch(line)
        if answer:
            return _answer(answer, lines[number + 1 :], terminator == ">")
        auto = _AUTONOMOUS.fullmatch(line)
        if auto:
            comments, rows = _comments(lines[number + 1 :])
            return Autonomous(auto["atag"], auto["verb"].strip(), auto["alarm"], tuple(map(unquote, rows)), comments)
    return None


def _answer(head: re.Match[str], lines: list[str], more: bool) -> Answer:
    comments, rows = _comments(lines)
    error = ""
    if head["code"] in ("DENY", "PRTL") and rows and re.fullmatch(r"[A-Z]{4}", rows[0]):
        error = rows.pop(0)
    return Answer(head["ctag"], head["code"], tuple(map(unquote, rows)), error, comments, more)


def _comments(lines: Iterable[str]) -> tuple[str, list[str]]:
    """Comment lines joined into one, and the remaining lines that say something."""
    comments, rest = [], []
    for line in lines:
        if line.startswith("/*"):
            comments.append(" ".join(line.removeprefix("/*").removesuffix("*/").split()))
        elif line:
            rest.append(line)
    return " ".join(filter(None, comments)), rest


def parse_list(text: str, low: int, high: int) -> list[int]:
    """`1&3`, `1&&4` (a range) and mixtures -> numbers, each from `low` to `high`. Raises Tl1Error."""
    numbers: list[int] = []
    for part in re.split(r"(?<!&)&(?!&)", text.strip()):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:&&\s*(\d{1,9})\s*)?", part)
        if match is None:
            raise Tl1Error(f"{text[:60]!r} is no list of ports: join numbers by & and ranges by &&")
        first, last = int(match[1]), int(match[2] or match[1])
        if not low <= first <= last <= high:
            raise Tl1Error(f"{part.strip()} is not within {low} ... {high}")
        if len(numbers) + last - first + 1 > MAX_LIST:
            raise Tl1Error(f"a list of more than {MAX_LIST} ports")
        numbers.extend(range(first, last + 1))
    return numbers


def format_list(numbers: Iterable[int]) -> str:
    """Numbers in their order as an `&` list."""
    return "&".join(str(n) for n in numbers)


def format_answer(answer: Answer, header: str) -> str:
    """An answer as the switch sends it, header (switch name, date, time) included."""
    lines = ["", "", f"   {header}", f"M  {answer.ctag} {answer.code}"]
    if answer.error:
        lines.append(f"   {answer.error}")
    lines += [f"   {quote(row)}" for row in answer.rows]
    lines += _comment(answer.text)
    return "\r\n".join(lines) + "\r\n" + (">" if answer.more else ";") + "\r\n"


def format_autonomous(message: Autonomous, header: str) -> str:
    lines = ["", "", f"   {header}", f"{message.alarm:<2} {message.atag} {message.verb}"]
    lines += [f"   {quote(row)}" for row in message.rows]
    lines += _comment(message.text)
    return "\r\n".join(lines) + "\r\n;\r\n"


def _comment(text: str) -> list[str]:
    clean = unquote(quote(" ".join(text.split()))).replace("*/", "* /")
    return [f"   /* {clean} */"] if clean else []


def format_row(fields: dict[str, str]) -> str:
    """`NAME=VALUE,...`; commas and quotes in values become spaces, since a row cannot carry them."""
    return ",".join(f"{name}={re.sub('[,=;]', ' ', value)}" for name, value in fields.items())


def parse_number(text: str) -> int | None:
    """A port number in a row, or None for what is none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def parse_row(row: str) -> dict[str, str]:
    """`NAME=VALUE,...` -> fields with names in capitals; entries without `=` are left out."""
    pairs = (entry.partition("=") for entry in row.split(","))
    return {name.strip().upper(): value.strip() for name, found, value in pairs if found and name.strip()}
