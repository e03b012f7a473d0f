"""What probes along a path say of each receiver: whether transfers would work, and if not, why. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rostrum.controller.core.diagnostics.findings import Finding
from rostrum.controller.core.values import Budget

MARGIN_LOW_DB = 1.0  # light with less to spare than this is worth a warning


@dataclass(frozen=True)
class Evidence:
    """What was found out about one receiver. Packets: how many of each sort came in, of `packets` sent; None = its
    agent could not look (`listen_cause`).
    """

    receiver: str
    packets: int
    mtu: int  # the topology's, bytes of an IP packet
    listen_cause: str = ""
    group_small: int = 0
    group_full: int = 0
    unicast_small: int = 0
    unicast_full: int = 0
    nic_mtu: int = 0  # 0 = not known
    reach_cause: str = ""  # why the sender cannot connect to its control port
    budget: Budget | None = None


@dataclass
class Verdict:
    """`works`: nothing was found that would stop or slow a transfer to this receiver."""

    receiver: str
    reachable: bool
    multicast: bool
    full_sized: bool
    findings: list[Finding] = field(default_factory=list)

    @property
    def works(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)


def judge(one: Evidence, sender: str, send_cause: str = "") -> Verdict:
    """`send_cause`: what the sender could not send, and why."""
    if one.listen_cause:
        verdict = Verdict(one.receiver, not one.reach_cause, False, False)
        mend = f"start rostrumd on {one.receiver}, or see its log; rostrum doctor shows which agents are connected"
        verdict.findings.append(Finding("error", "agent", one.receiver, one.listen_cause, mend))
        return verdict
    verdict = Verdict(
        one.receiver,
        reachable=not one.reach_cause,
        multicast=one.group_small > 0,
        full_sized=one.group_full > 0 and one.unicast_full > 0,
    )
    verdict.findings += _reach(one, sender) + _multicast(one, sender) + _mtu(one, sender, send_cause) + _light(one)
    return verdict


def _reach(one: Evidence, sender: str) -> list[Finding]:
    if not one.reach_cause:
        return []
    what = f"{sender} cannot connect to the control port of {one.receiver}: {one.reach_cause}"
    mend = f"see that {one.receiver}'s rostrumd runs and that no firewall between them drops TCP"
    if one.unicast_small == 0:
        mend = f"no unicast gets from {sender} to {one.receiver} at all: {_unicast_mend(one)}"
    return [Finding("error", "reachability", one.receiver, what, mend)]


def _unicast_mend(one: Evidence) -> str:
    return f"check the links and ports between them (rostrum doctor), and the address of {one.receiver} in the topology"


def _multicast(one: Evidence, sender: str) -> list[Finding]:
    if one.group_small == one.packets:
        return []
    if one.group_small > 0:
        what = f"{one.group_small} of {one.packets} small packets to the group got from {sender} to {one.receiver}"
        mend = "packets are lost on an idle path: look for errors at the ports between them, or for light that is weak"
        return [Finding("warning", "group", one.receiver, what, mend)]
    what = f"packets to the path's group do not get from {sender} to {one.receiver}"
    if one.unicast_small:
        mend = (
            "unicast does: multicast is filtered on the way (IGMP snooping, storm control, a firewall on the server), "
            "or the path's rules are not on every switch: rostrum doctor compares them"
        )
    else:
        mend = f"nor does unicast: {_unicast_mend(one)}"
    if one.budget is not None:
        mend += f"; the path crosses the OCS to {one.budget.tor}: rostrum circuits shows its light"
    return [Finding("error", "group", one.receiver, what, mend)]


def _mtu(one: Evidence, sender: str, send_cause: str) -> list[Finding]:
    found = []
    if one.nic_mtu and one.nic_mtu < one.mtu:
        what = f"the data NIC of {one.receiver} has an MTU of {one.nic_mtu}, the topology says {one.mtu}"
        mend = f"ip link set the NIC's mtu {one.mtu}, or correct network.mtu in the topology file"
        return [Finding("error", "mtu", one.receiver, what, mend)]
    if "MTU is smaller" in send_cause:
        what = f"{sender}: {send_cause}"
        mend = f"ip link set mtu {one.mtu} on {sender}'s data NIC, or correct network.mtu in the topology file"
        return [Finding("error", "mtu", sender, what, mend)]
    for text, small, full in (
        ("to the group", one.group_small, one.group_full),
        ("to its address", one.unicast_small, one.unicast_full),
    ):
        if small > 0 and full == 0:
            what = f"small packets {text} get from {sender} to {one.receiver}, packets of {one.mtu} bytes do not"
            mend = f"a link on the way has a smaller MTU: set {one.mtu} on every switch port between them"
            found.append(Finding("error", "mtu", one.receiver, what, mend))
    return found


def _light(one: Evidence) -> list[Finding]:
    if one.budget is None or one.budget.margin_db >= MARGIN_LOW_DB:
        return []
    what = f"only {one.budget.margin_db:.1f} dB of light to spare at {one.budget.tor} ({one.budget.power_dbm:.1f} dBm)"
    mend = "use fewer splitters in a row, or clean the fibres; rostrum circuits --fresh shows the powers"
    return [Finding("warning", "light", one.receiver, what, mend)]
