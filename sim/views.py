"""The manager's overlays as the simulator's hosts take them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rostrum.controller.core.rdcm.overlay import BackupOverlay, Ring
from rostrum.sim.network import NOWHERE, Network, OverlayView, Place


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


class Views:
    """What a manager has told the hosts of an object's overlay while that changes."""

    def __init__(self, network: Network, nodes: Mapping[str, int], object_id: int) -> None:
        self._network, self._nodes, self._object = network, nodes, object_id
        self._version = 0
        self._told: dict[str, OverlayView] = {}

    def tell(self, overlay: BackupOverlay, dead: Collection[str] = ()) -> None:
        """Views to those for whom they changed, and who are not dead."""
        self._version += 1
        for name, view in of_overlay(overlay, self._nodes, self._version):
            old = self._told.get(name)
            if old and (old.leaf, old.proxy, old.children) == (view.leaf, view.proxy, view.children):
                continue
            self._told[name] = view
            if name not in dead:
                self._network.view(self._nodes[name], self._object, view)
