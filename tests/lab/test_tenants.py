"""Tenants in a lab: what a server of one sends to another's groups reaches nobody, over OpenFlow and P4 switches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from rostrum.client import Agent, RostrumError
from rostrum.lab.lab import Lab

from tests.lab.objects import check, data_of, send

pytestmark = pytest.mark.lab
CHANGES = {
    "emulation.reconfiguration.mean_ms": 20,
    "ocs.ocs.reconfiguration_ms": 20,
    "tenants": {
        "blue": {"servers": ["h1", "h3", "h5", "h7"], "groups": ["blue.*"]},
        "red": {"servers": ["h2", "h4", "h6", "h8"], "quota": "paths=8"},
    },
}
# Tells which of the words came by an interface, until the last one has.
LISTENER = """
import socket, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
heard.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
heard.settimeout(60)
heard.bind((sys.argv[1], 0))
print("ready", flush=True)
words, came = sys.argv[2:], set()
while words[-1] not in came:
    frame = heard.recv(1 << 17)
    came |= {word for word in words if word.encode() in frame}
print(*sorted(came), flush=True)
"""
THROWER = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
for _ in range(20):
    out.sendto(sys.argv[4].encode() * 4, (sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture(scope="module", params=["openflow", "mixed"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = f"t-tenants-{request.param}"
    with Lab.start("hybrid-4x2", name=name, switch=request.param, changes=CHANGES, seed=1) as lab:
        yield lab


def throw(lab: Lab, server: str, group: str, word: str) -> None:
    address = str(lab.topology.servers[server].address)
    lab.execute(server, [sys.executable, "-c", THROWER, address, group, str(lab.topology.data_port), word])


def reached(lab: Lab, server: str, group: str, foreign: str, own: str) -> list[str]:
    """Words that came to a server: of one of another tenant, then of one that may send to the group."""
    listener = lab.popen(server, [sys.executable, "-c", LISTENER, f"{server}-eth0", "of-a-foreigner", "of-our-own"],
                         stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert listener.stdout and listener.stdout.readline() == "ready\n"
    throw(lab, foreign, group, "of-a-foreigner")
    throw(lab, own, group, "of-our-own")
    out, _ = listener.communicate(timeout=90)
    return out.split()


def test_objects_go_within_a_tenant(lab: Lab) -> None:
    data = data_of(300_000, 1)
    check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)
    check(lab, send(lab, "h2", ["h4", "h8"], data), ["h4", "h8"], data)
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add(77, data)
        with pytest.raises(RostrumError, match="stays within a tenant"):
            agent.send(77, ["h3", "h4"]).wait(60)


def test_a_path_takes_nothing_from_the_neighbour_in_the_rack(lab: Lab) -> None:
    status, path = lab.rest.call("POST", "/v1/paths", {"sender": "h2", "receivers": ["h4", "h6"], "kind": "packet"})
    assert status == 201
    lab.rest.call("GET", f"/v1/paths/{path['id']}?wait=active&timeout_ms=10000")
    assert reached(lab, "h4", path["group"], foreign="h1", own="h2") == ["of-our-own"]
    lab.rest.call("DELETE", f"/v1/paths/{path['id']}")


def test_a_group_is_its_tenants_alone(lab: Lab) -> None:
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        Agent(lab.agent_socket("h4")) as four,
        one.join("blue.news") as first,
        three.join("blue.news") as second,
    ):
        with one.publisher("blue.news") as out:
            assert out.publish_all([b"hello"]) == 1
            assert second.next(20).data == first.next(20).data == b"hello"
        with pytest.raises(RostrumError, match="another tenant"), four.join("blue.news") as third:
            third.next(20)
        group = lab.rest.get("/v1/groups/blue.news")["address"]
        assert reached(lab, "h3", group, foreign="h2", own="h1") == ["of-our-own"]
        assert reached(lab, "h3", group, foreign="h4", own="h1") == ["of-our-own"]  # its neighbour in the rack


def test_agents_of_another_tenant_are_not_spoken_with() -> None:
    """Where security is required certificates say whose a server is: nothing goes between tenants, by whatever way."""
    data = data_of(300_000, 2)
    with Lab.start("hybrid-4x2", name="t-tenants-tls", changes=CHANGES, seed=1, secure=True) as lab:
        at = f"h1@{lab.topology.servers['h1'].address}"
        with Agent(lab.agent_socket("h1")) as one:
            one.add("ours", data)
        with (
            Agent(lab.agent_socket("h3")) as three,
            three.fetch("ours", [at], wait=60) as copy,
        ):
            assert copy.mmap()[:] == data
        with (
            Agent(lab.agent_socket("h2")) as two,
            pytest.raises(RostrumError, match="certificate is that of another server"),
        ):
            two.fetch("ours", [at], wait=60)
        assert "of another tenant (blue)" in (lab.run / "h2" / "agent.log").read_text()
        check(lab, send(lab, "h2", ["h4", "h8"], data), ["h4", "h8"], data)
