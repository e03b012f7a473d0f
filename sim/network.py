"""The simulator's C library (`engine/`) for Python: a network is built, run, and read in bulk.

Times are int64 ns from 0, rates bit/s, sizes bytes. Every wrong call raises SimError with the library's text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cffi import FFI

FOLDER = Path(__file__).resolve().parent
HEADERS = tuple(
    FOLDER / name for name in ("engine/sim.h", "baselines/baselines.h", "messages/messages.h", "messages/guarantees.h")
)
LIBRARY = FOLDER.parent / "build" / "agent" / "sim" / "librostrum_sim.so"
FOREVER = 2**63 - 1

NOTE = np.dtype(
    [("at", "i8"), ("value", "u8"), ("host", "u4"), ("peer", "u4"), ("kind", "u4"), ("transfer", "u4")], align=True
)
LINK_STATS: tuple[str, ...] = (
    *("packets", "bytes", "group_packets", "group_bytes", "data_packets", "data_bytes"),
    *("lost", "overflow", "first_data_at"),
)
LOSS_MODELS = ("none", "bernoulli", "gilbert", "bursty", "markov")


class SimError(Exception):
    """The simulator cannot do that, or an engine did what it must never do; the text says what."""


@dataclass(frozen=True)
class LinkParams:
    rate_bps: int = 10**9
    delay_ns: int = 1_000
    queue_bytes: int = 1 << 20
    classes: int = 1  # 2 = group packets first


@dataclass(frozen=True)
class RdcmParams:
    """As rs_rdcm_config in agent/core/rdcm/options.h; zero = its default."""

    no_congestion_control: bool = False
    ack_every: int = 0
    ack_delay_ns: int = 0
    ack_timeout_ns: int = 0
    ack_timeout_least_ns: int = 0
    ack_timeout_first_ns: int = 0
    loss_delay_ns: int = 0
    failure_ns: int = 0
    link_ns: int = 0
    request_ns: int = 0
    view_ns: int = 0
    window_packets: int = 0

    @classmethod
    def of_agents(cls) -> RdcmParams:
        """As rostrumd sets the engine: read from the core, not copied. Raises SimError without the library."""
        ffi, lib = library()
        out = ffi.new("sim_rdcm_params *")
        lib.sim_rdcm_of_agents(out)
        return cls(**{one.name: getattr(out, one.name) for one in fields(cls)})


class Place(NamedTuple):
    """A host's place in a ring of an overlay; None = nobody."""

    predecessor: int | None
    successor: int | None
    parent: int | None


NOWHERE = Place(None, None, None)


@dataclass(frozen=True)
class OverlayView:
    """What one host must know of a transfer's backup overlay, as rs_view in agent/core/base/types.h."""

    version: int
    leaf: Place = NOWHERE
    proxy: Place = NOWHERE
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class HostParams:
    """Zero = the engine's default (agent/core/transfer/node.h)."""

    seed: int = 0
    fragment_size: int = 0
    nic_rate_bps: int = 0
    attempt_interval_ns: int = 0
    light_confirm: int = 0
    start_on_first: bool = False
    patches_only: bool = False
    carries: bool = True
    max_transfers: int = 16
    max_receivers: int = 0
    direct_receivers: int = 0
    feedback_arity: int = 0
    receiver_silence_ns: int = 0
    sender_silence_ns: int = 0
    rdcm: RdcmParams = RdcmParams()
    room_bytes: int = 16 << 20  # at its socket, as rostrumd has it


@dataclass(frozen=True)
class PathParams:
    """What the manager grants a sender. `accepted_bytes` 0 = all."""

    group: int
    engine: str = "republic"  # by its report; in a library with more engines (ROSTRUM_SIM_LIBRARY), any of these
    circuit: bool = False
    reconfiguration_ns: int = 0
    rate_bps: int = 0
    light_bound_ns: int = 0
    accepted_bytes: int = 0
    manager_delay_ns: int = 1_000_000


class Child(NamedTuple):
    """Who reports to, or asks, a host: the links of the way to it, and its group, whose tree has `links` (0 = none)."""

    node: int
    hops: int
    group: int = 0
    links: int = 0


@dataclass(frozen=True)
class BaselineParams:
    """One host of SRM, RMTP, LBRM or TMTP (baselines/baselines.h; 0 = default there)."""

    protocol: str
    group: int
    seed: int = 1
    fragment_size: int = 1024
    rate_bps: int = 10**9
    c1: float = 0
    c2: float = 0
    d1: float = 0
    d2: float = 0
    fixed_timers: bool = False
    members: int = 0
    distance_ns: int = 0
    session_ns: int = 0
    parent: int | None = None
    children: tuple[Child, ...] = ()
    domain: int = 0
    status_ns: int = 0
    collect_ns: int = 0


@cache
def _declarations() -> FFI:
    """The headers as cffi takes them: no comments, no preprocessor but the constants."""
    text = "".join(header.read_text() for header in HEADERS)
    constants = dict(re.findall(r"^#define (\w+) (0x[0-9a-f]+)$", text, re.MULTILINE))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    ffi = FFI()
    ffi.cdef(body + "".join(f"\n#define {name} {value}" for name, value in constants.items()))
    return ffi


@cache
def _library() -> Any:
    path = os.environ.get("ROSTRUM_SIM_LIBRARY", str(LIBRARY))
    try:
        return _declarations().dlopen(path)
    except OSError as error:
        raise SimError(f"the simulator's library cannot be loaded ({error}); make it with: make build") from error


def library() -> tuple[FFI, Any]:
    """For what is in the library beside networks. Raises SimError."""
    return _declarations(), _library()


class Network:
    """One network. Node and link numbers are those of the library, from 0.

    `ffi`, `lib` (the library) and `handle` (its sim *) are for what else is in the library (addresses.py), as are the
    helpers at the end.
    """

    def __init__(self, seed: int = 1) -> None:
        self.ffi, self.lib = library()
        self.handle = self.ffi.gc(self.lib.sim_new(seed), self.lib.sim_free)
        if self.handle == self.ffi.NULL:
            raise SimError("no memory for a network")

    # building

    def switch(self) -> int:
        return self.number(self.lib.sim_add_switch(self.handle))

    def server(self) -> int:
        """A host without an engine: it only forwards, until it is given one (`use_node`)."""
        return self.number(self.lib.sim_add_server(self.handle))

    def use_node(self, host: int, params: HostParams | None = None) -> None:
        """The agent's engine at a server that has none."""
        self.check(self.lib.sim_use_node(self.handle, host, self.struct("sim_host_params", params or HostParams())))

    def use_baseline(self, host: int, params: BaselineParams) -> None:
        """SRM, RMTP, LBRM or TMTP at a server that has no engine."""
        values = {one.name: getattr(params, one.name) for one in fields(params)}
        values["protocol"] = getattr(self.lib, f"BASELINE_{params.protocol.upper()}")
        values["parent"] = self.lib.SIM_ERROR if params.parent is None else params.parent
        children = self.ffi.new("baseline_child[]", list(params.children))
        values |= {"children": children, "child_count": len(params.children)}
        self.check(self.lib.baseline_use(self.handle, host, self.ffi.new("baseline_params *", values)))

    def host(self, params: HostParams | None = None) -> int:
        """A server with the agent's engine."""
        return self.number(self.lib.sim_add_host(self.handle, self.struct("sim_host_params", params or HostParams())))

    def rack(self, host: int, rack: int) -> None:
        """Where a server stands, below 65,536: its address tells so. Usually all stand in one."""
        self.lib.sim_set_rack(self.handle, host, rack)

    def link(self, a: int, b: int, params: LinkParams | None = None, back: LinkParams | None = None) -> tuple[int, int]:
        """Both directions between two nodes: (a to b, b to a); alike, unless `back` is given."""
        there = self.struct("sim_link_params", params or LinkParams())
        other = self.struct("sim_link_params", back or params or LinkParams())
        first = self.number(self.lib.sim_add_link(self.handle, a, b, there))
        return first, self.number(self.lib.sim_add_link(self.handle, b, a, other))

    def link_between(self, a: int, b: int) -> int:
        found = int(self.lib.sim_link_between(self.handle, a, b))
        if found == self.lib.SIM_ERROR:
            raise SimError(f"no link leads from node {a} to node {b}")
        return found

    def loss(self, link: int, model: str, p: float, burst: float = 1.0) -> None:
        """One of LOSS_MODELS (engine/sim.h): `p` of the packets in the mean, in runs of `burst`."""
        if model not in LOSS_MODELS:
            raise SimError(f"no loss model is called {model!r}; there are {', '.join(LOSS_MODELS)}")
        self.check(self.lib.sim_set_loss(self.handle, link, LOSS_MODELS.index(model), p, burst))

    def loss_pattern(self, host: int, server: str, seed: int, p: float, run: int = 1) -> None:
        """What a host loses of data packets to groups: what the agent of `server` loses with this `--seed` and
        `--loss pattern:P:RUN`: first copies, `p` of all, in runs of `run`.
        """
        self.check(self.lib.sim_set_loss_pattern(self.handle, host, server.encode(), seed, p, run))

    def losses(self, host: int) -> int:
        """How many data packets a host lost by its pattern."""
        return int(self.lib.sim_losses(self.handle, host))

    def up(self, link: int, up: bool) -> None:
        self.check(self.lib.sim_set_up(self.handle, link, up))

    def dark(self, link: int, until_ns: int, ringing_until_ns: int = 0, ringing_loss: float = 0.0) -> None:
        self.check(self.lib.sim_set_dark(self.handle, link, until_ns, ringing_until_ns, ringing_loss))

    def crash(self, host: int) -> None:
        self.check(self.lib.sim_crash(self.handle, host))

    def stalls(self, host: int, every_ns: int, length_ns: int) -> None:
        """Its process stands still for `length_ns` after running for `every_ns` (means), as on a busy machine."""
        self.check(self.lib.sim_set_stalls(self.handle, host, every_ns, length_ns))

    def group(self, node: int, group: int, links: Sequence[int], member: bool = False) -> None:
        """What `node` does with packets of `group`: copies to `links`, and takes them if `member`."""
        self.check(self.lib.sim_set_group(self.handle, node, group, list(links), len(links), member))

    def route(self, a: int, b: int, links: Sequence[int]) -> None:
        """The way that packets of host `a` to host `b` take; no links = shortest paths."""
        self.check(self.lib.sim_set_route(self.handle, a, b, list(links), len(links)))

    def flow(self, a: int, b: int, rate_bps: int, packet_bytes: int, start_ns: int, stop_ns: int) -> None:
        """Datagrams at a constant rate in the background."""
        self.number(self.lib.sim_add_flow(self.handle, a, b, rate_bps, packet_bytes, start_ns, stop_ns))

    # running

    def path(self, host: int, params: PathParams) -> None:
        """What the manager will grant to `host`."""
        number = self.lib.sim_engine_number(params.engine.encode())
        if number == self.lib.SIM_ERROR:
            raise SimError(f"no engine is called {params.engine}")
        path = self.ffi.new("sim_path_params *", asdict(params) | {"engine": number})
        self.lib.sim_set_path(self.handle, host, path)

    def send(self, host: int, object_id: int, size: int, receivers: Sequence[int], options: str = "") -> int:
        """Begins a transfer, with options of its engine as `rostrum send --option` has them, joined by commas.

        Returns its number at the sender.
        """
        nodes, text = self.ffi.new("uint32_t[]", list(receivers)), self.ffi.new("char[]", options.encode())
        params = {"object": object_id, "size": size, "receivers": nodes, "count": len(receivers)}
        params |= {"options": text} if options else {}
        return self.number(self.lib.sim_send(self.handle, host, self.ffi.new("sim_send_params *", params)))

    def stream(self, host: int, object_id: int, receivers: Sequence[int]) -> int:
        """As send, but there is always more (by RDCM), until stream_end."""
        return self.send(host, object_id, self.lib.SIM_STREAM, receivers)

    def stream_end(self, host: int, object_id: int) -> None:
        self.check(self.lib.sim_stream_end(self.handle, host, object_id))

    def view(self, host: int, object_id: int, view: OverlayView) -> None:
        """What the manager tells a host of the overlay of an object's transfer, before or while it runs."""
        nobody = self.lib.SIM_ERROR
        places = {"leaf": view.leaf, "proxy": view.proxy}
        values = {
            f"{ring}_{name}": nobody if node is None else node
            for ring, place in places.items()
            for name, node in place._asdict().items()
        }
        children = self.ffi.new("uint32_t[]", list(view.children))
        values |= {"version": view.version, "children": children, "child_count": len(view.children)}
        self.check(self.lib.sim_set_view(self.handle, host, object_id, self.ffi.new("sim_view *", values)))

    def absent(self, host: int, object_id: int, absent: bool) -> None:
        """While nobody at a receiver wants an object it is offered, and not accepted before that ends."""
        self.check(self.lib.sim_set_absent(self.handle, host, object_id, absent))

    def leave(self, host: int, object_id: int) -> None:
        """A receiver wants an object no more, under way."""
        self.check(self.lib.sim_leave(self.handle, host, object_id))

    def run(self, until_ns: int = FOREVER) -> None:
        self.check(self.lib.sim_run(self.handle, until_ns))

    def run_until_sent(self, until_ns: int = FOREVER) -> None:
        """Until a transfer ends at its sender."""
        self.check(self.lib.sim_run_until_sent(self.handle, until_ns))

    def run_until_noted(self, kind: str, count: int, until_ns: int = FOREVER) -> None:
        """Until there are `count` notes of a kind (as notes_of), from the beginning."""
        self.check(self.lib.sim_run_until_noted(self.handle, self.kind(kind), count, until_ns))

    def trace(self, path: Path | None) -> None:
        """JSON lines of every packet that arrives somewhere, from now on; None ends it."""
        name = self.ffi.NULL if path is None else str(path).encode()
        self.check(self.lib.sim_trace(self.handle, name))

    # reading

    @property
    def now_ns(self) -> int:
        return int(self.run_stats()["now"])

    def notes(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """All that engines told their applications, as an array of NOTE; a copy."""
        count = self.ffi.new("uint64_t *")
        notes = self.lib.sim_notes(self.handle, count)
        if count[0] == 0:
            return np.empty(0, NOTE)
        return np.frombuffer(self.ffi.buffer(notes, count[0] * NOTE.itemsize), NOTE).copy()

    def kind(self, name: str) -> int:
        """The number of a kind of notes: of `send_done`, SIM_NOTE_SEND_DONE."""
        return int(getattr(self.lib, f"SIM_NOTE_{name.upper()}"))

    def notes_of(self, kind: str) -> np.ndarray[Any, np.dtype[np.void]]:
        """The notes of one kind: `send_done` for SIM_NOTE_SEND_DONE."""
        notes = self.notes()
        wanted: np.ndarray[Any, np.dtype[np.void]] = notes[notes["kind"] == self.kind(kind)]
        return wanted

    def link_stats(self, link: int) -> dict[str, int]:
        out = self.ffi.new("sim_link_stats *")
        if not self.lib.sim_link_stats_get(self.handle, link, out):
            raise SimError(f"there is no link {link}")
        return self.as_dict(out)

    def transfer(self, host: int, transfer: int) -> dict[str, int]:
        """The engine's statistics (core/transfer/node.h, rs_xfer_stats); kept for about a second after its end."""
        out = self.ffi.new("sim_transfer_stats *")
        if not self.lib.sim_transfer_stats_get(self.handle, host, transfer, out):
            raise SimError(f"host {host} knows no transfer {transfer} any more")
        return self.as_dict(out)

    def baseline_stats(self, host: int) -> dict[str, int]:
        out = self.ffi.new("baseline_stats *")
        self.check(self.lib.baseline_stats_get(self.handle, host, out))
        return self.as_dict(out)

    def link_count(self) -> int:
        return int(self.lib.sim_link_count(self.handle))

    def link_totals(self, links: Sequence[int] | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """LINK_STATS of some links, or of all: one row each."""
        chosen = range(self.link_count()) if links is None else links
        out = self.ffi.new("sim_link_stats[]", len(chosen))
        for row, link in enumerate(chosen):
            if not self.lib.sim_link_stats_get(self.handle, link, out + row):
                raise SimError(f"there is no link {link}")
        return np.frombuffer(self.ffi.buffer(out), np.int64).reshape(len(chosen), len(LINK_STATS)).copy()

    def receiving(self, host: int, object_id: int) -> int:
        """The receiver's number of a transfer; 0 = it has seen none of that object."""
        return int(self.lib.sim_receiving(self.handle, host, object_id))

    def run_stats(self) -> dict[str, int]:
        out = self.ffi.new("sim_run_stats *")
        self.lib.sim_run_stats_get(self.handle, out)
        return self.as_dict(out)

    # helpers

    def struct(self, name: str, params: Any) -> Any:
        """A C struct of that name, filled from a dataclass with the same fields."""
        return self.ffi.new(f"{name} *", asdict(params))

    def as_dict(self, struct: Any) -> dict[str, int]:
        """The fields of a C struct (a pointer to it)."""
        return {name: getattr(struct, name) for name, _ in self.ffi.typeof(struct).item.fields}

    def number(self, number: int) -> int:
        """What a call returned, unless it failed. Raises SimError in the library's text."""
        if number == self.lib.SIM_ERROR:
            raise SimError(self._message())
        return number

    def check(self, ok: bool) -> None:
        """Raises SimError in the library's text if the call failed."""
        if not ok:
            raise SimError(self._message())

    def _message(self) -> str:
        text = self.ffi.string(self.lib.sim_error(self.handle))
        return text.decode() if isinstance(text, bytes) else text
