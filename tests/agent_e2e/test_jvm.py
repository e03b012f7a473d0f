"""The Java client (agent/client/jvm) against agents, with and without a manager, and against one that lies."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import wire

from tests.agent_e2e.agents import APP, ROOT, World, content, wait_until
from tests.agent_e2e.fake_manager import Answer
from tests.agent_e2e.network import Network, network

pytestmark = [pytest.mark.apps, pytest.mark.timeout(180)]
BOUND_S = 90
GARBAGE_SEEDS = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the client and of the program that exercises it."""
    subprocess.run([str(ROOT / ".ci" / "jvm")], check=True, timeout=BOUND_S)
    classes = tmp_path_factory.mktemp("classes")
    jar = ROOT / "build" / "rostrum-client.jar"
    source = ROOT / "tests" / "client" / "jvm" / "Exercise.java"
    command = ["javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", jar, "-d", classes, source]
    subprocess.run([str(word) for word in command], check=True, timeout=BOUND_S)
    return f"{jar}:{classes}"


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


def java(program: str, path: Path, *words: object) -> subprocess.Popen[str]:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = ["java", *options, "-cp", program, "Exercise", str(path), str(APP), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output(process: subprocess.Popen[str]) -> list[str]:
    try:
        said = process.communicate(timeout=BOUND_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[0]
        raise AssertionError(f"it did not end: {said}") from None
    assert process.returncode == 0, said
    return said.splitlines()


def test_objects_go_to_java_and_python_and_come_from_both(lab: World, program: str) -> None:
    lab.start_all()
    sender = lab.agents["h1"]
    reading = java(program, lab.agents["h2"].socket, "read", 7)
    digest = output(java(program, sender.socket, "objects", "h2", "h3"))[0]
    size, read, algorithm = output(reading)[0].split()
    assert (size, read) == ("3000001", digest)
    assert algorithm.startswith("xxh3-128-tree:")
    assert hashlib.sha256(lab.app("h3").read(7)).hexdigest() == digest
    wait_until(lambda: not [one for one in sender.objects() if "new-" in one], "an end of created files")
    data = content(100_000, 4)
    app = lab.app("h3")
    app.add(11, data)  # in a memfd: other programs on h3 get a descriptor, one in Java cannot open it
    assert app.send(11, ["h2"]).ok
    assert output(java(program, lab.agents["h2"].socket, "read", 11))[0].split()[1] == hashlib.sha256(data).hexdigest()
    refused = java(program, lab.agents["h3"].socket, "read", 11)
    assert "without a name" in refused.communicate(timeout=BOUND_S)[0]
    fetched = output(java(program, lab.agents["h1"].socket, "fetch", 11, f"h2@{lab.net.hosts['h2'].address}"))
    assert fetched[0].split()[1] == hashlib.sha256(data).hexdigest()


def test_a_send_is_cancelled_and_a_thread_that_waits_interrupted(lab: World, program: str) -> None:
    lab.manager.answer = lambda request: Answer(silent=True)
    lab.start_all()
    assert output(java(program, lab.agents["h1"].socket, "cancel", "h2")) == ["cancelled"]


def test_what_an_ephemeral_application_leaves_goes_with_its_last_process(lab: World, program: str) -> None:
    lab.start_all()
    other = lab.app("h1")  # of the same application; it did not ask, so it keeps nothing
    assert output(java(program, lab.agents["h1"].socket, "ephemeral")) == ["added"]
    wait_until(lambda: not other.status()[2], "an end of what was left")


def test_streams_and_messages_without_a_manager(lab: World, program: str) -> None:
    for name in lab.net.hosts:
        lab.start(name, "--standalone", "true", manager=False)
    path = {name: agent.socket for name, agent in lab.agents.items()}
    readers = [java(program, path[name], "stream-receive") for name in ("h2", "h3")]
    sent = output(java(program, path["h1"], "stream-send", 5_000_001, "h2", "h3"))
    for reader in readers:
        whole, failed = output(reader)
        assert whole == sent[0]
        assert failed.startswith("failed: "), failed
    hears = java(program, path["h2"], "subscribe")
    assert output(java(program, path["h1"], "publish")) == ["from h2"]
    assert output(hears) == ["h1: ready?"]


def frame(message: bytes, text: bytes = b"") -> bytes:
    return struct.pack("<II", len(message), len(text)) + message + text


def registered(tag: int) -> bytes:
    return wire.HEADER.pack(wire.MAGIC, wire.VERSION, wire.REGISTERED, 0, tag) + b"\x02h1\x011" + bytes(8)


def lie(seed: int, tag: int) -> bytes:
    """An answer to the read that follows a registration, of the kinds that a broken or hostile agent gives."""
    random_of = random.Random(seed)
    head = wire.HEADER.pack(wire.MAGIC, wire.VERSION, random_of.randrange(256), 0, tag)
    whole = wire.HEADER.pack(wire.MAGIC, wire.VERSION, wire.OBJECT, 0, tag) + struct.pack("<QBB", 1 << 62, 0, 0)
    kinds = [
        random_of.randbytes(random_of.randrange(1, 300)),
        frame(random_of.randbytes(random_of.randrange(40))),
        frame(head + random_of.randbytes(random_of.randrange(80))),
        frame(whole, b"/etc/hostname"),
        frame(whole, random_of.randbytes(30)),
        frame(whole),
        frame(whole[: random_of.randrange(len(whole))]),
        struct.pack("<II", 0xFFFFFFFF, 0),
        struct.pack("<II", 100, 0x7FFFFFFF) + bytes(1000),
    ]
    return kinds[seed % len(kinds)]


def test_what_a_lying_agent_says_is_refused_in_text(tmp_path: Path, program: str) -> None:
    path = tmp_path / "agent.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{path}.framed")
    listener.listen()

    def serve() -> None:
        for seed in range(GARBAGE_SEEDS):
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(BOUND_S)
                peer.recv(65536)
                peer.sendall(frame(registered(1)))
                peer.recv(65536)
                peer.sendall(lie(seed, 2))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        said = output(java(program, path, "garbage", GARBAGE_SEEDS))
        thread.join(BOUND_S)
    assert len(said) >= GARBAGE_SEEDS, said
    for line in said:
        words = line.split(" ", 2)
        assert words[1] in ("PROTOCOL:", "UNAVAILABLE:", "IO:", "INVALID:", "TIMEOUT:", "FAILED:"), line
        assert len(words[2]) > 10, line
