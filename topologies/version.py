"""The version of everything here: what stands in VERSION, in a tree; what was installed, elsewhere."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "VERSION"


def _installed() -> str:
    try:
        return metadata.version("rostrum")
    except metadata.PackageNotFoundError:
        return metadata.version("rostrum-client")  # which brings this package too


VERSION = FILE.read_text().strip() if FILE.is_file() else _installed()
