"""Run by test_torch.py of agent_e2e with Debian's PyTorch: a rank that does what it is told, a line each.

torch_told.py RANK SIZE PORT TIMEOUT

join NAME             a group of that name, of the job's store; answers `joined`
broadcast ROOT SEED   32 MiB of that rank; answers `right`, or `failed WHY`
killed ROOT SEED S    the same, and this rank is killed after S seconds, whatever it does then
leave                 the group is destroyed; answers `left`
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading

import rostrum.torch  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist

SIZE = 32 << 20


def main(rank: int, size: int, port: int, timeout_s: float) -> None:
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=datetime.timedelta(seconds=60))
    print("ready", flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        if what == "join":
            dist.init_process_group("rostrum", store=dist.PrefixStore(words[0], store), rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=timeout_s))  # fmt: skip
            why = dist.distributed_c10d._get_default_group().why_gloo
            print(why or "joined", flush=True)
        elif what == "leave":
            dist.destroy_process_group()
            print("left", flush=True)
        else:
            root, seed = int(words[0]), int(words[1])
            if what == "killed":
                threading.Timer(float(words[2]), os.kill, (os.getpid(), signal.SIGKILL)).start()
            right = torch.randint(0, 256, (SIZE,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
            tensor = right.clone() if rank == root else torch.zeros_like(right)
            try:
                dist.broadcast(tensor, root)
            except RuntimeError as error:
                print("failed", str(error).replace("\n", " "), flush=True)
            else:
                print("right" if torch.equal(tensor, right) else "wrong", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
