"""What stands on the client, with the programs that it serves: PyTorch, pandas, Arrow, Dask, skopeo.

Their environments are those of `.ci/setup apps`. The agent is a server's real application interface (conftest.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rostrum.client.mirror import Mirror
from rostrum.client.oci import Layout

from tests.client.conftest import ROOT, Server
from tests.client.test_preheat import image

pytestmark = pytest.mark.apps

BOUND_S = 300
READERS = ROOT / "build" / "apps" / "bin" / "python"
ENGINE = ROOT / "build" / "engine" / "bin" / "python"
DEBIAN = "/usr/bin/python3"
HERE = Path(__file__).parent


def run(server: Server, *command: str) -> subprocess.Popen[str]:
    settings = {**os.environ, "ROSTRUM_SOCKET": str(server.socket), "PYTHONPATH": str(ROOT / "build" / "python")}
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=BOUND_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    return output


@pytest.fixture
def torch() -> None:
    if subprocess.run([DEBIAN, "-c", "import torch.distributed"], capture_output=True, check=False).returncode:
        pytest.skip("needs Debian's python3-torch: run .ci/setup apps")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


@pytest.mark.timeout(BOUND_S)
def test_pandas_arrow_and_dask_read_objects(server: Server) -> None:
    if not READERS.exists():
        pytest.skip("needs build/apps: run .ci/setup apps")
    assert "right" in end(run(server, str(READERS), str(HERE / "fs_reads.py")))


@pytest.mark.timeout(BOUND_S)
def test_a_group_of_torch_broadcasts_by_rostrum_and_does_the_rest_by_gloo(
    start: Callable[..., Server], torch: None
) -> None:
    server, port = start(quota=256 << 20), free_port()
    ranks = [run(server, DEBIAN, str(HERE / "torch_ranks.py"), "group", str(rank), "3", port) for rank in range(3)]
    for output in [end(rank) for rank in ranks]:
        assert "right" in output
    with server.agent() as agent:
        assert agent.status().objects == ()  # the last process of a server that had a tensor deletes it


@pytest.mark.timeout(BOUND_S)
@pytest.mark.parametrize("what", ["weights", "adapters"])
def test_weights_are_published_and_mapped(what: str, start: Callable[..., Server], torch: None) -> None:
    assert "right" in end(run(start(quota=256 << 20), DEBIAN, str(HERE / "torch_ranks.py"), what))


@pytest.mark.timeout(BOUND_S)
@pytest.mark.parametrize("program", ["engine", "sglang"])
def test_programs_that_serve_models_get_weights_by_their_own_calls(
    program: str, start: Callable[..., Server], torch: None
) -> None:
    python = str(ENGINE) if program == "engine" else DEBIAN
    if not Path(python).exists():
        pytest.skip("needs build/engine, which has checkpoint-engine: run .ci/setup apps")
    server, port = start(quota=256 << 20), free_port()
    ranks = [run(server, python, str(HERE / "torch_ranks.py"), program, str(rank), "2", port) for rank in range(2)]
    for output in [end(rank) for rank in ranks]:
        assert "right" in output


@pytest.mark.timeout(BOUND_S)
def test_skopeo_copies_from_the_mirror(tmp_path: Path) -> None:
    if not shutil.which("skopeo"):
        pytest.skip("needs Debian's skopeo: run .ci/setup apps")
    image(tmp_path / "layout", [], "app:v1")
    [(_, manifest, _)] = Layout(tmp_path / "layout").images()
    with Mirror(Layout(tmp_path / "layout"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            base = ["skopeo", "--insecure-policy", "copy", "--src-tls-verify=false"]
            place = f"docker://127.0.0.1:{server.server_port}/app"
            done = subprocess.run([*base, f"{place}:v1", f"oci:{tmp_path / 'copy'}:v1"], capture_output=True, text=True,
                                  timeout=BOUND_S, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
            gone = subprocess.run([*base, f"{place}:v2", f"oci:{tmp_path / 'copy'}:v2"], capture_output=True, text=True,
                                  timeout=BOUND_S, check=False)  # fmt: skip
            assert gone.returncode != 0 and "manifest unknown" in gone.stderr.lower(), gone.stderr
        finally:
            server.shutdown()
            thread.join()
    copied = Layout(tmp_path / "copy").images()[0][1]
    assert copied.digest == manifest.digest
    assert hashlib.sha256(Layout(tmp_path / "copy").manifest(copied.digest)).hexdigest() in copied.digest
