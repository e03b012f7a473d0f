"""The papers' claims as data: what the table may say, how results are judged, and that runs are kept, told and stored
as the command promises."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rostrum.bench.reproduce import claims as table
from rostrum.bench.reproduce import report, runner
from rostrum.bench.reproduce.claims import Claims, ClaimsError, Run
from rostrum.bench.reproduce.commands import reproduce
from rostrum.bench.reproduce.judge import Bound, JudgeError, Verdict, evaluate, judge, parse

RESULT = {
    "summary": {"rate": {"1": 100.0, "256": 97.0}, "word": "fast", "none": None},
    "runs": [{"protocol": "rdcm", "loss": 0.01, "got": {"p50": 3}}, {"protocol": "srm", "loss": 0.01, "got": {}}],
    "manifest": {"commit": "abc"},
}
REFUSED = (
    "", "rate", "().__class__", "at.__call__", 'open("/etc/passwd")', '__import__("os")', "[1, 2][0]", "lambda: 1",
    'at("summary")["word"].upper', "1 if 1 else 2", "2 ** 999999999", "f'{1}'", "1 + " * 600 + "1",
    "(" * 300 + "1", "\x00",
)  # fmt: skip
LACKING = ('at("summary", "rate", "512")', 'row("runs", protocol="lbrm")["got"]', 'row("summary", x=1)',
           'at("summary", "word")', 'at("summary", "none")', 'at("summary", "rate", "1") / 0', 'min("a", 1)',
           "at(0, 1)", 'at("runs", 7)', 'row()', 'min()')  # fmt: skip


def test_values__are_arithmetic_over_what_the_result_has() -> None:
    assert evaluate('at("summary", "rate", "256") / at("summary", "rate", "1")', RESULT) == pytest.approx(0.97)
    assert evaluate('row("runs", protocol="rdcm", loss=0.01)["got"]["p50"] * 2', RESULT) == 6
    assert evaluate("max(1, 3) - mean(1, 2, 3) + -min(2, 1)", RESULT) == 0


@pytest.mark.parametrize("expression", REFUSED)
def test_values__nothing_else_is_taken(expression: str) -> None:
    with pytest.raises(JudgeError):
        parse(expression)


@pytest.mark.parametrize("expression", LACKING)
def test_values__what_the_result_lacks_is_said(expression: str) -> None:
    with pytest.raises(JudgeError):
        evaluate(expression, RESULT)


def test_values__random_text_is_refused_or_a_number(rng: random.Random) -> None:
    pieces = [
        "at",
        "(",
        ")",
        '"summary"',
        ",",
        "[",
        "]",
        "1",
        "/",
        "-",
        "row",
        "x=",
        "runs",
        " ",
        ".",
        "'",
        "\\",
        "0e9",
    ]
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        try:
            evaluate(text, RESULT)
        except JudgeError:
            continue


def test_bounds__are_told_apart_and_misspelt_ones_refused() -> None:
    assert Bound(">= 0.9").holds(0.9) and not Bound("> 0.9").holds(0.9) and Bound("0.9 to 1.1").holds(1)
    for text in ("", "about 1", "= 1", "1", ">=", "1 to", "> x"):
        with pytest.raises(JudgeError):
            Bound(text)
    assert judge(0.97, ">= 0.97") is Verdict.FOUND
    assert judge(0.92, ">= 0.97", ">= 0.9") is Verdict.SHAPE
    assert judge(0.5, ">= 0.97", ">= 0.9") is Verdict.NOT_FOUND


def test_table__has_every_paper_and_says_why_where_nothing_is_judged() -> None:
    claims = table.load()
    assert len(claims.claims) >= 45
    assert {one.paper for one in claims.claims} == set(table.PAPERS)
    assert {one.run for one in claims.claims if one.run} == set(claims.runs)  # no run that judges nothing
    judged = [claims.judged(one, None, "nothing is stored") for one in claims.claims]
    assert all(one.reason for one in judged)


def test_table__its_commands_exist_with_these_options() -> None:
    for run in table.load().runs.values():
        for quick in (False, True):
            first, second, name, *rest = run.arguments(quick, Path("x.json"))
            assert second == "run"
            command = _experiment(first, name)
            with command.make_context(name, rest, resilient_parsing=False):
                pass


def _experiment(kind: str, name: str) -> click.Command:
    from rostrum.lab import experiments as lab
    from rostrum.sim import experiments as sim

    return {"lab": lab, "sim": sim}[kind].commands()[name]


def test_table__stored_results_have_what_claims_ask_for() -> None:
    claims, asked = table.load(), 0
    for claim in (one for one in claims.claims if one.run):
        outcome = runner.stored(claims.runs[claim.run])
        if outcome.result is not None:
            assert claims.judged(claim, outcome.result).verdict is not Verdict.NOT_JUDGED, claim.id
            asked += 1
    assert asked > 30


WAN = {"r": {"command": "sim run wan"}}
GOOD = {"id": "a", "paper": "qsm", "where": "Fig. 1", "claim": "c", "run": "r", "value": "1", "found": "> 0"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "while parsing"),
        ("[]", "it has `runs` and `claims`"),
        ('{"runs": {"r": {"command": "rm -rf x"}}, "claims": []}', "a command begins with"),
        (json.dumps({"runs": {}, "claims": [GOOD]}), "there is no run 'r'"),
        (json.dumps({"runs": {}, "claims": [{**GOOD, "paper": "x"}]}), "paper is one of"),
        (json.dumps({"runs": {"r": {"command": "sim run wan"}}, "claims": [GOOD, GOOD]}), "two claims are called a"),
        (
            json.dumps({"runs": {"r": {"command": "sim run wan"}}, "claims": [{**GOOD, "value": "x"}]}),
            "only arithmetic",
        ),
        (json.dumps({"runs": {"r": {"command": "sim run wan"}}, "claims": [{**GOOD, "colour": 1}]}), "colour"),
        (json.dumps({"runs": {}, "claims": [{**GOOD, "not_judged": "so"}]}), "it has no run"),
    ],
)
def test_table__what_is_wrong_with_it_is_said(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "claims.yaml"
    with pytest.raises(ClaimsError, match="is not there: claims are tried from a clone"):
        table.load(file)
    file.write_text(text)
    with pytest.raises(ClaimsError, match=message):
        table.load(file)


def test_list__tells_all_claims_as_json() -> None:
    done = CliRunner().invoke(reproduce, ["--list", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert len(found["claims"]) >= 45
    assert {"id", "verdict", "reason", "commit"} <= set(found["claims"][0])
    assert all(one["reason"] for one in found["claims"] if one["verdict"] in ("not judged", "not found")), found


def test_only__an_unknown_claim_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(reproduce, ["--list", "--only", "nobody*"])
    assert done.exit_code == 1 and "no claim is called nobody*" in done.output


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results go to a folder of their own, of a commit without changes."""
    monkeypatch.setattr(runner, "scratch", lambda quick: tmp_path / "scratch")
    monkeypatch.setattr(runner, "STORED", tmp_path / "results")
    monkeypatch.setattr(runner, "commit", lambda: "abc")
    (tmp_path / "results").mkdir()
    return tmp_path


def test_quick__a_run_is_made_once_for_all_its_claims_and_judged() -> None:
    done = CliRunner().invoke(reproduce, ["--quick", "--again", "--only", "rdcm-fig15*", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["verdict"] for one in found["claims"]] == ["found", "found"]
    assert done.stderr.count("rostrum sim run rdcm-failure") == 1


POPEN = subprocess.Popen


def fake(folders: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> list[int]:
    """Commands are this shell script instead, with the result's file as $1; returns a list with a member a call."""
    calls: list[int] = []

    def popen(argv: list[str], **options: Any) -> Any:
        calls.append(1)
        return POPEN(["sh", "-c", script, "sh", argv[argv.index("--json") + 1]], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return calls


WRITES = """echo '{"got": 1, "manifest": {"commit": "abc"}}' > "$1" """


def test_all__goes_on_where_it_was(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = fake(folders, monkeypatch, WRITES), Run("r", "sim run wan")
    assert not runner.perform(run, False, False, lambda _: None).kept
    assert runner.perform(run, False, False, lambda _: None).kept
    assert len(calls) == 1
    assert not runner.perform(run, False, True, lambda _: None).kept
    monkeypatch.setattr(runner, "commit", lambda: "abd")
    assert not runner.perform(run, False, False, lambda _: None).kept
    monkeypatch.setattr(runner, "commit", lambda: "abc+changes")
    assert not runner.perform(run, False, False, lambda _: None).kept


def test_a_run_that_fails__is_told_with_the_end_of_its_log(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(folders, monkeypatch, "echo first; echo no such network; exit 3")
    outcome = runner.perform(Run("r", "sim run wan"), True, False, lambda _: None)
    assert outcome.result is None and "3: no such network" in outcome.reason


def test_a_run_that_hangs__is_ended(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(folders, monkeypatch, "exec sleep 1000")
    monkeypatch.setattr(runner, "LIMIT_MORE_S", 0.2)
    outcome = runner.perform(Run("r", "sim run wan", minutes=0), True, False, lambda _: None)
    assert outcome.result is None and "took more than" in outcome.reason


def test_store__only_from_a_tree_without_changes(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(folders, monkeypatch, WRITES)
    claims = Claims({"r": Run("r", "sim run wan")}, (table.Claim(**{**GOOD, "value": 'at("got")'}),))
    outcome = runner.perform(claims.runs["r"], False, False, lambda _: None)
    (file,) = runner.store(claims.runs["r"], outcome, claims)
    assert json.loads(file.read_text())["verdicts"] == {"a": "found"}
    fake(folders, monkeypatch, WRITES.replace("abc", "abc+changes"))
    changed = runner.perform(claims.runs["r"], False, True, lambda _: None)
    with pytest.raises(ClaimsError, match="commit first"):
        runner.store(claims.runs["r"], changed, claims)


def test_store__several_runs_are_stored_though_the_first_changes_the_tree(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = folders / "results" / "rdcm-failure.json"
    monkeypatch.setattr(runner, "commit", lambda: "abc+changes" if clean.exists() else "abc")
    real = table.load()
    wanted = Claims({n: real.runs[n] for n in ("rdcm-failure", "rdcm-burden")}, real.claims)
    monkeypatch.setattr("rostrum.bench.reproduce.commands.load", lambda: wanted)
    fake(folders, monkeypatch, WRITES)
    done = CliRunner().invoke(reproduce, ["--store", "--only", "rdcm-failure", "--only", "rdcm-burden"])
    assert {file.name for file in (folders / "results").iterdir()} == {"rdcm-failure.json", "rdcm-burden.json"}, (
        done.output
    )


def test_store__a_short_run_is_marked_and_replaces_no_full_one(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "commit", lambda: "abc")
    real, file = table.load(), folders / "results" / "rdcm-failure.json"
    wanted = Claims({"rdcm-failure": real.runs["rdcm-failure"]}, real.claims)
    monkeypatch.setattr("rostrum.bench.reproduce.commands.load", lambda: wanted)
    fake(folders, monkeypatch, WRITES)
    for options, short in ((["--quick"], True), (["--again"], None), (["--quick", "--again"], None)):
        CliRunner().invoke(reproduce, ["--store", "--only", "rdcm-failure", *options])
        assert json.loads(file.read_text()).get("short_run") is short, options
    claim = table.Claim(**GOOD)
    assert "short run" in Claims({}, (claim,)).judged(claim, {"short_run": True}).reason


def test_quick__points_that_a_short_run_lacks_are_no_failure(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = table.Claim(**{**GOOD, "value": 'at("summary", "512")'})
    wanted = Claims({"r": Run("r", "sim run wan")}, (claim, table.Claim(**{**GOOD, "id": "b"})))
    monkeypatch.setattr("rostrum.bench.reproduce.commands.load", lambda: wanted)
    fake(folders, monkeypatch, """echo '{"summary": {"2": 1}, "manifest": {"commit": "abc"}}' > "$1" """)
    short = CliRunner().invoke(reproduce, ["--quick", "--only", "r", "--json"])
    first, second = json.loads(short.stdout)["claims"]
    assert short.exit_code == 0 and first["verdict"] == "not judged" and second["verdict"] == "found"
    assert "a short run (--quick) lacks it (the result has no 512)" in first["reason"]
    full = CliRunner().invoke(reproduce, ["--again", "--only", "r", "--json"])
    assert full.exit_code == 1 and json.loads(full.stdout)["claims"][0]["reason"] == "the result has no 512"
    fake(folders, monkeypatch, "exit 3")
    assert CliRunner().invoke(reproduce, ["--quick", "--again", "--only", "r"]).exit_code == 1


def test_quick__short_runs_of_ricochet_have_every_point_that_claims_ask_for() -> None:
    """Keys of a claim that are numbers are points on a study's axis."""
    from rostrum.sim.experiments.ricochet import STUDIES

    studies, claims, asked = {one.name: one for one in STUDIES}, table.load(), 0
    for claim in (one for one in claims.claims if one.run in studies):
        points = {key[-1] for key in studies[claim.run].points(True)}
        numbers = set(re.findall(r'"(\d+)"', claim.value))
        assert numbers <= points, (claim.id, numbers - points)
        asked += len(numbers)
    assert asked > 20


def test_a_spoilt_result__is_told(folders: Path) -> None:
    (folders / "results" / "r.json").write_text("{")
    with pytest.raises(ClaimsError, match=r"r\.json"):
        runner.stored(Run("r", "sim run wan"))


def test_report__is_whole_in_itself_and_escapes() -> None:
    claims = table.load()
    wild = table.Claim("x", "qsm", "Fig. <1>", "50 % & <script>", run="", not_judged="a < b")
    text = report.page([claims.judged(wild, None)], claims)
    assert "<script>" not in text and 'src="http' not in text and "a &lt; b" in text
    table_of_it = report.latex([claims.judged(wild, None)])
    assert r"50 \% \& $<$script$>$" in table_of_it and "not judged: a $<$ b" in table_of_it


def test_report__the_table_for_a_document_has_command_and_commit() -> None:
    claims = table.load()
    result = {**RESULT, "summary": {"alive_over_sender": 1.0}, "manifest": {"commit": "0123456789abcdef+changes"}}
    claim = next(one for one in claims.claims if one.id == "rdcm-fig15-others")
    text = report.latex([claims.judged(claim, result)])
    assert "rostrum sim run rdcm-failure & 0123456789ab+changes" in text
    assert len({line.count(" & ") for line in text.splitlines() if " & " in line}) == 1
