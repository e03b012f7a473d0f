"""The tools of the bench by name, as `cases.TOOLS` lists them."""

from __future__ import annotations

from pathlib import Path

from rostrum.bench.run import Tool
from rostrum.bench.tools.aeron import Aeron
from rostrum.bench.tools.copies import Copies
from rostrum.bench.tools.http import Http
from rostrum.bench.tools.norm import Norm
from rostrum.bench.tools.ours import Ours
from rostrum.bench.tools.parts import Parts
from rostrum.bench.tools.pgm import Pgm
from rostrum.bench.tools.raw import Raw
from rostrum.bench.tools.standalone import Standalone
from rostrum.bench.tools.udpcast import Udpcast
from rostrum.bench.tools.uftp import Uftp


def all_tools(place: Path) -> dict[str, Tool]:
    """A new tool of each kind. `place`: where what no package has was installed."""
    tools: list[Tool] = [
        *(Raw(method, scratch) for method in ("udp", "udp-gso", "packet", "xdp") for scratch in (False, True)),
        *(Ours(io) for io in ("auto", "udp", "udp-gso", "packet", "xdp")),
        Ours("auto", told=False),
        Ours("auto", protocol="rdcm"),
        Ours("auto", ready=True),
        Ours("auto", security="required"),
        Ours("auto", security="signed"),
        Standalone(),
        Copies("cubic"),
        Copies("bbr"),
        Copies("cubic", ready=True),
        Copies("cubic", checked=True),
        Copies("cubic", ready=True, checked=True),
        Uftp(),
        Udpcast(),
        Norm(),
        Pgm(),
        Http(),
        Aeron(place),
        Parts(),
    ]
    return {tool.name: tool for tool in tools}
