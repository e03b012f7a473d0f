"""P4Runtime of the reference target: entities written, refused as text, and read back as they were written."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from finsy.proto import p4r
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.p4.target_client import BOUND_S, DELETE, DEVICE, INSERT, MODIFY, Failed, Target, running
from tests.p4.target_json import (
    Builder,
    assign,
    byte_header,
    call,
    extract,
    field,
    header,
    number,
    parameter,
    state,
    to_port,
)
from tests.p4.target_p4info import ACTION, COUNTER, DIGEST, METER, REGISTER, TABLE, controller_header, p4info

DROP, SEND, LEARN = ACTION + 1, ACTION + 2, ACTION + 3
EXACT, LPM, TERNARY, RANGE, CONSTANT = (TABLE + number for number in range(1, 6))
CPU_PORT = 510


def program() -> Builder:
    """A table of each kind on h.a (and h.b), one after the other; the last that hits decides."""
    built = byte_header().metadata(("x", 12))
    drop = built.action("drop", [call("mark_to_drop", header("standard_metadata"))])
    send = built.action("send", [call("assign", field("s.egress_spec"), parameter(0))], ("port", 9))
    learn = built.action("learn", [call("generate_digest", number(1), number(1))])
    both: dict[str, Any] = {"counted": True, "size": 3}
    kinds = ("exact", "lpm", "ternary", "range")
    for kind, follower in zip(kinds, (*kinds[1:], "constant"), strict=True):
        keys = [("h.a", kind), ("h.b", "exact")] if kind == "exact" else [("h.a", kind)]
        built.table("ingress", kind, keys, [learn, send, drop], next=follower, **both)
    entry = {"match_key": [{"match_type": "exact", "key": "0xff"}], "action_entry": {"action_id": 1}, "priority": 1}
    entry["action_entry"] = {"action_id": send, "action_data": ["0x9"]}
    built.table("ingress", "constant", [("h.a", "exact")], [learn, send, drop], entries=[entry])
    built.add("counter_arrays", name="c", size=3, is_direct=False)
    built.add("meter_arrays", name="m", size=3, is_direct=False, type="bytes", rate_count=2)
    built.add("register_arrays", name="r", size=3, bitwidth=12)
    built.add("learn_lists", name="learned", elements=[field("h.a"), field("s.ingress_port")])
    return built


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running(tmp_path_factory.mktemp("target"), cpu_port=CPU_PORT) as target:
        target.primary()
        yield target


@pytest.fixture
def target(served: Target) -> Target:
    """With a fresh pipeline."""
    served.push(program())
    return served


def exact(value: int, field_id: int = 1) -> Any:
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=bytes([value])))


def lpm(value: int, length: int) -> Any:
    return p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=bytes([value]), prefix_len=length))


def ternary(value: int, mask: int) -> Any:
    return p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=bytes([value]), mask=bytes([mask])))


def between(low: int, high: int) -> Any:
    return p4r.FieldMatch(field_id=1, range=p4r.FieldMatch.Range(low=bytes([low]), high=bytes([high])))


def send(port: int | bytes, action: int = SEND) -> Any:
    value = port if isinstance(port, bytes) else port.to_bytes(2 if port > 255 else 1, "big")
    return p4r.TableAction(action=p4r.Action(action_id=action, params=[p4r.Action.Param(param_id=1, value=value)]))


def entry(table: int, *match: Any, **more: Any) -> Any:
    return p4r.TableEntry(table_id=table, match=match, **more)


def refused(target: Target, kind: int, message: Any) -> tuple[int, str]:
    """Code and text of one update's error."""
    with pytest.raises(Failed) as caught:
        target.write((kind, message))
    assert caught.value.code == "UNKNOWN", caught.value
    [detail] = caught.value.details
    return detail


ENTRIES = [
    entry(EXACT, exact(1), exact(2, 2), action=send(3), metadata=b"cookie"),
    entry(EXACT, exact(0), exact(0, 2), action=send(300), controller_metadata=7),
    entry(LPM, lpm(0x80, 1), action=send(4)),
    entry(LPM, action=send(4)),
    entry(TERNARY, ternary(0x10, 0xF0), action=send(5), priority=7),
    entry(TERNARY, action=send(5), priority=1),
    entry(RANGE, between(10, 20), action=send(6), priority=3),
    entry(RANGE, action=send(6), priority=4),
]


@pytest.mark.parametrize("message", ENTRIES)
def test_entries__are_read_back_as_written(target: Target, message: Any) -> None:
    target.write((INSERT, message))
    assert target.read(p4r.TableEntry(table_id=message.table_id)) == [message]
    changed = entry(message.table_id, *message.match, action=send(8), priority=message.priority)
    target.write((MODIFY, changed))
    assert target.read(p4r.TableEntry(table_id=message.table_id)) == [changed]
    target.write((DELETE, changed))
    assert target.read(p4r.TableEntry(table_id=message.table_id)) == []


def test_byte_strings__may_be_padded_and_come_back_short(target: Target) -> None:
    padded = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\0\0\1"))
    target.write((INSERT, entry(EXACT, padded, exact(2, 2), action=send(b"\0\0\0\7"))))
    assert target.read(entry(EXACT)) == [entry(EXACT, exact(1), exact(2, 2), action=send(7))]
    assert target.read(entry(EXACT, padded, exact(2, 2)))
    assert target.switch.inject(1, b"\1\2\0\0") == [(7, b"\1\2\0\0")]


INVALID, NOT_FOUND, EXISTS, DENIED, FULL, OUT_OF_RANGE, UNIMPLEMENTED = 3, 5, 6, 7, 8, 11, 12
WRONG = [
    (INSERT, entry(TABLE + 99), INVALID, "no such table"),
    (INSERT, entry(EXACT, exact(1), action=send(1)), INVALID, "match field h.b: an exact field cannot be left out"),
    (INSERT, entry(EXACT, exact(1), exact(1), action=send(1)), INVALID, "match field 1 is unknown or given twice"),
    (INSERT, entry(EXACT, exact(1), exact(2, 3), action=send(1)), INVALID, "match field 3 is unknown"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(1), priority=1), INVALID, "entries have no priority"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2)), INVALID, "an entry needs an action"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(512)), OUT_OF_RANGE, "0x200 does not fit into 9 bits"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(b"")), OUT_OF_RANGE, "the byte string is empty"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(1, ACTION + 99)), INVALID, "has no action"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(1, DROP)), INVALID, "parameter 1 is unknown"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), is_const=True, action=send(1)), INVALID, "is_const"),
    (INSERT, entry(EXACT, exact(1), exact(1, 2), action=send(1), idle_timeout_ns=1), UNIMPLEMENTED, "idle timeouts"),
    (INSERT, entry(LPM, lpm(0x81, 1), action=send(1)), INVALID, "0x81/1 is no prefix"),
    (INSERT, entry(LPM, lpm(0, 0), action=send(1)), INVALID, "one that matches everything is left out"),
    (INSERT, entry(LPM, exact(1), action=send(1)), INVALID, "match field h.a: it is lpm, not exact"),
    (INSERT, entry(TERNARY, ternary(1, 0), action=send(1), priority=1), INVALID, "masked bits are 0"),
    (INSERT, entry(TERNARY, ternary(1, 1), action=send(1)), INVALID, "needs a priority"),
    (INSERT, entry(RANGE, between(2, 1), action=send(1), priority=1), INVALID, "2 ... 1 is no range"),
    (INSERT, entry(RANGE, between(0, 255), action=send(1), priority=1), INVALID, "left out"),
    (MODIFY, entry(EXACT, exact(1), exact(1, 2), action=send(1)), NOT_FOUND, "no such entry"),
    (MODIFY, entry(EXACT, exact(1), exact(1, 2)), NOT_FOUND, "no such entry"),
    (DELETE, entry(EXACT, exact(1), exact(1, 2)), NOT_FOUND, "no such entry"),
    (INSERT, entry(EXACT, is_default_action=True, action=send(1)), INVALID, "can only be modified"),
    (MODIFY, entry(EXACT, exact(1), is_default_action=True, action=send(1)), INVALID, "has no match"),
    (MODIFY, entry(CONSTANT, exact(255), action=send(1)), DENIED, "its entries are constant"),
    (DELETE, entry(CONSTANT, exact(255)), DENIED, "its entries are constant"),
    (INSERT, entry(CONSTANT, exact(1), action=send(1)), DENIED, "its entries are constant"),
    (INSERT, entry(CONSTANT, exact(1), counter_data=p4r.CounterData()), DENIED, "constant"),
]


@pytest.mark.parametrize(("kind", "message", "code", "text"), WRONG)
def test_wrong_entries__are_refused_with_a_reason(
    target: Target, kind: int, message: Any, code: int, text: str
) -> None:
    found = refused(target, kind, message)
    assert found[0] == code
    assert text in found[1]


def test_batch__goes_on_after_an_error_and_tells_each(target: Target) -> None:
    good = [(INSERT, entry(EXACT, exact(value), exact(0, 2), action=send(1))) for value in range(4)]
    with pytest.raises(Failed, match="2 of 5 writes failed; the first: table exact has this entry already") as caught:
        target.write(good[0], good[0], *good[1:])
    assert [code for code, _ in caught.value.details] == [0, EXISTS, 0, 0, FULL]
    assert caught.value.details[4][1] == "table exact is full: 3 entries"
    assert len(target.read(entry(EXACT))) == 3
    with pytest.raises(Failed, match="UNIMPLEMENTED: the only atomicity"):
        target.write(atomicity=p4r.WriteRequest.Atomicity.DATAPLANE_ATOMIC)


def test_default_entry(target: Target) -> None:
    [before] = target.read(entry(EXACT, is_default_action=True))
    assert before.action.action.action_id == LEARN
    target.write((MODIFY, entry(EXACT, is_default_action=True, action=send(2))))
    assert target.read(entry(EXACT, is_default_action=True)) == [entry(EXACT, is_default_action=True, action=send(2))]
    assert len(target.read(p4r.TableEntry(is_default_action=True))) == 5
    target.write((MODIFY, entry(EXACT, is_default_action=True)))
    assert target.read(entry(EXACT, is_default_action=True)) == [before]


def test_wildcard_reads(target: Target) -> None:
    target.write(*((INSERT, message) for message in ENTRIES))
    constant = entry(CONSTANT, exact(255), action=send(9), is_const=True)
    assert sorted(map(str, target.read(p4r.TableEntry()))) == sorted(map(str, [*ENTRIES, constant]))
    assert target.read(entry(TERNARY, priority=7)) == [ENTRIES[4]]
    assert target.read(entry(EXACT, metadata=b"cookie")) == [ENTRIES[0]]
    assert target.read(entry(EXACT, *ENTRIES[1].match)) == [ENTRIES[1]]
    assert target.read(entry(EXACT, action=p4r.TableAction(action=p4r.Action(action_id=DROP)))) == []
    assert target.read(entry(EXACT, exact(9), exact(9, 2))) == []
    with pytest.raises(Failed) as caught:
        target.read(entry(EXACT), entry(TABLE + 50), p4r.CounterEntry(counter_id=1))
    assert [code for code, _ in caught.value.details] == [0, INVALID, INVALID]


def counts(packets: int, octets: int) -> Any:
    return p4r.CounterData(packet_count=packets, byte_count=octets)


def test_direct_counters(target: Target) -> None:
    first = ENTRIES[0]
    target.write((INSERT, first))
    for _ in range(3):
        target.switch.inject(1, b"\1\2\0\0")
    key = entry(EXACT, *first.match)
    [found] = target.read(p4r.DirectCounterEntry(table_entry=key))
    assert (found.table_entry, found.data) == (key, counts(3, 12))
    [with_data] = target.read(entry(EXACT, *first.match, counter_data=p4r.CounterData()))
    assert with_data.counter_data == counts(3, 12)
    target.write((MODIFY, p4r.DirectCounterEntry(table_entry=key, data=counts(10, 20))))
    target.write((MODIFY, first))
    [found] = target.read(p4r.DirectCounterEntry(table_entry=entry(EXACT)))
    assert found.data == counts(10, 20)
    target.write((MODIFY, entry(EXACT, *first.match, action=first.action, counter_data=counts(0, 0))))
    assert target.read(p4r.DirectCounterEntry())[0].data == counts(0, 0)
    missing = p4r.DirectCounterEntry(table_entry=entry(EXACT, exact(9), exact(9, 2)))
    assert refused(target, MODIFY, missing)[0] == NOT_FOUND
    with pytest.raises(Failed) as caught:
        target.read(missing)
    assert caught.value.details[0][0] == NOT_FOUND
    assert refused(target, INSERT, p4r.DirectCounterEntry(table_entry=key))[0] == INVALID
    assert "has no direct counter" in refused(target, MODIFY, p4r.DirectCounterEntry(table_entry=entry(CONSTANT)))[1]


def test_arrays(target: Target) -> None:
    def at(index: int) -> Any:
        return p4r.Index(index=index)

    target.write((MODIFY, p4r.CounterEntry(counter_id=COUNTER + 1, index=at(1), data=counts(5, 6))))
    assert [found.data for found in target.read(p4r.CounterEntry())] == [counts(0, 0), counts(5, 6), counts(0, 0)]
    assert target.read(p4r.CounterEntry(counter_id=COUNTER + 1, index=at(1)))[0].data == counts(5, 6)
    target.write((MODIFY, p4r.CounterEntry(counter_id=COUNTER + 1, data=counts(1, 1))))
    assert [found.data for found in target.read(p4r.CounterEntry())] == [counts(1, 1)] * 3
    config = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    target.write((MODIFY, p4r.MeterEntry(meter_id=METER + 1, index=at(2), config=config)))
    meters = target.read(p4r.MeterEntry(meter_id=METER + 1))
    assert [found.HasField("config") for found in meters] == [False, False, True]
    assert meters[2].config == config
    register = p4r.RegisterEntry(register_id=REGISTER + 1, index=at(1))
    register.data.bitstring = b"\x0a\xbc"
    target.write((MODIFY, register))
    assert target.switch.pipeline.registers["r"] == [0, 0xABC, 0]
    assert [found.data.bitstring for found in target.read(p4r.RegisterEntry())] == [b"\0", b"\x0a\xbc", b"\0"]


def test_arrays__wrong_ones(target: Target) -> None:
    def wrong(message: Any, kind: int = MODIFY) -> int:
        return refused(target, kind, message)[0]

    counter = p4r.CounterEntry(counter_id=COUNTER + 1, index=p4r.Index(index=3), data=counts(1, 1))
    assert wrong(counter) == OUT_OF_RANGE
    counter.index.index = -1
    assert wrong(counter) == INVALID
    assert wrong(counter, INSERT) == INVALID
    assert wrong(p4r.CounterEntry(counter_id=COUNTER + 1, data=counts(-1, 0))) == INVALID
    assert wrong(p4r.CounterEntry(counter_id=5)) == INVALID
    config = p4r.MeterConfig(cir=5, pir=4)
    assert wrong(p4r.MeterEntry(meter_id=METER + 1, config=config)) == INVALID
    register = p4r.RegisterEntry(register_id=REGISTER + 1)
    assert wrong(register) == INVALID
    register.data.bitstring = b"\x10\0"
    assert wrong(register) == OUT_OF_RANGE
    with pytest.raises(Failed, match="UNKNOWN"):
        target.read(counter)


def group(number: int, *replicas: tuple[int, int]) -> Any:
    made = [p4r.Replica(port=bytes([port]), instance=instance) for port, instance in replicas]
    return p4r.MulticastGroupEntry(multicast_group_id=number, replicas=made, metadata=b"m")


def test_multicast_groups(target: Target) -> None:
    one, two = group(1, (1, 10), (2, 20)), group(2, (3, 0))
    target.write((INSERT, one), (INSERT, two))
    assert target.switch.groups == {1: ((1, 10), (2, 20)), 2: ((3, 0),)}
    entries = [found.multicast_group_entry for found in target.read(p4r.MulticastGroupEntry())]
    assert entries == [one, two]
    target.write((MODIFY, group(1, (9, 9))), (DELETE, p4r.MulticastGroupEntry(multicast_group_id=2)))
    assert target.switch.groups == {1: ((9, 9),)}
    assert target.read(p4r.MulticastGroupEntry(multicast_group_id=2)) == []
    old_style = p4r.MulticastGroupEntry(multicast_group_id=5, replicas=[p4r.Replica(egress_port=7, instance=1)])
    target.write((INSERT, old_style))
    assert target.switch.groups[5] == ((7, 1),)
    codes = [
        refused(target, INSERT, group(1)),
        refused(target, MODIFY, group(3)),
        refused(target, INSERT, group(0)),
        refused(target, INSERT, group(1 << 16)),
        refused(target, INSERT, group(4, (1, 1), (1, 1))),
        refused(target, INSERT, group(4, (1, 1 << 16))),
    ]
    assert [code for code, _ in codes] == [EXISTS, NOT_FOUND, *[INVALID] * 4]
    assert refused(target, INSERT, p4r.CloneSessionEntry(session_id=5))[0] == UNIMPLEMENTED
    assert target.read(p4r.CloneSessionEntry()) == []
    backup = group(4, (1, 1))
    backup.replicas[0].backup_replicas.add(port=b"\2")
    target.write((INSERT, backup))
    assert target.switch.backups == {4: {(1, 1): ((2, 0),)}}
    assert target.read(p4r.MulticastGroupEntry(multicast_group_id=4))[0].multicast_group_entry == backup
    backup.replicas[0].backup_replicas.add(port=b"\2")
    assert refused(target, MODIFY, backup)[0] == INVALID  # twice the same
    backup.replicas[0].backup_replicas.add(port=b"\xff\xff")
    assert refused(target, MODIFY, backup)[0] == OUT_OF_RANGE
    target.write((DELETE, p4r.MulticastGroupEntry(multicast_group_id=4)))
    assert target.switch.backups == {}


def test_calls_that_were_refused_do_not_use_up_the_connection(target: Target) -> None:
    """What is left of them waits for Python's collector of cycles, which may not come for long."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            assert refused(target, MODIFY, group(3))[0] == NOT_FOUND
    finally:
        gc.enable()


def test_digests(target: Target) -> None:
    session = target.session
    assert session is not None
    config = p4r.DigestEntry.Config(max_list_size=1, ack_timeout_ns=60 * 10**9)
    digest = p4r.DigestEntry(digest_id=DIGEST + 1, config=config)
    target.switch.inject(7, b"\1\0\0\0")  # before anybody asked
    target.write((INSERT, digest))
    assert target.read(p4r.DigestEntry()) == [digest]
    target.switch.inject(7, b"\1\0\0\0")
    first = session.next("digest")
    assert first.digest_id == DIGEST + 1
    [data] = first.data
    assert [member.bitstring for member in data.struct.members] == [b"\1", b"\7"]
    target.switch.inject(7, b"\1\0\0\0")  # the same, not acknowledged: withheld
    target.switch.inject(7, b"\2\0\0\0")
    second = session.next("digest")
    assert second.data[0].struct.members[0].bitstring == b"\2"
    session.send(digest_ack=p4r.DigestListAck(digest_id=DIGEST + 1, list_id=first.list_id))
    session.send(digest_ack=p4r.DigestListAck(digest_id=1))
    error = session.next("error")  # so the acknowledgement before it was seen
    assert (error.canonical_code, error.HasField("digest_list_ack")) == (INVALID, True)
    target.switch.inject(7, b"\1\0\0\0")
    assert session.next("digest").data[0].struct.members[0].bitstring == b"\1"
    assert refused(target, INSERT, digest)[0] == EXISTS
    target.write((DELETE, digest))
    assert refused(target, DELETE, digest)[0] == NOT_FOUND
    assert refused(target, MODIFY, p4r.DigestEntry(digest_id=9))[0] == INVALID


def test_digests__are_gathered_until_the_list_is_full_or_the_time_is_over(target: Target) -> None:
    session = target.session
    assert session is not None
    config = p4r.DigestEntry.Config(max_list_size=2, max_timeout_ns=3600 * 10**9)
    digest = p4r.DigestEntry(digest_id=DIGEST + 1, config=config)
    target.write((INSERT, digest))
    for value in (1, 1, 2):
        target.switch.inject(7, bytes((value, 0, 0, 0)))
    assert len(session.next("digest").data) == 2
    target.switch.inject(7, bytes((1, 0, 0, 0)))  # nothing is cached without an acknowledgement time
    digest.config.max_timeout_ns = 1000
    target.write((MODIFY, digest))
    assert len(session.next("digest").data) == 1


def test_packets_in_and_out(target: Target) -> None:
    built = Builder().header("cpu", ("port", 9), ("pad", 7)).header("h", ("a", 8))
    start = state("start", [], [field("s.ingress_port") | {"bytes": 2}], rows=[(CPU_PORT, None, "cpu")], default="h")
    built.parser(start, state("cpu", [extract("cpu")], default="h"), state("h", [extract("h")]))
    from_cpu = {"type": "expression", "value": {"op": "valid", "left": None, "right": header("cpu")}}
    built.conditional("ingress", "c", from_cpu, "out", "in")
    built.statements(
        "ingress", [assign("s.egress_spec", field("cpu.port")), call("remove_header", header("cpu"))], "out"
    )
    tell = [call("add_header", header("cpu")), assign("cpu.port", field("s.ingress_port")), to_port(CPU_PORT)]
    built.statements("ingress", tell, "in")
    info = p4info(built)
    controller_header(info, "packet_in", ("ingress_port", 9), ("_pad", 7))
    controller_header(info, "packet_out", ("egress_port", 9), ("_pad", 7))
    target.push(built, info=info)
    session = target.session
    assert session is not None
    target.switch.receive(4, b"\5hello")
    packet = session.next("packet")
    assert packet.payload == b"\5hello"
    assert [(each.metadata_id, each.value) for each in packet.metadata] == [(1, b"\4"), (2, b"\0")]
    sent: list[bytes] = []
    target.switch.add_port(9, lambda frame: not sent.append(frame))
    session.send(packet=p4r.PacketOut(payload=b"\6out", metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\x09")]))
    session.send(packet=p4r.PacketOut(payload=b"x"))
    error = session.next("error")
    assert (error.canonical_code, error.packet_out.packet_out.payload) == (INVALID, b"x")
    assert sent == [b"\6out"]
    del target.switch.ports[9]


@st.composite
def updates(draw: st.DrawFn) -> Any:
    """Nearly any table entry: right now and then."""
    values = st.binary(max_size=3) | st.integers(0, 255).map(lambda value: bytes([value]))
    one = st.one_of(
        st.builds(lambda v: {"exact": {"value": v}}, values),
        st.builds(lambda v, n: {"lpm": {"value": v, "prefix_len": n}}, values, st.integers(-1, 9)),
        st.builds(lambda v, m: {"ternary": {"value": v, "mask": m}}, values, values),
        st.builds(lambda v, m: {"range": {"low": v, "high": m}}, values, values),
        st.just({}),
    )
    fields = st.builds(lambda field, rest: {"field_id": field, **rest}, st.integers(0, 3), one)
    parameters = st.builds(lambda field, value: {"param_id": field, "value": value}, st.integers(0, 2), values)
    match = draw(st.lists(fields, max_size=3))
    given = {
        "action_id": draw(st.sampled_from((0, DROP, SEND, LEARN))),
        "params": draw(st.lists(parameters, max_size=2)),
    }
    action = {"action": given}
    more = {"priority": draw(st.sampled_from((0, 0, 1, 2, -1, 2**31 - 1)))}
    if draw(st.booleans()):
        more["is_default_action"] = draw(st.booleans())
    table = draw(st.sampled_from((0, EXACT, LPM, TERNARY, RANGE, CONSTANT, CONSTANT + 1)))
    return draw(st.integers(0, 3)), p4r.TableEntry(table_id=table, match=match, action=action, **more)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(updates(), min_size=1, max_size=12), st.binary(min_size=4, max_size=4))
def test_any_updates__have_an_answer_each_and_what_was_accepted_is_there(
    target: Target, batch: list[Any], frame: bytes
) -> None:
    target.push(program())
    codes = [0] * len(batch)
    try:
        target.write(*batch)
    except Failed as failed:
        codes = [code for code, _ in failed.details]
        assert len(codes) == len(batch)
        assert set(codes) <= {0, INVALID, NOT_FOUND, EXISTS, DENIED, FULL, OUT_OF_RANGE}
    there = target.read(p4r.TableEntry())
    inserted = sum(kind == INSERT and not code for (kind, _), code in zip(batch, codes, strict=True))
    deleted = sum(kind == DELETE and not code for (kind, _), code in zip(batch, codes, strict=True))
    assert len(there) == 1 + inserted - deleted
    for message in there:
        if not message.is_const:
            target.write((MODIFY, message))  # what is read can be written
    target.switch.inject(1, frame)


def test_the_device_is_checked_on_reading(target: Target) -> None:
    request = p4r.ReadRequest(device_id=DEVICE + 1)
    with pytest.raises(Exception, match="there is no device 4"):
        list(target.stub.Read(request, timeout=BOUND_S))
