"""The file of quotas: lines `TENANT name=number ... [over=wait|deny]`; `*` is everybody who is not named.

# tenant   what it may hold at a time
physics    circuits=2 splitters=4 rules=200 rate=20G over=wait
*          circuits=1 paths=50 over=deny
"""

from __future__ import annotations

from pathlib import Path

from rostrum.controller.core.requests.quotas import EVERYBODY
from rostrum.controller.core.values import Quota
from rostrum.controller.northbound.rest.access import NAME, AccessError
from rostrum.topologies.loader import rate_bps
from rostrum.topologies.model import Topology

COUNTS = ("paths", "circuits", "splitters", "rules")
TENANTS_MAX = 10_000
HOW = "write TENANT and some of paths=N circuits=N splitters=N rules=N rate=10G over=wait|deny"


def read(file: Path) -> dict[str, Quota]:
    """Quotas by tenant. Raises AccessError that names the wrong line."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"the quota file cannot be read: {error}") from error
    found: dict[str, Quota] = {}
    for number, text in enumerate(lines, 1):
        fields = text.split("#")[0].split()
        if not fields:
            continue
        place = f"{file} line {number}"
        if fields[0] != EVERYBODY and not NAME.fullmatch(fields[0]):
            raise AccessError(f"{place}: a tenant's name has 1 to 64 of A-Z a-z 0-9 _ . @ -, or is *")
        if fields[0] in found or len(found) >= TENANTS_MAX:
            raise AccessError(f"{place}: {fields[0]} a second time, or more than {TENANTS_MAX} tenants")
        found[fields[0]] = _quota(place, fields[1:])
    return found


def of_topology(topology: Topology) -> dict[str, Quota]:
    """What tenants' entries say themselves. Raises AccessError."""
    return {
        one.name: _quota(f"tenant {one.name}: quota", one.quota.split())
        for one in topology.tenants.values()
        if one.quota
    }


def _quota(place: str, fields: list[str]) -> Quota:
    values: dict[str, int] = {}
    over = "wait"
    for word in fields:
        name, _, value = word.partition("=")
        if name == "over" and value in ("wait", "deny"):
            over = value
        elif name in COUNTS and value.isdecimal() and len(value) < 10 and name not in values:
            values[name] = int(value)
        elif name == "rate" and "rate_bps" not in values:
            try:
                values["rate_bps"] = rate_bps(value)
            except ValueError as error:
                raise AccessError(f"{place}: rate: {error}") from error
        else:
            raise AccessError(f"{place}: {word[:40]!r} is not understood; {HOW}")
    if not values:
        raise AccessError(f"{place}: it limits nothing; {HOW}")
    return Quota(**values, over="deny" if over == "deny" else "wait")
