"""Message groups through real switches: addresses and rules come from the manager, packets from plain UDP programs.

A stand-in speaks for each server's agent (group_member.py).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.lab import p4switches
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import Entered

from tests.lab.plain import deliver

pytestmark = pytest.mark.lab

PROGRAM = str(Path(__file__).with_name("group_member.py"))
BOUND_S = 60.0


@pytest.fixture(scope="module", params=["openflow", "mixed"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """`mixed`: P4 switches at the top of racks, an OpenFlow switch between them."""
    target = p4switches.REFERENCE if request.param == "mixed" else ""
    name = f"t-groups-{request.param}"
    with Lab.start("hybrid-4x2", name=name, switch=request.param, p4_target=target, parts=("ocs", "manager")) as lab:
        yield lab


@contextlib.contextmanager
def agents(lab: Lab, servers: list[str], how: str, *groups: str) -> Iterator[dict[str, Entered]]:
    manager = lab.topology.manager
    with contextlib.ExitStack() as stack:
        running = {}
        for name in servers:
            argv = [sys.executable, PROGRAM, str(manager.address), str(manager.thrift_port), name, how, *groups]
            running[name] = stack.enter_context(lab.popen(name, argv, stdout=subprocess.PIPE, text=True))
            stack.callback(running[name].kill)
        yield running


def told(agent: Entered) -> dict[str, Any]:
    return dict(json.loads(agent.stdout.readline()))


def shown(lab: Lab, group: str, members: set[str], senders: set[str]) -> dict[str, Any]:
    """The group, once these and no others are in it and everybody was told."""
    deadline = time.monotonic() + BOUND_S
    while True:
        status, found = lab.rest.call("GET", f"/v1/groups/{group}")
        if status == 200 and set(found["members"]) == members and set(found["senders"]) == senders and found["address"]:
            return dict(found)
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_group__every_members_and_senders_packets_reach_every_member(lab: Lab) -> None:
    with agents(lab, ["h1", "h2", "h3", "h7"], "join", "news") as members, agents(lab, ["h5"], "use", "news"):
        group = shown(lab, "news", {"h1", "h2", "h3", "h7"}, {"h5"})
        view = told(members["h7"])
        while "h7" not in view["members"]:
            view = told(members["h7"])
        assert (view["address"], view["port"]) == (group["address"], 7070)
        for sender in ("h1", "h7", "h5"):
            others = [name for name in members if name != sender]
            outside = ["h4", "h8"]
            # The first packets may be earlier than the rules of those who came last.
            deadline = time.monotonic() + BOUND_S
            while True:
                got = deliver(lab, sender, [*others, *outside], group["address"], count=200)
                if all(got[name]["distinct"] == 200 for name in others) or time.monotonic() > deadline:
                    break
            assert {name: (row["received"], row["distinct"]) for name, row in got.items()} == {
                **dict.fromkeys(others, (200, 200)),
                **dict.fromkeys(outside, (0, 0)),
            }, f"from {sender}"


def test_group__who_goes_gets_nothing_more(lab: Lab) -> None:
    with agents(lab, ["h1", "h3"], "join", "olds"):
        with agents(lab, ["h6"], "join", "olds"):
            address = shown(lab, "olds", {"h1", "h3", "h6"}, set())["address"]
            assert deliver(lab, "h1", ["h6"], address, count=50)["h6"]["distinct"] == 50
        shown(lab, "olds", {"h1", "h3"}, set())  # its lease is over
        deadline = time.monotonic() + BOUND_S
        while (got := deliver(lab, "h1", ["h3", "h6"], address, count=50))["h6"]["received"]:
            assert time.monotonic() < deadline, got
        assert got["h3"]["distinct"] == 50
