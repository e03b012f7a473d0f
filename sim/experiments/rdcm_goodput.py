"""RDCM's Fig. 10: what receivers get, over what a link carries, against the share of packets that links lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rostrum.sim import compare


@click.command()
@compare.options("rdcm-goodput")
def command(quick: bool, json_file: Path, png: Path, **given: Any) -> None:
    """Goodput of RDCM, RMTP, LBRM, TMTP and SRM with losses (figure 10 of RDCM's paper).

    One group in BCube(8,3), 1 MB in packets of 1 KB, Gilbert losses on every link, no congestion control.
    """
    chosen = compare.plan(quick, **given)
    outcomes = compare.run(chosen)
    goodput = compare.by_protocol(outcomes, "goodput")
    summary: dict[str, Any] = {
        "goodput_over_capacity": goodput,
        "completion_over_capacity": compare.by_protocol(outcomes, "completion"),
        "slowest_receiver": compare.by_protocol(outcomes, "worst"),
        "rdcm_over": {
            name: {loss: goodput["rdcm"][loss] / value for loss, value in row.items()}
            for name, row in goodput.items()
            if name != "rdcm" and "rdcm" in goodput
        },
    }
    compare.save(summary, outcomes, chosen, json_file)
    compare.plot(goodput, "Goodput of a multicast session (simulated)", "goodput / capacity of a link", png)
    compare.OUT.print(compare.table("goodput / capacity", goodput))
    compare.OUT.print(compare.table("until all is there", summary["completion_over_capacity"]))
    compare.OUT.print(f"figures in {json_file}, picture in {png}")
