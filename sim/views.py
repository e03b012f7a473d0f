"""The manager's overlays as the simulator's hosts take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rostrum.controller.core.rdcm.overlay import BackupOverlay, Ring
from rostrum.sim.network import NOWHERE, OverlayView, Place


def of_overlay(overlay: BackupOverlay, nodes: Mapping[str, int], version: int) -> Iterator[tuple[str, OverlayView]]:
    """Each member's view of an overlay, the sender's first. `nodes`: numbers by name."""
    top = next((ring.members for ring in overlay.rings() if ring.parent == overlay.sender), ())
    children = top or tuple(sorted(overlay.receivers))
    yield overlay.sender, OverlayView(version, children=tuple(nodes[name] for name in children))
    for name in sorted(overlay.receivers):
        view = overlay.view(name)
        leaf = _place(view.leaf, name, nodes) if view.leaf else Place(None, None, nodes[overlay.sender])
        proxy = _place(view.proxy, name, nodes) if view.proxy else NOWHERE
        below = tuple(nodes[child] for child in view.children if child != name)
        yield name, OverlayView(version, leaf, proxy, below)


def _place(ring: Ring, member: str, nodes: Mapping[str, int]) -> Place:
    parent = None if ring.parent == member else nodes[ring.parent]
    return Place(nodes[ring.predecessor(member)], nodes[ring.successor(member)], parent)
