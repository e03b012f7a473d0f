"""The bench's process inside the private namespaces: `python -m rostrum.bench.inside JOB`.

JOB is a JSON file: {"entries": [...], "seed", "folder", "programs", "place", "missing", "results", "resume", "tune",
"manifest"}; it
writes `results`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rostrum.bench.cases import Case, Entry
from rostrum.bench.runner import Record, Runner, run_all, turns
from rostrum.bench.tools import all_tools
from rostrum.bench.tuning import settle, tune
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save


def entries_of(values: list[dict[str, Any]]) -> list[Entry]:
    return [Entry(Case(**value["case"]), tuple(value["tools"]), value["repeat"]) for value in values]


def writer(results: Path, manifest: dict[str, Any]) -> Callable[[list[Record]], None]:
    """Writes the file again after each run; a reader sees the old one or the new one."""

    def write(records: list[Record]) -> None:
        save({"manifest": manifest, "runs": records}, results)

    return write


def say(text: str) -> None:
    print(text, flush=True)


def _tuned(runner: Runner, entries: list[Entry], before: dict[str, Any], wanted: bool) -> list[Record]:
    """Best rates, found now or by the bench that is gone on with; the trials."""
    trials: list[Record] = before["manifest"].get("tuning", [])
    if not trials and wanted:
        return tune(runner, entries, say)
    settle(runner.tools, trials)
    return trials


def main(job: dict[str, Any]) -> int:
    results = Path(job["results"])
    before = json.loads(results.read_text()) if job["resume"] else {"runs": [], "manifest": {}}
    done = before["runs"]
    for record in done:  # of a bench that is gone on with
        record.setdefault("commit", before["manifest"]["commit"])
    plan = list(turns(entries_of(job["entries"]), job["seed"]))
    tools = all_tools(Path(job["place"]))
    manifest = {
        **job["manifest"],
        "timed": {name: tool.timed for name, tool in tools.items()},
        "tools": {name: tool.version() for name, tool in tools.items() if tool.version()},
    }
    runner = None
    try:
        runner = Runner(
            Path(job["folder"]), Path(job["programs"]), tools, job["missing"], job["seed"], manifest["commit"]
        )
        if runner.softirq.why:
            say(runner.softirq.why)
        manifest["tuning"] = _tuned(runner, entries_of(job["entries"]), before, job["tune"])
        write = writer(results, manifest)
        write(done)
        run_all(runner, plan, done, write, say)
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
