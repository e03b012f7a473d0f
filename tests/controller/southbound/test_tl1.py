"""TL1 framing and parsing: what a switch or a client may send, whole, in pieces, and as garbage."""

from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.southbound.ocs.tl1 import (
    Answer,
    Autonomous,
    Command,
    Framer,
    Tl1Error,
    format_answer,
    format_autonomous,
    format_list,
    parse_command,
    parse_list,
    parse_message,
    parse_row,
)

WORDS = st.text(string.ascii_uppercase + string.digits, min_size=1, max_size=8)
VERBS = st.lists(WORDS, min_size=1, max_size=3).map("-".join)
CTAGS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
FIELDS = st.text(string.ascii_letters + string.digits + "&,=._-", max_size=30)
ROWS = (
    st.text(string.ascii_letters + string.digits + " ,=:;>./_*&-", min_size=1, max_size=60).map(str.strip).filter(bool)
)
TEXTS = st.text(string.ascii_letters + string.digits + " ,:;>-", max_size=60).map(lambda t: " ".join(t.split()))


def frames(framer: Framer, data: bytes, cuts: list[int] | None = None) -> list[tuple[str, str] | Tl1Error]:
    """All that comes out when `data` arrives cut at these places."""
    edges = [0, *sorted(cuts or []), len(data)]
    return [item for a, b in itertools.pairwise(edges) for item in framer.feed(data[a:b])]


def only_message(text: str) -> Answer | Autonomous | None:
    (item,) = frames(Framer(100_000, b";>"), text.encode())
    assert not isinstance(item, Tl1Error)
    return parse_message(*item)


@given(VERBS, FIELDS, FIELDS, CTAGS, st.lists(FIELDS, max_size=4))
def test_command__survives_the_wire(verb: str, tid: str, aid: str, ctag: str, blocks: list[str]) -> None:
    sent = Command(verb, tid, aid, ctag, tuple(blocks))
    ((text, _),) = frames(Framer(10_000), f"{sent}\r\n".encode())
    assert parse_command(text) == sent


@given(CTAGS, st.sampled_from(["COMPLD", "PRTL", "DENY"]), st.lists(ROWS, max_size=5), TEXTS, st.booleans())
def test_answer__survives_the_wire(ctag: str, code: str, rows: list[str], text: str, more: bool) -> None:
    sent = Answer(ctag, code, tuple(rows), "" if code == "COMPLD" else "SROF", text, more)
    assert only_message(format_answer(sent, "ocs 26-01-01 00:00:00")) == sent


@given(st.integers(1, 10**6), st.lists(ROWS, max_size=5), TEXTS)
def test_autonomous__survives_the_wire(atag: int, rows: list[str], text: str) -> None:
    sent = Autonomous(str(atag), "REPT EVT CRS-FIBER", "*C", tuple(rows), text)
    assert only_message(format_autonomous(sent, "ocs 26-01-01 00:00:00")) == sent


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
def test_framer__cutting_the_stream_elsewhere_changes_nothing(parts: list[bytes], data: st.DataObject) -> None:
    stream = b'M 1 COMPLD\r\n"a;b"\r\n;' + b"".join(parts) + b"\r\n;\r\n>"
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    whole = frames(Framer(64, b";>"), stream)
    assert list(map(str, frames(Framer(64, b";>"), stream, cuts))) == list(map(str, whole))


@given(st.binary(max_size=3000))
def test_framer__garbage_is_bounded_and_never_raises(garbage: bytes) -> None:
    framer = Framer(128, b";>")
    for item in framer.feed(garbage):
        if not isinstance(item, Tl1Error):
            parse_message(*item)
            try:
                parse_command(item[0])
            except Tl1Error as error:
                assert str(error)
    assert framer.pending() <= 128


@given(st.text(max_size=300))
def test_parse__any_text_gives_a_value_or_an_error(text: str) -> None:
    for parse in (parse_command, lambda t: parse_list(t, 1, 99)):
        try:
            parse(text)
        except Tl1Error as error:
            assert str(error)
    parse_message(text)
    parse_row(text)


def test_framer__a_long_message_is_named_and_the_next_one_is_whole() -> None:
    long, after = frames(Framer(100), b"X" * 5000 + b";RTRV-HDR:::7;")
    assert isinstance(long, Tl1Error)
    assert "100" in str(long)
    assert after == ("RTRV-HDR:::7", ";")


def test_framer__a_lost_quote_costs_one_line() -> None:
    assert frames(Framer(1000), b'RTRV-X:"lost;\r\nRTRV-HDR:::7;')[0] == ('RTRV-X:"lost;\r\nRTRV-HDR:::7', ";")
    assert [f[0] for f in frames(Framer(1000), b'A:"x;y";B;') if not isinstance(f, Tl1Error)] == ['A:"x;y"', "B"]


def test_framer__telnet_negotiation_is_dropped_even_when_cut() -> None:
    stream = b"\xff\xfb\x01RTRV-\xff\xfd\x03HDR\xff\xf1:::7;"
    for cut in range(len(stream)):
        assert frames(Framer(1000), stream, [cut]) == [("RTRV-HDR:::7", ";")]


def test_parse_message__finds_the_answer_behind_prompt_greeting_and_header() -> None:
    text = 'Welcome!\r\n< \r\n\r\n   ocs 26-01-01 10:00:00\r\nM  4 COMPLD\r\n   "IPORTID=10001,OPORTID=20001"\r\n;'
    assert only_message(text) == Answer("4", "COMPLD", ("IPORTID=10001,OPORTID=20001",))


def test_parse_message__bare_rows_count_as_quoted_ones() -> None:
    answer = only_message("\r\nM 4 COMPLD\r\nIPORTID=10001,CONNSTATE=steady\r\n;")
    assert isinstance(answer, Answer)
    assert parse_row(answer.rows[0]) == {"IPORTID": "10001", "CONNSTATE": "steady"}


def test_parse_message__a_denial_says_why() -> None:
    answer = only_message("\r\nM 4 DENY\r\n   PIUC\r\n   /* user or password is wrong */\r\n;")
    assert isinstance(answer, Answer)
    assert answer.why() == "PIUC user or password is wrong"


def test_parse_message__what_is_no_message_is_none() -> None:
    assert parse_message("hello\r\nworld") is None


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30))
def test_list__survives_the_wire(numbers: list[int]) -> None:
    assert parse_list(format_list(numbers), 1, 500) == numbers


def test_list__ranges_and_refusals() -> None:
    assert parse_list("3&&6&1", 1, 10) == [3, 4, 5, 6, 1]
    for bad in ("", "&", "1&", "1&&", "5&&3", "0", "11", "a", "1&&&2", "1&&1000000000000"):
        with pytest.raises(Tl1Error):
            parse_list(bad, 1, 10)
    with pytest.raises(Tl1Error, match="more than"):
        parse_list("&".join(["1&&900"] * 5), 1, 1000)


def test_command__parameters_by_name_in_any_block() -> None:
    command = parse_command('ENT-CRS-FIBER::10001,20001:5:::opmode=Sync,NAME="a,b"')
    assert command.parameters() == {"OPMODE": "Sync", "NAME": "a,b"}


@pytest.mark.parametrize("bad", ["", ";", "not a verb::", "A:" * 30, "RTRV-HDR:::" + "9" * 21, "ÄCT-USER"])
def test_command__refusals_are_errors(bad: str) -> None:
    with pytest.raises(Tl1Error) as refused:
        parse_command(bad)
    assert len(str(refused.value)) > 10
