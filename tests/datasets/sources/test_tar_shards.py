"""Webdataset shards from outside: what is not a plain archive of plain files is refused."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from pytest_cepbench.errors import DatasetError, ImageError
from tests.datasets.sources.tables import load, png, write_tar


def _archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (_member("../a.png"), "'../a.png' leads out of the folder"),
        (_member("/etc/a.png"), "'/etc/a.png' is an absolute path"),
        (_member("a.png", tarfile.SYMTYPE, "/etc/passwd"), "'a.png' is a link"),
        (_member("a.png", tarfile.LNKTYPE, "b.png"), "'a.png' is a link"),
        (_member("a.png", tarfile.FIFOTYPE), "'a.png' is no plain file"),
        (_member("a.png", tarfile.CHRTYPE), "'a.png' is no plain file"),
        (_member("image"), "member 'image' has no suffix"),
    ],
)
def test_a_hostile_member_is_refused(tmp_path: Path, member: tarfile.TarInfo, words: str) -> None:
    """Paths that lead out, links and devices, by the member's name."""
    path = _archive(tmp_path / "x.tar", member)
    with pytest.raises(DatasetError, match=words) as error:
        load(tmp_path, path)
    assert str(path) in str(error.value)


def test_rows_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """A member twice in a row, and a row that comes again behind another."""
    path = _archive(tmp_path / "x.tar", _member("a.png"), _member("a.png"))
    with pytest.raises(DatasetError, match=r"member 'a\.png' is there twice"):
        load(tmp_path, path)
    path = _archive(tmp_path / "y.tar", _member("a.png"), _member("b.png"), _member("a.png"))
    with pytest.raises(DatasetError, match="the id 'a' is there twice"):
        load(tmp_path, path)


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz"])
def test_a_compressed_archive_is_refused_in_words(tmp_path: Path, name: str) -> None:
    """By its suffix, and by its first bytes where the suffix hides it."""
    plain = write_tar(tmp_path / "plain", {"0.png": png(0)})
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / name).write_bytes(gzip.compress(plain.read_bytes()))
    for place in (tmp_path / "shards", tmp_path / "shards" / name):
        with pytest.raises(DatasetError, match=r"is compressed.*: unpack it to a plain \.?tar"):
            load(tmp_path, place)


def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Wherever it was cut: within a header, within a member, or before the blocks of its end."""
    path = write_tar(tmp_path / "x.tar", {f"{row}.png": png(row) for row in range(4)})
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        end = max(-(-(m.offset_data + m.size) // 512) * 512 for m in archive.getmembers())
    for size in range(100, end + 1, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(DatasetError, match=r"cut short|no whole tar archive"):
            load(tmp_path, path)
    path.write_bytes(b"no archive at all" * 100)
    with pytest.raises(DatasetError, match="no whole tar archive"):
        load(tmp_path, path)


def test_a_row_without_the_image_names_itself(tmp_path: Path) -> None:
    """A row that has another column alone fails when its image is needed."""
    path = write_tar(tmp_path / "x.tar", {"a.jpg": png(0), "b.txt": b"words"})
    image = load(tmp_path, path).samples[1].image
    assert image is not None
    with pytest.raises(ImageError, match="row 1, column 'jpg': null: an image is expected"):
        image.load()


def test_indexes_are_a_cache_alone(tmp_path: Path) -> None:
    """A folder of indexes that cannot be written to changes nothing."""
    path = write_tar(tmp_path / "x.tar", {"a.png": png(0)})
    os.utime(path, (1e9, 1e9))
    (tmp_path / "indexes").write_text("a file")
    assert [s.id for s in load(tmp_path, path).samples] == ["a"]
