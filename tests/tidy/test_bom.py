"""The bill of materials: every pinned package is in it, with what may be installed of it."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from tests.tidy.tree import ROOT, text


def bill() -> Any:
    done = subprocess.run([ROOT / ".ci" / "bom", "-"], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_bill__has_every_pinned_package_once_and_is_the_same_each_time() -> None:
    made = bill()
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", made["serialNumber"])
    refs = [one["bom-ref"] for one in made["components"]]
    assert len(set(refs)) == len(refs) and made["metadata"]["component"]["name"] == "rostrum"
    known = {(one["name"], one["version"]) for one in made["components"]}
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9._+!-]+)", text("requirements.lock"), re.MULTILINE)
    assert len(pinned) > 50 and set(pinned) <= known
    assert set(made["dependencies"][0]["dependsOn"]) <= set(refs)
    assert made == bill()
