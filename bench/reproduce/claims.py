"""The papers' claims and the commands they are tried by, as results/claims.yaml has them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from rostrum.bench.reproduce.judge import Bound, JudgeError, LackingError, Verdict, evaluate, judge, parse
from rostrum.topologies.places import TREE

FILE = TREE / "results" / "claims.yaml"
PAPERS = ("republic", "rdcm", "ricochet", "qsm", "wan")
INSTRUMENTS = {"lab": "lab", "sim": "simulator", "bench": "lab"}  # by the command's first argument
RESULT_MOST = 64 << 20  # bytes
SHORT_RUN = "a short run (--quick)"


class ClaimsError(Exception):
    """The file of claims, or a result, is not as it has to be; the text says where."""


@dataclass(frozen=True)
class Run:
    """A command of `rostrum` that writes a JSON result."""

    name: str
    command: str
    quick: str = ""
    png: bool = False  # takes --png
    root: bool = False
    minutes: float = 1
    note: str = ""

    def arguments(self, quick: bool, json_file: Path) -> list[str]:
        picture = ["--png", str(json_file.with_suffix(".png"))] if self.png else []
        return [
            *shlex.split(self.command),
            *shlex.split(self.quick if quick else ""),
            "--json",
            str(json_file),
            *picture,
        ]


@dataclass(frozen=True)
class Claim:
    id: str
    paper: str
    where: str  # of the paper: a figure, a section
    claim: str
    theirs: str = ""
    run: str = ""
    value: str = ""  # over the run's JSON
    found: str = ""
    shape: str = ""
    unit: str = ""
    why: str = ""  # it is not found, or in shape only
    not_judged: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim with what a result says of it. `commit`: of the result, with +changes if its tree had any. `failed`:
    there should have been a value, but the run gave none.
    """

    claim: Claim
    verdict: Verdict
    value: float | None = None
    reason: str = ""
    commit: str = ""
    command: str = ""
    failed: bool = False

    def row(self) -> dict[str, Any]:
        one = self.claim
        return {
            "id": one.id, "paper": one.paper, "where": one.where, "claim": one.claim, "theirs": one.theirs,
            "ours": self.value, "unit": one.unit, "verdict": self.verdict.value, "reason": self.reason,
            "commit": self.commit, "command": self.command,
        }  # fmt: skip

    @property
    def ours(self) -> str:
        """For people."""
        if self.value is None:
            return ""
        return f"{self.value:.3g} {self.claim.unit}".strip()


@dataclass(frozen=True)
class Claims:
    runs: dict[str, Run]
    claims: tuple[Claim, ...]

    def matching(self, patterns: tuple[str, ...]) -> list[Claim]:
        """Those whose id, paper or run fits one of the shell patterns; all without any. Raises ClaimsError."""
        if not patterns:
            return list(self.claims)
        found = [
            one for one in self.claims
            if any(fnmatchcase(name, p) for p in patterns for name in (one.id, one.paper, one.run) if name)
        ]  # fmt: skip
        if not found:
            raise ClaimsError(f"no claim is called {' or '.join(patterns)}: rostrum reproduce --list")
        return found

    def judged(
        self, claim: Claim, result: dict[str, Any] | None, reason: str = "", quick: bool | None = None
    ) -> Judged:
        """By this result; without one it is not judged, for this reason or its own. `quick`: it is of a short run
        [as it says], which may lack points.
        """
        run = self.runs.get(claim.run)
        command = f"rostrum {run.command}" if run else ""
        if result is None:
            why = claim.not_judged or reason
            return Judged(claim, Verdict.NOT_JUDGED, reason=why, command=command, failed=bool(claim.run))
        manifest = result.get("manifest")
        commit = str(manifest.get("commit", "unknown")) if isinstance(manifest, dict) else "unknown"
        short = bool(result.get("short_run")) if quick is None else quick
        try:
            value = evaluate(claim.value, result)
        except JudgeError as error:
            few = short and isinstance(error, LackingError)
            said = f"{SHORT_RUN} lacks it ({error}): rostrum reproduce --only {claim.run}" if few else str(error)
            return Judged(claim, Verdict.NOT_JUDGED, reason=said, commit=commit, command=command, failed=not few)
        verdict = judge(value, claim.found, claim.shape)
        notes = [claim.why if verdict is not Verdict.FOUND else "", run.note if run else "", SHORT_RUN if short else ""]
        return Judged(claim, verdict, value, "; ".join(filter(None, notes)), commit, command)


def load(file: Path = FILE) -> Claims:
    """Raises ClaimsError for a file that cannot be read, or is not of this form."""
    try:
        given = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise ClaimsError(f"{file} is not there: claims are tried from a clone of rostrum, after make build") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClaimsError(f"{file}: {error}") from None
    if not isinstance(given, dict) or set(given) != {"runs", "claims"}:
        raise ClaimsError(f"{file}: it has `runs` and `claims`")
    try:
        runs = {name: Run(name, **entry) for name, entry in given["runs"].items()}
        claims = tuple(Claim(**entry) for entry in given["claims"])
    except (TypeError, AttributeError) as error:
        raise ClaimsError(f"{file}: {error}") from None
    for one in runs.values():
        if not isinstance(one.command, str) or one.command.split()[:1] not in [[word] for word in INSTRUMENTS]:
            raise ClaimsError(f"{file}: run {one.name}: a command begins with {' or '.join(INSTRUMENTS)}")
    seen = set()
    for claim in claims:
        if claim.id in seen:
            raise ClaimsError(f"{file}: two claims are called {claim.id}")
        seen.add(claim.id)
        if wrong := _wrong(claim, runs):
            raise ClaimsError(f"{file}: claim {claim.id}: {wrong}")
    return Claims(runs, claims)


def _wrong(claim: Claim, runs: dict[str, Run]) -> str:
    if claim.paper not in PAPERS:
        return f"paper is one of {', '.join(PAPERS)}"
    if claim.not_judged:
        return "it is not judged, so it has no run" if claim.run or claim.value else ""
    if claim.run not in runs:
        return f"there is no run {claim.run!r}; without one, not_judged says why"
    try:
        parse(claim.value)
        for bound in filter(None, (claim.found, claim.shape)):
            Bound(bound)
    except JudgeError as error:
        return str(error)
    return "" if claim.found else "found says which values agree"


def read_result(file: Path) -> dict[str, Any]:
    """Raises ClaimsError."""
    try:
        if file.stat().st_size > RESULT_MOST:
            raise ClaimsError(f"{file} is larger than {RESULT_MOST >> 20} MiB")
        found = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ClaimsError(f"{file}: {error}") from None
    if not isinstance(found, dict):
        raise ClaimsError(f"{file} is no result: not an object")
    return found
