"""The tools of `rostrum bench messages`, each with the settings that were best on this kind of machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rostrum.bench.fabric import FREE_BPS, Host
from rostrum.bench.install import JGROUPS
from rostrum.bench.messages.cases import MTU, MessageCase
from rostrum.bench.run import Run
from rostrum.bench.tools.aeron import OPENED
from rostrum.bench.tools.aeron import VERSION as AERON
from rostrum.bench.tools.ours import socket_of, start_agents
from rostrum.bench.tools.rates import debian_version

# What `rostrum bench security` compares: without a protocol's repairs, so that packets are messages.
SECURITY = {"rostrum-plain": "", "rostrum-plain-secure": "required", "rostrum-plain-signed": "signed"}


class MessageTool(Protocol):
    """A way to carry messages to many. Its programs say `ready`, begin when the file `go` is there, and tell what they
    sent or received in a line of JSON (native/stamps.h): receivers when they have all, or when they are told to end.
    """

    name: str
    needs: str  # what install.py calls it; "" = nothing

    def version(self) -> str: ...

    def prepare(self, run: Run, case: MessageCase) -> None:
        """Servers that must run before. Raises ToolFailed."""

    def receiver(self, run: Run, case: MessageCase, host: Host, number: int) -> list[str]: ...

    def sender(self, run: Run, case: MessageCase, go: Path) -> list[str]: ...


class Peer:
    """What the tools of others have in common."""

    name = ""
    needs = ""

    def __init__(self, place: Path) -> None:
        self.place = place  # of jars and classes

    def prepare(self, run: Run, case: MessageCase) -> None:
        pass


class Ours(Peer):
    """rostrum as its users have it: rostrumd on every host, the manager, programs with librostrum.

    `protocol`: the group's, with options if they are not to be as usual (ricochet,r=4,c=2); each has a group of its
    own."""

    def __init__(self, place: Path, name: str, protocol: str, security: str = "") -> None:
        """`security`: of agents, "required" or "signed", in a network that requires it; or none."""
        super().__init__(place)
        self.name, self.protocol, self.security = name, protocol, security

    def version(self) -> str:
        return "this"

    def prepare(self, run: Run, case: MessageCase) -> None:
        start_agents(run, MTU, 0, self.security, ["--nic-rate", str(FREE_BPS), "--seed", str(run.seed + 1)])

    def receiver(self, run: Run, case: MessageCase, host: Host, number: int) -> list[str]:
        return [*self._program(run, "receive", host), str(case.count)]

    def sender(self, run: Run, case: MessageCase, go: Path) -> list[str]:
        return [*self._program(run, "send", run.sender), str(case.count), str(case.bytes), str(case.rate), str(go)]

    def _program(self, run: Run, what: str, host: Host) -> list[str]:
        return [str(run.programs_folder / "messages"), what, str(socket_of(host)), self.name, self.protocol]


class Norm(Peer):
    """A NORM stream. Its congestion control collapses with losses: the rate is given, and what floods is held to one
    that its receivers take."""

    name = "norm"
    needs = "norm_messages"
    flood_bps = 600_000_000

    def version(self) -> str:
        return debian_version("libnorm-dev")

    def receiver(self, run: Run, case: MessageCase, host: Host, number: int) -> list[str]:
        return [str(run.programs_folder / "norm_messages"), "receive", "eth0", str(number + 2), str(case.count)]

    def sender(self, run: Run, case: MessageCase, go: Path) -> list[str]:
        program = str(run.programs_folder / "norm_messages")
        sizes = [str(case.count), str(case.bytes), str(case.rate), str(self.flood_bps), "1400"]
        return [program, "send", "eth0", "1", *sizes, str(go)]


class Aeron(Peer):
    name = "aeron"
    needs = "aeron"

    def version(self) -> str:
        return AERON

    def receiver(self, run: Run, case: MessageCase, host: Host, number: int) -> list[str]:
        return [*self._program(), "receive", *self._place(host), str(case.count)]

    def sender(self, run: Run, case: MessageCase, go: Path) -> list[str]:
        last = [str(case.count), str(case.bytes), str(case.rate), str(case.receivers), str(go)]
        return [*self._program(), "send", *self._place(run.sender), *last]

    def _place(self, host: Host) -> list[str]:
        return [host.address, str((MTU - 28) // 32 * 32), str(host.folder)]

    def _program(self) -> list[str]:
        opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        start = ["java", "-Daeron.threading.mode=SHARED", "-XX:+UseSerialGC", "-Xmx256m", *opened]
        return [*start, "-cp", f"{self.place / f'aeron-all-{AERON}.jar'}:{self.place}", "AeronMessages"]


class JGroups(Peer):
    """UDP, NAKACK2, MFC. With losses, datagrams that fit the MTU and requests every 10 ms are better than its own."""

    name = "jgroups"
    needs = "jgroups"

    def version(self) -> str:
        return JGROUPS

    def receiver(self, run: Run, case: MessageCase, host: Host, number: int) -> list[str]:
        return [*self._program(), "receive", *self._settings(host, case)]

    def sender(self, run: Run, case: MessageCase, go: Path) -> list[str]:
        settings = self._settings(run.sender, case)
        return [*self._program(), "send", *settings, str(case.bytes), str(case.rate), str(go)]

    def _settings(self, host: Host, case: MessageCase) -> list[str]:
        xmit_ms, bundle = ("10", "1400") if case.loss_percent else ("500", "60000")
        return [host.address, xmit_ms, bundle, str(case.count), str(case.receivers + 1)]

    def _program(self) -> list[str]:
        start = ["java", "-XX:+UseSerialGC", "-Xmx512m", "-Djava.net.preferIPv4Stack=true"]
        return [*start, "-cp", f"{self.place / f'jgroups-{JGROUPS}.jar'}:{self.place}", "JGroupsMessages"]


def all_tools(place: Path) -> dict[str, MessageTool]:
    """By name; `place`: where install.py put Java's things."""
    ours = [Ours(place, "rostrum", "ricochet,r=16,c=2,stagger=2,flush=0.4")]
    ours += [Ours(place, name, "plain", security) for name, security in SECURITY.items()]
    tools: list[MessageTool] = [*ours, Norm(place), JGroups(place), Aeron(place)]
    return {tool.name: tool for tool in tools}
