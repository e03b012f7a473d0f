"""Paths requested by REST serve any UDP sender: no agent runs in this lab."""

from __future__ import annotations

from typing import Any

import pytest
from rostrum.lab.lab import Lab

from tests.lab.objects import until
from tests.lab.plain import OTHER_PORT, deliver, deliver_through_full_port, heard, listen, overload, slower

pytestmark = pytest.mark.lab

RECEIVERS = ["h3", "h4", "h5", "h7"]


@pytest.fixture(scope="module")
def lab():
    with Lab.start("hybrid-4x2", name="t-rest", parts=("ocs", "manager")) as lab:
        yield lab


@pytest.fixture(autouse=True)
def clean(lab: Lab):
    yield
    lab.ocs_clear()
    for path in lab.rest.get("/v1/paths")["paths"]:
        if path["state"] in ("queued", "configuring", "active"):
            lab.rest.call("DELETE", f"/v1/paths/{path['id']}")


def request(lab: Lab, **wanted: Any) -> dict[str, Any]:
    """An active path (or one that ended), as the manager shows it."""
    status, path = lab.rest.call("POST", "/v1/paths", wanted)
    assert status == 201, path
    return lab.rest.get(f"/v1/paths/{path['id']}?wait=active&timeout_ms=60000")


def test_plain_udp_over_a_circuit(lab: Lab) -> None:
    path = request(lab, sender="h1", receivers=RECEIVERS)
    assert (path["state"], path["kind"]) == ("active", "circuit"), path
    got = deliver(lab, "h1", RECEIVERS, path["group"], count=400)
    assert {name: row["distinct"] for name, row in got.items()} == dict.fromkeys(RECEIVERS, 400)
    assert all(row["received"] == 400 and row["tos"] == [46 << 2] for row in got.values())
    timeline = path["timeline"]
    reconfiguration_s = (timeline["cross_connects_steady_ns"] - timeline["accepted_ns"]) / 1e9
    assert reconfiguration_s >= 0.07  # the emulated switch is dark that long
    assert timeline["requested_ns"] <= timeline["accepted_ns"] < timeline["rules_in_ns"] <= timeline["active_ns"]
    status, _ = lab.rest.call("DELETE", f"/v1/paths/{path['id']}")
    assert status == 200
    assert lab.rest.get(f"/v1/paths/{path['id']}?wait=ended")["state"] == "released"


def test_nobody_else_gets_it(lab: Lab) -> None:
    """A receiver that joins the group without being on the path hears nothing, and unicast goes on beside it."""
    path = request(lab, sender="h1", receivers=["h3"])
    got = deliver(lab, "h1", ["h3", "h4", "h5", "h2"], path["group"], count=100)
    assert {name: row["received"] for name, row in got.items()} == {"h3": 100, "h4": 0, "h5": 0, "h2": 0}
    lab.execute("h1", ["ping", "-c", "2", "-i", "0.01", "-W", "2", "10.0.2.2"])


def test_priority_over_unicast_that_overloads_a_port(lab: Lab) -> None:
    """The manager's rules mark what goes over a path: it arrives whole, and unicast has the rest of the port."""
    path = request(lab, sender="h1", receivers=["h3", "h5"])
    through = listen(lab, "h3", "10.0.2.1", 1000, OTHER_PORT)
    with slower(lab, "tor2-p1", "300mbit"), overload(lab, ["h4", "h8"], "h3"):
        deliver_through_full_port(lab, "h1", ["h3", "h5"], path["group"], "tor2-p1", count=2000, interval_s=0.0005)
        assert heard(through)["received"] >= 1000


def test_receiver_in_the_senders_rack(lab: Lab) -> None:
    path = request(lab, sender="h1", receivers=["h2"])
    assert path["kind"] == "packet" and path["state"] == "active"
    assert deliver(lab, "h1", ["h2"], path["group"], count=100)["h2"]["distinct"] == 100
    mixed = request(lab, sender="h1", receivers=["h2", "h5"])
    got = deliver(lab, "h1", ["h2", "h5"], mixed["group"], count=100)
    assert {name: row["distinct"] for name, row in got.items()} == {"h2": 100, "h5": 100}


def test_packet_path_on_request(lab: Lab) -> None:
    path = request(lab, sender="h8", receivers=["h1", "h3", "h7"], kind="packet")
    assert path["kind"] == "packet" and path["reason"]
    got = deliver(lab, "h8", ["h1", "h3", "h7"], path["group"], count=200)
    assert {row["distinct"] for row in got.values()} == {200}
    assert {tuple(row["tos"]) for row in got.values()} == {(46 << 2,)}


def test_same_circuit_again_needs_no_reconfiguration(lab: Lab) -> None:
    first = request(lab, sender="h1", receivers=["h5", "h7"])
    lab.rest.call("DELETE", f"/v1/paths/{first['id']}")
    again = request(lab, sender="h2", receivers=["h6", "h8"])  # other servers of the same racks: the same light
    assert again["circuit"]["reused"] and again["reconfiguration_ms"] == 0
    got = deliver(lab, "h2", ["h6", "h8"], again["group"], count=100)
    assert {row["distinct"] for row in got.values()} == {100}


def test_stuck_cross_connect_leads_to_a_packet_path(lab: Lab) -> None:
    lab.ocs_fault(kind="stuck", input=3)
    path = request(lab, sender="h5", receivers=["h1", "h7"])

    def moved() -> dict[str, Any] | None:
        found = lab.rest.get(f"/v1/paths/{path['id']}?wait=active&timeout_ms=500")
        return found if found["state"] == "active" and found["kind"] == "packet" else None

    path = until(moved, "the path to move to the packet network")
    assert "fault" in path["reason"].lower(), path["reason"]
    got = deliver(lab, "h5", ["h1", "h7"], path["group"], count=100)
    assert {row["distinct"] for row in got.values()} == {100}


def test_rules_are_gone_after_release(lab: Lab) -> None:
    path = request(lab, sender="h4", receivers=["h1"], kind="packet")
    lab.rest.call("DELETE", f"/v1/paths/{path['id']}")
    got = deliver(lab, "h4", ["h1"], path["group"], count=50, interval_s=0.001)
    rules = [rule for rule in lab.rest.get("/v1/rules")["rules"] if rule["group"] == path["group"]]
    # Rules of a released path may stay for one that comes again; then they still carry, else nothing passes.
    assert got["h1"]["distinct"] == (50 if rules else 0)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"sender": "h99", "receivers": ["h1"]}, "h99"),
        ({"sender": "h1", "receivers": ["h1"]}, "h1"),
        ({"sender": "h1", "receivers": []}, "receivers"),
        ({"sender": "h1", "receivers": ["h3"], "size": -1}, "size"),
        ({"sender": "h1"}, "receivers"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(lab: Lab, wanted: dict[str, Any], text: str) -> None:
    status, problem = lab.rest.call("POST", "/v1/paths", wanted)
    assert status == 422 and text in problem["detail"], problem
