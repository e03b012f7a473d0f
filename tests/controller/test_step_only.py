"""Nobody but `step()` changes the manager's core: it is the same before a step as after the one before."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.values import Settings
from rostrum.controller.speed.cache import Cache
from rostrum.topologies.model import Topology

from tests.controller.fakes import running, until

CALLS = ("step", "restore", "take_actions", "take_records", "drop_records")
READ = ["/metrics", "/v1/doctor"]  # the first one below; the second asks agents, which these do not answer
DERIVED = {"nodes", "planned"}  # of a path: two forms of its tree, one made of the other when somebody asks
ONCE = (str, bytes, int, float, type(None), Enum, type, types.FunctionType, Topology, Cache)  # no state, or a cache


def state(of: Any, seen: dict[int, Any]) -> Any:
    """Everything that is reachable from an object, as text can be compared."""
    if isinstance(of, ONCE):
        return repr(of) if isinstance(of, str | bytes | int | float | Enum) else type(of).__name__
    if id(of) in seen:
        return "again"
    seen[id(of)] = of
    if isinstance(of, Mapping | OrderedDict):
        return [(state(key, seen), state(value, seen)) for key, value in of.items()]
    if isinstance(of, list | tuple | deque):
        return [state(one, seen) for one in of]
    if isinstance(of, set | frozenset):
        return sorted(str(state(one, seen)) for one in of)
    names = sorted(attributes(of))
    return [type(of).__name__, *((name, state(getattr(of, name, None), seen)) for name in names)]


def attributes(of: Any) -> set[str]:
    """Of Python's objects, and of compiled ones, which have no dictionary."""
    slots = (types.GetSetDescriptorType, types.MemberDescriptorType)
    found = {name for kind in type(of).__mro__ for name, what in vars(kind).items() if isinstance(what, slots)}
    return (found | set(getattr(of, "__dict__", ()))) - {"__dict__", "__weakref__"} - DERIVED


class Watch:
    """Looks before and after each call that may change the core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.depth = self.looks = 0
        self.after: dict[int, Any] = {}
        self.wrong: list[str] = []
        for name in CALLS:
            monkeypatch.setattr(Manager, name, self.around(name, getattr(Manager, name)))

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(manager: Manager, *given: Any) -> Any:
            self.look(manager, f"{name}{given[:1]}")
            self.depth += 1
            try:
                return call(manager, *given)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.after[id(manager)] = state(manager.core, {})

        return watched

    def look(self, manager: Manager, where: str) -> None:
        if self.depth or id(manager) not in self.after:
            return
        self.looks += 1
        now = state(manager.core, {})
        if now != self.after[id(manager)]:
            self.wrong.append(f"before {where}: {difference(self.after[id(manager)], now)}")


def difference(a: Any, b: Any, at: str = "core") -> str:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            if one != other:
                name = a[0] if isinstance(a[0], str) else number
                return difference(one, other, f"{at}.{name}")
    return f"{at}: {str(a)[:200]} became {str(b)[:200]}"


async def test_core__is_changed_by_step_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    async with running(tmp_path, Settings(boot_id=1), journal=tmp_path / "journal") as manager:
        agents = [await manager.agent(name) for name in ("h1", "h3", "h5")]
        agents[0].request("r1", "h1", "h3", "h5")
        await agents[0].response("r1", 1)
        async with httpx.AsyncClient(base_url=manager.url, timeout=60) as client:
            key = {"Idempotency-Key": "k"}
            body = {"sender": "h3", "receivers": ["h1", "h5"], "kind": "packet"}
            made = [(await client.post("/v1/paths", json=body, headers=key)).json()["id"] for _ in range(2)]
            assert made[0] == made[1]
            assert (await client.post("/v1/paths", json={**body, "receivers": ["h3"]})).status_code == 422
            assert (await client.post("/v1/groups", json={"name": "g", "protocol": "plain"})).status_code != 500
            assert (await client.put("/v1/links/tor4/core/drain", json={"reason": "x"})).status_code != 500
            assert (await client.post("/v1/failed-links", json={"link": ["tor4", "core"]})).status_code != 500
            document = (await client.get("/openapi.json")).json()["paths"]
            plain = [path for path, how in document.items() if "get" in how and "{" not in path and path not in READ]
            plain = [path for path in plain if not path.endswith("/events")]  # streams, which do not end
            of_path = [path.replace("{path_id}", made[0]) for path, how in document.items() if "get" in how]
            for path in (*plain, *(one for one in of_path if made[0] in one), "/metrics", "/v1/circuits?fresh=true"):
                assert (await client.get(path)).status_code != 500, path
            await client.delete(f"/v1/paths/{made[0]}")
        agents[0].say("release", response_id="", request_id="r1")
        core = manager.app.runtime.manager.core
        await until(lambda: not any(path.granted for path in core.paths.values()), "released")
        watch.look(manager.app.runtime.manager, "the end")
        for agent in agents:
            await agent.close()
    assert watch.looks > 20 and not watch.wrong, "\n".join(watch.wrong[:5])
