"""p4src/build is what p4src compiles to, names no machine, and says what docs/p4.md says."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from finsy import P4Schema
from finsy.proto import p4i

from tests.tidy.tree import ROOT

P4SRC = ROOT / "p4src"
BUILD = P4SRC / "build"
CONTRACT = (ROOT / "docs/p4.md").read_text()


def load_compile() -> ModuleType:
    """p4src/compile.py, which is no package."""
    spec = importlib.util.spec_from_file_location("p4src_compile", P4SRC / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


compiling = load_compile()
MISSING = "" if compiling.compiler() else f"p4c is not installed (no {compiling.COMPILER} on the PATH)"


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((BUILD / "manifest.json").read_text())
    return content


@pytest.fixture(scope="module")
def info() -> p4i.P4Info:
    return P4Schema(BUILD / "tor.p4info.txtpb").p4info


def test_outputs_are_of_these_sources(manifest: dict[str, Any]) -> None:
    assert manifest["sources"] == compiling.sources_digest(), (
        "p4src/build is stale: run `make p4` where p4c is installed"
    )


def test_outputs_are_those_of_the_manifest(
    manifest: dict[str, Any], record_testsuite_property: Callable[[str, object], None]
) -> None:
    """As the compiler made them, or as the manifest says that they were edited since: then the summary says it too."""
    assert set(manifest) - {"edited"} == {"p4c", "sources", "outputs"}
    if "edited" in manifest:
        record_testsuite_property("note", f"p4src/build is not the compiler's: {manifest['edited']}")
    assert manifest["outputs"] == compiling.file_digests(BUILD)
    assert sorted(path.name for path in BUILD.iterdir()) == sorted([*compiling.output_names(), "manifest.json"])


def test_digest_sees_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in compiling.sources():
        copy = tmp_path / path.relative_to(P4SRC)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(compiling, "HERE", tmp_path)
    before = compiling.sources_digest()
    assert compiling.sources()
    for path in compiling.sources():
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        assert compiling.sources_digest() != before, path.name
        path.write_bytes(content)
    assert compiling.sources_digest() == before


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_compiler_makes_the_same_again_without_a_warning(tmp_path: Path, manifest: dict[str, Any]) -> None:
    compiling.compile_all(tmp_path)
    if compiling.compiler_version() == manifest["p4c"]:
        for name in compiling.output_names():
            assert (tmp_path / name).read_bytes() == (BUILD / name).read_bytes(), name
    else:  # another compiler may order its output differently; what controllers rely on is the same
        assert P4Schema(tmp_path / "tor.p4info.txtpb").p4info == P4Schema(BUILD / "tor.p4info.txtpb").p4info


def test_a_missing_compiler_is_said_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(compiling.CompileError, match=r"is not installed .*stay as they are"):
        compiling.compile_all(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_outputs_name_no_folder_of_a_machine() -> None:
    for name in compiling.output_names():
        found = re.findall(r'"(/[^"]*)"', (BUILD / name).read_text())
        assert not found, name
    program = json.loads((BUILD / "tor.json").read_text())
    assert program["program"] == "tor.p4"


def test_everything_has_an_id_of_ours_and_a_description(info: p4i.P4Info) -> None:
    for kind in ("tables", "actions", "counters", "direct_counters", "meters", "registers"):
        for one in getattr(info, kind):
            assert one.preamble.doc.brief, one.preamble.name
            assert one.preamble.id & 0xFFFFFF < 0x100, f"{one.preamble.name}: an id that the compiler made up"
            assert "." not in one.preamble.name


def test_tables_are_as_the_contract_says(info: p4i.P4Info) -> None:
    kinds = {p4i.MatchField.EXACT: "exact", p4i.MatchField.LPM: "lpm"}
    for table in info.tables:
        (row,) = re.findall(rf"^\| `{table.preamble.name}` \|.*$", CONTRACT, re.MULTILINE)
        assert f"0x{table.preamble.id:08x}" in row
        assert f"| {table.size} |" in row or not table.match_fields
        for position, one in enumerate(table.match_fields, 1):
            assert one.id == position
            assert f"`{one.name}` {one.bitwidth} {kinds[one.match_type]}" in row
    assert len(info.tables) == len(re.findall(r"^\| `\w+` \| 0x02", CONTRACT, re.MULTILINE))


def test_a_fresh_switch_uses_one_queue() -> None:
    """BMv2 has one unless told otherwise, and drops what is for a queue that it has not."""
    tables = [one for part in json.loads((BUILD / "tor.json").read_text())["pipelines"] for one in part["tables"]]
    (entry,) = [one["default_entry"] for one in tables if one["name"] == "egress_queues"]
    assert [int(value, 16) for value in entry["action_data"]] == [1]
    assert not entry["action_const"]
    assert not entry["action_entry_const"]


def test_actions_are_as_the_contract_says(info: p4i.P4Info) -> None:
    for action in info.actions:
        parameters = ", ".join(f"{one.name}: {one.bitwidth}" for one in action.params)
        assert f"`{action.preamble.name}({parameters})`" in CONTRACT
        assert [one.id for one in action.params] == list(range(1, len(action.params) + 1))


def test_meters_are_as_the_contract_says(info: p4i.P4Info) -> None:
    for meter in info.meters:
        assert f"| `{meter.preamble.name}` | 0x{meter.preamble.id:08x} | egress port; {meter.size} |" in CONTRACT
        assert meter.spec.unit == p4i.MeterSpec.BYTES
    assert info.meters


def test_counters_are_as_the_contract_says(info: p4i.P4Info) -> None:
    for counter in [*info.counters, *info.direct_counters]:
        assert f"| `{counter.preamble.name}` | 0x{counter.preamble.id:08x} |" in CONTRACT
        assert counter.spec.unit == p4i.CounterSpec.BOTH


def test_the_digest_is_as_the_contract_says(info: p4i.P4Info) -> None:
    (digest,) = info.digests
    assert digest.preamble.name == "first_light_t"
    members = info.type_info.structs["first_light_t"].members
    told = re.findall(r"^\| `(\w+)` \| (\d+) \|", CONTRACT.partition("Digest `first_light_t`")[2], re.MULTILINE)
    assert [(one.name, str(one.type_spec.bitstring.bit.bitwidth)) for one in members] == told
