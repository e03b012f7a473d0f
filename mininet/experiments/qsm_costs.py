"""What a datagram, a message, a group and a token of QSM cost a processor, by real agents in the lab: what the
simulator's model of processors (`rostrum sim run qsm-nodes`) is calibrated by.

One server publishes as fast as it may to groups that all are in; runs differ in what they have much of: packets,
messages in a packet, tokens, groups. The processor time of each receiver's agent is then a sum of counts times costs,
solved by least squares over all rounds. What the sender's agent needed besides is its datagrams' cost; what messages of
many groups need more than as many of one is that of state which is in no cache.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rostrum.lab.experiments.qsm import Case, Skipped, measure, network, ours
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processor import used_s
from rostrum.lab.results import save

SOME = 256  # groups: are they in the caches?
GROUPS = ("some", "groups")  # runs with many of them
RECEIVE, MESSAGE, TOKEN = "receive_ns", "message_ns", "token_ns"
PACKETS, TOKENS = "rostrum_agent_group_qsm_packets_total", "rostrum_agent_group_qsm_tokens_total"
COUNTS = {
    "received": [(PACKETS, "received"), (PACKETS, "duplicate")],
    "sent": [(PACKETS, "sent")],
    "tokens": [(TOKENS, "sent")],
    "delivered": [("rostrum_agent_group_messages_delivered_total", "")],
    "published": [("rostrum_agent_group_messages_published_total", "")],
}
Counts = dict[str, float]
Record = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One run: what it has much of."""

    name: str
    groups: int
    bytes: int
    token_ms: int


def kinds(groups: int) -> list[Kind]:
    return [
        Kind("packets", 1, 1000, 20),
        Kind("messages", 1, 60, 20),
        Kind("tokens", 1, 1000, 1),
        Kind("some", SOME, 1000, 20),
        Kind("groups", groups, 1000, 20),
    ]


def look(lab: Lab, pids: dict[str, int]) -> dict[str, Counts]:
    """By server: its agent's processor time and counts."""
    found: dict[str, Counts] = {name: {"cpu_s": one} for name, one in used_s(lab, pids).items()}
    for row in lab.metrics():
        for count, rows in COUNTS.items():
            if row["source"] in found and (row["metric"], row.get("label_kind", "")) in rows:
                one = found[row["source"]]
                one[count] = one.get(count, 0.0) + row["value"]
    return found


def differences(before: Counts, after: Counts) -> Counts:
    return {name: after[name] - before.get(name, 0.0) for name in after}


def fit(rows: Sequence[Counts]) -> dict[str, float]:
    """Costs of a datagram received, a message delivered and a token (received, acknowledged and passed on), none below
    0, in ns: `cpu_s` of each row is their sum."""
    names = [RECEIVE, MESSAGE, TOKEN]
    table = np.array([[row["received"], row["delivered"], row["tokens"]] for row in rows]) * 1e-9
    spent = np.array([row["cpu_s"] for row in rows])
    weights = 1 / np.maximum(spent, 1e-3)  # each run counts alike
    while names:
        costs, *_ = np.linalg.lstsq(table * weights[:, None], spent * weights, rcond=None)
        if (costs >= 0).all():
            return dict.fromkeys([RECEIVE, MESSAGE, TOKEN], 0.0) | dict(zip(names, map(float, costs), strict=True))
        least = int(costs.argmin())
        names.pop(least)
        table = np.delete(table, least, axis=1)
    return dict.fromkeys([RECEIVE, MESSAGE, TOKEN], 0.0)


def predicted_s(row: Counts, costs: dict[str, float]) -> float:
    return (row["received"] * costs[RECEIVE] + row["delivered"] * costs[MESSAGE] + row["tokens"] * costs[TOKEN]) / 1e9


def calibrate(receivers: dict[str, list[Counts]], senders: dict[str, Counts]) -> dict[str, int]:
    """As rostrum.sim.groups.HostCosts has them. `receivers`, `senders`: by the run's kind."""
    costs = fit([row for kind, rows in receivers.items() if kind not in GROUPS for row in rows])
    some, cold = (max(0.0, _each_ns(receivers[kind]) - _each_ns(receivers["packets"])) for kind in GROUPS)
    cold = max(some, cold)
    sender = senders["packets"]
    spent = sender["cpu_s"] * 1e9 - sender["published"] * costs[MESSAGE] - sender["tokens"] * costs[TOKEN]
    send = max(0.0, spent / max(1.0, sender["sent"]))
    return {
        **{name: round(value) for name, value in costs.items()},
        "send_ns": round(send),
        "cold_ns": round(cold),
        "warm_groups": SOME if some < cold / 2 else 1,
    }


def _each_ns(rows: Sequence[Counts]) -> float:
    """What a message needed in all, in the mean of a run; the median of runs."""
    return statistics.median(row["cpu_s"] * 1e9 / max(1.0, row["delivered"]) for row in rows)


@click.command()
@click.option("--servers", default=8, show_default=True, help="Each is in all groups; one sends.")
@click.option("--seconds", default=6.0, show_default=True, help="Of traffic, in each run.")
@click.option("--groups", default=10_000, show_default=True, help="In the run that has many: beyond what caches hold.")
@click.option("--rounds", default=3, show_default=True, help="All of them count.")
@click.option("--quick", is_flag=True, help="Four servers, 2 s, two rounds.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="The costs go here.")
def command(servers: int, seconds: float, groups: int, rounds: int, quick: bool, output: Path | None) -> None:
    """Measure what QSM costs an agent's processor: per datagram, message, group and token.

    \b
      rostrum lab run qsm-costs --json results/qsm-costs.json
      rostrum sim run qsm-nodes --costs results/qsm-costs.json
    """
    if quick:
        servers, seconds, rounds = 4, 2.0, 2
    receivers: dict[str, list[Counts]] = {}
    senders: dict[str, Counts] = {}
    rates: dict[str, list[float]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "racks.yaml"
            file.write_text(network(servers))
            lab = Lab.start(file, name="qsm-costs", or_another=True)
        with lab:
            names = list(lab.topology.servers)
            pids = {name: lab.status()["programs"][name]["pid"] for name in names}
            for kind in [kind for _ in range(rounds) for kind in kinds(groups)]:
                program = ours(lab, f"c{kind.name}", f"qsm,token={kind.token_ms}")
                case = Case(kind.groups, servers, kind.bytes, seconds)
                found = measure(lab, case, program, calls=True, around=partial(look, lab, pids))
                before, after = found["looks"]
                rates.setdefault(kind.name, []).append(found["rate"])
                receivers.setdefault(kind.name, []).extend(differences(before[name], after[name]) for name in names[1:])
                sent = differences(before[names[0]], after[names[0]])
                senders[kind.name] = {name: sent[name] + senders.get(kind.name, {}).get(name, 0.0) for name in sent}
                click.echo(f"{kind.name}: {found['rate']:.0f} messages/s")
    except (LabError, Skipped) as error:
        raise click.ClickException(str(error)) from error
    costs = calibrate(receivers, senders)
    off = {
        kind: sum(row["cpu_s"] for row in rows) / max(1e-9, sum(predicted_s(row, _floats(costs)) for row in rows))
        for kind, rows in receivers.items()
    }
    for name, value in costs.items():
        click.echo(f"{name}: {value}")
    if output:
        parameters = {"servers": servers, "seconds": seconds, "groups": groups, "rounds": rounds, "quick": quick}
        medians = {kind: statistics.median(found) for kind, found in rates.items()}
        save({"experiment": "qsm-costs", "costs": costs, "measured_over_predicted": off, "rates": medians,
              "manifest": manifest(0, parameters)}, output)  # fmt: skip


def _floats(costs: dict[str, int]) -> dict[str, float]:
    return {name: float(value) for name, value in costs.items()}
