"""Agents and manager by TLS, with certificates made as docs/care.md says: objects arrive, managers die and come back,
and who shows a wrong certificate is refused with a reason at both ends until it is mended.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rostrum.client import Agent
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

from tests.lab.objects import check, data_of, send, until

pytestmark = pytest.mark.lab

CARE = Path(__file__).parents[2] / "docs" / "care.md"
QUICK = {
    "emulation.reconfiguration.mean_ms": 20,
    "emulation.ringing.duration_ms": 2,
    "ocs.ocs.reconfiguration_ms": 20,
}


def made_by_the_book(folder: Path) -> Path:
    """The certificates of docs/care.md, by its commands as they are written."""
    found = re.search(r"### Agents by TLS\n.*?```sh\n(.*?)```", CARE.read_text(), re.DOTALL)
    assert found
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-euc", found[1]], cwd=folder, check=True, capture_output=True, timeout=180,
                   env={**os.environ, "PATH": path})  # fmt: skip
    return folder / "certificates"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_by_the_book(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_by_the_book(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def lab(certificates: Path) -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name="t-tls", changes=QUICK, seed=1, certificates=str(certificates)) as made:
        yield made


def connected(lab: Lab) -> set[str]:
    try:
        return {row["server"] for row in lab.rest.get("/v1/agents")["agents"] if row["connected"]}
    except LabError:
        return set()


def everyone(lab: Lab) -> bool:
    return connected(lab) == set(lab.topology.servers)


def logged(lab: Lab, who: str, text: str) -> bool:
    file = lab.run / "manager.log" if who == "manager" else lab.run / who / "agent.log"
    return text in file.read_text()


def put(source: Path, name: str, target: Path, as_name: str = "") -> None:
    """A certificate and its key in place of others."""
    for ending in ("pem", "key"):
        draft = target / "draft"
        shutil.copy(source / f"{name}.{ending}", draft)
        draft.rename(target / f"{as_name or name}.{ending}")


@contextmanager
def shown_instead(source: Path, name: str, target: Path, aside: Path, as_name: str = "") -> Iterator[None]:
    """In `target`, the certificate of `as_name` is that of `name` in `source` for a while. `aside`: an empty folder."""
    put(target, as_name or name, aside)
    put(source, name, target, as_name)
    try:
        yield
    finally:
        put(aside, as_name or name, target)


def restart(lab: Lab, program: str) -> None:
    lab.kill(program)
    lab.start_program(program)


def test_objects_arrive(lab: Lab) -> None:
    data = data_of(3_000_000, 1)
    check(lab, send(lab, "h1", ["h3", "h5", "h8"], data), ["h3", "h5", "h8"], data)
    shown = lab.execute("h1", ["openssl", "s_client", "-connect", "10.255.0.1:9090", "-no_ign_eof"], check=False)
    assert "rostrum CA" in shown and "TLSv1.3" in shown


def test_manager_that_was_killed_is_found_again(lab: Lab) -> None:
    restart(lab, "manager")
    until(lambda: everyone(lab), "all agents at the new manager")
    data = data_of(1_000_000, 2)
    check(lab, send(lab, "h2", ["h4", "h6"], data), ["h4", "h6"], data)


def test_certificate_of_another_ca_is_refused_until_it_is_mended(
    lab: Lab, certificates: Path, strangers: Path, tmp_path: Path
) -> None:
    with shown_instead(strangers, "h4", certificates, tmp_path):
        restart(lab, "h4")
        until(lambda: logged(lab, "h4", "h4.pem: no CA that it knows has signed it"), "text of the agent")
        until(lambda: logged(lab, "manager", 'cause="its certificate is refused: '), "text of the manager")
        assert connected(lab) == set(lab.topology.servers) - {"h4"}
        with Agent(lab.agent_socket("h4")) as agent:
            status = agent.status()
            assert not status.manager_up and "it refuses the certificate" in status.manager
    until(lambda: everyone(lab), "the agent with its own certificate, without a restart")


def test_agent_cannot_take_the_place_of_another_server(lab: Lab, certificates: Path, tmp_path: Path) -> None:
    text = "the agent calls itself h5, and its certificate is for h3 (agent)"
    with shown_instead(certificates, "h3", certificates, tmp_path, as_name="h5"):
        restart(lab, "h5")
        for who in ("h5", "manager"):
            until(lambda who=who: logged(lab, who, text), f"text of {who}")  # type: ignore[misc]
        assert connected(lab) == set(lab.topology.servers) - {"h5"}
    until(lambda: everyone(lab), "the agent with its own certificate, without a restart")


def test_operators_and_switches_cannot_take_the_place_of_an_agent(lab: Lab, certificates: Path, tmp_path: Path) -> None:
    for number, (name, role) in enumerate((("admin", "operator"), ("tor1", "switch"))):
        aside = tmp_path / str(number)
        aside.mkdir()
        text = f"the agent calls itself h6, and its certificate is for {name} ({role})"
        with shown_instead(certificates, name, certificates, aside, as_name="h6"):
            restart(lab, "h6")
            until(lambda text=text: logged(lab, "manager", text), "text of the manager")  # type: ignore[misc]
            assert connected(lab) == set(lab.topology.servers) - {"h6"}
        until(lambda: everyone(lab), "the agent with its own certificate, without a restart")


def test_agents_leave_a_manager_that_shows_a_wrong_certificate(
    lab: Lab, certificates: Path, strangers: Path, tmp_path: Path
) -> None:
    with shown_instead(strangers, "manager", certificates, tmp_path):
        restart(lab, "manager")
        for server in lab.topology.servers:
            until(lambda server=server: logged(lab, server, "is not signed by the CA in"), server)  # type: ignore[misc]
        text = "it refuses this manager's certificate or TLS (unknown ca)"
        until(lambda: logged(lab, "manager", text), "text of the manager")
        assert not connected(lab)
    until(lambda: everyone(lab), "all agents, without a restart of the manager")
