"""Checks what a switch tells by gNMI against YANG modules (RFC 7950), the Open Compute Project's and those they import,
which are not part of this project: a directory that has them is named. By the library yangson.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rostrum.controller.southbound.ocs import ocp

ROOTS = tuple(name for name, _, _ in ocp.MODELS)
HEAD = re.compile(r"^\s*(?:sub)?module\s+([\w.-]+)", re.MULTILINE)
REVISION = re.compile(r'\brevision\s+"?(\d{4}-\d\d-\d\d)"?')
NAMESPACE = re.compile(r'\bnamespace\s+"?([^";\s]+)"?\s*;')
REFERENCE = re.compile(r'\b(import|include)\s+"?([\w.-]+)"?\s*[{;]')
FEATURE = re.compile(r'\bfeature\s+"?([\w.-]+)"?\s*[{;]')


class YangError(Exception):
    """Why nothing can be checked: no library, no modules, modules that do not fit together."""


def _sources(directory: Path) -> dict[str, tuple[Path, str]]:
    """name -> file and text, of all modules under a directory."""
    found = {}
    for file in sorted(directory.rglob("*.yang")):
        text = file.read_text(errors="replace")
        if head := HEAD.search(text):
            found[head[1]] = (file, text)
    return found


def _library(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """The YANG library (RFC 7895) of the modules and all that they import, and the folders that these are in. Raises
    YangError with the modules that are missing."""
    sources = _sources(directory)
    todo, rows, folders, missing = list(ROOTS), {}, set(), []
    while todo:
        name = todo.pop()
        if name in rows:
            continue
        if name not in sources:
            missing.append(name)
            continue
        file, text = sources[name]
        folders.add(str(file.parent))
        references = [(kind, other) for kind, other in REFERENCE.findall(text) if other not in rows]
        todo += [other for kind, other in references if kind == "import"]
        revision = REVISION.search(text)
        namespace = NAMESPACE.search(text)
        rows[name] = {
            "name": name,
            "revision": revision[1] if revision else "",
            "namespace": namespace[1] if namespace else "",
            "conformance-type": "implement" if name in ROOTS or name == "openconfig-platform" else "import",
            "feature": FEATURE.findall(text),
            "submodule": [_submodule(other, sources, missing) for kind, other in references if kind == "include"],
        }
    if missing:
        raise YangError(f"{directory} has no module {', '.join(sorted(set(missing)))}")
    state = {"module-set-id": "", "module": list(rows.values())}
    return {"ietf-yang-library:modules-state": state}, sorted(folders)


def _submodule(name: str, sources: dict[str, tuple[Path, str]], missing: list[str]) -> dict[str, str]:
    if name not in sources:
        missing.append(name)
        return {"name": name, "revision": ""}
    revision = REVISION.search(sources[name][1])
    return {"name": name, "revision": revision[1] if revision else ""}


def check(tree: dict[str, Any], directory: Path) -> str:
    """What is wrong with the tree, as JSON of RFC 7951; "" = nothing. Raises YangError."""
    try:
        import yangson
        from yangson.enumerations import ContentType, ValidationScope
        from yangson.exceptions import YangsonException
    except ImportError:
        raise YangError("the library yangson is not installed: pip install yangson") from None
    if not directory.is_dir():
        raise YangError(f"{directory} is no directory of YANG modules")
    library, folders = _library(directory)
    try:
        model = yangson.DataModel(json.dumps(library), folders)
    except YangsonException as error:
        raise YangError(f"the modules in {directory} do not fit together: {type(error).__name__}: {error}") from None
    try:
        model.from_raw(tree).validate(ValidationScope.all, ContentType.all)
    except YangsonException as error:
        return f"{type(error).__name__}: {error}"
    return ""
