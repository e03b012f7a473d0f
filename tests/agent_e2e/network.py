"""A small network for tests of agents: private network namespaces joined by a Linux bridge, which floods multicast.

Nothing has a name in the machine's own namespaces, so that runs do not collide; all of it goes with its processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace, alive as long as its holder process."""

    def __init__(self) -> None:
        command = ["unshare", "--net", "--kill-child", "sh", "-c", "echo ready; exec sleep infinity"]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == "ready\n", "cannot make a network namespace (root is needed)"
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments: str) -> None:
        """Runs `ip` inside."""
        self.run("ip", *arguments)

    def run(self, *command: str) -> str:
        """Runs a command inside and gives its output."""
        done = subprocess.run([*self.prefix(), *command], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def prefix(self) -> list[str]:
        """What to put in front of a command so that it runs inside."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]

    def enter_thread(self) -> None:
        """Moves the calling thread inside: sockets it opens from now on belong here."""
        fd = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
        try:
            if _libc.setns(fd, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(fd)

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait(10)
        assert self.holder.stdout is not None
        self.holder.stdout.close()


@dataclass
class Host:
    """A server of the network: its namespace and its data NIC."""

    name: str
    address: str
    namespace: Namespace
    interface: str = "eth0"


class Network:
    """Hosts h1 ... hN on one bridge; `middle` is the bridge's own namespace, where the manager lives."""

    MANAGER = "10.77.0.254"

    def __init__(self, hosts: int, mtu: int = 9000) -> None:
        self.middle = Namespace()
        self.hosts: dict[str, Host] = {}
        self.middle.ip("link", "add", "br0", "mtu", str(mtu), "type", "bridge", "mcast_snooping", "0")
        self.middle.ip("address", "add", f"{self.MANAGER}/24", "dev", "br0")
        self.middle.ip("link", "set", "br0", "up")
        for number in range(1, hosts + 1):
            self._add(f"h{number}", number, mtu)

    def _add(self, name: str, number: int, mtu: int) -> None:
        host = Host(name, f"10.77.0.{number}", Namespace())
        port = f"port{number}"
        peer = ["peer", "name", "eth0", "mtu", str(mtu), "netns", str(host.namespace.holder.pid)]
        self.middle.ip("link", "add", port, "mtu", str(mtu), "type", "veth", *peer)
        self.middle.ip("link", "set", port, "master", "br0", "up")
        host.namespace.ip("address", "add", f"{host.address}/24", "dev", "eth0")
        host.namespace.ip("link", "set", "eth0", "up")
        host.namespace.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
        self.hosts[name] = host

    def cut(self, name: str, cut: bool = True) -> None:
        """Takes a host off the bridge, or puts it back."""
        self.middle.ip("link", "set", f"port{name[1:]}", "down" if cut else "up")

    def close(self) -> None:
        for host in self.hosts.values():
            host.namespace.close()
        self.middle.close()


@contextlib.contextmanager
def network(hosts: int, mtu: int = 9000) -> Iterator[Network]:
    """A network that is gone afterwards."""
    net = Network(hosts, mtu)
    try:
        yield net
    finally:
        net.close()
