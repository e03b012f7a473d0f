"""PGM (RFC 3208) over UDP with OpenPGM, at a fixed rate."""

from __future__ import annotations

from typing import ClassVar

from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run
from rostrum.bench.tools.rates import Rated, Rates, debian_version


class Pgm(Rated, Plain):
    """native/pgm.c. PGM does not tell a sender what arrived; receivers do it by a TCP connection each."""

    name = "pgm"
    timed = "start of the sending program to its end, when every receiver has told that it has all"
    link_share = 0.95
    free_bps: ClassVar[Rates] = {
        1500: (600_000_000, 400_000_000, 900_000_000),
        9000: (2_000_000_000, 1_200_000_000, 3_000_000_000),
    }

    def version(self) -> str:
        return debian_version("libpgm-dev")

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            argv = [str(run.programs_folder / "pgm"), "receive", "--address", host.address, "--mtu", str(run.case.mtu)]
            argv += ["--sender", run.sender.address, "--file", str(run.target(host)), "--size", str(run.case.size)]
            argv += ["--paced"] if self.pace(run.case) else []
            receivers.append(run.start("receivers", host, argv))
        run.ready(receivers, "^ready")

    def send(self, run: Run) -> None:
        argv = [str(run.programs_folder / "pgm"), "send", "--address", run.sender.address, "--mtu", str(run.case.mtu)]
        argv += [*self.pace(run.case), "--receivers", str(run.case.receivers)]
        run.wait(run.start("sender", run.sender, [*argv, "--file", str(run.source)]))
        run.facts["rate_bps"] = self.rate_bps(run.case)

    def pace(self, case: Case) -> list[str]:
        return ["--rate", str(self.rate_bps(case))]
