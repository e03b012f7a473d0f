"""A server whose host drops what arrives of some kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rostrum.lab.lab import Lab

MULTICAST = "ip dst 224.0.0.0/4"
TCP, UDP = "ip protocol 6 0xff", "ip protocol 17 0xff"


@contextmanager
def firewall(lab: Lab, server: str, match: str) -> Iterator[None]:
    """What arrives that tc's u32 filter `match` takes is dropped in the server's host."""
    interface, drain = f"{server}-eth0", "drain"
    commands = (
        f"ip link add {drain} type veth peer name {drain}-end",
        f"ip link set {drain} up",
        f"tc qdisc add dev {interface} ingress",
        f"tc filter add dev {interface} parent ffff: protocol ip u32 match {match}"
        f" action mirred egress redirect dev {drain}",
    )
    try:
        for command in commands:
            lab.execute(server, command.split())
        yield
    finally:
        lab.execute(server, ["tc", "qdisc", "del", "dev", interface, "ingress"])
        lab.execute(server, ["ip", "link", "del", drain])
