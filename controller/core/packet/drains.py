"""Links that an operator takes out of use, for as long as he likes: before work on a cable, or because he does not
trust it. They are left alone as failed ones (failed_links.py), but do not come back by themselves.
"""

from __future__ import annotations

from rostrum.controller.core import events as ev
from rostrum.controller.core.groups import rules
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.packet.fabric import Link
from rostrum.controller.core.packet.failed_links import key
from rostrum.controller.core.requests.path_setup import lose_circuit
from rostrum.controller.core.requests.requests import run_queue
from rostrum.controller.core.state import Core


def obstacle(core: Core, link: Link) -> str:
    """Why a link cannot be drained, as text; empty = it can."""
    between_switches = all(map(core.resources.fabric.is_switch, link))
    if between_switches and not core.resources.failed.can_spare(link):
        return f"without {'-'.join(link)} a rack would be cut off: nothing else leads there, or what does is drained"
    return ""


def link_drained(core: Core, event: ev.LinkDrained, now: int) -> None:
    failed, link = core.resources.failed, event.link
    name = "-".join(sorted(link))
    if event.drained == failed.is_drained(link):
        return
    core.persistence.mark("drained-link", key(link))
    if not event.drained:
        failed.undrain(link)
        core.log("link not drained any more", link=name)
        reroute.reroute_unicast(core)
        rules.links_changed(core, now)
        run_queue(core, now)
        return
    if obstacle(core, link):
        return
    before = failed.get(link)
    needed = failed.drain(link, event.reason, now)
    for one in (*needed, *((link,) if before else ())):
        core.persistence.mark("failed-link", key(one))
    cause = f"{name} is drained" + (f": {event.reason}" if event.reason else "")
    core.warn("link drained", link=name, reason=event.reason)
    for one in needed:
        core.warn("failed link used again", link="-".join(one), cause="nothing else is left")
    ocs = next((node for node in link if node in core.topology.ocs), None)
    if ocs is None:
        reroute.leave_links(core, [link], cause, now)
        return
    tor = next(node for node in link if node != ocs)
    for circuit in list(core.resources.circuits):
        made = circuit.cascade
        if circuit.ocs == ocs and any(one.tor == tor for one in (made.uplink, *made.downlinks)):
            lose_circuit(core, circuit, cause, now)
    run_queue(core, now)
