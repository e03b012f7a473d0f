"""QSM's figures in virtual time: rate by groups (Fig. 1) and nodes (Fig. 9), recovery (Fig. 19), control (Fig. 10)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim.network import SimError
from rostrum.sim.qsm import COSTS, Row, Setting, run
from rostrum.topologies.places import build_folder

OUT = Console(highlight=False, soft_wrap=True)
COLUMNS = ("rate_per_s", "recovery_token_rounds", "ack_ms", "sender_control_share", "lost")


def verdict(claim: str, expected: str, got: float, found: bool) -> dict[str, Any]:
    return {"claim": claim, "expected": expected, "got": got, "verdict": "found" if found else "not found"}


def by_groups(quick: bool) -> dict[str, Setting]:
    base = Setting(nodes=8 if quick else 25, seconds=0.6 if quick else 2.0)
    return {
        str(count): replace(base, groups=count) for count in ((1, 16, 256) if quick else (1, 2, 16, 32, 256, 10_000))
    }


def groups_summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    rates = {name: row["rate_per_s"] for name, row in rows.items()}
    share = rates["256"] / rates["1"]
    verdicts = [verdict("256 groups keep the rate of one (Fig. 1)", ">= 0.97", share, share >= 0.97)]
    if "10000" in rates:
        share = rates["10000"] / rates["1"]
        verdicts.append(verdict("10,000 groups keep the rate of one", ">= 0.9", share, share >= 0.9))
    return {"rate_by_groups": rates, "lost": sum(row["lost"] for row in rows.values()), "verdicts": verdicts}


def by_nodes(quick: bool) -> dict[str, Setting]:
    base = Setting(seconds=0.5 if quick else 2.0)
    points = {
        str(count): replace(base, nodes=count) for count in ((2, 25, 71) if quick else (2, 10, 25, 50, 71, 200, 500))
    }
    points["2"] = replace(points["2"], seconds=2.0)  # Full buffers count for little.
    lossy = replace(base, nodes=25, loss_percent=1.0)
    points["25, 1 % lost"] = lossy
    points["71, 1 % lost"] = replace(lossy, nodes=71)
    points["25, 1 % lost, the paper's token"] = replace(lossy, token_ms=1000, seconds=12.0 if quick else 60.0, rate=1)
    points["25, ten senders"] = replace(base, nodes=25, senders=10)
    if not quick:
        points["25, one frozen for 2 s"] = replace(base, nodes=25, seconds=10.0, freeze_s=2.0)
    return points


def nodes_summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    plain = {name: row for name, row in rows.items() if name.isdigit()}
    rates = {name: row["rate_per_s"] for name, row in plain.items()}
    paper, ours = rows["25, 1 % lost, the paper's token"], rows["25, 1 % lost"]
    crowd = rows["25, ten senders"]
    shares = {
        "71 nodes keep the rate of 2 (Fig. 9; paper: 0.66)": (rates["71"] / rates["2"], 0.95),
        "at 1 % loss the rate is kept": (ours["rate_per_s"] / rates["25"], 0.95),
        "ten senders keep the rate of one (Fig. 16; paper: 0.8)": (crowd["rate_per_s"] / rates["25"], 0.97),
    }
    if "500" in rates:
        shares["500 nodes keep the rate of 2"] = (rates["500"] / rates["2"], 0.9)
    verdicts = [verdict(claim, f">= {least}", got, got >= least) for claim, (got, least) in shares.items()]
    rounds = paper["recovery_token_rounds"]
    verdicts.append(verdict("recovery takes 2.5 token rounds (Fig. 19)", "1.5 to 3", rounds, 1.5 <= rounds <= 3))
    verdicts.append(verdict("with our token it takes 30 ms", "< 30", ours["recovery_ms"], ours["recovery_ms"] < 30))
    control = {name: row["sender_control_share"] for name, row in rows.items()}
    small, large = control["25, 1 % lost"], control["71, 1 % lost"]
    claim = "the sender's control share falls with nodes (Fig. 10)"
    verdicts.append(verdict(claim, f"< {small:.3g}", large, large < small))
    return {
        "rate_by_nodes": rates,
        "recovery_token_rounds": rounds,
        "recovery_ms": {"token 1 s": paper["recovery_ms"], "token 5 ms": ours["recovery_ms"]},
        "ack_ms_by_nodes": {name: row["ack_ms"] for name, row in plain.items()},
        "sender_control_share": control,
        "rates": {name: row["rate_per_s"] for name, row in rows.items()},
        "lost": sum(row["lost"] for row in rows.values()),
        "verdicts": verdicts,
    }


def command_of(
    name: str,
    text: str,
    points: Callable[[bool], dict[str, Setting]],
    summarize: Callable[[Mapping[str, Row]], dict[str, Any]],
) -> click.Command:
    def work(seed: int, quick: bool, json_file: Path) -> None:
        settings = {key: replace(one, seed=seed) for key, one in points(quick).items()}
        try:
            with ProcessPoolExecutor(os.cpu_count()) as pool:
                rows = dict(zip(settings, pool.map(run, settings.values()), strict=True))
        except SimError as error:
            raise click.ClickException(str(error)) from error
        summary = summarize(rows)
        parameters = {"quick": quick, "costs": vars(COSTS), "calibrated": False}
        save(rounded({"instrument": "sim", "experiment": name, "summary": summary, "runs": list(rows.values()),
                      "manifest": manifest(seed, parameters)}), json_file)  # fmt: skip
        table = Table("", *COLUMNS)
        for key, row in rows.items():
            table.add_row(
                key, *(f"{row[column]:,.3g}" if row[column] < 100 else f"{row[column]:,.0f}" for column in COLUMNS)
            )
        OUT.print(table)
        for one in summary["verdicts"]:
            OUT.print(f"{one['verdict']}: {one['claim']}: {one['got']:.3g} ({one['expected']})")
        OUT.print(f"Figures: {json_file}")

    options = [
        click.Option(["--seed"], default=1, show_default=True),
        click.Option(["--quick"], is_flag=True, help="Fewer points, short runs: under a minute."),
        click.Option(["--json", "json_file"], type=click.Path(dir_okay=False, path_type=Path),
                     default=build_folder() / f"{name}.json", show_default=True, help="Where the figures go."),
    ]  # fmt: skip
    return click.Command(name, callback=work, params=list(options), help=text)


commands = {
    "qsm-groups": command_of(
        "qsm-groups",
        """Rate of one sender by the number of groups that overlap in all nodes (QSM, figure 1).

        The agent's engine in virtual time; processors by a model whose constants are not calibrated yet.
        """,
        by_groups,
        groups_summary,
    ),
    "qsm-nodes": command_of(
        "qsm-nodes",
        """Rate by the number of nodes, recovery in token rounds, control's share at the sender (QSM, figures 9 to 19).

        The agent's engine in virtual time; processors by a model whose constants are not calibrated yet.
        """,
        by_nodes,
        nodes_summary,
    ),
}
