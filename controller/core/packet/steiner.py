"""Multicast trees in any graph, changed as little as possible when receivers come and go.

The shortest-path heuristic for Steiner trees (Takahashi and Matsuyama, 1980): each receiver is joined to the nearest
node that the tree has, over nodes that may pass packets on; within twice the least number of links. What `leave` no
longer needs is taken away; nothing else moves.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

Link = tuple[str, str]


class Unreachable(Exception):
    """No way leads from the tree to `receivers`; they are not in it, everything else is as asked for."""

    def __init__(self, text: str, receivers: Sequence[str]) -> None:
        super().__init__(text)
        self.receivers = tuple(receivers)


class SteinerTree:
    """From `sender` to receivers. `neighbours`: of every node; `passes`: whether a node forwards packets of others.
    `spread`: a number; trees of other numbers choose other ones of equally short ways.
    """

    def __init__(
        self,
        sender: str,
        neighbours: Mapping[str, Sequence[str]],
        passes: Callable[[str], bool],
        failed: Collection[Link] = (),
        spread: int = 0,
    ) -> None:
        self.sender = sender
        self.receivers: set[str] = set()
        self.parents: dict[str, str] = {}
        self.children: dict[str, list[str]] = {sender: []}
        self._neighbours, self._passes = neighbours, passes
        self._failed: set[Link] = set()
        self._spread = spread
        self.avoid(failed)

    @classmethod
    def build(
        cls,
        sender: str,
        receivers: Iterable[str],
        neighbours: Mapping[str, Sequence[str]],
        passes: Callable[[str], bool],
        failed: Collection[Link] = (),
    ) -> SteinerTree:
        """Receivers near the sender first: later ones find more of the tree. Raises Unreachable."""
        tree = cls(sender, neighbours, passes, failed)
        tree.join_all(receivers)
        return tree

    @classmethod
    def shortest(
        cls,
        sender: str,
        receivers: Collection[str],
        neighbours: Mapping[str, Sequence[str]],
        passes: Callable[[str], bool],
        failed: Collection[Link] = (),
    ) -> SteinerTree:
        """Every receiver at the end of a shortest way: some more links than `build` has, but fewer for a packet to be
        lost on. Level by level towards the sender, first over nodes that are in the tree anyway, then over those that
        reach most of what is left. Raises Unreachable.
        """
        tree = cls(sender, neighbours, passes, failed)
        depth = tree._depths()
        if cut_off := [name for name in receivers if name not in depth or name == sender]:
            raise Unreachable(f"no way leads to {', '.join(cut_off)}", cut_off)
        levels: list[set[str]] = [set() for _ in range(max((depth[name] for name in receivers), default=0) + 1)]
        for name in receivers:
            levels[depth[name]].add(name)
        for below, above in pairwise(reversed(levels)):
            tree._cover(below, above, depth)
        tree.receivers = set(receivers)
        return tree

    @classmethod
    def of(
        cls,
        sender: str,
        parents: Mapping[str, str],
        receivers: Iterable[str],
        neighbours: Mapping[str, Sequence[str]],
        passes: Callable[[str], bool],
        spread: int = 0,
    ) -> SteinerTree:
        """A tree that is there already: `parents` of every node but the sender."""
        tree = cls(sender, neighbours, passes, spread=spread)
        tree.receivers = set(receivers)
        tree.parents = dict(parents)
        for child, parent in tree.parents.items():
            tree.children.setdefault(child, [])
            tree.children.setdefault(parent, []).append(child)
        return tree

    def with_leaves(self, leaves: Mapping[str, Sequence[str]]) -> SteinerTree:
        """A copy whose receivers are `leaves`, new nodes, by the node of the tree that each hangs on."""
        made = SteinerTree(self.sender, self._neighbours, self._passes, spread=self._spread)
        made._failed = set(self._failed)
        made.parents = self.parents.copy()
        made.children = {node: children[:] for node, children in self.children.items()}
        made.receivers = set()
        for node, names in leaves.items():
            made.children[node] += names
            made.receivers.update(names)
            for name in names:
                made.parents[name] = node
                made.children[name] = []
        return made

    def join_all(self, receivers: Iterable[str], depths: Mapping[str, int] | None = None) -> None:
        """Those near the sender first. `depths`: of every node, if known. Raises Unreachable naming all that are cut
        off; the others have joined.
        """
        wanted = list(receivers)
        distance = self._distances(wanted) if depths is None else depths
        cut_off = []
        for name in sorted(wanted, key=lambda name: distance.get(name, 0)):
            try:
                self._join(name)
            except Unreachable as error:
                cut_off.append((name, str(error)))
        if cut_off:
            raise Unreachable("; ".join(text for _, text in cut_off), [name for name, _ in cut_off])

    @property
    def links(self) -> frozenset[Link]:
        return frozenset((parent, child) for child, parent in self.parents.items())

    def way(self, receiver: str) -> list[str]:
        """The nodes from the sender to a receiver, both included."""
        nodes = [receiver]
        while nodes[-1] != self.sender:
            nodes.append(self.parents[nodes[-1]])
        return nodes[::-1]

    def join(self, receiver: str) -> frozenset[Link]:
        """Returns the links that were added. Raises Unreachable."""
        return frozenset((parent, child) for child, parent in pairwise(self._join(receiver)))

    def _join(self, receiver: str) -> list[str]:
        """The way from the receiver to where the tree was; empty = it was in the tree. Raises Unreachable."""
        if receiver == self.sender:
            raise Unreachable(f"{receiver} is the sender", [receiver])
        children, parents = self.children, self.parents
        if receiver in children:
            self.receivers.add(receiver)
            return []
        way = self._nearest(receiver)
        self.receivers.add(receiver)
        children[receiver] = []
        child = receiver
        for parent in way[1:]:
            parents[child] = parent
            there = children.get(parent)
            if there is None:
                children[parent] = [child]
            else:
                there.append(child)
            child = parent
        return way

    def leave(self, receiver: str) -> frozenset[Link]:
        """Returns the links that are no longer needed."""
        self.receivers.discard(receiver)
        removed, node = [], receiver
        while node in self.parents and not self.children[node] and node not in self.receivers:
            parent = self.parents.pop(node)
            del self.children[node]
            self.children[parent].remove(node)
            removed.append((parent, node))
            node = parent
        return frozenset(removed)

    def fail(self, links: Iterable[Link]) -> tuple[frozenset[Link], frozenset[Link]]:
        """Links (either way) that are not used from now on: whoever was reached over them is joined again. Returns
        (added, removed). Raises Unreachable naming receivers that are cut off; the others have been joined.
        """
        before = self.links
        for a, b in links:
            self._failed |= {(a, b), (b, a)}
        self.reroute()
        return self.links - before, before - self.links

    def avoid(self, links: Collection[Link]) -> None:
        """Exactly these links (either way) are not to be used from now on; nobody is moved."""
        self._failed = {*links, *((b, a) for a, b in links)}

    def reroute(self) -> frozenset[str]:
        """Who is reached over links to be avoided is joined again; returns them. Raises Unreachable as `fail`."""
        lost = [name for name in sorted(self.receivers) if self._uses_failed(name)]
        for name in lost:
            self.leave(name)
        self.join_all(lost)
        return frozenset(lost)

    def restore(self, links: Iterable[Link]) -> None:
        """Links may be used again; nobody is moved to them."""
        for a, b in links:
            self._failed -= {(a, b), (b, a)}

    def _uses_failed(self, receiver: str) -> bool:
        way = self.way(receiver)
        return any(link in self._failed for link in pairwise(way))

    def _sound(self, node: str) -> bool:
        return not any(link in self._failed for link in pairwise(self.way(node)))

    def _nearest(self, receiver: str) -> list[str]:
        """From the receiver to the nearest node of the tree that may pass packets on to it."""
        children = self.children
        came_from: dict[str, str | None] = {receiver: None}
        queue = deque([receiver])
        while queue:
            node = queue.popleft()
            around = self._around(node)
            for neighbour in around:  # first: a core has hundreds
                if neighbour in children and self._takes(neighbour, node):
                    came_from[neighbour] = node
                    return self._trace(came_from, neighbour)
            for neighbour in around:
                if neighbour in children or neighbour in came_from or (neighbour, node) in self._failed:
                    continue
                if self._passes(neighbour):
                    came_from[neighbour] = node
                    queue.append(neighbour)
        raise Unreachable(f"no way leads to {receiver}", [receiver])

    def _takes(self, node: str, receiver: str) -> bool:
        """Whether a node of the tree may pass packets on to a neighbour."""
        if node != self.sender and not self._passes(node):
            return False
        return not self._failed or ((node, receiver) not in self._failed and self._sound(node))

    def _depths(self) -> dict[str, int]:
        """Links from the sender to each node that it reaches."""
        depth = {self.sender: 0}
        queue = deque([self.sender])
        while queue:
            node = queue.popleft()
            for near in self._neighbours.get(node, ()):
                if near not in depth and (node, near) not in self._failed:
                    depth[near] = depth[node] + 1
                    if self._passes(near):
                        queue.append(near)
        return depth

    def _cover(self, below: Collection[str], above: set[str], depth: Mapping[str, int]) -> None:
        """Gives each node in `below` a parent one level up; `above`: those that are in the tree anyway, and grows."""
        behind: dict[str, set[str]] = {}
        for child in sorted(below):
            for near in self._neighbours[child]:
                passes = near == self.sender or self._passes(near)
                if depth.get(near) == depth[child] - 1 and passes and (near, child) not in self._failed:
                    behind.setdefault(near, set()).add(child)
        left = set(below)
        # Those that are there first; then by what they reach, which becomes less as others are taken.
        order = [((0, 0) if node in above else (1, -len(reached)), node) for node, reached in behind.items()]
        heapq.heapify(order)
        while left:
            (new, count), node = heapq.heappop(order)
            reached = behind[node] & left
            if new and len(reached) != -count:
                heapq.heappush(order, ((1, -len(reached)), node))
                continue
            for child in sorted(reached):
                self.parents[child] = node
                self.children.setdefault(child, [])
                self.children.setdefault(node, []).append(child)
            left -= reached
            if reached:
                above.add(node)

    def _around(self, node: str) -> Sequence[str]:
        """The neighbours of a node, those first that the spread prefers."""
        found = self._neighbours.get(node, ())
        if not self._spread or len(found) < 2:
            return found
        first = self._spread % len(found)
        return [*found[first:], *found[:first]]

    def _trace(self, came_from: Mapping[str, str | None], node: str) -> list[str]:
        way: list[str] = []
        at: str | None = node
        while at is not None:
            way.append(at)
            at = came_from[at]
        return way[::-1]

    def _distances(self, wanted: Sequence[str]) -> dict[str, int]:
        """From the sender to each of `wanted`, in links to its nearest neighbour that passes packets on."""
        nodes = {self.sender: 0}
        queue = deque([self.sender])
        missing = {near for name in wanted for near in self._neighbours.get(name, ())}
        while queue and missing:
            node = queue.popleft()
            missing.discard(node)
            for neighbour in self._neighbours.get(node, ()):
                if neighbour not in nodes and self._passes(neighbour) and (node, neighbour) not in self._failed:
                    nodes[neighbour] = nodes[node] + 1
                    queue.append(neighbour)
        return {
            name: min((nodes[near] for near in self._neighbours.get(name, ()) if near in nodes), default=0)
            for name in wanted
        }
