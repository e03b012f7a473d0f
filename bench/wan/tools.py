"""The tools of the study: each told what its link carries and tuned as its authors advise, and each told nothing."""

from __future__ import annotations

from rostrum.bench.account import must
from rostrum.bench.cases import Case
from rostrum.bench.run import Run, Tool
from rostrum.bench.tools.copies import Copies
from rostrum.bench.tools.norm import Norm
from rostrum.bench.tools.ours import Ours
from rostrum.bench.tools.pgm import Pgm
from rostrum.bench.tools.uftp import Uftp
from rostrum.bench.wan.beside import Beside, Without, alone_name, pair_name
from rostrum.bench.wan.points import TOLD_BUFFER, Point

OUR = "rostrum"
MULTICAST = ("uftp", "norm", "openpgm")
TCP = ("tcp-cubic", "tcp-bbr")
PEERS = (*MULTICAST, *TCP)
TOOLS = (OUR, *(name + ending for ending in ("", "-untold") for name in PEERS))
BESIDE = tuple(name for kind in ("cubic", "bbr") for name in (f"friendly+{kind}", alone_name(kind), pair_name(kind)))
NEEDS = {"uftp": "uftp", "norm": "norm", "openpgm": "pgm"}  # names of bench.install
SYSTEM_BUFFER = {"tcp_rmem": (4096, 131072, 6 << 20), "tcp_wmem": (4096, 16384, 4 << 20)}  # Linux's own


class Wan(Ours):
    """Never told the rate."""

    def __init__(self) -> None:
        super().__init__("auto", told=False, protocol="wan")
        self.name = OUR


class WanUftp(Uftp):
    """Untold: its own congestion control, TFMCC (RFC 4654)."""

    link_share = 0.93  # its count of a packet leaves out headers and gap: with more its packets overflow the queue

    def __init__(self, told: bool) -> None:
        super().__init__()
        self.told, self.name = told, "uftp" if told else "uftp-untold"

    def pace(self, case: Case) -> list[str]:
        return super().pace(case) if self.told else ["-C", "tfmcc"]


class WanNorm(Norm):
    """Untold: its own congestion control (RFC 5740, 5.5.2). Told: the rate, and the round trip to begin with."""

    link_share = 0.93  # as above

    def __init__(self, told: bool) -> None:
        super().__init__()
        self.told, self.name = told, "norm" if told else "norm-untold"

    def pace(self, case: Case) -> list[str]:
        if not self.told or not isinstance(case, Point):
            return []
        return [*super().pace(case), "--grtt", f"{max(case.rtt_ms / 1e3, 0.002):g}"]


class WanPgm(Pgm):
    """Untold: the congestion control of its draft, PGMCC."""

    link_share = 0.95

    def __init__(self, told: bool) -> None:
        super().__init__()
        self.told, self.name = told, "openpgm" if told else "openpgm-untold"

    def pace(self, case: Case) -> list[str]:
        return super().pace(case) if self.told else []


class WanCopies(Copies):
    """Told: buffers for any path, and each paced at its part of the link. Untold: Linux's own settings."""

    def __init__(self, congestion: str, told: bool) -> None:
        super().__init__(congestion)
        self.told = told
        self.name += "" if told else "-untold"

    def prepare(self, run: Run) -> None:
        for host in (run.sender, *run.receivers):
            for key, usual in SYSTEM_BUFFER.items():
                least, first, most = usual
                values = (least, first, TOLD_BUFFER if self.told else most)
                must(*host.argv("sysctl", "-q", "-w", f"net.ipv4.{key}={' '.join(map(str, values))}"))
        super().prepare(run)

    def pace(self, case: Case) -> list[str]:
        return ["--pace", f"{case.rate_bps / case.receivers:.0f}"] if self.told else []


def all_tools() -> dict[str, Tool]:
    kinds = [name[4:] for name in TCP]
    tools: list[Tool] = [Wan(), *(Beside(kind) for kind in kinds)]
    tools += [Without(kind, second) for kind in kinds for second in (False, True)]
    for told in (True, False):
        tools += [WanUftp(told), WanNorm(told), WanPgm(told), *(WanCopies(name[4:], told) for name in TCP)]
    return {tool.name: tool for tool in tools}
