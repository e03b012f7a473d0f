"""Each constant of a law that paces, repairs or waits says where it comes from: beside it, or above its paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.tree import complaint, files, text

FOLDERS = ("rate", "repair", "feedback", "republic", "rdcm", "wan")
# An RFC, a draft, code that others know, a paper's section; a test or command that shows what another value does; a
# document that gives the reason; another constant, from which it follows; or that it only bounds something.
SOURCE = re.compile(
    r"RFC \d+|draft-[a-z]|\bLinux|Sec\. |\b[Bb]ounds?\b|\bwire\b|test_\w+|rostrum (sim|lab|bench) \w+|docs/\w+\.md"
    r"|\bBBR\b"
)
UNITS = {"RS_MS", "MS", "SECOND"}
CONSTANT = re.compile(r"#define (\w+)(?!\w|\() +(\S.*)")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def constants(source: str) -> Iterator[tuple[str, str]]:
    """Name of each constant that is a number, and what is said of it: value, comment, and comments above it in the
    paragraph, on lines of their own.
    """
    for paragraph in re.split(r"\n\s*\n", source.replace("\\\n", " ")):
        above = ""
        comment_open = False
        for line in paragraph.splitlines():
            if comment_open or line.startswith("/*"):
                above += line + " "
                comment_open = "*/" not in line
            elif (found := CONSTANT.match(line)) and not found[1].endswith("_H"):
                value = COMMENT.sub("", found[2])
                if re.search(r"(?<![\w.])\d", value):
                    yield found[1], f"{found[2]} {above}"


def laws() -> list[str]:
    return [name for folder in FOLDERS for name in files(".c", ".h", under=f"agent/core/{folder}/")]


def test_constants_say_where_they_come_from() -> None:
    known = {
        name
        for source in files(".c", ".h", under="agent/core/")
        for name in re.findall(r"#define (\w+)\b(?! *$)", text(source), re.MULTILINE)
    } - UNITS
    offenders = []
    for name in laws():
        for constant, said in constants(text(name)):
            others = set(re.findall(r"\w+", said)) & known - {constant}
            if constant not in UNITS and not others and not SOURCE.search(said):
                offenders.append(f"{name}: {constant}")
    rule = "constants without a source (RFC, paper's section, test, command, document, other constant; or: a bound):"
    assert not offenders, complaint(rule, offenders)


def test_sources_of_constants_exist() -> None:
    tests = {name.rsplit("/", 1)[-1].rsplit(".", 1)[0] for name in files(".c", ".py", under="tests/")}
    commands = {name.rsplit("/", 1)[-1].removesuffix(".py").replace("_", "-") for name in files(".py")}
    offenders = []
    for name in laws():
        for constant, said in constants(text(name)):
            named = set(re.findall(r"\btest_\w+", said)) - tests
            named |= set(re.findall(r"rostrum (?:sim|lab) run ([\w-]+)", said)) - commands
            named |= {page for page in re.findall(r"docs/\w+\.md", said) if page not in files(".md")}
            offenders += [f"{name}: {constant}: {source}" for source in named]
    assert not offenders, complaint("constants whose source is not there:", offenders)


def test_constants__are_found() -> None:
    source = "#define A_H\n#define ONE 1 /* RFC 1 */\n\n/* test_x */\n#define TWO \\\n    2\n#define F(x) 3\n"
    assert [(name, "test_x" in said) for name, said in constants(source)] == [("ONE", False), ("TWO", True)]
