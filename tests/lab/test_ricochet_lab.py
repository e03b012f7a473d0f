"""What the experiment ricochet-lab makes of its draws and of what it saw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rostrum.lab.experiments.ricochet_lab import draw_groups, draw_picture, summary


def test_every_server_is_in_as_many_groups_and_every_group_has_its_size() -> None:
    servers = [f"h{number}" for number in range(1, 17)]
    groups = draw_groups(servers, 128, 10, seed=3)
    counts = Counter(name for group in groups for name in group)
    assert len(groups) == 204
    assert all(len(set(group)) == 10 for group in groups)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert draw_groups(servers, 128, 10, seed=3) == groups


def test_shares_are_of_all_that_was_missed(tmp_path: Path) -> None:
    delays = {"repair": [5.0] * 90, "retransmit": [150.0] * 8 + [300.0]}
    found = summary(delays, {"delivered": 1000, "lost": 1, "published": 200, "expected": 1001})
    assert found["lec_recovery_share"] == 0.9
    assert found["within_250ms_share"] == 0.98
    assert found["lec_delay_ms_mean"] == 5.0
    assert sum(found["histogram"]["counts"]) == 98
    draw_picture([{"loss_percent": 10.0, **found}], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_what_neither_came_nor_was_told_as_lost_counts_as_missed() -> None:
    found = summary({"repair": [5.0] * 50, "retransmit": []}, {"delivered": 850, "lost": 10, "expected": 900})
    assert found["untold"] == 40
    assert found["lec_recovery_share"] == found["within_250ms_share"] == 0.5


def test_a_run_without_losses_has_no_shares() -> None:
    nothing: dict[str, list[float]] = {"repair": [], "retransmit": []}
    assert "lec_recovery_share" not in summary(nothing, {"delivered": 5, "lost": 0, "expected": 5})
