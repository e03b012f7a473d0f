"""Objects to receivers over a wide area: rates, round trips, losses, several transfers of one sender."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim import friendly
from rostrum.sim.network import HostParams, LinkParams, Network, PathParams, SimError
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
GROUP = 7
HEADER_BYTES = 32 + 66  # of a data packet beside its fragment, on an Ethernet wire
GBIT = 10**9
HOUR_NS = 3600 * 10**9
FLOOR_SHARE, FLOOR_SHARE_LOSSY, FLOOR_JAIN = 0.95, 0.88, 0.98
START_MOST = 10  # round trips until the rate is found
LOSS_MUCH = 0.05  # where coding is compared


@dataclass(frozen=True)
class Case:
    """`shared`: packets are lost on the sender's link, for all; else on each receiver's, for itself.
    `slow_bps`: of the last receiver's link; 0 = as the others'. `rtt_spread`: round trips go from
    `rtt_s` down to this part of it.
    """

    name: str
    rate_bps: int = GBIT
    rtt_s: float = 0.1
    loss: float = 0.003
    shared: bool = True
    receivers: int = 10
    transfers: int = 1
    seconds: float = 30.0  # of data at the link's rate, all transfers together
    fragment: int = 8896
    slow_bps: int = 0
    rtt_spread: float = 1.0
    nic_bps: int = 0  # of the sender; 0 = as the link: then that is told at least
    options: str = ""  # of the sends, as `rostrum send --option` has them
    stall_s: float = 0.0  # every host's process stands still so long in the mean, after running for ten times that
    burst: float = 1.0  # packets lost in a row, in the mean

    @property
    def size(self) -> int:
        return int(self.seconds * self.payload_bps / 8 / self.transfers)

    @property
    def payload_bps(self) -> float:
        return self.rate_bps * self.fragment / (self.fragment + HEADER_BYTES)


CASES = (
    Case("one transfer, 1 Gbit/s, 100 ms, 0.3 %"),
    Case("the same, lost at each receiver for itself", shared=False),
    Case("1 Gbit/s, 300 ms, 0.3 %", rtt_s=0.3, seconds=60),
    Case("10 Gbit/s, 100 ms, 0.3 %", rate_bps=10 * GBIT),
    Case("ten transfers on 10 Gbit/s, 100 ms, 0.3 %", rate_bps=10 * GBIT, transfers=10, seconds=60),
    Case("round trips of 10 to 100 ms, 1 Gbit/s", rtt_spread=0.1),
    Case("one receiver at 100 Mbit/s", slow_bps=GBIT // 10, seconds=10),
    Case(
        "200 Mbit/s behind a NIC of 1 Gbit/s, 50 ms, 0.3 %",
        rate_bps=GBIT // 5,
        rtt_s=0.05,
        shared=False,
        receivers=3,
        fragment=1440,
        nic_bps=GBIT,
    ),
    Case(
        "the same on busy hosts: each stands still for 5 ms of 55",
        rate_bps=GBIT // 5,
        rtt_s=0.05,
        shared=False,
        receivers=3,
        fragment=1440,
        nic_bps=GBIT,
        stall_s=0.005,
    ),
    *(
        Case(
            f"200 Mbit/s, 200 ms, {loss:.0%}, on busy hosts",
            rate_bps=GBIT // 5,
            rtt_s=0.2,
            loss=loss,
            shared=False,
            receivers=3,
            seconds=60,
            fragment=1440,
            nic_bps=GBIT,
            stall_s=0.005,
        )
        for loss in (0.01, 0.05)
    ),
    *(
        Case(
            f"ten receivers lose {LOSS_MUCH:.0%} each for itself, 100 ms: {name}",
            loss=LOSS_MUCH,
            shared=False,
            seconds=20,
            options=options,
        )
        for name, options in (
            ("plain repairs", ""),
            ("coded repairs", "coding=repairs"),
            ("an XOR ahead of losses after ten packets", "coding=proactive:10"),
        )
    ),
)


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help="A sixth of the data.")
@click.option("--friendly", "beside_tcp", is_flag=True,
              help="Instead: congestion=friendly beside CUBIC and BBR, and CUBIC beside both, at places of two rates, "
              "five round trips and six queues, with losses and with marks; either first.")  # fmt: skip
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default="build/wan.json", show_default=True, help="Where the figures go.")  # fmt: skip
def command(seed: int, quick: bool, beside_tcp: bool, json_file: Path) -> None:
    """Goodput of the engine `wan` with long round trips and losses, at 1 and 10 Gbit/s.

    Ten receivers; links have queues of half a bandwidth-delay product, and nobody is told their rates. `packets`: sent
    for each one of the object.
    """
    if beside_tcp:
        report = friendly.study(quick)
        save(rounded(report | {"manifest": manifest(seed, {"quick": quick, "friendly": True})}), json_file)
        OUT.print("points where one has more than twice the other's:")
        OUT.print(whole(friendly.table(report)))
        for one_verdict in report["verdicts"]:
            found = "found" if one_verdict["found"] else "not found"
            OUT.print(f"{one_verdict['claim']}: {one_verdict['got']}, asked {one_verdict['goal']} ({found})")
        OUT.print(f"figures in {json_file}")
        return
    cases = [replace(case, seconds=case.seconds / 6) if quick else case for case in CASES]
    try:
        rows = [one(case, seed) for case in track(cases, "simulating", console=ERR, transient=True)]
    except SimError as error:
        raise click.ClickException(str(error)) from error
    summary = {row["name"]: {key: row[key] for key in ("share", "jain", "memory_most_bytes")} for row in rows}
    report = {"instrument": "sim", "summary": summary, "verdicts": verdicts(rows), "runs": rows}
    save(rounded(report | {"manifest": manifest(seed, {"quick": quick})}), json_file)
    OUT.print(whole(table(rows)))
    for verdict in report["verdicts"]:
        OUT.print(f"{verdict['claim']}: {verdict['got']:.3f} ({'found' if verdict['found'] else 'not found'})")
    OUT.print(f"figures in {json_file}")


def one(case: Case, seed: int) -> dict[str, Any]:
    """The transfers of a case, all at once. Raises SimError if one does not end within an hour of virtual time."""
    net, host = (
        Network(seed),
        HostParams(fragment_size=case.fragment, nic_rate_bps=case.nic_bps or case.rate_bps, max_transfers=64),
    )
    sender, receivers, switch = net.host(host), [net.host(host) for _ in range(case.receivers)], net.switch()
    queue = int(case.rate_bps * case.rtt_s / 16) + (1 << 20)
    near_ns = round(case.rtt_s * case.rtt_spread * 1e9 / 4)
    up, _ = net.link(sender, switch, LinkParams(case.rate_bps, near_ns, queue))
    down = []
    for i, receiver in enumerate(receivers):
        spread = case.rtt_spread + (1 - case.rtt_spread) * i / max(1, case.receivers - 1)
        far_ns = round(case.rtt_s * spread * 1e9 / 2) - near_ns
        rate = case.slow_bps if case.slow_bps and receiver == receivers[-1] else case.rate_bps
        down.append(net.link(switch, receiver, LinkParams(rate, far_ns, queue))[0])
    for node in [sender, *receivers] if case.stall_s else []:
        net.stalls(node, round(10 * case.stall_s * 1e9), round(case.stall_s * 1e9))
    for link in [up] if case.shared else down:
        net.loss(link, "gilbert" if case.burst > 1 else "bernoulli", case.loss, case.burst)
    sends = []
    for group in range(GROUP, GROUP + case.transfers):
        net.group(sender, group, [up])
        net.group(switch, group, down)
        for receiver in receivers:
            net.group(receiver, group, [], member=True)
        net.path(sender, PathParams(group, "wan"))
        sends.append(net.send(sender, group, case.size, receivers, case.options))
        net.run(net.now_ns + 2_000_000)  # the manager answers one after the other
    used, latest = 0, [net.transfer(sender, send) for send in sends]
    reached_s = 0.0
    last = {int(node) for node in receivers[-1:]} if case.slow_bps else set()
    wanted = case.transfers * (case.receivers - len(last))
    while sum(int(note["peer"]) not in last for note in net.notes_of("peer_done")) < wanted:
        if net.now_ns > HOUR_NS:
            raise SimError(f"{case.name}: not done after an hour")
        net.run(net.now_ns + 20_000_000)
        stats = []
        for i, send in enumerate(sends):
            if not done(net, send):
                latest[i] = net.transfer(sender, send)
                stats.append(latest[i])
        used = max(used, sum(each["window"] for each in stats))
        if stats and not reached_s and sum(each["rate_bps"] for each in stats) >= 0.9 * case.rate_bps:
            reached_s = net.now_ns / 1e9 - max(each["high_rate_at"] for each in stats) / 1e9
    begin = [each["granted_at"] for each in latest]
    ends = [
        max(int(n["at"]) for n in net.notes_of("peer_done") if n["transfer"] == send and int(n["peer"]) not in last)
        for send in sends
    ]
    goodputs = [case.size * 8e9 / (end - start) for start, end in zip(begin, ends, strict=True)]
    net.run_until_noted("send_done", case.transfers, net.now_ns + HOUR_NS)
    heads = 1 if case.shared else case.receivers  # a packet is sent so often, in the mean, until each of them has it
    least_sendings = sum(1 - (1 - case.loss**times) ** heads for times in range(64))
    total = case.size * case.transfers * 8e9 / (max(ends) - min(begin))
    return {
        "name": case.name,
        "case": asdict(case) | {"size": case.size},
        "share": total * least_sendings / case.payload_bps,
        "jain": sum(goodputs) ** 2 / (len(goodputs) * sum(g * g for g in goodputs)),
        "seconds": (max(ends) - min(begin)) / 1e9,
        "rate_reached_round_trips": reached_s / case.rtt_s,
        "memory_most_bytes": used,
        "overflow": sum(net.link_stats(link)["overflow"] for link in [up, *down]),
        "packets_each": net.link_stats(up)["packets"] * case.fragment / (case.size * case.transfers),
        "patches": sum(each["patches_sent"] for each in latest),
        "all_done_s": net.now_ns / 1e9,
    }


def done(net: Network, send: int) -> bool:
    return bool((net.notes_of("send_done")["transfer"] == send).any())


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row, what, floor in (
        (rows[0], "share", FLOOR_SHARE),
        (rows[4], "share", FLOOR_SHARE),
        (rows[4], "jain", FLOOR_JAIN),
        (rows[7], "share", FLOOR_SHARE),
        (rows[8], "share", FLOOR_SHARE),
        (rows[9], "share", FLOOR_SHARE),
        (rows[10], "share", FLOOR_SHARE_LOSSY),
    ):
        found.append(
            {"claim": f"{row['name']}: {what} at least {floor}", "got": row[what], "found": row[what] >= floor}
        )
    slow = [row["rate_reached_round_trips"] for row in rows if row["case"]["rtt_s"] >= 0.2]
    found.append(
        {"claim": f"round trips of start-up at 200 and 300 ms, at most {START_MOST}", "got": max(slow),
         "found": max(slow) <= START_MOST}
    )  # fmt: skip
    plain, *others = (row for row in rows if row["name"].startswith("ten receivers lose"))
    for row in others:
        times = row["seconds"] / plain["seconds"]
        found.append(
            {"claim": f"{row['name']}: time over that of plain repairs, below 1", "got": times, "found": times < 1}
        )
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("case", "share", "Jain", "s", "round trips to the rate", "memory MB", "packets", "overflow")
    for row in rows:
        shown.add_row(
            row["name"],
            f"{row['share']:.3f}",
            f"{row['jain']:.3f}",
            f"{row['seconds']:.1f}",
            f"{row['rate_reached_round_trips']:.1f}",
            f"{row['memory_most_bytes'] / 1e6:.0f}",
            f"{row['packets_each']:.3f}",
            str(row["overflow"]),
        )
    return shown
