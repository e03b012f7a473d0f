"""Starts BMv2 with deeper queues: `python -m rostrum.lab.bmv2 DEPTH THRIFT_PORT -- simple_switch_grpc ...`.

Its queues hold 64 packets, less than a busy machine lets come together, and no option says otherwise: only its
debugging interface (Thrift) does. A child of this process asks for it; the process itself becomes the switch.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

TIMEOUT_S = 20.0
CALL = b"simple_switch:set_all_egress_queue_depths"
STRICT_CALL = 0x80010001  # Thrift's binary protocol, version 1, a call
REPLY = 2
I32, STOP = 8, 0


def set_depth(port: int, packets: int) -> None:
    """Raises OSError if nobody listens there, ValueError if it is refused."""
    message = struct.pack("!II", STRICT_CALL, len(CALL)) + CALL + struct.pack("!I", 1)
    message += struct.pack("!BhiB", I32, 1, packets, STOP)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as link:
        link.sendall(message)
        answer = link.recv(4096)
    if len(answer) < 4 or answer[3] != REPLY:
        raise ValueError(f"it answered {answer[:80]!r}")


def _ask(port: int, packets: int) -> str:
    """Tries until the switch listens; what came of it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            set_depth(port, packets)
            return f"queues hold {packets} packets"
        except ValueError as error:
            return f"queues keep their depth: {error}"
        except OSError as error:
            if time.monotonic() > deadline:
                return f"queues keep their depth: no Thrift server at port {port}: {error}"
            time.sleep(0.05)


def main(argv: list[str]) -> None:
    depth, port, _, *switch = argv
    if os.fork() == 0:
        print(_ask(int(port), int(depth)), file=sys.stderr, flush=True)
        os._exit(0)
    os.execvp(switch[0], switch)


if __name__ == "__main__":
    main(sys.argv[1:])
