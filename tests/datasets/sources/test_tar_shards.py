"""Webdataset shards from outside: what is not a plain archive of plain files is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import decode_image
from pytest_cepbench.errors import DatasetError, ImageError
from tests.datasets.sources.tables import contents, load, png, write_tar


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
    ("members", "words"),
    [
        ([_member("../a.png")], "'../a.png' leads out of the folder"),
        ([_member("/etc/a.png")], "'/etc/a.png' is an absolute path"),
        ([_member("a.png", tarfile.SYMTYPE, "/etc/passwd")], "'a.png' is no plain file"),
        ([_member("a.png", tarfile.LNKTYPE, "b.png")], "'a.png' is no plain file"),
        ([_member("a.png", tarfile.FIFOTYPE)], "'a.png' is no plain file"),
        ([_member("image")], "member 'image' has no suffix"),
        ([_member("a.png"), _member("b.png"), _member("a.png")], "'a.png' is there twice"),
    ],
)
def test_a_hostile_member_is_refused(
    tmp_path: Path, members: list[tarfile.TarInfo], words: str
) -> None:
    """Paths that lead out, links, devices, and what is there twice, by the member's name."""
    path = _archive(tmp_path / "x.tar", *members)
    with pytest.raises(DatasetError, match=words) as error:
        load(tmp_path, path)
    assert str(path) in str(error.value)


def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Wherever it was cut: within a header, within a member, or before the blocks of its end. A
    compressed one is known by its first bytes where the suffix hides it.
    """
    path = write_tar(tmp_path / "x.tar", {f"{row}.png": png(row) for row in range(4)})
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        end = max(-(-(m.offset_data + m.size) // 512) * 512 for m in archive.getmembers())
    for size in range(100, end + 1, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(DatasetError, match=r"cut short|no whole Tar file"):
            load(tmp_path, path)
    for data, words in (
        (b"no archive at all" * 100, "no whole Tar file"),
        (gzip.compress(whole), "is compressed: unpack it to a plain tar"),
    ):
        path.write_bytes(data)
        with pytest.raises(DatasetError, match=words):
            load(tmp_path, path)


def test_members_of_a_row_may_lie_apart(tmp_path: Path) -> None:
    """As `tar --sort` by type leaves them; what macOS and tools hide among them is passed over."""
    members = {"./a.jpg": png(1), "./b.jpg": png(2), "./a.txt": b"one", "./b.txt": b"two"}
    hidden = {"./._a.jpg": b"fork", "__MACOSX/a.jpg": b"fork", "./.DS_Store": b"view"}
    together = {name: members[name] for name in sorted(members)}
    pairs = 'loader = "folder"\ntext = "txt"'
    apart = load(tmp_path, write_tar(tmp_path / "x.tar", {**hidden, **members}), pairs)
    whole = load(tmp_path, write_tar(tmp_path / "y.tar", together), pairs)
    assert contents(apart) == contents(whole)
    texts = [(sample.id, sample.text) for sample in whole.samples]
    assert texts == [("a", "one"), ("b", "two")]


def test_images_of_mixed_types_are_one_column(tmp_path: Path) -> None:
    """Within a shard and over shards, where each row has one; a second one in a row is another,
    and a row without it fails when it is needed.
    """
    shards = tmp_path / "shards"
    shards.mkdir()
    write_tar(shards / "0.tar", {"a.jpg": png(1), "b.png": png(2), "b.txt": b"words"})
    write_tar(shards / "1.tar", {"c.webp": png(3)})
    digests = [digest for _, _, digest in contents(load(tmp_path, shards)).values()]
    assert digests == [decode_image(png(color)).digest for color in (1, 2, 3)]

    masked = write_tar(tmp_path / "x.tar", {"a.jpg": png(1), "a.png": png(2), "b.png": png(3)})
    first, second = load(tmp_path, masked).samples
    assert first.image is not None
    assert first.image.load().digest == decode_image(png(1)).digest
    assert second.image is not None
    with pytest.raises(ImageError, match="row 1, column 'jpg': null: an image is expected"):
        second.image.load()
