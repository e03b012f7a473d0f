"""`security: required`, at the doors of the manager and of the devices: who shows nothing, an older TLS or a
certificate of something else gets nowhere, and the lab works all the same.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rostrum.lab.lab import Lab
from rostrum.lab.processes import OPEN_VSWITCH

from tests.lab.objects import check, data_of, send

pytestmark = pytest.mark.lab
QUICK = {"emulation.reconfiguration.mean_ms": 20, "ocs.ocs.reconfiguration_ms": 20}
# Connects by TLS as told, says a word, and prints what it heard, or why it heard nothing.
VISITOR = """
import socket, ssl, sys
address, port, folder, name, version, said = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.load_verify_locations(folder + "/ca.pem")
if name:
    context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
if version == "1.2":
    context.maximum_version = ssl.TLSVersion.TLSv1_2
try:
    with socket.create_connection((address, int(port)), timeout=20) as plain:
        with plain if version == "none" else context.wrap_socket(plain) as link:
            link.sendall(said.encode().decode("unicode_escape").encode("latin-1"))
            heard = b""
            while len(heard) < 4096 and (part := link.recv(4096)):
                heard += part
                if b"}" in part or said.startswith("ACT") or said.startswith("PRI"):
                    break
            print(repr(heard))
except (OSError, ssl.SSLError) as error:
    print("refused:", error)
"""
GET = "GET /v1/health HTTP/1.1\\r\\nHost: manager\\r\\nConnection: close\\r\\n\\r\\n"
HELLO = "\\x04\\x00\\x00\\x08\\x00\\x00\\x00\\x01"  # OpenFlow 1.3
H2 = "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\x00\\x00\\x00\\x04\\x00\\x00\\x00\\x00\\x00"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name="t-doors", switch="mixed", changes=QUICK, seed=1, secure=True) as lab:
        yield lab


def visit(lab: Lab, door: tuple[str, int], said: str, name: str = "", version: str = "1.3") -> str:
    address, port = door
    folder = str(lab.run / "certificates")
    out = lab.popen("manager", [sys.executable, "-c", VISITOR, address, str(port), folder, name, version, said],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    heard, _ = out.communicate(timeout=60)
    return heard.strip()


def nothing(heard: str) -> bool:
    return heard.startswith("refused:") or heard == "b''"


def test_objects_arrive(lab: Lab) -> None:
    data = data_of(500_000, 1)
    check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)


def test_rest_is_for_operators_and_readers(lab: Lab) -> None:
    door = (str(lab.topology.manager.address), lab.topology.manager.rest_port)
    for name in ("operator", "reader"):
        assert "200 OK" in visit(lab, door, GET, name)
    assert "403" in visit(lab, door, GET, "h1") and "worth nothing here" in visit(lab, door, GET, "h1")
    for name, version in (("", "1.3"), ("operator", "1.2"), ("", "none")):
        assert nothing(visit(lab, door, GET, name, version))


def test_switches_alone_come_in_as_switches(lab: Lab) -> None:
    door = (str(lab.topology.manager.address), lab.topology.manager.openflow_port)
    for name, version in (("", "1.3"), (OPEN_VSWITCH, "1.2"), ("", "none")):
        assert nothing(visit(lab, door, HELLO, name, version))
    # Any certificate of the CA gets a hello; it is a switch with its name and datapath id only.
    core = next(one for one in lab.topology.switches.values() if one.southbound == "openflow")
    handshake = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, core.dpid, 256, 254, 0, 0, 0, 0)
    handshake += struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)
    visit(lab, door, HELLO + "".join(f"\\x{byte:02x}" for byte in handshake), "h1")
    said = (lab.run / "manager.log").read_text()
    assert f"it is {core.name}, and its certificate is for h1 (agent)" in said


def test_devices_take_no_plain_word(lab: Lab) -> None:
    ocs = lab.topology.ocs["ocs"]
    tl1 = (str(ocs.address), ocs.management_port)
    login = f"ACT-USER::{ocs.user}:1::x;"
    for name, version in (("", "1.3"), ("", "none")):
        assert nothing(visit(lab, tl1, login, name, version))
    p4 = lab.topology.switches["tor1"].p4
    assert p4
    for name, version in (("", "1.3"), ("", "none")):
        assert nothing(visit(lab, (str(p4.address), p4.port), H2, name, version))


def test_no_secret_is_in_topology_log_or_process_list(lab: Lab) -> None:
    secret = (lab.run / "ocs.password").read_text().strip()
    assert len(secret) > 20 and (lab.run / "ocs.password").stat().st_mode & 0o077 == 0
    shown = lab.execute("manager", ["ps", "-eo", "args", "-ww"])
    assert "rostrum.controller" in shown and secret not in shown
    for file in (lab.run / "topology.yaml", lab.run / "manager.log", lab.run / "ocs.log", lab.run / "lab.json"):
        assert secret not in file.read_text(), file
    pid = lab.status()["programs"]["manager"]["pid"]
    limits = lab.execute("manager", ["cat", f"/proc/{pid}/limits"])
    assert re.search(r"Max core file size +0 +0 ", limits)
    assert secret not in str(lab.rest.get("/v1/topology")) and secret not in str(lab.ocs_state())
