"""Replication, clones, resubmission, recirculation and queues of the reference target."""

from __future__ import annotations

from rostrum.lab.p4target.switch import AGAIN_MAX, PASSES_MAX, Switch

from tests.p4.target_json import Builder, Node, assign, byte_header, call, field, header, number, op, to_port

INSTANCES = {"normal": 0, "ingress clone": 1, "egress clone": 2, "recirculated": 4, "replicated": 5, "resubmitted": 6}


def multicast() -> Builder:
    """Group h.a; copies tell egress_rid in h.b and the egress port in h.c."""
    built = byte_header().statements("ingress", [assign("s.mcast_grp", field("h.a")), to_port(5)])
    marks = [assign("h.b", field("s.egress_rid")), assign("h.c", field("s.egress_port"))]
    return built.statements("egress", [*marks, assign("h.d", field("s.instance_type"))])


def test_multicast__makes_a_copy_for_each_replica() -> None:
    switch = multicast().switch()
    switch.groups[7] = ((1, 10), (2, 20), (1, 30))
    assert switch.inject(1, b"\7\0\0\0x") == [
        (1, bytes((7, 10, 1, 5)) + b"x"),
        (2, bytes((7, 20, 2, 5)) + b"x"),
        (1, bytes((7, 30, 1, 5)) + b"x"),
    ]
    assert switch.inject(1, b"\x08\0\0\0") == []
    assert switch.drops == {"no group": 1}
    assert switch.inject(1, b"\0\0\0\0") == [(5, b"\0\0\5\0")]


def test_multicast__the_program_prunes_in_egress() -> None:
    built = byte_header().statements("ingress", [assign("s.mcast_grp", number(1))])
    same = op("==", field("s.egress_port"), field("s.ingress_port"))
    built.conditional("egress", "same", same, "drop", None)
    built.statements("egress", [call("mark_to_drop", header("standard_metadata"))], "drop")
    switch = built.switch()
    switch.groups[1] = ((1, 0), (2, 0), (3, 0))
    assert [port for port, _ in switch.inject(2, bytes(4))] == [1, 3]


def test_drop__wins_over_an_earlier_group() -> None:
    built = byte_header()
    built.statements("ingress", [assign("s.mcast_grp", number(1)), call("mark_to_drop", header("standard_metadata"))])
    switch = built.switch()
    switch.groups[1] = ((1, 0),)
    assert switch.inject(2, bytes(4)) == []


def keep(*fields: str) -> dict[str, object]:
    return {"name": "kept", "elements": [field(name) for name in fields]}


def test_clone_of_ingress__is_the_frame_as_it_came_with_the_fields_kept() -> None:
    built = byte_header().metadata(("x", 8), ("y", 8)).add("field_lists", **keep("m.x"))
    statements = [assign("h.a", number(9)), assign("m.x", number(3)), assign("m.y", number(4)), to_port(1)]
    built.statements("ingress", [*statements, call("clone_ingress_pkt_to_egress", number(5), number(1))])
    marks = [assign("h.b", field("m.x")), assign("h.c", field("m.y")), assign("h.d", field("s.instance_type"))]
    switch = built.statements("egress", marks).switch()
    switch.sessions[5] = ((2, 0),)
    assert switch.inject(7, b"\1\0\0\0z") == [(2, b"\1\3\0\1z"), (1, b"\x09\3\4\0z")]
    switch.sessions.clear()
    assert switch.inject(7, b"\1\0\0\0z") == [(1, b"\x09\3\4\0z")]


def test_clone_of_egress__has_the_changed_headers() -> None:
    built = byte_header().metadata(("x", 8)).add("field_lists", **keep("m.x"))
    built.statements("ingress", [assign("m.x", number(3)), to_port(1)])
    first = op("==", field("s.instance_type"), number(0))
    built.conditional("egress", "first", first, "clone", "mark")
    cloned = [assign("h.a", number(8)), call("clone_egress_pkt_to_egress", number(5), number(1))]
    built.statements("egress", cloned, "clone", "mark")
    built.statements("egress", [assign("h.b", field("m.x")), assign("h.d", field("s.instance_type"))], "mark")
    switch = built.switch()
    switch.sessions[5] = ((2, 0),)
    assert switch.inject(7, b"\1\0\0\0z") == [(2, b"\x08\3\0\2z"), (1, b"\x08\3\0\0z")]


def looping(primitive: str, control: str, condition: Node) -> Builder:
    built = byte_header().metadata(("x", 8)).add("field_lists", **keep("m.x"))
    if control == "egress":
        built.statements("ingress", [to_port(1)])
    built.conditional(control, "again", condition, "yes", "no")
    built.statements(control, [assign("m.x", op("+", field("m.x"), number(1))), call(primitive, number(1))], "yes")
    no = [assign("h.b", field("m.x")), assign("h.d", field("s.instance_type"))]
    return built.statements(control, [*no, *([to_port(1)] if control == "ingress" else [])], "no")


def test_resubmit__starts_again_with_the_frame_as_it_came() -> None:
    switch = looping("resubmit", "ingress", op("<", field("m.x"), number(3))).switch()
    assert switch.inject(6, b"\1\0\0\0z") == [(1, b"\1\3\0\6z")]


def test_recirculate__starts_again_with_what_was_deparsed() -> None:
    built = looping("recirculate", "egress", op("<", field("m.x"), number(2)))
    built.root["actions"][1]["primitives"].insert(0, assign("h.a", op("+", field("h.a"), number(1))))
    assert built.switch().inject(6, b"\1\0\0\0z") == [(1, b"\3\2\0\0z")]


def test_loops_without_end__are_cut_off() -> None:
    always = op("==", number(0), number(0))
    for primitive, control in (("resubmit", "ingress"), ("recirculate", "egress")):
        switch = looping(primitive, control, always).switch()
        assert switch.inject(6, bytes(4)) == []
        assert switch.drops["loop"] == 1
    built = byte_header().statements("ingress", [to_port(1)])
    switch = built.statements("egress", [call("clone_egress_pkt_to_egress", number(1), number(0))]).switch()
    switch.sessions[1] = ((2, 0),)
    assert len(switch.inject(1, bytes(4))) == PASSES_MAX + 1
    assert AGAIN_MAX >= PASSES_MAX


class BusyPort:
    """Takes so many frames, then none until it is allowed more."""

    def __init__(self, switch: Switch, number: int, allowed: int) -> None:
        self.allowed, self.frames = allowed, []
        self.port = switch.add_port(number, self.send)
        self.switch = switch

    def send(self, frame: bytes) -> bool:
        if not self.allowed:
            return False
        self.allowed -= 1
        self.frames.append(frame)
        return True

    def allow(self, count: int) -> None:
        self.allowed += count
        self.switch.resume(self.port)


def prioritized() -> Builder:
    """Priority h.a, to port 1."""
    return byte_header().statements("ingress", [assign("s.priority", field("h.a")), to_port(1)])


def test_queues__the_highest_priority_leaves_first_and_none_overtakes_within_it() -> None:
    switch = prioritized().switch(queue_depth=3)
    port = BusyPort(switch, 1, 1)
    for frame in ((0, 0), (0, 1), (0, 2), (5, 1), (7, 1), (5, 2), (0, 3), (0, 4), (0, 5)):
        switch.receive(2, bytes((*frame, 0, 0)))
    assert port.frames == [bytes(4)]
    assert switch.drops == {"queue": 1}  # one was being sent, three waited at priority 0
    port.allow(4)
    assert [tuple(frame[:2]) for frame in port.frames[1:]] == [(0, 1), (7, 1), (5, 1), (5, 2)]
    port.allow(9)
    assert [tuple(frame[:2]) for frame in port.frames[5:]] == [(0, 2), (0, 3), (0, 4)]
    switch.receive(2, bytes((0, 9, 0, 0)))
    assert port.frames[-1] == bytes((0, 9, 0, 0))


def test_queues__a_priority_without_a_queue_is_dropped() -> None:
    switch = prioritized().switch(queues=2)
    assert len(switch.inject(2, bytes((1, 0, 0, 0)))) == 1
    assert switch.inject(2, bytes((2, 0, 0, 0))) == []
    assert switch.drops == {"priority": 1}


def test_queues__tell_egress_how_long_they_were() -> None:
    built = prioritized()
    built.statements("egress", [assign("h.b", field("s.enq_qdepth")), assign("h.c", field("s.deq_qdepth"))])
    switch = built.switch()
    port = BusyPort(switch, 1, 1)
    for _ in range(4):
        switch.receive(2, bytes(4))
    port.allow(9)
    assert [tuple(frame[1:3]) for frame in port.frames] == [(0, 0), (0, 0), (0, 1), (1, 0)]


def test_no_program_no_port__are_counted() -> None:
    assert Switch().inject(1, bytes(60)) == []
    switch = prioritized().switch()
    switch.receive(1, bytes(4))
    assert switch.drops == {"no port": 1}


def test_another_program__forgets_groups_sessions_and_what_waits() -> None:
    switch = prioritized().switch()
    port = BusyPort(switch, 1, 0)
    switch.receive(2, bytes(4))
    switch.receive(2, bytes(4))
    switch.groups[1], switch.sessions[1] = ((1, 0),), ((1, 0),)
    switch.load(multicast().program())
    assert (switch.groups, switch.sessions) == ({}, {})
    port.allow(9)
    assert len(port.frames) == 1  # the one that was on its way out
