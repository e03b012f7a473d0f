"""os-ken at work in native threads of its own: sockets, the OpenFlow handshake and codec. A shim: every message of
interest becomes a call on the asyncio loop, and bytes handed in are queued for the switch. No decision is made here.

os-ken 4 has no manager program any more, its server cannot be stopped, a connection's end is noticed late, and its
parser does not end at lengths of 0; so the listening socket, the reader (framing.py) and the writer are ours, and its
`Datapath` and `OFPHandler` do the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from os_ken import cfg
from os_ken.base import app_manager  # noqa: F401  first: os-ken's controller module imports it in a circle
from os_ken.controller import controller, handler, ofp_event, ofp_handler
from os_ken.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.keyvalue import Sparing
from rostrum.controller.southbound.openflow import framing

log = logging.getLogger(__name__)

SEND_QUEUE = 4096  # messages or batches waiting for one switch's socket
DELIVERED_MAX = 1024  # messages of a switch, on their way to the loop: no more is read from it meanwhile
HANDSHAKES_MAX = 128  # connections that have not said yet which switch they are; one more, and the oldest goes
HANDSHAKE_S = 10.0  # from connecting to the end of the OpenFlow handshake
ACCEPT_RETRY_S = 0.2  # after accept() failed for want of descriptors or memory
READ_BYTES = 1 << 16
LOG_EVERY_S = 10.0  # about connections that could not be taken, or were crowded out, and messages that are malformed
LOGGED_MAX = 500  # characters of a line of os-ken's
ROOM_S = 0.5  # how often a reader that waits for the loop looks whether it is to end
THREAD_END_S = 5.0  # how long close() waits for a thread
PASSING = (errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM)  # of one connection: the next may do

Deliver = Callable[["Connection", Any], None]
Gone = Callable[["Connection", str], None]
Complain = Callable[..., None]  # a text of the log's, and its facts


class Spared:
    """Of what os-ken's logs say, anybody can cause as many lines as he likes, of as many bytes as a message has five
    times over (all in hex), and a page of os-ken's own source with each: a line now and then is enough.
    """

    def __init__(self) -> None:
        self._lines = Sparing(1, LOG_EVERY_S)
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            left_out = self._lines.may(time.monotonic())
        if left_out is None:
            return False
        text = record.getMessage()
        more = f" ({left_out} more were not logged)" if left_out else ""
        record.msg, record.args = (text if len(text) <= LOGGED_MAX else f"{text[:LOGGED_MAX]}...") + more, ()
        record.exc_info = None
        return True


MALFORMED, HANDSHAKES = Spared(), Spared()  # a logger has the same filter once, however many listen


class Shim(ofp_handler.OFPHandler):  # type: ignore[misc]
    """os-ken's own handshake and echo handler, plus the messages the manager asks for."""

    def __init__(self, deliver: Deliver) -> None:
        super().__init__()
        self.name = ofp_event.NAME
        self.deliver = deliver
        self.logger.addFilter(HANDSHAKES)
        handler.register_instance(self)

    @handler.set_ev_handler(  # type: ignore[untyped-decorator]
        [
            ofp_event.EventOFPBarrierReply,
            ofp_event.EventOFPErrorMsg,
            ofp_event.EventOFPFlowStatsReply,
            ofp_event.EventOFPGroupDescStatsReply,
            ofp_event.EventOFPGroupStatsReply,
            ofp_event.EventOFPGroupFeaturesStatsReply,
            ofp_event.EventOFPDescStatsReply,
            ofp_event.EventOFPTableStatsReply,
            ofp_event.EventOFPTableFeaturesStatsReply,
            ofp_event.EventOFPQueueStatsReply,
            ofp_event.EventOFPFlowRemoved,
            ofp_event.EventOFPPortStatus,
            ofp_event.EventOFPPortDescStatsReply,
            ofp_event.EventOFPPacketIn,
            ofp_event.EventOFPEchoReply,
            ofp_event.EventOFPRoleReply,
        ],
        [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER],
    )
    def hand_over(self, event: Any) -> None:
        self.deliver(event.msg.datapath, event.msg)


class Connection(controller.Datapath):  # type: ignore[misc]
    """One switch's TCP connection: a reader thread, and a writer thread that blocks nobody."""

    def __init__(
        self, sock: socket.socket, address: Any, shim: Shim, on_ready: Callable[[Connection], None], complain: Complain
    ) -> None:
        late = f"the OpenFlow 1.3 handshake did not end within {HANDSHAKE_S:g} s"
        self._handshake = threading.Timer(HANDSHAKE_S, lambda: self.drop(late))
        self._handshake.daemon = True
        super().__init__(sock, address)
        self.ofp_brick = shim
        self.cause = ""
        self.room = threading.Semaphore(DELIVERED_MAX)
        self._on_ready, self._complain = on_ready, complain
        self._xids = itertools.count(random.getrandbits(31))
        self._outgoing: queue.Queue[bytes | None] = queue.Queue(SEND_QUEUE)

    def set_xid(self, msg: Any) -> int:
        xid = next(self._xids) & 0xFFFF_FFFF
        msg.set_xid(xid)
        return xid

    def set_state(self, state: str) -> None:
        before = self.state
        super().set_state(state)
        if state == handler.MAIN_DISPATCHER and before != state:
            self._handshake.cancel()
            self._on_ready(self)

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        try:
            self._outgoing.put_nowait(bytes(buf))
            if close_socket:
                self._outgoing.put_nowait(None)
        except queue.Full:
            self.drop(f"it did not read: {SEND_QUEUE} messages wait for it")
            return False
        return True

    def drop(self, cause: str) -> None:
        """End the connection; both threads leave. Any thread may call it. The first cause is the one reported."""
        self.cause = self.cause or cause
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.drop("closed")

    def serve(self) -> None:
        writer = threading.Thread(target=self._write, name="openflow-writer", daemon=True)
        try:
            writer.start()
            self._handshake.start()
            self.send_msg(self.ofproto_parser.OFPHello(self))
            self._read()
            self.cause = self.cause or "the switch closed the connection"
        except framing.Malformed as error:
            self.cause = self.cause or f"it sent something unreadable ({error})"
        except Exception as error:  # os-ken's parser raises whatever malformed bytes lead it to
            self.cause = self.cause or f"it sent something unreadable ({error!r})"
        finally:
            self._handshake.cancel()
            self.set_state(handler.DEAD_DISPATCHER)
            self.drop("closed")
            with contextlib.suppress(queue.Full):
                self._outgoing.put_nowait(None)
            if writer.ident is not None:  # there was a thread left for it
                writer.join(THREAD_END_S)
            self.is_active = False
            self.socket.close()  # os-ken keeps it in a cycle of objects, which the collector finds much later

    def _read(self) -> None:
        """Messages to the handlers that want them, in the connection's present state, until it ends."""
        buffer = bytearray()
        while self.state != handler.DEAD_DISPATCHER:
            try:
                data = self.socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            buffer += data
            for message in framing.split(buffer):
                if self.cause:  # whoever dropped it waits for the end
                    return
                try:
                    parsed = self._parse(message)
                except framing.Malformed as error:
                    self._complain("OpenFlow from %s: a message was left out: %s", self.address, error)
                    continue
                if parsed:
                    event = ofp_event.ofp_msg_to_ev(parsed)
                    self.ofp_brick.send_event_to_observers(event, self.state)
                    for one in self.ofp_brick.get_handlers(event, self.state):
                        one(event)

    def _parse(self, message: bytearray) -> Any:
        """None: nobody here takes it, or it was malformed to os-ken, which logged that. Raises Malformed."""
        known = framing.for_os_ken(message)
        return ofproto_parser.msg(self, *ofproto_parser.header(known), known) if known else None

    def _write(self) -> None:
        try:
            while (data := self._outgoing.get()) is not None:
                self.socket.sendall(data)
            self.drop("closed")
        except OSError as error:
            self.drop(f"writing to it failed: {error}")


class OpenFlowThread:
    """Listens on one address and serves switches in threads; calls back on `loop`.

    `on_ready(connection)` when a switch has finished the handshake; `on_message(connection, os-ken message)` for
    barrier replies, errors, flow and group descriptions, port status and echo replies; `on_gone(connection, cause)` at
    its end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_ready: Callable[[Connection], None],
        on_message: Deliver,
        on_gone: Gone,
    ) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._on_message = on_message
        self._shim = Shim(self._hand_over)
        self._connections: dict[Connection, threading.Thread] = {}
        self._shaking: dict[Connection, None] = {}  # of these, those still in the handshake, the oldest first
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()
        self._complaints = Sparing(1, LOG_EVERY_S)

    def start(self, host: str, port: int) -> int:
        """Listen on `host`:`port` (0 = any) and nowhere else; returns the port. Raises SouthboundError."""
        ofproto_protocol.set_app_supported_versions([ofproto_v1_3.OFP_VERSION])
        cfg.CONF(args=[], project="os_ken", version="rostrum", default_config_files=[])
        logging.getLogger("os_ken.ofproto.ofproto_parser").addFilter(MALFORMED)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(64)
        except OSError as error:
            listener.close()
            raise SouthboundError(f"cannot listen for OpenFlow switches on {host}:{port}: {error.strerror}") from error
        self._listener = listener
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="openflow-accept", daemon=True)
        self._acceptor.start()
        return int(listener.getsockname()[1])

    def stop(self) -> None:
        """Close everything and wait for the threads. Blocks; call it off the loop."""
        self._stopping.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() alone does not
            self._listener.close()
        if self._acceptor is not None:
            self._acceptor.join(THREAD_END_S)
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.drop("the manager is closing")
        for thread in connections.values():
            thread.join(THREAD_END_S)

    def _call(self, function: Callable[..., None], connection: Connection, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, connection, *args)
        except RuntimeError:  # the loop is closed: nobody listens any more
            connection.drop("the manager is closing")

    def _hand_over(self, connection: Connection, message: Any) -> None:
        """Waits for room: a switch that talks faster than the loop listens is read no faster."""
        while not connection.room.acquire(timeout=ROOM_S):
            if connection.cause:
                return
        self._call(self._take, connection, message)

    def _take(self, connection: Connection, message: Any) -> None:
        """On the loop."""
        connection.room.release()
        self._on_message(connection, message)

    def _accept(self, listener: socket.socket) -> None:
        """Ends when `stop` is called, and for no other reason: accept() fails for want of descriptors or memory, and
        for connections that went away while they waited (accept(2)).
        """
        while not self._stopping.is_set():
            try:
                sock, address = listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                self._complain("OpenFlow connections cannot be taken: %s", error)
                if error.errno not in PASSING:
                    self._stopping.wait(ACCEPT_RETRY_S)
                continue
            try:
                self._begin(sock, address)
            except (OSError, RuntimeError) as error:  # no thread could be started
                self._complain("OpenFlow from %s: refused: %s", address, error)
                sock.close()

    def _begin(self, sock: socket.socket, address: Any) -> None:
        connection = Connection(sock, address, self._shim, self._shaken, self._complain)
        thread = threading.Thread(target=self._serve, args=(connection,), name="openflow-reader", daemon=True)
        with self._lock:
            oldest = next(iter(self._shaking)) if len(self._shaking) >= HANDSHAKES_MAX else None
            if oldest:
                del self._shaking[oldest]
            self._connections[connection] = thread
            self._shaking[connection] = None
        if oldest:
            text = f"{HANDSHAKES_MAX} connections have not said which switch they are; the oldest makes room"
            self._complain("OpenFlow from %s: %s", oldest.address, text)
            oldest.drop(text)
        try:
            thread.start()
        except RuntimeError:
            self._forget(connection)
            raise

    def _shaken(self, connection: Connection) -> None:
        with self._lock:
            self._shaking.pop(connection, None)
        self._call(self._on_ready, connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._connections.pop(connection, None)
            self._shaking.pop(connection, None)

    def _complain(self, text: str, *facts: object) -> None:
        left_out = self._complaints.may(time.monotonic())
        if left_out is not None:
            log.warning(f"{text}%s", *facts, f" ({left_out} more were not logged)" if left_out else "")

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._forget(connection)
            self._call(self._on_gone, connection, connection.cause)
