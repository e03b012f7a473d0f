"""As many TCP copies at once as there are receivers: what people do who have no multicast."""

from __future__ import annotations

from pathlib import Path

from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run

PORT = 7100


def no_congestion(congestion: str) -> str:
    """Why TCP cannot have that congestion control here; "" if it can."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return "" if congestion in known else f"this kernel has no TCP congestion control {congestion}"


class Copies(Plain):
    """native/copies.c: sendfile at the sender, recv into the mapped file, one byte back when it is whole."""

    def __init__(self, congestion: str, ready: bool = False, checked: bool = False) -> None:
        """`ready`: the receivers' files are in memory before the first byte. `checked`: by the digest that agents take,
        once at the sender and at each receiver."""
        self.congestion, self.ready = congestion, ready
        self.check = ["--check"] if checked else []
        self.name = f"tcp-{congestion}" + ("-ready" if ready else "") + ("-checked" if checked else "")

    def unfit(self, case: Case) -> str:
        return no_congestion(self.congestion)

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            argv = [str(run.programs_folder / "copies"), "receive", "--address", host.address, "--port", str(PORT)]
            argv += ["--file", str(run.target(host)), "--size", str(run.case.size)]
            argv += [*(["--ready"] if self.ready else []), *self.check]
            receivers.append(run.start("receivers", host, argv))
        run.ready(receivers, "^ready")

    def send(self, run: Run) -> None:
        targets = [f"{host.address}:{PORT}" for host in run.receivers]
        program = str(run.programs_folder / "copies")
        argv = [program, "send", "--congestion", self.congestion, *self.pace(run.case), *self.check]
        argv += ["--file", str(run.source)]
        run.wait(run.start("sender", run.sender, [*argv, *targets]))

    def pace(self, case: Case) -> list[str]:
        """Of each copy; TCP finds its own."""
        return []
