"""Scripts as people type them, with seconds between two commands: what works in a row must work after a pause too.

Each scene is a shell script that runs with `rostrum` on its PATH and fails at its first command that fails. The
pauses are part of the scene: agents forget idle groups after 2 s, circuits turn idle, leases are 3 s.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rostrum.lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

NAME = "t-typed"
SCRIPT_BOUND_S = 240


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name=NAME, quota="512M", reserve="16M") as made:
        yield made


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `rostrum` in it."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "rostrum"
    command.write_text(f"#!{sys.executable}\nfrom rostrum.client.cli import main\n\nmain()\n")
    command.chmod(0o755)
    return folder


@pytest.fixture
def typed(lab: Lab, commands: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs a script in an empty folder; what it printed, standard error included."""

    def run(script: str, status: int = 0) -> str:
        environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "NAME": NAME}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, text=True,
            timeout=SCRIPT_BOUND_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, f"exit {done.returncode} of:{script}\n{done.stdout}"
        return done.stdout

    return run


def came_or_told(shown: str, *expected: str) -> None:
    """These messages in order; for each that a plain group lost, report of it."""
    lines = shown.splitlines()
    came = [line for line in lines if line in expected]
    told = sum(int(count) for line in lines for count in re.findall(r"^lost: (\d+) ", line))
    assert came == [one for one in expected if one in came] and len(came) + told >= len(expected), shown
    assert came, shown


@pytest.mark.parametrize("protocol", ["plain", "ricochet", "qsm"])
def test_publish_three_times__seconds_apart__all_come_or_are_told(typed, protocol: str) -> None:
    shown = typed(f"""
        rostrum groups create news-{protocol} --protocol {protocol} --lab $NAME
        rostrum sub news-{protocol} --server h3 --lab $NAME --count 3 --wait 30s >got & sub=$!
        for n in $(seq 100); do
            grep -q h3 <(rostrum groups show news-{protocol} --lab $NAME 2>&1) && break; sleep 0.2
        done
        rostrum pub news-{protocol} one --server h1 --lab $NAME
        sleep 4
        rostrum status --server h3 --lab $NAME
        rostrum pub news-{protocol} two --server h1 --lab $NAME
        sleep 4
        rostrum pub news-{protocol} three --server h1 --lab $NAME
        wait $sub || true; cat got
    """)
    came_or_told(shown, "one", "two", "three")
    assert "went away" not in shown, shown


def test_publish__restart_of_the_agent__publish_again__both_come_or_are_told(typed) -> None:
    shown = typed("""
        rostrum sub alerts --server h3 --lab $NAME --count 2 --wait 30s >got & sub=$!
        for n in $(seq 100); do grep -q h3 <(rostrum groups show alerts --lab $NAME 2>&1) && break; sleep 0.2; done
        rostrum pub alerts before --server h2 --lab $NAME
        sleep 1
        rostrum lab kill --name $NAME h2; rostrum lab start --name $NAME h2
        sleep 3
        rostrum pub alerts after --server h2 --lab $NAME
        wait $sub || true; cat got
    """)
    came_or_told(shown, "before", "after")


def test_a_subscriber_freezes__is_told_that_it_was_put_out(typed) -> None:
    shown = typed("""
        rostrum groups create steady --order agreed --lab $NAME
        shown() { rostrum groups show steady --lab $NAME 2>&1; }
        rostrum sub steady --server h5 --lab $NAME --count 2 --wait 60s >got 2>&1 & sub=$!
        rostrum sub steady --server h7 --lab $NAME --count 3 --wait 60s >whole 2>&1 & other=$!
        for n in $(seq 100); do grep -q h5 <(shown) && grep -q h7 <(shown) && break; sleep 0.2; done
        rostrum pub steady before --server h1 --lab $NAME
        for n in $(seq 100); do grep -q before got && break; sleep 0.2; done
        rostrum lab kill --name $NAME h5 --signal STOP
        trap 'rostrum lab kill --name $NAME h5 --signal CONT' EXIT
        for n in $(seq 200); do grep -q h5 <(shown) || break; sleep 0.2; done
        rostrum pub steady missed --server h1 --lab $NAME
        for n in $(seq 100); do grep -q missed whole && break; sleep 0.2; done
        trap - EXIT; rostrum lab kill --name $NAME h5 --signal CONT
        for n in $(seq 200); do grep -q "in again" got && break; sleep 0.2; done
        rostrum pub steady after --server h1 --lab $NAME
        wait $sub $other; grep -v ^view got
    """)
    assert re.findall("^(before|missed|after|h5 was put out)", shown, re.MULTILINE) == [
        "before",
        "h5 was put out",
        "after",
    ]


def test_send__pause__send_other_bytes_under_the_same_name__the_new_ones_are_read(typed) -> None:
    typed("""
        head -c 3M /dev/urandom >table; cp table first
        rostrum send table --server h1 --to h3,h5,h7 --lab $NAME
        sleep 4
        head -c 2M /dev/urandom >table
        for s in h3 h5 h7; do rostrum delete table --server $s --lab $NAME; done
        rostrum send table --server h1 --to h3,h5,h7 --lab $NAME
        for s in h3 h5 h7; do rostrum read table --server $s --lab $NAME -o copy; cmp table copy; done
    """)


def test_send__interrupted__sent_again_at_once(typed) -> None:
    typed("""
        head -c 60M /dev/urandom >big
        rostrum send big --server h1 --to h3,h5 --lab $NAME >said 2>&1 & sub=$!
        for n in $(seq 300); do grep -q high-rate said && break; sleep 0.05; done
        kill -TERM $sub; wait $sub || cat said  # a shell's background ignores Ctrl-C
        rostrum send big --server h1 --to h3,h5 --lab $NAME
        rostrum read big --server h5 --lab $NAME -o copy; cmp big copy
        for s in h3 h5; do rostrum delete big --server $s --lab $NAME; done
    """)


def test_send__manager_restarted_in_between__send_again(typed) -> None:
    typed("""
        head -c 1M /dev/urandom >one; head -c 1M /dev/urandom >two
        rostrum send one --server h1 --to h3,h8 --lab $NAME
        rostrum lab kill --name $NAME manager
        sleep 2
        rostrum lab start --name $NAME manager
        rostrum send two --server h1 --to h3,h8 --lab $NAME --wait 60s
        rostrum read two --server h8 --lab $NAME -o copy; cmp two copy
    """)


def test_send__while_the_manager_is_away__waits_and_goes_on(typed) -> None:
    typed("""
        head -c 1M /dev/urandom >late
        rostrum lab kill --name $NAME manager
        (sleep 3; rostrum lab start --name $NAME manager) &
        rostrum send late --server h2 --to h4,h6 --lab $NAME --wait 60s
        wait; rostrum read late --server h6 --lab $NAME -o copy; cmp late copy
    """)


def test_subscriber__manager_restarted__messages_go_on(typed) -> None:
    shown = typed("""
        rostrum sub ticks --server h5 --lab $NAME --count 2 --wait 60s >got & sub=$!
        for n in $(seq 100); do grep -q h5 <(rostrum groups show ticks --lab $NAME 2>&1) && break; sleep 0.2; done
        rostrum pub ticks tick --server h1 --lab $NAME
        rostrum lab kill --name $NAME manager; sleep 1; rostrum lab start --name $NAME manager
        sleep 4
        for n in 1 2 3 4 5 6 7 8; do rostrum pub ticks tock --server h1 --lab $NAME && break; sleep 1; done
        wait $sub && cat got
    """)
    assert shown.split()[-2:] == ["tick", "tock"]


def test_publish_and_subscribe__while_the_manager_is_away__wait_and_go_on(typed) -> None:
    shown = typed("""
        rostrum lab kill --name $NAME manager
        (sleep 3; rostrum lab start --name $NAME manager) &
        rostrum sub away --server h3 --lab $NAME --count 1 --wait 60s >got 2>said & sub=$!
        for n in $(seq 150); do grep -q "h3 is in away" said && break; sleep 0.2; done
        grep "waiting for the manager" said
        rostrum pub away hello --server h1 --lab $NAME
        wait $sub && cat got
    """)
    assert shown.split()[-1] == "hello"


def test_publish__to_a_manager_that_dies_before_it_answers__waits_and_goes_on(typed) -> None:
    """Longer than the manager would have had for its answer, had it been there."""
    shown = typed("""
        rostrum sub dying --server h3 --lab $NAME --count 1 --wait 45s >got 2>said & sub=$!
        for n in $(seq 150); do grep -q "h3 is in dying" said && break; sleep 0.2; done
        rostrum lab kill --name $NAME --signal STOP manager
        rostrum pub dying hello --server h1 --lab $NAME & pub=$!
        sleep 2
        rostrum lab kill --name $NAME manager; sleep 12; rostrum lab start --name $NAME manager
        wait $pub
        for n in $(seq 225); do grep -qE "hello|lost: 1 packet of h1" got said && break; sleep 0.2; done
        kill $sub 2>/dev/null || true; wait $sub || true; cat got said
    """)
    assert "hello" in shown or "lost: 1 packet of h1" in shown, (
        shown
    )  # it was published before h3 had its manager again


def test_stream__while_the_manager_is_away__says_what_it_waits_for(typed) -> None:
    shown = typed("""
        rostrum lab kill --name $NAME manager
        echo a | rostrum stream send waits --server h1 --to h3 --lab $NAME --wait 90s 2>said >sent & sub=$!
        for n in $(seq 150); do grep -q "queued: waiting for the manager" said && break; sleep 0.2; done
        rostrum lab start --name $NAME manager
        rostrum stream receive waits --server h3 --lab $NAME
        wait $sub; cat said
    """)
    assert shown.split()[0] == "a" and "queued: waiting for the manager" in shown


def test_stream__reader_comes_seconds_late__with_default_options(typed) -> None:
    shown = typed("""
        (echo a; sleep 2; echo b) | rostrum stream send s --server h1 --to h3 --lab $NAME >sent 2>&1 & sub=$!
        sleep 3
        rostrum stream receive s --server h3 --lab $NAME
        wait $sub || { cat sent; exit 1; }
    """)
    assert shown.split()[:2] == ["a", "b"]


def test_forgotten_rest_path__small_objects_do_not_wait_for_it(typed) -> None:
    shown = typed("""
        rostrum paths request h1 h3 h5 --wait --lab $NAME  # and nobody releases it
        sleep 2
        echo x >x
        for n in 1 2 3; do rostrum send x --data-id x$n --server h2 --to h4,h6 --lab $NAME --json >told; cat told; done
    """)
    assert '"ok": true' in shown or '"ok":true' in shown


def test_receiver_restarted_between_two_sends(typed) -> None:
    typed("""
        head -c 1M /dev/urandom >a; head -c 1M /dev/urandom >b
        rostrum send a --server h1 --to h3,h5 --lab $NAME
        rostrum lab kill --name $NAME h5; sleep 1; rostrum lab start --name $NAME h5; sleep 2
        rostrum send b --server h1 --to h3,h5 --lab $NAME
        rostrum read b --server h5 --lab $NAME -o copy; cmp b copy
    """)


def test_sender_that_stood_still_for_seconds_goes_on(typed) -> None:
    typed("""
        head -c 80M /dev/urandom >slow
        rostrum send slow --server h1 --to h3,h5 --lab $NAME >told 2>&1 & sub=$!
        sleep 0.6
        rostrum lab kill --name $NAME --signal STOP h1; sleep 6; rostrum lab kill --name $NAME --signal CONT h1
        wait $sub || { cat told; exit 1; }
        rostrum read slow --server h5 --lab $NAME -o copy; cmp slow copy
        for s in h3 h5; do rostrum delete slow --server $s --lab $NAME; done
    """)
