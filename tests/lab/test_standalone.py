"""Agents without a manager (`standalone: true`) on a plain LAN: what a program or a person does there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, Event, TimedOut
from rostrum.lab.experiments import lan as experiment
from rostrum.lab.namespace import Entered, PrivateNamespace
from rostrum.lab.processes import agent_program

pytestmark = pytest.mark.lab
DATA = b"all is well" * 100_000


class Standalone:
    """Agents h0 to h3, which know each other."""

    def __init__(self, lan: experiment.Lan) -> None:
        self.lan = lan
        self.running: list[Entered] = []
        for number in range(len(lan.hosts)):
            Path(lan.place(number, "objects")).mkdir(mode=0o710)
            os.chown(lan.place(number, "objects"), experiment.USER, experiment.USER)
            self.running.append(self._start(number))
        experiment.until(lambda: all(self._listens(number) for number in range(len(lan.hosts))), 30, "agents' start")
        experiment.until(lambda: all(self.known(number) == 3 for number in range(4)), 30, "agents' discovery")

    def _start(self, number: int) -> Entered:
        own = ["--server", self.lan.hosts[number], "--address", self.lan.address(number)]
        own += ["--socket", self.lan.place(number, "agent.sock"), "--store", self.lan.place(number, "objects")]
        return self.lan.start(number, [str(agent_program()), "--interface", "eth0", "--standalone", "true", *own])

    def _listens(self, number: int) -> bool:
        try:
            with self.agent(number):
                return True
        except Exception:
            return False

    def known(self, number: int) -> int:
        """How many others it has heard of."""
        with self.agent(number) as agent:
            return int(agent.status().manager.split(": ")[1].split(" ")[0])

    def agent(self, number: int) -> Agent:
        return Agent(self.lan.place(number, "agent.sock"))

    def restart(self, number: int) -> None:
        self.running[number].kill()
        self.running[number].wait()
        Path(self.lan.place(number, "agent.sock")).unlink(missing_ok=True)
        self.running[number] = self._start(number)
        experiment.until(lambda: self._listens(number) and self.known(number) >= 3, 30, "the agent's start")

    def rostrum(self, number: int, *fields: str, root: bool = False) -> subprocess.CompletedProcess[str]:
        """A command on that host, as a user without rights, or as root."""
        place = self.lan.place(number)
        who = ["0", "0"] if root else [str(experiment.USER)] * 2
        user = ["setpriv", f"--reuid={who[0]}", f"--regid={who[1]}", "--clear-groups", "--"]
        argv = ["ip", "netns", "exec", self.lan.hosts[number], *user, "env", f"HOME={place}", f"TMPDIR={place}"]
        argv += [*experiment.rostrum_command(), *fields]
        pipe = subprocess.PIPE
        with self.lan.namespace.popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as program:
            out, err = program.communicate(timeout=60)
        return subprocess.CompletedProcess(fields, program.returncode, out, err)


@pytest.fixture(scope="module")
def standalone() -> Iterator[Standalone]:
    with tempfile.TemporaryDirectory(prefix="rostrum-lan-test-", dir=experiment.MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)
        with PrivateNamespace(switches=False) as namespace:
            lan = experiment.Lan(namespace, folder, 3, 1500)
            agents = None
            try:
                agents = Standalone(lan)
                yield agents
            finally:
                print("".join(f"{host}: {lan.log(n)[-2500:]}" for n, host in enumerate(lan.hosts)))  # of a failed test
                for process in agents.running if agents else ():
                    process.kill()
                    process.wait()


def test_fetch__by_a_name_that_discovery_knows_and_by_none(standalone: Standalone) -> None:
    with standalone.agent(0) as h0, standalone.agent(2) as h2, standalone.agent(3) as h3:
        assert h0.send("fetched", ["h1"], source=DATA).wait(60).ok
        with h2.fetch("fetched", ["h1"], wait=20) as data:
            assert data.bytes() == DATA
        with h3.fetch("fetched", wait=20) as data:  # of whoever has it
            assert data.bytes() == DATA
        with pytest.raises(Exception, match="nobody gives it"):
            h3.fetch("nowhere", wait=20)


def test_send_and_doctor__the_own_agent_is_no_receiver(standalone: Standalone, tmp_path: Path) -> None:
    file = Path(standalone.lan.place(0, "file.bin"))
    file.write_bytes(DATA)
    file.chmod(0o644)
    done = standalone.rostrum(0, "send", str(file), "--wait-for", "3", "--json")
    assert done.returncode == 0, done
    receivers = {one["name"] for part in json.loads(done.stdout)["parts"] for one in part["receivers"]}
    assert receivers == {standalone.lan.address(number) for number in (1, 2, 3)}
    done = standalone.rostrum(0, "doctor", "--lan", "--json")
    assert done.returncode == 0, done
    assert not [one for one in json.loads(done.stdout)["findings"] if "handed on" in one["text"]], done
    done = standalone.rostrum(0, "send", str(file), "--to", standalone.lan.address(0), "--wait-for", "1")
    assert done.returncode != 0 and "is this host" in done.stderr, done


def test_restarted_receiver__where_multicast_is_blocked_the_next_send_reaches_it(standalone: Standalone) -> None:
    """What its agent took orders by is not valid any more, and no announcement says so."""
    standalone.lan.multicast(range(4), through=False)
    try:
        with standalone.agent(0) as h0:
            assert h0.send("before", ["h1", "h2"], source=DATA).wait(60).ok
            standalone.restart(2)
            result = h0.send("after", ["h1", "h2"], source=DATA).wait(60)
            assert result.ok, result
    finally:
        standalone.lan.multicast(range(4), through=True)


def test_groups__members_find_each_other_and_all_messages_come(standalone: Standalone) -> None:
    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(standalone.agent(number)) for number in range(4)]
        groups = [stack.enter_context(one.join("ticks", protocol=protocol)) for one, protocol in
                  zip(agents[1:], ("ricochet", "", ""), strict=True)]  # fmt: skip
        publisher = stack.enter_context(agents[0].publisher("ticks"))
        for number in range(200):
            publisher.publish(b"%d" % number)
        for group in groups:
            assert {group.next(20).data for _ in range(200)} == {b"%d" % number for number in range(200)}
        groups[2].publish(b"from a member")
        for group in groups[:2]:
            assert group.next(20).data == b"from a member"
        rows = agents[1].status().groups
        assert [(row.name, row.protocol, row.members) for row in rows] == [("ticks", "ricochet", 3)]
        with pytest.raises(Exception, match="runs ricochet"):
            agents[0].join("ticks", protocol="plain")
        with pytest.raises(Exception, match="qsm needs a manager"):
            agents[0].join("other", protocol="qsm")


def test_groups__where_multicast_is_blocked_copies_go_by_unicast(standalone: Standalone) -> None:
    standalone.lan.multicast(range(4), through=False)
    try:
        with contextlib.ExitStack() as stack:
            agents = [stack.enter_context(standalone.agent(number)) for number in range(3)]
            groups = [stack.enter_context(one.join("blocked")) for one in agents[1:]]
            publisher = stack.enter_context(agents[0].publisher("blocked"))
            for number in range(50):
                publisher.publish(b"%d" % number)
            for group in groups:
                assert {group.next(20).data for _ in range(50)} == {b"%d" % number for number in range(50)}
    finally:
        standalone.lan.multicast(range(4), through=True)


def bridge(standalone: Standalone, **options: int) -> None:
    fields = [str(word) for option in options.items() for word in option]
    standalone.lan.namespace.run(["ip", "link", "set", "br0", "type", "bridge", *fields])


def doctor(standalone: Standalone) -> dict[str, Any]:
    done = standalone.rostrum(0, "doctor", "--lan", "--json", root=True)
    return {one["subject"]: one for one in json.loads(done.stdout)["findings"]}


def test_igmp_snooping__with_a_querier_multicast_gets_through_and_without_one_the_doctor_says_so(
    standalone: Standalone,
) -> None:
    """The bridge floods nothing: packets reach those that it has heard join."""
    standalone.lan.multicast(range(4), through=False)
    everybody = [standalone.lan.address(number) for number in (1, 2, 3)]
    try:
        bridge(standalone, mcast_query_response_interval=20)  # it trusts itself after so many hundredths of a second
        bridge(standalone, mcast_snooping=1, mcast_querier=1)
        found = doctor(standalone)
        assert found["IGMP querier"]["level"] == "ok", found
        standalone.restart(0)  # what it found out before holds for a minute
        multicast = {subject: one for subject, one in found.items() if any(name in subject for name in everybody)}
        assert len(multicast) == 3 and all("multicast gets there" in one["text"] for one in multicast.values()), found
        with contextlib.ExitStack() as stack:
            agents = [stack.enter_context(standalone.agent(number)) for number in range(3)]
            result = agents[0].send("snooped", ["h1", "h2"], source=DATA).wait(60)
            assert result.ok and "multicast gets through to all" in result.reason, result
            groups = [stack.enter_context(one.join("snooped")) for one in agents[1:]]
            publisher = stack.enter_context(agents[0].publisher("snooped"))
            for number in range(20):
                publisher.publish(b"%d" % number)
            for group in groups:
                assert {group.next(20).data for _ in range(20)} == {b"%d" % number for number in range(20)}

        bridge(standalone, mcast_querier=0, mcast_snooping=0)
        bridge(standalone, mcast_snooping=1)
        found = doctor(standalone)
        assert found["IGMP querier"]["level"] == "note" and "forget" in found["IGMP querier"]["text"], found
        assert [one for one in found.values() if "from server to server" in one["text"]], found
    finally:
        bridge(standalone, mcast_snooping=0, mcast_querier=0)
        standalone.lan.multicast(range(4), through=True)


ROUTER = """
import socket, struct, sys
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
link.setsockopt(socket.IPPROTO_IP, 200, 1)  # MRT_INIT
for number, name in enumerate(sys.argv[1:]):  # MRT_ADD_VIF, by the interface's number
    vif = struct.pack("HBBIi4s", number, 8, 1, 0, socket.if_nametoindex(name), bytes(4))
    link.setsockopt(socket.IPPROTO_IP, 202, vif)
print("routes", flush=True)
while True:
    asked = link.recv(2048)  # IGMPMSG_NOCACHE: of that interface, source and group the first packet has come
    if len(asked) < 20 or asked[9] != 0 or asked[8] != 1:
        continue
    ttls = bytes([1 if number < 2 and number != asked[10] else 255 for number in range(32)])
    route = struct.pack("4s4sH32sxxIIIi", asked[12:16], asked[16:20], asked[10], ttls, 0, 0, 0, 0)
    link.setsockopt(socket.IPPROTO_IP, 204, route)  # MRT_ADD_MFC
"""


def test_multicast_routing__a_host_behind_a_router_gets_objects_and_messages(standalone: Standalone) -> None:
    """The router's kernel copies multicast between its networks by (S, G) routes, which a daemon of PIM would set."""
    lan, place = standalone.lan, standalone.lan.folder / "far"
    standalone.restart(0)  # what it found out before holds for a minute
    run = lan.namespace.run
    place.mkdir(mode=0o777)
    for fields in (
        "netns add router", "netns add far",
        "link add port9 type veth peer name near netns router", "link set port9 master br0 up",
        "-n router link add out type veth peer name eth0 netns far",
        "-n router address add 10.0.0.100/24 dev near", "-n router address add 10.1.0.1/24 dev out",
        "-n router link set near up", "-n router link set out up",
        "-n far address add 10.1.0.2/24 dev eth0", "-n far link set lo up", "-n far link set eth0 up",
        "-n far route add default via 10.1.0.1 dev eth0",
        *(f"-n {host} route add 10.1.0.0/24 via 10.0.0.100" for host in lan.hosts),
    ):  # fmt: skip
        run(["ip", *fields.split()])
    for name in ("ip_forward", "conf/all/rp_filter", "conf/near/rp_filter", "conf/out/rp_filter"):
        run(["ip", "netns", "exec", "router", "sh", "-c",
             f"echo {int(name == 'ip_forward')} > /proc/sys/net/ipv4/{name}"])  # fmt: skip
    inside = ["ip", "netns", "exec"]
    with lan.namespace.popen([*inside, "router", sys.executable, "-c", ROUTER, "near", "out"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as router:  # fmt: skip
        assert router.stdout.readline() == "routes\n"
        own = ["--server", "far", "--address", "10.1.0.2", "--socket", str(place / "sock"), "--store", str(place / "o")]
        (place / "o").mkdir()
        with open(place / "log", "wb") as log:
            argv = [*inside, "far", str(agent_program()), "--interface", "eth0", "--standalone", "true", *own]
            agent = lan.namespace.popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            experiment.until(lambda: (place / "sock").exists(), 30, "the far agent's start")
            with contextlib.ExitStack() as stack:
                near, far = stack.enter_context(standalone.agent(0)), stack.enter_context(Agent(place / "sock"))
                result = near.send("routed", ["h1", "far"], source=DATA).wait(60)
                assert result.ok and "multicast gets through to all" in result.reason, result
                group = stack.enter_context(far.join("routed"))
                publisher = stack.enter_context(near.publisher("routed"))
                publisher.publish(b"over there")
                assert group.next(20).data == b"over there"
        finally:
            print((place / "log").read_text()[-2000:])
            agent.kill()
            agent.wait()
            router.kill()


def test_two_senders__of_one_object_at_once_both_learn_that_it_came(standalone: Standalone) -> None:
    """The second is told that it comes already, asks until it is there, and sends it itself where it does not come."""
    data = DATA * 100
    with contextlib.ExitStack() as stack:
        first, second, receiver = (stack.enter_context(standalone.agent(number)) for number in range(3))
        sends = [sender.send("both", ["h2"], source=data) for sender in (first, second)]
        assert [send.wait(60).receivers[0].cause for send in sends] == ["", ""]
        with receiver.read("both") as read:
            assert read.bytes() == data

        sends = [sender.send("broken", ["h2"], source=data) for sender in (first, second)]
        experiment.until(lambda: any(not row.sending for row in receiver.status().transfers), 30, "the first's arrival")
        sends[0].cancel()
        assert sends[1].wait(60).ok
        with receiver.read("broken") as read:
            assert read.bytes() == data

        sends = [sender.send("other", ["h2"], source=data[number:]) for number, sender in enumerate((first, second))]
        results = [send.wait(60) for send in sends]
        assert sorted(result.ok for result in results) == [False, True], results


def test_more_sends_at_once_than_paths__wait_for_their_turn(standalone: Standalone) -> None:
    """256 go at once; others were refused. One that may not wait says for what it did."""
    with standalone.agent(0) as sender, standalone.agent(1) as receiver:
        queued: list[str] = []

        def note(event: Event) -> None:
            if event.kind == "phase" and event.subject == "queued":
                queued.append(event.text)

        absent = [sender.send(f"absent {number}", ["10.0.0.99"], source=b"x", wait=100) for number in range(256)]
        sends = [sender.send(f"many {number}", ["h1"], source=b"%d" % number, on_event=note) for number in range(300)]
        experiment.until(lambda: len(queued) == 300, 30, "the news that they wait")
        assert all("256 sends are under way" in text for text in queued)
        with pytest.raises(TimedOut, match="256 sends are under way"):
            sender.send("hasty", ["h1"], source=b"x", wait=0.1).wait()
        for send in (sends[1], *absent):
            send.cancel()
        causes = [send.wait(60).cause for send in sends]
        assert "cancelled" in causes.pop(1) and causes == [""] * 299
        for number in (0, 2, 299):
            with receiver.read(f"many {number}") as data:
                assert data.bytes() == b"%d" % number


@pytest.mark.parametrize("protocol", ["republic", "rdcm", "wan"])
def test_receiver_that_is_not_there__fails_alone(standalone: Standalone, protocol: str) -> None:
    """The others failed with it."""
    with standalone.agent(0) as sender, standalone.agent(1) as receiver:
        result = sender.send(protocol, ["10.0.0.99", "h1", "h2"], source=DATA, wait=3, protocol=protocol).wait(60)
        assert [one.digest_ok for one in result.receivers] == [False, True, True], result
        assert "no agent answers" in result.receivers[0].cause, result
        with receiver.read(protocol) as data:
            assert data.bytes() == DATA


def test_stream_to_a_receiver_that_is_not_there__says_who(standalone: Standalone) -> None:
    """It fails for all, and said that the path was for a part of them."""
    with (
        standalone.agent(0) as sender,
        sender.stream_send("log", ["h1", "10.0.0.99"], wait=1) as stream,
        pytest.raises(Exception, match=r"10\.0\.0\.99.*no agent answers by that name"),
    ):
        stream.wait(60).raise_for_failure()
