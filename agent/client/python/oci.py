"""Images as OCI layouts on disk: which are there, by name and digest, and what belongs to each.

Layouts come from anywhere: what is malformed, too large or leads elsewhere is refused in words.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .values import Code, RostrumError

MANIFEST_MOST = 4 << 20  # bytes; registries take no larger ones
INDEX_MOST = 16 << 20
BLOBS_MOST = 100_000
DEPTH_MOST = 4  # of indexes in indexes
REF_NAME = "org.opencontainers.image.ref.name"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*")
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
NAME_MOST = 255


class Descriptor(NamedTuple):
    """A blob, as a manifest names it. `optional`: a layer that may not be redistributed, and is often left out."""

    digest: str
    size: int
    media_type: str
    optional: bool = False


class ImageName(NamedTuple):
    """As people write it: [HOST/]REPOSITORY:TAG."""

    host: str
    repository: str
    tag: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}:{self.tag}" if self.host else f"{self.repository}:{self.tag}"


def bad(text: str) -> RostrumError:
    return RostrumError(text, Code.INVALID)


def parsed(content: bytes, what: str) -> dict[str, Any]:
    """A JSON object. Raises RostrumError: it is something else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise bad(f"{what} is no JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise bad(f"{what} is no JSON object")
    return value


def rows_of(value: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    rows = value.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise bad(f"{what} has no list of {key}")
    return rows


def descriptor_of(row: object, what: str) -> Descriptor:
    """Raises RostrumError: it is none, or of a digest that is not SHA-256."""
    if not isinstance(row, dict):
        raise bad(f"{what} has something else where a blob is to be named")
    digest, size, kind = row.get("digest"), row.get("size"), row.get("mediaType", "")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise bad(f"{what} names a blob {str(digest)[:100]!r}: only sha256:<64 hexadecimal digits> is known here")
    if type(size) is not int or not 0 <= size < 1 << 50 or not isinstance(kind, str) or len(kind) > NAME_MOST:
        raise bad(f"{what} says no size or kind of blob {digest}")
    return Descriptor(digest, size, kind, "nondistributable" in kind or "foreign" in kind)


def parse_name(text: str) -> ImageName:
    """Raises RostrumError: it is no name of an image with a tag."""
    first, slash, rest = text.partition("/")
    host = first if slash and ("." in first or ":" in first or first == "localhost") else ""
    repository, colon, tag = (rest if host else text).rpartition(":")
    good = len(text) <= NAME_MOST and colon and REPOSITORY.fullmatch(repository) and TAG.fullmatch(tag)
    if not good or (host and not HOST.fullmatch(host)):
        raise bad(f"{text[:NAME_MOST]!r} is no name of an image: it is as app:v1, or registry.example/team/app:v1")
    return ImageName(host, repository, tag)


def name_here(ref: str, folder: Path, given: str | None) -> str:
    """What the receivers' registries call an image of a layout: as `given`, or by its own name if that is a whole one,
    or by its folder's; empty: by digest only."""
    if given:
        last = given.rpartition("/")[2]
        return str(parse_name(given if ":" in last else f"{given}:{_tag(ref)}"))
    if not ref:
        return ""
    if "/" in ref or ":" in ref:
        return str(parse_name(ref))
    return str(parse_name(f"{re.sub(r'[^a-z0-9]+', '-', folder.resolve().name.lower()).strip('-') or 'image'}:{ref}"))


def _tag(ref: str) -> str:
    tag = ref.rpartition(":")[2]
    return tag if TAG.fullmatch(tag) else "latest"


class Layout:
    """One on disk. `open` and what reads follow no symbolic link at the end of a path."""

    def __init__(self, top: str | os.PathLike[str]) -> None:
        self.top = Path(top)

    def path(self, digest: str) -> Path:
        found = DIGEST.fullmatch(digest)
        if not found:
            raise bad(f"{digest[:100]!r} is no digest of a blob: sha256:<64 hexadecimal digits>")
        return self.top / "blobs" / "sha256" / found[1]

    def open(self, digest: str) -> int:
        """A descriptor of a blob. Raises FileNotFoundError, and RostrumError: it is no regular file."""
        return _open_file(self.path(digest))

    def has(self, blob: Descriptor) -> bool:
        try:
            info = os.stat(self.path(blob.digest), follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(info.st_mode) and info.st_size == blob.size

    def manifest(self, digest: str) -> bytes:
        """The bytes of a manifest, which are right. Raises RostrumError otherwise."""
        try:
            content = _read(self.path(digest), MANIFEST_MOST)
        except FileNotFoundError:
            raise RostrumError(f"{self.top} lacks the manifest {digest}", Code.UNKNOWN) from None
        if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
            raise bad(f"the bytes of {self.path(digest)} are not those of its digest: it is damaged")
        return content

    def images(self) -> list[tuple[str, Descriptor, dict[str, Any]]]:
        """(name, manifest, its row) of each image in its index. Raises RostrumError: it is no layout."""
        try:
            marker = parsed(_read(self.top / "oci-layout", 4096), f"{self.top}/oci-layout")
            version = marker.get("imageLayoutVersion")
            if version != "1.0.0":
                raise bad(f"{self.top} is an OCI layout of version {str(version)[:20]}; known is 1.0.0")
            index = parsed(_read(self.top / "index.json", INDEX_MOST), f"{self.top}/index.json")
        except (FileNotFoundError, NotADirectoryError):
            raise RostrumError(
                f"{self.top} is no OCI layout: make one, for example by skopeo copy docker://IMAGE oci:{self.top}:TAG",
                Code.UNKNOWN,
            ) from None
        found = []
        for row in rows_of(index, "manifests", f"{self.top}/index.json"):
            notes = row.get("annotations")
            name = notes.get(REF_NAME, "") if isinstance(notes, dict) else ""
            found.append((name if isinstance(name, str) else "", descriptor_of(row, f"{self.top}/index.json"), row))
        return found

    def blobs(self, top: Descriptor, has: Callable[[Descriptor], bool] | None = None) -> Iterator[Descriptor]:
        """All that belongs to an image, itself first, each once.

        Raises:
            RostrumError: one is not there (as `has` says), or a manifest is malformed.
        """
        has = has or self.has
        seen: set[str] = set()
        waiting = [(top, 0, True)]
        while waiting:
            blob, depth, manifest = waiting.pop()
            if blob.digest in seen:
                continue
            if not has(blob):
                if blob.optional:
                    continue
                raise RostrumError(f"{self.top} lacks blob {blob.digest} of {blob.size} bytes", Code.UNKNOWN)
            seen.add(blob.digest)
            if len(seen) > BLOBS_MOST:
                raise bad(f"an image of more than {BLOBS_MOST} blobs is none")
            yield blob
            if not manifest:
                continue
            what = f"manifest {blob.digest}"
            value = parsed(self.manifest(blob.digest), what)
            if "manifests" in value:
                if depth >= DEPTH_MOST:
                    raise bad(f"{what}: indexes in indexes more than {DEPTH_MOST} deep are refused")
                waiting += [(descriptor_of(row, what), depth + 1, True) for row in rows_of(value, "manifests", what)]
            else:
                rows = [value.get("config"), *rows_of(value, "layers", what)]
                waiting += [(descriptor_of(row, what), depth, False) for row in rows]


def kind_of(value: dict[str, Any]) -> str:
    """The media type of a manifest; empty: it is none."""
    kind = value.get("mediaType")
    if isinstance(kind, str) and re.fullmatch(r"application/[A-Za-z0-9.+-]{1,120}", kind):
        return kind if "manifests" in value or "layers" in value else ""
    if isinstance(value.get("manifests"), list):
        return INDEX_TYPE
    return MANIFEST_TYPE if isinstance(value.get("layers"), list) and "config" in value else ""


def merged_index(there: list[dict[str, Any]], new: list[dict[str, Any]]) -> bytes:
    """An index with what is there and what is new, which takes the place of what has the same name."""

    def name(row: dict[str, Any]) -> str:
        notes = row.get("annotations")
        return str(notes.get(REF_NAME, "")) if isinstance(notes, dict) else ""

    names = {name(row) for row in new}
    same = {row.get("digest") for row in new if not name(row)}
    kept = [row for row in there if (name(row) not in names if name(row) else row.get("digest") not in same)]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": kept + new}).encode()


def _open_file(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RostrumError(f"{path} cannot be read: {error.strerror}", Code.IO) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise bad(f"{path} is no file")
    return descriptor


def _read(path: Path, most: int) -> bytes:
    with open(_open_file(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise bad(f"{path} is larger than {most >> 10} KiB: no manifest or index is")
    return content
