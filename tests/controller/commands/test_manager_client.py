"""Commands find the manager that leads: among those named, and where a standby points."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import httpx
import pytest
from rostrum.controller.commands import manager_client
from rostrum.controller.commands.manager_client import Managers
from rostrum.topologies import loader

from tests.controller.commands.test_paths import invoke
from tests.controller.core.test_failures import TWO_CORES
from tests.controller.runtime.test_shared_store import BOUND_S, free_port, managing, url  # noqa: F401  a fixture

Handler = Callable[[httpx.Request], httpx.Response]


class Net:
    """Managers by address; what is not there cannot be connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **handlers: Handler) -> None:
        self.handlers, self.heard = handlers, list[httpx.Request]()
        monkeypatch.setattr(manager_client, "_connect", self._connect)
        monkeypatch.setattr(manager_client, "LOOK_S", 0.001)
        monkeypatch.setattr(manager_client, "REFUSED_S", 0.2)

    def _connect(self, place: str) -> httpx.Client:
        def handle(request: httpx.Request) -> httpx.Response:
            self.heard.append(request)
            if request.url.host not in self.handlers:
                raise httpx.ConnectError("connection refused")
            return self.handlers[request.url.host](request)

        return httpx.Client(base_url=place, transport=httpx.MockTransport(handle))

    def hosts(self) -> list[str]:
        return [one.url.host for one in self.heard]


def leads(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"ready": True})


def points_to(place: str) -> Handler:
    return lambda request: httpx.Response(
        307, json={"detail": f"stands by; {place} leads"}, headers={"Location": f"{place}{request.url.path}"}
    )


def get(managers: Managers, path: str = "/v1/health") -> httpx.Response:
    return managers.request("GET", path, None, {"a": 1}, 5.0)


def test_standby__is_followed_and_the_leader_is_asked_first_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(monkeypatch, a=points_to("http://b:81"), b=leads)
    managers = Managers("http://a:81", "lab")
    for _ in range(2):
        assert get(managers).status_code == 200
    assert net.hosts() == ["a", "b", "b"] and managers.where == "http://b:81"
    assert str(net.heard[1].url) == "http://b:81/v1/health?a=1"


def test_named__the_next_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(monkeypatch, b=leads)
    assert get(Managers("a:81, b:81", "lab")).status_code == 200
    assert net.hosts() == ["a", "b"]
    with pytest.raises(httpx.ConnectError):
        get(Managers("a:81,c:81", "lab"))


def test_nobody_leads_yet__the_command_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([503, 503, 200])

    def takes_over(_: httpx.Request) -> httpx.Response:
        status = next(turns)
        return httpx.Response(status, json={}, headers={"Retry-After": "1"} if status == 503 else {})

    net = Net(monkeypatch, b=takes_over)
    assert get(Managers("a:81,b:81", "lab")).status_code == 200
    assert net.hosts() == ["a", "b"] * 3


def test_none_listens_for_a_moment__the_command_waits_if_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has gone, and another, which stood by, is about to listen as the leader."""
    net = Net(monkeypatch)

    def comes_back(place: str) -> httpx.Client:
        if len(net.heard) == 5:
            net.handlers["b"] = leads
        return net._connect(place)

    managers = Managers("a:81,b:81", "lab")
    managers._client = comes_back  # type: ignore[method-assign]
    assert get(managers).status_code == 200 and len(net.heard) > 5
    net.handlers.clear()
    alone = Managers("a:81", "lab")
    net.heard.clear()
    with pytest.raises(httpx.ConnectError):
        get(alone)
    assert net.hosts() == ["a"]


def test_the_leader_cannot_be_reached__the_standbys_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Net(monkeypatch, a=points_to("http://gone:81"))
    monkeypatch.setattr(manager_client, "TAKEOVER_S", 0.05)
    answer = get(Managers("a:81", "lab"))
    assert answer.status_code == 307 and "gone:81 leads" in answer.json()["detail"]


def test_circles__end(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(monkeypatch, a=points_to("http://b:81"), b=points_to("http://a:81"))
    monkeypatch.setattr(manager_client, "TAKEOVER_S", 0.0)
    assert get(Managers("a:81", "lab")).status_code == 307
    assert len(net.heard) <= 4


def test_away__a_manager_that_restarts_is_waited_for_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rostrum paths request` while it restarts, and while it goes with the answer under way."""
    net, told = Net(monkeypatch), list[str]()

    def dies(_: httpx.Request) -> httpx.Response:
        net.handlers["a"] = leads
        raise httpx.RemoteProtocolError("server disconnected without sending a response")

    def comes(_: float) -> None:
        if len(net.heard) == 3:
            net.handlers["a"] = dies

    monkeypatch.setattr(time, "sleep", comes)
    managers = Managers("http://a:81", "lab")
    assert managers.request("POST", "/v1/paths", {}, {}, 5.0, 60.0, told.append).status_code == 200
    assert net.hosts() == ["a"] * 5 and len({one.headers["Idempotency-Key"] for one in net.heard}) == 1
    assert len(told) == 1 and "waiting for the manager at http://a:81, 60 s at most" in told[0]


@pytest.mark.parametrize("name", ["http://[::1", ":::", "ftp://a", "http://", "a:99999", "http://a b", "a:b"])
def test_named__what_is_no_manager_is_told(name: str) -> None:
    with pytest.raises(click.ClickException, match="names no manager: a URL"):
        Managers(name, "lab")


def test_token__that_cannot_be_one_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROSTRUM_TOKEN", "schlüssel")
    with pytest.raises(click.ClickException, match="ROSTRUM_TOKEN: a token is one word"):
        Managers("a:81", "lab").request("GET", "/v1/health", None, {}, 5.0)
    monkeypatch.delenv("ROSTRUM_TOKEN")
    (tmp_path / "token").write_text("two words\n")
    monkeypatch.setenv("ROSTRUM_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(click.ClickException, match="ROSTRUM_TOKEN_FILE: a token is one word"):
        Managers("a:81", "lab").request("GET", "/v1/health", None, {}, 5.0)


def test_away__one_of_a_lab_that_does_not_run_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    net, told = Net(monkeypatch), list[str]()
    monkeypatch.setattr(manager_client, "labs_folder", lambda: tmp_path)
    with pytest.raises(httpx.HTTPError):
        Managers(None, "none").request("POST", "/v1/paths", {}, {}, 5.0, 60.0, told.append)
    assert not told and len(net.heard) == 1


def test_lab__that_is_the_only_one_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(manager_client, "labs_folder", lambda: tmp_path)
    monkeypatch.setattr(manager_client, "SYSTEM_SOCKET", tmp_path / "none.sock")
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "manager.sock").touch()
    assert Managers(None, "lab").where == str(tmp_path / "mine" / "manager.sock")
    (tmp_path / "other" / "manager.sock").touch()
    assert Managers(None, "lab").where == str(tmp_path / "none.sock")  # which of them, nobody said
    assert Managers(None, "other").where == str(tmp_path / "other" / "manager.sock")


def test_request__is_repeated_at_another_manager_with_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("server disconnected")

    net = Net(monkeypatch, a=dies, b=leads)
    Managers("a:81,b:81", "lab").request("POST", "/v1/paths", {"sender": "h1"}, {}, 5.0)
    first, second = net.heard
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert json.loads(second.content) == {"sender": "h1"}
    with pytest.raises(httpx.RemoteProtocolError):  # what has no key may have been done
        Managers("a:81,b:81", "lab").request("POST", "/v1/preflight", {}, {}, 5.0)
    assert net.hosts() == ["a", "b", "a"]


def test_token__goes_to_nobody_in_clear_who_was_asked_by_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(monkeypatch, a=points_to("http://b:81"), b=leads)
    monkeypatch.setattr(manager_client, "TAKEOVER_S", 0.0)
    assert get(Managers("https://a", "lab")).status_code == 307
    assert net.hosts() == ["a"]


def test_lab__all_its_managers_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_client, "labs_folder", lambda: tmp_path)
    assert Managers(None, "x").places == [str(tmp_path / "x" / "manager.sock")]
    (tmp_path / "x" / "manager2").mkdir(parents=True)
    (tmp_path / "x" / "manager2" / "manager.sock").touch()
    assert Managers(None, "x").places == [
        str(tmp_path / "x" / name) for name in ("manager.sock", "manager2/manager.sock")
    ]


def test_machine__its_own_manager_is_found_where_no_lab_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rostrum doctor` on the manager's host asked for a lab to be started."""
    system = tmp_path / "run" / "manager.sock"
    monkeypatch.setattr(manager_client, "labs_folder", lambda: tmp_path / "labs")
    monkeypatch.setattr(manager_client, "SYSTEM_SOCKET", system)
    assert Managers(None, "lab").places == [str(system)]
    system.parent.mkdir()
    system.touch()
    assert Managers(None, "lab").places == [str(system)]
    assert Managers("http://a", "lab").places == ["http://a"]
    (tmp_path / "labs" / "lab").mkdir(parents=True)
    (tmp_path / "labs" / "lab" / "manager.sock").touch()
    assert Managers(None, "lab").places == [str(tmp_path / "labs" / "lab" / "manager.sock")]
    assert Managers(None, "other").places == [str(tmp_path / "labs" / "other" / "manager.sock")]  # it was meant


def test_machine__who_may_not_enter_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(type(tmp_path)):  # type: ignore[misc]
        def exists(self) -> bool:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manager_client, "labs_folder", lambda: tmp_path)
    monkeypatch.setattr(manager_client, "SYSTEM_SOCKET", Closed("/run/rostrum-manager/manager.sock"))
    with pytest.raises(click.ClickException, match="usermod -aG rostrum"):
        Managers(None, "lab")


async def works(where: str, *fields: str) -> str:
    """What the command prints, once there is a manager."""
    async with asyncio.timeout(BOUND_S):
        while True:
            done = await invoke(where, *fields)
            if done.exit_code == 0:
                return done.stdout
            await asyncio.sleep(0.05)


async def test_commands__through_a_standby_and_over_a_failover(tmp_path: Path, url: str) -> None:  # noqa: F811
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    topology = loader.load(str(tmp_path / "two.yaml"))
    ports = free_port(), free_port()
    standby = f"http://127.0.0.1:{ports[1]}"
    async with managing(topology, url, tmp_path / "a", "a", ports[0]) as stop:
        await works(f"127.0.0.1:{ports[0]}", "paths")
        async with managing(topology, url, tmp_path / "b", "b", ports[1]):
            path = json.loads(await works(standby, "paths", "request", "h1", "h2", "--json"))["id"]
            both = f"127.0.0.1:{ports[0]},{standby}"
            assert path in (await invoke(both, "paths")).output
            stop.set()
            after = await invoke(both, "paths", "show", path)  # waits until the other one leads
            assert after.exit_code == 0 and path in after.output, after.output
