"""Options of rostrum-manager about message groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from rostrum.topologies.units import Duration

_OPTIONS = (
    click.option(
        "--groups",
        "groups_max",
        type=click.IntRange(1, 1_000_000),
        default=16_384,
        show_default=True,
        help="Message groups there may be.",
    ),
    click.option(
        "--group-rules",
        type=click.IntRange(1, 100_000),
        default=1_024,
        show_default=True,
        help="Rules for message groups on each switch; beyond that groups share multicast addresses.",
    ),
    click.option(
        "--group-window",
        type=Duration(),
        default="20ms",
        show_default=True,
        help="Changes of message groups are gathered this long before their members are told.",
    ),
    click.option(
        "--group-protocol",
        default="plain",
        show_default=True,
        help="Of groups made by a join that names none: one that the agents have (rostrum groups protocols).",
    ),
)


def group_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def group_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as fields of the core's Settings."""
    return {
        "groups_max": given["groups_max"],
        "group_rules": given["group_rules"],
        "group_window_ns": round(given["group_window"] * 1e9),
        "group_protocol": given["group_protocol"],
    }
