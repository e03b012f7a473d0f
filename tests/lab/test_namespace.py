"""Private namespaces: what happens in them stays in them, and nothing outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rostrum.lab import lab
from rostrum.lab.namespace import LabError, PrivateNamespace, buffers_library, enter_argv, preloaded

pytestmark = pytest.mark.lab


def wait_until(condition, bound_s: float = 60.0, what: str = "the condition") -> None:
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {bound_s} s for {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def machine_interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def test_two_at_once_have_switches_of_their_own_and_the_machine_sees_none() -> None:
    before = machine_interfaces()
    add = ["ovs-vsctl", "add-br", "s1", "--", "set", "bridge", "s1", "datapath_type=netdev"]
    with PrivateNamespace() as one, PrivateNamespace() as two:
        one.run(add)
        two.run(add)
        one.run(["ip", "link", "add", "same", "type", "veth", "peer", "name", "peer"])
        two.run(["ip", "link", "add", "same", "type", "veth", "peer", "name", "peer"])
        one.run(["ip", "netns", "add", "n1"])
        assert "s1" in one.run(["ovs-vsctl", "list-br"]).stdout.split()
        assert two.run(["ip", "netns", "list"]).stdout == ""
        assert machine_interfaces() == before
        assert not Path("/run/netns/n1").exists()
    assert machine_interfaces() == before


def test_killed_starter_leaves_nothing() -> None:
    """kill -9 of the program that uses the namespaces ends everything in them."""
    script = (
        "import sys, time\n"
        "from rostrum.lab.namespace import PrivateNamespace\n"
        "ns = PrivateNamespace(); ns.start()\n"
        "sleeper = ns.popen(['sleep', '1000'])\n"
        "print(ns.pid, flush=True); time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as starter:
        first = int(starter.stdout.readline())
        inside = [
            int(line.split()[1]) for line in Path(f"/proc/{first}/status").read_text().splitlines() if "NSpid" in line
        ]
        assert inside == [first]
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: gone(first), what="the end of the namespaces' first process")


def test_killed_first_process_takes_all_with_it() -> None:
    with PrivateNamespace() as ns:
        with ns.popen(["sleep", "1000"]) as sleeper:
            os.kill(ns.pid, signal.SIGKILL)
            sleeper.wait(10)
        wait_until(lambda: not ns.alive(), what="the end of unshare")


def test_killed_command_ends_and_is_reaped() -> None:
    with PrivateNamespace(switches=False) as ns:
        with ns.popen(["sleep", "1000"]) as sleeper:
            wait_until(lambda: "sleep" in ns.run(["ps", "ax"]).stdout, what="sleep to start")
            sleeper.kill()
            assert sleeper.wait(10) != 0
        assert "sleep" not in ns.run(["ps", "ax"]).stdout


def test_command_of_its_own() -> None:
    with PrivateNamespace(switches=False, command=["sh", "-c", "exit 7"]) as ns:
        assert ns.wait(10) == 7


def test_failures_say_what_and_why(tmp_path: Path) -> None:
    with PrivateNamespace(switches=False) as ns:
        with pytest.raises(LabError, match=r"ip link del none: exit 1: Cannot find device"):
            ns.run(["ip", "link", "del", "none"])
        with pytest.raises(LabError, match=r"sleep 60: not done after 0.2 s"):
            ns.run(["sleep", "60"], timeout_s=0.2)
    log = tmp_path / "log"
    (tmp_path / "log").mkdir()
    (log / "ovsdb-server.log").mkdir()
    with pytest.raises(LabError, match=r"private namespaces did not come up: ovsdb-server"):
        PrivateNamespace(log=log).start()


def test_lab__of_who_is_not_root_says_so_before_it_makes_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(lab, "LABS", tmp_path / "closed" / "lab")
    with pytest.raises(LabError, match="the lab needs root"):
        lab.Lab(name="t-nobody")
    assert not list(tmp_path.iterdir())


def test_lab__where_nobody_may_make_namespaces_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unshare = tmp_path / "bin" / "unshare"
    unshare.parent.mkdir()
    unshare.write_text("#!/bin/sh\necho unshare: unshare failed: Operation not permitted\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setattr(lab, "LABS", tmp_path / "lab")
    monkeypatch.setenv("PATH", f"{unshare.parent}:{os.environ['PATH']}")
    with pytest.raises(LabError, match=r"lab.log ends with: unshare: unshare failed: Operation not permitted"):
        lab.Lab(name="t-closed")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(LabError, match="the current folder is there no more"):
        lab.Lab(name="t-closed")


def test_libraries_to_load_before__in_a_folder_with_spaces(tmp_path: Path) -> None:
    library = tmp_path / "a b:c" / "buffers.so"
    library.parent.mkdir()
    library.write_text("x")
    for _ in range(2):
        name = preloaded(library, tmp_path)
        assert name == str(tmp_path / "buffers.so") and Path(name).read_text() == "x"
    assert preloaded(Path("/usr/lib/one.so")) == "/usr/lib/one.so"


def test_packet_sockets_of_the_switch_have_large_buffers() -> None:
    assert buffers_library().exists()
    with PrivateNamespace() as ns:
        ns.run(["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"])
        ns.run(
            [
                "ovs-vsctl",
                "add-br",
                "s1",
                "--",
                "set",
                "bridge",
                "s1",
                "datapath_type=netdev",
                "--",
                "add-port",
                "s1",
                "va",
            ]
        )
        # skmem's rb: the socket's receive buffer in bytes (the kernel doubles what was asked for).
        shown = ns.run(["ss", "-0", "-m", "-n"]).stdout
        assert "rb33554432" in shown, shown


def test_detached_ones_go_on_until_killed() -> None:
    script = (
        "import subprocess\n"
        "from rostrum.lab.namespace import PrivateNamespace\n"
        "ns = PrivateNamespace(switches=False, output=subprocess.DEVNULL)\n"
        "ns.start(); ns.detach(); print(ns.pid)"
    )
    pid = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    try:
        shown = subprocess.run(enter_argv(pid, ["ip", "-br", "link"]), capture_output=True, text=True, check=True)
        assert shown.stdout.startswith("lo ")
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), what="the end of the namespaces' first process")
