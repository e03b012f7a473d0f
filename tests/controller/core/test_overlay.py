"""RDCM's backup overlay: Fig. 8, Theorem 1, changes of membership, and which link a repair points at."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.rdcm.overlay import BackupOverlay, NotInTree

Tree = dict[str, list[str]]


def random_tree(rng: random.Random, size: int) -> tuple[Tree, list[str]]:
    """A tree below `s`; every leaf is a receiver, and some inner nodes are too."""
    names = [f"n{number}" for number in range(size)]
    children: Tree = {}
    for number, name in enumerate(names):
        parent = "s" if number == 0 else rng.choice(["s", *names[:number]])
        children.setdefault(parent, []).append(name)
    return children, [name for name in names if name not in children or rng.random() < 0.2]


def ways(children: Tree) -> dict[str, list[str]]:
    found = {"s": ["s"]}
    waiting = ["s"]
    while waiting:
        node = waiting.pop()
        for child in children.get(node, ()):
            found[child] = [*found[node], child]
            waiting.append(child)
    return found


def check(overlay: BackupOverlay) -> None:
    """Theorem 1, and what follows for each receiver's view."""
    receivers = overlay.receivers
    rings = list(overlay.rings())
    joined = Counter(member for ring in rings for member in ring.members)
    assert set(joined) == (set(receivers) if len(receivers) > 1 else set())
    assert all(count <= 2 for count in joined.values())
    parents = Counter(ring.parent for ring in rings)
    assert not rings or parents[overlay.sender] == 1
    for receiver in receivers:
        view = overlay.view(receiver)
        assert (view.leaf is None) == (len(receivers) == 1)
        in_rings = [ring for ring in rings if receiver in ring.members]
        assert [ring for ring in (view.leaf, view.proxy) if ring] == sorted(in_rings, key=lambda r: r != view.leaf)
        assert bool(view.proxy) == bool(view.children)
        for child in view.children:
            leaf, proxy = overlay.view(child).leaf, overlay.view(child).proxy
            assert receiver in {ring.parent for ring in (leaf, proxy) if ring}
    for ring in rings:
        assert len(ring.members) == len(set(ring.members)) >= 2
        assert ring.parent == overlay.sender or ring.parent in receivers
        assert all(ring.predecessor(ring.successor(one)) == one for one in ring.members)


def test_build__the_papers_example() -> None:
    """A tree with the shape of Fig. 6: three receivers at one switch, chains, and a server that forwards."""
    children: Tree = {
        "s": ["w0", "w1"],
        "w0": ["a", "b"],
        "a": ["x0"],
        "x0": ["a1", "a2", "a3"],
        "w1": ["c"],
        "c": ["x1"],
        "x1": ["c1"],
    }
    overlay = BackupOverlay.build("s", children, ["a1", "a2", "a3", "b", "c", "c1"])
    check(overlay)
    rings = {ring.node: ring for ring in overlay.rings()}
    assert set(rings) == {"s", "w0", "x0", "c"}
    assert rings["x0"].members == ("a1", "a2", "a3")
    assert rings["w0"].members[1] == "b" and rings["w0"].members[0] in ("a1", "a2", "a3")
    assert rings["x0"].parent == rings["w0"].members[0]
    assert rings["c"].members == ("c", "c1")  # c forwards too: it counts as a switch with itself below
    assert rings["s"].parent == "s"
    assert rings["w0"].parent == rings["s"].members[0]
    assert rings["c"].parent == rings["s"].members[1]
    with_two = overlay.view(rings["w0"].members[0])
    assert with_two.leaf == rings["x0"] and with_two.proxy == rings["w0"] and with_two.children == ("a1", "a2", "a3")


def test_build__only_receiver_acknowledges_to_the_sender() -> None:
    overlay = BackupOverlay.build("s", {"s": ["w"], "w": ["a"]}, ["a"])
    assert overlay.view("a").leaf is None and not list(overlay.rings())


@given(st.integers(1, 120), st.integers(0, 2**32))
def test_build__theorem_1_for_any_tree(size: int, seed: int) -> None:
    children, receivers = random_tree(random.Random(seed), size)
    check(BackupOverlay.build("s", children, receivers, seed))


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_join_and_leave__keep_theorem_1_and_change_few_rings(size: int, seed: int) -> None:
    rng = random.Random(seed)
    children, receivers = random_tree(rng, size)
    way = ways(children)
    overlay = BackupOverlay("s", seed)
    there: list[str] = []
    counts = [0]
    for _ in range(2 * size):
        before = {ring.node: ring.members for ring in overlay.rings()}
        if there and rng.random() < 0.4:
            gone = there.pop(rng.randrange(len(there)))
            changed = overlay.leave(gone)
        else:
            new = rng.choice(receivers)
            if new in there:
                continue
            there.append(new)
            changed = overlay.join(new, way[new])
        after = {ring.node: ring.members for ring in overlay.rings()}
        assert overlay.receivers == set(there)
        different = {node for node in before.keys() | after.keys() if before.get(node) != after.get(node)}
        assert different <= changed
        counts.append(len(changed))
        check(overlay)
    assert sum(counts) / len(counts) < 3


@given(st.integers(2, 80), st.integers(0, 2**32))
def test_suspects__hold_the_failed_link_whichever_it_is(size: int, seed: int) -> None:
    """No false negatives for a single failure (Sec. 3.4): a member gets everything by repair when nobody in its branch
    acknowledges; where its predecessor's branch does not have the same fate, the failed link is among the suspects.
    """
    children, receivers = random_tree(random.Random(seed), size)
    overlay = BackupOverlay.build("s", children, receivers, seed)
    if len(receivers) < 2:
        return
    way = ways(children)

    def below(node: str, member: str) -> set[str]:
        """The receivers of the branch that `member` stands for in the ring of `node`."""
        if node == member:
            return {member}
        child = way[member][way[member].index(node) + 1]
        return {name for name in receivers if child in way[name]}

    used = {link for name in receivers for link in zip(way[name], way[name][1:], strict=False)}
    for failed in used:
        cut_off = {name for name in receivers if failed in zip(way[name], way[name][1:], strict=False)}
        if cut_off == set(receivers):
            continue  # nobody has it: the sender multicasts again
        pointing = [
            overlay.suspects(ring.node, member)
            for ring in overlay.rings()
            for member in ring.members
            if below(ring.node, member) <= cut_off and not below(ring.node, ring.predecessor(member)) <= cut_off
        ]
        assert pointing, f"nobody notices {failed}"
        assert all(failed in links for links in pointing), (failed, pointing)


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_follow__another_tree_keeps_proxies_that_still_stand_for_their_branch(size: int, seed: int) -> None:
    """Subtrees hang elsewhere now, some receivers are gone: Theorem 1 holds, and only what must changes."""
    rng = random.Random(seed)
    children, receivers = random_tree(rng, size)
    overlay = BackupOverlay.build("s", children, receivers, seed)
    before = {ring.node: ring for ring in overlay.rings()}
    same = overlay.follow(children)
    assert {ring.node: ring.members for ring in same.rings()} == {node: ring.members for node, ring in before.items()}
    moved = {parent: list(below) for parent, below in children.items()}
    below = {name: [other for other in moved if name in ways(moved).get(other, [])] for name in receivers}
    leaf = rng.choice([name for name in receivers if name not in children])
    parent = next(node for node, names in moved.items() if leaf in names)
    moved[parent].remove(leaf)
    target = rng.choice([node for node in ["s", *moved] if node not in below.get(leaf, ())])
    if target != leaf:
        moved.setdefault(target, []).append(leaf)
    after = overlay.follow(moved)
    reached = ways(moved)
    assert after.receivers == {name for name in receivers if name in reached}
    if after.receivers:
        check(after)


def test_same_seed__same_overlay() -> None:
    children, receivers = random_tree(random.Random(5), 300)
    first, again, other = (
        list(BackupOverlay.build("s", children, receivers, seed, at_random=True).rings()) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_equally_good_proxies__the_nearest_stands_for_its_branch() -> None:
    children = {"s": ["l", "r"], "l": ["m", "a"], "m": ["b", "c"], "r": ["d"]}
    nearest, drawn = (
        {BackupOverlay.build("s", children, "abcd", seed, at_random).top() for seed in range(20)}
        for at_random in (False, True)
    )
    assert nearest == {("a", "d")}
    assert len(drawn) > 1  # as in the paper


def test_wrong_trees__are_told() -> None:
    with pytest.raises(NotInTree, match="reached twice"):
        BackupOverlay.build("s", {"s": ["a", "b"], "a": ["c"], "b": ["c"]}, ["c"])
    with pytest.raises(NotInTree, match="x is not in the tree"):
        BackupOverlay.build("s", {"s": ["a"]}, ["x"])
    overlay = BackupOverlay.build("s", {"s": ["a", "b"]}, ["a", "b"])
    with pytest.raises(NotInTree, match="already"):
        overlay.join("a", ["s", "a"])
    with pytest.raises(NotInTree, match="not below"):
        overlay.join("c", ["s", "b", "a", "c"])
    with pytest.raises(NotInTree, match="no receiver"):
        overlay.leave("c")
    with pytest.raises(NotInTree, match="in no ring"):
        overlay.suspects("s", "nobody")
