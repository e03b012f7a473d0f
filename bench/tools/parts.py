"""What sealing, opening and digesting take while runs are measured: one more tool, which has its turn among others."""

from __future__ import annotations

import json
import os
import statistics

from rostrum.bench.cases import PARTS
from rostrum.bench.run import Plain, Run, ToolFailed

SECONDS = "0.1"  # of each part


class Parts(Plain):
    """native/seals.c for packets of the case's MTU: as many at once as keep all processors busy, as the ends of a
    transfer do. Facts: their means, `seal_ns` and `open_ns` of a packet, `sha256_ns_per_byte`.
    """

    name = PARTS
    timed = "nothing that is sent: what a packet's cipher and a byte's digest take"

    def prepare(self, run: Run) -> None:
        pass

    def send(self, run: Run) -> None:
        argv = [str(run.programs_folder / "seals"), SECONDS, str(run.case.mtu)]
        count = min(os.cpu_count() or 1, 1 + run.case.receivers)
        programs = [run.start("receivers", run.receivers[0], argv) for _ in range(count)]
        found: dict[str, list[float]] = {"seal_ns": [], "open_ns": [], "sha256_ns_per_byte": []}
        for program in programs:
            try:
                said = json.loads(run.wait(program))
                row = {**said["rows"][0], "sha256_ns_per_byte": said["sha256_ns_per_byte"]}
                for name, values in found.items():
                    values.append(float(row[name]))
            except (ValueError, LookupError, TypeError) as error:
                raise ToolFailed(f"seals said {program.tail()!r}: {error}") from error
        run.facts.update({name: statistics.fmean(values) for name, values in found.items()})

    def received(self, run: Run, host: object) -> None:
        return None
