""".ci/test counts honestly: what failed fails the run, what was skipped is shown, what did not run is not passed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.tree import ROOT

END = "</testsuite></testsuites>"
JUNIT = """<testsuites><testsuite>
<properties><property name="note" value="ran on a real one"/><property name="other" value="x"/></properties>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure message="1 != 2&#10;more"/></testcase>
<testcase classname="a" name="broken"><error message="fixture"/></testcase>
<testcase classname="a" name="left"><skipped message="needs root"/></testcase>
<testcase name="c_good"><system-out>[       OK ] one
[       OK ] two
skipped: no such device
[  SKIPPED ] a kind: three
[  SKIPPED ] four
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] a kind: three</system-out></testcase>
<testcase name="c_bad"><failure/><system-out>[       OK ] one
</system-out><system-err>[  FAILED  ] two
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] two</system-err></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Any]:
    """The program as a module, its logs elsewhere."""
    loader = importlib.machinery.SourceFileLoader("ci_test", str(ROOT / ".ci" / "test"))
    spec = importlib.util.spec_from_loader("ci_test", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci_test"] = module
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    module.LOGS = tmp_path  # type: ignore[attr-defined]
    yield module
    del sys.modules["ci_test"]


def test_cases_are_counted_one_by_one(runner: Any, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(JUNIT)
    result = runner.Result()
    runner.read_junit(path, result)
    assert result.passed == 1 + 2 + 1
    assert result.failures == ["a::bad: 1 != 2", "a::broken: fixture", "c_bad: two"]
    assert result.notes == ["ran on a real one"]
    assert result.skips == [
        "a::left: needs root", "c_good::a kind: three: no such device", "c_good::four: skipped by the program",
    ]  # fmt: skip


def test_failed_programs__are_named_as_meson_takes_them(runner: Any, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    cases = ('agent / core_rate"/>', 'agent / io_udp"><failure/></testcase>', 'agent / api"><error/></testcase>')
    path.write_text("<testsuites><testsuite>" + "".join(f'<testcase name="rostrum:{one}' for one in cases) + END)
    assert runner.failed_programs(path) == ["api", "io_udp"]


@pytest.mark.parametrize(("said", "again"), [("Assertion failed", True), ("ERROR: AddressSanitizer: heap", False)])
def test_c_tests__that_fail_run_once_more_unless_a_sanitizer_spoke(
    runner: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, again: bool
) -> None:
    (tmp_path / "meson-logs").mkdir()
    report, commands = tmp_path / "meson-logs" / "testlog.junit.xml", []

    def run(self: Any, *command: str, **_: Any) -> int:
        commands.append(command)
        case = '<testcase name="rostrum:agent / io_udp"><failure message="no"/></testcase>'
        report.write_text(f"<testsuites><testsuite>{case}{END}")
        self.path.write_text(said)
        return 1 if len(commands) == 1 else 0

    monkeypatch.setattr(runner.Log, "run", run)
    monkeypatch.setattr(runner, "meson_build", lambda *_: tmp_path)
    result = runner.c_tests(runner.Log("c"))
    assert len(commands) == (2 if again else 1) and bool(result.twice) is again and bool(result.failures) is not again
    assert commands[-1][-1] == ("io_udp" if again else "4")


LIBFUZZER = """INFO: seed corpus: files: 3 min: 1b max: 9b total: 15b rss: 30Mb
#4\tINITED cov: 12 ft: 13 corp: 3/15b exec/s: 0 rss: 31Mb
#97\tNEW    cov: 14 ft: 15 corp: 4/16b lim: 4 exec/s: 0 rss: 31Mb L: 1/9 MS: 1 CopyPart-
#4096\tpulse  cov: 14 ft: 15 corp: 4/16b lim: 43 exec/s: 2048 rss: 35Mb
#5000\tDONE   cov: 17 ft: 19 corp: 5/17b lim: 43 exec/s: 2500 rss: 36Mb
Done 5000 runs in 2 second(s)
stat::number_of_executed_units: 5000
stat::average_exec_per_sec:     2500
"""

# Behaves as a libFuzzer program whose run finds two inputs, one of which is enough.
FUZZER = """#!/bin/sh
for word; do case $word in
    -merge=1) merge=yes ;;
    -*) ;;
    *) set -- "$@" "$word" ;;
esac; shift; done
if [ "$merge" ]; then cp "$2/small" "$1/"; exit 0; fi
ls "$1" | sed 's/^/had /'
echo one >"$1/small"; echo three >"$1/large"
cat "$(dirname "$0")/said"
exit $(cat "$(dirname "$0")/status")
"""


def test_fuzz__numbers_are_read_from_libfuzzers_output(runner: Any) -> None:
    assert runner.fuzz_numbers(LIBFUZZER) == (5000, 12, 17)
    assert runner.fuzz_numbers("Segmentation fault") == (0, 0, 0)


@pytest.mark.parametrize("status", [0, 77])
def test_fuzz__the_corpus_is_kept_and_minimized_between_runs(runner: Any, tmp_path: Path, status: int) -> None:
    target = tmp_path / "fuzz_thing"
    target.write_text(FUZZER)
    target.chmod(0o755)
    (tmp_path / "said").write_text(LIBFUZZER)
    (tmp_path / "status").write_text(str(status))
    corpora, seeds = tmp_path / "corpora", tmp_path / "seeds"
    for number in range(2):
        log, result = runner.Log(f"fuzz{number}"), runner.Result()
        runner.fuzz_target(log, target, 1, corpora, seeds, result)
        kept = sorted(one.name for one in (corpora / "thing").iterdir())
        if status:
            assert result.failures == [f"fuzz_thing: status 77, the input is in {corpora}/crash-thing-*"]
            assert kept == ["large", "small"] and not result.passed
        else:
            assert result.notes == ["fuzz_thing: 5,000 executions, 5 new edges (of 17), 1 inputs kept (of 2)"]
            assert kept == ["small"] and result.passed == 1
    assert "had small" in log.path.read_text()  # the second run began with what the first had left
    assert runner.CORPORA.parent == runner.ROOT / "build" and runner.CORPORA.name != "fuzz"


def group(runner: Any, name: str, run: Callable[[Any], Any], after: tuple[str, ...] = ()) -> Any:
    return runner.Group(name, name, run, after)


def good(runner: Any) -> Callable[[Any], Any]:
    return lambda log: runner.Result(passed=1)


def bad(runner: Any) -> Callable[[Any], Any]:
    def run(log: Any) -> Any:
        log.run("sh", "-c", "exit 3")

    return run


def test_the_first_failure_stops_the_rest(runner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [
        group(runner, "one", good(runner)),
        group(runner, "two", bad(runner)),
        group(runner, "three", good(runner)),
    ]
    results = runner.run_all(groups, 1, keep_going=False)
    assert sorted(results) == ["one", "two"]
    assert runner.sum_up(groups, results, 1.0) == 1
    out = capsys.readouterr().out
    assert "NOT RUN: three" in out
    assert "ended with status 3" in out
    assert out.rstrip().endswith("1 passed, 1 failed, 0 skipped")


def test_what_needs_a_failed_group_does_not_run(runner: Any) -> None:
    groups = [group(runner, "two", good(runner), ("one",)), group(runner, "one", bad(runner))]
    groups += [group(runner, "three", good(runner))]
    results = runner.run_all(groups, 2, keep_going=True)
    assert sorted(results) == ["one", "three"]
    assert runner.sum_up(groups, results, 1.0) == 1


def test_a_running_group_is_ended_and_has_no_result(runner: Any) -> None:
    groups = [group(runner, "slow", lambda log: log.run("sleep", "600")), group(runner, "bad", bad(runner))]
    assert sorted(runner.run_all(groups, 2, keep_going=False)) == ["bad"]


def test_three_run_at_a_time_and_no_more_than_two_of_a_kind(runner: Any) -> None:
    running: list[str] = []
    lock = threading.Lock()
    seen: list[tuple[int, int]] = []  # labs and all at a time
    both = threading.Barrier(3, timeout=60)

    def run(name: str) -> Callable[[Any], Any]:
        def work(log: Any) -> Any:
            with lock:
                running.append(name)
                seen.append((sum(one.startswith("lab/") for one in running), len(running)))
            if name in ("one", "two", "lab/a"):
                both.wait()  # these three are there together
            with lock:
                running.remove(name)
            return runner.Result(passed=1)

        return work

    names = ["one", "two", "three", "lab/a", "lab/b", "lab/c", "lab/d", "four"]
    results = runner.run_all([group(runner, name, run(name)) for name in names], 3, keep_going=True)
    assert len(results) == len(names) and not any(result.failures for result in results.values())
    for labs, together in seen:
        assert labs <= 2 and together - labs <= 2 and together <= 3


def test_who_only_computes_gives_way(runner: Any) -> None:
    for nice, word in ((0, "0"), (7, "7")):
        log = runner.Log(f"nice{nice}", nice)
        log.run("nice")
        assert int(log.path.read_text().split()[-1]) == min(19, os.nice(0) + int(word))


def test_a_group_that_runs_nothing_fails(runner: Any) -> None:
    empty = group(runner, "empty", lambda log: runner.Result())
    results = runner.run_all([empty], 1, keep_going=False)
    assert results["empty"].failures == ["the group ran nothing"]


def test_skips_are_shown_and_counted(runner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = runner.Result(passed=2, skips=["lab: needs root"], notes=["on a real one"])
    groups = [group(runner, "one", lambda log: told)]
    assert runner.sum_up(groups, runner.run_all(groups, 2, keep_going=False), 1.0) == 0
    out = capsys.readouterr().out
    assert "SKIP one: lab: needs root" in out
    assert "NOTE one: on a real one" in out
    assert out.rstrip().endswith("2 passed, 0 failed, 1 skipped")


def results_of(runner: Any, tmp_path: Path, *outcomes: list[str]) -> tuple[Any, Any]:
    """A lab file whose runs end with these failures; the result, and the log."""
    log, left = runner.Log("lab/x"), list(outcomes)

    def run(log: Any) -> Any:
        log.path.write_text(f"run {len(outcomes) - len(left)}")
        return runner.Result(passed=1, failures=left.pop(0))

    return runner.twice_at_most(log, run), log


def test_a_lab_file_that_failed_runs_once_more_and_is_told(
    runner: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, log = results_of(runner, tmp_path, ["slow"], [])
    assert not result.failures and result.twice == ["slow (log: lab_x.first.log)"]
    assert (tmp_path / "lab_x.first.log").read_text() == "run 0" and log.path.read_text() == "run 1"
    group = runner.Group("lab/x", "", lambda log: result)
    assert runner.sum_up([group], {"lab/x": result}, 1.0) == 0
    assert "TWICE lab/x: slow" in capsys.readouterr().out


def test_few_tests_with_real_agents_that_failed_run_once_more_and_are_told(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real pytest: the second run has only what failed, and the sum has each test once."""
    (tmp_path / "test_one.py").write_text(
        "from pathlib import Path\n"
        "def test_good(): pass\n"
        "def test_first_time_bad():\n"
        f"    seen = Path({str(tmp_path / 'seen')!r})\n"
        "    had = seen.exists()\n"
        "    seen.touch()\n"
        "    assert had\n"
        "def test_bad(): assert not Path(__file__).with_name('bad').exists()\n"
    )
    monkeypatch.setattr(runner, "VENV", Path(sys.executable).parent)
    where = ["-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path / "test_one.py")]
    result = runner.failed_twice_at_most(runner.Log("agents"), *where)
    assert (result.passed, result.failures) == (3, []) and len(result.twice) == 1, result
    assert "test_first_time_bad" in result.twice[0] and "(log: agents.first.log)" in result.twice[0]
    (tmp_path / "bad").touch()
    result = runner.failed_twice_at_most(runner.Log("agents"), *where)
    assert result.passed == 2 and not result.twice and len(result.failures) == 1, result
    monkeypatch.setattr(runner, "FAILED_AT_MOST", 0)
    assert len(runner.failed_twice_at_most(runner.Log("agents"), *where).failures) == 1
    assert not (tmp_path / "agents.first.log").read_text().count("--lf")


def test_a_lab_file_that_fails_twice_has_failed(runner: Any, tmp_path: Path) -> None:
    result, _ = results_of(runner, tmp_path, ["wrong"], ["wrong"])
    assert result.failures == ["wrong"] and not result.twice
    assert results_of(runner, tmp_path, [])[0].passed == 1


def test_a_run_in_which_many_needed_a_second_try_has_failed(runner: Any) -> None:
    groups = [runner.Group(f"lab/{number}", "", None) for number in range(runner.TWICE_AT_MOST + 1)]
    results = {group.name: runner.Result(passed=1, twice=["slow"]) for group in groups}
    assert runner.sum_up(groups, results, 1.0) == 1
    results[groups[0].name].twice = []
    assert runner.sum_up(groups, results, 1.0) == 0


def test_apps_run_only_when_they_are_asked_for_and_last(runner: Any) -> None:
    groups = runner.all_groups(5)
    before, apps = groups[:-2], groups[-2:]
    assert [group.name for group in apps] == ["apps/spark", "apps/others"]
    assert all(set(group.after) == {one.name for one in before} for group in apps)
    assert runner.chosen(groups, []) == runner.chosen(groups, ["all"]) == before
    assert runner.chosen(groups, ["all", "apps"]) == groups and runner.chosen(groups, ["apps"]) == apps
    labs = runner.chosen(groups, ["lab", "lint"])
    assert labs[0].name == "lint" and all(group.name.startswith("lab/") for group in labs[1:]) and len(labs) > 20


def test_a_word_before_the_stroke_names_all_of_them(runner: Any) -> None:
    assert [one.name for one in runner.chosen(runner.all_groups(5), ["unit"])] == ["unit/manager", "unit/others"]


def test_each_file_of_apps_is_in_one_of_its_groups(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(runner, "set_up_apps", lambda log: None)
    monkeypatch.setattr(runner, "failed_twice_at_most", lambda log, *words, **_: given.extend(words[2:]))
    for group in runner.chosen(runner.all_groups(5), ["apps"]):
        group.run(None)
    assert sorted(given) == runner.marked("apps") and runner.SPARK_TESTS in given


def test_what_apps_need_is_set_up_once(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Any, ...]] = []

    class Log:
        def run(self, *command: Any, check: bool) -> int:
            ran.append(command)
            return 0

    for _ in range(2):
        runner.set_up_apps(Log())
    assert ran == [(runner.ROOT / ".ci" / "setup", "apps")]


def test_apps_end_at_their_bound(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "end_group", lambda process: (process.kill(), process.wait()))
    with pytest.raises(runner.CommandFailed, match="sleep 600: not done in 0 s"):
        runner.Log("apps").run("sleep", "600", bound_s=0.0)


def test_list__is_cut_short_in_silence() -> None:
    read, write = os.pipe()
    os.close(read)
    listed = subprocess.run([ROOT / ".ci/test", "--list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert listed.stderr == ""
