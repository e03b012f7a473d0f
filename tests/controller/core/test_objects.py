"""Which agents hold what, and fetches that are served together: in virtual time."""

from __future__ import annotations

from rostrum.controller.core.objects import (
    HELD_MAX,
    SEND_MOST_NS,
    TOGETHER_FROM,
    WAIT_MOST_NS,
    WINDOW_NS,
    Answer,
    Held,
    HeldKey,
    Objects,
    Serve,
    fingerprint,
)

APP, OTHER = b"0123456789abcdef", b"fedcba9876543210"
BIG = Held(64 << 20, "xxh3-128-tree:aa")
KEY = HeldKey(APP, 7)


def network(*holders: str, held: Held = BIG) -> Objects:
    made = Objects()
    for name in ("h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"):
        made.agent_up(name, gives=True, serves=True)
    for name in holders:
        made.came(name, KEY, held)
    return made


def test_one_that_fetches_alone_is_told_the_holders_after_a_moment() -> None:
    objects = network("h1", "h3")
    assert list(objects.fetch("h2", KEY, True, 0)) == []
    assert list(objects.due(WINDOW_NS - 1)) == []
    assert list(objects.due(WINDOW_NS)) == [Answer("h2", KEY, ("h1", "h3"))]
    assert objects.next_due() is None


def test_those_that_fetch_within_a_moment_are_sent_it_at_once_by_one_holder() -> None:
    objects = network("h1", "h3", "h5")
    for at, name in enumerate(("h2", "h4", "h6", "h8")):
        assert list(objects.fetch(name, KEY, True, at)) == []
    said = list(objects.due(objects.next_due() or 0))
    assert said[0] == Serve("h1", KEY, ("h2", "h4", "h6", "h8"))
    assert [one.server for one in said[1:] if isinstance(one, Answer)] == ["h2", "h4", "h6", "h8"]
    assert all(isinstance(one, Answer) and one.sent_within_ms > 0 and len(one.holders) == 3 for one in said[1:])
    # the next time another holder sends
    for name in ("h2", "h4", "h6", "h8"):
        objects.came(name, KEY, BIG)
    other = HeldKey(APP, 8)
    objects.came("h1", other, BIG)
    objects.came("h3", other, BIG)
    for name in ("h2", "h4"):
        assert list(objects.fetch(name, other, True, 10**9)) == []
    assert next(iter(objects.due(10**9 + WINDOW_NS))) == Serve("h3", other, ("h2", "h4"))


def test_those_that_ask_while_it_is_being_sent_wait_for_the_end_of_that_and_go_together() -> None:
    objects = network("h1")
    for name in ("h2", "h3"):
        list(objects.fetch(name, KEY, True, 0))
    assert any(isinstance(one, Serve) for one in objects.due(WINDOW_NS))
    now = 10 * WINDOW_NS
    for name in ("h4", "h5", "h6"):
        assert list(objects.fetch(name, KEY, True, now)) == []
    assert list(objects.due(now + WINDOW_NS)) == []  # the first send goes on
    objects.came("h2", KEY, BIG)
    objects.came("h3", KEY, BIG)
    due = objects.next_due()
    assert due is not None
    assert next(iter(objects.due(due))) == Serve("h2", KEY, ("h4", "h5", "h6"))  # h1 sent the first time


def test_a_send_that_does_not_end_keeps_nobody_waiting_for_ever() -> None:
    objects = network("h1")
    for name in ("h2", "h3"):
        list(objects.fetch(name, KEY, True, 0))
    list(objects.due(WINDOW_NS))
    list(objects.fetch("h4", KEY, True, WINDOW_NS))
    said = [one for at in range(200) for one in objects.due(WINDOW_NS + at * WINDOW_NS)]
    assert said == [Answer("h4", KEY, ("h1",))]
    assert objects.next_due() is not None
    list(objects.due(SEND_MOST_NS + 2 * WAIT_MOST_NS))
    assert objects.next_due() is None and not objects.wanted


def test_one_that_was_not_sent_it_asks_again_and_gets_holders() -> None:
    """The holder lied, or its send was not begun."""
    objects = network("h1", "h3")
    for name in ("h2", "h4"):
        list(objects.fetch(name, KEY, True, 0))
    list(objects.due(WINDOW_NS))
    assert list(objects.fetch("h2", KEY, True, 10**9)) == [Answer("h2", KEY, ("h3", "h1"))]


def test_holders_of_other_bytes_send_it_to_nobody() -> None:
    objects = network("h3", "h5")
    objects.came("h1", KEY, Held(64 << 20, "xxh3-128-tree:bb"))  # it comes first by name
    for name in ("h2", "h4"):
        list(objects.fetch(name, KEY, True, 0))
    assert next(iter(objects.due(WINDOW_NS))) == Serve("h3", KEY, ("h2", "h4"))
    assert objects.known[KEY].digests == ("xxh3-128-tree:aa", "xxh3-128-tree:bb")


def test_small_objects_partial_ones_and_holders_with_a_bound_are_fetched_in_pieces_at_once() -> None:
    objects = network("h1", held=Held(TOGETHER_FROM - 1, "d"))
    assert list(objects.fetch("h2", KEY, True, 0)) == [Answer("h2", KEY, ("h1",))]
    objects = network("h1")
    assert list(objects.fetch("h2", KEY, False, 0)) == [Answer("h2", KEY, ("h1",))]
    objects.agent_up("h1", gives=True, serves=False)
    assert list(objects.fetch("h2", KEY, True, 0)) == [Answer("h2", KEY, ("h1",))]
    objects.agent_up("h1", gives=False, serves=False)
    (answer,) = objects.fetch("h2", KEY, True, 0)
    assert isinstance(answer, Answer) and answer.holders == () and "--piece-port" in answer.reason


def test_nobody_holds_it_is_said_at_once() -> None:
    (answer,) = network().fetch("h2", KEY, True, 0)
    assert isinstance(answer, Answer) and answer.reason == "no agent that is connected holds it"
    (answer,) = network("h2").fetch("h2", KEY, True, 0)
    assert isinstance(answer, Answer) and answer.holders == ()


def test_an_agent_that_leaves_takes_its_objects_and_its_questions_with_it() -> None:
    objects = network("h1", "h3")
    for name in ("h2", "h4"):
        list(objects.fetch(name, KEY, True, 0))
    objects.agent_down("h1")
    objects.agent_down("h4")
    assert list(objects.due(WINDOW_NS)) == [Answer("h2", KEY, ("h3",))]
    objects.agent_down("h3")
    assert not objects.known and not objects.of


def test_an_agent_that_tells_of_too_many_objects_is_bounded_and_harms_no_other() -> None:
    objects = network("h3")
    for number in range(3 * HELD_MAX):
        objects.came("h1", HeldKey(OTHER, number), BIG)
    assert len(objects.of["h1"]) == HELD_MAX and objects.left_out == 2 * HELD_MAX
    objects.forget("h1")
    assert list(objects.known) == [KEY]
    for number in range(100_000):
        objects.named(HeldKey(OTHER, number), "x")
    assert len(objects.names) < 100_000


def test_a_thousand_that_ask_for_everything_make_one_send_an_object_at_a_time() -> None:
    objects = Objects()
    objects.agent_up("h1", gives=True, serves=True)
    keys = [HeldKey(APP, number) for number in range(20)]
    for key in keys:
        objects.came("h1", key, BIG)
    said: list[Answer | Serve] = []
    now = 0
    for number in range(1000):
        name = f"s{number}"
        objects.agent_up(name, gives=True, serves=True)
        for key in keys:
            said += objects.fetch(name, key, True, now)
        now += 10**6  # 1 ms
        said += objects.due(now)
        for key in keys:
            served = objects.wanted[key].served
            assert len([one for one in said if isinstance(one, Serve) and one.key == key]) <= 1
            assert served or len(objects.wanted[key].waiting) <= 1000
    said += objects.due(now + WAIT_MOST_NS)
    asked = {(one.server, one.key) for one in said if isinstance(one, Answer)}
    assert len(asked) == 20_000
    assert sum(isinstance(one, Serve) for one in said) == 40  # two for each object, of some fifty and of all others


def test_names_come_before_their_objects_and_stay_with_them() -> None:
    objects = network()
    objects.named(KEY, "model.bin")
    assert objects.find("model.bin") == []
    objects.came("h1", KEY, BIG)
    objects.named(KEY, "another")
    (found,) = objects.find("model.bin")
    assert found.key.shown == f"{fingerprint(APP)}-7" and objects.find("7") == [found]
    assert list(objects.matching(name="model")) == [found] == list(objects.matching(app=fingerprint(APP), holder="h1"))
    assert not list(objects.matching(holder="h2")) and APP.hex() not in found.key.shown
