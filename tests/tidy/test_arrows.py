"""Who may know whom (docs/architecture.md, "Rooms"): includes in C, imports in Python."""

from __future__ import annotations

import ast
import re
import sys

from tests.tidy.tree import complaint, files, text

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# The core does no I/O, reads no clock, starts no thread: it needs no more of C than this. stdio.h is for snprintf,
# stdlib.h for qsort: what the core really calls is checked on its symbols.
CORE_HEADERS = {"assert.h", "inttypes.h", "limits.h", "math.h", "stdalign.h", "stdarg.h", "stdbool.h", "stddef.h"} | {
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
}
# A hash, all of it in the header: arithmetic.
CORE_HASHES = ("agent/core/base/xxh3_64.c", "agent/core/base/xxh3_64_avx2.c")
PUBLIC_HEADERS = {"stdbool.h", "stddef.h", "stdint.h", "sys/types.h"}

# Folder -> what its quoted includes may begin with. The daemon also includes what is made from the IDL.
ROOMS = {
    "agent/core/": ("core/",),
    "agent/io/": ("io/", "core/"),
    "agent/api/": ("api/", "rostrum/"),
    "agent/daemon/": ("daemon/", "io/", "core/", "api/", "rostrum/", "thrift_schema.h", "rostrum_version.h"),
    "agent/client/": ("client/", "api/", "rostrum/"),
    "agent/include/": ("rostrum/",),
    "sim/engine/": ("engine/", "core/"),
    "sim/baselines/": ("baselines/", "engine/", "core/"),
}

# Python package -> prefixes of ours it may import besides itself. Longest package first wins.
PACKAGES = {
    "rostrum.topologies": (),
    "rostrum.controller.core": ("rostrum.topologies", "rostrum.controller.speed.cache"),
    "rostrum.controller.southbound": (
        "rostrum.topologies",
        "rostrum.controller.core",
        "rostrum.controller.certificates",
        "rostrum.controller.keyvalue",
        "rostrum.controller.runtime.run_clock",
    ),
    "rostrum.controller.northbound": ("rostrum.topologies", "rostrum.controller"),
    "rostrum.controller": ("rostrum.topologies",),
    "rostrum.client": ("rostrum.topologies", "rostrum.lab", "rostrum.bench"),
    # The emulated circuit switch speaks the TL1 that the manager's driver speaks: one codec for both ends.
    "rostrum.lab": (
        "rostrum.topologies",
        "rostrum.client",
        "rostrum.controller.core.model",
        "rostrum.controller.southbound.ocs",
    ),
    # The study that compares with other tools has the bench's.
    "rostrum.lab.experiments.wan": ("rostrum.bench.wan",),
    # Measures programs in namespaces as the lab has them.
    "rostrum.bench": ("rostrum.topologies", "rostrum.client", "rostrum.lab"),
    # Runs the lab beside the simulator.
    "rostrum.bench.conformance": (
        "rostrum.topologies",
        "rostrum.client",
        "rostrum.lab",
        "rostrum.bench",
        "rostrum.sim",
        "rostrum.controller.core",
    ),
    "rostrum.bench.conformance_groups": (
        "rostrum.topologies",
        "rostrum.client",
        "rostrum.lab",
        "rostrum.sim",
    ),
    # Measures the manager: starts one over devices of its own, and speaks Thrift to it.
    "rostrum.bench.manager": ("rostrum.topologies", "rostrum.lab", "rostrum.bench", "rostrum.controller"),
    "rostrum.sim": (
        "rostrum.topologies",
        "rostrum.controller.core",
        "rostrum.lab.manifest",
        "rostrum.lab.registry",
        "rostrum.lab.results",
    ),
}
FORBIDDEN = {"rostrum.controller.northbound": ("rostrum.controller.southbound", "rostrum.controller.app")}
FOLDERS = {
    "controller/": "rostrum.controller",
    "topologies/": "rostrum.topologies",
    "mininet/": "rostrum.lab",
    "bench/": "rostrum.bench",
    "sim/": "rostrum.sim",
    "agent/client/python/": "rostrum.client",
}
# Pure logic: nothing that waits, talks or reads a clock, and no third-party package.
PURE = ("rostrum.controller.core",)
IMPURE_MODULES = {"asyncio", "multiprocessing", "os", "queue", "random", "selectors", "signal", "socket", "ssl"} | {
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
}


def test_c_includes_point_inward() -> None:
    offenders = []
    for folder, allowed in ROOMS.items():
        for name in files(".c", ".h", under=folder):
            quoted = [target for mark, target in INCLUDE.findall(text(name)) if mark == '"']
            offenders += [f"{name} includes {target}" for target in quoted if not target.startswith(allowed)]
    assert not offenders, complaint("includes that point outward:", offenders)


def test_core_includes_no_system_header() -> None:
    offenders = []
    for name in files(".c", ".h", under="agent/core/"):
        angled = {target for mark, target in INCLUDE.findall(text(name)) if mark == "<"}
        allowed = CORE_HEADERS | ({"xxhash.h"} if name in CORE_HASHES else set())
        offenders += [f"{name} includes <{target}>" for target in sorted(angled - allowed)]
    assert not offenders, complaint("the core is sans-IO and needs C's own headers only:", offenders)


def test_public_headers_stand_alone() -> None:
    offenders = []
    for name in files(".h", under="agent/include/"):
        angled = {target for mark, target in INCLUDE.findall(text(name)) if mark == "<"}
        foreign = {target for target in angled - PUBLIC_HEADERS if not target.startswith("rostrum/")}
        offenders += [f"{name} includes <{target}>" for target in sorted(foreign)]
    assert not offenders, complaint("public headers need no library:", offenders)


def module_of(name: str) -> str | None:
    """controller/core/model.py -> rostrum.controller.core.model"""
    for folder, package in FOLDERS.items():
        if name.startswith(folder):
            parts = name.removeprefix(folder).removesuffix(".py").split("/")
            return ".".join([package, *(part for part in parts if part != "__init__")])
    return None


def imports_of(name: str, module: str) -> set[str]:
    """Full names of what a file imports, wherever in it."""
    found = set()
    package = module if name.endswith("__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text(name), name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            found.add(".".join([*base, *([node.module] if node.module else [])]))
            if node.module and node.module.startswith("rostrum"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module.count(".") < 2}
    return found


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def package_of(module: str) -> str:
    return max((package for package in PACKAGES if inside(module, package)), key=len)


def test_python_imports_point_inward() -> None:
    offenders = []
    for name in files(".py"):
        module = module_of(name)
        if module is None:
            continue
        package = package_of(module)
        allowed = (package, *PACKAGES[package])
        for target in imports_of(name, module):
            if not inside(target, "rostrum") or target == "rostrum":
                continue
            forbidden = any(inside(target, prefix) for prefix in FORBIDDEN.get(package, ()))
            known = any(inside(target, prefix) or inside(prefix, target) for prefix in allowed)
            if forbidden or not known:
                offenders.append(f"{name} imports {target}")
    assert not offenders, complaint("imports that point outward:", offenders)


def test_pure_packages_import_no_io() -> None:
    offenders = []
    for name in files(".py"):
        module = module_of(name)
        if module is None or not any(inside(module, package) for package in PURE):
            continue
        for target in imports_of(name, module):
            top = target.split(".")[0]
            if top != "rostrum" and (top in IMPURE_MODULES or top not in sys.stdlib_module_names):
                offenders.append(f"{name} imports {target}")
    assert not offenders, complaint("pure logic gets time, randomness and answers handed in:", offenders)


def test_mininet_folder_does_not_shadow_mininet() -> None:
    assert "mininet/__init__.py" not in files(), "it would hide the real Mininet package from whoever runs in the root"
