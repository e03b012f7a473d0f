"""What the built libraries need and show: the core needs no system, librostrum shows only its own names."""

from __future__ import annotations

import subprocess

import pytest

from tests.tidy.tree import ROOT, complaint

BUILD = ROOT / "build" / "agent"

# C library functions the core may call: memory and text handed to it, arithmetic. No allocation, clock, file, socket,
# thread or randomness; memory comes from the caller's rs_allocator.
CORE_MAY_CALL = {
    *(
        "memchr",
        "memcmp",
        "memcpy",
        "memmove",
        "memset",
        "strcmp",
        "strcspn",
        "strlen",
        "strncmp",
        "strnlen",
        "qsort",
        "bsearch",
    ),
    *("snprintf", "vsnprintf", "__snprintf_chk", "__vsnprintf_chk", "__memcpy_chk", "__memset_chk", "__memmove_chk"),
    *("cbrt", "ceil", "exp", "floor", "fmax", "fmin", "log", "log2", "pow", "round", "sqrt", "lround", "llround"),
    *("__assert_fail", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"),
    "__cpu_model",  # the compiler's, of what the processor has
}


@pytest.fixture(scope="module")
def built() -> None:
    """build/agent is there and up to date."""
    if not (BUILD / "build.ninja").exists():
        run("meson", "setup", str(BUILD), "--buildtype=debugoptimized")
    run("ninja", "-C", str(BUILD))


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def core() -> list[str]:
    """Its archives: what is compiled for some processors only has one of its own."""
    return sorted(str(path) for path in (BUILD / "agent" / "core").glob("*.a"))


def symbols(*arguments: str) -> set[str]:
    """Names nm prints with these."""
    lines = run("nm", *arguments).splitlines()
    return {line.split()[-1] for line in lines if line.strip() and not line.endswith(":")}


def test_core_calls_nothing_of_the_system(built: None) -> None:
    needed = symbols("-u", *core()) - symbols("--defined-only", *core())
    offenders = sorted(needed - CORE_MAY_CALL)
    assert not offenders, complaint("the core's library needs:", offenders)


def test_core_defines_prefixed_names_only(built: None) -> None:
    offenders = sorted(name for name in symbols("-g", "--defined-only", *core()) if not name.startswith("rs_"))
    assert not offenders, complaint("external names of the core without rs_:", offenders)


def test_core_has_no_state_of_its_own(built: None) -> None:
    """No writable data: two nodes in one process share nothing."""
    lines = [[word.strip() for word in line.split("|")] for line in run("nm", "-f", "sysv", *core()).splitlines()]
    symbols = [fields for fields in lines if len(fields) == 7 and fields[2] in tuple("dDbBsSC")]
    # Constants that hold addresses, such as tables of functions, are made read-only when the program is loaded.
    writable = [fields[0] for fields in symbols if not fields[6].startswith(".data.rel.ro")]
    assert not writable, complaint("writable globals in the core:", writable)


def test_no_two_libraries_define_the_same_name(built: None) -> None:
    """A static link would take either one, or fail."""
    owners: dict[str, list[str]] = {}
    for archive in sorted((BUILD / "agent").rglob("*.a")):
        for name in symbols(str(archive), "-g", "--defined-only"):
            owners.setdefault(name, []).append(archive.name)
    offenders = [f"{name}: {', '.join(where)}" for name, where in sorted(owners.items()) if len(where) > 1]
    assert owners, "no static libraries were built"
    assert not offenders, complaint("names defined twice:", offenders)


def test_librostrum_exports_its_own_names_only(built: None) -> None:
    found = [path for path in (BUILD / "agent" / "client").glob("librostrum.so*") if path.is_file()]
    [library] = {str(path.resolve()) for path in found if path.suffix != ".symbols"}
    exported = symbols(library, "-D", "-g", "--defined-only")
    assert exported, "librostrum exports nothing"
    offenders = sorted(name for name in exported if not name.startswith("rostrum_"))
    assert not offenders, complaint("names of librostrum without rostrum_:", offenders)
