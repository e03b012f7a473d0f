"""Parsers of bytes that come from outside the manager, and of files that others write: anything may be in them.
Those with tests of their own: Thrift (test_thrift), HTTP (test_http_server), TL1 (southbound/test_tl1,
test_ocs_driver), LLDP (southbound/test_lldp), P4Runtime (southbound/test_p4runtime_faults), topology files
(tests/topologies/test_fabrics).
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.northbound.rest import access, quota_file
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.runtime.journal import Journal
from rostrum.controller.runtime.store import StoreError
from rostrum.controller.southbound.openflow.switches import OpenFlowFabric

from tests.controller.fakes import running
from tests.controller.timeline import hybrid

HELLO = bytes.fromhex("0400000800000001")


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    return random.Random(seed)


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/paths", {"sender": "h1", "receivers": ["h3", "h5"], "kind": "auto", "size": 9, "wait_ms": 50}),
    ("POST", "/v1/paths", {"sender": "h1", "receivers": ["h3"], "protocol": "rdcm", "lease_ms": 100}),
    ("POST", "/v1/groups", {"name": "g", "members": ["h1", "h3"]}),
    ("POST", "/v1/failed-links", {"a": "tor1", "b": "core"}),
    ("PUT", "/v1/links/tor1/core/drain", {"reason": "cleaning"}),
]
LONG = ["x" * 5000, ["h3"] * 2000]
ODD: list[Any] = [None, True, -1, 0, 2**63, 2**200, 1.5, "", "h1", "\ud800", "\0", [], {}, [[]], *LONG]


def mutated(value: Any, rng: random.Random) -> Any:
    """Something in it is another thing."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        made = copy.copy(value)
        key = rng.choice(sorted(made))
        if rng.random() < 0.2:
            del made[key]
        else:
            made[key] = mutated(made[key], rng)
        if rng.random() < 0.2:
            made[rng.choice(["", "x", "sender", "a"])] = rng.choice(ODD)
        return made
    if isinstance(value, list) and value and rng.random() < 0.5:
        made_list = list(value)
        made_list[rng.randrange(len(made_list))] = mutated(made_list[0], rng)
        return made_list
    return rng.choice(ODD)


async def test_rest__bodies_of_any_shape_are_answered_with_a_reason(tmp_path: Path, rng: random.Random) -> None:
    async with (
        running(tmp_path) as manager,
        httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http,
    ):
        for _ in range(300):
            method, path, body = rng.choice(BODIES)
            for _ in range(rng.randrange(1, 4)):
                body = mutated(body, rng)
            text = json.dumps(body)
            answer = await http.request(method, path, content=text, headers={"content-type": "application/json"})
            fine = answer.status_code < 500 or answer.status_code == 503
            assert fine, f"{method} {path} {text[:300]}: {answer.status_code} {answer.text[:300]}"
            if answer.status_code >= 400:
                assert answer.json()["detail"]
        answer = await http.post("/v1/paths", json={"sender": "h2", "receivers": ["h4"], "kind": "packet"})
        assert answer.status_code in (201, 409, 503)
        assert (await http.get("/v1/paths?limit=1000")).status_code == 200
        assert (await http.get("/metrics")).status_code == 200


def openflow_messages(dpid: int) -> list[bytes]:
    """What a switch says: features, ports, a frame for the manager, a port that changed, an error, an echo."""

    def message(kind: int, body: bytes) -> bytes:
        return struct.pack("!BBHI", 4, kind, 8 + len(body), 7) + body

    port = struct.pack("!I4x6s2x16sIIIIIIII", 1, b"\x02\0\0\0\0\1", b"p1", 0, 0, 0, 0, 0, 0, 0, 0)
    match = struct.pack("!HHIIxxxx", 1, 12, 0x80000004, 1)
    return [
        message(6, struct.pack("!QIBBHII", dpid, 256, 254, 0, 0, 0, 0)),
        message(19, struct.pack("!HHI", 13, 0, 0) + port),
        message(
            10, struct.pack("!IHBBQ", 0xFFFFFFFF, 64, 0, 0, 1) + match + b"\0\0" + b"\x01\x80\xc2\0\0\x0e" + b"x" * 58
        ),
        message(12, struct.pack("!B7x", 2) + port),
        message(1, struct.pack("!HH", 3, 1) + b"what was wrong"),
        message(3, b"echo"),
        message(21, b""),
    ]


async def test_openflow__a_switch_that_says_anything_harms_nobody(rng: random.Random) -> None:
    """It has a datapath id of ours, so that all that it says is looked at."""
    topology = hybrid()
    dpid = topology.switches["tor1"].dpid
    assert dpid is not None
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    fabric = OpenFlowFabric(
        topology, lambda _: None, lambda *_: None, lambda *_: None, lambda _: None, discovery_key=b"k" * 32
    )
    await fabric.start("127.0.0.1", 0)
    try:
        for _ in range(120):
            good = openflow_messages(dpid)
            data = HELLO + good[0] + good[1] + b"".join(rng.choices(good, k=rng.randrange(8)))
            changed = bytearray(data)
            for _ in range(rng.randrange(6)):
                changed[rng.randrange(len(HELLO), len(changed))] = rng.randrange(256)
            _, writer = await asyncio.open_connection("127.0.0.1", fabric.port)
            writer.write(bytes(changed))
            await asyncio.sleep(0)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", fabric.port)
        async with asyncio.timeout(10):
            assert await reader.readexactly(2) == HELLO[:2]
        writer.close()
    finally:
        await fabric.close()
    assert not failures, failures[0]


def test_journal__any_damage_is_told_or_changes_nothing(tmp_path: Path, rng: random.Random) -> None:
    """A file and its log as a kill left them, some bytes of which are others now."""
    whole = tmp_path / "whole"
    whole.mkdir()
    made = Journal(whole / "journal", "t")
    records = {f"p-{number:03}": {"text": "x" * number, "n": number} for number in range(120)}
    for at, (key, value) in enumerate(records.items()):
        if at == 60:  # these are in the file, those after them in its log
            made.close()
            made = Journal(whole / "journal", "t")
        made.write([Change("path", key, value)])
    for name in ("journal", "journal-wal"):  # while it is open: as a kill would leave them
        shutil.copy(whole / name, tmp_path / name)
    made.close()
    told = 0
    for _ in range(150):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("journal", "journal-wal"):
            shutil.copy(tmp_path / name, folder)
        victim = folder / rng.choice(["journal", "journal-wal"])
        data = bytearray(victim.read_bytes())
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        victim.write_bytes(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        try:
            opened = Journal(folder / "journal", "t")
        except StoreError as error:
            assert "rostrum manager journal reset" in str(error) or "no journal" in str(error), error
            told += 1
            continue
        # SQLite ends at the first record of its log that is not whole: what is there was written, in its order.
        found = opened.records.get("path", {})
        assert list(found) == list(records)[: len(found)] and all(found[key] == records[key] for key in found)
        opened.close()
    assert told


@pytest.mark.parametrize(
    ("read", "good"),
    [
        (access.read, "alice physics write sha256:" + "0" * 64 + "\nbob t read tls:bob # a comment\n"),
        (quota_file.read, "physics circuits=2 splitters=4 rate=20G over=wait\n* paths=50 over=deny\n"),
    ],
)
def test_files_of_tokens_and_quotas__are_read_or_refused_by_line(
    tmp_path: Path, rng: random.Random, read: Callable[[Path], Any], good: str
) -> None:
    file = tmp_path / "file"
    refused = 0
    for _ in range(1000):
        data = bytearray(good.encode() * rng.randrange(1, 3))
        for _ in range(rng.randrange(5)):
            data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), 10, 32, 61, 0])
        file.write_bytes(data)
        file.chmod(0o640)
        try:
            read(file)
        except AccessError as error:
            assert str(file) in str(error) or "cannot be read" in str(error)
            refused += 1
    assert refused
