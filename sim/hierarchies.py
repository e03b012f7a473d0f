"""Who mends whom in RMTP and LBRM: regions and sites of a multicast tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rostrum.controller.core.packet.steiner import SteinerTree


@dataclass(frozen=True)
class Region:
    """`mender` repairs what `members` miss."""

    mender: str
    members: tuple[str, ...]


def regions(tree: SteinerTree) -> list[Region]:
    """RMTP's: one for each branching node of the tree, level upon level. Its designated receiver is the one nearest to
    the node, mends those that stand for the other branches, and stands for all of them above. So every receiver has one
    parent, and the sender has few children.
    """
    stands: dict[str, str] = {}  # node -> the receiver that stands for what is below
    depth, order = _order(tree)
    found = []
    for node in reversed(order):
        below = [stands[child] for child in tree.children[node] if child in stands]
        candidates = [node, *below] if node in tree.receivers else below
        if node == tree.sender:
            found.append(Region(node, tuple(candidates)))
        elif candidates:
            mender = min(candidates, key=lambda name: depth[name])
            others = tuple(name for name in candidates if name != mender)
            if others:
                found.append(Region(mender, others))
            stands[node] = mender
    return found


def sites(tree: SteinerTree, most: int) -> list[Region]:
    """LBRM's two tiers: the tree is cut where no more than `most` receivers are below; the nearest of them has the
    site's logging server. The sender has the primary one, which mends those.
    """
    depth, order = _order(tree)
    below: dict[str, list[str]] = {}
    for node in reversed(order):
        below[node] = [node] if node in tree.receivers else []
        for child in tree.children[node]:
            below[node] += below[child]
    found, waiting = [], [tree.sender]
    while waiting:
        node = waiting.pop()
        if node != tree.sender and len(below[node]) <= most:
            logger = min(below[node], key=lambda name: depth[name])
            found.append(Region(logger, tuple(name for name in below[node] if name != logger)))
            continue
        if node in tree.receivers:
            found.append(Region(node, ()))
        waiting += tree.children[node]
    return [Region(tree.sender, tuple(region.mender for region in found)), *(one for one in found if one.members)]


def way(tree: SteinerTree, a: str, b: str) -> list[str]:
    """The nodes from one to another along the tree, up and down."""
    up, down = tree.way(a), tree.way(b)
    shared = 0
    while shared < min(len(up), len(down)) and up[shared] == down[shared]:
        shared += 1
    return up[: shared - 2 : -1] + down[shared:] if shared > 1 else up[::-1] + down[1:]


def cut(tree: SteinerTree, mender: str, members: Iterable[str]) -> dict[str, list[str]]:
    """The part of a tree that leads from one receiver to others: what each node copies a packet to."""
    copies: dict[str, list[str]] = {}
    for member in members:
        nodes = way(tree, mender, member)
        for node, end in pairwise(nodes):
            ends = copies.setdefault(node, [])
            if end not in ends:
                ends.append(end)
    return copies


def hops(neighbours: Mapping[str, Sequence[str]], start: str, ends: Iterable[str]) -> dict[str, int]:
    """Links of a shortest path to each. Raises KeyError if there is none."""
    wanted, distance = set(ends), {start: 0}
    found = {start: 0} if start in wanted else {}
    queue = deque([start])
    while queue and len(found) < len(wanted):
        node = queue.popleft()
        for neighbour in neighbours[node]:
            if neighbour in distance:
                continue
            distance[neighbour] = distance[node] + 1
            queue.append(neighbour)
            if neighbour in wanted:
                found[neighbour] = distance[neighbour]
    return {end: found[end] for end in wanted}


def _order(tree: SteinerTree) -> tuple[dict[str, int], list[str]]:
    """Depths of all nodes, and the nodes, parents before children."""
    depth, order = {tree.sender: 0}, [tree.sender]
    for node in order:
        for child in tree.children[node]:
            depth[child] = depth[node] + 1
            order.append(child)
    return depth, order
