"""Rows of an experiment: lists of dicts, as a CSV file or a data frame."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from rostrum.lab.namespace import LabError

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Rows(list[dict[str, Any]]):
    """A list of rows; a key that a row lacks is an empty cell."""

    def columns(self) -> list[str]:
        return list(dict.fromkeys(key for row in self for key in row))

    def csv(self, file: str | Path) -> Path:
        """Writes them to a file, with a line of titles."""
        path = Path(file)
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, self.columns())
            writer.writeheader()
            writer.writerows(self)
        return path

    def frame(self) -> Any:
        """A pandas.DataFrame. Raises LabError without pandas."""
        try:
            import pandas
        except ImportError:
            raise LabError("a data frame needs pandas: pip install pandas, or use csv(FILE)") from None
        return pandas.DataFrame(list(self), columns=self.columns())


def samples(page: str, source: str) -> Rows:
    """A row for each sample of a page of metrics (Prometheus' text): source, metric, value, and its labels."""
    found = Rows()
    for line in page.splitlines():
        if match := SAMPLE.match(line):
            labels = {f"label_{key}": value for key, value in LABEL.findall(match[2] or "")}
            found.append({"source": source, "metric": match[1], "value": float(match[3]), **labels})
    return found
