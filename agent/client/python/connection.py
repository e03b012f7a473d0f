"""One connection to the agent: requests with tags, answers sorted to whoever waits for them by a thread of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rostrum.topologies.places import labs_folder

from . import wire
from .names import ObjectNames
from .values import Code, Event, RostrumError, TimedOut, Unavailable, error_of

FINAL_MESSAGE_BOUND_S = 1.0
CONNECT_BOUND_S = 60.0
SILENT_S = 3.0  # who is to answer at once and has not for so long is told of
EVENTS_MAX = 4096  # kept for one call until somebody takes them; the oldest go first


class Call:
    """A request under way. Its rows and events come in until the final answer does."""

    def __init__(
        self,
        lock: threading.Lock,
        what: str,
        on_event: Callable[[Event], None] | None,
        text: Callable[[str], str] = str,
    ) -> None:
        self.what, self._text = what, text
        self.on_event = on_event
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.rows: list[Any] = []
        self.answer: wire.Answer | None = None
        self.error: RostrumError | None = None
        self.changed = threading.Condition(lock)
        self.settled = False  # the final answer is here; on_event has not had all events yet

    def settle(self, answer: wire.Answer) -> None:
        """The final answer; under the lock."""
        if answer.type == wire.ERROR:
            code, text = answer.value
            self.error = error_of(code, self._text(text))
        else:
            self.answer = answer

    @property
    def finished(self) -> bool:
        return self.answer is not None or self.error is not None

    def answered(self, timeout: float) -> bool:
        """Whether the final answer is here within that time."""
        with self.changed:
            return self.changed.wait_for(lambda: self.finished, timeout)

    def result(self, timeout: float | None) -> wire.Answer:
        """The final answer.

        Raises:
            RostrumError: the agent's, or TimedOut after `timeout` seconds, or Unavailable if the agent went away.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self.finished, timeout):
                raise TimedOut(f"{self.what}: no answer of the agent within {timeout:g} s")
            if self.error:
                raise self.error
            assert self.answer is not None
            return self.answer

    def next_event(self, deadline: float | None) -> Event | None:
        """The next event; None when there will be no more.

        Raises:
            TimedOut: `deadline` (time.monotonic) passed.
        """
        with self.changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self.changed.wait_for(lambda: self.events or self.finished, left):
                raise TimedOut(f"no news of {self.what} came in time")
            return self.events.popleft() if self.events else None


OnSilence = Callable[[str], None]


def _connect_within(sock: socket.socket, address: str, seconds: float) -> bool:
    """False: as many connections wait there as may, and none is taken."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", *divmod(int(seconds * 1e6), 10**6)))
    try:
        sock.connect(address)
    except BlockingIOError:
        return False
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(struct.calcsize("@ll")))
    return True


def connect(path: Path, on_silence: OnSilence | None = None) -> socket.socket:
    """A connected socket; paths longer than a sockaddr_un holds are reached through their folder.

    Raises:
        Unavailable: nobody answers there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = -1
    try:
        address = str(path)
        if len(os.fsencode(address)) > 107:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            address = f"/proc/self/fd/{folder}/{path.name}"
        if not _connect_within(sock, address, SILENT_S):
            text = f"the agent at {path} takes no connection, and many wait: is its process stopped?"
            if on_silence:
                on_silence(text)
            if not _connect_within(sock, address, CONNECT_BOUND_S - SILENT_S):
                raise OSError(errno.EAGAIN, text)
    except OSError as error:
        sock.close()
        raise Unavailable(
            f"no agent answers at {path} ({_whether_it_runs(path)}): {error.strerror or error}"
        ) from error
    finally:
        if folder >= 0:
            os.close(folder)
    return sock


def _whether_it_runs(path: Path) -> str:
    """Where to look for that."""
    if not path.is_relative_to(labs_folder()) or path == labs_folder():
        return "is rostrumd running there? systemctl status rostrumd"
    lab = path.relative_to(labs_folder()).parts[0]
    return f"does lab {lab} run? rostrum lab status; rostrum lab start --name {lab} {path.parent.name}"


class _Caller:
    """Calls on_event in a thread of its own: a callback may ask the agent, be slow or fail, and only its own call
    waits for it. What it raises goes to `threading.excepthook`, as of any thread, and the next event is told."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._waiting = threading.Condition(self._lock)
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None], droppable: bool) -> None:
        with self._lock:
            if droppable and len(self._queue) >= EVENTS_MAX:
                return
            self._queue.append(job)
            self._waiting.notify()
            if not self._thread:
                self._thread = threading.Thread(target=self._run, name="rostrum-events", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread once it has done what is queued; waits for that a moment."""
        with self._lock:
            self._closed = True
            self._waiting.notify()
        if self._thread and threading.current_thread() is not self._thread:
            self._thread.join(FINAL_MESSAGE_BOUND_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._waiting.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                job = self._queue.popleft()
            try:
                job()
            except BaseException as error:
                threading.excepthook(
                    threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                )


class Connection:
    """Thread-safe: many calls at once from many threads."""

    def __init__(self, path: Path, on_silence: OnSilence | None = None) -> None:
        self._socket = connect(path, on_silence)
        self._path = path
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._next_tag = 0
        self._closed: RostrumError | None = None
        self._ended_here = False  # by `close`
        self.names = ObjectNames()
        self._caller = _Caller()
        self._thread = threading.Thread(target=self._receive, name="rostrum-agent", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def start(
        self, kind: int, body: bytes, what: str, fd: int | None = None, on_event: Callable[[Event], None] | None = None
    ) -> tuple[int, Call]:
        """Sends a request. `what` names it in errors; `fd` goes along (the caller keeps its own).

        Raises:
            RostrumError: the connection is gone, or the request is too long.
        """
        with self._lock:
            if self._closed:
                raise self._closed
            self._next_tag += 1
            tag = self._next_tag
            call = Call(self._lock, what, on_event, self.names.text)
            self._calls[tag] = call
        try:
            message = wire.request(kind, tag, body)
            with self._sending:
                if fd is None:
                    self._socket.send(message)
                else:
                    socket.send_fds(self._socket, [message], [fd])
        except RostrumError:
            self.forget(tag)
            raise
        except OSError as error:
            self.forget(tag)
            # The agent may have said why before it hung up.
            if threading.current_thread() is not self._thread:
                self._thread.join(FINAL_MESSAGE_BOUND_S)
            with self._lock:
                raise self._closed or Unavailable(f"{what}: {error.strerror or error}") from error
        return tag, call

    def forget(self, tag: int) -> None:
        """Nobody waits for that call any more."""
        with self._lock:
            self._calls.pop(tag, None)

    def ask(
        self, kind: int, body: bytes, what: str, timeout: float | None, fd: int | None = None,
        on_silence: OnSilence | None = None,
    ) -> wire.Answer:  # fmt: skip
        """Sends a request and waits for its final answer. `on_silence` is told when that is long in coming.

        Raises:
            RostrumError: whatever went wrong, as text.
        """
        return self.collect(kind, body, what, timeout, fd, on_silence)[0]

    def collect(
        self, kind: int, body: bytes, what: str, timeout: float | None, fd: int | None = None,
        on_silence: OnSilence | None = None,
    ) -> tuple[wire.Answer, list[Any]]:  # fmt: skip
        """The same, with the rows that came before the final answer."""
        tag, call = self.start(kind, body, what, fd)
        try:
            if on_silence and not call.answered(SILENT_S):
                on_silence(f"the agent at {self._path} has not answered for {SILENT_S:g} s: {self._agent_state()}")
            return call.result(timeout), call.rows
        except TimedOut as error:
            if call.finished:  # the agent says so
                raise
            raise TimedOut(f"{error}: {self._agent_state()}") from None
        finally:
            self.forget(tag)

    def _agent_state(self) -> str:
        """What the system knows of the agent's process."""
        try:
            peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            pid = struct.unpack("@3i", peer)[0]
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "is its process stopped, or its machine busy?"
        if state in "Tt":
            return f"its process {pid} is stopped (kill -CONT {pid} lets it go on)"
        return f"its process {pid} is there, and busy (state {state}): its log may say with what"

    def close(self) -> None:
        """Ends the connection; calls under way fail."""
        self._ended_here = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._caller.close()

    def _receive(self) -> None:
        reason: RostrumError
        try:
            while True:
                data, fds, flags = self._next_message()
                if not data:
                    text = f"the agent at {self._path} went away"
                    if self._ended_here:
                        text = f"the connection to the agent at {self._path} was closed"
                    reason = Unavailable(text)
                    break
                if flags & socket.MSG_TRUNC:
                    reason = RostrumError("the agent sent a message of more than 64 KiB", Code.PROTOCOL)
                    break
                self._deliver(data, fds)
        except OSError as error:
            reason = Unavailable(f"the agent at {self._path}: {error.strerror or error}")
        except RostrumError as error:
            reason = error
        with self._lock:
            self._closed = reason
            calls = list(self._calls.values())
            self._calls.clear()
            for call in calls:
                if call.settled:
                    continue  # its answer came before
                call.error = call.error or reason
                call.changed.notify_all()
        self._socket.close()

    def _next_message(self) -> tuple[bytes, list[int], int]:
        for last in (False, True):
            try:
                return socket.recv_fds(self._socket, wire.MESSAGE_MAX, 8, socket.MSG_CMSG_CLOEXEC)[:3]
            except ConnectionResetError:  # is told first; what the agent had said before comes after it
                if last:
                    raise
        raise AssertionError

    def _deliver(self, data: bytes, fds: list[int]) -> None:
        try:
            answer = wire.parse(data)
        except RostrumError:
            _close_all(fds)
            raise
        if answer.type == wire.ERROR and answer.tag == 0:
            raise error_of(*answer.value)  # about the connection itself
        answer.fds = fds
        with self._lock:
            call = self._calls.get(answer.tag)
            if call is None:
                _close_all(fds)  # whoever asked has given up
                return
            if answer.type == wire.EVENT:
                call.events.append(answer.value)
            elif answer.type in wire.UNFINISHED:
                call.rows.extend(answer.value)
            else:
                call.settled = True
                if not call.on_event:
                    call.settle(answer)
            call.changed.notify_all()
            on_event = call.on_event
        if not on_event:
            return
        if answer.type == wire.EVENT:
            self._caller.put(lambda: on_event(answer.value), droppable=True)
        elif answer.type not in wire.UNFINISHED:  # told when on_event has had what came before it
            self._caller.put(lambda: self._settle(call, answer), droppable=False)

    def _settle(self, call: Call, answer: wire.Answer) -> None:
        with self._lock:
            call.settle(answer)
            call.changed.notify_all()


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
