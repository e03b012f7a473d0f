"""Folders as objects: what comes out is what went in, and nothing gets out of the folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rostrum.client.folders import pack, unpack
from rostrum.client.values import Code, RostrumError

from tests.client.conftest import Server


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "inner" / "empty").mkdir(parents=True)
    (top / "plain").write_bytes(b"x" * 5000)
    (top / ("long" * 40)).write_text("a name that fits no old header")
    (top / "inner" / "program").write_text("#!/bin/sh\n")
    (top / "inner" / "program").chmod(0o755)
    (top / "inner" / "both").write_text("shared")
    os.link(top / "inner" / "both", top / "again")
    (top / "to").symlink_to("inner/program")
    (top / "away").symlink_to("/nowhere")
    os.utime(top / "plain", (1_000_000_000, 1_000_000_000))
    (top / "inner" / "empty").chmod(0o775)
    return top


def test_folder__comes_out_as_it_went_in(tree: Path, tmp_path: Path) -> None:
    archive = pack(tree)
    out = tmp_path / "out"
    assert unpack(archive, out) == 5
    os.close(archive)
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == names
    for name in names:
        was, now = (tree / name).lstat(), (out / name).lstat()
        assert was.st_mode == now.st_mode, name
        if not (tree / name).is_symlink() and (tree / name).is_file():
            assert int(was.st_mtime) == int(now.st_mtime)
            assert (tree / name).read_bytes() == (out / name).read_bytes()
    assert (out / "again").samefile(out / "inner" / "both")
    assert os.readlink(out / "to") == "inner/program" and os.readlink(out / "away") == "/nowhere"
    with pytest.raises(RostrumError, match="there already"):
        unpack(0, out)


def test_folder__made_where_people_name_it(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rostrum read folder --folder -o folder` does: in the current folder, and by way of links."""
    (tmp_path / "here" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("here/inner")
    monkeypatch.chdir(tmp_path / "here")
    archive = pack(tree)
    for number, name in enumerate(("out", "./out2", "inner/../out3", "../link/out4", str(tmp_path / "link" / "out5"))):
        assert unpack(archive, Path(name)) == 5, number
        assert (Path(name) / "inner" / "both").read_text() == "shared"
    with pytest.raises(FileNotFoundError, match="'none/out'"):
        unpack(archive, Path("none/out"))
    os.close(archive)


def test_same_folder__is_the_same_object(tree: Path) -> None:
    one, two = pack(tree), pack(tree)
    assert os.pread(one, 1 << 20, 0) == os.pread(two, 1 << 20, 0)
    os.close(one)
    os.close(two)


def test_pipe__is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RostrumError, match="neither a file") as caught:
        pack(tmp_path)
    assert caught.value.code == Code.INVALID


def evil(*members: tuple[str, bytes, str]) -> int:
    descriptor = os.memfd_create("evil")
    with open(descriptor, "wb", closefd=False) as out, tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"bad"))
    return descriptor


@pytest.mark.parametrize(
    "members",
    [
        [("../out-of-it", tarfile.REGTYPE, "")],
        [("way", tarfile.SYMTYPE, ".."), ("way/out-of-it", tarfile.REGTYPE, "")],
        [("good", tarfile.REGTYPE, ""), ("a/../../out-of-it", tarfile.REGTYPE, "")],
    ],
    ids=["up", "link", "late"],
)
def test_archive__that_would_write_elsewhere_leaves_nothing(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    archive = evil(*members)
    with pytest.raises(RostrumError, match="not a folder that was sent"):
        unpack(archive, tmp_path / "in")
    os.close(archive)
    assert list(tmp_path.iterdir()) == []


def test_bytes__that_are_no_archive_leave_nothing(tmp_path: Path) -> None:
    archive = os.memfd_create("bytes")
    os.write(archive, b"no archive" * 1000)
    with pytest.raises(RostrumError, match="not a folder that was sent"):
        unpack(archive, tmp_path / "in")
    os.close(archive)
    assert list(tmp_path.iterdir()) == []


def test_folder__is_an_object_that_is_read(tree: Path, tmp_path: Path, start: Callable[..., Server]) -> None:
    with start().agent() as agent:
        archive = pack(tree)
        agent.add(7, archive)
        os.close(archive)
        with agent.read(7) as data:
            assert unpack(data.fd, tmp_path / "out") == 5
