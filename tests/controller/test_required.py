"""`security: required`: a manager that would leave a link open does not start, and says which and what closes it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rostrum.controller import required
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.app import App
from rostrum.controller.config import Cluster, Config
from rostrum.controller.northbound.rest.access import GUARDED, LOOPBACK, Access, AccessError, AccessOptions
from rostrum.topologies.loader import load
from rostrum.topologies.model import Topology

from tests.topologies import three_sites

FILES = (Path("manager.pem"), Path("manager.key"), Path("ca.pem"))
CLOSED = SecurityOptions(
    thrift_tls=FILES, openflow_tls=FILES, p4runtime_tls=FILES, gnmi_tls=FILES, tl1_tls=FILES
)  # fmt: skip
REST = AccessOptions(tls=FILES[:2], client_ca=FILES[2])


def topology(name: str = "hybrid-4x2", **ocs: object) -> Topology:
    made = load(name)
    ours = {one: dataclasses.replace(made.ocs[one], **ocs) for one in made.ocs}  # type: ignore[arg-type]
    return dataclasses.replace(made, secure=True, ocs=ours)


def test_all_that_is_open_is_named_at_once() -> None:
    with pytest.raises(AccessError) as caught:
        App(Config(topology(), Path(), access=AccessOptions(open=True)))
    for text in ("--thrift-tls", "--openflow-tls", "`tls: true`", "password_file", "--rest-open", "--rest-tls",
                 "--rest-client-ca"):  # fmt: skip
        assert text in str(caught.value)
    assert "--gnmi-tls" not in str(caught.value) and "etcd" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("thrift_tls", "--thrift-tls"),
        ("openflow_tls", "--openflow-tls"),
        ("tl1_tls", "--tl1-tls"),
    ],
)
def test_each_door_has_to_be_closed(option: str, text: str) -> None:
    closed = topology(tls=True, password="", password_file="/etc/ocs")
    required.check(Config(closed, Path(), access=REST, security=CLOSED))
    with pytest.raises(AccessError, match=text):
        lacking = dataclasses.replace(CLOSED, **{option: None})  # type: ignore[arg-type]
        required.check(Config(closed, Path(), access=REST, security=lacking))


def test_what_relays_were_told_is_remembered() -> None:
    closed = dataclasses.replace(three_sites.topology(), secure=True)
    required.check(Config(closed, Path(), access=REST, security=CLOSED, journal=Path("journal")))
    with pytest.raises(AccessError, match="--journal none"):
        required.check(Config(closed, Path(), access=REST, security=CLOSED))


def test_circuit_switches_by_gnmi() -> None:
    closed = topology(dialect="gnmi", password="", password_env="OCS")
    required.check(Config(closed, Path(), access=REST, security=CLOSED))
    with pytest.raises(AccessError, match="--gnmi-tls"):
        required.check(Config(closed, Path(), access=REST, security=dataclasses.replace(CLOSED, gnmi_tls=None)))


def test_etcd_is_asked_by_https_alone() -> None:
    closed = topology(tls=True, password="", password_file="/etc/ocs")
    for url, tls in (("http://10.0.0.1:2379", FILES), ("https://10.0.0.1:2379", None)):
        with pytest.raises(AccessError, match="etcd: give --etcd-tls"):
            required.check(Config(closed, Path(), cluster=Cluster((url,), tls), access=REST, security=CLOSED))


def test_an_exception_is_told() -> None:
    config = Config(topology(tls=False, password="", password_file="/etc/ocs"), Path(), access=REST, security=CLOSED)
    required.check(config)
    assert "reads its password" in required.not_promised(config)["ocs"]


def test_nothing_is_asked_where_security_is_not() -> None:
    required.check(Config(load("hybrid-4x2"), Path(), access=AccessOptions(open=True)))


def test_loopback_is_no_passport() -> None:
    assert Access(REST).door("127.0.0.1") is LOOPBACK
    assert Access(REST, required=True).door("127.0.0.1") is GUARDED
