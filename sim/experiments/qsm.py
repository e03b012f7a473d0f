"""QSM's figures in virtual time: rate by groups (Fig. 1) and nodes (Fig. 9, 10, 16, 19, 20), and what partitions,
regions, tokens, senders and the paper's rate control do (Fig. 11 to 18)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim.network import SimError
from rostrum.sim.qsm import WARM_S, Costs, CostsError, Row, Setting, mean, run, stored_costs
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT = Console(highlight=False, soft_wrap=True)
QUICK_WARM_S = 0.3  # one has its full rate after 0.1 s; ten senders have found their shares
BEGUN = (2, 71, 500)  # nodes, with which one looks at how a sender begins
BEGIN_S = 0.1  # in which it has its full rate: 500 nodes take a processor 5 s for each 10 ms
FULL = 0.9  # of the rate that is kept: a sender has its full one
SLOW = 10  # times as long takes a slow processor, or a packet on a slow link;
PAPERS = "the paper's rate"
PAPER_SLOW = 200  # ... and then: the paper's rate, which begins with 1,000, grows by 0.05 a second
COLUMNS = ("rate_per_s", "recovery_token_rounds", "ack_ms", "sender_control_share", "lost")


def verdict(claim: str, expected: str, got: float, found: bool) -> dict[str, Any]:
    return {"claim": claim, "expected": expected, "got": got, "verdict": "found" if found else "not found"}


def over(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


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
    base = Setting(seconds=0.15, warm_s=QUICK_WARM_S) if quick else Setting(seconds=2.0)
    points = {str(count): replace(base, nodes=count) for count in ((2, 25, 71) if quick else (2, 10, 25, 50, 71, 200))}
    points["500"] = replace(base, nodes=500, seconds=0.05 if quick else 0.3, receive_mb=16)  # 12 GB in all
    points["2"] = replace(points["2"], seconds=2.0)  # Full buffers count for little.
    for count in BEGUN:
        warm = BEGIN_S if quick and count == 500 else base.warm_s
        points[str(count)] = replace(points[str(count)], warm_s=warm, sample_s=0.01, begin=True)
    lossy = replace(base, nodes=25, loss_percent=1.0)
    points["25, 1 % lost"] = lossy
    points["71, 1 % lost"] = replace(lossy, nodes=71)
    paper = replace(base, token_ms=1000, rate=1, warm_s=WARM_S, seconds=12.0 if quick else 60.0)
    points["25, 1 % lost, the paper's token"] = replace(paper, loss_percent=1.0)
    points["10, the paper's token"] = replace(paper, nodes=10)
    points["71, the paper's token"] = replace(paper, nodes=71, seconds=6.0 if quick else 30.0)
    points["25, ten senders"] = replace(base, nodes=25, senders=10)
    frozen = replace(base, nodes=10 if quick else 25, seconds=7.0 if quick else 16.0, sample_s=0.25)
    points["one frozen for 2 s"] = replace(frozen, freeze_s=2.0)
    if not quick:  # as many packets of each
        points["200"] = replace(points["200"], seconds=0.5)
    return points


def with_slow(quick: bool) -> dict[str, Setting]:
    """One node is slow from the start; its processor is as fast as the others' after `slow_s`."""
    base = Setting(seconds=2.0, warm_s=QUICK_WARM_S, slow_s=1.1, sample_s=0.1)
    counts = (16, 71) if quick else (2, 16, 71, 200)
    points = {f"{count}, processor": replace(base, nodes=count, slow_host=SLOW) for count in counts}
    link = replace(base, slow_s=0.0, warm_s=1.2, seconds=0.8)
    points |= {f"{count}, link": replace(link, nodes=count, slow_link=SLOW) for count in counts}
    paper = replace(base, token_ms=1000, rate=1, warm_s=10.0, slow_s=40.0, seconds=60.0, sample_s=1.0)
    for count in counts:
        points[f"{count}, processor, {PAPERS}"] = replace(paper, nodes=count, slow_host=PAPER_SLOW)
    return points


def slow_summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Of what the slow one could take, the part that all have; and how long until all have what they have without."""
    shares, back, verdicts = {}, {}, []
    full = max(max(row["samples_per_s"]) for row in rows.values())
    for name, row in rows.items():
        each, samples, slow_s = row["sample_s"], row["samples_per_s"], row["slow_s"]
        until = round((slow_s - row["warm_s"]) / each) if slow_s else len(samples)
        shares[name] = mean(samples[until // 2 : until]) / row["could_per_s"]
        if PAPERS in name:
            continue
        claim = f"{name}: all have half of what the slow one can take, and no more than that"
        verdicts.append(verdict(claim, "0.5 to 1.05", shares[name], 0.5 <= shares[name] <= 1.05))
        if slow_s:
            later = samples[until:]
            back[name] = each * (next((i for i, rate in enumerate(later) if rate >= FULL * full), len(later)) + 1)
            claim = f"{name}: once it is fast, all have their rate within a second, s"
            verdicts.append(verdict(claim, "<= 1", back[name], back[name] <= 1))
    lost = sum(row["lost"] for row in rows.values())
    verdicts.append(verdict("nobody loses anything", "0", lost, lost == 0))
    return {
        "rate_over_what_the_slow_one_can": shares,
        "full_rate_after_s": back,
        "lost": lost,
        "verdicts": verdicts,
    }


def after_freeze(row: Row) -> float:
    """The rate from 3 s after the freeze began until the end, over the one before it (Sec. 2.2: the others go on)."""
    samples, each = row["samples_per_s"], row["sample_s"]
    begins = round(row["seconds"] / 2 / each)
    return over(mean(samples[begins + round(3 / each) :]), mean(samples[round(1 / each) : begins]))


def full_after_ms(row: Row, rate_per_s: float) -> float:
    """How long after its first message the sender had its full rate; all that was looked at if it had it not."""
    samples, each = row["samples_per_s"], row["sample_s"]
    at = next((place for place, rate in enumerate(samples) if rate >= FULL * rate_per_s), len(samples))
    return float(1000 * each * (at + 1))


def nodes_summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    plain = {name: row for name, row in rows.items() if name.isdigit()}
    rates = {name: row["rate_per_s"] for name, row in plain.items()}
    paper, ours = rows["25, 1 % lost, the paper's token"], rows["25, 1 % lost"]
    crowd = rows["25, ten senders"]
    shares = {
        "71 nodes keep the rate of 2 (Fig. 9; paper: 0.66)": (rates["71"] / rates["2"], 0.95),
        "at 1 % loss the rate is kept": (ours["rate_per_s"] / rates["25"], 0.95),
        "ten senders keep the rate of one (Fig. 16; paper: 0.8)": (crowd["rate_per_s"] / rates["25"], 0.97),
        "3 s after one froze for 2 s the others have their rate": (after_freeze(rows["one frozen for 2 s"]), 0.9),
        "500 nodes keep the rate of 2": (rates["500"] / rates["2"], 0.9),
    }
    verdicts = [verdict(claim, f">= {least}", got, got >= least) for claim, (got, least) in shares.items()]
    rounds = paper["recovery_token_rounds"]
    verdicts.append(verdict("recovery takes 2.5 token rounds (Fig. 19)", "<= 2.5", rounds, 0 < rounds <= 2.5))
    acked = {nodes: rows[f"{nodes}, the paper's token"]["ack_ms"] / 1000 for nodes in ("10", "71")}
    claim = "acknowledgement takes up to 3.5 of the paper's token rounds (Fig. 20)"
    verdicts.append(verdict(claim, "<= 3.5", max(acked.values()), 0 < max(acked.values()) <= 3.5))
    verdicts.append(verdict("with our token it takes 30 ms", "< 30", ours["recovery_ms"], ours["recovery_ms"] < 30))
    begun = {str(count): full_after_ms(rows[str(count)], rates["2"]) for count in BEGUN}
    slowest = max(begun.values())
    verdicts.append(verdict("a sender has its full rate within 100 ms, ms", "<= 100", slowest, slowest <= 100))
    control = {name: row["sender_control_share"] for name, row in rows.items()}
    small, large = control["25, 1 % lost"], control["71, 1 % lost"]
    claim = "the sender's control share falls with nodes (Fig. 10)"
    verdicts.append(verdict(claim, f"< {small:.3g}", large, large < small))
    return {
        "rate_by_nodes": rates,
        "recovery_token_rounds": rounds,
        "recovery_ms": {"token 1 s": paper["recovery_ms"], "token 5 ms": ours["recovery_ms"]},
        "ack_ms_by_nodes": {name: row["ack_ms"] for name, row in plain.items()},
        "ack_token_rounds": acked,
        "after_freeze": after_freeze(rows["one frozen for 2 s"]),
        "full_rate_after_ms": begun,
        "sender_control_share": control,
        "rates": {name: row["rate_per_s"] for name, row in rows.items()},
        "lost": sum(row["lost"] for row in rows.values()),
        "verdicts": verdicts,
    }


ONE_RING = 64  # replicas at most: with fewer than twice as many nodes all are one partition
PAPER = Setting(token_ms=1000, rate=1, loss_percent=1.0)  # as the paper ran it; losses are ours


def of_figures(quick: bool) -> dict[str, Setting]:
    """By "figure: point"."""
    base, paper = Setting(seconds=0.5 if quick else 2.0), replace(PAPER, seconds=30.0 if quick else 60.0)
    lossy = replace(base, loss_percent=1.0)
    points: dict[str, Setting] = {}
    for nodes in (2, 10, 25, 71):
        points[f"11: {nodes} nodes"] = replace(paper, nodes=nodes)
    settled = replace(PAPER, warm_s=40.0, seconds=20.0 if quick else 60.0)  # recovery is what bounds the rate then
    for replicas in (5, ONE_RING):
        for nodes in (10, 71):
            points[f"12: {nodes} nodes, partitions of {replicas}"] = replace(settled, nodes=nodes, replicas=replicas)
    for replicas in (1, 2, 5, 12, 25):
        points[f"13: partitions of {replicas}"] = replace(settled, nodes=25, replicas=replicas)
    for regions in (1, 2, 4, 10):
        points[f"14: {regions} regions"] = replace(base, nodes=20, regions=regions)
    for token in (2, 5, 20, 100, 300, 1000):
        slow = replace(lossy, token_ms=token, seconds=max(base.seconds, 0.004 * token), warm_s=0.5 + token / 250)
        points[f"15: a token in {token} ms"] = slow
    for senders in (1, 2, 5, 10):
        points[f"16: {senders} senders"] = replace(base, nodes=25, senders=senders)
    swings = replace(PAPER, loss_percent=0.1, warm_s=50.0, seconds=30.0 if quick else 120.0, sample_s=1.0)
    for nodes in (10, 70):
        points[f"17: {nodes} nodes"] = replace(swings, nodes=nodes)
    return points


def of_figure(rows: Mapping[str, Row], number: int) -> dict[str, Row]:
    prefix = f"{number}: "
    return {name.removeprefix(prefix): row for name, row in rows.items() if name.startswith(prefix)}


def figures_summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    rates = {
        number: {name: row["rate_per_s"] for name, row in of_figure(rows, number).items()} for number in range(12, 17)
    }
    pushes = {
        name: over(row["sender_control"]["forwarded"], sum(row["sender_control"].values()))
        for name, row in of_figure(rows, 11).items()
    }
    small, large = pushes["2 nodes"], pushes["71 nodes"]
    ring = {size: over(rates[12][f"71 nodes, partitions of {size}"], rates[12][f"10 nodes, partitions of {size}"])
            for size in (5, ONE_RING)}  # fmt: skip
    slices = over(rates[13]["partitions of 5"], rates[13]["partitions of 25"])
    falls = min(over(rates[14][f"{count} regions"] * count, rates[14]["1 regions"]) for count in (2, 4, 10))
    tokens = {int(name.split()[3]): row for name, row in of_figure(rows, 15).items()}
    best = max(tokens, key=lambda token: tokens[token]["rate_per_s"])
    least = over(min(row["rate_per_s"] for row in tokens.values()), tokens[best]["rate_per_s"])
    recovery = [tokens[token]["recovery_ms"] for token in sorted(tokens)]
    rises = all(after > before for before, after in itertools.pairwise(recovery))
    crowd = over(rates[16]["10 senders"], rates[16]["1 senders"])
    swings = {
        name: over(min(row["samples_per_s"]), max(row["samples_per_s"])) for name, row in of_figure(rows, 17).items()
    }
    verdicts = {
        "11": verdict("forwarded packets are over 0.9 of the sender's control with few nodes, fewer with many",
                      "> 0.9", small, small > 0.9 and large < small),
        "12": verdict("rings of all nodes lose more of their rate from 10 to 71 nodes than partitions of 5",
                      f"< {ring[5]:.3g}", ring[ONE_RING], ring[ONE_RING] < ring[5]),
        "13": verdict("25 nodes are a fifth faster in partitions of 5 than in one", ">= 1.15", slices, slices >= 1.15),
        "14": verdict("with k regions the rate falls slightly less than to 1/k of it (rate by k, least)", ">= 1", falls,
                      falls >= 1),
        "15": verdict("the rate depends on the token's; recovery is shorter with more tokens (least over best rate)",
                      "< 0.95", least, least < 0.95 and rises),
        "16": verdict("ten senders keep 0.8 of one's rate; ours: 0.97", ">= 0.97", crowd, crowd >= 0.97),
        "17": verdict("the paper's rate control swings to a third of its rate in a system of 70 (least over most)",
                      "<= 0.4", swings["70 nodes"], swings["70 nodes"] <= 0.4),
        "18": verdict("the rate swings more in a system of 70 than of 10 (least over most)",
                      f"< {swings['10 nodes']:.3g}", swings["70 nodes"], swings["70 nodes"] < swings["10 nodes"]),
    }  # fmt: skip
    return {
        "forwarded_of_control": pushes,
        "rate_by_partition_over_nodes": ring,
        "rate_by_partition": rates[13],
        "rate_by_regions": rates[14],
        "rate_by_token_ms": {str(token): row["rate_per_s"] for token, row in tokens.items()},
        "recovery_ms_by_token_ms": {str(token): row["recovery_ms"] for token, row in tokens.items()},
        "best_token_ms": best,
        "rate_by_senders": rates[16],
        "least_over_most_rate": swings,
        "rates": {name: row["rate_per_s"] for name, row in rows.items()},
        "lost": sum(row["lost"] for row in rows.values()),
        "by_figure": verdicts,
        "verdicts": list(verdicts.values()),
    }


def work_of(setting: Setting) -> float:
    """How long it takes, roughly: the longest begin first."""
    return setting.nodes * (setting.warm_s + setting.seconds) / max(5, setting.token_ms)


def command_of(
    name: str,
    text: str,
    points: Callable[[bool], dict[str, Setting]],
    summarize: Callable[[Mapping[str, Row]], dict[str, Any]],
) -> click.Command:
    def work(seed: int, quick: bool, json_file: Path, costs: Path | None) -> None:
        try:
            measured: Costs = stored_costs(costs)
            settings = {key: replace(one, seed=seed, costs=measured.host) for key, one in points(quick).items()}
            longest = sorted(settings, key=lambda key: work_of(settings[key]), reverse=True)
            with ProcessPoolExecutor(os.cpu_count()) as pool:
                found = dict(zip(longest, pool.map(run, [settings[key] for key in longest]), strict=True))
            rows = {key: found[key] for key in settings}
        except (SimError, CostsError) as error:
            raise click.ClickException(str(error)) from error
        summary = summarize(rows)
        parameters = {"quick": quick, "costs": asdict(measured.host), "calibrated": measured.commit or False}
        save(rounded({"instrument": "sim", "experiment": name, "summary": summary, "runs": list(rows.values()),
                      "manifest": manifest(seed, parameters)}), json_file)  # fmt: skip
        table = Table("", *COLUMNS)
        for key, row in rows.items():
            table.add_row(
                key, *(f"{row[column]:,.3g}" if row[column] < 100 else f"{row[column]:,.0f}" for column in COLUMNS)
            )
        OUT.print(whole(table))
        for one in summary["verdicts"]:
            OUT.print(f"{one['verdict']}: {one['claim']}: {one['got']:.3g} ({one['expected']})")
        if not measured.calibrated:
            OUT.print("The processors' costs are guesses: rostrum lab run qsm-costs measures them.")
        OUT.print(f"Figures: {json_file}")

    options = [
        click.Option(["--seed"], default=1, show_default=True),
        click.Option(["--quick"], is_flag=True, help="Fewer points, short runs: a minute or two."),
        click.Option(["--json", "json_file"], type=click.Path(dir_okay=False, path_type=Path),
                     default=build_folder() / f"{name}.json", show_default=True, help="Where the figures go."),
        click.Option(["--costs"], type=click.Path(dir_okay=False, path_type=Path),
                     help="What processors need, as `rostrum lab run qsm-costs` measured it; else the stored ones."),
    ]  # fmt: skip
    return click.Command(name, callback=work, params=list(options), help=text)


commands = {
    "qsm-groups": command_of(
        "qsm-groups",
        """Rate of one sender by the number of groups that overlap in all nodes (QSM, figure 1).

        The agent's engine in virtual time; processors by a model that `rostrum lab run qsm-costs` calibrates.
        """,
        by_groups,
        groups_summary,
    ),
    "qsm-nodes": command_of(
        "qsm-nodes",
        """Rate by the number of nodes, recovery in token rounds, control's share at the sender (QSM, figures 9 to 19).

        The agent's engine in virtual time; processors by a model that `rostrum lab run qsm-costs` calibrates.
        """,
        by_nodes,
        nodes_summary,
    ),
    "qsm-slow": command_of(
        "qsm-slow",
        """One slow node among fast ones: the rate that all have, and how long until it is back once that node is fast.

        Its processor takes ten times as long for everything, or its link has a tenth of the others' rate.
        The agent's engine in virtual time; processors by a model that `rostrum lab run qsm-costs` calibrates.
        """,
        with_slow,
        slow_summary,
    ),
    "qsm-figures": command_of(
        "qsm-figures",
        """What partitions, regions, tokens, senders and the paper's rate control do (QSM, figures 11 to 18).

        The agent's engine in virtual time; processors by a model that `rostrum lab run qsm-costs` calibrates.
        """,
        of_figures,
        figures_summary,
    ),
}
