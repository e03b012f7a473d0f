"""RDCM's Fig. 11: bytes on all links, over those of the tree without losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rostrum.sim import compare


@click.command()
@compare.options("rdcm-footprint")
def command(quick: bool, json_file: Path, png: Path, **given: Any) -> None:
    """Traffic of RDCM, RMTP, LBRM, TMTP and SRM with losses (figure 11 of RDCM's paper).

    The sessions of rdcm-goodput. Data and repairs count as in the paper; acknowledgements and requests are told apart.
    """
    chosen = compare.plan(quick, **given)
    outcomes = compare.run(chosen)
    footprint, control = compare.by_protocol(outcomes, "footprint"), compare.by_protocol(outcomes, "control")
    summary = {"footprint_over_tree": footprint, "control_over_tree": control}
    compare.save(summary, outcomes, chosen, json_file)
    compare.plot(footprint, "Traffic of a multicast session (simulated)", "bytes on links / tree", png, log=True)
    compare.OUT.print(compare.table("data, repairs / tree", footprint))
    compare.OUT.print(compare.table("control / tree", control))
    compare.OUT.print(f"figures in {json_file}, picture in {png}")
