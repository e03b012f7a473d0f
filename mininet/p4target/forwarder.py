"""The forwarding loop: one thread that waits for frames and for busy ports."""

from __future__ import annotations

import logging
import os
import select

from rostrum.lab.p4target.interfaces import Batch, Interface, LinkNews
from rostrum.lab.p4target.switch import Switch

log = logging.getLogger("p4target")


class Forwarder:
    """Joins a switch's ports to interfaces. `received`: frames taken in."""

    def __init__(self, switch: Switch, interfaces: list[Interface]) -> None:
        self.switch, self.received = switch, 0
        self._batch = Batch()
        self._interfaces = {each.fileno(): each for each in interfaces}
        self._ports = {fd: switch.add_port(each.port, each.send) for fd, each in self._interfaces.items()}
        self._waiting: set[int] = set()  # descriptors of busy ports
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._poll.register(self._wake, select.EPOLLIN)
        self._news = LinkNews()
        self._poll.register(self._news.fileno(), select.EPOLLIN)
        self._look()
        for descriptor in self._interfaces:
            self._poll.register(descriptor, select.EPOLLIN)

    def stop(self) -> None:
        """From any thread, or a signal's handler."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Forwards until `stop`."""
        while not self._stopping:
            for descriptor, events in self._poll.poll():
                if descriptor == self._news.fileno():
                    self._news.drain()
                    self._look()
                interface = self._interfaces.get(descriptor)
                if interface is None:
                    continue
                if events & select.EPOLLIN:
                    self._receive(interface)
                if events & select.EPOLLOUT:
                    with self.switch.lock:
                        self.switch.resume(self._ports[descriptor])
                if events & (select.EPOLLERR | select.EPOLLHUP):
                    self._trouble(interface, None)
            self._watch_busy()

    def _look(self) -> None:
        """Which ports are down, for groups with backups."""
        down = {one.port for one in self._interfaces.values() if not one.running}
        with self.switch.lock:
            self.switch.down = down

    def _receive(self, interface: Interface) -> None:
        try:
            frames = self._batch.receive(interface.fileno())
        except OSError as error:
            self._trouble(interface, error)
            return
        self.received += len(frames)
        receive, port = self.switch.receive, interface.port
        with self.switch.lock:
            for frame in frames:
                receive(port, frame)

    def _watch_busy(self) -> None:
        """Asks to be told when a port that could not send can."""
        busy = {descriptor for descriptor, port in self._ports.items() if port.busy}
        for descriptor in busy ^ self._waiting:
            if self._interfaces[descriptor].alive:
                writable = select.EPOLLOUT if descriptor in busy else 0
                self._poll.modify(descriptor, select.EPOLLIN | writable)
        self._waiting = busy

    def _trouble(self, interface: Interface, error: OSError | None) -> None:
        interface.trouble(error)
        if not interface.alive:
            self._poll.unregister(interface.fileno())
            with self.switch.lock:
                self.switch.ports.pop(interface.port, None)
                self._ports[interface.fileno()].busy = False

    def close(self) -> None:
        self._poll.close()
        self._news.close()
        os.close(self._wake)
        for interface in self._interfaces.values():
            interface.close()

    def summary(self) -> str:
        """What was done, for the log."""
        sent = sum(each.sent for each in self._interfaces.values())
        lost = dict(self.switch.drops)
        for each in self._interfaces.values():
            for reason, count in each.drops.items():
                lost[reason] = lost.get(reason, 0) + count
        if self._batch.truncated:
            lost["longer than a frame"] = self._batch.truncated
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(lost.items())) or "none"
        return f"{self.received} frames received, {sent} sent; dropped: {told}"
