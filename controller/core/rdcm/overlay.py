"""RDCM's backup overlay: rings of receivers, one for each branching node of a multicast tree, along which receivers
mend each other's losses.

RDCM, Sec. 3.2: `build` is the paper's Fig. 8, bottom up; `join` and `leave` (Sec. 3.4) change only the rings on one way
to the root. Theorem 1 holds after each: a receiver is in exactly one leaf ring (if there is more than one receiver) and
in at most one proxy ring. Nodes are names; a server that both receives and forwards counts as a switch with itself as a
receiver below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_MASK = (1 << 64) - 1


class NotInTree(Exception):
    """A receiver is not where it is said to be; nothing changed."""


@dataclass(frozen=True)
class Ring:
    """`members` in ring order: each mends the next, the last one the first. `parent`: to whom they all acknowledge too;
    the sender for the highest ring.
    """

    node: str
    members: tuple[str, ...]
    parent: str

    def successor(self, member: str) -> str:
        return self.members[(self.members.index(member) + 1) % len(self.members)]

    def predecessor(self, member: str) -> str:
        return self.members[self.members.index(member) - 1]


@dataclass(frozen=True)
class View:
    """What a receiver needs to know of the overlay. `leaf` is None for an only receiver, who acknowledges to the
    sender. `children`: those who acknowledge to it in the ring below its proxy ring.
    """

    leaf: Ring | None
    proxy: Ring | None
    children: tuple[str, ...]


@dataclass
class _Node:
    name: str
    parent: _Node | None
    receiver: str | None = None  # this is the place of a receiver
    children: dict[str, _Node] = field(default_factory=dict)
    proxies: dict[str, str] = field(default_factory=dict)  # child -> its proxy, if this branches
    receivers: int = 0  # below and here
    free: list[int] = field(default_factory=lambda: [0, 0, 0])  # receivers below and here in 0, 1, 2 rings


class BackupOverlay:
    """The overlay of one group. A branch's proxy is the nearest of those that are equally good, so that repairs have
    short ways; `at_random`, as in the paper, `seed` decides.
    """

    def __init__(self, sender: str, seed: int = 1, at_random: bool = False) -> None:
        self.sender = sender
        self._at_random = at_random
        self._random = seed & _MASK
        self._root = _Node(sender, None)
        self._nodes: dict[str, _Node] = {sender: self._root}
        self._places: dict[str, _Node] = {}
        self._rings: dict[str, int] = {}  # receiver -> how many rings it is in

    @classmethod
    def build(
        cls,
        sender: str,
        children: Mapping[str, Sequence[str]],
        receivers: Iterable[str],
        seed: int = 1,
        at_random: bool = False,
    ) -> BackupOverlay:
        """Of a whole tree: `children` of each node that has any, from the sender down. Raises NotInTree."""
        overlay = cls(sender, seed, at_random)
        order = overlay._grow(children)
        for name in receivers:
            overlay._place(name)
        for node in reversed(order):
            overlay._form(node)
        return overlay

    def follow(self, children: Mapping[str, Sequence[str]]) -> BackupOverlay:
        """The overlay of the tree as it is now: those of the receivers that it still reaches, with the same proxies
        wherever they still stand for their branch (Sec. 3.4: as little changes as can). Raises NotInTree.
        """
        overlay = BackupOverlay(self.sender, at_random=self._at_random)
        overlay._random = self._random
        order = overlay._grow(children)
        for name in self._places:
            if name in overlay._nodes:
                overlay._place(name)
        for node in reversed(order):
            old = self._nodes.get(node.name)
            if old:
                overlay._keep(node, old.proxies)
            overlay._form(node)
        return overlay

    def top(self) -> tuple[str, ...]:
        """Who acknowledges to the sender: the highest ring, or the only receiver."""
        highest = self._ring_below(self._root)
        return highest.members if highest else tuple(self._places)

    def near(self, nodes: Iterable[str]) -> set[str]:
        """Whom a change of the rings of these branching nodes concerns: members, parents, and the rings below, which
        have members as parents. (Of what was before a change, and of what is after it.)
        """
        found: set[str] = set()
        for name in nodes:
            node = self._nodes.get(name)
            if node is None:
                continue
            found.add(self._overlay_parent(node))
            found.update(node.proxies.values())
            for child in node.children.values():
                if child.receivers and (below := self._ring_below(child)):
                    found.update(below.members)
        return found

    @property
    def receivers(self) -> frozenset[str]:
        return frozenset(self._places)

    def rings(self) -> Iterator[Ring]:
        """Every ring once, from the sender down."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            if node.proxies:
                yield self._ring(node)

    def ring(self, node: str) -> Ring | None:
        """The ring of a branching node."""
        found = self._nodes.get(node)
        return self._ring(found) if found and found.proxies else None

    def view(self, receiver: str) -> View:
        """What one receiver must know. Raises NotInTree."""
        rings = [(node, child) for node, child in self._way_up(receiver) if node.proxies.get(child.name) == receiver]
        if not rings:
            return View(None, None, ())
        leaf, *proxy = (self._ring(node) for node, _ in rings)
        below = self._ring_below(rings[1][1]) if proxy else None
        return View(leaf, proxy[0] if proxy else None, below.members if below else ())

    def join(self, receiver: str, way: Sequence[str]) -> frozenset[str]:
        """A receiver is added below `way`, the tree's nodes from the sender to it, both included; what is not in the
        tree yet is added. Returns the branching nodes whose rings changed. Raises NotInTree.
        """
        if receiver in self._places or not way or way[0] != self.sender or way[-1] != receiver:
            raise NotInTree(f"{receiver} is a receiver already, or its way does not lead from {self.sender} to it")
        node = self._root
        for name in way[1:]:
            known = self._nodes.get(name)
            if known is not None and known.parent is not node:
                raise NotInTree(f"{name} is in the tree, but not below {node.name}")
            node = known or self._add(name, node)
        self._place(receiver)
        return frozenset(changed.name for changed, _ in self._way_up(receiver) if self._form(changed))

    def leave(self, receiver: str) -> frozenset[str]:
        """A receiver left or failed; branches without receivers go with it. Returns the branching nodes whose rings
        changed. Raises NotInTree.
        """
        way = self._way_up(receiver)
        place = self._places[receiver]
        changed = set()
        for node, child in way:
            if node.proxies.get(child.name) == receiver:
                self._unseat(node, child.name)
                changed.add(node.name)
        self._count(place, -1, self._rings.pop(receiver))
        place.receiver = None
        del self._places[receiver]
        self._prune(place)
        for node, _ in way:
            if node.name in self._nodes and self._form(node):
                changed.add(node.name)
        return frozenset(changed)

    def suspects(self, node: str, successor: str) -> tuple[tuple[str, str], ...]:
        """Links that may have failed when `successor`, in the ring of `node`, gets everything by repair: those from
        `node` towards it, down to the first branching node or to the receiver itself (Sec. 3.4).
        """
        ring = self._nodes.get(node)
        child = next((name for name, proxy in ring.proxies.items() if proxy == successor), None) if ring else None
        if ring is None or child is None:
            raise NotInTree(f"{successor} is in no ring of {node}")
        links = [(node, child)]
        below = ring.children[child]
        while not below.proxies and below.name != successor:
            step = next(one for one in below.children.values() if one.receivers)
            if step.name == below.name:
                break
            links.append((below.name, step.name))
            below = step
        return tuple(links)

    def trunk(self) -> tuple[tuple[str, str], ...]:
        """The links that all packets take: from the sender to the highest branching node, or to the only receiver."""
        links, node = [], self._root
        while not node.proxies:
            step = next((one for one in node.children.values() if one.receivers), None)
            if step is None:
                break
            links.append((node.name, step.name))
            node = step
        return tuple(links)

    # the tree

    def _grow(self, children: Mapping[str, Sequence[str]]) -> list[_Node]:
        """All nodes, parents before children."""
        order = [self._root]
        for node in order:
            for name in children.get(node.name, ()):
                if name in self._nodes:
                    raise NotInTree(f"{name} is reached twice: that is no tree")
                order.append(self._add(name, node))
        return order

    def _add(self, name: str, parent: _Node) -> _Node:
        node = self._nodes[name] = parent.children[name] = _Node(name, parent)
        return node

    def _place(self, receiver: str) -> None:
        """A receiver's place: a leaf of its own, below itself if it forwards too (see `_branches`)."""
        node = self._nodes.get(receiver)
        if node is None or node is self._root:
            raise NotInTree(f"{receiver} is not in the tree below {self.sender}")
        node.receiver = receiver
        self._places[receiver] = node
        self._rings[receiver] = 0
        self._count(node, 1, 0)

    def _count(self, node: _Node | None, by: int, rings: int) -> None:
        while node is not None:
            node.receivers += by
            node.free[rings] += by
            node = node.parent

    def _prune(self, node: _Node) -> None:
        """Removes branches that lead to no receiver."""
        while node.parent is not None and node.receivers == 0:
            del node.parent.children[node.name], self._nodes[node.name]
            node = node.parent

    def _way_up(self, receiver: str) -> list[tuple[_Node, _Node]]:
        """(node, its child towards the receiver), from the receiver up to the sender. A receiver that forwards is first
        its own child.
        """
        place = self._places.get(receiver)
        if place is None:
            raise NotInTree(f"{receiver} is no receiver of this group")
        way = [(place, place)]
        while place.parent is not None:
            way.append((place.parent, place))
            place = place.parent
        return way

    # the rings

    def _branches(self, node: _Node) -> list[_Node]:
        """The children that lead to receivers; a receiver that forwards is its own first child."""
        below = [child for child in node.children.values() if child.receivers]
        return [node, *below] if node.receiver and below else below

    def _form(self, node: _Node) -> bool:
        """Makes the ring of a node what it should be, changing no more than must be. Whether anything changed."""
        branches = self._branches(node)
        wanted = {child.name for child in branches} if len(branches) > 1 else set()
        gone = [name for name in node.proxies if name not in wanted]
        for name in gone:
            self._unseat(node, name)
        new = [child for child in branches if child.name in wanted and child.name not in node.proxies]
        for child in new:
            proxy = self._itself(child) if child is node else self._choose(child)
            node.proxies[child.name] = proxy
            self._seat(proxy, 1)
        if new:
            node.proxies = {child.name: node.proxies[child.name] for child in branches}  # in child order
        return bool(gone or new)

    def _keep(self, node: _Node, proxies: Mapping[str, str]) -> None:
        """Before a ring is formed bottom up: the proxies it had, as far as they are below and in one ring at most. For
        the others `_choose` then finds one: the rings formed so far leave every branch a receiver that has room.
        """
        branches = {child.name: child for child in self._branches(node)}
        if len(branches) < 2:
            return
        for name, proxy in proxies.items():
            child = branches.get(name)
            if child is None or self._rings.get(proxy, 2) == 2 or not self._below(proxy, child):
                continue
            if child is node and proxy != node.receiver:
                continue
            node.proxies[name] = proxy
            self._seat(proxy, 1)

    def _unseat(self, node: _Node, child: str) -> None:
        self._seat(node.proxies.pop(child), -1)

    def _seat(self, receiver: str, by: int) -> None:
        rings = self._rings[receiver]
        self._rings[receiver] = rings + by
        node: _Node | None = self._places[receiver]
        while node is not None:
            node.free[rings] -= 1
            node.free[rings + by] += 1
            node = node.parent

    def _choose(self, node: _Node) -> str:
        """A receiver below that is in the fewest rings; of equals the nearest, or, as in the paper, one at random. When
        a ring is put in below others, all may be in two already: one is taken out of its higher ring, which is formed
        after this one.
        """
        if not node.free[0] and not node.free[1]:
            self._free_one(node)
        fewest = 0 if node.free[0] else 1
        return self._any(node, fewest) if self._at_random else self._nearest(node, fewest)

    def _nearest(self, node: _Node, rings: int) -> str:
        """Of those in so many rings; looks no deeper than there. There is one."""
        level = [node]
        while True:
            for one in level:
                if one.receiver is not None and self._rings[one.receiver] == rings:
                    return one.receiver
            level = [child for one in level for child in one.children.values() if child.free[rings]]

    def _any(self, node: _Node, rings: int) -> str:
        left = self._draw(node.free[rings])
        while True:
            if node.receiver is not None and self._rings[node.receiver] == rings:
                if left == 0:
                    return node.receiver
                left -= 1
            for child in node.children.values():
                if left < child.free[rings]:
                    node = child
                    break
                left -= child.free[rings]

    def _itself(self, node: _Node) -> str:
        """The receiver at a node, for the branch that leads to nobody else."""
        assert node.receiver is not None
        if self._rings[node.receiver] == 2:
            self._free_one(node, {node.receiver})
        return node.receiver

    def _free_one(self, node: _Node, of: Collection[str] | None = None) -> None:
        """Takes a receiver at or below `node` (one of `of`) out of the highest ring above that has one."""
        highest: tuple[_Node, str] | None = None
        for above in self._above(node):
            for child, proxy in above.proxies.items():
                if proxy in of if of is not None else self._below(proxy, node):
                    highest = above, child
        assert highest is not None
        self._unseat(*highest)

    def _above(self, node: _Node) -> Iterator[_Node]:
        while node.parent is not None:
            node = node.parent
            yield node

    def _below(self, receiver: str, node: _Node) -> bool:
        return any(one is node for one in (self._places[receiver], *self._above(self._places[receiver])))

    def _draw(self, below: int) -> int:
        """splitmix64 (Steele et al., 2014): the same seed, the same overlay."""
        self._random = (self._random + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._random
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ mixed >> 31) % below

    def _ring(self, node: _Node) -> Ring:
        return Ring(node.name, tuple(node.proxies.values()), self._overlay_parent(node))

    def _overlay_parent(self, node: _Node) -> str:
        """The proxy of the branch that this node is in, in the next ring above."""
        while node.parent is not None:
            proxy = node.parent.proxies.get(node.name)
            if proxy is not None:
                return proxy
            node = node.parent
        return self.sender

    def _ring_below(self, node: _Node) -> Ring | None:
        """The first ring at or below a node."""
        while not node.proxies:
            below = [child for child in node.children.values() if child.receivers]
            if not below:
                return None
            node = below[0]
        return self._ring(node)
