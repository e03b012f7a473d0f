"""The version of everything here: what stands in VERSION, in a tree; what was installed, elsewhere."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "VERSION"
VERSION = FILE.read_text().strip() if FILE.is_file() else metadata.version("rostrum")
