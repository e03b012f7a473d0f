"""udpcast: multicast in slices that every receiver acknowledges."""

from __future__ import annotations

import time

from rostrum.bench.run import Plain, Run
from rostrum.bench.tools.rates import debian_version


class Udpcast(Plain):
    """Its fixed two seconds of start are in the time; `data_s` among the facts is without them."""

    name = "udpcast"
    timed = "start of udp-sender (whose start alone takes two seconds) to the end of it and of all receivers"

    def version(self) -> str:
        return debian_version("udpcast")

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            argv = ["udp-receiver", "--interface", "eth0", "--nokbd", "--no-progress", "--rcvbuf", "16777216"]
            receivers.append(run.start("receivers", host, [*argv, "--file", str(run.target(host))]))
        run.ready(receivers, "UDP receiver")

    def send(self, run: Run) -> None:
        block = 1456 if run.case.mtu <= 1500 else 8900
        argv = ["udp-sender", "--interface", "eth0", "--nokbd", "--no-progress", "--full-duplex"]
        argv += ["--blocksize", str(block), "--min-receivers", str(run.case.receivers), "--file", str(run.source)]
        receivers = list(run.programs)
        sender = run.start("sender", run.sender, argv)
        run.until(
            lambda: "Starting transfer" in sender.text() or sender.process.poll() is not None, "udp-sender's start"
        )
        began = time.monotonic()
        for program in [sender, *receivers]:
            run.wait(program)
        run.facts["data_s"] = time.monotonic() - began
