"""What another file of a folder holds already: files that were renamed, moved or copied at the sender are copied here.

A file that is wanted is looked for among those here of its size: by its time, which a rename keeps, and if it is not
tiny among all of these. The sender says the digests of those that may be here; what has such a digest is copied, or
moved if it is to go anyway, and the rest is asked for. All are copied before any takes its place: they may be each
other's.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence

from .trees import FULL, Entry, Tree, digest_of, stamp_of

LEAST = 4096  # bytes of a file that is looked for among files of other times


class Copies:
    """Those that one run of a receiver finds."""

    def __init__(self, tree: Tree, entries: Sequence[Entry | None], wanted: Iterable[int], chunked: Container[int]):
        self.tree, self.entries = tree, entries
        self.digests: dict[str, tuple[str, tuple[int, ...]]] = {}  # of files here, by paths, with their stamps then
        self.alike: set[int] = set()  # that may be here
        self.here: dict[int, list[tuple[str, int]]] = {}
        some = [(index, entry) for index in wanted if (entry := entries[index]) and entry.size > 0]
        if not some:
            return
        self.here = tree.files({entry.size for _, entry in some})
        for index, entry in some:
            others = self.here.get(entry.size, ())
            of_its_time = any(mtime_ns == entry.mtime_ns for _, mtime_ns in others)
            if of_its_time or (others and entry.size >= LEAST and index not in chunked):
                self.alike.add(index)

    def _has(self, path: str, file: int, digest: str) -> bool:
        """This file of that path has it, and has not changed since its digest was taken."""
        stamp = stamp_of(file)
        if path not in self.digests:
            self.digests[path] = digest_of(file), stamp
        return self.digests[path] == (digest, stamp)

    def _stage(self, entry: Entry, digest: str, goes: set[str]) -> str:
        """The name of a copy, not placed yet; empty: nothing here is that."""
        others = sorted(self.here.get(entry.size, ()), key=lambda one: (one[1] != entry.mtime_ns, one[0] not in goes))
        for path, _ in others:
            if path in self.digests and self.digests[path][0] != digest:
                continue
            try:
                file = self.tree.open(path)
            except OSError:
                continue
            try:
                if not self._has(path, file, digest):
                    continue
                name = self.tree.stage_copy(entry, file, path in goes)
                if path in goes:
                    goes.discard(path)
                    self.digests[path] = digest, stamp_of(file)
            except OSError as error:
                if error.errno in FULL:
                    raise
                continue
            finally:
                os.close(file)
            return name
        return ""

    def stage(self, digests: dict[int, str], extra: Iterable[str]) -> tuple[dict[int, str], list[int]]:
        """Copies of what has these digests, by entries; and the entries of which nothing is here.

        Args:
            extra: what goes at the end of this run.

        Raises:
            OSError: the disk is full.
        """
        found: dict[int, str] = {}
        missing: list[int] = []
        goes = set(extra)
        for index in sorted(self.alike):
            entry = self.entries[index]
            assert entry
            name = self._stage(entry, digests[index], goes) if index in digests else ""
            if name:
                found[index] = name
            else:
                missing.append(index)
        return found, missing
