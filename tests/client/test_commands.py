"""`rostrum send`, `read`, `delete`, `status` as people and scripts call them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rostrum.client import (
    Event,
    Receiver,
    SendResult,
    Unavailable,
    cli,
    commands,
    connection,
    group_commands,
    names,
    report,
    stream_commands,
)
from rostrum.client.cli import main
from rostrum.client.groups import Message
from rostrum.client.values import GroupStatus

from tests.client.conftest import BUILD, Server

Run = Callable[..., Result]


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command with $ROSTRUM_SOCKET set; fails on a traceback."""
    monkeypatch.setenv("ROSTRUM_SOCKET", str(server.socket))

    def run_it(*arguments: str | Path, **options: object) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in arguments], **options)  # type: ignore[arg-type]
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run_it


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.bin"
    path.write_bytes(bytes(range(256)) * 400)
    return path


def test_send_shows_what_happened_and_leaves_no_copy(run: Run, file: Path) -> None:
    result = run("send", file, "--to", "h3,h4", "--to", "h5")
    assert result.exit_code == 0
    for text in ("accepted", "h3", "h4", "h5", "digest right", "every receiver has it"):
        assert text in result.output
    assert json.loads(run("status", "--json").output)["objects"] == []


def test_send_does_not_touch_an_object_that_is_there(run: Run, file: Path) -> None:
    assert run("send", file, "--to", "h3", "--keep").exit_code == 0
    again = run("send", file, "--to", "h3")
    assert again.exit_code == 1 and "exists already" in again.output
    assert len(json.loads(run("status", "--json").output)["objects"]) == 1
    assert run("send", file, "--to", "refuse", "--data-id", "8").exit_code == 1
    assert len(json.loads(run("status", "--json").output)["objects"]) == 1


def test_send_json_is_for_machines(run: Run, file: Path) -> None:
    result = run("send", file, "--to", "h3", "--data-id", "7", "--json")
    value = json.loads(result.stdout)
    assert value["ok"] is True and value["data_id"] == 7 and value["size"] == file.stat().st_size
    assert value["total_ms"] > 0 and value["goodput_bps"] > 0
    assert value["timeline_ms"]["requested"] == 0 and value["timeline_ms"]["accepted"] > 0
    assert value["timeline_ms"]["released"] is None
    [row] = value["receivers"]
    assert row["name"] == "h3" and row["digest_ok"] and row["complete_ms"] > 0 and row["patched_fragments"] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_send_that_is_told_to_end_leaves_no_copy(server: Server, run: Run, file: Path, number: signal.Signals) -> None:
    # Whoever runs the tests may ignore a signal (nohup, a shell's background), and programs inherit that.
    handler = "signal.default_int_handler" if number == signal.SIGINT else "signal.SIG_DFL"
    start = f"import signal; signal.signal({int(number)}, {handler}); from rostrum.client.cli import main; main()"
    command = [sys.executable, "-c", start, "send", str(file), "--to", "slow1"]
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr
        for line in program.stderr:  # it is being sent
            if "accepted" in line:
                break
        program.send_signal(number)
        assert program.wait(60) == 1
    now = json.loads(run("status", "--json").output)
    assert now["objects"] == [] and now["transfers"] == []


def test_send_fails_if_a_receiver_does(run: Run, file: Path) -> None:
    result = run("send", file, "--to", "h3,bad1")
    assert result.exit_code == 1
    assert "no light at tor3" in result.output
    result = run("send", file, "--to", "h3,bad1", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["ok"] is False
    result = run("send", file, "--to", "refuse")
    assert result.exit_code == 1 and "Error: the manager cannot be reached" in result.output
    assert json.loads(run("status", "--json").output)["objects"] == []


@pytest.mark.parametrize(
    "fields",
    [
        ["read", "model.bin", "-o", "-", "--wait", "10ms"],
        ["delete", "model.bin"],
        ["send", __file__, "--data-id", "model.bin", "--to", "h3", "--keep"],
    ],
)
def test_errors_call_an_object_as_it_was_typed(run: Run, fields: list[str]) -> None:
    result = run(*fields)
    if fields[0] == "send":
        result = run(*fields)  # it is there already
    assert result.exit_code == 1
    assert "model.bin" in result.output and str(names.data_id_of("model.bin")) not in result.output


@pytest.mark.parametrize("name", [b"n" * 255, b"a [red] b"])
def test_names_of_files_may_be_any(run: Run, tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(b"x")
    sent = run("send", path, "--to", "h3", "--keep")
    assert sent.exit_code == 0 and name[:20] in sent.stdout_bytes
    path.unlink()
    assert run("read", path.name, "-o", path).exit_code == 0 and path.read_bytes() == b"x"


def test_names_that_look_like_markup_are_shown_as_they_are(
    server: Server, run: Run, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever sends an object here gives its name."""
    sent = run("send", file, "--to", "h3", "--keep", "--data-id", "[/b][red]")
    assert sent.exit_code == 0 and "[/b][red]" in sent.output
    with server.agent(names.COMMAND_APP_ID) as agent:
        now = agent.status()
    named = dataclasses.replace(now, objects=[dataclasses.replace(one, name="[/b][red]") for one in now.objects])
    report.print_status(named)
    assert "[/b][red]" in capsys.readouterr().out


def test_read__into_what_the_shell_has_opened_replaces_no_link(server: Server, run: Run, tmp_path: Path) -> None:
    assert run("send", "-", "--to", "h3", "--keep", "--data-id", "some", input=b"some bytes").exit_code == 0
    command = [sys.executable, "-m", "rostrum.client.cli", "read", "some", "-o", "/proc/self/fd/1"]  # as /dev/stdout is
    with (tmp_path / "out").open("wb") as file:
        subprocess.run(command, env={**os.environ, "ROSTRUM_SOCKET": str(server.socket)}, stdout=file, check=True)
    assert (tmp_path / "out").read_bytes() == b"some bytes"
    link = tmp_path / "link"
    with (tmp_path / "other").open("wb") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        assert run("read", "some", "-o", link).exit_code == 0
    assert (tmp_path / "other").read_bytes() == b"some bytes" and link.is_symlink()


def test_stream_that_is_over_ends_the_command_that_waits_for_more_to_send(server: Server) -> None:
    command = [sys.executable, "-m", "rostrum.client.cli", "stream", "send", "log", "--to", "refuse"]
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stderr=pipe, text=True) as program:
        assert program.wait(60) == 1  # its input is open
        assert program.stderr and "grants no path" in program.stderr.read()


def test_cancel__stops_what_another_command_sends(server: Server, run: Run) -> None:
    with server.agent(names.COMMAND_APP_ID) as agent:
        sending = agent.send("model.bin", "slow", source=b"x")
        assert run("cancel", "model.bin").output == "model.bin cancelled\n"
        assert not sending.wait(60).ok
    result = run("cancel", "model.bin")
    assert result.exit_code == 1 and "model.bin" in result.output


def test_leave__of_what_does_not_come_in_says_so(run: Run) -> None:
    result = run("leave", "model.bin")
    assert result.exit_code == 1 and "nothing comes in here" in result.output


def test_file_that_cannot_be_opened__is_no_wrong_command_line(run: Run, tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as there:
        there.bind(str(tmp_path / "file"))
        result = run("send", tmp_path / "file", "--to", "h3")
    assert result.exit_code == 1 and "No such device" in result.output and "Usage" not in result.output
    assert run("send", tmp_path / "none", "--to", "h3").exit_code == 2


def test_status__fits_80_columns(server: Server, run: Run) -> None:
    with server.agent(names.COMMAND_APP_ID) as agent:
        agent.add("a-name-of-some-length", b"x" * 1000)
        sending = agent.send("another", "slow", source=b"x")
        with agent.subscribe("another"):
            shown = Console(width=80, record=True)
            report.print_status(agent.status(), shown)
        sending.cancel()
        sending.wait(60)
    tables = [line for line in shown.export_text().splitlines() if line.startswith(("│", "┃"))]
    assert len(tables) <= 6 and "application" not in "".join(tables)  # titles and rows: at most one wraps


def test_status__tells_a_groups_whole_address_in_80_columns(server: Server) -> None:
    group = GroupStatus("ticks", "ricochet", "none", "239.192.218.117", 1, 3, True, 12, 1, 1, 7, 1234567, 0, 0, 3, 4)
    with server.agent(names.COMMAND_APP_ID) as agent:
        shown = Console(width=80, record=True)
        report.print_status(dataclasses.replace(agent.status(), groups=[group]), shown)
    text = shown.export_text()
    rows = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    cells = ["".join(parts) for parts in zip(*rows, strict=True)]
    assert "239.192.218.117" in [one.replace(" ", "") for one in cells] and "…" not in text, text


def event(kind: str, subject: str, state: str = "", text: str = "") -> Event:
    return Event(kind, 1, 0, True, subject, state, 1, 0, 0, 0, 0, 2, 0, 0, text)


def test_a_refusal_that_concerns_all_receivers_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "h9 is no server of this fabric"
    events = [event("phase", "requested"), *(event("receiver", name, "failed", why) for name in ("h3", "h9"))]
    report.follow([*events, event("phase", "done", text=why)], Console(width=200))
    assert capsys.readouterr().out == f"requested\nh3 failed: {why}\nh9 failed\ndone\n"


def test_a_stream_that_waits_says_for_what(capsys: pytest.CaptureFixture[str]) -> None:
    """As while the manager is away; what is no news to whoever writes the stream is not said."""
    events = [
        event("phase", "queued", text="waiting for the manager"),
        event("phase", "high-rate"),
        event("receiver", "h3", state="done"),
        event("receiver", "h4", state="failed", text="the cable was pulled"),
    ]
    stream_commands.say(events)
    assert capsys.readouterr().err == "queued: waiting for the manager\nh4 failed: the cable was pulled\n"


def test_what_one_command_sends_another_reads(run: Run, file: Path, tmp_path: Path) -> None:
    """By the file's name, without saying an application id."""
    run("send", file, "--to", "h3", "--keep")
    copy = tmp_path / "copy"
    result = run("read", "table.bin", "-o", copy)
    assert result.exit_code == 0 and "xxh3-128-tree:" in result.output
    assert copy.read_bytes() == file.read_bytes()
    result = run("send", file, "--to", "h3", "--keep")
    assert result.exit_code == 1 and "exists already" in result.output
    assert run("send", file, "--to", "h3", "--keep", "--replace").exit_code == 0
    facts = json.loads(run("read", "table.bin", "-o", copy, "--delete", "--json").stdout)
    assert facts["size"] == file.stat().st_size and facts["server"] == "h1"
    result = run("read", "table.bin", "-o", copy, "--wait", "10ms")
    assert result.exit_code == 1 and "nobody has sent it here" in result.output


def test_standard_input_and_output(run: Run) -> None:
    data = bytes(range(256)) * 9
    result = run("send", "-", "--to", "h3", "--keep", "--data-id", "stream", input=data)
    assert result.exit_code == 0, result.output
    assert run("read", "stream", "-o", "-").stdout_bytes == data
    result = run("send", "-", "--to", "h3", input=data)
    assert result.exit_code == 2 and "--data-id" in result.output


def test_examples_in_c__know_objects_by_name(server: Server, run: Run, file: Path) -> None:
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket)}

    def example(name: str, *fields: object) -> bytes:
        command = [str(BUILD / "agent" / "client" / f"rostrum-example-{name}"), str(names.COMMAND_APP_ID)]
        return subprocess.run([*command, *map(str, fields)], env=environment, timeout=60, check=True,
                              capture_output=True).stdout  # fmt: skip

    assert b"h3: digest right" in example("send", "table", file, "h3")
    assert example("receive", "table", 5) == file.read_bytes() == run("read", "table", "-o", "-").stdout_bytes


def test_delete(run: Run, file: Path) -> None:
    run("send", file, "--to", "h3", "--keep", "--data-id", "7")
    result = run("delete", "7", "8")
    assert result.exit_code == 1
    assert "7 deleted" in result.output and "8: there is no object 8" in result.output
    value = json.loads(run("delete", "7", "--json").stdout)
    assert value["ok"] is False and list(value["failed"]) == ["7"]


def test_status_for_people(run: Run, file: Path) -> None:
    run("send", file, "--to", "h3", "--keep", "--data-id", "7")
    output = run("status").output
    for text in ("agent of h1", "manager: 10.255.0.1:9090, up", "added here", "100 KiB"):
        assert text in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["send", "/nowhere/file", "--to", "h3"], "No such file"),
        (["send", "FILE", "--to", ","], "names no server"),
        (["send", "FILE"], "--to"),
        (["send", "FILE", "--to", "h3", "--data-id", "99999999999999999999"], "not a data id"),
        (["send", "FILE", "--to", "h3", "--app", "zebra"], "not an application id"),
        (["send", "FILE", "--to", "h3", "--data-id", "\udcff"], "is no UTF-8"),
        (["send", "/dev/zero", "--to", "h3"], "a device without an end"),
        (["send", "FILE", "--to", "h3,h3"], "named twice"),
        (["status", "--socket", "/nowhere/agent.sock"], "no agent answers at /nowhere/agent.sock"),
        (["status", "--socket", "x", "--server", "h1"], "leave out"),
        (["read", "1", "-o", "/nowhere/copy", "--wait", "-1"], "--wait"),
        (["read", "1", "-o", "/nowhere/copy", "--wait", "soon"], "write a number and us, ms, s, min or h"),
        (["send", "FILE", "--to", "h3", "--deadline", "0"], "less than 0.001 s"),
        (["no-such-command"], "No such command"),
    ],
)
def test_mistakes__are_text_not_tracebacks(run: Run, file: Path, arguments: list[str], text: str) -> None:
    result = run(*[str(file) if word == "FILE" else word for word in arguments])
    assert result.exit_code != 0
    assert text in result.output


@pytest.mark.parametrize("fields", [["pki", "init", "FILE/ca"], ["status", "--json"], ["topology", "list"]])
def test_what_the_system_refuses__is_a_line_of_text(server: Server, file: Path, fields: list[str]) -> None:
    command = [sys.executable, "-m", "rostrum.client.cli", *[word.replace("FILE", str(file)) for word in fields]]
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket)}
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: ") and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_output_that_nobody_reads_on__ends_the_command_without_a_word(server: Server) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket)}
    ended = subprocess.run([sys.executable, "-m", "rostrum.client.cli", "status", "--json"], env=environment,
                           stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    os.close(writer)
    assert ended.returncode == 1 and ended.stderr == ""


@pytest.mark.parametrize("how", [">&-", ">&- 2>&-", "| cat"])
def test_closed_output_and_old_encodings__are_no_error(run: Run, server: Server, file: Path, how: str) -> None:
    """A traceback each."""
    assert run("send", str(file), "--to", "h3", "--keep", "--data-id", "İstanbul").exit_code == 0
    environment = {**os.environ, "ROSTRUM_SOCKET": str(server.socket), "PYTHONIOENCODING": "iso-8859-1"}
    command = f"set -o pipefail; {sys.executable} -m rostrum.client.cli status {how}"
    ended = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, timeout=60)
    assert ended.returncode == 0 and ended.stderr == b"", ended
    assert how != "| cat" or b"\\u0130stanbul" in ended.stdout


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8:surrogateescape", "İ".encode() + b" \xff"),
        ("ascii:surrogateescape", b"\\u0130 \xff"),
        ("utf-8", "İ \\udcff".encode()),
    ],
)
def test_names_of_other_bytes__are_written_as_they_are_where_python_does(encoding: str, said: bytes) -> None:
    """In the locale C, for xargs and the like; they were escaped."""
    code = "from rostrum.client import cli; cli._take_outputs(); print('\\u0130 \\udcff')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60)
    assert (ended.stdout, ended.stderr) == (said + b"\n", b"")


def test_what_has_no_length_before_it_is_read__is_sent_whole(run: Run, tmp_path: Path) -> None:
    text = Path("/proc/filesystems").read_bytes()
    assert os.stat("/proc/filesystems").st_size == 0
    assert run("send", "/proc/filesystems", "--to", "h3", "--keep", "--data-id", "7").exit_code == 0
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", str(pipe), str(copy)]) as reader:
        assert run("read", "7", "-o", pipe).exit_code == 0
        assert reader.wait(60) == 0
    assert copy.read_bytes() == text
    assert run("read", "7", "-o", "/dev/null").exit_code == 0
    assert "No space left" in run("read", "7", "-o", "/dev/full").output
    result = run("read", "7", "-o", tmp_path / "none" / "copy")
    assert result.exit_code == 1 and f"'{tmp_path}/none/copy'" in result.output
    assert run("send", "/dev/null", "--to", "h3", "--data-id", "8").exit_code == 0


def test_agents_text__calls_objects_by_name_behind_an_application_too() -> None:
    known = names.ObjectNames()
    number, app = known.number("model.bin"), str(names.COMMAND_APP_ID)
    for prefix in ("", f"{app[:8]}/", f"{app}/"):
        assert known.text(f"object {prefix}{number} is not coming in here") == "object model.bin is not coming in here"
    assert known.text(f"/srv/{app}/{number}") == f"/srv/{app}/{number}"


def test_help_teaches(run: Run) -> None:
    assert "rostrum lab up" in run("--help").output
    for command in ("send", "read", "delete", "status"):
        output = run(command, "--help").output
        assert f"rostrum {command}" in output and "--json" in output


def test_a_module_that_is_not_there_is_not_offered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "bench", cli.Subcommand("rostrum.no_such.commands", "bench", "Measure."))
    assert "bench" not in run("--help").output
    told = run("bench").output
    assert "rostrum bench is not installed here" in told and "rostrum-lab" in told


def test_doctor__of_a_server_without_the_manager_says_what_it_can_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "doctor", cli.Subcommand("rostrum.no_such.commands", "doctor", "What is wrong."))
    assert "rostrum doctor --lan looks at this server's network" in run("doctor").output
    assert "--interface" in run("doctor", "--help").output


def test_no_rates_for_what_was_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """Receivers that have the object already say so at once; that is no goodput."""

    def result_with(*firsts: int | None, had: bool = False, rate_bps: int = 0) -> SendResult:
        rows = [Receiver(f"h{n}", "done", True, sn, 0, sn or 0, 10**9, "", had_it=had and sn is None)
                for n, sn in enumerate(firsts)]  # fmt: skip
        kinds = ("sent", "attempt", "redundant", "patched", "repair")
        counts = {f"packets_{kind}": 4 for kind in kinds} | {"losses_repaired": 11, "acks_received": 5}
        times = {"requested_ns": 1, "accepted_ns": 2, "attempt_ns": 3, "high_rate_ns": 0, "data_done_ns": 9}
        texts = {"cause": "", "path": "circuit", "protocol": "republic", "reason": "", "response_id": "p-1"}
        return SendResult(ok=True, data_id=1, size=10**9, **texts, **times, released_ns=9, done_ns=10**9,
                          reconfiguration_ns=0, sessions=1, fragment_size=8896, **counts, bytes_sent=0,
                          rate_bps=rate_bps, receivers=tuple(rows))  # fmt: skip

    had = result_with(None, None, had=True)
    report.print_result(had, "model", Console())
    shown = capsys.readouterr().out
    assert "bit/s" not in shown and "had it before" in shown and "4 repairs by multicast for 11 losses, 5 ack" in shown
    value = report.send_json(had)
    assert value["goodput_bps"] is None and [row["had_it"] for row in value["receivers"]] == [True, True]
    some = result_with(None, 7, had=True, rate_bps=10**9)
    report.print_result(some, "model", Console())
    shown = capsys.readouterr().out
    assert "up to 1 Gbit/s" in shown and "8 Gbit/s to each" in shown
    assert [row["had_it"] for row in report.send_json(some)["receivers"]] == [True, False]
    first = result_with(None, None)  # by RDCM no light is told, and nothing need be patched
    value = report.send_json(first)
    assert value["goodput_bps"] == 8_000_000_008 and [row["had_it"] for row in value["receivers"]] == [False, False]


def lab_with(folder: Path, *sockets: str) -> None:
    for name in sockets:
        path = folder / name / "agent.sock"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_agents_socket_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "labs_folder", lambda: tmp_path)
    monkeypatch.setattr(names, "SYSTEM_SOCKET", tmp_path / "system.sock")
    monkeypatch.delenv("ROSTRUM_SOCKET", raising=False)
    assert names.agent_socket() == tmp_path / "system.sock"
    lab_with(tmp_path, "lab/h1", "lab/h2")
    assert names.agent_socket("h2") == tmp_path / "lab/h2/agent.sock"
    assert names.agent_socket() == tmp_path / "system.sock"  # those of a lab that was killed are nobody's
    with monkeypatch.context() as living, pytest.raises(Exception, match="--server: h1, h2"):
        living.setattr(names, "_answers", lambda path: True)
        names.agent_socket()
    lab_with(tmp_path, "other/h2")
    assert names.agent_socket("h2") == tmp_path / "lab/h2/agent.sock"  # the lab that has no name of its own
    lab_with(tmp_path, "third/h3", "other/h3")
    with pytest.raises(Exception, match="--lab: other, third"):
        names.agent_socket("h3")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as living:
        (tmp_path / "third/h3/agent.sock").unlink()
        living.bind(str(tmp_path / "third/h3/agent.sock"))
        living.listen()
        assert names.agent_socket("h3") == tmp_path / "third/h3/agent.sock"  # the other is what a killed lab left
    assert names.agent_socket("h2", "other") == tmp_path / "other/h2/agent.sock"
    with pytest.raises(Exception, match=r"h9 is no server of any lab \(lab, other, third\).*: h1, h2, h3"):
        names.agent_socket("h9")
    with pytest.raises(Exception, match="h9 is no server of lab other; those with an agent: h2, h3"):
        names.agent_socket("h9", "other")
    with pytest.raises(Exception, match=r"no lab fourth .*: lab, other, third"):
        names.agent_socket("h1", "fourth")
    for no_name in (str(tmp_path / "lab"), "*", "../lab"):
        with pytest.raises(Exception, match=r"no lab .*: lab, other, third"):
            names.agent_socket("h1", no_name)
    lab_with(tmp_path, *(f"large/s{number}" for number in range(1, 31)))
    with pytest.raises(Exception, match=r"agent: s1, s2, s3.*, s16, and 14 more"):
        names.agent_socket("s31", "large")
    (tmp_path / "system.sock").touch()
    assert names.agent_socket() == tmp_path / "system.sock"
    monkeypatch.setenv("ROSTRUM_SOCKET", "/elsewhere")
    assert names.agent_socket() == Path("/elsewhere")


def test_a_lab_is_asked_for_where_none_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "labs_folder", lambda: tmp_path)
    with pytest.raises(Exception, match=r"no lab runs here .*rostrum lab up"):
        names.agent_socket("h1")


def test_send__beside_a_lab_that_runs_says_how_to_do_without_it(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROSTRUM_SOCKET", raising=False)
    monkeypatch.setattr(names, "labs_folder", lambda: tmp_path)
    monkeypatch.setattr(names, "_answers", lambda path: True)
    monkeypatch.setattr(names, "SYSTEM_SOCKET", tmp_path / "system.sock")
    lab_with(tmp_path, "lab/h1", "lab/h2")
    result = CliRunner().invoke(main, ["send", str(file), "--to", "10.0.0.2"])
    assert result.exit_code == 1 and "--server: h1, h2" in result.output
    assert "on the LAN, without an agent: --interface" in result.output


def test_an_agent_of_a_lab_that_does_not_answer__is_looked_for_in_the_lab(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (names, connection):
        monkeypatch.setattr(module, "labs_folder", lambda: tmp_path)
    lab_with(tmp_path, "mine/h1")
    result = run("status", "--server", "h1")
    assert result.exit_code == 1 and "rostrum lab start --name mine h1" in result.output
    assert "systemctl" not in result.output


class _LeavingAgent:
    """Its group has a message for each life, after which it goes away; some lives it is not there at all."""

    def __init__(self, lives: list[bytes | None]) -> None:
        self.server, self._lives = "h3", lives
        self.protocol, self.order = "plain", "none"

    def __call__(self, *_: object, **__: object) -> _LeavingAgent:
        if not self._lives or self._lives[0] is None:
            del self._lives[:1]
            raise Unavailable("no agent answers")
        return self

    def __enter__(self) -> _LeavingAgent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(manager_up=True, manager="up")

    def join(self, group: str, **_: object) -> _LeavingAgent:
        self._said = False
        return self

    def next(self, _: float | None) -> Message:
        if self._said:
            del self._lives[0]
            raise Unavailable("the agent went away")
        self._said = True
        return Message("h1", 1, self._lives[0] or b"")


def subscribe(monkeypatch: pytest.MonkeyPatch, lives: list[bytes | None], *options: str) -> Result:
    monkeypatch.setattr(commands, "Agent", _LeavingAgent(lives))
    monkeypatch.setattr(group_commands, "AGENT_LOOK_S", 0.0)
    return CliRunner().invoke(main, ["sub", "ticks", "--socket", "/somewhere", *options])


def test_sub_waits_for_an_agent_that_goes_away_and_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result = subscribe(monkeypatch, [b"one", None, None, b"two", b"three"], "--count", "3")
    assert result.exit_code == 0 and result.stdout.split() == ["one", "two", "three"]
    assert "waiting for the agent, 60 s at most" in result.stderr and "h3 is again in ticks" in result.stderr


def test_sub_says_what_to_do_when_its_agent_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    result = subscribe(monkeypatch, [b"one"], "--wait", "50ms")
    assert result.exit_code == 1 and result.stdout.split() == ["one"]
    assert "the agent went away, and is not back: start it" in result.stderr
    assert "no agent answers" in subscribe(monkeypatch, []).stderr  # it never was there: that is said at once


def test_data_ids() -> None:
    assert names.data_id_of("7") == names.data_id_of(7) == names.data_id_of("0x7") == 7
    assert names.data_id_of("model.bin") == names.data_id_of("model.bin") != names.data_id_of("model.bin2")
    assert names.data_id_of(2**64 - 1) == 2**64 - 1
    for wrong in ("", "-1", 2**64, -1):
        with pytest.raises(Exception, match="data id"):
            names.data_id_of(wrong)


@pytest.mark.parametrize("fields", [[], ["send"], ["status"], ["topology"], ["lab"], ["groups"]], ids=" ".join)
def test_a_command_does_not_import_what_it_does_not_need(fields: list[str]) -> None:
    """These libraries take longer than the rest of such a command."""
    slow = {"grpc", "jsonschema", "mininet", "numpy", "fastapi", "pydantic", "pkg_resources"}
    say = f"import atexit, sys; atexit.register(lambda: print(sorted({slow} & set(sys.modules))))"
    code = f"{say}; from rostrum.client.cli import main; main({[*fields, '--help']!r}, prog_name='rostrum')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
    assert "Usage: rostrum" in done.stdout
