"""What documents name is there: files, functions, commands and their options, constants with their values."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
from rostrum.client.cli import main as rostrum
from rostrum.controller.app import main as rostrum_manager

from tests.tidy.tree import ROOT, complaint, files, text

PAGES = [*files(".md", under="docs/"), "README.md", "CONTRIBUTING.md"]
STEPS = 10
CELL = 200
COLUMNS = 100
WORDS = 35_000
RECORDS = ("docs/faults-settled.md", "docs/frictions.md")
WALKS = ("A received data packet", "A lost packet", "A REST request")


def section(page: str, title: str) -> str:
    return text(page).split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("title", WALKS)
def test_walk__has_at_most_ten_steps_of_files_that_exist(title: str) -> None:
    steps = re.findall(r"^\d+\. (.*)$", section("docs/architecture.md", title), re.MULTILINE)
    assert 0 < len(steps) <= STEPS
    for step in steps:
        named = re.match(r"`([\w/]+\.\w+)`", step)
        assert named and (ROOT / named[1]).is_file(), step
        function = re.search(r"\(`(rs_\w+)`\)", step)
        assert not function or re.search(rf"\b{function[1]}\b", text(named[1])), step


def test_architecture__is_one_page() -> None:
    lines = text("docs/architecture.md").splitlines()
    assert len(lines) <= 110 and max(map(len, lines)) <= 100


def links(page: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text(page)) if "://" not in target]


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-")


def test_links__lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in links(page):
            name, _, part = target.partition("#")
            there = (ROOT / page).parent / name if name else ROOT / page
            if not there.exists():
                broken.append(f"{page}: {target}")
            elif part and there.suffix == ".md":
                titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                if part not in [anchor(title) for title in titles] and f'<a id="{part}">' not in there.read_text():
                    broken.append(f"{page}: {target} (no such title)")
    assert not broken, complaint("links that lead nowhere:", broken)


# A path from the root, as documents name files: with a folder of ours and an ending.
FILE = re.compile(r"`((?:agent|controller|mininet|sim|bench|tests|topologies|p4src|docs|results|\.ci)/[\w./-]+\.\w+)`")


def test_files__exist() -> None:
    missing = [
        f"{page}: {name}"
        for page in PAGES
        for name in FILE.findall(text(page))
        if not (ROOT / name).exists() and not name.startswith("p4src/build/")
    ]
    assert not missing, complaint("documents name files that are not there:", missing)


# (docs/recovery.md, "What survives"), in code and units
SECTION = re.compile(r'(docs/[\w/-]+\.md),\s+(?:[#*]+\s*)?"([^"]+)"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SOURCE = re.compile(r"(?<![\w./-])((?:\w+/)*[a-z]\w+\.[ch])\b(?!\w)")
FOREIGN = ("linux/", "net/", "netinet/", "tcp_bic.c", "thrift_schema.", "core/ENGINE/")  # Linux's, or made by the build


def test_sections_that_code_names__exist() -> None:
    missing = []
    for name in files(".c", ".h", ".py", ".thrift", ".p4", ".service", ".mount", ".yaml"):
        for page, title in SECTION.findall(text(name)):
            title = " ".join(title.replace(" *", " ").replace("#", " ").split())
            there = text(page) if (ROOT / page).is_file() else ""
            if not re.search(rf"(?:^#+ .*|\*\*){re.escape(title)}\b", there, re.MULTILINE):
                missing.append(f"{name}: {page}, {title!r}")
    assert not missing, complaint("comments name sections that are not there:", missing)


def test_files_that_comments_name__exist() -> None:
    """Of C: a name that a file had once sends whoever reads on into nothing."""
    names, missing = {f"/{name}" for name in files(".c", ".h")}, []
    for name in files(".c", ".h", under="agent/"):
        for comment in COMMENT.findall(text(name)):
            for told in SOURCE.findall(comment):
                if not told.startswith(FOREIGN) and not any(one.endswith(f"/{told}") for one in names):
                    missing.append(f"{name}: {told}")
    assert not missing, complaint("comments name files that are not there:", missing)


def commands_of(page: str) -> list[list[str]]:
    """Lines of code blocks that begin with `rostrum` or `rostrum-manager`, as fields; without what a shell adds."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.split(r"\s#|\s[|&;<>]|\s\d?>", line.strip())[0].strip()
            if re.match(r"rostrum(-manager)?\s", line) and not re.search(r"[$…]|\.\.\.|NAME|\(|\*", line):
                found.append(shlex.split(line))
    return found


def options_of(fields: list[str]) -> tuple[click.Command, list[str]]:
    """The command that fields lead to, and the options that follow. Raises KeyError for one that is not there."""
    command: click.Command = rostrum if fields[0] == "rostrum" else rostrum_manager
    rest = fields[1:]
    context = click.Context(command)
    while isinstance(command, click.Group) and rest:
        if rest[0].startswith("-"):
            break
        inner = command.get_command(context, rest[0])
        if inner is None:
            raise KeyError(rest[0])
        command, rest = inner, rest[1:]
        context = click.Context(command, parent=context)
    if command.name == "run" and rest and not rest[0].startswith("-"):
        from rostrum.lab import experiments as lab
        from rostrum.sim import experiments as sim

        return (sim if fields[1] == "sim" else lab).commands()[rest[0]], rest[1:]
    return command, [word for word in rest if word.startswith("--")]


COMMANDS = [(page, fields) for page in PAGES for fields in commands_of(page)]


def test_commands__are_found() -> None:
    assert len(COMMANDS) > 40


def test_readme__shows_three_figures_and_the_command_of_each() -> None:
    shown = re.findall(r"^!\[[^]]+\]\((results/[\w-]+\.png)\)$", text("README.md"), re.MULTILINE)
    made = re.findall(r"^(?:make|rostrum) .*# (results/[\w-]+\.png): ", text("README.md"), re.MULTILINE)
    assert len(shown) == 3 and shown == made
    assert all((ROOT / name).is_file() for name in shown)


def test_commands__and_their_options_exist() -> None:
    wrong = []
    for page, fields in COMMANDS:
        try:
            command, given = options_of(fields)
        except KeyError as error:
            wrong.append(f"{page}: {shlex.join(fields)}: there is no {error}")
            continue
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        for word in given:
            name = word.split("=")[0]
            if name == "--":
                break
            if name.startswith("--") and name not in known:
                wrong.append(f"{page}: {shlex.join(fields)}: {name} is not an option of {command.name}")
    assert not wrong, complaint("commands in documents that would be refused:", wrong)


# `NAME` = value, `NAME` (value), `NAME` value: of constants in capitals with an underscore or more.
CONSTANT = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`(?: =| is|,|:)? \(?(\d[\d,_.]*)\b")


def constants() -> dict[str, set[float]]:
    """Of C and Python: names in capitals that stand for a number."""
    found: dict[str, set[float]] = {}
    for name in files(".c", ".h"):
        for one, value in re.findall(r"^#define (\w+) \(?(\d[\d.]*)[uUlL]*\)?", text(name), re.MULTILINE):
            found.setdefault(one, set()).add(float(value))
    for name in files(".py"):
        for node in ast.parse(text(name), name).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                value = node.value.value
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(value, int | float):
                        found.setdefault(target.id, set()).add(float(value))
    return found


def test_constants__have_the_values_that_documents_say() -> None:
    known, wrong = constants(), []
    for page in PAGES:
        for name, said in CONSTANT.findall(text(page)):
            values = known.get(name) or known.get(f"RS_{name}")
            number = float(said.rstrip(".,").replace(",", "").replace("_", ""))
            if values and number not in values:
                wrong.append(f"{page}: `{name}` {said}, in the code {sorted(values)}")
    assert not wrong, complaint("constants that have other values:", wrong)


def test_names_of_c__are_in_the_code() -> None:
    names = set(re.findall(r"\w+", "".join(text(name) for name in files(".c", ".h", ".py", ".thrift"))))
    unknown = [
        f"{page}: {name}"
        for page in PAGES
        for name in sorted(set(re.findall(r"\b(?:rs|RS)_\w+", text(page))))
        if name not in names
    ]
    assert not unknown, complaint("documents name what is not in the code:", unknown)


def test_faults__tests_that_are_named_exist() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in re.findall(r"(tests/[\w/.]+\.\w+)(?:::(\w+))?", text("docs/faults-settled.md"))
        if not (ROOT / path).is_file() or name not in text(path)
    ]
    assert not missing, complaint("tests of settled faults that are not there:", missing)


def test_words__are_few() -> None:
    """Of all documents together, but for code blocks and the two lists of verdicts; bars of tables are no words."""
    prose = [page for page in PAGES if page.startswith("docs/") and page not in RECORDS]
    blocks = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    count = {page: len(re.findall(r"\S*\w\S*", blocks.sub("", text(page)))) for page in prose}
    assert sum(count.values()) <= WORDS, complaint(
        f"more than {WORDS} words:", [f"{n} {page}" for page, n in count.items()]
    )


def test_glossary__is_in_order_and_says_each_term_once() -> None:
    terms = re.findall(r"^\| ([^|]+?) \|", text("docs/glossary.md"), re.MULTILINE)[2:]
    assert len(terms) > 30 and terms == sorted(set(terms), key=lambda term: term.lower())
    assert all(len(line) <= CELL for line in text("docs/glossary.md").splitlines())
    assert Path(ROOT / "docs" / "glossary.md").is_file()


def code(page: str) -> list[tuple[int, str]]:
    """Numbered lines of code blocks: commands, programs, pictures, what is printed."""
    found, within = [], False
    for number, line in enumerate(text(page).splitlines(), 1):
        if line.lstrip().startswith("```"):
            within = not within
        elif within:
            found.append((number, line))
    return found


def prose(page: str) -> list[tuple[int, str]]:
    """Numbered lines that are no code, heading, picture or table row."""
    found, code = [], False
    for number, line in enumerate(text(page).splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith(("#", "|", "![")):
            found.append((number, line))
    return found


def test_form__prose_has_100_columns_and_cells_200_characters() -> None:
    offenders = []
    for page in sorted({*PAGES, "CHANGELOG.md"}):
        for number, line in prose(page):
            if len(line) > COLUMNS and " " in line.strip()[2:]:
                longest = max(line.split(), key=len)
                if len(longest) < COLUMNS - 10:  # one that cannot be cut, such as a link, may stand out
                    offenders.append(f"{page}:{number}: {len(line)} columns")
        for number, line in code(page):
            if len(line) > COLUMNS:
                offenders.append(f"{page}:{number}: {len(line)} columns of code or picture")
        for number, line in enumerate(text(page).splitlines(), 1):
            if line.startswith("|") and any(len(cell.strip()) > CELL for cell in re.split(r"(?<!\\)\|", line)):
                offenders.append(f"{page}:{number}: a cell of more than {CELL} characters")
    assert not offenders, complaint("the form of documents:", offenders)
