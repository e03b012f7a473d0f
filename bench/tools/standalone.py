"""rostrum as one uses it on any LAN: `rostrum receive` and `rostrum send`, without a manager (docs/lan.md)."""

from __future__ import annotations

import sys
from pathlib import Path

from rostrum.bench.fabric import Host
from rostrum.bench.run import Plain, Run

COMMAND = (sys.executable, "-m", "rostrum.client.cli")


class Standalone(Plain):
    """Finding the receivers, the test whether multicast gets through and the writing of files are in the time, as they
    are in udpcast's."""

    name = "rostrum-lan"
    timed = (
        "start of rostrum send, which looks for receivers and tests multicast, to the end of it and of all receivers"
    )

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            folder = run.target(host).parent
            receivers.append(run.start("receivers", host, [*COMMAND, "receive", str(folder), "--count", "1"]))
        run.ready(receivers, "waiting")

    def send(self, run: Run) -> None:
        receivers = list(run.programs)
        argv = [*COMMAND, "send", str(run.source), "--wait-for", str(run.case.receivers)]
        sender = run.start("sender", run.sender, argv)
        for program in [sender, *receivers]:
            run.wait(program)

    def received(self, run: Run, host: Host) -> Path | None:
        return run.target(host).parent / run.source.name
