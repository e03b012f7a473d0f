"""What a result came from: commit, seed, versions, parameters, machine. Every result file carries one."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from rostrum.lab.namespace import FOLDER


def manifest(seed: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """JSON-able. `parameters`: what the experiment was called with."""
    return {
        "commit": commit(),
        "seed": seed,
        "parameters": parameters,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "openvswitch": _version("ovs-vswitchd", "--version"),
            "mininet": _debian_version("mininet"),
            "os-ken": _package_version("os-ken"),
        },
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "memory_bytes": _memory_bytes()},
    }


def commit() -> str:
    """The commit this tree is of, with `+changes` if files differ from it; `unknown` outside a clone."""
    if not shutil.which("git") or not (FOLDER.parent / ".git").exists():
        return "unknown"
    head = _output("git", "-C", str(FOLDER.parent), "rev-parse", "HEAD")
    changed = _output("git", "-C", str(FOLDER.parent), "status", "--porcelain", "--untracked-files=no")
    return (head or "unknown") + ("+changes" if changed else "")


def _output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip()


def _version(*argv: str) -> str:
    found = re.search(r"\d+(\.\d+)+", _output(*argv))
    return found[0] if found else "unknown"


def _debian_version(package: str) -> str:
    return _output("dpkg-query", "-W", "-f=${Version}", package) or "unknown"


def _package_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _cpu() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
