"""Aeron: a reliable message stream with flow control by the slowest receiver."""

from __future__ import annotations

from pathlib import Path

from rostrum.bench.cases import Case
from rostrum.bench.fabric import Host
from rostrum.bench.run import Plain, Run

VERSION = "1.44.1"
OPENED = ("java.base/sun.nio.ch", "java.base/jdk.internal.misc")  # packages of Java that Aeron reaches into


class Aeron(Plain):
    """native/AeronCopy.java with the Java driver. `place`: the folder of jar and classes (install.py)."""

    name = "aeron"
    timed = (
        "the command to go on (programs and sessions are there before) until all receivers have told that they have it"
    )

    def __init__(self, place: Path) -> None:
        self.place = place

    def unfit(self, case: Case) -> str:
        return "" if (self.place / "AeronCopy.class").exists() else f"no Aeron in {self.place}"

    def version(self) -> str:
        return VERSION

    def prepare(self, run: Run) -> None:
        receivers = []
        for host in run.receivers:
            receivers.append(run.start("receivers", host, self._argv(run, host, "receive", str(run.case.size))))
        run.ready(receivers, "^ready")
        sender = run.start("sender", run.sender, self._argv(run, run.sender, "send", str(run.logs / "go")))
        run.ready([sender], "^ready")

    def send(self, run: Run) -> None:
        (run.logs / "go").touch()
        run.wait(run.programs[-1])

    def _argv(self, run: Run, host: Host, role: str, last: str) -> list[str]:
        file = run.source if role == "send" else run.target(host)
        mtu = (run.case.mtu - 28) // 32 * 32  # Aeron wants whole units of 32
        opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        jar = self.place / f"aeron-all-{VERSION}.jar"
        return [
            *("java", "-Daeron.threading.mode=SHARED", "-XX:+UseSerialGC", "-Xmx256m", *opened),
            *("-cp", f"{jar}:{self.place}", "AeronCopy", role),
            *(host.address, run.sender.address, str(mtu), str(run.case.receivers), str(file), last),
        ]
