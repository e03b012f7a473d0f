"""The tools of the bench by name, as `cases.TOOLS` lists them."""

from __future__ import annotations

from rostrum.lab.bench.run import Tool
from rostrum.lab.bench.tools.copies import Copies
from rostrum.lab.bench.tools.ours import Ours
from rostrum.lab.bench.tools.raw import Raw


def all_tools() -> dict[str, Tool]:
    """A new tool of each kind."""
    tools: list[Tool] = [
        *(Raw(method, scratch) for method in ("udp", "udp-gso", "packet", "xdp") for scratch in (False, True)),
        *(Ours(io) for io in ("auto", "udp", "udp-gso", "packet", "xdp")),
        Ours("auto", told=False),
        Copies("cubic"),
        Copies("bbr"),
    ]
    return {tool.name: tool for tool in tools}
