"""Compiles the P4 programs into p4src/build: BMv2 JSON, p4info text, and what they were made from.

    python p4src/compile.py [--into FOLDER]

The outputs name no path of the machine and are the same wherever the same p4c makes them. Any warning is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
PROGRAMS = ("tor",)
COMPILER = "p4c-bm2-ss"
MANIFEST = "manifest.json"


class CompileError(Exception):
    """Why there are no outputs, as text."""


def sources() -> list[Path]:
    return sorted(path for path in HERE.rglob("*.p4") if BUILD not in path.parents)


def sources_digest() -> str:
    """SHA-256 over names and contents of all P4 sources."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(HERE).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def output_names() -> list[str]:
    return [name for program in PROGRAMS for name in (f"{program}.json", f"{program}.p4info.txtpb")]


def file_digests(folder: Path) -> dict[str, str]:
    """Output -> SHA-256 of its bytes; absent ones are left out."""
    paths = {name: folder / name for name in output_names()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def compiler() -> str | None:
    """The compiler's path, where it is installed."""
    return shutil.which(COMPILER)


def compiler_version() -> str:
    """Its version number: 1.2.5.14, say; the build's own suffix is left out."""
    done = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True, timeout=60)
    text = done.stdout + done.stderr
    found = re.search(r"\d+(\.\d+)+", text)
    if found is None:
        raise CompileError(f"{COMPILER} --version does not say its version: {text.strip()[:200]}")
    return found.group()


def without_places(value: Any) -> Any:
    """Without the places in source files that the compiler tells for debugging: they name folders of the machine, and
    would change with every comment."""
    if isinstance(value, dict):
        return {key: without_places(inner) for key, inner in value.items() if key != "source_info"}
    if isinstance(value, list):
        return [without_places(inner) for inner in value]
    return value


def compile_program(program: str, folder: Path) -> None:
    """One program into `folder`. Raises CompileError."""
    made, info = folder / f"{program}.json", folder / f"{program}.p4info.txtpb"
    command = [COMPILER, "--std", "p4-16", "-I", ".", "--p4runtime-files", str(info), "-o", str(made), f"{program}.p4"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=300)
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0 or said:
        raise CompileError(f"{program}.p4 does not compile without complaint (status {done.returncode}):\n{said}")
    program_json = without_places(json.loads(made.read_text()))
    made.write_text(json.dumps(program_json, indent=1) + "\n")


def compile_all(folder: Path) -> None:
    """All outputs and the manifest into `folder`; nothing is changed there if anything fails. Raises CompileError."""
    if compiler() is None:
        raise CompileError(
            f"{COMPILER} is not installed (https://github.com/p4lang/p4c): the outputs in p4src/build stay as they are."
        )
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        for program in PROGRAMS:
            compile_program(program, made)
        manifest = {"p4c": compiler_version(), "sources": sources_digest(), "outputs": file_digests(made)}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        folder.mkdir(parents=True, exist_ok=True)
        for name in [*output_names(), MANIFEST]:
            shutil.copyfile(made / name, folder / name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles the P4 programs.")
    parser.add_argument("--into", type=Path, default=BUILD, help="folder of the outputs (default: p4src/build)")
    options = parser.parse_args()
    try:
        compile_all(options.into)
    except CompileError as error:
        print(f"p4: {error}", file=sys.stderr)
        return 1
    for name in output_names():
        print(f"p4: {options.into / name}: {(options.into / name).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
