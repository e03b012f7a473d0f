"""`security: required`: what agents send is sealed, in every protocol; what is not sealed nobody looks at; and who does
not take part in it is refused, with words.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from rostrum.client import Agent, RostrumError
from rostrum.controller.commands.pki import pki
from rostrum.controller.northbound.thrift.keys import transmitter_key
from rostrum.lab.intruder import sealed
from rostrum.lab.lab import Lab
from rostrum.lab.processes import agent_program

from tests.lab.metrics import scrape
from tests.lab.objects import check, data_of, send, stream_received, until
from tests.lab.test_group_messages import take

pytestmark = pytest.mark.lab
GROUP = 2  # KeyFor.GROUP
ROOT = Path(__file__).parents[2]

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


def test_keys_that_come_at_once_are_nothing_to_warn_of(lab: Lab) -> None:
    data, receivers = data_of(3_000_000, 4), ["h1", "h2", "h3", "h5", "h6", "h7", "h8"]
    check(lab, send(lab, "h4", receivers, data), receivers, data)
    assert not [name for name in lab.topology.servers
                if "packets not sent" in (lab.run / name / "agent.log").read_text()]  # fmt: skip


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


def at(lab: Lab, server: str) -> str:
    return f"{server}@{lab.topology.servers[server].address}"


def test_objects_are_fetched_by_tls_from_those_whose_certificates_say_so(lab: Lab) -> None:
    data, receivers = MARK * 200_000, ["h3", "h5"]
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add("fetched", data)
        check(lab, agent.send("fetched", receivers).wait(60), receivers, data)
    listener = lab.popen("h7", [sys.executable, "-c", LISTENER, "h7-eth0"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert listener.stdout and listener.stdin
    assert listener.stdout.readline() == "ready\n"
    with Agent(lab.agent_socket("h7")) as agent:
        pretender = f"h5@{lab.topology.servers['h3'].address}"
        with pytest.raises(RostrumError, match="its certificate is that of another server"):
            agent.fetch("fetched", [pretender], wait=60)
        with agent.fetch("fetched", [at(lab, "h3")], wait=60) as got:
            assert got.mmap()[:] == data
    listener.stdin.close()
    seen, read = map(int, listener.stdout.readline().split())
    listener.wait(10)
    assert seen > 0 and read == 0
    assert "shows the certificate of h3" in (lab.run / "h7" / "agent.log").read_text()


def test_a_stream_is_joined_under_way(lab: Lab) -> None:
    parts = [data_of(100_000, seed) for seed in range(20)]
    begun = threading.Event()

    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        Agent(lab.agent_socket("h7")) as late,
        ThreadPoolExecutor(2) as pool,
        one.stream_send(900, ["h3"]) as out,
    ):
        receiver = pool.submit(stream_received, three, 900, begun)
        for part in parts[:10]:
            out.write(part)
        assert begun.wait(20)
        with late.stream_join(900, at(lab, "h1"), wait=20) as joined:
            first = joined.read()
            rest = pool.submit(lambda: first + b"".join(joined))
            for part in parts[10:]:
                out.write(part)
            assert out.finish(60).ok
            assert receiver.result(60) == rest.result(60) == b"".join(parts)


def test_what_is_not_sealed_is_counted_and_told_and_changes_nothing(lab: Lab) -> None:
    before = refused(lab, "h5")
    lab.execute("h2", [sys.executable, "-c", FORGER, str(lab.topology.servers["h5"].address)])
    until(lambda: refused(lab, "h5") >= before + 190, "h5 to have refused what was forged")
    until(lambda: "packets refused=" in (lab.run / "h5" / "agent.log").read_text(), "the log to say so")
    data = data_of(1_000_000, 4)
    check(lab, send(lab, "h1", ["h5", "h6"], data), ["h5", "h6"], data)


def packets_key(key: bytes) -> tuple[AESGCM, bytes]:
    """As seal.c derives what packets are sealed with from a transmitter's key."""
    made = HKDF(hashes.SHA256(), 44, None, b"packets\x01").derive(key)
    return AESGCM(made[:32]), made[32:]


def reads(datagram: bytes, keys: list[dict[str, Any]], group: IPv4Address, port: int, clear: int) -> bool:
    """Whether any of these keys opens it, whoever sealed it."""
    head, text = datagram[clear : clear + 12], datagram[clear + 12 :]
    counter, transmitter = int.from_bytes(head[1:6], "little"), int.from_bytes(head[8:12], "little")
    place = int(group).to_bytes(4, "little") + port.to_bytes(2, "little")
    for one in keys:
        key = bytes.fromhex(one["key"])
        for made in (transmitter_key(key, 0, transmitter), key):
            cipher, base = packets_key(made)
            nonce = bytes(a ^ b for a, b in zip(base, counter.to_bytes(12, "big"), strict=True))
            try:
                cipher.decrypt(nonce, text, place + datagram[:clear] + head)
            except InvalidTag:
                continue
            return True
    return False


CATCHER = """
import select, socket, struct, sys, time
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
heard.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
heard.bind((sys.argv[1], 0))
print("ready", flush=True)
kept, ends, watched = 0, float("inf"), [heard, sys.stdin]
while kept < 20 and (time.monotonic() < ends or (kept == 0 and time.monotonic() < ends + 10)):
    ready, _, _ = select.select(watched, [], [], 0.2)
    if sys.stdin in ready:  # it is done
        ends, watched = time.monotonic() + 1, [heard]
    if heard not in ready:
        continue
    frame = heard.recv(1 << 17)
    ip = frame[14:]
    if frame[12:14] == b"\\x08\\x00" and ip[9] == 17 and ip[16] >> 4 == 14:
        at = (ip[0] & 15) * 4
        print(socket.inet_ntoa(ip[16:20]), struct.unpack("!H", ip[at + 2 : at + 4])[0], ip[at + 8 :].hex(), flush=True)
        kept += 1
"""
THROWER = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
for line in sys.stdin:
    group, port, datagram = line.split()
    out.sendto(bytes.fromhex(datagram), (group, int(port)))
"""
Caught = list[tuple[IPv4Address, int, bytes]]


class Insider:
    """h8 with its certificate, and another program than an agent."""

    def __init__(self, lab: Lab, group: str) -> None:
        self.lab, self.keys = lab, list[dict[str, Any]]()
        lab.kill("h8")
        folder = lab.run / "certificates"
        files = [str(folder / name) for name in ("h8.pem", "h8.key", "ca.pem")]
        program = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.lab.insider", "h8", *files, group]
        self.program = lab.popen("h8", program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.program.stdout
        for row in self.program.stdout:
            self.keys.append(json.loads(row))

    def say(self, word: str) -> None:
        assert self.program.stdin
        self.program.stdin.write(word + "\n")
        self.program.stdin.flush()

    def of_groups(self) -> list[dict[str, Any]]:
        return [one for one in self.keys if one["purpose"] == GROUP]

    def throw(self, server: str, datagrams: Caught) -> None:
        """Onto the wire from there: nothing but the seal is between it and the others."""
        rows = "".join(f"{group} {port} {datagram.hex()}\n" for group, port, datagram in datagrams)
        address = str(self.lab.topology.servers[server].address)
        out = self.lab.popen(server, [sys.executable, "-c", THROWER, address], stdin=subprocess.PIPE, text=True)
        out.communicate(rows, 20)
        assert out.returncode == 0

    def end(self) -> None:
        self.say("end")
        self.program.wait(20)
        self._reader.join(20)
        self.lab.start_program("h8")
        until(lambda: count(self.lab, "h8", "seal_epoch") > 0, "h8 to have a key again")


@pytest.fixture
def insider(lab: Lab) -> Iterator[Insider]:
    one = Insider(lab, "inside")
    try:
        yield one
    finally:
        one.end()


def caught(lab: Lab, server: str, doing: Callable[[], None]) -> Caught:
    """Multicast datagrams that came by that server's interface meanwhile."""
    catcher = lab.popen(server, [sys.executable, "-c", CATCHER, f"{server}-eth0"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert catcher.stdout
    assert catcher.stdout.readline() == "ready\n"
    doing()
    out, _ = catcher.communicate(timeout=60)  # which ends its input
    rows = (row.split() for row in out.splitlines())
    return [(IPv4Address(group), int(port), bytes.fromhex(datagram)) for group, port, datagram in rows]


def test_a_certified_agent_reads_and_forges_nothing_of_a_transfer_that_is_not_for_it(
    lab: Lab, insider: Insider
) -> None:
    until(lambda: insider.of_groups(), "the insider to have a group's key")
    data, receivers = data_of(3_000_000, 11), ["h3", "h5"]
    packets = caught(lab, "h3", lambda: check(lab, send(lab, "h1", receivers, data), receivers, data))
    packets = [one for one in packets if one[2][:2] == b"\x53\x52" and one[2][3] & 0x80]
    assert packets
    assert not any(reads(packet, insider.keys, group, port, 32) for group, port, packet in packets)
    with (
        Agent(lab.agent_socket("h1")) as one,
        one.stream_send(901, receivers) as out,
        ThreadPoolExecutor(2) as pool,
    ):
        readers = [pool.submit(received, lab, name, 901) for name in receivers]
        started = caught(lab, "h3", lambda: out.write(data[:1_000_000]))
        group, port, packet = next(one for one in started if one[2][:2] == b"\x53\x52" and one[2][3] & 0x80)
        before = refused(lab, "h3")
        lies = []
        for key in insider.keys[:5]:  # what comes next, of its own making
            sn = (int.from_bytes(packet[16:24], "little") + 700).to_bytes(8, "little")
            clear = packet[:16] + sn + packet[24:32]
            own = bytes.fromhex(key["key"])
            for made in (own, transmitter_key(own, 0, 0)):
                lies += [(group, port, sealed(made, 1, 0, str(group), port, clear, b"lies" * 300, counter))
                         for counter in range(1, 20)]  # fmt: skip
        insider.throw("h1", [*lies, (group, port, packet)])  # and one that was heard, once more
        until(lambda: refused(lab, "h3") > before, "h3 to have refused what was forged")
        out.write(data[1_000_000:])
        assert out.finish(60).ok
        assert all(one.result(60) == data for one in readers)


def received(lab: Lab, server: str, number: int) -> bytes:
    with Agent(lab.agent_socket(server)) as agent:
        return b"".join(agent.stream_receive(number, wait=20))


def test_a_member_that_left_reads_and_writes_nothing_with_the_old_key(lab: Lab, insider: Insider) -> None:
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        three.join("inside", protocol="plain") as receiver,
        one.publisher("inside") as out,
    ):
        until(lambda: insider.of_groups(), "the insider to have the group's key")
        sent = 0

        def publish() -> None:
            nonlocal sent
            sent += out.publish_all([b"to members %d" % n for n in range(5)])

        heard = caught(lab, "h3", publish)
        assert any(reads(packet, insider.keys, group, port, 4) for group, port, packet in heard)  # it is a member
        insider.say("leave")
        epoch = insider.of_groups()[-1]["epoch"]
        told = len(insider.keys)

        def others() -> bool:
            packets = [one[2] for one in caught(lab, "h3", publish)]
            return bool(packets) and all(int.from_bytes(one[10:12], "little") != epoch for one in packets)

        until(others, "the others to use another key", 60)
        heard = caught(lab, "h3", publish)
        assert heard and not any(reads(packet, insider.keys, group, port, 4) for group, port, packet in heard)
        assert len(insider.of_groups()) <= told
        old = insider.of_groups()[-1]
        group, port, packet = heard[0]
        own = transmitter_key(bytes.fromhex(old["key"]), 0, old["transmitter"])
        counters = itertools.count(1)

        def is_refused() -> bool:
            before = count(lab, "h3", "packets_refused_total", 'cause="epoch"')
            n, shown = next(counters), packet[:4]
            lie = sealed(own, old["epoch"], old["transmitter"], str(group), port, shown, b"x" * 80, n)
            insider.throw("h1", [(group, port, lie)])
            return count(lab, "h3", "packets_refused_total", 'cause="epoch"') > before

        until(is_refused, "h3 to take the old key no more")
        got, _ = take(receiver, sent, 10.0)
        assert all(message.startswith(b"to members") for message in got)


def test_agents_that_do_not_seal_are_refused_with_text(lab: Lab) -> None:
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
    data = data_of(1_000_000, 7)
    check(lab, send(lab, "h1", ["h3", "h8"], data), ["h3", "h8"], data)  # they have a connection
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
    check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)
    until(lambda: "certificate was revoked" in (lab.run / "h1" / "agent.log").read_text(), "h1 to end its connection")
    rows = {one.name: one.state for one in send(lab, "h1", ["h3", "h8"], data).receivers}
    assert rows["h3"] == "done" and rows["h8"] == "failed"
