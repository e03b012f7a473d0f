"""The modules of this package that were compiled ahead of time (.ci/compile), in the place of Python's own.

They are taken if they were made of exactly the sources that are here; else everything is plain Python, which does the
same and takes longer. ROSTRUM_PURE_PYTHON=1 in the environment leaves them alone.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PURE = "ROSTRUM_PURE_PYTHON"


class Finder:
    """Of `sys.meta_path`: finds what is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            ".".join(file.relative_to(folder).parts).removesuffix(EXTENSION_SUFFIXES[0]): file
            for file in folder.rglob(f"*{EXTENSION_SUFFIXES[0]}")
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(name)
        return spec_from_file_location(name, file) if file else None


def digest(package: Path) -> str:
    """Of the sources in the package's folder, and of the kind of Python that runs them."""
    made = hashlib.sha256(EXTENSION_SUFFIXES[0].encode())
    for file in sorted([*package.rglob("*.py"), *package.parent.glob(".ci/compile")]):
        made.update(f"{file.relative_to(package.parent)}\0".encode())
        made.update(file.read_bytes())
    return made.hexdigest()


def made_of(folder: Path) -> str:
    """The digest of the sources that the compiled modules in a folder were made of; empty = there are none."""
    try:
        return (folder / "lib" / "digest").read_text().strip()
    except OSError:
        return ""


def use(package: Path) -> str:
    """Has the compiled modules imported from now on; why not, if not."""
    folder = package.parent / "build" / "compiled"
    if os.environ.get(PURE):
        return f"{PURE} is set"
    made = made_of(folder)
    if not made:
        return "not compiled (make build does it)"
    if made != digest(package):
        return "compiled from other sources (make build does it again)"
    sys.meta_path.insert(0, Finder(folder / "lib"))
    return ""
