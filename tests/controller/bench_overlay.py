"""How long the manager takes for trees and overlays: `python tests/controller/bench_overlay.py` prints medians.

BCube(8,3) has 4,096 servers; 1,000 of them receive. Aims: an overlay for 1,000 receivers below 20 ms, one join below
2 ms.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rostrum.controller.core.packet.steiner import SteinerTree
from rostrum.controller.core.rdcm.overlay import BackupOverlay
from rostrum.topologies.families import Graph, bcube, fat_tree

RECEIVERS, REPEATS, JOINS = 1_000, 15, 200


@contextmanager
def timed(rows: list[float]) -> Iterator[None]:
    """Adds the milliseconds of processor time that its block took."""
    began = time.process_time_ns()
    yield
    rows.append((time.process_time_ns() - began) / 1e6)


def measure(graph: Graph, seed: int) -> dict[str, float]:
    """Medians (ms) of a tree and an overlay for all receivers, of following a changed tree, of one join and leave."""
    rng = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in ("tree", "overlay", "follow", "join", "leave")}
    for _ in range(REPEATS):
        sender, *receivers = rng.sample(graph.servers, RECEIVERS + 1)
        with timed(found["tree"]):
            tree = SteinerTree.build(sender, receivers, graph.neighbours, graph.passes)
        with timed(found["overlay"]):
            overlay = BackupOverlay.build(sender, tree.children, receivers)
        with timed(found["follow"]):
            overlay.follow(tree.children)
        for name in rng.sample(receivers, JOINS // REPEATS):
            with timed(found["leave"]):
                tree.leave(name)
                overlay.leave(name)
            with timed(found["join"]):
                tree.join(name)
                overlay.join(name, tree.way(name))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    for graph in (bcube(8, 3), fat_tree(24)):
        text = ", ".join(f"{name} {ms:.2f} ms" for name, ms in measure(graph, 1).items())
        print(f"{graph.name}, {RECEIVERS} receivers: {text}")


if __name__ == "__main__":
    main()
