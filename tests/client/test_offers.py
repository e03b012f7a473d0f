"""What a shell offers behind TAB."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from rostrum.client.cli import main
from rostrum.topologies import offers

ANSWERS = {
    "/v1/topology": {"servers": [{"name": "h1"}, {"name": "h2"}]},
    "/v1/groups?limit=1000": {"groups": [{"name": "ticks.eu"}, {"name": "ticks.us"}, {"name": "news"}]},
    "/v1/paths?limit=1000": {"paths": [{"id": "p-1", "state": "active"}, {"id": "p-2", "state": "released"}]},
    "/v1/switches": {"switches": [{"name": "core"}, {"name": "tor1"}]},
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix socket"

    def log_message(self, format: str, *args: Any) -> None:
        """To nobody."""


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(offers, "labs_folder", lambda: tmp_path)
    monkeypatch.setattr(offers, "SYSTEM_SOCKET", tmp_path / "none")
    monkeypatch.delenv("ROSTRUM_MANAGER", raising=False)
    return tmp_path


@pytest.fixture
def manager(labs: Path) -> Iterator[Path]:
    (labs / "lab").mkdir()
    place = labs / "lab" / "manager.sock"
    with socketserver.UnixStreamServer(str(place), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield place
        server.shutdown()


def offered(*words: str) -> list[str]:
    *before, begun = words
    return [one.value for one in ShellComplete(main, {}, "rostrum", "_X").get_completions(before, begun)]


def test_experiments__and_their_options() -> None:
    assert offered("sim", "run", "rdcm-g") == ["rdcm-goodput"]
    assert "demo" in offered("lab", "run", "")
    assert "--receivers" in offered("sim", "run", "broadcast", "--rec")
    assert "mixed" in offered("lab", "run", "demo", "--switch", "")
    assert offered("sim", "run", "no-such-one", "--") == []


def test_labs_and_servers__of_those_that_run(labs: Path) -> None:
    for place in ("lab/h1", "lab/h10", "other/h7"):
        (labs / place).mkdir(parents=True)
        (labs / place / "agent.sock").touch()
        (labs / place / "../manager.sock").touch()
    assert offered("status", "--server", "h1") == ["h1", "h10"]
    assert offered("status", "--lab", "other", "--server", "") == ["h7"]
    assert offered("send", "file", "--to", "h1,h7,h") == ["h1,h7,h1", "h1,h7,h10", "h1,h7,h7"]
    assert offered("status", "--lab", "o") == ["other"]
    assert offered("lab", "exec", "--name", "other", "") == ["h7"]


@pytest.mark.parametrize("name", ["site", "/x", "**"])
def test_servers__whatever_a_stream_or_folder_is_called(labs: Path, name: str) -> None:
    """It was taken for a lab's name: nothing, a traceback, or all files below were looked at."""
    (labs / "lab" / "h1" / "deep" / "h2").mkdir(parents=True)
    for place in ("lab/h1", "lab/h1/deep/h2"):
        (labs / place / "agent.sock").touch()
    assert offered("stream", "send", name, "--to", "") == ["h1"]
    assert offered("sync", ".", "--name", name, "--to", "") == ["h1"]
    assert offered("status", "--lab", name, "--server", "") == []


@pytest.mark.usefixtures("manager")
def test_what_the_manager_knows() -> None:
    assert offered("sub", "ti") == ["ticks.eu", "ticks.us"]
    assert offered("groups", "show", "n") == ["news"]
    assert offered("paths", "release", "") == ["p-1"]
    assert offered("links", "drain", "t") == ["tor1"]
    assert offered("preflight", "h1", "") == ["h1", "h2"]


def test_a_manager_elsewhere__by_its_address(labs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("ROSTRUM_MANAGER", f"127.0.0.1:{server.server_port}")
        assert offered("sub", "n") == ["news"]
        server.shutdown()


@pytest.mark.parametrize("make", [lambda place: None, lambda place: place.touch(), lambda place: place.mkdir()])
def test_no_manager__offers_nothing_and_says_nothing(
    labs: Path, make: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    (labs / "lab").mkdir()
    make(labs / "lab" / "manager.sock")
    assert offered("sub", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fields", [["sim", "list"], ["lab", "run", "--list"]])
def test_lists_of_experiments__say_whole_sentences(fields: list[str]) -> None:
    """Of one, "Goodput of RDCM, RMTP, LBRM, TMTP and SRM with losses (Fig." was all that was said."""
    done = CliRunner().invoke(main, fields)
    lines = done.output.splitlines()
    assert len(lines) > 20 and done.exit_code == 0
    assert all(line.endswith((".", "?")) and not line.endswith("...") for line in lines), done.output
    assert all(line.count("(") == line.count(")") for line in lines), done.output
