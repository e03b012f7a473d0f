"""uftp: multicast file transfer with negative acknowledgements, at a fixed rate."""

from __future__ import annotations

import ipaddress
import re
import time
from typing import ClassVar

from rostrum.bench.account import must
from rostrum.bench.cases import Case
from rostrum.bench.fabric import Host
from rostrum.bench.run import READY_BOUND_S, Plain, Run, ToolFailed
from rostrum.bench.tools.rates import Rated, Rates, debian_version

NAME = "object"
GROUP = "230.4.4.1"  # uftp's own, for announcements


class Uftp(Rated, Plain):
    """`-C tfmcc` (its own congestion control) collapses and `-R -1` overruns receivers: the rate is given."""

    name = "uftp"
    link_share = 0.97
    free_bps: ClassVar[Rates] = {
        1500: (800_000_000, 500_000_000, 1_200_000_000),
        9000: (3_000_000_000, 2_000_000_000, 4_500_000_000),
    }

    def version(self) -> str:
        return debian_version("uftp")

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            argv = ["uftpd", "-d", "-x", "2", "-q", "-I", "eth0", "-U", _id(host), "-D", str(run.target(host).parent)]
            receivers.append(run.start("receivers", host, [*argv, "-B", "104857600", "-c", "20971520"]))
        run.ready(receivers, "Loaded")
        run.deadline = time.monotonic() + READY_BOUND_S
        run.until(lambda: all(_joined(host) for host in run.receivers), "uftpd to join its group")

    def send(self, run: Run) -> None:
        block = 1400 if run.case.mtu <= 1500 else 8800
        argv = ["uftp", "-x", "2", "-I", "eth0", "-U", _id(run.sender), "-b", str(block), "-B", "104857600"]
        argv += ["-r", "0.05:0.01:1.0", "-s", "50", *self.pace(run.case)]
        argv += ["-H", ",".join(_id(host) for host in run.receivers), "-D", NAME, str(run.source)]
        output = run.wait(run.start("sender", run.sender, argv))
        run.facts.update(facts(output), rate_bps=self.rate_bps(run.case))
        if run.facts["complete"] != run.case.receivers:
            raise ToolFailed(f"{run.facts['complete']} of {run.case.receivers} receivers are complete: {output[-400:]}")

    def pace(self, case: Case) -> list[str]:
        return ["-R", str(self.rate_bps(case) // 1000)]


def facts(output: str) -> dict[str, int]:
    """What uftp says: receivers that are complete, and packets that were asked for again (by each receiver)."""
    return {
        "complete": len(re.findall(r"Host: \S+\s+Status: Completed", output)),
        "repaired": sum(int(number) for number in re.findall(r"Got (\d+) NAKs for section", output)),
    }


def _joined(host: Host) -> bool:
    return f" {GROUP}" in must("ip", "-n", host.name, "maddress", "show", "dev", "eth0")


def _id(host: Host) -> str:
    return f"0x{int(ipaddress.IPv4Address(host.address)):08x}"
