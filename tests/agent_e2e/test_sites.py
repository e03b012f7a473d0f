"""Real agents send to another site: once over the wide area to a relay, which passes on what comes while it comes; a
relay that dies is followed by another one, and what cannot be is said."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rostrum.client.values import RostrumError

from tests.agent_e2e import agents
from tests.agent_e2e.agents import World, content, counter, wait_until, with_metrics, world
from tests.agent_e2e.fake_manager import Answer, rostrum_thrift
from tests.agent_e2e.network import Network, network

HOME, EAST = ("h1", "h2"), ("h3", "h4", "h5")
SIZE = 24_000_001
ROSTRUM = Path(__file__).resolve().parents[2] / "build" / "venv" / "bin" / "rostrum"


class SitesManager(agents.InsideManager):
    """Grants as its parent does, and splits over sites, each of which lies behind the one before it: the first receiver
    of the next site that has not failed is relay."""

    numbers = itertools.count(1)
    sites: tuple[tuple[str, ...], ...] = (HOME, EAST)
    names = ("home", "east", "west")
    ahead = False  # orders tell relays their own legs
    knows_terms = True

    def _site(self, server: str) -> int:
        return next(number for number, site in enumerate(self.sites) if server in site)

    def _handle(self, server: str, name: str, args: dict[str, Any]) -> None:
        super()._handle(server, name, args)
        if name == "hello":
            assert args["info"]["knows_sites"], args["info"]
            self.say(server, "site", site=self.names[self._site(server)])
        elif name == "split":
            self._split(server, args["request"])
        elif name == "relayed":
            report = args["report"]
            rows = [rostrum_thrift.ReceiverReport(**row) for row in report["receivers"]]
            self.say(report["origin"], "relayed", report=rostrum_thrift.RelayReport(**{**report, "receivers": rows}))

    def _at(self, server: str) -> Any:
        return rostrum_thrift.ServerAddress(server, *self.servers[server])

    def _terms(self, request: dict[str, Any]) -> Any:
        terms = request.get("terms")
        return rostrum_thrift.SendTerms(**terms) if terms and self.knows_terms else None

    def _ways(self, server: str, receivers: list[str], request: dict[str, Any]) -> list[Any] | None:
        """Legs, when the relays have their orders; None: the next site has no relay."""
        own = self._site(server)
        near = [name for name in receivers if self._site(name) == own]
        far = [name for name in receivers if self._site(name) != own]
        legs = []
        if near:
            legs.append(rostrum_thrift.Leg(f"leg{next(self.numbers)}", self.names[own], None, near, False, ""))
        if not far:
            return legs
        may = [name for name in far if self._site(name) == own + 1]
        may = [name for name in may if name not in request["avoid"] and name in self._connections]
        if not may:
            return None
        leg_id = f"leg{next(self.numbers)}"
        others = [name for name in far if name != may[0]]
        if others:
            onward = self._ways(may[0], others, request) if self.ahead else None
            order = rostrum_thrift.RelayOrder(
                leg_id, request["app_id"], request["data_id"], self._at(server), others, False, True, onward,
                self._terms(request),
            )  # fmt: skip
            self.say(may[0], "relay", order=order)
        site = self.names[own + 1]
        return [*legs, rostrum_thrift.Leg(leg_id, site, self._at(may[0]), far, False, f"by relay {may[0]}")]

    def _split(self, server: str, request: dict[str, Any]) -> None:
        legs = self._ways(server, request["receivers"], request)
        reason = f"site {self.names[self._site(server) + 1]} has no relay: all of them failed" if legs is None else ""
        self.say(server, "legs", answer=rostrum_thrift.SplitAnswer(
            request_id=request["request_id"], legs=legs or [], ever=legs is None, reason=reason,
            with_terms=self._terms(request) is not None or None,
        ))  # fmt: skip


class ChainManager(SitesManager):
    sites = (("h1",), ("h2", "h3"), ("h4", "h5"))


class AheadManager(ChainManager):
    ahead = True


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(5) as it:
        yield it


@contextmanager
def sites(net: Network, monkeypatch: pytest.MonkeyPatch, manager: type[SitesManager]) -> Iterator[World]:
    monkeypatch.setattr(agents, "InsideManager", manager)
    with world(net) as it:
        it.manager.answer = lambda request: Answer(
            kind="packet", protocol="wan" if request["protocol"] == rostrum_thrift.Protocol.WAN else None
        )
        for name in net.hosts:
            it.start(name, *(["--nic-rate", "100M"] if name == "h1" else []))
            it.agents[name].wait_log("this server is in site=")
        yield it


@pytest.fixture
def lab(net: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with sites(net, monkeypatch, SitesManager) as it:
        yield it


@pytest.fixture
def chain(net: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """h1 | h2 h3 | h4 h5: the last site gets what the middle one's relay passes on."""
    with sites(net, monkeypatch, ChainManager) as it:
        yield it


@pytest.fixture
def ahead(net: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same, where all relays have their orders before anything is sent."""
    with sites(net, monkeypatch, AheadManager) as it:
        yield it


def over_the_wide_area(lab: World) -> int:
    """Payload bytes that the sender's legs took, all together."""
    return sum(int(number) for line in lab.agents["h1"].log for number in re.findall(r"(\d+) bytes went over", line))


def test_another_site_gets_it_once_by_its_relay_while_it_comes(lab: World) -> None:
    data = content(SIZE, 1)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ["h2", *EAST])
    assert result.ok and [row.state for row in result.receivers] == ["done"] * 4, result
    for name in ("h2", *EAST):
        assert lab.app(name).read(1) == data
    assert SIZE <= over_the_wide_area(lab) <= 1.05 * SIZE
    (line,) = [line for line in lab.agents["h1"].log if "went over the wide area" in line]
    assert "site east: 3 of 3 receivers done, by relay h3" in line
    asked = [call.args["request"] for call in lab.manager.heard("request")]
    assert {(one["sender"], tuple(one["receivers"])) for one in asked} == {("h1", ("h2",)), ("h3", ("h4", "h5"))}


def test_a_relay_that_dies_is_followed_by_one_that_goes_on_where_it_was(lab: World) -> None:
    data = content(SIZE, 2)
    sender = lab.app("h1")
    sender.add(2, data)
    tag = sender.start_send(2, list(EAST))

    def far() -> bool:
        return any(one.bytes > SIZE / 2 for one in lab.app("h4").status()[1])

    wait_until(far, "half of it at a member of the site")
    lab.agents["h3"].kill()
    result, _ = sender.finish_send(tag)
    states = {row.name: row.state for row in result.receivers}
    assert states == {"h3": "failed", "h4": "done", "h5": "done"}, result
    assert "site east: relay h3 failed" in next(row.cause for row in result.receivers if row.name == "h3")
    for name in ("h4", "h5"):
        assert lab.app(name).read(2) == data
    assert int(re.findall(r"goes on where it was: bytes=(\d+)", "\n".join(lab.agents["h4"].log))[0]) > SIZE / 3
    assert over_the_wide_area(lab) < 0.7 * SIZE  # of the leg that came to its end; the dead relay's is not in it


def part_at(lab: World, name: str, least: float) -> None:
    app = lab.app(name)
    wait_until(lambda: any(one.bytes > least for one in app.status()[1]), f"{least:.0f} bytes of it at {name}")


def half_at(lab: World, name: str) -> None:
    part_at(lab, name, SIZE / 2)


def goes_on_at(lab: World, name: str) -> int:
    return max((int(it) for line in lab.agents[name].log for it in re.findall(r"where it was: bytes=(\d+)", line)),
               default=0)  # fmt: skip


@pytest.fixture
def cut_off(net: Network) -> Iterator[Callable[[str], None]]:
    """Takes a machine off the network for the rest of a test: nobody is told, and no connection ends."""
    gone: list[str] = []

    def cut(name: str) -> None:
        gone.append(name)
        net.cut(name)

    yield cut
    for name in gone:
        net.cut(name, False)


def test_a_relay_whose_machine_falls_silent_is_followed_by_one_that_goes_on(
    lab: World, cut_off: Callable[[str], None]
) -> None:
    data = content(SIZE, 5)
    sender = lab.app("h1")
    sender.add(5, data)
    tag = sender.start_send(5, list(EAST))
    half_at(lab, "h4")
    cut_off("h3")
    result, _ = sender.finish_send(tag, 60)
    states = {row.name: row.state for row in result.receivers}
    assert states == {"h3": "failed", "h4": "done", "h5": "done"}, result
    for name in ("h4", "h5"):
        assert lab.app(name).read(5, 60_000) == data
    assert goes_on_at(lab, "h4") > SIZE / 3


def test_a_first_relay_of_a_chain_that_dies_is_followed_by_one_and_the_next_site_goes_on(chain: World) -> None:
    data = content(SIZE, 8)
    sender = chain.app("h1")
    sender.add(8, data)
    tag = sender.start_send(8, ["h2", "h3", "h4", "h5"])
    part_at(chain, "h5", SIZE / 3)
    chain.agents["h2"].kill()
    result, _ = sender.finish_send(tag, 60)
    states = {row.name: row.state for row in result.receivers}
    assert states == {"h2": "failed", "h3": "done", "h4": "done", "h5": "done"}, result
    for name in ("h3", "h4", "h5"):
        assert chain.app(name).read(8, 60_000) == data
    assert goes_on_at(chain, "h3") > SIZE / 4 and goes_on_at(chain, "h4") > SIZE / 4
    chain.agents["h4"].wait_log('for="h3" goes on with what is passed on for="h2"')
    log = "\n".join(chain.agents["h3"].log)
    assert "relay h4 failed" not in log and "2 of 2 receivers done, by relay h4" in log, log


def test_relays_that_know_their_legs_ask_for_none_and_are_followed_when_they_die(ahead: World) -> None:
    data = content(SIZE, 9)
    sender = ahead.app("h1")
    sender.add(9, data)
    tag = sender.start_send(9, ["h2", "h3", "h4", "h5"])
    part_at(ahead, "h5", SIZE / 3)
    asked = [call.args["request"]["receivers"] for call in ahead.manager.heard("split")]
    assert asked == [["h2", "h3", "h4", "h5"]]  # by the sender, and by no relay
    ahead.agents["h4"].kill()  # what h2 was told beforehand does not hold any more
    result, _ = sender.finish_send(tag, 60)
    states = {row.name: row.state for row in result.receivers}
    assert states == {"h2": "done", "h3": "done", "h4": "failed", "h5": "done"}, result
    for name in ("h2", "h3", "h5"):
        assert ahead.app(name).read(9, 60_000) == data
    again = [call.args["request"] for call in ahead.manager.heard("split")][1:]
    assert [(one["receivers"], one["avoid"]) for one in again] == [(["h5"], ["h4"])]


def test_a_relay_connects_to_the_one_behind_it_before_the_object_comes(ahead: World) -> None:
    ahead.agents["h4"].stop()
    ahead.start("h4", *with_metrics(ahead, "h4")).wait_log("this server is in site=")
    accepted = 'control_connections_total{kind="accepted"}'
    manager = ahead.manager
    assert isinstance(manager, SitesManager)
    at = manager._at
    legs = [rostrum_thrift.Leg("leg-b", "west", at("h4"), ["h4", "h5"], False, "by relay h4")]
    app_id = b"0123456789abcdef"
    order = rostrum_thrift.RelayOrder("leg-a", app_id, 10, at("h1"), ["h4", "h5"], False, True, legs)
    before = counter(ahead, "h4", accepted)
    manager.say("h2", "relay", order=order)  # of an object that nobody sends
    wait_until(lambda: counter(ahead, "h4", accepted) == before + 1, "a connection from h2")


def test_a_relay_that_has_all_and_falls_silent_is_followed_by_one_that_goes_on(
    lab: World, cut_off: Callable[[str], None]
) -> None:
    lab.agents["h3"].stop()
    lab.start("h3", "--nic-rate", "20M").wait_log("this server is in site=")  # its site lags behind it
    data = content(SIZE, 6)
    sender = lab.app("h1")
    sender.add(6, data)
    tag = sender.start_send(6, list(EAST))
    assert lab.app("h3").read(6, 60_000) == data
    half_at(lab, "h4")
    cut_off("h3")
    result, _ = sender.finish_send(tag, 60)
    assert {row.name: row.state for row in result.receivers} == dict.fromkeys(EAST, "done"), result
    for name in ("h4", "h5"):
        assert lab.app(name).read(6, 60_000) == data
    assert goes_on_at(lab, "h4") > SIZE / 3


def test_a_member_of_a_site_that_falls_silent_holds_nobody_up(lab: World, cut_off: Callable[[str], None]) -> None:
    data = content(SIZE, 7)
    sender = lab.app("h1")
    sender.add(7, data)
    tag = sender.start_send(7, list(EAST))
    half_at(lab, "h5")
    cut_off("h5")
    for name in ("h3", "h4"):
        assert lab.app(name).read(7, 60_000) == data
    result, _ = sender.finish_send(tag, 60)
    rows = {row.name: row for row in result.receivers}
    assert {name: row.state for name, row in rows.items()} == {"h3": "done", "h4": "done", "h5": "failed"}, result
    assert re.search("said nothing for|cannot be reached for", rows["h5"].cause), result
    assert not goes_on_at(lab, "h4")


def test_sends_over_wide_areas_keep_to_one_bound_of_memory_that_metrics_show(lab: World) -> None:
    """One of less than a section, which the object is longer than."""
    lab.agents["h1"].stop()
    lab.start("h1", "--wan-buffer", "1M", *with_metrics(lab, "h1")).wait_log("this server is in site=")
    data = content(SIZE, 9)
    sender = lab.app("h1")
    sender.add(9, data)
    assert counter(lab, "h1", 'wan_buffer_bytes{kind="bound"}') == 1 << 20
    assert counter(lab, "h1", 'wan_buffer_bytes{kind="most"}') == 0
    result = sender.send(9, list(EAST))
    assert result.ok, result
    assert 0 < counter(lab, "h1", 'wan_buffer_bytes{kind="most"}') <= 1 << 20
    wait_until(lambda: counter(lab, "h1", "wan_buffer_sends") == 0, "the end of the send")
    assert counter(lab, "h1", 'wan_buffer_bytes{kind="used"}') == 0


def test_a_relay_without_room_is_passed_over_and_told(lab: World) -> None:
    lab.agents["h3"].stop()
    lab.start("h3", "--quota", "1M").wait_log("this server is in site=")
    sender = lab.app("h1")
    sender.add(3, content(SIZE, 3))
    result = sender.send(3, list(EAST))
    rows = {row.name: row for row in result.receivers}
    assert (rows["h4"].state, rows["h5"].state) == ("done", "done"), result
    assert rows["h3"].state == "failed" and "no room at h3" in rows["h3"].cause


@pytest.mark.parametrize("where", ["a port nobody listens on", "an address nobody has"])
def test_a_relay_at_a_wrong_address_is_skipped_and_named(lab: World, where: str) -> None:
    address, port = lab.manager.servers["h3"]
    nobody = f"{address.rpartition('.')[0]}.250"
    lab.manager.servers["h3"] = (address, 9) if "port" in where else (nobody, port)
    data = content(SIZE, 7)
    sender = lab.app("h1")
    sender.add(7, data)
    result, _ = sender.finish_send(sender.start_send(7, list(EAST)), 60)
    rows = {row.name: row for row in result.receivers}
    assert (rows["h4"].state, rows["h5"].state) == ("done", "done"), result
    for name in ("h4", "h5"):
        assert lab.app(name).read(7) == data
    tried = f"{address}:9" if "port" in where else f"{nobody}:{port}"
    assert rows["h3"].state == "failed", result
    assert re.search(f"relay h3 failed.*cannot connect to {re.escape(tried)}: ", rows["h3"].cause), rows["h3"].cause


def test_a_site_without_any_relay_is_an_error_with_a_reason(lab: World) -> None:
    for name in EAST:
        lab.agents[name].stop()
    sender = lab.app("h1")
    sender.add(4, b"x" * 1000)
    with pytest.raises(RostrumError, match="site east has no relay"):
        sender.send(4, list(EAST))


def typed(lab: World, *words: str) -> list[dict[str, Any]]:
    """`rostrum send` of 4 MB from h1; its receivers, all of them done."""
    file = lab.folder / "file"
    file.write_bytes(content(4_000_000, 11))
    done = subprocess.run([ROSTRUM, "send", file, "--json", "--socket", lab.agents["h1"].socket, *words],
                          check=False, capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["receivers"]
    assert rows and all(row["state"] == "done" for row in rows), rows
    return rows


def test_options_of_a_send_hold_on_each_leg_and_at_relays(chain: World) -> None:
    """What a relay has already it passes on at the rate that was asked for, as those behind it do."""
    typed(chain, "--to", "h2")
    rows = typed(chain, "--to", "h2,h3,h4,h5", "--protocol", "wan", "--option", "congestion=fixed:8M", "--stragglers",
                 "evict", "--deadline", "60s")  # fmt: skip
    least_ms = 4_000_000 * 8 / 8e6 * 1000
    assert all(row["complete_ms"] >= 0.9 * least_ms for row in rows if row["name"] != "h2"), rows
    first, *others = [call.args["request"] for call in chain.manager.heard("split") if call.args["request"]["terms"]]
    assert others, "the relay asks for the next site's"
    for one in (first, *others):
        terms = one["terms"]
        assert (terms["options"], terms["stragglers"]) == ("congestion=fixed:8M", "evict")
        assert 1 <= terms["deadline_ms"] <= 60_000
    paths = [call.args["request"] for call in chain.manager.heard("request") if call.args["request"]["sender"] != "h1"]
    assert paths and all(one["protocol"] == rostrum_thrift.Protocol.WAN for one in paths), paths


def order(lab: World, leg_id: str, data_id: int, *terms: Any) -> Callable[[], Any]:
    """h3 is told to pass an object on; its latest report of that is what the function gives."""
    manager = lab.manager
    assert isinstance(manager, SitesManager)
    app_id = next(call.args["request"]["app_id"] for call in manager.heard("split"))
    told = rostrum_thrift.RelayOrder(leg_id, app_id, data_id, manager._at("h1"), ["h4"], False, True, None,
                                     rostrum_thrift.SendTerms(*terms))  # fmt: skip
    manager.say("h3", "relay", order=told)

    def last() -> Any:
        found = [call.args["report"] for call in manager.heard("relayed") if call.args["report"]["leg_id"] == leg_id]
        return found[-1] if found else None

    return last


@pytest.mark.parametrize(
    ("terms", "cause"),
    [
        (("magic=1", "", 0, 0), "wan has no option magic=1"),
        (("coding=proactive:1", "", 0, 0), "coding is none, repairs or proactive:N"),
        (("\xff,=,,", "evict", 0, 0), "wan has no option"),
        (("", "sulk", 0, 0), "does not know the send's policy for stragglers"),
    ],
)
def test_a_relay_that_cannot_hold_to_what_was_asked_says_so(lab: World, terms: tuple[Any, ...], cause: str) -> None:
    sender = lab.app("h1")
    sender.add(12, b"x" * 10_000)
    assert sender.send(12, ["h3"]).ok
    last = order(lab, "leg-odd", 12, *terms)
    wait_until(lambda: (last() or {}).get("state") == "failed", "the relay's refusal")
    assert cause in last()["cause"], last()


def test_an_order_with_times_that_cannot_be_is_not_taken(lab: World) -> None:
    sender = lab.app("h1")
    sender.add(13, b"x" * 10_000)
    assert sender.send(13, ["h3"]).ok
    for number, times in enumerate(((-1, 0), (0, -(2**31)))):
        order(lab, f"leg-wrong-{number}", 13, "", "", *times)
    last = order(lab, "leg-good", 13, "", "", 2**31 - 1, 2**31 - 1)  # in order on one connection
    wait_until(lambda: (last() or {}).get("state") == "done", "the good one's end")
    assert not [call for call in lab.manager.heard("relayed") if "wrong" in call.args["report"]["leg_id"]]


def test_a_manager_that_tells_relays_no_options_is_named(lab: World) -> None:
    manager = lab.manager
    assert isinstance(manager, SitesManager)
    manager.knows_terms = False
    sender = lab.app("h1")
    sender.add(14, b"x" * 1000)
    with pytest.raises(RostrumError, match="the manager's release tells relays of other sites neither options"):
        sender.send(14, list(EAST), protocol="wan", options="coding=repairs")
    assert sender.send(14, list(EAST)).ok  # without any it does


@pytest.mark.parametrize(
    ("protocol", "options", "said"),
    [
        ("wan", "priority=high", "wan has no option priority=high: there are congestion, coding and slow"),
        ("wan", "x" * 200 + "=1", f"wan has no option {'x' * 32}: there are"),
        ("wan", "congestion=fixed:1" + "0" * 200, "congestion is own, friendly or fixed:RATE"),
        ("wan", "congestion=fixed:9", "congestion is own, friendly or fixed:RATE"),
        ("rdcm", "coding=repairs", "takes no options"),
        ("auto", "coding=repairs", "name one, such as wan"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_the_sender(
    lab: World, protocol: str, options: str, said: str
) -> None:
    sender = lab.app("h1")
    sender.add(15, b"x" * 1000)
    with pytest.raises(RostrumError, match=said):
        sender.send(15, list(EAST), protocol=protocol, options=options)
    assert not lab.manager.heard("split")
