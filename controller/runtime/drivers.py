"""The southbound drivers of a topology, telling what happens as events."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rostrum.controller.config import Config
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import Light, SouthboundError
from rostrum.controller.southbound import tls
from rostrum.controller.southbound.api import CircuitSwitch, SwitchFabric
from rostrum.controller.southbound.fabric import MixedFabric
from rostrum.topologies import circuit_kinds
from rostrum.topologies.secrets import SecretError

Post = Callable[[ev.Event], None]
FabricFactory = Callable[
    [Config, Callable[[str], None], Callable[[str, str], None], Callable[[Light], None]], SwitchFabric
]
OcsFactory = Callable[[Any, Callable[[], None], Callable[[str], None], Callable[[Any], None]], CircuitSwitch]


def switches(config: Config, post: Post) -> MixedFabric:
    """A driver for each kind of switch that the topology has."""
    kinds = {switch.southbound for switch in config.topology.switches.values()}
    fabrics: dict[str, SwitchFabric] = {}
    key, security = os.urandom(32), config.security  # the key: of discovery frames
    strict = config.topology.secure
    if "openflow" in kinds:
        from rostrum.controller.southbound.openflow.switches import OpenFlowFabric

        fabrics["openflow"] = OpenFlowFabric(
            config.topology,
            lambda name: post(ev.SwitchUp(name)),
            lambda name, cause: post(ev.SwitchDown(name, cause)),
            lambda switch, port, is_up: post(ev.PortChanged(switch, port, is_up)),
            lambda sighting: post(ev.Sighted(sighting)),
            tls.door_trust(security.openflow_tls, strict) if security.openflow_tls else None,
            discovery_key=key,
            on_lost=lambda switch: post(ev.RulesLost(switch)),
        )
    if "p4runtime" in kinds:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # a lost connection is told in our own text
        from rostrum.controller.southbound.p4runtime import pipeline as p4runtime_pipeline
        from rostrum.controller.southbound.p4runtime.switches import P4RuntimeFabric

        fabrics["p4runtime"] = P4RuntimeFabric(
            config.topology,
            lambda name: post(ev.SwitchUp(name)),
            lambda name, cause: post(ev.SwitchDown(name, cause)),
            lambda light: post(ev.FirstLight(light)),
            lambda sighting: post(ev.Sighted(sighting)),
            election_id=config.election_id,
            pipeline=p4runtime_pipeline.load(config.p4_program),
            discovery_key=key,
            tls=tls.way_trust(security.p4runtime_tls, strict) if security.p4runtime_tls else None,
        )
    if "none" in kinds:
        from rostrum.controller.southbound.plain import PlainFabric

        fabrics["none"] = PlainFabric(config.topology, lambda name: post(ev.SwitchUp(name)))
    return MixedFabric(config.topology, fabrics)


def circuit_switches(
    config: Config,
    post: Post,
    factory: OcsFactory | None = None,
    may_order: Callable[[], bool] | None = None,
    term: int = 0,
) -> Mapping[str, CircuitSwitch]:
    """A driver for each OCS, or what `factory` makes. `may_order`: asked before each command that changes something.
    `term`: in which this manager leads, for switches that can tell an older leader's orders; 0 = there is but one."""
    return {
        name: (factory or partial(_circuit_switch, config, may_order, term))(
            one,
            lambda name=name: post(ev.OcsUp(name)),  # type: ignore[misc]
            lambda cause, name=name: post(ev.OcsDown(name, cause)),  # type: ignore[misc]
            lambda changed, name=name: post(ev.CrossConnectChanged(name, changed)),  # type: ignore[misc]
        )
        for name, one in config.topology.ocs.items()
    }


def _circuit_switch(
    config: Config,
    may_order: Callable[[], bool] | None,
    term: int,
    ocs: Any,
    up: Callable[[], None],
    down: Callable[[str], None],
    changed: Callable[[Any], None],
) -> CircuitSwitch:
    from rostrum.controller.southbound.ocs.devices import driver_of

    grpc, security = circuit_kinds.kind(ocs.dialect).grpc, config.security
    secured = security.gnmi_tls if grpc else security.tl1_tls if ocs.tls else None
    more = {"tls": tls.way_trust(secured, config.topology.secure)} if secured else {}
    try:
        return driver_of(ocs.dialect)(ocs, up, down, changed, may_order=may_order, term=term, **more)
    except SecretError as error:
        raise SouthboundError(str(error)) from None
