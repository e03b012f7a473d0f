"""`rostrum bench security`: what `security: required` costs: sealed packets, TLS, SHA-256 instead of xxh3, signatures,
and a manager's handshakes with its agents.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rostrum.bench import cases, history
from rostrum.bench.cases import MB, PARTS, Case, Entry
from rostrum.bench.messages.cases import MessageCase
from rostrum.bench.messages.tools import SECURITY
from rostrum.bench.session import OUT, alone, in_namespaces, note_others
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import rounded, save
from rostrum.topologies.places import build_folder, short
from rostrum.topologies.tables import whole

PLAIN, SECURE, SIGNED = "rostrum", cases.SECURE, cases.SIGNED
MESSAGES_PLAIN, MESSAGES_SECURE, MESSAGES_SIGNED = SECURITY
HEAD = 60  # bytes of a message's packet that are no program's
PAYLOAD = {9000: 8896, 1500: 1392}  # bytes of a sealed packet's fragment
PLAIN_PAYLOAD = {9000: 8896, 1500: 1408}
FRAME = 14 + 28 + 32  # of Ethernet, IP, UDP, and the data header
SEAL = 28  # what a seal adds to a datagram
LIMITED_SIZE = 256 * MB  # some seven seconds: setting up is told apart
LIMITED_BPS = 300_000_000  # that the processors of a small machine are not the limit: 9,000 bytes at 1 Gbit/s are
SEALS_S = "0.15"
DISTURBED = 0.1  # of all processors: beside others who take more no run counts


@click.command()
@click.option("--quick", is_flag=True, help="Some eight minutes: smaller objects, fewer rounds.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 99),
    help="Rounds; plain and secure by turns [10; quick: 6].",
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "bench-security.json", help="Where the figures go.")  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=build_folder() / "bench-security",
              help="For logs [build/bench-security].")  # fmt: skip
def security(quick: bool, repeat: int | None, json_file: Path, folder: Path) -> None:
    """What it costs that every packet is sealed, every connection TLS and every digest SHA-256.

    \b
    limited_ratio              speed of secure over plain where the sender's link is the limit, the worse MTU's;
                               limited_bound_MTU: what the bytes of seals leave of 1, limited_busy_MTU: the share of
                               all processors that secure kept busy; setup_ms_TOOL_MTU: from the request to the
                               full rate there, handshakes with the receivers included
    share_of_arithmetic_MTU    where one machine does all ends and nothing limits: speed of secure over plain, as a
                               share of base / (base + cipher + digest), processor times measured by turns with both;
                               share_of_arithmetic_cpu_MTU: the same by processor time instead of speed
    messages_...               the same of messages of 1 KB to three: of base / (base + cipher)
    signed_..., messages_signed_...
                               the same with --security signed at all agents: objects have their digests, messages
                               are signed, so base / (base + cipher + signatures, in whole batches)
    disturbed                  runs that are left out, as others took a tenth of all processors meanwhile
    handshakes_cpu_s           processor time of a manager in which 1,000 agents come, TLS and greetings;
                               keys_cpu_s: to give each a key for each other, keys of them in all
    """
    try:
        from rostrum.bench.manager import handshakes
    except ModuleNotFoundError as error:
        raise click.ClickException(f"this needs Python's {error.name}: pip install {error.name}") from error
    rounds = repeat or (6 if quick else 10)  # short runs scatter
    try:
        runs = measure(plan(quick, rounds), folder, quick)
        talk, several = measure_messages(folder, rounds)
        parts = middle(several)
        agents = handshakes.measure(folder / "agents")
    except LabError as error:
        raise click.ClickException(str(error)) from error
    summary = summarize(runs) | summarize_messages(talk, parts)
    summary |= {"handshakes": agents["agents"], "handshakes_cpu_s": agents["handshakes_s"],
                "keys": agents["keys"], "keys_cpu_s": agents["keys_s"]}  # fmt: skip
    about = manifest(1, {"quick": quick, "repeat": rounds})
    save(rounded({"summary": summary, "parts": parts, "runs": [*runs, *talk], "manifest": about}), json_file)
    show(runs, summary)
    for line in history.told({"summary": summary, "manifest": about}):
        OUT.print(f"[red]{line}[/red]")
    OUT.print(f"figures in {short(json_file)}; logs: {short(folder / 'logs')}")


def plan(quick: bool, rounds: int) -> list[Entry]:
    size = 128 * MB if quick else 512 * MB
    limited = [cases.base(mtu, rate_bps=LIMITED_BPS, size=LIMITED_SIZE) for mtu in (9000, 1500)]
    free = [cases.base(mtu, offload=True, size=size) for mtu in (9000, 1500)]
    signed = {free[0]}
    return [
        *(Entry(case, (PLAIN, SECURE), rounds) for case in limited),
        *(Entry(case, (PLAIN, SECURE, PARTS, *((SIGNED,) if case in signed else ())), rounds)
          for case in free),
    ]  # fmt: skip


def measure(entries: list[Entry], folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The records of all runs. Raises LabError."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    about = {**manifest(1, {"quick": quick}), "load": os.getloadavg()}
    job = {
        "entries": [{"case": asdict(entry.case), "tools": entry.tools, "repeat": entry.repeat} for entry in entries],
        "seed": 1, "folder": str(folder.resolve()), "programs": str(bench_programs()),
        "place": str(build_folder() / "bench-tools"), "missing": {}, "tune": False, "results": str(results.resolve()),
        "resume": False, "manifest": about,
    }  # fmt: skip
    note_others()
    with alone(folder):
        in_namespaces(folder, "rostrum.bench.inside", job)
    runs: list[dict[str, Any]] = json.loads(results.read_text())["runs"]
    if wrong := next((run for run in runs if run["outcome"] != "ok"), None):
        raise LabError(f"{wrong['tool']} on {wrong['case']['name']}: {wrong['outcome']}: {wrong.get('text', '')}")
    return runs


def measure_messages(folder: Path, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The records of all runs with messages, and `costs` before each round. Raises LabError."""
    place = folder / "messages"
    place.mkdir(parents=True, exist_ok=True)
    results, programs = place / "results.json", bench_programs()
    case = MessageCase(0, 0.0, 300_000)
    runs: list[dict[str, Any]] = []
    parts = []
    with alone(place):
        for number in range(rounds):
            parts.append(costs(programs))
            job = {
                "cases": [asdict(case)], "tools": list(SECURITY), "repeat": 1, "seed": number + 1,
                "folder": str(place.resolve()), "programs": str(programs),
                "place": str(build_folder() / "bench-tools"), "missing": {}, "results": str(results.resolve()),
                "manifest": manifest(1, {}),
            }  # fmt: skip
            in_namespaces(place, "rostrum.bench.messages.inside", job)
            runs += [{**run, "round": number} for run in json.loads(results.read_text())["runs"]]
    for tool in SECURITY:
        if not any(run["outcome"] == "ok" for run in runs if run["tool"] == tool):
            text = "; ".join(run.get("text", run["outcome"]) for run in runs if run["tool"] == tool)
            raise LabError(f"{tool} never came through: {text}")
    return runs, parts


def middle(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """`costs` of several times as one: the median of each figure."""
    first = parts[0]

    def settle(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            name: statistics.median(row[name] for row in rows) if name.endswith("_ns") else value
            for name, value in rows[0].items()
        }

    return {
        "cipher": first["cipher"],
        "seals": {mtu: settle([one["seals"][mtu] for one in parts]) for mtu in first["seals"]},
        "signs": [settle([one["signs"][at] for one in parts]) for at in range(len(first["signs"]))],
        "sha256_ns_per_byte": statistics.median(one["sha256_ns_per_byte"] for one in parts),
    }


def costs(programs: Path) -> dict[str, Any]:
    """Processor time of a sealed packet at each end, by MTU, of a byte's digest, and of signatures; as messages are
    measured. Raises LabError.
    """
    try:
        done = subprocess.run(
            [str(programs / "seals"), SEALS_S], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"{short(programs / 'seals')} did not end well: {error}; make build builds it") from error
    said = json.loads(done.stdout)
    rows = {row["mtu"]: row for row in said["rows"] if row["cipher"] == said["here"]}
    return {
        "cipher": said["here"],
        "seals": rows,
        "signs": said["signs"],
        "sha256_ns_per_byte": said["sha256_ns_per_byte"],
    }


def processor_s(run: dict[str, Any]) -> float:
    """Of both ends, the kernel's part for the network too."""
    return sum(run.get(name) or 0.0 for name in ("sender_s", "receivers_s", "sender_softirq_s", "receivers_softirq_s"))


def extra_s(case: Case, parts: list[dict[str, Any]]) -> float:
    """Processor time that ciphers and digests add at all ends together. `parts`: the records of the tool of that
    name.
    """
    seal_ns, open_ns, sha_ns = (
        statistics.median(float(run["facts"][name]) for run in parts)
        for name in ("seal_ns", "open_ns", "sha256_ns_per_byte")
    )
    cipher = case.size / PAYLOAD[case.mtu] * (seal_ns + case.receivers * open_ns)
    digest = case.size * (1 + case.receivers) * sha_ns
    return (cipher + digest) / 1e9


def limited_bound(mtu: int) -> float:
    """Speed of sealed packets over plain ones on a link that both fill."""
    plain = PLAIN_PAYLOAD[mtu] / (PLAIN_PAYLOAD[mtu] + FRAME)
    return PAYLOAD[mtu] / (PAYLOAD[mtu] + FRAME + SEAL) / plain


def busy(run: dict[str, Any]) -> float:
    """The share of all processors that were busy."""
    return float(run["machine_s"] / run["time_s"] / (os.cpu_count() or 1))


def calm(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those beside which others took more than DISTURBED of all processors; a tool's all if more than half of
    its runs are such."""

    def is_calm(run: dict[str, Any]) -> bool:
        return bool(run["others_s"] <= DISTURBED * run["time_s"] * (os.cpu_count() or 1))

    kept = []
    for key in dict.fromkeys((run["case"]["name"], run["tool"]) for run in runs):
        mine = [run for run in runs if (run["case"]["name"], run["tool"]) == key]
        quiet = [run for run in mine if is_calm(run)]
        kept += quiet if 2 * len(quiet) >= len(mine) else mine
    return kept


def summarize(runs: list[dict[str, Any]]) -> dict[str, float]:
    """By the calm runs; `disturbed`: how many were left out."""
    kept = calm(runs)
    found: dict[str, float] = {"disturbed": len(runs) - len(kept)}
    by_case: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for run in kept:
        by_case.setdefault(run["case"]["name"], {}).setdefault(run["tool"], []).append(run)
    for tools in by_case.values():
        plain, secure, signed = tools[PLAIN], tools[SECURE], tools.get(SIGNED)
        case = Case(**{key: value for key, value in plain[0]["case"].items() if key != "name"})
        times = [statistics.median(run["time_s"] for run in one) for one in (plain, secure)]
        ratio = times[0] / times[1]
        if case.rate_bps:
            found[f"limited_ratio_{case.mtu}"] = ratio
            found[f"limited_bound_{case.mtu}"] = limited_bound(case.mtu)
            found[f"limited_busy_{case.mtu}"] = statistics.median(map(busy, secure))
            for name, one in (("plain", plain), ("secure", secure)):
                found[f"setup_ms_{name}_{case.mtu}"] = statistics.median(run["facts"]["ms"]["high_rate"] for run in one)
            continue
        base, extra = statistics.median(map(processor_s, plain)), extra_s(case, tools[PARTS])
        arithmetic = base / (base + extra)
        found[f"ratio_{case.mtu}"] = ratio
        found[f"arithmetic_{case.mtu}"] = arithmetic
        found[f"share_of_arithmetic_{case.mtu}"] = ratio / arithmetic
        # The same by processor times, which others at work on this machine spoil less.
        spent = statistics.median(map(processor_s, secure))
        found[f"share_of_arithmetic_cpu_{case.mtu}"] = (base + extra) / spent
        if signed:
            found[f"signed_ratio_{case.mtu}"] = times[0] / statistics.median(run["time_s"] for run in signed)
            found[f"signed_share_of_arithmetic_{case.mtu}"] = found[f"signed_ratio_{case.mtu}"] / arithmetic
    found["limited_ratio"] = min(value for key, value in found.items() if key.startswith("limited_ratio_"))
    return found


def line(rows: list[dict[str, Any]], name: str, size: float) -> float:
    """What a packet of that size costs, by two that were measured: there is a part for it and one for each byte."""
    small, large = sorted(rows, key=lambda row: int(row["payload"]))
    slope = (large[name] - small[name]) / (large["payload"] - small["payload"])
    return float(small[name] + slope * (size - small["payload"]))


def summarize_messages(runs: list[dict[str, Any]], parts: dict[str, Any]) -> dict[str, float]:
    """Of the runs that came through."""
    mine = {tool: [run for run in runs if run["tool"] == tool and run["outcome"] == "ok"] for tool in SECURITY}
    case = mine[MESSAGES_PLAIN][0]["case"]
    count, receivers, size = case["count"], case["receivers"], case["bytes"] + HEAD
    rates = {tool: statistics.median(run["messages_per_s"] for run in rows) for tool, rows in mine.items()}
    base = statistics.median(run["sender_s"] + run["receivers_s"] for run in mine[MESSAGES_PLAIN])
    seals, signs = list(parts["seals"].values()), [row for row in parts["signs"] if row["batch"] > 1]
    cipher = count * (line(seals, "seal_ns", size) + receivers * line(seals, "open_ns", size)) / 1e9
    stamps = count * (line(signs, "sign_ns", size) + receivers * line(signs, "verify_ns", size)) / 1e9
    found = {"messages_per_s": rates[MESSAGES_PLAIN]}
    for name, tool, extra in (
        ("messages", MESSAGES_SECURE, cipher),
        ("messages_signed", MESSAGES_SIGNED, cipher + stamps),
    ):
        found[f"{name}_ratio"] = rates[tool] / rates[MESSAGES_PLAIN]
        found[f"{name}_arithmetic"] = base / (base + extra)
        found[f"{name}_share_of_arithmetic"] = found[f"{name}_ratio"] / found[f"{name}_arithmetic"]
        spent = statistics.median(run["sender_s"] + run["receivers_s"] for run in mine[tool])
        found[f"{name}_share_of_arithmetic_cpu"] = (base + extra) / spent
    return found


def show(runs: list[dict[str, Any]], summary: dict[str, float]) -> None:
    shown = Table("case", "tool", "s", "Mbit/s", "CPU s, all ends")
    for key in dict.fromkeys((run["case"]["name"], run["tool"]) for run in runs if run["tool"] != PARTS):
        rows = [run for run in runs if (run["case"]["name"], run["tool"]) == key]
        middle = statistics.median(run["time_s"] for run in rows)
        shown.add_row(*key, f"{middle:.3f}", f"{rows[0]['case']['size'] * 8 / middle / 1e6:.0f}",
                      f"{statistics.median(map(processor_s, rows)):.3f}")  # fmt: skip
    OUT.print(whole(shown))
    for name, value in summary.items():
        OUT.print(f"{name:26} {value:.3f}")
