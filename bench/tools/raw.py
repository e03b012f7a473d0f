"""The ceiling of each way of packet I/O: the object once, without protocol, tmpfs to tmpfs or to scratch memory."""

from __future__ import annotations

import json
from pathlib import Path

from rostrum.bench.cases import Case
from rostrum.bench.fabric import Host
from rostrum.bench.run import Plain, Run

SHARED_BYTES = 4096


class Raw(Plain):
    """native/raw.c. `scratch`: receivers keep only the last 4 MiB."""

    timed = "start of the sending program to its end, when every packet is at every receiver"

    def __init__(self, method: str, scratch: bool) -> None:
        self.method, self.scratch = method, scratch
        self.name = f"raw-{method}" + ("-scratch" if scratch else "")

    def unfit(self, case: Case) -> str:
        if case.loss_percent:
            return "raw sending repairs nothing"
        if case.rate_bps and self.method == "xdp":
            return "AF_XDP passes the limit of the link by"
        return ""

    def prepare(self, run: Run) -> None:
        shared = run.logs / "shared"
        shared.write_bytes(bytes(SHARED_BYTES))
        receivers = []
        for number, host in enumerate(run.receivers):
            argv = self._common(run, host, "receive", shared)
            argv += ["--number", str(number), "--size", str(run.case.size)]
            argv += ["--scratch"] if self.scratch else ["--file", str(run.target(host))]
            receivers.append(run.start("receivers", host, argv))
        run.ready(receivers, "^ready")

    def send(self, run: Run) -> None:
        argv = self._common(run, run.sender, "send", run.logs / "shared")
        more = ["--receivers", str(run.case.receivers), "--file", str(run.source)]
        output = run.wait(run.start("sender", run.sender, [*argv, *more]))
        run.facts.update(json.loads(output))

    def received(self, run: Run, host: Host) -> Path | None:
        return None if self.scratch else run.target(host)

    def _common(self, run: Run, host: Host, role: str, shared: Path) -> list[str]:
        return [
            *(str(run.programs_folder / "raw"), role, "--method", self.method, "--interface", "eth0"),
            *("--address", host.address, "--shared", str(shared)),
        ]
