"""Multicast addresses: one per path, out of the topology's range."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

RANGE_BITS = (
    16  # groups are told apart by their low bits in switches' group tables (and, by the low 23, in MAC addresses)
)
DISCOVERY = int(IPv4Address("239.255.71.72"))  # of agents without a manager
ETHERNET_BITS = 23


class Exhausted(Exception):
    """Every address of the range is in use."""


class Groups:
    """Hands addresses out in turn, beginning at a place that depends on the manager's boot: what an earlier manager
    granted, and what is still on its way to a released group, is met again as late as possible.
    """

    def __init__(self, network: IPv4Network, boot_id: int) -> None:
        bits = min(network.max_prefixlen - network.prefixlen, RANGE_BITS)
        self._base = int(network.network_address)
        self._count = max((1 << bits) - 1, 1)  # the range's first address stays unused
        # nor is the one used that has discovery's Ethernet address: all agents of a LAN would get its packets
        first = self._base + 1
        self._avoided = first + (DISCOVERY - first) % (1 << ETHERNET_BITS)
        self._next = (boot_id * 0x9E3779B97F4A7C15 >> 20) % self._count
        self._used: set[int] = set()

    def take(self) -> IPv4Address:
        """Raises Exhausted."""
        if len(self._used) >= self.room:
            raise Exhausted(f"all {self.room} multicast groups of the topology's range are in use")
        while True:
            number = self._base + 1 + self._next
            self._next = (self._next + 1) % self._count
            if number not in self._used and number != self._avoided:
                self._used.add(number)
                return IPv4Address(number)

    def adopt(self, address: IPv4Address) -> bool:
        """Marks an address found in use; False if it already was."""
        if int(address) in self._used:
            return False
        if self.contains(address):
            self._used.add(int(address))
        return True

    def give_back(self, address: IPv4Address) -> None:
        self._used.discard(int(address))

    def contains(self, address: IPv4Address) -> bool:
        return 1 <= int(address) - self._base <= self._count

    @property
    def room(self) -> int:
        """Addresses there are, used or not."""
        return self._count - (self._avoided <= self._base + self._count)

    @property
    def used(self) -> int:
        return len(self._used)
