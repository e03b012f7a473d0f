"""A file has one subject, a function does one thing, a line fits a window."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.tree import ROOT, complaint, files, text

FILE_LINES = 1000
FUNCTION_LINES = 80
COLUMNS = 120
SOURCES = (".c", ".h", ".py", ".p4")

# Comments, strings and character constants, which may hold braces that mean nothing.
C_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def test_files_are_short() -> None:
    lengths = {name: text(name).count("\n") for name in [*files(*SOURCES), ".ci/test"]}
    offenders = [f"{name}: {lines}" for name, lines in lengths.items() if lines > FILE_LINES]
    assert not offenders, complaint(f"files of more than {FILE_LINES} lines:", offenders)


def test_lines_are_short() -> None:
    offenders = []
    for name in files(*SOURCES):
        long = [number for number, line in enumerate(text(name).splitlines(), 1) if len(line) > COLUMNS]
        if long:
            offenders.append(f"{name}: lines {', '.join(map(str, long[:8]))}{' ...' if len(long) > 8 else ''}")
    assert not offenders, complaint(f"lines of more than {COLUMNS} columns:", offenders)


def python_functions(name: str) -> Iterator[tuple[str, int]]:
    """Name and lines of each function, its docstring not counted."""
    for node in ast.walk(ast.parse(text(name), name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno is not None:
                lines -= first.end_lineno - first.lineno + 1
            yield node.name, lines


def c_functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and lines of each function body at the top level; relies on clang-format's layout only for the name."""
    blank = C_NOISE.sub(lambda noise: "\n" * noise.group().count("\n") + " ", source)
    depth, start, name = 0, 0, ""
    lines = blank.splitlines()
    for number, line in enumerate(lines, 1):
        if depth == 0 and "{" in line:
            signature = " ".join(lines[max(0, number - 6) : number])
            called = re.findall(r"(\w+)\s*\([^{}]*\)\s*\{", signature)
            name, start = (called[-1] if called else ""), number
        depth += line.count("{") - line.count("}")
        if depth <= 0 and "}" in line:
            depth = 0
            if name:
                yield name, number - start + 1
            name = ""


def test_functions_fit_a_screen() -> None:
    offenders = []
    for name in files(".py"):
        offenders += [f"{name}: {function}, {n} lines" for function, n in python_functions(name) if n > FUNCTION_LINES]
    for name in files(".c"):
        found = c_functions(text(name))
        offenders += [f"{name}: {function}, {n} lines" for function, n in found if n > FUNCTION_LINES]
    assert not offenders, complaint(f"functions of more than {FUNCTION_LINES} lines:", offenders)


def test_c_functions__are_found() -> None:
    source = 'int one(int a) {\n  return "{"[a];\n}\n\nstatic int\ntwo(int b,\n    int c) {\n  if (b) {\n  }\n}\n'
    assert list(c_functions(source)) == [("one", 3), ("two", 4)]


def test_text_files_end_with_a_newline_and_have_no_tabs_or_trailing_blanks() -> None:
    offenders = []
    for name in files(*SOURCES, ".yaml", ".toml", ".md", ".thrift", "meson.build"):
        content = text(name)
        if content and not content.endswith("\n"):
            offenders.append(f"{name}: no newline at the end")
        bad = [str(n) for n, line in enumerate(content.splitlines(), 1) if line != line.rstrip() or "\t" in line]
        if bad:
            offenders.append(f"{name}: tabs or trailing blanks in lines {', '.join(bad[:8])}")
    assert not offenders, complaint("untidy text:", offenders)
    assert (ROOT / ".clang-format").exists()
