"""The metrics of a lab's agents."""

from __future__ import annotations

import re
import time

import httpx
from rostrum.lab.lab import Lab

START_S = 20.0


def scrape(lab: Lab, server: str) -> dict[tuple[str, str], float]:
    """What an agent counts: (name, labels) -> value. One that was started just now is waited for."""
    deadline = time.monotonic() + START_S
    transport = httpx.HTTPTransport(uds=str(lab.run / server / "metrics.sock"))
    with httpx.Client(transport=transport, base_url="http://agent") as http:
        while True:
            try:
                answer = http.get("/metrics")
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline, f"the agent of {server} does not answer"
                time.sleep(0.02)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line)
        assert match, line
        found[match[1], match[2] or ""] = float(match[3])
    return found
