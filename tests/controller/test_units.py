"""docs/systemd: what each unit's directories mean when its program stops and starts again."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.topologies.loader import builtin_file

from tests.controller.programs import Program, program

DOCS = Path(__file__).parents[2] / "docs"
UNITS = DOCS / "systemd"
MANAGER, AGENT, STORE = "rostrum-manager.service", "rostrumd.service", "srv-rostrum.mount"
TARGETS = ["sysinit", "basic", "multi-user", "local-fs", "network-online", "shutdown", "umount"]
Unit = dict[str, list[str]]


def unit(name: str) -> Unit:
    """Settings by name, sections together: no name is in two of them."""
    found: Unit = {}
    for row in (UNITS / name).read_text().splitlines():
        key, equals, value = row.partition("=")
        if equals and not row.startswith(("#", ";")):
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def one(settings: Unit, key: str) -> str:
    """Of a setting that there is once."""
    values = settings.get(key, [])
    assert len(values) == 1, f"{key}= is there {len(values)} times"
    return values[0]


def command(settings: Unit) -> tuple[str, dict[str, str]]:
    """The program, and each option with its (first) value."""
    program_, *fields = shlex.split(one(settings, "ExecStart"))
    return program_, {word: after for word, after in zip(fields, [*fields[1:], ""], strict=True) if word[:2] == "--"}


def kept(settings: Unit) -> list[Path]:
    """Folders of the unit that outlive its stop."""
    return [Path("/var/lib") / name for names in settings.get("StateDirectory", []) for name in names.split()]


def removed(settings: Unit) -> list[Path]:
    """Folders of the unit that systemd removes when it stops."""
    preserved = settings.get("RuntimeDirectoryPreserve", ["no"]) != ["no"]
    names = [] if preserved else settings.get("RuntimeDirectory", [])
    return [Path("/run") / name for each in names for name in each.split()]


def inside(file: str, folders: list[Path]) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)


def test_systemd__finds_nothing_wrong_in_any_unit(tmp_path: Path) -> None:
    """systemd-analyze verify, in a file system that has the programs and targets that the units name."""
    system = tmp_path / "usr" / "lib" / "systemd" / "system"
    own = tmp_path / "etc" / "systemd" / "system"
    for folder in (system, own):
        folder.mkdir(parents=True)
    for name in [*(f"{target}.target" for target in TARGETS), "system.slice", "-.slice"]:
        (system / name).write_text("[Unit]\nDescription=a part of systemd\n")
    names = sorted(file.name for file in UNITS.iterdir())
    assert {MANAGER, AGENT, STORE} <= set(names)
    for name in names:
        shutil.copy(UNITS / name, own)
        for key, values in unit(name).items():
            for value in values if key.startswith("Exec") else []:
                executable = tmp_path / shlex.split(value)[0].lstrip("/")
                executable.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy("/bin/true", executable)
    analyze = ["systemd-analyze", "verify", "--man=no", f"--root={tmp_path}", *names]
    said = subprocess.run(analyze, capture_output=True, text=True, timeout=60, check=False)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("name", [MANAGER, AGENT])
def test_restarts__are_not_given_up(name: str) -> None:
    """systemd's default is five starts in ten seconds, and then none any more (systemd.unit(5))."""
    settings = unit(name)
    assert one(settings, "Restart") in ("always", "on-failure")
    assert one(settings, "StartLimitIntervalSec") == "0"


def test_manager__what_has_to_survive_lies_where_nothing_is_removed() -> None:
    settings = unit(MANAGER)
    _, options = command(settings)
    assert inside(options["--journal"], kept(settings)), "the journal must be below StateDirectory="
    assert not inside(options["--journal"], removed(settings))
    assert inside(options["--run"], removed(settings)), "sockets go with the program"
    for key in ("StateDirectoryMode", "RuntimeDirectoryMode"):
        assert int(one(settings, key), 8) & 0o027 == 0, f"{key}= lets others in"
    assert int(one(settings, "UMask"), 8) & 0o027 == 0o027
    assert one(settings, "ProtectSystem") == "strict"  # so nothing else can be written


def test_agent__objects_outlive_it_and_only_its_group_enters() -> None:
    settings, store = unit(AGENT), unit(STORE)
    _, options = command(settings)
    assert options["--store"] == one(store, "Where") and options["--store"] in settings["ReadWritePaths"]
    assert not inside(options["--store"], removed(settings))
    assert one(settings, "RequiresMountsFor") == options["--store"]
    assert inside(options["--socket"], removed(settings))
    assert int(one(settings, "RuntimeDirectoryMode"), 8) & 0o007 == 0
    mount = dict(option.partition("=")[::2] for option in one(store, "Options").split(","))
    assert int(mount["mode"], 8) & 0o027 == 0, "objects are for the agent and its group"
    assert mount["uid"] == one(settings, "User") and mount["gid"] == one(settings, "Group")


@pytest.mark.parametrize("name", [MANAGER, AGENT])
def test_operating__names_the_units_directories(name: str) -> None:
    settings = unit(name)
    text = (DOCS / "operating.md").read_text()
    for folder in [*kept(settings), *removed(settings)]:
        assert f"`{folder}" in text, f"docs/operating.md says nothing of {folder}"


class Machine:
    """A file system of its own, and what systemd does there at the unit's start and stop."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.settings = root, unit(name)
        (root / "etc" / "rostrum").mkdir(parents=True)
        shutil.copy(builtin_file("hybrid-4x2"), root / "etc" / "rostrum" / "topology.yaml")
        (root / "etc" / "rostrum" / "rest-tokens").write_text("")
        (root / "etc" / "rostrum" / "rest-tokens").chmod(0o640)

    def place(self, path: str) -> str:
        return str(self.root / path.lstrip("/")) if path.startswith("/") else path

    def started(self) -> Any:
        for folder in [*kept(self.settings), *removed(self.settings)]:
            (self.root / str(folder).lstrip("/")).mkdir(parents=True, exist_ok=True)
        _, options = command(self.settings)
        others = [pair for pair in options.items() if pair[0] not in ("--run", "--topology")]
        fields = [self.place(word) for pair in others for word in pair]
        return program(Path(self.place(options["--run"])), *fields, topology=self.place(options["--topology"]))

    def stop(self, manager: Program) -> None:
        assert manager.stop() == 0
        for folder in removed(self.settings):
            shutil.rmtree(self.root / str(folder).lstrip("/"))


def test_journal__in_a_folder_that_systemd_removes_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in units of earlier releases, which gave --run alone."""
    run = tmp_path / "run"
    for journal, warned in (("none", False), (str(tmp_path / "manager.journal"), False), ("", True)):
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(run))
        with program(run, *(["--journal", journal] if journal else [])) as manager:
            assert ("journal will be lost" in manager.log) == warned
            assert manager.stop() == 0


def asked(manager: Program, key: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(manager.run / "manager.sock"))) as client:
        body = {"sender": "h1", "receivers": ["h3", "h5"], "wait_ms": 600_000}
        return client.post("http://manager/v1/paths", json=body, headers={"Idempotency-Key": key})


def test_manager__stopped_and_started_by_systemd_remembers_paths_and_keys(tmp_path: Path) -> None:
    """Its switches are not there, so that the path stays queued."""
    machine = Machine(tmp_path, MANAGER)
    with machine.started() as manager:
        before = asked(manager, "once").json()
        assert before["state"] == "queued"
        machine.stop(manager)
    with machine.started() as manager:
        listed = manager.rest("GET", "/v1/paths", by_socket=True).json()["paths"]
        assert [(path["id"], path["state"]) for path in listed] == [(before["id"], "queued")]
        assert asked(manager, "once").json()["id"] == before["id"]
        assert asked(manager, "another").json()["id"] != before["id"]
        machine.stop(manager)
