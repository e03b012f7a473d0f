"""The hosts of a bench, joined by an emulated wide area in place of a bridge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rostrum.bench.account import must
from rostrum.bench.cases import Case
from rostrum.bench.fabric import OFFLOADS, Fabric
from rostrum.bench.wan.points import Point
from rostrum.lab.emulator import Emulator, Port
from rostrum.lab.namespace import LabError


class WideArea(Fabric):
    """`seed`: of what is lost; set before `configure`."""

    receivers_max = 10
    seed = 1
    _emulator: Emulator | None = None

    def _join(self, cache: Path) -> None:
        del cache
        addresses = {host.name: must(*host.argv("cat", "/sys/class/net/eth0/address")).strip() for host in self.hosts}
        off = [word for offload in (*OFFLOADS, "tx") for word in (offload, "off")]
        for number, host in enumerate(self.hosts, 1):
            must("ethtool", "-K", f"port{number}", *off)
            must(*host.argv("ethtool", "-K", "eth0", *off))
            for other in self.hosts:
                if other is not host:
                    must("ip", "-n", host.name, "neighbour", "replace", other.address, "lladdr",
                         addresses[other.name], "dev", "eth0", "nud", "permanent")  # fmt: skip

    def configure(self, case: Case) -> None:
        """A wide area as the point says, with fresh counters."""
        if not isinstance(case, Point):
            raise LabError(f"{case.name} is no point of a wide area")
        self.close()
        if self.case is None or self.case.mtu != case.mtu:
            for number, host in enumerate(self.hosts, 1):
                must("ip", "link", "set", f"port{number}", "mtu", str(case.mtu))
                must("ip", "-n", host.name, "link", "set", "eth0", "mtu", str(case.mtu))
        self._emulator = Emulator(self.folder, ports(case), self.seed)
        self._emulator.start()
        self.case = case

    def counters(self) -> dict[str, Any]:
        assert self._emulator is not None
        return self._emulator.counters()

    def lost_frames(self) -> tuple[int, int]:
        rows = self.counters()["ports"].values() if self._emulator else ()
        return sum(row["sent"] for row in rows), sum(row["lost_up"] + row["lost_down"] for row in rows)

    def close(self) -> None:
        if self._emulator:
            self._emulator.stop()
            self._emulator = None


def ports(point: Point) -> list[Port]:
    """port1 is the sender's, with the narrow link; then the receivers'."""
    loss = point.loss_percent / 100
    first, others = (loss, 0.0) if point.common else (0.0, loss)
    rate = float(point.rate_bps)
    sender = Port("port1", 0.0, rate, rate, point.queue, first, first, point.burst, point.mark)
    receivers = (
        Port(
            f"port{number}",
            delay_ms=point.rtt_ms / 2,
            up_bps=rate,
            queue=point.queue,
            lost_up=others,
            lost_down=others,
            burst=point.burst,
        )
        for number in range(2, point.receivers + 2)
    )
    return [sender, *receivers]
