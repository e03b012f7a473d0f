"""What preflight and doctor say: a finding names what is wrong, and how it is mended. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}
SYMPTOMS = ("dark", "queue", "reachability")  # checks that see what causes do


@dataclass(frozen=True)
class Finding:
    """`check`: which one found it, a short fixed name; `subject`: the device, server or port it is about; `because`:
    the subject of another finding that explains this one.
    """

    severity: Severity
    check: str
    subject: str
    what: str
    mend: str = ""
    because: str = ""


def ordered(found: Iterable[Finding]) -> list[Finding]:
    """Causes before symptoms that nothing explains, notes last; of these the worst first, a cause being as bad as what
    follows from it. What a finding explains stands below it.
    """
    every = sorted(set(found), key=lambda one: (_ORDER[one.severity], one.check, one.subject, one.what))
    causes: dict[str, Finding] = {}
    for one in every:
        if not one.because:
            causes.setdefault(one.subject, one)
    below: dict[Finding, list[Finding]] = {one: [] for one in every}
    for one in every:
        if one.because in causes:
            below[causes[one.because]].append(one)

    def rank(one: Finding) -> tuple[bool, bool, int]:
        worst = min(_ORDER[each.severity] for each in (one, *below[one]))
        return worst == _ORDER["note"], one.check in SYMPTOMS, worst

    roots = sorted((one for one in every if one.because not in causes), key=rank)  # stable
    return [each for one in roots for each in (one, *below[one])]


def healthy(found: Iterable[Finding]) -> bool:
    return all(one.severity == "note" for one in found)
