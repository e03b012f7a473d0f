"""`lab run spark`: verdicts of the parts that were measured, and files that --resume goes on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from rostrum.lab.experiments import spark
from rostrum.lab.results import save

MIB = 1 << 20


def row(way: str, size: str, seconds: float, path: str = "circuit", **more: Any) -> dict[str, Any]:
    egress = int(1.01 * spark.SIZES[size])
    return {"round": 0, "size": size, "way": way, "path": path, "s": seconds, "egress": egress, "exact": True, **more}


BROADCASTS = [
    row("torrent4", "256M", 30.0),
    row("torrent16", "256M", 20.0),
    row("rostrum", "256M", 9.0),
    row("rostrum", "256M", 8.0),
]
JOBS = [
    {"job": "lda", "way": "torrent4", "s": 4.0, "result": 1.5},
    {"job": "lda", "way": "rostrum", "s": 3.0, "result": 1.5},
    {"job": "lda", "way": "rostrum", "s": 5.0, "result": 1.5},
]
SMALL = [{"size": "64k", "slower_ms": -2.0}, {"size": "1M", "slower_ms": 9.0}]


def measured(**parts: Any) -> dict[str, Any]:
    return {name: {"s": 1.0, "time": "now", "figures": figures} for name, figures in parts.items()}


def test_each_part_has_its_verdicts_and_what_lacks_is_named() -> None:
    found = spark.report(measured(broadcasts=BROADCASTS))
    assert found["summary"]["vs_torrent"] == {"256M": 8.0 / 20.0}
    assert found["verdicts"] == {"vs_torrent": True, "driver_egress_over_value": True, "exact": True}
    assert found["missing"] == ["http", "small", "jobs", "late", "packets"]
    found = spark.report(measured(broadcasts=BROADCASTS, small=SMALL, jobs=JOBS, late=True,
                                  packets=[row("rostrum", "256M", 15.0, "packet")],
                                  http=[row("http", "256M", 80.0)]))  # fmt: skip
    assert found["summary"]["vs_torrent_packets"] == {"256M": 0.75}
    assert found["summary"]["vs_http"] == {"256M": 0.1}
    assert found["summary"]["jobs"] == {"lda": 0.75}
    assert not found["missing"] and all(found["verdicts"].values())
    assert spark.report(measured(jobs=JOBS))["verdicts"] == {"jobs_agree": True}


def test_what_misses_its_goal_or_differs_is_told_so() -> None:
    slow = [*BROADCASTS[:2], row("rostrum", "256M", 10.5, egress=300 * MIB, exact=False)]
    jobs = [*JOBS, {"job": "lda", "way": "rostrum", "s": 1.0, "result": 2.0}]
    small = [*SMALL, {"size": "4M", "slower_ms": 10.5}]
    assert not any(spark.report(measured(broadcasts=slow, jobs=jobs, small=small, late=False))["verdicts"].values())


def test_a_file_is_gone_on_with_only_if_it_is_of_the_same_study(tmp_path: Path) -> None:
    file = tmp_path / "spark.json"
    about = {"commit": "abc", "seed": 1, "parameters": {"rounds": 1}, "versions": {}, "machine": {"cores": 2}}
    assert spark.measured_in(file, about) == {}
    parts = measured(broadcasts=BROADCASTS, late=True)
    save({"experiment": "spark", "manifest": about, **spark.report(parts)}, file)
    assert spark.measured_in(file, about) == parts
    with pytest.raises(click.ClickException, match="of another commit, parameters"):
        spark.measured_in(file, about | {"commit": "abd", "parameters": {"rounds": 3}})
    for text in ("", "[]", "{}", json.dumps({"manifest": about, "parts": {"late": {}}}), json.dumps({"manifest": 1})):
        file.write_text(text)
        with pytest.raises(click.ClickException, match="no figures of this study"):
            spark.measured_in(file, about)
