"""Run by test_preheat.py of agent_e2e in an environment with huggingface_hub, offline: what of a cache it reads.

hub_reads.py REPOSITORY REVISION FILE...
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError


def main(repository: str, revision: str, *files: str) -> None:
    place = Path(snapshot_download(repository, revision=revision))
    found = {file: hf_hub_download(repository, file, revision=revision) for file in files}
    assert all(Path(path) == place / file for file, path in found.items()), found
    only = Path(snapshot_download(repository, revision=place.name, allow_patterns=files[:1]))  # by its commit
    try:
        hf_hub_download(repository, "not-there.bin", revision=revision)
    except LocalEntryNotFoundError:
        pass
    else:
        raise AssertionError("a file was found that is not there")
    scanned = scan_cache_dir()
    assert not scanned.warnings, scanned.warnings  # nothing that the hub's own tools call damaged
    refs = {ref: one.commit_hash for repo in scanned.repos for one in repo.revisions for ref in one.refs}
    digests = {file: hashlib.sha256(Path(path).read_bytes()).hexdigest() for file, path in found.items()}
    print(json.dumps({"commit": place.name, "only": only.name, "refs": refs, "digests": digests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
