"""Message groups in the simulator (messages/messages.h) for Python: the agent's group messages at simulated hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rostrum.sim.network import Network

VIA = ("data", "repair", "retransmit", "given up")
RECOVERY = np.dtype([("late_ns", "i8"), ("known_ns", "i8"), ("host", "u4"), ("via", "u4")], align=True)


@dataclass(frozen=True)
class MessagesParams:
    """One host's engine; zero = its default (agent/core/groups/messages.h)."""

    seed: int = 0
    packet_bytes: int = 0
    receive_bytes: int = 0
    send_bytes: int = 0
    max_groups: int = 0
    max_streams: int = 0
    max_missing: int = 0
    window_packets: int = 0
    kept_repairs: int = 0
    repair_buffers: int = 0
    nak_delay_ns: int = 0
    nak_retry_ns: int = 0
    give_up_ns: int = 0
    give_up_plain_ns: int = 0
    flush_ns: int = 0
    heartbeat_ns: int = 0
    heartbeats: int = 0


@dataclass(frozen=True)
class GroupParams:
    """A group: `options` are its engine's (agent/core/groups/engine.h); what they do not name is as usual."""

    protocol: str = "ricochet"
    fifo: bool = False
    options: Mapping[str, float] = field(default_factory=dict)
    regions: tuple[int, ...] = ()  # of Groups.region, which together have these members


@dataclass(frozen=True)
class HostCosts:
    """Processor time at a host (messages.h); 0 = none."""

    receive_ns: int = 0
    send_ns: int = 0
    message_ns: int = 0
    token_ns: int = 0
    cold_ns: int = 0
    warm_groups: int = 0
    buffer_bytes: int = 0


class Groups:
    """All message groups of a network. Hosts are the network's servers that have no other engine."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._ffi, self._lib = network.ffi, network.lib
        self._kept: list[Any] = []  # texts that calls in hand point to
        handle = self._lib.sim_groups_new(network.handle)
        # The network must outlive its groups: `network` is held here.
        self._groups = self._ffi.gc(handle, self._lib.sim_groups_free)

    def use(self, host: int, params: MessagesParams | None = None) -> None:
        """Gives a host the engine. Raises SimError."""
        struct = self.network.struct("sim_messages_params", params or MessagesParams())
        self.network.check(self._lib.sim_use_messages(self._groups, host, struct))

    def group(self, members: Sequence[int], params: GroupParams | None = None) -> int:
        """Makes a group and tells its members; its number, which its multicast packets have too. Raises SimError."""
        struct = self._group_params(params or GroupParams())
        return self.network.number(self._lib.sim_message_group(self._groups, struct, list(members), len(members)))

    def region(self, nodes: Sequence[int], params: GroupParams) -> int:
        """Makes a region for groups that overlap in it; the number of its multicast packets. Raises SimError."""
        struct = self._group_params(params)
        return self.network.number(self._lib.sim_message_region(self._groups, struct, list(nodes), len(nodes)))

    def _group_params(self, given: GroupParams) -> Any:
        protocol = self._ffi.new("char[]", given.protocol.encode())
        options = ",".join(f"{name}={value:g}" for name, value in given.options.items())
        text = self._ffi.new("char[]", options.encode())
        regions = self._ffi.new("uint32_t[]", list(given.regions))
        values = {
            "protocol": protocol,
            "options": text,
            "order": int(given.fifo),
            "tell_given_up": given.protocol == "plain",
            "regions": regions,
            "region_count": len(given.regions),
        }
        struct = self._ffi.new("sim_group_params *", values)
        self._kept.append((protocol, text, regions))
        return struct

    def costs(self, host: int, costs: HostCosts) -> None:
        """What the host's processor needs. Raises SimError."""
        self.network.check(
            self._lib.sim_message_costs(self._groups, host, self.network.struct("sim_host_costs", costs))
        )

    def publish_all(self, host: int, size: int, start_ns: int, stop_ns: int) -> None:
        """Messages of `size` bytes to all groups of the host in turn, as fast as it can."""
        self.network.check(self._lib.sim_publish_all(self._groups, host, size, start_ns, stop_ns))

    def freeze(self, host: int, from_ns: int, to_ns: int) -> None:
        """The host's processor does nothing then."""
        self.network.check(self._lib.sim_message_freeze(self._groups, host, from_ns, to_ns))

    def count(self, host: int, name: str, kind: str) -> int:
        """What the host's engines count under that name and kind."""
        return int(self._lib.sim_messages_count(self._groups, host, name.encode(), kind.encode()))

    def publish(
        self, host: int, per_s: float, size: int, start_ns: int, stop_ns: int, own_groups: bool = False
    ) -> None:
        """Messages of `size` bytes at random times to random groups (of those it is in, if `own_groups`)."""
        self.network.check(self._lib.sim_publish(self._groups, host, own_groups, per_s, size, start_ns, stop_ns))

    def count_between(self, from_ns: int, to_ns: int) -> None:
        """Only what is published then counts: neither a beginning nor an end is like the rest."""
        self._lib.sim_count_between(self._groups, from_ns, to_ns)

    def stats(self) -> dict[str, int]:
        out = self._ffi.new("sim_messages_stats *")
        self._lib.sim_messages_stats_get(self._groups, out)
        return self.network.as_dict(out)

    def recoveries(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """What did not come by multicast, as an array of RECOVERY, in the order of time; a copy."""
        count = self._ffi.new("uint64_t *")
        found = self._lib.sim_recoveries(self._groups, count)
        if count[0] == 0:
            return np.empty(0, RECOVERY)
        return np.frombuffer(self._ffi.buffer(found, count[0] * RECOVERY.itemsize), RECOVERY).copy()
