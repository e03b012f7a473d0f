"""Agents without a manager (`standalone: true`) on a plain LAN: what a program or a person does there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import Agent
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
        experiment.until(lambda: self._listens(number), 30, "the agent's start")

    def rostrum(self, number: int, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on that host, as a user without rights."""
        place = self.lan.place(number)
        user = ["setpriv", f"--reuid={experiment.USER}", f"--regid={experiment.USER}", "--clear-groups", "--"]
        argv = ["ip", "netns", "exec", self.lan.hosts[number], *user, "env", f"HOME={place}", f"TMPDIR={place}"]
        argv += [*experiment.rostrum_command(), *words]
        pipe = subprocess.PIPE
        with self.lan.namespace.popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as program:
            out, err = program.communicate(timeout=60)
        return subprocess.CompletedProcess(words, program.returncode, out, err)


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
    assert not [one for one in json.loads(done.stdout)["findings"] if "handed on" in one["words"]], done
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
