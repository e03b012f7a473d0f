"""`rostrum lab run wan`: the study of bench/wan."""

from __future__ import annotations

from rostrum.bench.wan.commands import command

__all__ = ["command"]
