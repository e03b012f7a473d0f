"""Images and models on servers before they are asked for: what is sent, what is refused, what the registry says.

Agents are a table here (test_sync.Hub); layouts are generated.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.client import RostrumError, hub, preheat
from rostrum.client import sync as syncing
from rostrum.client.cli import main
from rostrum.client.mirror import Mirror, ranged
from rostrum.client.oci import MANIFEST_MOST, REF_NAME, Layout, merged_index, name_here, parse_name
from rostrum.client.sync import SyncResult
from rostrum.client.trees import Entry

from tests.client.test_sync import Hub

BOUND_S = 60.0
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(syncing, "POLL_S", 0.05)
    it = Hub()
    yield it
    assert not any(it.stores.values()), "nothing of a preheat stays in a store"


def put(top: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    path = top / "blobs" / "sha256" / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def image(top: Path, layers: list[bytes], tag: str = "v1") -> dict[str, Any]:
    """A layout with one image more; its manifest."""
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", **put(top, b"{}")}
    rows = [{"mediaType": LAYER, **put(top, layer)} for layer in layers]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": rows}
    row = {"mediaType": MANIFEST, **put(top, json.dumps(manifest).encode())}
    old = json.loads((top / "index.json").read_text())["manifests"] if (top / "index.json").exists() else []
    (top / "index.json").write_bytes(merged_index(old, [{**row, "annotations": {REF_NAME: tag}}]))
    (top / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return row


def run(
    agents: Hub,
    what: preheat.Offered,
    targets: dict[str, Path],
    **options: Any,
) -> SyncResult:
    """One preheat from h1, each receiver in a thread."""
    failed: list[BaseException] = []

    def receive(name: str, into: Path) -> None:
        try:
            preheat.take(agents.agent(name), what.kind, into, wait=BOUND_S)
        except (RostrumError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=receive, args=item) for item in targets.items()]
    for name in targets:
        agents.agent(name)
    for thread in threads:
        thread.start()
    result = preheat.preheat(agents.agent("h1"), what, list(targets), wait=BOUND_S, **options)
    for thread in threads:
        thread.join()
    return result


def names(layout: Path) -> list[str]:
    return [name for name, _, _ in Layout(layout).images()]


def test_an_image_arrives_whole_and_what_is_there_is_not_sent_again(
    agents: Hub, tmp_path: Path, rng: random.Random
) -> None:
    source = tmp_path / "App"
    layers = [rng.randbytes(300_000), rng.randbytes(1000), b""]
    image(source, layers)
    targets = {name: tmp_path / name for name in ("h3", "h5")}
    result = run(agents, preheat.offered(f"oci:{source}:v1"), targets)
    assert result.ok and result.files == 5
    for top in targets.values():
        assert names(top) == ["app:v1"]
        [(_, manifest, _)] = Layout(top).images()
        for blob in Layout(top).blobs(manifest):
            path = Layout(top).path(blob.digest)
            assert path.read_bytes() == Layout(source).path(blob.digest).read_bytes()
            assert path.stat().st_mode & 0o777 == 0o644
        assert not (top / ".rostrum-sync").exists()

    layers[1] = changed = rng.randbytes(2000)
    row = image(source, layers, "v2")
    again = run(agents, preheat.offered(f"oci:{source}:v2", "registry.example/team/app"), targets)
    assert again.ok and again.sent == len(changed) + row["size"]
    assert names(targets["h3"]) == ["app:v1", "registry.example/team/app:v2"]
    assert [one.new for one in again.receivers] == [2, 2]

    third = run(agents, preheat.offered(f"oci:{source}:v2", "registry.example/team/app"), targets)
    assert third.ok and third.sent == 0
    assert names(targets["h5"]) == ["app:v1", "registry.example/team/app:v2"]  # once each


def test_each_server_gets_what_it_lacks(agents: Hub, tmp_path: Path, rng: random.Random) -> None:
    source = tmp_path / "app"
    image(source, [rng.randbytes(5000), rng.randbytes(6000)])
    first = run(agents, preheat.offered(f"oci:{source}"), {"h3": tmp_path / "h3"})
    both = run(agents, preheat.offered(f"oci:{source}"), {"h3": tmp_path / "h3", "h5": tmp_path / "h5"})
    assert both.ok and both.sent == first.sent and [one.received for one in both.receivers] == [0, first.sent]


def test_a_dry_run_sends_nothing(agents: Hub, tmp_path: Path, rng: random.Random) -> None:
    source = tmp_path / "app"
    image(source, [rng.randbytes(5000)])
    result = run(agents, preheat.offered(f"oci:{source}"), {"h3": tmp_path / "h3"}, dry_run=True)
    assert result.ok and result.sent == 0 and len(result.receivers[0].would) >= 3
    assert not list((tmp_path / "h3").rglob("blobs/*/*"))


def test_a_blob_that_is_damaged_here_is_not_there(agents: Hub, tmp_path: Path, rng: random.Random) -> None:
    """The bytes of a layer are not those of its digest: no receiver has it, nor the image; the rest stays."""
    source = tmp_path / "app"
    layer = rng.randbytes(5000)
    image(source, [layer, b"good"])
    digest = hashlib.sha256(layer).hexdigest()
    (source / "blobs/sha256" / digest).write_bytes(bytes(5000))
    result = run(agents, preheat.offered(f"oci:{source}"), {"h3": tmp_path / "h3"})
    assert not result.ok and "not those of its digest" in str(result.receivers[0].refused)
    assert not (tmp_path / "h3/blobs/sha256" / digest).exists() and not (tmp_path / "h3/index.json").exists()
    (source / "blobs/sha256" / digest).write_bytes(layer)
    again = run(agents, preheat.offered(f"oci:{source}"), {"h3": tmp_path / "h3"})
    assert again.ok and again.sent == 5000


def test_a_blob_that_is_damaged_there_is_found_by_checksum(agents: Hub, tmp_path: Path, rng: random.Random) -> None:
    source, there = tmp_path / "app", tmp_path / "h3"
    layer = rng.randbytes(5000)
    image(source, [layer])
    assert run(agents, preheat.offered(f"oci:{source}"), {"h3": there}).ok
    path = there / "blobs/sha256" / hashlib.sha256(layer).hexdigest()
    path.write_bytes(bytes(5000))
    assert run(agents, preheat.offered(f"oci:{source}"), {"h3": there}).sent == 0
    assert run(agents, preheat.offered(f"oci:{source}"), {"h3": there}, checksum=True).sent == 5000
    assert path.read_bytes() == layer


def broken_layouts() -> dict[str, tuple[Callable[[Path], object], str]]:
    def index(top: Path, value: object) -> None:
        (top / "index.json").write_text(value if isinstance(value, str) else json.dumps(value))

    def manifest(top: Path, content: bytes, size: int | None = None) -> None:
        row = put(top, content)
        index(top, {"manifests": [{**row, "size": size if size is not None else row["size"]}]})

    def nested(top: Path) -> None:
        row = put(top, b'{"layers": [], "config": {}}')
        for _ in range(6):
            row = put(top, json.dumps({"manifests": [row]}).encode())
        index(top, {"manifests": [row]})

    def linked(top: Path) -> None:
        digest = "1" * 64
        (top / "blobs/sha256" / digest).symlink_to("/etc/passwd")
        size = os.stat("/etc/passwd").st_size
        index(top, {"manifests": [{"digest": f"sha256:{digest}", "size": size}]})

    up = {"digest": "sha256:../../../etc/passwd", "size": 1}
    return {
        "no layout": (lambda top: (top / "oci-layout").unlink(), "skopeo copy"),
        "of a later version": (lambda top: (top / "oci-layout").write_text('{"imageLayoutVersion": "9"}'), "version 9"),
        "no JSON": (lambda top: index(top, "{"), "no JSON"),
        "deep JSON": (lambda top: index(top, "[" * 100_000), "no JSON"),
        "a list": (lambda top: index(top, []), "no JSON object"),
        "no manifests": (lambda top: index(top, {}), "no list of manifests"),
        "numbers": (lambda top: index(top, {"manifests": [7]}), "no list of manifests"),
        "a path": (lambda top: index(top, {"manifests": [up]}), "only sha256"),
        "sha512": (lambda top: index(top, {"manifests": [{"digest": "sha512:00", "size": 1}]}), "only sha256"),
        "a negative size": (lambda top: manifest(top, b"{}", -1), "no size"),
        "another size": (lambda top: manifest(top, b"{}", 3), "lacks blob"),
        "no image": (lambda top: manifest(top, b"{}"), "no list of layers"),
        "a huge manifest": (lambda top: manifest(top, b" " * (MANIFEST_MOST + 1)), "larger than"),
        "indexes in indexes": (nested, "deep are refused"),
        "a layer that leads away": (
            lambda top: manifest(top, json.dumps({"layers": [up], "config": {}}).encode()), "only sha256"),
        "a config that is none": (lambda top: manifest(top, b'{"layers": [], "config": 7}'), "something else"),
        "a link out": (linked, "lacks blob"),
    }  # fmt: skip


@pytest.mark.parametrize("case", broken_layouts())
def test_a_layout_that_is_malformed_is_refused_in_words(case: str, tmp_path: Path) -> None:
    image(tmp_path, [b"layer"])
    damage, words = broken_layouts()[case]
    damage(tmp_path)
    with pytest.raises(RostrumError, match=words):
        preheat.offered(f"oci:{tmp_path}")


def test_layouts_of_random_bytes_raise_nothing_else(tmp_path: Path, rng: random.Random) -> None:
    image(tmp_path, [b"layer"])
    good = [path for path in tmp_path.rglob("*") if path.is_file()]
    for _ in range(200):
        path = rng.choice(good)
        before = path.read_bytes()
        bad = bytearray(before or b"\0")
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        path.write_bytes(bytes(bad[: rng.randint(0, len(bad))]) if rng.random() < 0.3 else bytes(bad))
        with contextlib.suppress(RostrumError):
            preheat.offered(f"oci:{tmp_path}")
        path.write_bytes(before)


class Hostile(preheat.Offered):
    """What a sender offers that is not what it should be."""


HOSTILE_IMAGES = {
    "a file beside": Entry("elsewhere", "f", 0o644, 0, 3, digest="elsewhere"),
    "above": Entry("../up", "f", 0o644, 0, 3, digest="up"),
    "the index": Entry("index.json", "f", 0o644, 0, 3, digest="index.json"),
    "a link": Entry("blobs/sha256/" + "2" * 64, "l", 0o777, 0, to="../../oci-layout"),
    "another name": Entry("blobs/sha256/" + "2" * 64, "f", 0o644, 0, 3, digest="3" * 64),
    "no digest": Entry("blobs/sha256/abc", "f", 0o644, 0, 3, digest="abc"),
    "a folder": Entry("blobs/md5", "d", 0o755, 0),
}


@pytest.mark.parametrize("case", HOSTILE_IMAGES)
def test_a_receiver_takes_nothing_but_blobs(case: str, agents: Hub, tmp_path: Path) -> None:
    source, there = tmp_path / "app", tmp_path / "there" / "h3"
    image(source, [b"layer"])
    what = preheat.offered(f"oci:{source}")
    bytes_of = tmp_path / "bytes"
    bytes_of.write_bytes(b"bad")
    os.utime(bytes_of, ns=(0, 0))
    entry = HOSTILE_IMAGES[case]
    what.entries.append(entry)
    what.files[entry.path] = bytes_of
    result = run(agents, what, {"h3": there})
    assert not result.ok and result.receivers[0].refused
    assert not (there / "index.json").exists()  # an image with that is none
    found = {str(path.relative_to(tmp_path / "there")) for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert all(path.startswith("h3/blobs/sha256/") and len(path) == 16 + 64 for path in found), found


@pytest.mark.parametrize("index", [None, [], [7], [{"digest": "sha256:x"}], "rows",
                                   [{"digest": "sha256:" + "0" * 64, "size": 3, "annotations": {REF_NAME: "../x"}}],
                                   [{"digest": "sha256:" + "0" * 64, "size": 3, "annotations": {"more": "x"}}],
                                   [{"digest": "sha256:" + "0" * 64, "size": 3}]])  # fmt: skip
def test_a_receiver_refuses_an_index_that_is_none(index: Any, agents: Hub, tmp_path: Path) -> None:
    source, there = tmp_path / "app", tmp_path / "h3"
    image(source, [b"layer"])
    what = preheat.offered(f"oci:{source}")
    what.install = {"index": index}
    agents.agent("h3")
    taken: list[RostrumError] = []

    def take() -> None:
        try:
            preheat.take(agents.agent("h3"), "oci", there, wait=BOUND_S)  # of a blob that it lacks the sender is told
        except RostrumError as error:
            taken.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    result = preheat.preheat(agents.agent("h1"), what, ["h3"], wait=1.0)
    thread.join()
    assert (taken or result.receivers[0].refused) and not result.ok and not (there / "index.json").exists()


def test_two_do_not_write_into_one_layout(agents: Hub, tmp_path: Path) -> None:
    image(tmp_path / "app", [b"layer"])
    with preheat._Blobs(tmp_path / "h3", False):
        agents.agent("h3")
        said: list[str] = []

        def take() -> None:
            with pytest.raises(RostrumError) as caught:
                preheat.take(agents.agent("h3"), "oci", tmp_path / "h3", wait=BOUND_S)
            said.append(str(caught.value))

        thread = threading.Thread(target=take)
        thread.start()
        result = preheat.preheat(agents.agent("h1"), preheat.offered(f"oci:{tmp_path / 'app'}"), ["h3"], wait=0.5)
        thread.join()
    assert "another rostrum preheat or mirror" in said[0]
    assert not result.ok


# -- models


def cached(top: Path, commit: str, files: dict[str, bytes], ref: str = "main") -> Path:
    """A repository in a hub's cache, as its client makes it."""
    folder = top / "models--org--name"
    for path, content in files.items():
        large = len(content) > 100
        name = hashlib.sha256(content) if large else hashlib.sha1(b"blob %d\0" % len(content) + content)
        blob = folder / "blobs" / name.hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link = folder / "snapshots" / commit / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / ref).write_text(commit)
    return folder


def test_a_model_of_the_cache_arrives_in_the_caches(
    agents: Hub, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": b"{}", "a/model.safetensors": rng.randbytes(50_000), "b/same": b"{}"}
    cached(tmp_path / "hub", "1" * 40, files)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    targets = {"h3": tmp_path / "h3", "h5": tmp_path / "h5"}
    result = run(agents, preheat.offered("hf:org/name@main"), targets)
    assert result.ok and result.files == 2
    for top in targets.values():
        folder = top / "models--org--name"
        assert (folder / "refs/main").read_text() == "1" * 40
        for path, content in files.items():
            place = folder / "snapshots" / ("1" * 40) / path
            assert place.is_symlink() and place.read_bytes() == content and not os.readlink(place).startswith("/")

    cached(tmp_path / "hub", "2" * 40, {**files, "config.json": b"{...}"}, ["next", "one"][0])
    again = run(agents, preheat.offered(f"hf:{tmp_path / 'hub/models--org--name'}@next"), targets)
    assert again.ok and again.sent == 5
    assert (tmp_path / "h3/models--org--name/refs/next").read_text() == "2" * 40
    assert (tmp_path / "h3/models--org--name/refs/main").read_text() == "1" * 40


def test_a_plain_folder_becomes_a_model(agents: Hub, tmp_path: Path, rng: random.Random) -> None:
    model = tmp_path / "model"
    (model / ".git").mkdir(parents=True)
    (model / ".git/config").write_text("not this")
    (model / "weights.bin").write_bytes(rng.randbytes(2000))
    what = preheat.offered(f"hf:{model}", "org/name@v1.5")
    assert run(agents, what, {"h3": tmp_path / "h3"}).ok
    folder = tmp_path / "h3/models--org--name"
    commit = (folder / "refs/v1.5").read_text()
    assert [path.name for path in (folder / "snapshots" / commit).iterdir()] == ["weights.bin"]
    assert preheat.offered(f"hf:{model}", "org/name@v1.5").install["commit"] == commit  # the same files, the same name
    with pytest.raises(RostrumError, match="--name"):
        preheat.offered(f"hf:{model}")


def test_models_that_are_not_whole_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # a folder ../x beside the checkout would be one
    folder = cached(tmp_path, "1" * 40, {"a": b"x"})
    for source, words in {
        "hf:org/other": "hf download org/other",
        "hf:org/name@gone": "there are: main",
        "hf:org/name@" + "2" * 40: "no snapshot",
        "hf:../x": "no repository",
        "hf:a/b/c/d": "no repository",
        "hf:org/name@../x": "no revision",
        "zip:x": "neither",
        "oci:": "neither",
    }.items():
        with pytest.raises(RostrumError, match=words):
            preheat.offered(source)
    (folder / "snapshots" / ("1" * 40) / "b").symlink_to("/etc/passwd")
    with pytest.raises(RostrumError, match="out of"):
        preheat.offered("hf:org/name")
    (folder / "snapshots" / ("1" * 40) / "b").unlink()
    (folder / "snapshots" / ("1" * 40) / "b").symlink_to("../../blobs/gone")
    with pytest.raises(RostrumError, match="not whole"):
        preheat.offered("hf:org/name")
    (folder / "refs/main").write_text("../../../etc")
    with pytest.raises(RostrumError, match="names no commit"):
        preheat.offered("hf:org/name")


REPOSITORY = "models--org--name"
SNAPSHOT = f"{REPOSITORY}/snapshots/{'1' * 40}"
HOSTILE_MODELS = {
    "another repository": Entry("models--other--x", "d", 0o755, 0),
    "a link out": Entry(f"{SNAPSHOT}/x", "l", 0o777, 0, to="../../../../../etc/passwd"),
    "a link up": Entry(f"{SNAPSHOT}/x", "l", 0o777, 0, to="../../refs/main"),
    "a link elsewhere": Entry(f"{REPOSITORY}/blobs/{'2' * 40}", "l", 0o777, 0, to="../refs"),
    "a file in a snapshot": Entry(f"{SNAPSHOT}/x", "f", 0o644, 0, 3, digest="x"),
    "no digest": Entry(f"{REPOSITORY}/blobs/x", "f", 0o644, 0, 3, digest="x"),
    "another digest": Entry(f"{REPOSITORY}/blobs/{'2' * 40}", "f", 0o644, 0, 3, digest="3" * 40),
}


@pytest.mark.parametrize("case", HOSTILE_MODELS)
def test_a_receiver_takes_nothing_but_what_a_cache_has(case: str, agents: Hub, tmp_path: Path) -> None:
    what = preheat.offered(f"hf:{cached(tmp_path / 'hub', '1' * 40, {'a': b'x'})}")
    (tmp_path / "bytes").write_bytes(b"bad")
    os.utime(tmp_path / "bytes", ns=(0, 0))
    entry = HOSTILE_MODELS[case]
    what.entries.append(entry)
    what.files[entry.path] = tmp_path / "bytes"
    result = run(agents, what, {"h3": tmp_path / "h3"})
    assert not result.ok and result.receivers[0].refused
    assert not (tmp_path / "h3" / REPOSITORY / "refs/main").exists()
    assert not os.path.lexists(tmp_path / "h3" / entry.path)


# -- the registry


@pytest.fixture
def registry(tmp_path: Path, rng: random.Random) -> Iterator[tuple[Mirror, Path, bytes]]:
    layer = rng.randbytes(100_000)
    top = tmp_path / "layout"
    image(top, [layer], "registry.example/team/app:v1")
    with Mirror(Layout(top), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        yield server, top, layer
        server.shutdown()
        thread.join()


def ask(server: Mirror, path: str, method: str = "GET", **fields: str) -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=BOUND_S)
    link.request(method, path, headers=fields)
    answer = link.getresponse()
    content = answer.read()
    link.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, content


def test_the_registry_gives_manifests_and_blobs(registry: tuple[Mirror, Path, bytes]) -> None:
    server, top, layer = registry
    [(_, manifest, _)] = Layout(top).images()
    assert ask(server, "/v2/")[0] == 200
    for path in ("v1", manifest.digest, "v1?ns=registry.example"):
        status, fields, content = ask(server, f"/v2/team/app/manifests/{path}")
        assert status == 200 and fields["content-type"] == MANIFEST
        assert fields["docker-content-digest"] == manifest.digest
        assert "sha256:" + hashlib.sha256(content).hexdigest() == manifest.digest
        head = ask(server, f"/v2/team/app/manifests/{path}", "HEAD")
        assert head[0] == 200 and head[1]["content-length"] == str(len(content)) and head[2] == b""
    blob = "/v2/team/app/blobs/sha256:" + hashlib.sha256(layer).hexdigest()
    assert ask(server, blob)[2] == layer
    assert ask(server, blob, "HEAD")[1]["content-length"] == str(len(layer))
    for text, part in {"bytes=0-0": layer[:1], "bytes=500-": layer[500:], "bytes=-7": layer[-7:],
                       "bytes=90000-200000": layer[90000:]}.items():  # fmt: skip
        status, fields, content = ask(server, blob, Range=text)
        assert (status, content) == (206, part) and fields["content-range"].endswith(f"/{len(layer)}")
    assert ask(server, blob, Range=f"bytes={len(layer)}-")[0] == 416
    assert ask(server, blob, Range="bytes=0-1,5-6")[2] == layer  # more than one: all of it, as it may be
    assert json.loads(ask(server, "/v2/team/app/tags/list")[2]) == {"name": "team/app", "tags": ["v1"]}


def test_what_is_not_there_is_so_at_once(registry: tuple[Mirror, Path, bytes]) -> None:
    server, top, layer = registry
    digest = "sha256:" + "0" * 64
    (top / "blobs/sha256" / ("4" * 64)).symlink_to("/etc/passwd")
    a_layer = "sha256:" + hashlib.sha256(layer).hexdigest()
    for path in ("/", "/v1/x", "/v2/team/app/manifests/v2", "/v2/app/manifests/v1", f"/v2/team/app/blobs/{digest}",
                 "/v2/team/app/manifests/v1?ns=docker.io", "/v2/team/app/blobs/sha256:../../index.json",
                 "/v2/../../etc/passwd", "/v2/team/app/blobs/..%2f..%2findex.json", f"/v2/a/manifests/{digest}",
                 "/v2/other/tags/list", "/v2/team/app/blobs/v1", f"/v2/team/app/manifests/{a_layer}",
                 "/v2/" + "a" * 5000 + "/manifests/v1"):  # fmt: skip
        status, fields, content = ask(server, path)
        assert status == 404 and json.loads(content)["errors"][0]["code"], path
        assert int(fields["content-length"]) == len(content)
    assert ask(server, "/v2/team/app/blobs/sha256:" + "4" * 64)[0] == 500  # a link: it is not followed
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert ask(server, "/v2/team/app/blobs/uploads/", method)[0] == 405
    assert ask(server, "/v2/")[0] == 200


def test_the_registry_does_not_mix_up_images(tmp_path: Path) -> None:
    """Of two hosts' images with one name neither is it, unless the client says which."""
    image(tmp_path, [b"one"], "a.example/app:v1")
    image(tmp_path, [b"two"], "b.example/app:v1")
    image(tmp_path, [b"three"], "latest")  # what this is called nobody knows
    with Mirror(Layout(tmp_path), "127.0.0.1", 0) as server:
        assert server.registry.digests("app", "") == {}
        assert server.registry.digests("app", "a.example") != server.registry.digests("app", "b.example")
        assert server.registry.digests("latest", "") == {}


def test_garbage_ends_one_connection_only(registry: tuple[Mirror, Path, bytes], rng: random.Random) -> None:
    server, _, _ = registry
    for number in range(40):
        with socket.create_connection(("127.0.0.1", server.server_port), BOUND_S) as link:
            garbage = (
                rng.randbytes(rng.randint(1, 3000)) if number % 2 else b"GET /v2/" + rng.randbytes(200) + b"\r\n\r\n"
            )
            link.sendall(garbage)
            link.shutdown(socket.SHUT_WR)
            try:
                while link.recv(4096):
                    pass
            except ConnectionError:
                pass
    assert ask(server, "/v2/")[0] == 200


def test_ranges_of_any_text(rng: random.Random) -> None:
    for _ in range(2000):
        size = rng.choice((0, 1, 10, 1 << 40))
        text = "bytes=" + "".join(rng.choice("0123456789-, ") for _ in range(rng.randint(0, 12)))
        found = ranged(text, size)
        assert found is None or 0 <= found[0] <= found[1] <= size


def test_names_of_images(tmp_path: Path) -> None:
    assert parse_name("localhost:5000/team/app:v1") == ("localhost:5000", "team/app", "v1")
    assert parse_name("app:v1") == ("", "app", "v1") and str(parse_name("docker.io/library/app:v1")).count("/") == 2
    for wrong in ("", "app", "App:v1", "a//b:v1", "../a:v1", "a:v1/b", "a:" + "v" * 200, "a b:v1", "-host.x/a:v1"):
        with pytest.raises(RostrumError, match="no name of an image"):
            parse_name(wrong)
    assert name_here("v1", tmp_path / "My App", None) == "my-app:v1"
    assert name_here("docker.io/library/app:v1", tmp_path, None) == "docker.io/library/app:v1"
    assert name_here("v1", tmp_path, "team/app") == "team/app:v1" and name_here("", tmp_path, None) == ""


# -- the commands, and what they import


def test_the_commands_say_what_is_missing(tmp_path: Path) -> None:
    for fields, words in {
        ("preheat", "oci:x"): "say --to SERVERS here",
        ("preheat", "oci:x", "--into", str(tmp_path)): "rostrum preheat oci --into",
        ("mirror", str(tmp_path), "--listen", "nowhere"): "127.0.0.1:5055",
    }.items():
        result = CliRunner().invoke(main, list(fields))
        assert result.exit_code == 2 and words in result.output, result.output


def test_the_hub_cache_is_where_its_client_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert hub.cache_folder() == Path.home() / ".cache/huggingface/hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "x"))
    assert hub.cache_folder() == tmp_path / "x"


@pytest.mark.parametrize("module", ["rostrum.client", "rostrum.client.preheat", "rostrum.client.mirror"])
def test_nothing_is_imported_that_is_not_asked_for(module: str) -> None:
    heavy = ["torch", "fsspec", "numpy", "pandas", "pyarrow", "dask", "huggingface_hub", "click", "rich"]
    code = f"import json, sys, {module}; print(json.dumps([one for one in {heavy} if one in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []
