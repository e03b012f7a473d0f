"""Quotas of tenants, on the core: what is counted, what waits or is denied beyond them, and that nothing else is."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.persistence import parts
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.requests.quotas import Use
from rostrum.controller.core.values import REST, PathRequest, Quota, Settings, State, Wanted

from tests.controller.timeline import Timeline


def timeline(**quotas: Quota) -> Timeline:
    return Timeline(settings=Settings(quotas={"*" if name == "others" else name: one for name, one in quotas.items()}))


def ask(line: Timeline, tenant: str, sender: str, *receivers: str, wanted: Wanted = Wanted.AUTO) -> Path:
    name = f"q{next(line.ids)}"
    request = PathRequest(name, REST, sender, receivers, 1 << 20, 1 << 20, wanted=wanted, tenant=tenant)
    line.do(ev.RequestReceived(request))
    return line.path(line.manager.core.by_request[REST, name])


def test_quota__beyond_it_a_request_waits_until_the_tenant_gives_back() -> None:
    line = timeline(physics=Quota(paths=1))
    first = ask(line, "physics", "h1", "h3")
    second = ask(line, "physics", "h4", "h5")
    other = ask(line, "biology", "h6", "h7")
    assert first.granted and other.granted
    assert second.state is State.QUEUED
    assert second.reason == "waiting for the quota of tenant physics: 1 of 1 paths in use"
    line.release(first)
    assert second.granted
    assert line.manager.core.quotas.used("physics").paths == 1


def test_quota__denied_if_it_says_so_and_the_reason_names_it() -> None:
    line = timeline(others=Quota(paths=1, over="deny"))
    assert ask(line, "physics", "h1", "h3").granted
    refused = ask(line, "physics", "h4", "h5")
    assert refused.state is State.FAILED
    assert "quota of tenant physics: 1 of 1 paths" in refused.cause
    assert ask(line, "biology", "h6", "h7").granted


@pytest.mark.parametrize("over", ["wait", "deny"])
def test_quota__beyond_circuits_a_request_that_may_goes_over_the_packet_network(over: str) -> None:
    quota = Quota(circuits=1, over="deny" if over == "deny" else "wait")
    line = timeline(physics=quota)
    assert ask(line, "physics", "h1", "h3", "h5").kind is PathKind.CIRCUIT
    second = ask(line, "physics", "h4", "h7")
    if over == "wait":
        assert second.state is State.QUEUED
        line.wait(2_100)
    assert second.kind is PathKind.PACKET
    assert "quota of tenant physics: 1 of 1 circuits" in second.reason
    third = ask(line, "physics", "h6", "h1", wanted=Wanted.CIRCUIT)
    assert third.state is (State.QUEUED if over == "wait" else State.FAILED)


def test_quota__what_can_never_fit_does_not_wait() -> None:
    line = timeline(physics=Quota(rate_bps=10**6))
    refused = ask(line, "physics", "h1", "h3")
    assert refused.state is State.FAILED
    assert refused.cause.startswith("beyond the quota of tenant physics: ")


def test_quota__over_the_splitters_alone_goes_by_packets_at_once() -> None:
    line = timeline(physics=Quota(splitters=0))
    path = ask(line, "physics", "h1", "h3", "h5", "h7")
    assert path.kind is PathKind.PACKET and "splitters" in path.reason
    assert ask(line, "physics", "h2", "h4").kind is PathKind.CIRCUIT


def test_quota__a_path_that_moves_to_packets_frees_its_circuit() -> None:
    line = timeline(physics=Quota(circuits=1))
    first = ask(line, "physics", "h1", "h3", "h5")
    second = ask(line, "physics", "h4", "h7")
    assert first.kind is PathKind.CIRCUIT and second.state is State.QUEUED
    line.do(ev.NoLight(first.id, ("h3", "h5"), REST))
    assert first.kind is PathKind.PACKET
    assert second.kind is PathKind.CIRCUIT


def test_quota__others_are_not_held_up_by_who_is_over() -> None:
    line = timeline(physics=Quota(circuits=0))
    waiting = ask(line, "physics", "h1", "h3", wanted=Wanted.CIRCUIT)
    assert waiting.state is State.FAILED
    line = timeline(physics=Quota(circuits=1))
    held = ask(line, "physics", "h1", "h3", wanted=Wanted.CIRCUIT)
    waits = [ask(line, "physics", "h4", "h5", wanted=Wanted.CIRCUIT) for _ in range(3)]
    assert held.granted and all(one.state is State.QUEUED for one in waits)
    assert ask(line, "biology", "h6", "h7", wanted=Wanted.CIRCUIT).granted


def test_quota__change_lets_those_in_who_waited() -> None:
    line = timeline(physics=Quota(paths=1))
    ask(line, "physics", "h1", "h3")
    second = ask(line, "physics", "h4", "h5")
    line.do(ev.QuotasChanged({"physics": Quota(paths=2)}))
    assert second.granted
    assert line.manager.core.quotas.used("physics").paths == 2


def test_quota__counts_survive_a_restart() -> None:
    line = timeline(physics=Quota(paths=1))
    first = ask(line, "physics", "h1", "h3")
    records: dict[str, dict[str, object]] = {}
    made, failed = parts.changes(line.manager.core)
    assert not failed
    for change in made:
        records.setdefault(change.part, {})[change.key] = change.value
    settings = replace(line.settings, boot_id=2)
    again = Manager(line.topology, settings, line.now)
    kept = {part: {key: value for key, value in each.items() if value is not None} for part, each in records.items()}
    parts.restore(again.core, kept, line.now)
    assert again.core.paths[first.id].request.tenant == "physics"
    assert again.core.quotas.used("physics").paths == 1


def test_quota__what_is_counted_is_what_is_held() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    line = timeline(others=Quota(paths=3, circuits=2, rules=9))
    paths: list[Path] = []
    for _ in range(300):
        if draw.random() < 0.6:
            names = draw.sample([f"h{n}" for n in range(1, 9)], draw.randint(2, 4))
            paths.append(ask(line, draw.choice("ab"), *names))
        elif paths:
            line.release(draw.choice(paths))
        line.wait(draw.choice([0, 1, 500]))
        quotas = line.manager.core.quotas
        for tenant in "ab":
            held = [one for one in line.manager.core.paths.values() if one.granted and one.request.tenant == tenant]
            use = quotas.used(tenant)
            circuits = sum(one.kind is PathKind.CIRCUIT for one in held)
            assert (use.paths, use.circuits) == (len(held), circuits), f"seed {seed}"
            assert use.paths <= 3 and use.circuits <= 2 and use.rules <= 9, f"seed {seed}: {use}"
    for one in paths:
        line.release(one)
    line.wait(60_000)
    assert all(line.manager.core.quotas.used(tenant) == Use() for tenant in "ab"), f"seed {seed}"
