"""`security: required` in the topology file: what the manager must be started with, so that none of its doors and ways
is open (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from rostrum.controller.config import Config
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.topologies import circuit_kinds

TRIPLE = "CERTIFICATE KEY CA"


def check(config: Config) -> None:
    """Raises AccessError that names every link that would be open, and what closes it."""
    if config.topology.secure and (open_ones := list(_open(config))):
        raise AccessError(
            "the topology file says `security: required`, and not all links are TLS with certificates:\n  "
            + "\n  ".join(open_ones)
        )


def not_promised(config: Config) -> dict[str, str]:
    """What is open all the same, because the topology file says so, by the device it is about."""
    if not config.topology.secure:
        return {}
    text = "tls: false: whoever is on its management network reads its password and gives it orders"
    return {one.name: text for one in config.topology.ocs.values() if not _grpc(one.dialect) and one.tls is False}


def _open(config: Config) -> Iterator[str]:
    topology, security, access = config.topology, config.security, config.access
    kinds = {switch.southbound for switch in topology.switches.values()}
    if security.thrift_tls is None:
        yield f"agents: give --thrift-tls {TRIPLE} (rostrum pki issue manager makes them)"
    if "openflow" in kinds and security.openflow_tls is None:
        yield f"OpenFlow switches: give --openflow-tls {TRIPLE}"
    if "p4runtime" in kinds and security.p4runtime_tls is None:
        yield f"P4 switches: give --p4runtime-tls {TRIPLE}"
    yield from _circuit_switches(config)
    if access.open:
        yield "REST: leave --rest-open out"
    if access.tls is None:
        yield "REST: give --rest-tls CERTIFICATE KEY"
    if access.tokens is None and access.client_ca is None:
        yield "REST: give --rest-client-ca CA, or --rest-tokens FILE"
    if topology.sites and config.journal is None and config.cluster is None:
        yield "sites: leave --journal none out: after a restart relays would be believed, whatever they pass on"
    if config.cluster and (
        config.cluster.tls is None or any(not one.startswith("https:") for one in config.cluster.etcd)
    ):
        yield "etcd: give --etcd-tls CA CERTIFICATE KEY, and --etcd https://..."


def _circuit_switches(config: Config) -> Iterator[str]:
    for ocs in config.topology.ocs.values():
        grpc = _grpc(ocs.dialect)
        if grpc and config.security.gnmi_tls is None:
            yield f"{ocs.name} (gNMI): give --gnmi-tls {TRIPLE}"
        if not grpc and ocs.tls is None:
            yield (
                f"{ocs.name} (TL1): say `tls: true` in its entry, with a TLS wrapper before the device; or `tls: "
                "false` if its network is as good as a cable, which the log tells of"
            )
        if not grpc and ocs.tls and config.security.tl1_tls is None:
            yield f"{ocs.name} (TL1): give --tl1-tls {TRIPLE}"
        if not (ocs.password_file or ocs.password_env):
            yield (
                f"{ocs.name}: its password stands in the topology file; write password_file: FILE or password_env: NAME"
            )


def _grpc(dialect: str) -> bool:
    return circuit_kinds.kind(dialect).grpc
