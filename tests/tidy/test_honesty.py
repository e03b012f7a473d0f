"""Checks that can fail, skips with a reason, no half-done work, nothing of the machine it was written on."""

from __future__ import annotations

import ast
import re

from tests.tidy.calls import BUILD
from tests.tidy.tree import complaint, files, text

SCRIPTS = [".ci/setup", ".ci/run", ".ci/test", "Makefile"]
HERE = "tests/tidy/"


def pattern_offenders(pattern: str, names: list[str]) -> list[str]:
    """`file:line: text` where the pattern is found."""
    expression = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in names
        for number, line in enumerate(text(name).splitlines(), 1)
        if expression.search(line)
    ]


def own_files() -> list[str]:
    """What people wrote, but these tests (they hold the patterns) and the licence."""
    return [name for name in files() if not name.startswith(HERE) and name != "LICENSE" and "/seeds/" not in name]


def test_gates_are_not_switched_off() -> None:
    names = [*SCRIPTS, *files(".sh", ".yml", "meson.build")]
    offenders = pattern_offenders(r"\|\|\s*(true|:)(\s|$|;|\))|continue-on-error|set \+e\b", names)
    assert not offenders, complaint("gates that cannot fail:", offenders)


def test_no_paths_of_somebodys_machine() -> None:
    offenders = pattern_offenders(r"(?<![\w.])/(work|home|root|Users|mnt/data)/\w", own_files())
    assert not offenders, complaint("absolute paths of a machine:", offenders)


def test_nothing_is_left_half_done() -> None:
    pattern = r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError|not implemented yet"
    offenders = pattern_offenders(pattern, own_files())
    assert not offenders, complaint("half-done work:", offenders)


def test_every_python_test_file_has_tests() -> None:
    offenders = []
    for name in files(".py", under="tests/"):
        if not name.rpartition("/")[2].startswith("test_"):
            continue
        nodes = list(ast.walk(ast.parse(text(name), name)))
        named = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        machines = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "TestCase"]
        if not machines and not any(function.startswith("test_") for function in named):
            offenders.append(name)
    assert not offenders, complaint("test files without tests:", offenders)


def test_every_c_test_runs_and_is_in_the_build() -> None:
    offenders = []
    folders = ("tests/agent/", "tests/sim/")
    build = (BUILD / "build.ninja").read_text()
    for source_name in [name for folder in folders for name in files(".c", under=folder)]:
        stem = source_name.rpartition("/")[2].removesuffix(".c")
        if not stem.startswith("test_"):
            continue
        source = text(source_name)
        defined = set(re.findall(r"^static void (\w+__\w+)\(void \*\*\w+\)", source, re.MULTILINE))
        listed = {case for case in defined if re.search(rf"\(\s*{case}\b", source.partition("int main(")[2])}
        if not defined:
            offenders.append(f"{source_name}: no test cases (static void subject__case(void **state))")
        offenders += [f"{source_name}: {case} is never run" for case in sorted(defined - listed)]
        if f"/{source_name} " not in build and f"/{source_name}\n" not in build:
            offenders.append(f"{source_name}: no meson.build of {' and '.join(folders)} compiles it")
    assert not offenders, complaint("C tests that do not run:", offenders)


def test_every_fuzz_target_is_in_the_build() -> None:
    build = text("tests/fuzz/meson.build")
    targets = {name.split("/")[2] for name in files(".c", under="tests/fuzz/")}
    offenders = [target for target in sorted(targets) if f"'{target}'" not in build]
    assert targets, "there are no fuzz targets"
    assert not offenders, complaint("fuzz targets that are not built:", offenders)


def call_name(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)


def test_no_test_is_skipped_for_good() -> None:
    """A skip needs a condition and a reason: skipif, or pytest.skip below an if or in an except."""
    offenders = []
    for name in files(".py", under="tests/"):
        if name.startswith(HERE):
            continue
        tree = ast.parse(text(name), name)
        for node in ast.walk(tree):
            decorators = getattr(node, "decorator_list", [])
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets):
                decorators = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            marks = [call_name(mark) for mark in decorators]
            offenders += [
                f"{name}: {mark} of {ast.unparse(node)[:60]!r}"
                for mark in marks
                if mark.endswith(("mark.skip", "mark.xfail"))
            ]
            conditional = isinstance(node, ast.If | ast.ExceptHandler | ast.Lambda | ast.IfExp)
            for statement in [] if conditional else getattr(node, "body", []):
                if isinstance(statement, ast.Expr) and call_name(statement.value) in ("pytest.skip", "pytest.xfail"):
                    offenders.append(f"{name}:{statement.lineno}: unconditional {call_name(statement.value)}")
    assert not offenders, complaint("tests that never run:", offenders)


def test_tests_wait_for_conditions_instead_of_sleeping() -> None:
    """time.sleep belongs into a loop that looks for something."""
    offenders = []
    for name in files(".py", under="tests/"):
        tree = ast.parse(text(name), name)
        in_loops = {
            id(inner) for node in ast.walk(tree) if isinstance(node, ast.While | ast.For) for inner in ast.walk(node)
        }
        offenders += [
            f"{name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and call_name(node) in ("time.sleep", "sleep") and id(node) not in in_loops
        ]
    assert not offenders, complaint("sleeps outside a loop:", offenders)


def test_every_dependency_is_explained() -> None:
    """docs/dependencies.md names every apt package and every direct Python package."""
    explained = text("docs/dependencies.md")
    packages = text(".ci/packages") + text(".ci/packages-amd64") + text(".ci/packages-apps")
    apt = [line.strip() for line in packages.splitlines() if line.strip() and not line.startswith("#")]
    python = [line.partition("==")[0] for line in text("requirements.in").splitlines() if "==" in line]
    offenders = [name for name in [*apt, *python] if f"`{name}`" not in explained]
    assert not offenders, complaint("dependencies docs/dependencies.md does not explain:", offenders)


def test_direct_dependencies_are_pinned_alike_everywhere() -> None:
    """requirements.in, requirements.lock and pyproject.toml name the same versions."""

    def pins(content: str) -> dict[str, str]:
        return dict(re.findall(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.]+)", content))

    def plain(found: dict[str, str]) -> dict[str, str]:
        return {name.lower().replace("_", "-"): version for name, version in found.items()}

    asked, locked = plain(pins(text("requirements.in"))), plain(pins(text("requirements.lock")))
    project = plain(pins(text("pyproject.toml")))
    missing = [name for name, version in asked.items() if locked.get(name) != version]
    differing = [name for name, version in project.items() if asked.get(name) != version]
    assert not missing, complaint("not in requirements.lock as requirements.in has them:", missing)
    assert not differing, complaint("not in requirements.in as pyproject.toml has them:", differing)
