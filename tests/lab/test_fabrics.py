"""Packet fabrics in the lab: a fat-tree, and a BCube whose servers forward."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.client import Agent
from rostrum.controller.commands import links as link_commands
from rostrum.lab import links
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

from tests.lab.objects import check, data_of, forget, send, under_way, until

pytestmark = pytest.mark.lab


def fabric(name: str):
    return Lab.start(name, name=f"t-{name}", seed=1, reserve="16M", quota="512M")


@pytest.fixture(scope="module")
def fat_tree():
    with fabric("fat-tree-4") as lab:
        yield lab


@pytest.fixture(scope="module")
def bcube():
    with fabric("bcube-4-1") as lab:
        yield lab


def test_fat_tree__one_to_many_over_one_core(fat_tree: Lab, seed: int) -> None:
    receivers, data = ["h0-0-1", "h0-1-0", "h1-0-0", "h1-1-1", "h2-0-0", "h3-1-0"], data_of(6_000_000, seed)
    result = send(fat_tree, "h0-0-0", receivers, data)
    check(fat_tree, result, receivers, data)
    path = fat_tree.rest.get(f"/v1/paths/{result.response_id}")
    cores = {rule["switch"] for rule in path["rules"] if rule["switch"].startswith("core")}
    assert path["kind"] == "packet" and len(cores) == 1
    forget(fat_tree, ["h0-0-0", *receivers], result.data_id)


def test_fat_tree__a_link_fails_during_a_session_and_nobody_is_told(fat_tree: Lab, seed: int) -> None:
    """Whoever is behind it gets the object by repairs of other receivers."""
    receivers, data = ["h1-0-0", "h1-1-1", "h2-0-0", "h3-1-0"], data_of(24_000_000, seed)
    with Agent(fat_tree.agent_socket("h0-0-0")) as agent:

        def active() -> list[dict[str, Any]]:
            return list(fat_tree.rest.get("/v1/paths?state=active")["paths"])

        sending, number, paths = under_way(fat_tree, agent, receivers, data, active, "rdcm")
        path = paths[0]["id"]
        overlay = fat_tree.rest.get(f"/v1/paths/{path}/overlay")
        link = next(one for one in overlay["tree"] if one[1].startswith("agg2"))
        links.cut(fat_tree, link[0], link[1], only_multicast=True)
        result = sending.wait(90)
    links.up(fat_tree, link[0], link[1])
    assert result.protocol == "rdcm" and result.response_id == path
    check(fat_tree, result, receivers, data)
    forget(fat_tree, ["h0-0-0", *receivers], number)


def test_fat_tree__unicast_goes_around_links_left_alone(fat_tree: Lab) -> None:
    """Whichever of the two ways out of a rack is dead: repairs and control channels find the other one."""
    ping = ["ping", "-q", "-c1", "-W1", "10.0.7.2"]  # h3-1-1

    def answered() -> bool:
        return " 0% packet loss" in fat_tree.execute("h0-0-0", ping, check=False)

    def leave_alone(switch: str) -> bool:
        """Refused while the other link, just back, is not heard yet."""
        return bool(fat_tree.rest.call("POST", "/v1/failed-links", {"link": ["edge0-0", switch]})[0] == 201)

    assert answered()
    lost = 0
    for switch in ("agg0-0", "agg0-1"):
        links.cut(fat_tree, "edge0-0", switch)
        lost += not answered()
        until(partial(leave_alone, switch), "a link left alone")
        until(answered, "a way around")
        links.up(fat_tree, "edge0-0", switch)
        assert fat_tree.rest.call("DELETE", f"/v1/failed-links/edge0-0/{switch}")[0] == 200
        until(answered, "the way back")
    assert 1 <= lost <= 2  # the way there is one of them, the way back too
    with pytest.raises(LabError, match="no link joins"):
        links.cut(fat_tree, "h0-0-0", "h0-0-1")
    with pytest.raises(LabError, match="patch port"):
        links.down(fat_tree, "edge0-0", "agg0-0")


def test_fat_tree__a_link_that_passes_nothing_is_avoided_and_used_again_without_anybody_saying_so(
    fat_tree: Lab, seed: int
) -> None:
    """No port goes down: discovery misses its frames. Whichever way out of the rack it is, sends go on by the other."""
    receivers, data = ["h0-1-0", "h1-0-0", "h3-1-1"], data_of(2_000_000, seed)

    def out() -> list[list[str]]:
        return [sorted(one["link"]) for one in fat_tree.rest.get("/v1/failed-links")["failed_links"] if one["silent"]]

    for switch in ("agg0-0", "agg0-1"):
        links.cut(fat_tree, "edge0-0", switch)
        until(lambda: out() == [[switch, "edge0-0"]], "the silent link is left alone")  # noqa: B023
        result = send(fat_tree, "h0-0-0", receivers, data)
        check(fat_tree, result, receivers, data)
        path = fat_tree.rest.get(f"/v1/paths/{result.response_id}")
        used = {rule["switch"] for rule in path["rules"]}
        assert switch not in used
        forget(fat_tree, ["h0-0-0", *receivers], result.data_id)
        links.up(fat_tree, "edge0-0", switch)
        until(lambda: not out(), "the link is used again")


def test_fat_tree__a_drained_link_is_avoided_until_it_is_put_back(fat_tree: Lab, seed: int) -> None:
    socket = str(fat_tree.run / "manager.sock")

    def links_command(*fields: str) -> tuple[int, str]:
        done = CliRunner().invoke(link_commands.links, [*fields, "--manager", socket])
        return done.exit_code, done.output

    drained = "drained  agg0-0-edge0-0: new cable\n"
    status, fields = links_command("drain", "edge0-0", "agg0-0", "--reason", "new cable")
    assert status == 0 and drained in fields  # links that failed in other tests may be there too
    status, fields = links_command("drain", "edge0-0", "agg0-1")
    assert status == 1 and "a rack would be cut off" in fields
    receivers, data = ["h1-0-0", "h3-1-1"], data_of(1_000_000, seed)
    result = send(fat_tree, "h0-0-0", receivers, data)
    check(fat_tree, result, receivers, data)
    forget(fat_tree, ["h0-0-0", *receivers], result.data_id)
    path = fat_tree.rest.get(f"/v1/paths/{result.response_id}")
    assert "agg0-0" not in {rule["switch"] for rule in path["rules"]}
    assert drained in links_command("out")[1]
    status, fields = links_command("undrain", "edge0-0", "agg0-0")
    assert status == 0 and "drained" not in fields
    assert "agg0-0:" in links_command("list")[1]


def test_bcube__servers_forward_multicast_and_unicast(bcube: Lab, seed: int) -> None:
    """To a server that differs in both digits everything goes through a third one."""
    assert "1 received" in bcube.execute("h0-0", ["ping", "-q", "-c1", "-W2", "10.0.15.1"])  # h3-3
    receivers, data = ["h0-1", "h1-1", "h2-2", "h3-3"], data_of(6_000_000, seed)
    result = send(bcube, "h0-0", receivers, data)
    check(bcube, result, receivers, data)
    path = bcube.rest.get(f"/v1/paths/{result.response_id}")
    forwarding = {rule["switch"] for rule in path["rules"] if rule["switch"].startswith("b") and len(rule["out_ports"])}
    assert forwarding > {f"b{name[1:]}" for name in receivers} - {"b0-0"} or len(forwarding) > len(receivers)
    forget(bcube, ["h0-0", *receivers], result.data_id)
