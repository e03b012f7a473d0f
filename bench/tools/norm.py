"""NORM (RFC 5740) with NRL's libnorm: negative acknowledgements and parity on demand, at a fixed rate."""

from __future__ import annotations

from typing import ClassVar

from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run
from rostrum.bench.tools.rates import Rated, Rates, debian_version


class Norm(Rated, Plain):
    """native/norm.cpp. Its own congestion control collapses with delay and loss: the rate is given."""

    name = "norm"
    timed = "start of the sending program to its end, when all receivers have acknowledged the whole object"
    link_share = 0.96
    free_bps: ClassVar[Rates] = {
        1500: (600_000_000, 400_000_000, 900_000_000),
        9000: (1_500_000_000, 1_000_000_000, 2_500_000_000),
    }

    def version(self) -> str:
        return debian_version("libnorm-dev")

    def prepare(self, run: Run) -> None:
        receivers = []
        for number, host in enumerate(run.receivers, 2):
            argv = [str(run.programs_folder / "norm"), "receive", "--interface", "eth0", "--id", str(number)]
            target = run.target(host)
            receivers.append(
                run.start("receivers", host, [*argv, "--folder", str(target.parent), "--file", str(target)])
            )
        run.ready(receivers, "^ready")

    def send(self, run: Run) -> None:
        segment = 1400 if run.case.mtu <= 1500 else 8800
        acks = ",".join(str(number) for number in range(2, run.case.receivers + 2))
        argv = [str(run.programs_folder / "norm"), "send", "--interface", "eth0", "--id", "1", "--acks", acks]
        argv += [*self.pace(run.case), "--segment", str(segment), "--file", str(run.source)]
        run.wait(run.start("sender", run.sender, argv))
        run.facts["rate_bps"] = self.rate_bps(run.case)
        # The acknowledgement may be ahead of the file's last name by a moment.
        run.until(lambda: all(run.target(host).exists() for host in run.receivers), "the receivers' files")

    def pace(self, case: Case) -> list[str]:
        return ["--rate", str(self.rate_bps(case))]
