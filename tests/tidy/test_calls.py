"""The agent's rooms, by calls: circles of files, which can only be read, tested and changed together; the arrows
between rooms; a header for each file. `python -m tests.tidy.house` (the end of `make lint`) prints how it stands."""

from __future__ import annotations

import pytest

from tests.tidy.calls import BUILD, CODE, calls, circles, source_of
from tests.tidy.house import CIRCLE_FILES, outward, room_of, without_header
from tests.tidy.tree import ROOT, complaint


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    assert (BUILD / "build.ninja").exists(), "build/agent is missing; make build"


def test_source_of__objects_are_named_after_files() -> None:
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "transfer_node.c.o") == "agent/core/transfer/node.c"
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "repair_xor.c.o") == "agent/core/repair/xor.c"
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "node.c.o") == "", "there is none outside a room"
    assert (ROOT / "agent" / "core" / "transfer" / "node.c").exists()


def test_circles__are_found() -> None:
    edges = {"a": {"b": {"f"}}, "b": {"c": {"g"}}, "c": {"a": {"h"}, "d": {"i"}}, "d": {"e": {"j"}}, "e": {"d": {"k"}}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b": {"f"}}, "b": {}}) == []


@pytest.mark.parametrize("under", ["agent/core", "agent/io", "agent/daemon", "agent/client", "agent/api"])
def test_no_large_circle_of_calls(under: str) -> None:
    edges = calls(under)
    large = [circle for circle in circles(edges) if len(circle) > CIRCLE_FILES]
    offenders = [f"{len(one)} files: {', '.join(one)}" for one in large]
    assert not offenders, complaint(f"circles of more than {CIRCLE_FILES} files:", offenders)


def test_outward__tells_a_call_from_the_rate_law_into_a_transfer() -> None:
    edges = {
        "agent/core/rate/path_model.c": {
            "agent/core/transfer/node.c": {"rs_now"},
            "agent/core/base/ranges.c": {"rs_add"},
        },
        "agent/core/rdcm/ack.c": {
            "agent/core/transfer/node.c": {"rs_now"},
            "agent/core/republic/sender.c": {"rs_send"},
        },
        "agent/daemon/agent.c": {"agent/core/rdcm/ack.c": {"rs_ack"}},
    }
    assert outward(edges) == {
        ("agent/core/rate", "agent/core/transfer"): {"agent/core/rate/path_model.c: rs_now"},
        ("agent/core/rdcm", "agent/core/republic"): {"agent/core/rdcm/ack.c: rs_send"},
    }


def test_calls_follow_the_arrows() -> None:
    edges = calls("agent", CODE)
    assert len(edges) > 50, "few files call another: are the objects found?"
    rooms = {room_of(name) for name in edges}
    assert "" not in rooms, "a folder of the agent is in no room of tests/tidy/house.py"
    offenders = []
    for way, names in outward(edges).items():
        offenders += [f"{way[0]} -> {way[1]}: {name}" for name in sorted(names)]
    assert not offenders, complaint("calls against the arrows of docs/architecture.md:", offenders)


def test_every_file_has_a_header_that_says_what_it_offers() -> None:
    bare = without_header(calls("agent", CODE))
    offenders = [f"{folder}: {', '.join(names)}" for folder, names in bare.items()]
    assert not offenders, complaint("files without a header that names what others call:", offenders)
