"""Which driver an OCS has, by the `dialect` of its topology entry: the row to add for another kind of device."""

from __future__ import annotations

from collections.abc import Callable

from rostrum.controller.southbound.api import CircuitSwitch

Driver = Callable[..., CircuitSwitch]


def _tl1() -> Driver:
    from rostrum.controller.southbound.ocs.driver import OcsDriver

    return OcsDriver


def _gnmi() -> Driver:
    from rostrum.controller.southbound.ocs.gnmi import GnmiDriver

    return GnmiDriver


DRIVERS: dict[str, Callable[[], Driver]] = {"gnmi": _gnmi}  # all others are dialects of TL1


def driver_of(dialect: str) -> Driver:
    return DRIVERS.get(dialect, _tl1)()
