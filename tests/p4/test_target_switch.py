"""Replication and queues of the reference target."""

from __future__ import annotations

from rostrum.lab.p4target.switch import Switch

from tests.p4.target_json import Builder, assign, byte_header, call, field, header, number, op, to_port


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


def test_multicast__a_backup_takes_the_place_of_a_port_that_is_down() -> None:
    switch = multicast().switch()
    switch.groups[7] = ((1, 10), (2, 20))
    switch.backups[7] = {(1, 10): ((3, 30), (4, 40))}
    for down, ports in (((), [1, 2]), ((1,), [3, 2]), ((1, 3), [4, 2]), ((1, 3, 4), [1, 2]), ((2,), [1, 2])):
        switch.down = set(down)
        assert [port for port, _ in switch.inject(9, b"\7\0\0\0")] == ports, down
    switch.down = {1}
    assert switch.inject(9, b"\7\0\0\0")[0] == (3, bytes((7, 30, 3, 5)))


def test_drop__wins_over_an_earlier_group() -> None:
    built = byte_header()
    built.statements("ingress", [assign("s.mcast_grp", number(1)), call("mark_to_drop", header("standard_metadata"))])
    switch = built.switch()
    switch.groups[1] = ((1, 0),)
    assert switch.inject(2, bytes(4)) == []


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


def test_another_program__forgets_groups_and_what_waits() -> None:
    switch = prioritized().switch()
    port = BusyPort(switch, 1, 0)
    switch.receive(2, bytes(4))
    switch.receive(2, bytes(4))
    switch.groups[1] = ((1, 0),)
    switch.load(multicast().program())
    assert switch.groups == {}
    port.allow(9)
    assert len(port.frames) == 1  # the one that was on its way out
