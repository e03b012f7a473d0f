"""Network interfaces as ports: raw packet sockets, read in batches."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import socket
import struct

log = logging.getLogger("p4target")

ETH_P_ALL = 3
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, PACKET_MR_PROMISC = 263, 1, 8, 23, 1
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
RTMGRP_LINK = 1
SIOCGIFFLAGS, IFF_UP, IFF_RUNNING = 0x8913, 1, 0x40
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
FRAME_BYTES = 9236  # 9,018 without frame check sequence, two tags, and room
RECEIVE_BUFFER_BYTES = 16 << 20  # frames wait here while the one thread is busy with others
SEND_BUFFER_BYTES = 4 << 20  # beyond it the port's own queues hold what waits, by priority
BATCH = 32
WORDS = 16  # of 4 bytes, in a struct mmsghdr
CONTROL_BYTES = 64
DROPPED = {errno.ENOBUFS: "queueing discipline", errno.EMSGSIZE: "too long", errno.EINVAL: "too long"}


class Batch:
    """Memory for recvmmsg(2), for all interfaces in turn."""

    def __init__(self, frame_bytes: int = FRAME_BYTES) -> None:
        self.frame_bytes = frame_bytes
        self._data = bytearray(BATCH * frame_bytes)
        self._control = bytearray(BATCH * CONTROL_BYTES)
        self._vectors = bytearray(BATCH * 16)
        self._messages = bytearray(BATCH * WORDS * 4)
        addresses = [_address(each) for each in (self._data, self._control, self._vectors, self._messages)]
        data, control, vectors, self._at = addresses
        for number in range(BATCH):
            struct.pack_into("=QQ", self._vectors, number * 16, data + number * frame_bytes, frame_bytes)
            struct.pack_into(
                "=QIIQQQQIIII",
                self._messages,
                number * WORDS * 4,
                *(0, 0, 0, vectors + number * 16, 1, control + number * CONTROL_BYTES, CONTROL_BYTES, 0, 0, 0, 0),
            )
        self._fresh = bytes(self._messages)
        self._view = memoryview(self._data)
        self._words = memoryview(self._messages).cast("I")
        self._status = memoryview(self._control).cast("I")
        self._tags = memoryview(self._control).cast("H")
        self._receive = ctypes.CDLL(None, use_errno=True).recvmmsg
        self.truncated = 0

    def receive(self, descriptor: int) -> list[bytes]:
        """Up to BATCH frames that have come; none if there are none. Raises OSError."""
        self._messages[:] = self._fresh
        count = self._receive(descriptor, ctypes.c_void_p(self._at), BATCH, socket.MSG_DONTWAIT, None)
        if count < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.EINTR):
                return []
            raise OSError(code, os.strerror(code))
        frames, words, size = [], self._words, self.frame_bytes
        for number in range(count):
            start, place = number * size, number * WORDS
            if words[place + 12] & socket.MSG_TRUNC:
                self.truncated += 1
                continue
            frame = self._view[start : start + words[place + 14]].tobytes()
            # Linux takes the outer tag out of a frame and tells it beside the data (struct tpacket_auxdata).
            if words[place + 10] and self._status[number * 16 + 4] & TP_STATUS_VLAN_VALID:
                frame = self._with_tag(frame, number)
            frames.append(frame)
        return frames

    def _with_tag(self, frame: bytes, number: int) -> bytes:
        tag, protocol = self._tags[number * 32 + 16], self._tags[number * 32 + 17]
        if not self._status[number * 16 + 4] & TP_STATUS_VLAN_TPID_VALID:
            protocol = 0x8100
        return frame[:12] + struct.pack("!HH", protocol, tag) + frame[12:]


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class LinkNews:
    """What the kernel tells of interfaces that go up and down (rtnetlink)."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self._socket.bind((0, RTMGRP_LINK))

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> None:
        """What was told; who wants to know looks at the interfaces then. Raises no error: news may be lost."""
        try:
            while self._socket.recv(65536):
                pass
        except OSError:  # all is read, or there was more than it could keep
            pass

    def close(self) -> None:
        self._socket.close()


class Interface:
    """One port's socket. `alive`: it was not deleted under us. `drops`: frames that could not be sent, by reason."""

    def __init__(self, port: int, name: str) -> None:
        """Raises OSError with a reason."""
        self.port, self.name, self.alive = port, name, True
        self.drops: dict[str, int] = {}
        self.sent = 0
        try:
            # Without a protocol, so that it takes nothing before it is bound.
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            raise OSError("raw packet sockets need CAP_NET_RAW: run as root") from error
        try:
            self._open()
        except OSError as error:
            self.socket.close()
            if error.errno in (None, errno.ENODEV, errno.ENXIO):  # if_nametoindex gives no number
                raise OSError(f"port {port}: there is no interface {name}") from error
            raise OSError(f"port {port}, interface {name}: {error.strerror}") from error

    def _open(self) -> None:
        index = socket.if_nametoindex(self.name)
        one = self.socket
        for option, plain, size in (
            (SO_RCVBUFFORCE, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES),
            (SO_SNDBUFFORCE, socket.SO_SNDBUF, SEND_BUFFER_BYTES),
        ):
            try:
                one.setsockopt(socket.SOL_SOCKET, option, size)
            except PermissionError:
                one.setsockopt(socket.SOL_SOCKET, plain, size)
        one.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        one.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        one.bind((self.name, ETH_P_ALL))
        membership = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
        one.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
        one.setblocking(False)

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def running(self) -> bool:
        """It is switched on, and so is the other end of its cable."""
        try:
            request = struct.pack("16sH14x", self.name.encode(), 0)
            flags: int = struct.unpack_from("H", fcntl.ioctl(self.socket, SIOCGIFFLAGS, request), 16)[0]
        except OSError:
            return False
        return bool(flags & IFF_UP) and bool(flags & IFF_RUNNING)

    def send(self, frame: bytes) -> bool:
        """False: not now, the buffer is full. What cannot be sent at all is dropped and counted."""
        try:
            self.socket.send(frame)
        except BlockingIOError:
            return False
        except OSError as error:
            reason = DROPPED.get(error.errno or 0, "interface")
            self.drops[reason] = self.drops.get(reason, 0) + 1
            return True
        self.sent += 1
        return True

    def trouble(self, error: OSError | None) -> None:
        """The socket reported an error: tells it, and finds out whether the interface is still there."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or (error.errno if error else 0) or 0
        try:
            socket.if_nametoindex(self.name)
        except OSError:
            self.alive = False
            log.warning("port %d: interface %s is gone", self.port, self.name)
            return
        if code:
            log.warning("port %d, interface %s: %s", self.port, self.name, os.strerror(code))

    def close(self) -> None:
        self.socket.close()
