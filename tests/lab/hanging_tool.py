"""Runs a tool that never ends in a bench's network: prints its record, and what is left of its processes, as JSON.

`python hanging_tool.py FOLDER`, in private namespaces.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run
from rostrum.bench.runner import Runner, Turn
from rostrum.lab.processes import bench_programs


class Hangs(Plain):
    name = "hangs"

    def prepare(self, run: Run) -> None:
        run.start("receivers", run.receivers[0], ["sleep", "1000"])

    def send(self, run: Run) -> None:
        run.deadline = time.monotonic() + 0.3
        run.wait(run.start("sender", run.sender, ["sleep", "1000"]))


def main(folder: Path) -> None:
    runner = Runner(folder, bench_programs(), {"hangs": Hangs()}, {}, seed=1, commit="unknown")
    try:
        record = runner.run(Turn(Case(1500, False, 0, 0.0, 1, 1 << 20), "hangs", 0))
        names = [path.read_text() for path in Path("/proc").glob("[0-9]*/comm")]
        print(json.dumps([record, [name.strip() for name in names if "sleep" in name]]))
    finally:
        runner.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
