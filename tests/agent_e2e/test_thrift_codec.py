"""The agent's codec, made from controller/rostrum.thrift, beside the library that the manager uses: any call that one
writes the other reads as the same, and of garbage the agent takes nothing that the library reads otherwise.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.northbound.thrift.codec import BadMessage, decode, encode, idl

ROOT = Path(__file__).resolve().parents[2]
ECHO = ROOT / "build" / "agent" / "tests" / "agent" / "thrift_echo"
GENERATE = ROOT / "agent" / "daemon" / "manager" / "thrift_generate.py"
SERVICES = {"agent": "Agent", "manager": "Manager"}
BOOL, I32, I64, STRING, STRUCT, LIST, BINARY = 2, 8, 10, 11, 12, 15, 18  # the last one is the library's own


class Echo:
    """thrift_echo for one service."""

    def __init__(self, service: str) -> None:
        self.process = subprocess.Popen([ECHO, service], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, frame: bytes) -> tuple[bool, bytes]:
        """Whether the frame (without its length) was taken, and it again; else what is wrong with it."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(struct.pack(">I", len(frame)) + frame)
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        assert len(head) == 4, f"thrift_echo ended with status {self.process.wait(60)}"
        (length,) = struct.unpack(">I", head)
        return not length >> 31, self.process.stdout.read(length & 0x7FFFFFFF)

    def close(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(60)


@pytest.fixture(params=["agent", "manager"])
def echo(request: pytest.FixtureRequest) -> Iterator[tuple[str, Echo]]:
    made = Echo(request.param)
    yield SERVICES[request.param], made
    assert made.close() == 0


def text(rng: random.Random) -> str:
    return "".join(rng.choice("abz-0. é€💡") for _ in range(rng.choice((0, 1, 7, 40))))


def value(rng: random.Random, spec: tuple[Any, ...]) -> Any:
    """A value that the field may have."""
    kind = spec[0]
    inner = spec[2] if len(spec) > 3 else None
    if kind == BOOL:
        return rng.random() < 0.5
    if kind == I32 and inner is not None:  # an enumeration
        return rng.choice(list(inner._VALUES_TO_NAMES))
    if kind in (I32, I64):
        bits = 31 if kind == I32 else 63
        return rng.choice((0, 1, -1, 2**bits - 1, -(2**bits), rng.getrandbits(bits)))
    if kind == BINARY:
        return rng.randbytes(16)
    if kind == STRING:
        return text(rng)
    if kind == STRUCT:
        return filled(rng, inner)
    element, shape = inner if isinstance(inner, tuple) else (inner, None)
    rows = range(rng.choice((0, 1, 3)))
    return [value(rng, (element, "", shape, True) if shape else (element, "", True)) for _ in rows]


def filled(rng: random.Random, shape: Any) -> Any:
    made = shape()
    for spec in shape.thrift_spec.values():
        if spec[-1] or rng.random() < 0.5:
            setattr(made, spec[1], value(rng, spec))
    return made


def a_call(rng: random.Random, service: str) -> tuple[str, bytes, Any]:
    """(call, frame without its length, arguments)."""
    name = rng.choice(getattr(idl, service).thrift_services)
    arguments = getattr(getattr(idl, service), f"{name}_args")
    given = {spec[1]: value(rng, spec) for spec in arguments.thrift_spec.values()}
    return name, encode(service, name, given)[4:], arguments(**given)


def test_calls__come_back_as_the_library_wrote_them(echo: tuple[str, Echo], rng: random.Random) -> None:
    service, program = echo
    for _ in range(2000):
        name, frame, given = a_call(rng, service)
        taken, again = program.ask(frame)
        assert taken, (name, given, again)
        assert decode(service, again) == (name, given)


def test_garbage__nothing_is_taken_that_the_library_reads_otherwise(echo: tuple[str, Echo], rng: random.Random) -> None:
    service, program = echo
    verdicts = {True: 0, False: 0}
    for _ in range(4000):
        name, frame, _ = a_call(rng, service)
        changed = bytearray(frame)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.getrandbits(8)
        if rng.random() < 0.2:
            changed = changed[: rng.randrange(len(changed))]
        taken, again = program.ask(bytes(changed))
        verdicts[taken] += 1
        if taken:
            try:
                read = decode(service, bytes(changed))
            except BadMessage as error:
                pytest.fail(f"{name}: {bytes(changed).hex()} was taken; the library says {error}")
            assert decode(service, again) == read
        else:
            assert again, "nothing is said about what is wrong"
    assert min(verdicts.values()) > 100, verdicts


def field(kind: int, number: int, body: bytes) -> bytes:
    return struct.pack(">BH", kind, number) + body


def string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def called(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 0x80010004) + string(name) + struct.pack(">I", 0) + body + b"\0"


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        (b"goodbye", field(STRING, 1, string(b"x" * 4097)), "text too long"),
        (b"light", field(STRING, 1, string(b"x" * 256)), "text too long"),
        (b"goodbye", field(STRING, 1, string(b"a\0b")), "not UTF-8"),
        (b"goodbye", field(STRING, 1, struct.pack(">I", 2**31)), "length beyond the frame"),
        (b"goodbye", b"", "required field missing"),
        (b"group_view", field(LIST, 1, struct.pack(">BI", STRUCT, 2**32 - 1)), "too many elements"),
        (b"group_view", field(LIST, 1, struct.pack(">BI", STRING, 0)), "wrong element type"),
        (b"moved", field(STRING, 1, string(b"p")) + field(I32, 2, struct.pack(">i", 3)), "out of its enumeration"),
    ],
)
def test_bounds_of_the_interface_hold(name: bytes, body: bytes, text: str) -> None:
    program = Echo("agent")
    taken, said = program.ask(called(name, body))
    assert not taken and text in said.decode()
    assert program.close() == 0


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("struct A { 1: required list<string> names }", "a list needs its bound"),
        ("struct A { 1: required double x }", "the type double is not known"),
        ("struct A { 1: required A a }", "A holds itself"),
        ("struct A { 1: string x }", "neither required nor optional"),
        ('struct A { 1: required string x (most = "3") }', "no annotation is called most"),
        ("service S { i32 get() }", "'oneway' is expected"),
        ("struct A { 1: required string", "the file ends early"),
    ],
)
def test_generator_refuses_what_it_does_not_know(tmp_path: Path, statement: str, text: str) -> None:
    source = tmp_path / "x.thrift"
    source.write_text(statement)
    command = [sys.executable, GENERATE, source, tmp_path / "x.h", tmp_path / "x.c"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and text in done.stderr
    assert not (tmp_path / "x.h").exists()
