"""What preflight and doctor say: a finding names what is wrong, and how it is mended. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """`check`: which one found it, a short fixed name; `subject`: the device, server or port it is about."""

    severity: Severity
    check: str
    subject: str
    what: str
    mend: str = ""


def ordered(found: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check and subject."""
    return sorted(set(found), key=lambda one: (_ORDER[one.severity], one.check, one.subject, one.what))


def healthy(found: Iterable[Finding]) -> bool:
    return all(one.severity == "note" for one in found)
