"""`security: required`: what agents send is sealed, in every protocol; what is not sealed nobody looks at; and who does
not take part in it is refused, with words.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from rostrum.client import Agent
from rostrum.controller.commands.pki import pki
from rostrum.lab.lab import Lab
from rostrum.lab.processes import agent_program

from tests.lab.metrics import scrape
from tests.lab.objects import check, data_of, send, until
from tests.lab.test_group_messages import take

pytestmark = pytest.mark.lab

MARK = b"nobody on the way may read this; "
# Counts datagrams that come by an interface, and those that hold the mark, until its input ends.
LISTENER = f"""
import select, socket, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
heard.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
heard.bind((sys.argv[1], 0))
print("ready", flush=True)
count = read = 0
while True:
    ready, _, _ = select.select([heard, sys.stdin], [], [])
    if heard in ready:
        frame = heard.recv(1 << 17)
        count, read = count + 1, read + ({MARK!r} in frame)
    elif sys.stdin in ready:
        print(count, read, flush=True)
        break
"""
FORGER = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(200):
    head = b"\\x53\\x52\\x02" + bytes(29)
    out.sendto([head + bytes(100), b"\\xe1" + bytes(99), bytes([n]) * n][n % 3], (sys.argv[1], 7071))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    changes = {"emulation.reconfiguration.mean_ms": 20, "ocs.ocs.reconfiguration_ms": 20}
    with Lab.start("hybrid-4x2", name="t-security", changes=changes, seed=1, secure=True) as lab:
        yield lab


def count(lab: Lab, server: str, name: str, labels: str = "") -> float:
    return scrape(lab, server)["rostrum_agent_" + name, labels]


def refused(lab: Lab, server: str) -> float:
    rows = scrape(lab, server).items()
    return sum(value for (name, _), value in rows if name == "rostrum_agent_packets_refused_total")


def test_lab_listener__reads_what_is_not_sealed() -> None:
    """The proof below is one: without security the same listener finds the mark."""
    with Lab.start("hybrid-4x2", name="t-plain", seed=1) as lab:
        assert listened(lab, ["h3", "h5"])[1] > 0


def listened(lab: Lab, receivers: list[str]) -> tuple[int, int]:
    """Sends an object of marks; frames that came to the first receiver, and those that held a mark."""
    data = MARK * 60_000
    listener = lab.popen(receivers[0], [sys.executable, "-c", LISTENER, f"{receivers[0]}-eth0"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert listener.stdout and listener.stdin
    assert listener.stdout.readline() == "ready\n"
    check(lab, send(lab, "h1", receivers, data), receivers, data)
    listener.stdin.close()
    seen, read = map(int, listener.stdout.readline().split())
    listener.wait(10)
    return seen, read


def test_nobody_on_the_way_reads_an_object(lab: Lab) -> None:
    before = count(lab, "h3", "packets_opened_total")
    seen, read = listened(lab, ["h3", "h5", "h8"])
    assert seen > 0 and read == 0
    assert count(lab, "h3", "packets_opened_total") > before
    assert count(lab, "h1", "packets_sealed_total") > 0


@pytest.mark.parametrize("protocol", ["republic", "rdcm", "wan"])
def test_objects_arrive_by_every_protocol(lab: Lab, protocol: str) -> None:
    data, receivers = data_of(3_000_000, 3), ["h3", "h5", "h7"]
    with Agent(lab.agent_socket("h2")) as agent:
        number = 500 + ["republic", "rdcm", "wan"].index(protocol)
        agent.add(number, data)
        result = agent.send(number, receivers, protocol=protocol).wait(60)
    check(lab, result, receivers, data)


@pytest.mark.parametrize("protocol", ["plain", "ricochet", "qsm"])
def test_messages_arrive_by_every_protocol(lab: Lab, protocol: str) -> None:
    messages = [b"%d:" % number + bytes([number % 251]) * (100 + number % 5 * 900) for number in range(300)]
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        three.join("sealed-" + protocol, protocol=protocol, order="fifo") as receiver,
        one.publisher("sealed-" + protocol) as out,
    ):
        assert out.publish_all(messages) == len(messages)
        got, lost = take(receiver, len(messages), 20.0)
    assert (got, lost) == (messages, 0) or protocol == "plain"
    assert set(got) <= set(messages) and got


def test_what_is_not_sealed_is_counted_and_told_and_changes_nothing(lab: Lab) -> None:
    before = refused(lab, "h5")
    lab.execute("h2", [sys.executable, "-c", FORGER, str(lab.topology.servers["h5"].address)])
    until(lambda: refused(lab, "h5") >= before + 190, "h5 to have refused what was forged")
    until(lambda: "packets refused=" in (lab.run / "h5" / "agent.log").read_text(), "the log to say so")
    data = data_of(1_000_000, 4)
    check(lab, send(lab, "h1", ["h5", "h6"], data), ["h5", "h6"], data)


def test_agents_that_do_not_seal_are_refused_with_words(lab: Lab) -> None:
    folder, home = lab.run / "certificates", lab.run / "h8"
    lab.kill("h8")
    address = str(lab.topology.servers["h8"].address)
    program = lab.popen("h8", [str(agent_program()), "--server", "h8", "--interface", "h8-eth0", "--address", address,
                               "--socket", str(home / "other.sock"), "--store", str(home / "objects"), "--manager",
                               "10.255.0.1:9090", "--manager-tls", str(folder / "h8.pem"), str(folder / "h8.key"),
                               str(folder / "ca.pem")],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    assert program.stdout
    for line in program.stdout:
        if "start rostrumd with --security required" in line:
            break
    else:
        raise AssertionError("it was not refused")
    program.terminate()
    program.wait(10)
    lab.start_program("h8")
    until(lambda: count(lab, "h8", "seal_epoch") > 0, "h8 to have a key again")
    data = data_of(500_000, 5)
    check(lab, send(lab, "h8", ["h3", "h5"], data), ["h3", "h5"], data)


def test_manager_that_was_killed_brings_keys_of_its_own(lab: Lab) -> None:
    before = {name: count(lab, name, "seal_epoch") for name in lab.topology.servers}
    lab.kill("manager")
    lab.start_program("manager")
    until(lambda: all(count(lab, name, "seal_epoch") != before[name] for name in before), "others for all")
    data = data_of(1_000_000, 6)
    check(lab, send(lab, "h2", ["h4", "h6"], data), ["h4", "h6"], data)


def test_who_is_revoked_is_out_at_once_and_nobody_else_notices(lab: Lab) -> None:
    """Last, as h8 does not come back. It keeps its certificate, and does not take part in what is said of it."""
    folder, aside = lab.run / "certificates", lab.run / "aside"
    aside.mkdir()
    for ending in ("pem", "key"):
        shutil.copy(folder / f"h8.{ending}", aside)
    epochs = {name: count(lab, name, "seal_epoch") for name in lab.topology.servers}
    done = CliRunner().invoke(pki, ["revoke", "h8", "--dir", str(folder)])
    assert done.exit_code == 0, done.output
    shutil.copy(aside / "h8.pem", folder)
    log = lab.run / "h8" / "agent.log"
    until(lambda: "it was revoked" in log.read_text(), "h8 to hear that it is revoked")
    others = [name for name in lab.topology.servers if name != "h8"]
    until(
        lambda: all(count(lab, name, "seal_epoch") != epochs[name] for name in others), "the others to have a new key"
    )
    assert count(lab, "h8", "seal_epoch") == epochs["h8"]
    data = data_of(1_000_000, 7)
    check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)
