"""CPU time that the reference target takes for a frame of the ToR program, on real interfaces.

python -m tests.p4.target_cost      as root
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import tempfile
import time

from finsy import P4MulticastGroupEntry, P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.p4entity import encode_updates
from finsy.proto import U128, p4r
from rostrum.lab.p4target.pipeline import csum16

from tests.p4.target_client import DEVICE, Client
from tests.p4.test_target_frames import PORTS, Wire
from tests.tidy.tree import ROOT

PROGRAM, INFO = ROOT / "p4src/build/tor.json", ROOT / "p4src/build/tor.p4info.txtpb"
GROUP, SERVER = "239.0.1.1", "10.0.0.2"
TICKS_PER_S = 100
WINDOW = 256  # frames on their way, so that nothing overflows
REPETITIONS, FRAMES, BOUND_S = 5, 10000, 60.0


def datagram(destination: str, payload: bytes) -> bytes:
    udp = b"\x1b\x9e\x1b\x9e" + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload
    address = bytes(int(part) for part in destination.split("."))
    head = b"\x45\0" + (20 + len(udp)).to_bytes(2, "big") + b"\0\0\0\0\x40\x11\0\0\x0a\0\0\1" + address
    return bytes(12) + b"\x08\0" + head[:10] + csum16(head).to_bytes(2, "big") + head[12:] + udp


def set_up(client: Client) -> None:
    """Port 1 sends: to a server at port 2, and to a group at all others."""

    def entry(table: str, match: P4TableMatch | None, action: str, **parameters: int) -> P4TableEntry:
        return P4TableEntry(table, match=match, action=P4TableAction(action, **parameters))

    queues = P4TableEntry("egress_queues", is_default_action=True, action=P4TableAction("set_queues", count=8))
    updates = [
        +P4MulticastGroupEntry(1, replicas=[(port, port) for port in PORTS if port != 1]),
        +entry("group_range", P4TableMatch(group="239.0.0.0/8"), "guard"),
        +entry("priority_tags", P4TableMatch(level=5), "tag", dscp=46, pcp=5, queue=5),
        +entry("unicast", P4TableMatch(destination=f"{SERVER}/32"), "forward", port=2),
        +entry("admission", P4TableMatch(ingress_port=1, group=GROUP), "grant"),
        +entry("multicast", P4TableMatch(ingress_port=1, group=GROUP), "replicate", replication=1, level=5),
        ~queues,
    ]
    encoded = encode_updates(updates, P4Schema(INFO, PROGRAM))
    client.call("Write", p4r.WriteRequest(device_id=DEVICE, election_id=U128.encode(1), updates=encoded))


def cpu_s(process: int) -> tuple[float, float]:
    """User and system time."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def run(wire: Wire, process: int, frame: bytes, ports: tuple[int, ...]) -> tuple[float, float]:
    """User and system time for a frame in, in us."""
    before, end = cpu_s(process), time.monotonic() + BOUND_S
    sent, got = 0, dict.fromkeys(ports, 0)
    while min(got.values()) < FRAMES:
        assert time.monotonic() < end, f"{got} of {sent} frames came"
        while sent < FRAMES and sent - min(got.values()) < WINDOW:
            wire.send(1, frame)
            sent += 1
        select.select([wire.sockets[port] for port in ports], [], [], 1.0)
        for port in ports:
            got[port] += len(wire.batch.receive(wire.sockets[port].fileno()))
    after = cpu_s(process)
    return tuple((b - a) / FRAMES * 1e6 for a, b in zip(before, after, strict=True))  # type: ignore[return-value]


def main() -> int:
    rostrum = b"SR\x01" + bytes(45)
    kinds = {
        f"{name}, {size} bytes": (datagram(to, rostrum + bytes(size - 90)), ports)
        for size in (1414, 9014)
        for name, to, ports in (("unicast", SERVER, (2,)), ("multicast to 2 ports", GROUP, (2, 3)))
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Wire()) as wire:
        address = f"unix:{folder}/p4.sock"
        command = [sys.executable, "-m", "rostrum.lab.p4target", "--device-id", str(DEVICE), "--grpc", address]
        command += [word for port in PORTS for word in ("-i", f"{port}@p{port}")]
        command += ["--p4", str(PROGRAM), "--p4info", str(INFO), "--log-level", "warn"]
        whole = [*wire.namespace.prefix(), "setpriv", "--pdeathsig", "KILL", "--", *command]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("p4target: ready"), "the target did not start"
            with contextlib.closing(Client(address)) as client:
                client.primary()
                set_up(client)
                for _ in range(REPETITIONS):
                    for name, (frame, ports) in kinds.items():
                        user, system = run(wire, process.pid, frame, ports)
                        print(f"{name}: {user:.0f} us user + {system:.0f} us system a frame", flush=True)
            process.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
