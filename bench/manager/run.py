"""One case: a manager, a load generator, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rostrum.bench.manager.cases import Case
from rostrum.lab.namespace import LabError

START_BOUND_S = 60
END_BOUND_S = 20


def measure(case: Case, seed: int, folder: Path) -> dict[str, Any]:
    """The figures of one run. Raises LabError with what the process that failed said last."""
    place = folder / case.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    job = {
        "case": case.facts(),
        "hybrid": asdict(case.hybrid),
        "seed": seed,
        "folder": str(folder),
        "place": str(place),
    }
    file = place / "job.json"
    file.write_text(json.dumps(job))
    with serving(case, file, place) as there:
        names = [f"h{number}" for number in range(1, case.servers + 1)]
        port = there["rest" if case.door == "rest" else "thrift"]
        file = place / "load.json"
        file.write_text(json.dumps({**job, "servers": names, "port": port, "pid": there["pid"]}))
        asking = subprocess.run(
            [sys.executable, "-m", "rostrum.bench.manager.load", str(file)],
            capture_output=True,
            text=True,
            timeout=START_BOUND_S + 4 * case.seconds + case.live / 50,
            check=False,
        )
        if asking.returncode:
            raise LabError(f"{case.name}: the load generator failed: {asking.stderr[-1000:]}")
        figures: dict[str, Any] = json.loads(asking.stdout)
        figures["manager_resident_mb"] = _resident_mb(there["pid"])
    return {"case": case.name, "door": case.door, "loop": case.loop, "live": case.live, **figures}


@contextlib.contextmanager
def serving(case: Case, job: Path, place: Path) -> Iterator[dict[str, Any]]:
    """A manager in a process of its own; where it listens, and its `pid`. Raises LabError."""
    program = "echo" if case.door == "echo" else "serve"
    with (place / "manager.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"rostrum.bench.manager.{program}", str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdin and process.stdout
        try:
            said, _, _ = select.select([process.stdout], [], [], START_BOUND_S)
            line = process.stdout.readline() if said else b""
            if not line:
                text = (place / "manager.log").read_text()[-1000:]
                raise LabError(f"{case.name}: the manager did not start: {text}")
            yield json.loads(line)
        finally:
            process.stdin.close()
            try:
                process.wait(END_BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
