"""Transfers that broke off go on: by themselves and by command, with nothing sent twice that was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_e2e.agents import APP, App, RostrumError, World, content, wait_until
from tests.agent_e2e.fake_manager import Call, on_loop, rostrum_thrift
from tests.agent_e2e.network import Network, network
from tests.agent_e2e.test_pieces import MIB, at, pieces_on, start_fetch, to_disk

LIBFAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


def half_of_it(lab: World, disk: Path, data: bytes, *receivers: str) -> App:
    """Each of the receivers, which have disks, has half of the object that h1 is sending, slowly."""
    lab.start("h1", "--nic-rate", "100M")
    for name in receivers:
        lab.start(name, *to_disk(disk, name))
    sender = lab.app("h1")
    sender.add(7, data)
    sender.start_send(7, list(receivers))
    half = len(data) // MIB // 2
    wait_until(lambda: min(pieces_on(disk / name) for name in receivers) >= half, "half of the pieces")
    return sender


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_who_fetches_right_after_the_senders_end_waits_until_that_is_known(lab: World, disk: Path, where: str) -> None:
    """It was refused for as long as the receiver did not know that nothing came any more."""
    data = content(32 * MIB, 31)
    lab.start("h3")
    lab.app("h3").add(7, data)
    lab.start("h1", "--nic-rate", "100M")
    lab.start("h2", *(to_disk(disk, "h2") if where == "disk" else ()))
    sender = lab.app("h1")
    sender.add(7, data)
    sender.start_send(7, ["h2"])
    late = lab.app("h2")
    wait_until(lambda: any(one.bytes >= len(data) // 2 for one in late.status()[1]), "half of it")
    lab.agents["h1"].kill()
    assert late.finish_read(start_fetch(late, 7, at(lab, "h3"))) == data
    line = lab.agents["h2"].wait_log("fetched=")
    kept = int(line.split("kept=")[1].split(" ")[0])
    assert kept >= len(data) // 2 - 2 * MIB if where == "disk" else kept == 0, line


def test_who_fetches_what_comes_in_gets_it_when_it_is_whole(lab: World) -> None:
    lab.start("h1", "--nic-rate", "200M")
    lab.start("h2")
    data = content(16 * MIB, 32)
    sender, receiver = lab.app("h1"), lab.app("h2")
    sender.add(7, data)
    tag = sender.start_send(7, ["h2"])
    wait_until(lambda: any(one.bytes > 0 for one in receiver.status()[1]), "the beginning")
    assert receiver.finish_read(start_fetch(receiver, 7, [])) == data
    assert sender.finish_send(tag)[0].ok


def test_who_fetches_what_comes_in_elsewhere_gets_it_once_it_is_whole_there(lab: World) -> None:
    """Who receives it has no digests of pieces until it has all."""
    lab.start("h1", "--nic-rate", "200M")
    lab.start("h2")
    lab.start("h3")
    data = content(16 * MIB, 34)
    sender, receiver, late = (lab.app(name) for name in ("h1", "h2", "h3"))
    sender.add(7, data)
    tag = sender.start_send(7, ["h2"])
    wait_until(lambda: any(one.bytes > 0 for one in receiver.status()[1]), "the beginning")
    assert late.finish_read(start_fetch(late, 7, at(lab, "h2"))) == data
    assert sender.finish_send(tag)[0].ok


def test_who_fetches_right_after_a_restart_waits_for_the_check_of_what_is_here(lab: World, disk: Path) -> None:
    data = content(48 * MIB, 33)
    lab.start("h3")
    lab.app("h3").add(7, data)
    half_of_it(lab, disk, data, "h2")
    lab.agents["h2"].kill()
    kept = pieces_on(disk / "h2")
    again = lab.start("h2", *to_disk(disk, "h2"))
    late = lab.app("h2")
    assert late.finish_read(start_fetch(late, 7, at(lab, "h3"))) == data  # h1 spares its link while it sends
    assert f"fetched={len(data) - kept * MIB} kept={kept * MIB}" in again.wait_log("fetched=")


def test_a_sender_that_was_restarted_at_once_sends_again_before_anybody_knows_of_its_end(
    lab: World, disk: Path
) -> None:
    data = content(32 * MIB, 34)
    half_of_it(lab, disk, data, "h2", "h3")
    lab.agents["h1"].kill()
    lab.start("h1")
    app = lab.app("h1")
    app.add(7, data)
    result = app.send(7, ["h2", "h3"])
    assert result.ok, result
    assert result.packets_sent < len(data) // 1400 // 20, result
    for name in ("h2", "h3"):
        assert lab.app(name).read(7) == data


def sender_on(lab: World, disk: Path, *options: str) -> App:
    """h1, whose agent writes down what it sends."""
    lab.start("h1", *to_disk(disk, "h1"), *options)
    return lab.app("h1")


def send_half_and_kill(lab: World, disk: Path, data: bytes, receivers: list[str], *, stop: bool = False) -> Path:
    """h1 sends a file, slowly, and ends when h2, which has a disk, has half of it. The file."""
    path = disk / "source"
    path.write_bytes(data)
    sender = sender_on(lab, disk, "--nic-rate", "100M")
    with path.open("rb") as file:
        sender.start_send(7, receivers, fd=file.fileno())
        wait_until(lambda: pieces_on(disk / "h2") >= len(data) // MIB // 2, "half of the pieces")
    if stop:
        lab.agents["h1"].stop()
    else:
        lab.agents["h1"].kill()
    assert len(list((disk / "h1").rglob("*.send"))) == 1
    return path


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_a_sender_that_was_restarted_goes_on_by_itself(lab: World, disk: Path, ends: str) -> None:
    """Whoever has a disk gets what it lacks, whoever has none all of it, and nothing is left to go on with."""
    data = content(32 * MIB, 41)
    lab.start("h2", *to_disk(disk, "h2"))
    lab.start("h3")
    send_half_and_kill(lab, disk, data, ["h2", "h3"], stop=ends == "stopped")
    kept = pieces_on(disk / "h2")
    again = lab.start("h1", *to_disk(disk, "h1"))
    for name in ("h2", "h3"):
        assert lab.app(name).read(7, 60_000) == data
    again.wait_log("goes on after a restart: receivers=2")
    again.wait_log("phase=done")
    line = lab.agents["h2"].wait_log("fetched=")
    assert kept >= 16 and f"fetched={len(data) - kept * MIB} kept={kept * MIB}" in line
    wait_until(lambda: not list((disk / "h1").rglob("*")), "the end of what is written down")
    assert lab.app("h1").read(7) == data  # it is there as before
    again.kill()
    assert not [line for line in lab.start("h1", *to_disk(disk, "h1")).log if "after a restart" in line]


def test_a_sender_of_an_object_on_its_disk_goes_on_by_itself(lab: World, disk: Path) -> None:
    data = content(32 * MIB, 42)
    lab.start("h4")
    lab.app("h4").add(7, data)
    lab.start("h2", *to_disk(disk, "h2"))
    sender = sender_on(lab, disk, "--nic-rate", "100M")
    assert sender.finish_read(start_fetch(sender, 7, at(lab, "h4"))) == data
    lab.app("h4").delete(7)
    sender.start_send(7, ["h2"])
    wait_until(lambda: pieces_on(disk / "h2") >= 16, "half of the pieces")
    lab.agents["h1"].kill()
    again = lab.start("h1", *to_disk(disk, "h1"))
    assert lab.app("h2").read(7, 60_000) == data
    wait_until(lambda: not list((disk / "h1").rglob("*.send")), "the end of what is written down")
    assert again.wait_log("phase=done")


@pytest.mark.parametrize("what", ["changed", "gone", "memory"])
def test_a_send_that_cannot_go_on_says_why_here_and_to_who_waits(lab: World, disk: Path, what: str) -> None:
    data = content(32 * MIB, 43)
    lab.start("h2", *to_disk(disk, "h2"))
    if what == "memory":
        sender = sender_on(lab, disk, "--nic-rate", "100M")
        sender.add(7, data)
        sender.start_send(7, ["h2"])
        wait_until(lambda: pieces_on(disk / "h2") >= 16, "half of the pieces")
        lab.agents["h1"].kill()
    else:
        path = send_half_and_kill(lab, disk, data, ["h2"])
        path.unlink() if what == "gone" else path.write_bytes(data[:-1] + b"x")
    words = {
        "changed": "its file was changed since",
        "gone": "its file cannot be opened: No such file or directory",
        "memory": "its bytes were in the memory of the agent alone",
    }[what]
    again = lab.start("h1", *to_disk(disk, "h1"))
    assert words in again.wait_log("does not go on after the restart")
    late = lab.app("h2")
    with pytest.raises(RostrumError, match=f"h1: the agent was restarted, and {words}"):
        late.next(start_fetch(late, 7, at(lab, "h1")))
    sender = lab.app("h1")
    assert not list((disk / "h1").rglob("*.send"))
    sender.add(7, data)  # it can be sent again
    assert sender.send(7, ["h2"]).ok and late.read(7) == data


def test_a_program_that_sends_the_same_again_is_told_of_the_send_that_goes_on(lab: World, disk: Path) -> None:
    data = content(32 * MIB, 44)
    lab.start("h2", *to_disk(disk, "h2"))
    lab.start("h3")
    path = send_half_and_kill(lab, disk, data, ["h2", "h3"])
    again = lab.start("h1", *to_disk(disk, "h1"), "--nic-rate", "100M")
    again.wait_log("goes on after a restart")
    app = lab.app("h1")
    with path.open("rb") as file:
        tag = app.start_send(7, ["h3", "h2"], fd=file.fileno(), events=True)
        with pytest.raises(RostrumError, match="it is being sent from here already"):
            app.send(7, ["h2"])
    result, events = app.finish_send(tag)
    assert result.ok and {one.name for one in result.receivers} == {"h2", "h3"} and events, result


def test_another_file_by_that_number_takes_the_place_of_what_would_go_on(lab: World, disk: Path) -> None:
    data, other = content(32 * MIB, 45), content(3 * MIB, 46)
    lab.start("h2", *to_disk(disk, "h2"))
    lab.start("h3")
    send_half_and_kill(lab, disk, data, ["h2"])
    lab.agents["h2"].kill()
    again = lab.start("h1", *to_disk(disk, "h1"))
    again.wait_log("goes on in 1 s")  # its receiver was not reached
    app = lab.app("h1")
    app.add(7, other)
    assert app.send(7, ["h3"]).ok and lab.app("h3").read(7) == other
    assert not list((disk / "h1").rglob("*.send"))


def test_sender_and_receiver_that_were_both_restarted_go_on_when_both_are_back(lab: World, disk: Path) -> None:
    data = content(32 * MIB, 47)
    lab.start("h2", *to_disk(disk, "h2"))
    lab.start("h3")
    send_half_and_kill(lab, disk, data, ["h2", "h3"])
    lab.agents["h2"].kill()
    lab.agents["h3"].kill()
    again = lab.start("h1", *to_disk(disk, "h1"))
    again.wait_log("goes on in 1 s")
    lab.start("h2", *to_disk(disk, "h2"))
    lab.start("h3")
    for name in ("h2", "h3"):
        assert lab.app(name).read(7, 60_000) == data
    wait_until(lambda: not list((disk / "h1").rglob("*.send")), "the end of it")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Agents started from then on have another wall clock."""
    if not LIBFAKETIME.exists():
        pytest.skip("libfaketime is not installed")

    def set_clock(by: str) -> None:
        for name, value in {"FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LD_PRELOAD", str(LIBFAKETIME))
        monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=0")

    return set_clock


def test_who_reads_what_is_damaged_on_disk_gets_it_whole_or_learns_why_not(lab: World, disk: Path) -> None:
    """It heard that the object was being received, while nobody gave what was missing."""
    data = content(8 * MIB, 50)
    lab.start("h1")
    lab.start("h2", *to_disk(disk, "h2"))
    sender = lab.app("h1")
    sender.add(7, data)
    assert sender.send(7, ["h2"]).ok
    sender.delete(7)
    lab.agents["h2"].kill()
    (path,) = [one for one in (disk / "h2").rglob("7") if one.is_file()]
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(3 * MIB + 5)
        file.write(bytes(4) if data[3 * MIB + 5 : 3 * MIB + 9] != bytes(4) else b"1234")
    again = lab.start("h2", *to_disk(disk, "h2"))
    again.wait_log("has 7 of 8 pieces on disk")
    reader = lab.app("h2")
    with pytest.raises(RostrumError, match="a part is here: nobody gives it: h1: it is not here"):
        reader.read(7, 4000)
    sender.add(7, data)
    assert reader.read(7, 60_000) == data
    assert f"fetched={MIB} kept={7 * MIB}" in again.wait_log("done bytes=")


@pytest.mark.parametrize("hours", [5, 25])
def test_a_transfer_goes_on_after_hours_in_which_nobody_ran(
    lab: World, disk: Path, later: Callable[[str], None], hours: int
) -> None:
    """Nothing is sent twice that was kept. After a day the sender gives up: it says so."""
    data = content(32 * MIB, 49)
    lab.start("h2", *to_disk(disk, "h2"))
    send_half_and_kill(lab, disk, data, ["h2"])
    lab.agents["h2"].kill()
    kept = pieces_on(disk / "h2")
    later(f"+{hours}h")
    again = lab.start("h1", *to_disk(disk, "h1"))
    receiver = lab.start("h2", *to_disk(disk, "h2"))
    if hours > 24:
        again.wait_log("for a day it could not go on")
        lab.app("h1").add(7, data)  # the receiver goes on by itself with what is there
    assert lab.app("h2").read(7, 60_000) == data
    line = receiver.wait_log("fetched=")
    assert kept >= 16 and f"fetched={len(data) - kept * MIB} kept={kept * MIB}" in line


def test_a_receiver_whose_sender_is_gone_for_good_goes_on_from_whom_the_manager_names(lab: World, disk: Path) -> None:
    """It asked its sender alone, for a day."""
    data = content(32 * MIB, 51)
    half_of_it(lab, disk, data, "h2")
    lab.agents["h1"].kill()
    lab.agents["h2"].wait_log(" failed cause=")
    lab.start("h3")
    lab.app("h3").add(7, data)
    kept = pieces_on(disk / "h2")

    def names_h3(call: Call) -> None:
        if call.name == "fetch":
            lab.manager.say(
                call.server,
                "holders",
                answer=rostrum_thrift.FetchAnswer(
                    app_id=APP.bytes,
                    data_id=7,
                    holders=[rostrum_thrift.Holder(server="h3", address=lab.net.hosts["h3"].address, piece_port=7072)],
                    sent_within_ms=0,
                    reason="",
                ),
            )

    lab.manager.on_call = names_h3
    on_loop(lab.manager, lambda: lab.manager.say("h2", "tell_objects"))
    assert lab.app("h2").read(7, 60_000) == data
    assert f"fetched={len(data) - kept * MIB} kept={kept * MIB}" in lab.agents["h2"].wait_log("done bytes=")
    assert not lab.manager.heard("garbage")


def test_a_cancelled_send_does_not_go_on(lab: World, disk: Path) -> None:
    data = content(32 * MIB, 48)
    lab.start("h2", *to_disk(disk, "h2"))
    send_half_and_kill(lab, disk, data, ["h2"])
    lab.agents["h2"].kill()
    again = lab.start("h1", *to_disk(disk, "h1"))
    again.wait_log("goes on in 1 s")
    app = lab.app("h1")
    app.cancel(7)
    wait_until(lambda: not list((disk / "h1").rglob("*.send")), "the end of it")
    with pytest.raises(RostrumError, match="is not being sent from here"):
        app.cancel(7)
