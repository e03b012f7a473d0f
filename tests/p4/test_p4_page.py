"""docs/p4.md: the client that reads a switch of a lab, as it stands there, on the reference target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
MANAGER = """
import asyncio, subprocess, sys
from pathlib import Path
import finsy as fy

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
words = ["--device-id", "1", "--grpc-server-addr", "127.0.0.1:9559", "--no-p4"]
target = subprocess.Popen([sys.executable, "-m", "rostrum.lab.p4target", *words], stdout=subprocess.PIPE, text=True)
assert "ready" in target.stdout.readline()


async def main():
    build = Path(sys.argv[1])
    files = {"p4info": build / "tor.p4info.txtpb", "p4blob": build / "tor.json"}
    options = fy.SwitchOptions(**files, device_id=1, initial_election_id=10)
    async with fy.Switch("tor1", "127.0.0.1:9559", options) as switch:
        action = fy.Action("forward", port=3)
        await switch.write([+fy.P4TableEntry("unicast", match=fy.Match(destination="10.0.0.1/32"), action=action)])
        page = await asyncio.create_subprocess_exec(sys.executable, sys.argv[2])
        assert await asyncio.wait_for(page.wait(), 60) == 0
        assert switch.is_primary


try:
    asyncio.run(main())
finally:
    target.terminate()
    target.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of its own needs root")
def test_client_of_the_page__reads_and_leaves_the_manager_the_primary(tmp_path: Path) -> None:
    script = re.search(r"^```python\n(.*?)^```", (TREE / "docs/p4.md").read_text(), re.MULTILINE | re.DOTALL)
    assert script
    (tmp_path / "tables.py").write_text(script[1])
    line = ["unshare", "--net", sys.executable, "-c", MANAGER, str(TREE / "p4src/build"), "tables.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"unicast .*destination.*forward.*port.*3", done.stdout), done.stdout
