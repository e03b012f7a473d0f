"""The lab as a library: the experiment of docs/experiments.md as a user runs it, a Mininet `Topo`, parts that break;
and the Python client, as docs/tasks has it."""

from __future__ import annotations

import csv
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.lab.lab import Lab, labs
from rostrum.lab.namespace import LabError

pytestmark = pytest.mark.lab

Topo: Any = importlib.import_module("mininet.topo").Topo  # Mininet's; a type checker would look in this tree

TASKS = Path(__file__).parents[2] / "docs" / "tasks"
PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
RUN = [sys.executable, "-c", "from rostrum.lab.commands import lab; lab(prog_name='rostrum lab')", "run"]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as text:
        return list(csv.DictReader(text))


def test_experiment_of_the_page(tmp_path: Path) -> None:
    script = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert script and len(script[1].splitlines()) <= 30
    (tmp_path / "waits.py").write_text(script[1])
    done = subprocess.run([*RUN, "waits.py", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    transfers = {row["object"]: row for row in rows(tmp_path / "transfers.csv")}
    assert [transfers[name]["ok"] for name in ("plain-0", "paused-0", "killed-0")] == ["True", "True", "False"]
    assert float(transfers["plain-0"]["goodput_bps"]) > 0
    failed = [row["receiver"] for row in rows(tmp_path / "deliveries.csv") if row["digest_ok"] == "False"]
    assert failed == ["h4"]
    assert {"manager", "h1", "h4"} <= {row["source"] for row in rows(tmp_path / "metrics.csv")}
    assert not [name for name in labs() if name.startswith("waits")]


def test_script_that_fails__says_why_and_leaves_no_lab(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        'from rostrum.lab.lab import Lab\nwith Lab({"servers": ["h1"], "switches": ["s1"],'
        ' "links": [{"a": "h1", "b": "s1"}]}, name="t-wrong", parts=()) as lab:\n    lab.host("h9")\n'
    )
    done = subprocess.run([*RUN, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "Error: no server h9 in lab; there are h1" in done.stderr, done.stderr
    assert "t-wrong" not in labs()


class Pair(Topo):
    """Two switches and a core, as experiments have them; Mininet's own numbers for ports."""

    def build(self) -> None:
        core = self.addSwitch("s3")
        for number in (1, 2):
            switch = self.addSwitch(f"s{number}")
            self.addLink(switch, core, bw=500)
            for slot in (2 * number - 1, 2 * number):
                self.addLink(self.addHost(f"h{slot}"), switch)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(Pair(), name="t-topo", quota="256M", reserve="16M") as made:
        yield made


def test_mininet_topo__and_parts_that_break(lab: Lab) -> None:
    assert {name: one.role for name, one in lab.topology.switches.items()} == {"s1": "tor", "s2": "tor", "s3": "core"}
    sender = lab.host("h1")
    with lab.host("h3").kill():
        assert lab.status()["programs"]["h3"]["state"] != "running"
    sent = sender.send(b"some words", to=["h3", "h4"], name="words").raise_for_failure()
    assert sent.total_ms > 0
    with lab.host("h4").read("words") as copy:
        assert copy.bytes() == b"some words"
    with lab.cut("s2", "s3"):
        assert "100%" in sender.run(["ping", "-c1", "-W1", lab.host("h3").address], check=False)
    sender.run(["ping", "-c1", "-W5", lab.host("h3").address])
    assert [row["ok"] for row in lab.transfers] == [True]
    with pytest.raises(LabError, match="say what to send"):
        sender.send(to=["h3"])
    with pytest.raises(LabError, match="no option quotas; there are topology"):
        Lab(Pair(), name="t-other", quotas="1G")


@pytest.mark.parametrize("page", sorted(TASKS.glob("*.md")), ids=lambda page: page.stem)
def test_blocks_of_a_task_page_run_as_they_stand(lab: Lab, page: Path, tmp_path: Path) -> None:
    """Each on the servers that its first line names, all at once."""
    running = []
    blocks = re.findall(r"^```python\n# on ([\w, ]+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks or page.stem == "README"
    for number, (servers, code) in enumerate(blocks):
        for server in servers.split(", "):
            folder = tmp_path / f"{number}-{server}"
            folder.mkdir()
            (folder / "block.py").write_text(code)
            environment = {**os.environ, "ROSTRUM_SOCKET": str(lab.agent_socket(server))}
            process = subprocess.Popen([sys.executable, "block.py"], cwd=folder, env=environment, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
            running.append((f"{page.name}, on {server}", process))
    try:
        ended = [(what, process.communicate(timeout=90)[0], process.returncode) for what, process in running]
    finally:
        for _, process in running:
            process.kill()
    assert not [f"{what}: {output}" for what, output, status in ended if status]
