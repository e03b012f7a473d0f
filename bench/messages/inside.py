"""The process inside the private namespaces: `python -m rostrum.bench.messages.inside JOB`.

JOB is a JSON file: {"cases": [...], "tools", "repeat", "seed", "folder", "programs", "place", "missing", "results",
"manifest"}; it writes `results`.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from rostrum.bench.inside import say, writer
from rostrum.bench.messages.cases import MessageCase
from rostrum.bench.messages.runner import MessageRunner, run_all, turns
from rostrum.bench.messages.tools import all_tools
from rostrum.lab.namespace import LabError


def main(job: dict[str, Any]) -> int:
    tools = all_tools(Path(job["place"]))
    cases = [MessageCase(**value) for value in job["cases"]]
    plan = list(turns(cases, job["tools"], job["repeat"], job["seed"]))
    versions = {name: tools[name].version() for name in job["tools"]}
    runner = None
    try:
        runner = MessageRunner(Path(job["folder"]), Path(job["programs"]), tools, job["missing"])
        run_all(runner, plan, writer(Path(job["results"]), {**job["manifest"], "tools": versions}), say)
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        if runner:
            runner.close()
    return 0


if __name__ == "__main__":
    # Ctrl-C and a closed terminal are for the program outside, which then ends these namespaces.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
