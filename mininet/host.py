"""A server of a lab, for scripts: its agent's calls, commands on it, and what can be done to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostrum.client import Agent, Event, ReadObject, RostrumError, SendHandle, SendResult, TimedOut
from rostrum.client.groups import Group
from rostrum.client.objects import Source
from rostrum.lab import figures
from rostrum.lab.namespace import LabError
from rostrum.lab.records import Rows, samples
from rostrum.lab.rest import page
from rostrum.topologies.units import size_bytes

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

CHUNK_BYTES = 8 << 20
BOUND_S = 60.0


class Undone(AbstractContextManager["Undone"]):
    """What was done holds on; as a context manager, until the end of the block."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __exit__(self, *_: object) -> None:
        self._undo()


class Sending:
    """A transfer under way. `wait` adds it to `lab.transfers` and `lab.deliveries`."""

    def __init__(self, host: Host, handle: SendHandle, name: str, remove: bool, to: Sequence[str]) -> None:
        self.handle, self.name, self.receivers = handle, name, tuple(to)
        self._host, self._remove = host, remove
        self._result: SendResult | None = None
        self._began = time.time()

    def until(self, phase: str, timeout: float = BOUND_S) -> Sending:
        """Waits for a phase: accepted, attempt, high-rate, data-done, patching, released. Raises LabError."""
        end, seen = time.monotonic() + timeout, list[str]()
        with contextlib.suppress(TimedOut):
            for event in self.handle.events(timeout):
                if event.kind == "phase":
                    seen.append(event.subject)
                    if event.subject == phase:
                        return self
                if time.monotonic() > end:
                    break
        raise LabError(f"{self.name}: no phase {phase}; there were {', '.join(seen) or 'none'}")

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """What happens, until its end. Raises TimedOut when nothing comes for `timeout` seconds."""
        return self.handle.events(timeout)

    def cancel(self) -> None:
        """Stops it; `wait` then gives the result."""
        self.handle.cancel()

    def wait(self, timeout: float | None = None) -> SendResult:
        """What it came to, as of SendHandle.wait."""
        if self._result is None:
            self._result = self.handle.wait(timeout)
            self._host.lab.record(self._host.name, self.name, self._began, self._result)
            self._tidy()
        return self._result

    def _tidy(self) -> None:
        """Copies that nobody will read go: a lab is one machine's memory."""
        gone = [self._host.name, *self.receivers] if self._remove else [self._host.name]
        for name in gone:
            with contextlib.suppress(RostrumError, LabError):
                self._host.lab.host(name).agent.delete(self.name)


class Host:
    """Made by `lab.host(name)`."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self._agent: Agent | None = None

    @property
    def address(self) -> str:
        """Its IPv4 address on the data network."""
        return str(self.lab.topology.servers[self.name].address)

    @property
    def agent(self) -> Agent:
        """The client of its agent (rostrum.client), connected again if that one was started again."""
        if self._agent is None or self._agent.closed:
            self._agent = Agent(self.lab.agent_socket(self.name), process="script")
        return self._agent

    def send(
        self,
        source: Source | None = None,
        to: Sequence[str] | str = (),
        *,
        size: int | str | None = None,
        name: str = "",
        timeout: float | None = None,
        **options: Any,
    ) -> SendResult:
        """Sends to servers (`to`; without: all others) and waits for the end. `source` is as of Agent.send; without
        one, `size` random bytes, which are deleted everywhere afterwards. `options`: of Agent.send.
        """
        return self.start_send(source, to, size=size, name=name, **options).wait(timeout)

    def start_send(
        self,
        source: Source | None = None,
        to: Sequence[str] | str = (),
        *,
        size: int | str | None = None,
        name: str = "",
        **options: Any,
    ) -> Sending:
        """The same; returns at once."""
        if (source is None) == (size is None):
            raise LabError(f'{self.name}: say what to send: a source, or size="64M" for random data')
        receivers = [to] if isinstance(to, str) else list(to)
        receivers = receivers or [one for one in self.lab.topology.servers if one != self.name]
        for one in receivers:
            self.lab.host(one)
        own_name = Path(source).name if isinstance(source, str | os.PathLike) else ""
        name = name or own_name or f"{self.name}-{self.lab.next_number()}"
        if source is not None:
            handle = self.agent.send(name, receivers, source=source, **options)
            return Sending(self, handle, name, False, receivers)
        length = size_bytes(size) if isinstance(size, str) else int(size or 0)
        with self.agent.create(length) as file:
            for start in range(0, length, CHUNK_BYTES):
                file.write(os.urandom(min(CHUNK_BYTES, length - start)), start)
            handle = self.agent.send(name, receivers, source=file, **options)
        return Sending(self, handle, name, True, receivers)

    def read(self, name: int | str, wait: float = BOUND_S) -> ReadObject:
        return self.agent.read(name, wait)

    def fetch(self, name: int | str, holders: Sequence[str], wait: float = BOUND_S) -> ReadObject:
        at = [f"{one}@{self.lab.host(one).address}" if one in self.lab.topology.servers else one for one in holders]
        return self.agent.fetch(name, at, wait)

    def join(self, group: str, **options: Any) -> Group:
        return self.agent.join(group, **options)

    def publisher(self, group: str, **options: Any) -> Group:
        return self.agent.publisher(group, **options)

    def run(self, command: str | Sequence[str], timeout: float = BOUND_S, check: bool = True) -> str:
        """The output of a command on this server. Raises LabError if it fails."""
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        return self.lab.execute(self.name, argv, timeout_s=timeout, check=check)

    def popen(self, command: str | Sequence[str], **options: Any) -> Any:
        """A command that goes on: a subprocess.Popen, which ends with the script."""
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        return self.lab.popen(self.name, argv, **options)

    def kill(self) -> Undone:
        """Kills its agent; at the end of the block it is started again."""
        self.lab.kill(self.name)
        return Undone(self.start)

    def start(self) -> None:
        """Starts its agent again; returns when the manager knows it."""
        self.lab.start_program(self.name)
        end = time.monotonic() + BOUND_S
        while True:
            with contextlib.suppress(RostrumError):
                if self.agent.status().manager_up:
                    return
            if time.monotonic() > end:
                raise LabError(f"the agent of {self.name} has no manager {BOUND_S:.0f} s after it was started")
            time.sleep(0.02)

    def pause(self) -> Undone:
        """Its agent stands still (SIGSTOP) until `resume`, or to the end of the block."""
        return self.lab.pause(self.name)

    def resume(self) -> None:
        self.lab.resume(self.name)

    def cut(self) -> Undone:
        """All on its link is lost until `mend`, or to the end of the block."""
        return self.lab.cut(self.name, self.lab.topology.servers[self.name].tor)

    def mend(self) -> None:
        self.lab.mend(self.name, self.lab.topology.servers[self.name].tor)

    def metrics(self) -> Rows:
        """What its agent counts."""
        return samples(page(self.lab.run / self.name / "metrics.sock"), self.name)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()


def transfer_row(
    sender: str, name: str, at_s: float, result: SendResult, path: dict[str, Any] | None
) -> dict[str, Any]:
    """One line about a transfer; times are as docs/lab.md says."""
    found = figures.transfer(result, path, None)
    found.pop("timeline")
    return {"at_s": round(at_s, 6), "sender": sender, "object": name, "receivers": len(result.receivers),
            "protocol": result.protocol, **found}  # fmt: skip


def delivery_rows(sender: str, name: str, result: SendResult) -> list[dict[str, Any]]:
    """A line about each receiver of a transfer."""
    rows = figures.receivers(result, {one.name: one.digest_ok for one in result.receivers})
    return [{"object": name, "sender": sender, "receiver": row.pop("host"), **row} for row in rows]
