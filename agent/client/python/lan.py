"""Files on a LAN that nobody manages: a private agent for one command, and files as objects (docs/lan.md)."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from uuid import NAMESPACE_URL, uuid5

from rostrum.topologies.places import build_folder

from .agent import Agent
from .objects import CreatedFile, copy_file
from .values import Busy, Code, NotFound, RostrumError, SendResult, StoredObject

#: Application id of files on a LAN: each object of it ends with a trailer that names its file.
LAN_APP_ID = uuid5(NAMESPACE_URL, "rostrum:lan")
DISCOVERY_GROUP = "239.255.71.72"
PORTS = "TCP and UDP 7071, UDP 7070, 7072, 7100 to 7163"
PART_BYTES = 1 << 30  # longer files go as several objects, so that memory for one of them is enough
TRAILER_MAGIC = b"RSFILE1\n"
TRAILER_MAX = 4096
TRIAL = "doctor"  # how the transfer of an object is called that is to be thrown away
START_BOUND_S = 10.0
STARTS_MOST = 8
USUAL_PORT = 7071
FOLDER, STORE_LINK = "rostrum-lan-", "store"  # of a private agent: where its socket is, and in it where its store is
LOOK_S = 0.02
TELL_FIRST_S, TELL_EACH_S = 2.0, 10.0  # who waits for receivers is told whom for
SIOCGIFADDR, SIOCGIFMTU = 0x8915, 0x8921
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Nic:
    """An interface and its IPv4 address."""

    name: str
    address: str


@dataclass(frozen=True)
class Peer:
    """An agent of the LAN. `multicast`: True, False, or None where it was not tried."""

    name: str
    host: str
    address: str
    port: int
    mtu: int
    receives: bool
    multicast: bool | None
    multicast_small: bool  # small packets alone get there

    @property
    def title(self) -> str:
        return f"{self.host} ({self.address})" if self.host and self.host != self.address else self.address


# ------------------------------------------------------------------------------------------------------ interfaces


def _ioctl(name: str, what: int) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        try:
            return fcntl.ioctl(link.fileno(), what, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None


def interfaces() -> list[Nic]:
    """Those with an IPv4 address, but for the loopback."""
    found = []
    for _, name in socket.if_nameindex():
        answer = _ioctl(name, SIOCGIFADDR)
        if answer and not (address := socket.inet_ntoa(answer[20:24])).startswith("127."):
            found.append(Nic(name, address))
    return found


def mtu_of(nic: Nic) -> int:
    answer = _ioctl(nic.name, SIOCGIFMTU)
    return struct.unpack_from("i", answer, 16)[0] if answer else 1500


def nic_for(targets: list[str], interface: str | None = None) -> Nic:
    """The interface by which packets to these addresses leave, or to anybody.

    Raises:
        RostrumError: there is none; the text lists those there are.
    """
    found = interfaces()
    names = ", ".join(f"{nic.name} ({nic.address})" for nic in found) or "none has an IPv4 address"
    if interface is not None:
        for nic in found:
            if interface in (nic.name, nic.address):
                return nic
        raise RostrumError(f"there is no interface {interface} with an IPv4 address; there is: {names}", Code.INVALID)
    for target in [*targets, "192.0.2.1", DISCOVERY_GROUP]:  # the default route, else that of multicast
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            try:
                link.connect((target, 9))
            except OSError:
                continue
            address = link.getsockname()[0]
        for nic in found:
            if nic.address == address:
                return nic
    if len(found) == 1:
        return found[0]
    raise RostrumError(f"no route says by which interface to go; name one with --interface: {names}", Code.INVALID)


# ------------------------------------------------------------------------------------------------------ private agent


def agent_program() -> str:
    """rostrumd: $ROSTRUM_AGENT, as built, or as installed.

    Raises:
        RostrumError: there is none.
    """
    built = build_folder() / "agent" / "agent" / "daemon" / "rostrumd"
    program = os.environ.get("ROSTRUM_AGENT") or (str(built) if built.exists() else shutil.which("rostrumd"))
    if not program:
        raise RostrumError(
            "rostrumd is not installed: install rostrum-agent (Debian), or build it with make and put it on the PATH",
            Code.UNAVAILABLE,
        )
    return program


def _free_control_port(address: str, usual: bool = True) -> int:
    """The usual one, or if another agent of this host has it, or not `usual`, any other."""
    for port in (USUAL_PORT, 0) if usual else (0,):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                tcp.bind((address, port))
                udp.bind((address, tcp.getsockname()[1]))
                return int(tcp.getsockname()[1])
    raise RostrumError(f"no port is free at {address}", Code.UNAVAILABLE)


def _end_with(parent: int) -> None:
    """In a child: it is told to end when the thread that began it does, however that ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _lock(folder: Path) -> int:
    """A descriptor of the folder, by which it is this process's for as long as it is open.

    Raises:
        OSError: it is another's, or gone.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_uid != os.getuid() or not folder.exists():
            raise FileNotFoundError(folder)
    except OSError:
        os.close(fd)
        raise
    return fd


def sweep_folders() -> None:
    """Folders of this user's commands that were killed go. While an agent runs, its store is its own."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            store = Path(os.readlink(folder / STORE_LINK))  # it is there once the folder is locked
            stack.callback(os.close, _lock(folder))
            with contextlib.suppress(FileNotFoundError):
                stack.callback(os.close, _lock(store))
                shutil.rmtree(store)
            shutil.rmtree(folder)


class PrivateAgent:
    """rostrumd for as long as one command runs, as its user, without a manager: not longer, or senders would take it
    for somebody who receives.

    Raises (on entry):
        RostrumError: it did not start; the text is the last of its log.
    """

    def __init__(
        self,
        nic: Nic,
        role: str,
        asked: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        into: Path | None = None,
    ) -> None:
        """`into`: where its objects are to go as files. In memory too (tmpfs), they need not be copied."""
        self.nic, self._role, self._asked, self._options = nic, role, asked, options
        self._into = into if into and _is_memory(into) else None
        self._process: subprocess.Popen[bytes] | None = None
        self._folders: list[Path] = []
        self._held: int | None = None
        self.done = False  # all that it was for: nobody waits until the system has its memory back

    def __enter__(self) -> Self:
        sweep_folders()
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        self._folders.append(self._folder)
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        with contextlib.suppress(OSError):  # NFS and others lock no folders: without the link none is swept
            self._held = _lock(self._folder)
        memory = self._into or Path("/dev/shm")
        self._store = Path(tempfile.mkdtemp(prefix=f".{FOLDER}", dir=memory if memory.is_dir() else None))
        self._folders.append(self._store)
        if self._held is not None:
            os.symlink(self._store.absolute(), self._folder / STORE_LINK)
        self.socket, self._metrics = self._folder / "agent.sock", self._folder / "metrics.sock"
        command = [
            agent_program(), "--interface", self.nic.name, "--address", self.nic.address, "--socket", str(self.socket),
            "--store", str(self._store), "--metrics", str(self._metrics), "--standalone", self._role, *self._options,
        ]  # fmt: skip
        if self._asked:
            command += ["--lan-peers", ",".join(self._asked)]
        for tries in range(STARTS_MOST):
            port = _free_control_port(self.nic.address, usual=tries == 0)
            # One name would be one agent, whose newest connection ends those of the other commands of this host.
            name = self.nic.address if port == USUAL_PORT else f"{self.nic.address}-{port}"
            own = ["--server", name, "--control-port", str(port)]
            if self._start([*command, *own], last=tries == STARTS_MOST - 1):
                return

    def _start(self, command: list[str], last: bool) -> bool:
        """False, but for the last try: another command that began at the same time has that port now."""
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                preexec_fn=functools.partial(_end_with, os.getpid()),
            )
        try:
            self._await_start()
        except RostrumError:
            if last or os.strerror(errno.EADDRINUSE) not in self._log_tail():
                raise
            self._process.kill()
            self._process.wait()
            return False
        return True

    def _await_start(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_BOUND_S
        while not (_answers(self.socket, socket.SOCK_SEQPACKET) and _answers(self._metrics, socket.SOCK_STREAM)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RostrumError(f"the private agent did not start: {self._log_tail()}", Code.UNAVAILABLE)
            time.sleep(0.005)

    def _log_tail(self) -> str:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        errors = [line for line in lines if " error " in line.lower()] or lines
        return errors[-1].split(" ", 2)[-1] if errors else "it said nothing"

    def __exit__(self, *rest: object) -> None:
        if self._process is not None and self.done:
            self._process.kill()
        elif self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for folder in reversed(self._folders):
            shutil.rmtree(folder, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)

    def connect(self) -> Agent:
        return Agent(self.socket, LAN_APP_ID, process="rostrum")

    @property
    def objects(self) -> Path | None:
        """Where its whole objects can be had by name, to be linked into the folder they are to go to; None: nowhere."""
        return self._store / str(LAN_APP_ID) if self._into else None

    def peers(self) -> list[Peer]:
        """The agents of other hosts that were heard of."""
        return [peer for peer in _peers_of(_get_metrics(self._metrics)) if peer.address != self.nic.address]

    def figure(self, name: str) -> float:
        """A figure of the agent's metrics; 0 if it is not there."""
        found = re.search(rf"^rostrum_agent_{name} (\S+)$", _get_metrics(self._metrics), re.MULTILINE)
        return float(found[1]) if found else 0.0


def _is_memory(folder: Path) -> bool:
    """Whether a folder is on a tmpfs."""
    device = os.stat(folder).st_dev
    with contextlib.suppress(OSError):
        for fields in map(str.split, Path("/proc/self/mountinfo").read_text().splitlines()):
            if fields[2] == f"{os.major(device)}:{os.minor(device)}":
                return fields[fields.index("-") + 1] == "tmpfs"
    return False


def _answers(path: Path, kind: int) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as link:
        return link.connect_ex(str(path)) == 0


def _get_metrics(path: Path) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(5)
        link.connect(str(path))
        link.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        pieces = []
        while piece := link.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")


def _peers_of(page: str) -> list[Peer]:
    found = []
    for labels, mtu in re.findall(r"^rostrum_agent_lan_peer_mtu_bytes\{(.*)\} (\d+)", page, re.MULTILINE):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        multicast = {"1": True, "-1": False, "-2": False}.get(of["multicast"])
        receives = of["receives"] == "1"
        found.append(Peer(of["name"], of["host"], of["address"], int(of["port"]), int(mtu), receives, multicast,
                          of["multicast"] == "-2"))  # fmt: skip
    return sorted(found, key=lambda peer: tuple(int(part) for part in peer.address.split(".")))


def is_address(name: str) -> bool:
    """Whether it is meant as an IPv4 address."""
    return re.fullmatch(r"[\d.]*\d\.[\d.]*", name) is not None


def names_of(peers: list[Peer]) -> list[str]:
    """How a send names each: by its address, or by its agent's name where that address has several."""
    many = collections.Counter(peer.address for peer in peers)
    return [peer.address if many[peer.address] == 1 else peer.name for peer in peers]


def resolve(names: list[str]) -> list[str]:
    """Addresses of names where the system knows them; other names stay, for agents may be called so.

    Raises:
        RostrumError: one looks like an address, and is none.
    """
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            found.append(socket.gethostbyname(name))
            continue
        if is_address(name):
            raise RostrumError(f"{name} is no IPv4 address, such as 10.0.0.2", Code.INVALID)
        found.append(name)
    return found


def find_receivers(
    private: PrivateAgent, names: list[str], count: int, wait: float, tell: Callable[[str], None]
) -> list[Peer]:
    """Those named, or else `count` at least of those that receive.

    Raises:
        RostrumError: they were not there in time; the text says who is missing.
    """
    for name in names:
        if name == private.nic.address or name.startswith("127."):
            raise RostrumError(f"{name} is this host: name others", Code.INVALID)
    began = time.monotonic()
    deadline, tell_at = began + wait, began + TELL_FIRST_S
    told: set[str] = set()
    while True:
        there = [peer for peer in private.peers() if peer.receives]
        for peer in there:
            if peer.address not in told:
                told.add(peer.address)
                tell(f"found {peer.title}")
        missing = [name for name in names if not any(name in (p.address, p.name, p.host) for p in there)]
        if not missing and len(there) >= count:
            if names:
                return [next(p for p in there if name in (p.address, p.name, p.host)) for name in names]
            return there
        if time.monotonic() >= deadline:
            who = f"no answer from {', '.join(missing)}" if missing else f"{len(there)} of {count} receivers are there"
            raise RostrumError(
                f"{who} after {wait:g} s on {private.nic.name} ({private.nic.address}): does rostrum receive run "
                f"there, and does its firewall take {PORTS}? rostrum doctor --lan looks closer",
                Code.TIMEOUT,
            )
        if time.monotonic() >= tell_at:
            tell_at += TELL_EACH_S
            whom = ", ".join(missing) or f"{count} receivers, {len(there)} so far,"
            left = f"{math.ceil(deadline - time.monotonic())} s more at most"
            tell(
                f"waiting for {whom} on {private.nic.name} ({private.nic.address}), {left}: rostrum receive runs there?"
            )
        time.sleep(LOOK_S)


# ------------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Trailer:
    """What stands behind the bytes of each part of a file."""

    name: str
    transfer: str
    offset: int
    size: int  # of the part
    total: int
    mode: int
    sender: str

    def packed(self) -> bytes:
        body = json.dumps(self.__dict__).encode()
        return body + struct.pack("<I", len(body)) + TRAILER_MAGIC


def read_trailer(fd: int, object_size: int) -> Trailer | None:
    """Of an object; None if it has none that makes sense: whoever sends may write anything there."""
    tail = len(TRAILER_MAGIC) + 4
    if object_size < tail:
        return None
    end = os.pread(fd, tail, object_size - tail)
    length = struct.unpack("<I", end[:4])[0]
    if end[4:] != TRAILER_MAGIC or length > min(TRAILER_MAX, object_size - tail):
        return None
    try:
        fields = json.loads(os.pread(fd, length, object_size - tail - length))
        trailer = Trailer(
            name=safe_name(str(fields["name"])), transfer=str(fields["transfer"])[:64], offset=int(fields["offset"]),
            size=int(fields["size"]), total=int(fields["total"]), mode=int(fields["mode"]) & 0o777,
            sender=str(fields["sender"])[:64],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    fits = trailer.size == object_size - tail - length and 0 <= trailer.offset <= trailer.total - trailer.size
    return trailer if fits and trailer.transfer.isalnum() else None


def safe_name(name: str) -> str:
    """A name for a file in the folder of what is received, and nowhere else."""
    name = re.sub(r"[\x00-\x1f\x7f]", "_", name.replace("\\", "/").rsplit("/", 1)[-1]).strip()
    name = name.encode("utf-8", "replace")[:200].decode("utf-8", "ignore")
    return "received" if name in ("", ".", "..") else name


def free_path(folder: Path, name: str, overwrite: bool) -> Path:
    """Where a file of that name goes: beside one that is there already, if that is to stay."""
    path, number = folder / name, 0
    while path.is_dir() or (not overwrite and path.exists()):
        number += 1
        path = folder / f"{name}.{number}"
    return path


@dataclass
class Received:
    """A file whose parts are coming in."""

    partial: Path
    name: str
    total: int
    mode: int
    sender: str
    have: int = 0
    began: float = 0.0


class Receiver:
    """Writes the files that come to a private agent into a folder."""

    def __init__(self, agent: Agent, folder: Path, overwrite: bool, objects: Path | None = None) -> None:
        """`objects`: where the agent's objects can be linked from (PrivateAgent.objects)."""
        self._agent, self._folder, self._overwrite, self._objects = agent, folder, overwrite, objects
        self._files: dict[str, Received] = {}
        self._taken: set[int] = set()  # a transfer still holds them
        self._given_up: collections.deque[str] = collections.deque(maxlen=64)  # transfers: nothing more of them
        # Once the agent has let go, they are files. Open until then: no agent frees the bytes of what somebody reads.
        self._linked: dict[int, tuple[Received, Trailer, str, int]] = {}

    def look(self) -> Iterator[dict[str, Any]]:
        """Files that are whole now. Parts are taken off the agent's memory as they are written."""
        there = {item.data_id for item in self._agent.status().objects if _is_file(item)}
        self._taken &= there
        for data_id in sorted(there):
            done = None if data_id in self._taken else self._take(data_id)
            if self._delete(data_id) and data_id in self._linked:
                row, trailer, digest, fd = self._linked.pop(data_id)
                os.close(fd)
                done = self._finish(row, trailer, digest, trailer.size)
            if done:
                yield done

    def _delete(self, data_id: int) -> bool:
        try:
            self._agent.delete(data_id)
        except NotFound:
            pass
        except Busy:
            self._taken.add(data_id)
            return False
        return True

    def _take(self, data_id: int) -> dict[str, Any] | None:
        with self._agent.read(data_id, wait=0) as data:
            trailer = read_trailer(data.fileno(), data.size)
            if trailer is None:
                return {"ok": False, "cause": "an object came that is no file of rostrum send", "bytes": 0}
            if trailer.transfer.startswith(TRIAL) or trailer.transfer in self._given_up:
                return None
            try:
                if self._link(data_id, trailer, data.digest):
                    return None
                row = self._write(data.fileno(), trailer)
            except OSError as error:
                return self._give_up(trailer, error)
        return self._finish(row, trailer, data.digest) if row.have >= row.total else None

    def _give_up(self, trailer: Trailer, error: OSError) -> dict[str, Any]:
        """It could not be written, and others may."""
        row = self._files.pop(trailer.transfer, None)
        self._given_up.append(trailer.transfer)
        with contextlib.suppress(OSError):
            if row:
                row.partial.unlink(missing_ok=True)
        what = f"{trailer.name} from {trailer.sender} could not be written to {self._folder}"
        return {"ok": False, "cause": f"{what}: {error.strerror or error}", "bytes": 0}

    def _finish(self, row: Received, trailer: Trailer, digest: str, size: int | None = None) -> dict[str, Any]:
        """It is shown. `size`: where there is more in the file than is the file's."""
        try:
            path = free_path(self._folder, row.name, self._overwrite)
            if size is not None:
                os.truncate(row.partial, size)
            os.chmod(row.partial, row.mode & ~_umask() or 0o600)
            os.replace(row.partial, path)
        except OSError as error:
            return self._give_up(trailer, error)
        self._files.pop(trailer.transfer, None)
        return {
            "ok": True, "file": str(path), "bytes": row.total, "from": row.sender, "digest": digest,
            "seconds": time.monotonic() - row.began,
        }  # fmt: skip

    def _link(self, data_id: int, trailer: Trailer, digest: str) -> bool:
        """A file in one part needs no copy where the agent's memory is that of the folder."""
        if self._objects is None or trailer.size != trailer.total:
            return False
        row = self._row(trailer)
        try:
            os.link(self._objects / str(data_id), row.partial)
        except OSError:
            return False
        os.chmod(row.partial, 0o600)
        self._linked[data_id] = (row, trailer, digest, os.open(row.partial, os.O_RDONLY))
        return True

    def _row(self, trailer: Trailer) -> Received:
        row = self._files.get(trailer.transfer)
        if row is None or row.total != trailer.total:
            partial = self._folder / f".{trailer.name}.{trailer.transfer[:8]}.part"
            row = Received(partial, trailer.name, trailer.total, trailer.mode, trailer.sender, began=time.monotonic())
            partial.unlink(missing_ok=True)
            self._files[trailer.transfer] = row
        return row

    def _write(self, fd: int, trailer: Trailer) -> Received:
        row = self._row(trailer)
        out = os.open(row.partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.lseek(out, trailer.offset, os.SEEK_SET)
            done = 0
            while done < trailer.size:
                done += os.sendfile(out, fd, done, trailer.size - done)
        finally:
            os.close(out)
        row.have += trailer.size
        return row

    def forget(self) -> None:
        """What did not become whole goes."""
        for row in self._files.values():
            row.partial.unlink(missing_ok=True)
        for *_, fd in self._linked.values():
            os.close(fd)


def _is_file(item: StoredObject) -> bool:
    return item.app == LAN_APP_ID and item.complete and item.received


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _part(agent: Agent, source: int, trailer: Trailer) -> CreatedFile:
    """A part of the file and its trailer, in the agent's memory."""
    tail = trailer.packed()
    created = agent.create(trailer.size + len(tail))
    try:
        copy_file(source, created.fd, trailer.size, trailer.offset)
        os.pwrite(created.fd, tail, trailer.size)
    except BaseException:
        created.close()
        raise
    return created


def send_file(
    agent: Agent,
    source: int,
    trailer: Trailer,
    receivers: list[str],
    watch: Callable[[Any], SendResult],
    **options: Any,
) -> list[SendResult]:
    """Sends a file in parts; the next is read while one travels. Ends with the first that fails for everybody.

    A receiver that failed a part is left out of the next ones.
    """
    results: list[SendResult] = []
    starts = range(0, max(trailer.total, 1), PART_BYTES)
    ready: list[CreatedFile | BaseException] = []

    def prepare(offset: int) -> None:
        part = replace(trailer, offset=offset, size=min(PART_BYTES, trailer.total - offset))
        try:
            ready.append(_part(agent, source, part))
        except BaseException as error:  # told by the thread that waits for it
            ready.append(error)

    prepare(0)
    for index, offset in enumerate(starts):
        made = ready.pop(0)
        if isinstance(made, BaseException):
            raise made
        number = int.from_bytes(os.urandom(7), "little")
        handle = agent.send(number, receivers, source=made, **options)
        reader = None
        if index + 1 < len(starts):
            reader = threading.Thread(target=prepare, args=(offset + PART_BYTES,))
            reader.start()
        try:
            result = watch(handle)
        finally:
            if reader:
                reader.join()
            with contextlib.suppress(RostrumError):
                agent.delete(number)
        results.append(result)
        receivers = [one.name for one in result.receivers if one.digest_ok]
        if not receivers:
            break
    for left in ready:
        if isinstance(left, CreatedFile):
            left.close()
    return results
