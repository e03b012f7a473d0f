"""Runs a program on BMv2 with real frames, for comparison with the reference target."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.interfaces import Batch, Interface

from tests.agent_e2e.network import Namespace
from tests.p4.target_client import DEVICE, Client, Failed, SetAction, Target
from tests.p4.target_programs import FOLDER, NAMES, PORTS, SEED, Frame, Update, config, counters, frames, updates

MISSING = "" if shutil.which("simple_switch_grpc") else "BMv2 is not installed (no simple_switch_grpc on the PATH)"
START_S = 30.0
EXPECTED_S = 2.0  # for a frame that the reference target gave
DIFFERENCES_MAX = 5
STRAGGLERS_S = 0.3
NOTHING_S = 0.03


def reference(name: str, seed: int, accepted: list[bool] | None = None) -> tuple[list[list[Any]], dict[str, Any]]:
    """What the reference target makes of a program's frames: for each frame what comes out, then counters and digests.
    `accepted`: which updates the other target took."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Target(f"unix:{folder}/p4.sock")) as target:
        target.primary()
        target.set_pipeline(SetAction.VERIFY_AND_COMMIT, config(name))
        taken = write(target, updates(name, seed))
        assert accepted is None or taken == accepted, "the targets took different entries"
        injected = [target.switch.inject(*frame) for frame in frames(name, seed)]
        out = [sorted([port, data.hex()] for port, data in found if port in PORTS) for found in injected]
        return out, {"accepted": taken, "counters": counters(target, name), "digests": digests(target)}


def write(client: Client, wanted: list[Update]) -> list[bool]:
    """Updates one by one; which of them were accepted."""
    taken = []
    for update in wanted:
        try:
            client.write(update)
        except Failed:
            taken.append(False)
        else:
            taken.append(True)
    return taken


def digests(client: Client) -> list[list[str]]:
    """The distinct digest messages that came, until no more come."""
    assert client.session is not None
    found = set()
    while True:
        try:
            message = client.session.messages.get(timeout=STRAGGLERS_S)
        except queue.Empty:
            return sorted(map(list, found))
        if isinstance(message, p4r.StreamMessageResponse) and message.WhichOneof("update") == "digest":
            for data in message.digest.data:
                found.add(tuple(member.bitstring.lstrip(b"\0").hex() for member in data.struct.members))


class Bmv2:
    """A running BMv2 with interfaces p1 ... and sockets on the far ends."""

    def __init__(self, folder: Path) -> None:
        self.namespace, self.batch = Namespace(), Batch()
        for port in PORTS:
            self.namespace.ip("link", "add", f"p{port}", "mtu", "9000", "type", "veth", "peer", f"h{port}")
        self.namespace.run("sh", "-c", "for i in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$i; done")
        for port in PORTS:
            self.namespace.ip("link", "set", f"p{port}", "up")
            self.namespace.ip("link", "set", f"h{port}", "up")
        self.sockets: dict[int, Interface] = {}
        opener = threading.Thread(target=self._open)
        opener.start()
        opener.join()
        address = f"unix:{folder / 'bmv2.sock'}"
        ports = [word for port in PORTS for word in ("-i", f"{port}@p{port}")]
        command = ["simple_switch_grpc", "--no-p4", "--device-id", str(DEVICE), *ports]
        command += ["--", "--grpc-server-addr", address, "--priority-queues", "8"]
        with (folder / "bmv2.log").open("w") as log:
            self.process = subprocess.Popen(
                [*self.namespace.prefix(), "setpriv", "--pdeathsig", "KILL", "--", *command], stdout=log, stderr=log
            )
        end = time.monotonic() + START_S
        while not (folder / "bmv2.sock").exists():
            assert self.process.poll() is None and time.monotonic() < end, (folder / "bmv2.log").read_text()
            time.sleep(0.02)
        self.client = Client(address)

    def _open(self) -> None:
        self.namespace.enter_thread()
        for port in PORTS:
            self.sockets[port] = Interface(port, f"h{port}")

    def exchange(self, frame: Frame, count: int, bound_s: float) -> list[list[Any]]:
        """Sends a frame; what came until there are so many. For none it is waited a moment: BMv2 does not take frames
        of different ports in the order in which they came."""
        port, data = frame
        assert self.sockets[port].send(data)
        return self.receive(count, bound_s) if count else self.receive(1 << 30, NOTHING_S)

    def receive(self, count: int, bound_s: float) -> list[list[Any]]:
        found: list[list[Any]] = []
        end = time.monotonic() + bound_s
        while len(found) < count and (left := end - time.monotonic()) > 0:
            select.select(list(self.sockets.values()), [], [], left)
            for port, one in self.sockets.items():
                found += [[port, data.hex()] for data in self.batch.receive(one.fileno())]
        return sorted(found)

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(START_S)
        for one in self.sockets.values():
            one.close()
        self.namespace.close()


@contextlib.contextmanager
def running() -> Iterator[Bmv2]:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Bmv2(Path(folder))) as bmv2:
        yield bmv2


def compare(name: str, seed: int) -> dict[str, Any]:
    """What BMv2 makes of a program's frames, and how the reference target differs: `differences`, as text."""
    differences: list[str] = []
    with running() as bmv2:
        client = bmv2.client
        client.primary()
        client.set_pipeline(SetAction.VERIFY_AND_COMMIT, config(name))
        accepted = write(client, updates(name, seed))
        expected, rest = reference(name, seed)
        if accepted != rest["accepted"]:
            wrong = [
                f"{update}"
                for update, a, b in zip(updates(name, seed), accepted, rest["accepted"], strict=True)
                if a != b
            ]
            return {"differences": [f"accepted by one only: {' '.join(wrong)}"]}
        out = []
        for number, frame in enumerate(frames(name, seed)):
            found = bmv2.exchange(frame, len(expected[number]), EXPECTED_S)
            out.append(found)
            if found != expected[number]:
                differences.append(
                    f"frame {number}, {frame[1].hex()} at {frame[0]}: BMv2 {found}, ours {expected[number]}"
                )
                if len(differences) >= DIFFERENCES_MAX:
                    break
        if extra := bmv2.receive(1 << 30, STRAGGLERS_S):
            differences.append(f"BMv2 sent more: {extra}")
        result = {"seed": seed, "accepted": accepted, "out": out, "counters": counters(client, name)}
        result["digests"] = digests(client)
    for what in ("counters", "digests"):
        if result[what] != rest[what]:
            differences.append(f"{what}: BMv2 {result[what]}, ours {rest[what]}")
    return {**result, "differences": differences}


def main() -> int:
    """Records what BMv2 makes of every program, if the reference target makes the same of it."""
    for name in NAMES:
        found = compare(name, SEED)
        if found["differences"]:
            print(f"{name}: not recorded:", *found["differences"], sep="\n  ")
            return 1
        del found["differences"]
        lines = [f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in found.items()]
        (FOLDER / f"{name}.recorded.json").write_text("{" + ",\n".join(lines).replace("],[[", "],\n[[") + "}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
