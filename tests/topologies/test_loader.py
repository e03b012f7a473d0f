"""The loader: the shipped topology as values, and every kind of wrong file as words that name place and remedy."""

from __future__ import annotations

import copy
import random
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rostrum.topologies import TopologyError, builtin_names, checks, load, load_text, loader, rate_bps
from rostrum.topologies.fabrics import fabric
from rostrum.topologies.families import fat_tree
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import FOLDER
from rostrum.topologies.model import End, P4Target, Topology
from rostrum.topologies.problems import did_you_mean
from rostrum.topologies.shape import accepts

TEXT = (FOLDER / "hybrid-4x2.yaml").read_text()
VALUE = yaml.safe_load(TEXT)


def wrong(change) -> str:
    """The loader's text on the shipped topology after `change` was done to it."""
    value = copy.deepcopy(VALUE)
    change(value)
    with pytest.raises(TopologyError) as caught:
        load_text(yaml.safe_dump(value), "file.yaml")
    for line in str(caught.value).splitlines():
        assert line.startswith("file.yaml: "), line
    return str(caught.value)


def put(*place_and_value):
    """A change that sets the value at a place."""

    def change(value) -> None:
        *place, last, new = place_and_value
        for step in place:
            value = value[step]
        value[last] = new

    return change


def p4(address: str, **more: int) -> dict[str, object]:
    """A P4 top-of-rack switch."""
    return {"role": "tor", "southbound": "p4runtime", "p4runtime": {"address": address, **more}}


def test_p4_switch__where_it_listens_and_what_it_is_there() -> None:
    value = copy.deepcopy(VALUE)
    value["switches"]["tor2"] = p4("10.255.9.2", device_id=3, queues=8)
    topology = load_text(yaml.safe_dump(value))
    assert topology.switches["tor2"].p4 == P4Target(IPv4Address("10.255.9.2"), 9559, 3, 8)
    assert topology.switches["tor2"].dpid == 0 and topology.switches["tor1"].p4 is None


def test_switches_of_another_kind__the_same_data_center() -> None:
    plain = load_text(TEXT)
    every, mixed = load_text(with_kind(TEXT, "p4")), load_text(with_kind(TEXT, "mixed"))
    assert {one.southbound for one in every.switches.values()} == {"p4runtime"}
    kinds = {one.name: one.southbound for one in mixed.switches.values()}
    assert kinds == {"core": "openflow", **{f"tor{n}": "p4runtime" for n in range(1, 5)}}
    assert len({one.p4.port for one in every.switches.values() if one.p4}) == 5
    assert every.links == mixed.links == plain.links and every.servers == plain.servers
    back = load_text(with_kind(with_kind(TEXT, "mixed"), "openflow"))
    assert {one.southbound for one in back.switches.values()} == {"openflow"}
    with pytest.raises(ValueError, match="'p5' is no kind of switches; there are openflow, p4, mixed"):
        with_kind(TEXT, "p5")


def test_shipped_topology() -> None:
    topology = load("hybrid-4x2")
    assert sorted(topology.servers) == [f"h{n}" for n in range(1, 9)]
    assert topology.servers["h3"].tor == "tor2" and topology.servers["h3"].tor_port == 1
    assert topology.servers["h3"].rate_bps == 10**9
    assert topology.servers["h3"].address == IPv4Address("10.0.2.1")
    assert [server.name for server in topology.servers_of("tor4")] == ["h7", "h8"]
    tor1 = topology.switches["tor1"]
    assert tor1.neighbours == {1: End("h1", 0), 2: End("h2", 0), 49: End("core", 1), 50: End("ocs", 1)}
    assert tor1.rates[50] == 10**9
    ocs = topology.ocs["ocs"]
    assert ocs.ports == 32 and ocs.attached == {n: End(f"tor{n}", 50) for n in range(1, 5)}
    assert ocs.splitters["s2"].input == 6 and ocs.splitters["s2"].outputs == (9, 10, 11, 12)
    assert ocs.reconfiguration_s == 0.07 and topology.emulation.ringing_s == 0.005


def test_load_takes_a_path_or_a_builtin_name() -> None:
    assert load(FOLDER / "hybrid-4x2.yaml") == load("hybrid-4x2") == load(str(FOLDER / "hybrid-4x2.yaml"))


@pytest.mark.parametrize("name", builtin_names())
def test_every_shipped_topology_is_right(name: str) -> None:
    assert load(name).servers


def test_defaults() -> None:
    value = copy.deepcopy(VALUE)
    for key in ("agent", "emulation"):
        del value[key]
    for key in ("management_port", "user", "password", "reconfiguration_ms", "light", "dialect"):
        del value["ocs"]["ocs"][key]
    value["manager"] = {"address": "10.255.0.1"}
    assert load_text(yaml.safe_dump(value)) == load("hybrid-4x2")
    value["ocs"]["ocs"]["dialect"] = "polatis"
    assert load_text(yaml.safe_dump(value)).ocs["ocs"].management_port == 3082
    del value["ocs"], value["links"][12:]
    assert load_text(yaml.safe_dump(value)).ocs == {}


@pytest.mark.parametrize(
    ("text", "bps"),
    [("1G", 10**9), ("10G", 10**10), ("100M", 10**8), ("2.5G", 2_500_000_000), ("64k", 64_000), (1_000_000, 10**6)],
)
def test_rate(text: str | int, bps: int) -> None:
    assert rate_bps(text) == bps


@pytest.mark.parametrize("text", ["", "G", "1g", "1 G", "-1G", "1e9", "999T", "0", "1GB", "９G", "1" * 400, "0.1"])
def test_rate_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        rate_bps(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("links", 0, "b", "tor1:2"), "links[1].b: tor1:2 is already used by links[0].b"),
        (put("links", 0, "a", "h9"), "links[0].a: no node is called h9; known are core, h1"),
        (put("links", 0, "a", "h1:3"), "a server has one data NIC; write h1 alone"),
        (put("links", 0, "b", "tor1"), "only a server stands without a port"),
        (put("links", 0, "b", "tor1:0"), "port must be a number from 1 to 65279"),
        (put("links", 0, "b", "tor1:x"), "port must be a number"),
        (put("links", 0, "b", "core:77"), "a server is joined to a ToR switch"),
        (put("links", 12, "b", "ocs:33"), "ocs has ports 1 to 32, not 33"),
        (put("links", 12, "a", "core:99"), "an OCS port is joined to a ToR switch"),
        (put("links", 12, "a", "ocs:9"), "joins ocs with itself"),
        (put("links", 0, "rate", "1 gigabit"), "links[0].rate: '1 gigabit' is not a rate; write bit/s"),
        (put("links", 0, "rate", 0), "rates from 1k"),
        (lambda value: value["links"].pop(0), "servers.h1: no link to a ToR switch; add one"),
        (lambda value: value["links"].pop(8), "no way from"),
        (put("servers", "h1", "address", "10.1.0.1"), "10.1.0.1 is outside the data network 10.0.0.0/16"),
        (put("servers", "h1", "address", "10.0.0.0"), "network or broadcast address"),
        (put("servers", "h1", "address", "10.0.1.2"), "already that of servers.h1.address"),
        (put("servers", "h1", "address", "10.0.1.999"), "is not an IPv4 address"),
        (put("servers", "h1", "address", 7), "7 is not a text"),
        (put("servers", "h1", "management", "10.255.0.1"), "already that of servers.h1.management"),
        (put("ocs", "ocs", "address", "10.255.0.1"), "already that of manager.address"),
        (put("network", "data", "10.0.1.0/16"), "did you mean 10.0.0.0/16?"),
        (put("network", "management", "10.0.0.0/8"), "overlaps the data network"),
        (put("network", "multicast", "10.9.0.0/16"), "not multicast; choose from 224.0.0.0/4"),
        (put("network", "multicast", "224.0.0.0/8"), "reserved for routing protocols"),
        (put("network", "mtu", 60), "out of range: minimum 576"),
        (put("switches", "tor1", "dpid", 12), "dpid 12 is that of tor1 too, and both have port 1"),
        (put("switches", "tor1", "coexist", {"table": 255}), "out of range: maximum 254"),
        (
            put(
                "switches",
                "tor2",
                {"role": "tor", "southbound": "p4runtime", "p4runtime": {"address": "127.0.0.1"}, "coexist": True},
            ),
            "is for OpenFlow switches",
        ),
        (put("switches", "tor1", "role", "spine"), "'spine' is none of tor, core"),
        (put("switches", "tor1", {"role": "tor"}), "lacks dpid, which southbound: openflow needs; add it"),
        (put("switches", "tor1", "southbound", "p4runtime"), "lacks p4runtime, which southbound: p4runtime needs"),
        (put("switches", "tor1", "p4runtime", {"address": "10.255.9.1"}), "no meaning with southbound: openflow"),
        (put("switches", "tor1", p4("10.255.9.x")), "is not an IPv4 address"),
        (put("switches", "tor1", p4("10.255.9.1", queues=9)), "maximum 8"),
        (put("switches", "tor1", p4("10.255.9.1", port=0)), "minimum 1"),
        (
            put("switches", {**VALUE["switches"], "tor1": p4("10.255.9.1"), "tor2": p4("10.255.9.1")}),
            "device 1 at 10.255.9.1:9559 is tor1 already; give each switch its own",
        ),
        (
            lambda value: (put("switches", "tor1", p4("10.255.9.1"))(value), put("links", 0, "b", "tor1:511")(value)),
            "port 511 of tor1: the P4 program knows ports 1 to 509",
        ),
        (put("switches", "h1", {"role": "tor", "dpid": 99}), "h1 is also in switches; rename one"),
        (put("servers", "Bad Name", {"address": "10.0.9.1", "management": "10.255.9.1"}), "not usable as a name"),
        (put("manager", "rest_port", 9090), "port 9090 is already thrift_port"),
        (put("manager", "rest_port", True), "True is not a whole number"),
        (
            put("ocs", "ocs", "splitters", "s1", "outputs", [5, 6, 7, 9]),
            "input fibre 9 of ocs is already used by splitter s1",
        ),
        (put("ocs", "ocs", "splitters", "s1", "outputs", [1, 6, 7, 8]), "already used by the link to tor1"),
        (
            put("ocs", "ocs", "splitters", "s1", "outputs", [5, 5, 7, 8]),
            "input fibre 5 of ocs is already used by splitter s1",
        ),
        (put("ocs", "ocs", "splitters", "s1", "outputs", [5, 6, 7]), "names 3 OCS inputs, but the fanout is 4"),
        (put("ocs", "ocs", "splitters", "s1", "input", 6), "output fibre 6 of ocs is already used by splitter s1"),
        (put("ocs", "ocs", "splitters", "s1", "input", 40), "ocs has ports 1 to 32, not 40"),
        (put("ocs", "ocs", "splitters", "s1", "loss_db", 3), "costs at least 6.0 dB"),
        (put("ocs", "ocs", "light", "sensitivity_dbm", 10), "not even one cross-connect gives light"),
        (put("emulation", "reconfiguration", "spread_ms", 5), "a fixed distribution has no spread"),
        (
            put("emulation", "reconfiguration", {"distribution": "uniform", "mean_ms": 9, "spread_ms": 10}),
            "less than no",
        ),
        (put("emulation", "ringing", "duration_ms", 100), "longer than the whole reconfiguration"),
        (put("emulation", "seed", float("nan")), "nan is not a usable number"),
        (put("rostrum", 2), "reads version 1"),
        (put("netwrok", {}), "unknown key 'netwrok'; did you mean network?"),
        (lambda value: value.pop("links"), "lacks links; add it"),
        (put("links", []), "at least 1"),
        (put("servers", []), "is not a mapping"),
    ],
)
def test_contradiction_is_told_with_place_and_remedy(change, message: str) -> None:
    assert message in wrong(change)


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = TEXT.replace('{a: h1, b: "tor1:1", rate: 1G}', '{a: h1, b: "tor1:2", rate: fast}')
    text = text.replace("10.255.3.1", "10.0.3.9").replace("input: 6", "input: 5")
    with pytest.raises(TopologyError) as caught:
        load_text(text, "f")
    lines = text.splitlines()
    found = {(problem.line, problem.text.split(";")[0]) for problem in caught.value.problems}
    for line_has, message in [
        ("rate: fast", "'fast' is not a rate"),
        ("a: h2,", "tor1:2 is already used by links[0].b"),
        ("h5: {address", "10.0.3.9 is outside the management network 10.255.0.0/16"),
        ("s2: {fanout", "output fibre 5 of ocs is already used by splitter s1"),
    ]:
        number = next(n for n, line in enumerate(lines, 1) if line_has in line)
        assert (number, message) in found
    assert len(found) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("{", "not valid YAML"),
        ("a: [1, 2", "not valid YAML"),
        ("- 1\n- 2\n", "is not a mapping"),
        ("just words", "is not a mapping"),
        ("a: &x [1]\nb: *x\n", "alias *x: write the value out"),
        ("h1: 1\nh1: 2\n", "stands here twice, first on line 1"),
        ("1: 2\n", "a key here is not a name"),
        ("? [a]\n: 1\nname: .inf\n", "f: line 3, name: inf is not a usable number"),
        ("a: !!python/object:os.system {}\n", "not valid YAML"),
        ("a: 2001-99-99\n", "not valid YAML"),
        ("a: " + "[" * 5000, "not"),
        ("a: " + "9" * 10_000, "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "a second document"),
    ],
)
def test_text_that_is_no_topology(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=r"^f: ") as caught:
        load_text(text, "f")
    assert message in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(random.Random(1).randbytes(1000))
    (tmp_path / "huge").write_bytes(b"#" * (33 << 20))
    for name, text in [
        ("none", "No such file"),
        ("binary", "not UTF-8"),
        ("huge", "larger than 32 MiB"),
        ("", "directory"),
    ]:
        with pytest.raises(TopologyError, match=text):
            load(tmp_path / name)
    with pytest.raises(TopologyError, match=r"built in are .*hybrid-4x2"):
        load("no-such-builtin")
    with pytest.raises(TopologyError, match="null byte"):
        load("a\0b")


def loads_or_says_why(text: str) -> None:
    try:
        assert isinstance(load_text(text, "f"), Topology)
    except TopologyError as error:
        assert error.problems and str(error).startswith("f: ")
        assert all(problem.text for problem in error.problems)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    loads_or_says_why(text)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["h1", "tor1:1", "10.0.1.1"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def places(value, place=()):
    yield place
    for step, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*place, step))


PLACES = list(places(VALUE))[1:]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3))
def test_any_value_at_any_place(changes) -> None:
    value = copy.deepcopy(VALUE)
    for place, new in changes:
        try:
            put(*place, new)(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took that place away
    if accepts(loader._schema())(value):
        assert not list(loader._validator().iter_errors(value))
    loads_or_says_why(yaml.safe_dump(value))


@pytest.mark.parametrize("name", builtin_names())
def test_shape__good_files_need_no_jsonschema(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_validator", None)
    load(name)


def test_shape__a_word_of_the_schema_that_it_does_not_know_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="no test for 'multipleOf'"):
        accepts({"properties": {"a": {"multipleOf": 2}}})


def test_many_problems__some_are_told_and_each_is_found_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of servers in the wrong network: what looks at all others for each of them would not come back."""
    looked: list[int] = []
    is_plain = checks.is_plain
    monkeypatch.setattr(checks, "is_plain", lambda topology: looked.append(1) or is_plain(topology))
    text = fabric(fat_tree(32)).replace("data: 10.0.0.0/9", "data: 10.0.0.0/24")
    with pytest.raises(TopologyError, match="and at least 950 more problems") as caught:
        load_text(text)
    first = caught.value.problems[0]
    assert text.splitlines()[first.line - 1].startswith(f"  {first.place[1]}: {{address")
    assert len(looked) < 10


def test_did_you_mean__of_very_many() -> None:
    known = [f"h{pod}-{index}" for pod in range(100) for index in range(100)]
    assert did_you_mean("h42-177", known).startswith("; did you mean h42-")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 40), st.text(max_size=5))
def test_text_damaged_anywhere(start: int, length: int, new: str) -> None:
    loads_or_says_why(TEXT[:start] + new + TEXT[start + length :])
