"""Runs commands of the table of claims, each in a process of its own, and keeps what they wrote.

A result of this very commit is taken as it is, so a run that was broken off goes on where it was. Results that are
stored, in results/, come from a tree without changes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostrum.bench.reproduce.claims import Claims, ClaimsError, Judged, Run, read_result
from rostrum.lab.manifest import commit
from rostrum.lab.results import save
from rostrum.topologies.places import TREE, build_folder

STORED = TREE / "results"
LIMIT_FACTOR, LIMIT_MORE_S = 6.0, 300.0  # a run takes so many times its minutes, and so much longer, at most
WORDS = 400  # characters of what a command that failed said


@dataclass(frozen=True)
class Outcome:
    """A run's result, or why there is none."""

    result: dict[str, Any] | None
    file: Path
    reason: str = ""
    seconds: float = 0.0
    kept: bool = False  # it was there already, of this commit


def scratch(quick: bool) -> Path:
    """Where runs write, a folder for quick ones of its own."""
    return build_folder() / "reproduce" / ("quick" if quick else "full")


def stored(run: Run) -> Outcome:
    """What results/ has of it."""
    file = STORED / f"{run.name}.json"
    if not file.is_file():
        return Outcome(None, file, f"no result is stored: rostrum reproduce --only {run.name}")
    return Outcome(read_result(file), file)


def perform(run: Run, quick: bool, again: bool, say: Callable[[str], None]) -> Outcome:
    """Runs it, unless this commit's result is there. What it prints goes to a log beside its result."""
    folder = scratch(quick)
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / f"{run.name}.json", folder / f"{run.name}.log"
    here = commit()
    if not again and (old := _of_commit(file, here)) is not None:
        return Outcome(old, file, kept=True)
    if run.root and os.geteuid() != 0:
        return Outcome(None, file, "it starts a lab, which needs root")
    file.unlink(missing_ok=True)
    fields = run.arguments(quick, file)
    say(f"rostrum {' '.join(fields)}")
    began = time.monotonic()
    limit = LIMIT_FACTOR * 60 * run.minutes + LIMIT_MORE_S
    with log.open("w") as out:
        argv = [sys.executable, "-m", "rostrum.client.cli", *fields]
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=TREE)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome(None, file, f"it took more than {limit / 60:.0f} minutes; see {log}", limit)
        except BaseException:
            _end(process)
            raise
    seconds = time.monotonic() - began
    if status or not file.is_file():
        said = log.read_text(errors="replace").strip().splitlines()
        why = said[-1][:WORDS] if said else "it said nothing"
        return Outcome(None, file, f"it ended with {status}: {why} ({log})", seconds)
    return Outcome(read_result(file), file, seconds=seconds)


def _of_commit(file: Path, here: str) -> dict[str, Any] | None:
    if here == "unknown" or here.endswith("+changes"):
        return None  # files may have changed since
    try:
        old = read_result(file)
    except ClaimsError:
        return None
    return old if (old.get("manifest") or {}).get("commit") == here else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end, so that a lab is taken down; then insists."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_clean() -> None:
    """Raises ClaimsError unless results of this tree may be stored."""
    _check(commit())


def _check(here: str) -> None:
    if here == "unknown":
        raise ClaimsError("this is no clone: what a result came from would be unknown; nothing is stored")
    if here.endswith("+changes"):
        raise ClaimsError("files differ from the commit, so nobody could repeat it: commit first, or leave out --store")


def has_full_run(run: Run) -> bool:
    """Whether results/ has a full run of it, which a short one may not replace."""
    result = stored(run).result
    return result is not None and not result.get("short_run")


def store(run: Run, outcome: Outcome, claims: Claims, quick: bool = False) -> list[Path]:
    """Into results/, with the verdicts that it led to, and its picture; a short run is marked as one. Raises
    ClaimsError for a result of a tree with changes."""
    if outcome.result is None:
        raise ClaimsError(f"{run.name} has no result to store: {outcome.reason}")
    _check(str((outcome.result.get("manifest") or {}).get("commit", "unknown")))
    mine = [claims.judged(one, outcome.result) for one in claims.claims if one.run == run.name]
    target = STORED / f"{run.name}.json"
    mark = {"short_run": True} if quick else {}
    save({**outcome.result, **mark, "verdicts": {one.claim.id: one.verdict.value for one in mine}}, target)
    picture = outcome.file.with_suffix(".png")
    written = [target]
    if picture.is_file() and target.with_suffix(".png").is_file():  # those that documents show
        written.append(Path(shutil.copy(picture, target.with_suffix(".png"))))
    return written


def summary(judged: list[Judged]) -> dict[str, Any]:
    """For --json."""
    counts: dict[str, int] = {}
    for one in judged:
        counts[one.verdict.value] = counts.get(one.verdict.value, 0) + 1
    return {"claims": [one.row() for one in judged], "summary": counts, "commit": commit()}


def write_json(judged: list[Judged], file: Path | None) -> None:
    text = json.dumps(summary(judged), indent=1) + "\n"
    if file is None:
        print(text, end="")
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
