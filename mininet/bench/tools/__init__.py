"""The tools of the bench by name, as `cases.TOOLS` lists them."""

from __future__ import annotations

from pathlib import Path

from rostrum.lab.bench.run import Tool
from rostrum.lab.bench.tools.aeron import Aeron
from rostrum.lab.bench.tools.copies import Copies
from rostrum.lab.bench.tools.http import Http
from rostrum.lab.bench.tools.norm import Norm
from rostrum.lab.bench.tools.ours import Ours
from rostrum.lab.bench.tools.pgm import Pgm
from rostrum.lab.bench.tools.raw import Raw
from rostrum.lab.bench.tools.udpcast import Udpcast
from rostrum.lab.bench.tools.uftp import Uftp


def all_tools(place: Path) -> dict[str, Tool]:
    """A new tool of each kind. `place`: where what no package has was installed."""
    tools: list[Tool] = [
        *(Raw(method, scratch) for method in ("udp", "udp-gso", "packet", "xdp") for scratch in (False, True)),
        *(Ours(io) for io in ("auto", "udp", "udp-gso", "packet", "xdp")),
        Ours("auto", told=False),
        Ours("auto", protocol="rdcm"),
        Copies("cubic"),
        Copies("bbr"),
        Uftp(),
        Udpcast(),
        Norm(),
        Pgm(),
        Http(),
        Aeron(place),
    ]
    return {tool.name: tool for tool in tools}
