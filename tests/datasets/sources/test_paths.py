"""Names between tables and files: stems, and what must not be used as a path."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sources.files import images_by_stem, some_of, stem, unsafe
from pytest_cepbench.errors import DatasetError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("000123.jpg", "000123"),
        ("my.cat.PNG", "my.cat"),
        ("000123", "000123"),
        ("v1.5", "v1.5"),
        ("a.png.jpg", "a.png"),
        ("cats/x.webp", "cats/x"),
        (unicodedata.normalize("NFD", "é.png"), "é"),
    ],
)
def test_a_stem_is_the_name_without_an_images_suffix(name: str, expected: str) -> None:
    """Only the last suffix, only an image's; accents as one letter, so that systems agree."""
    assert stem(name) == expected


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x.png", "a/../../x.png", "C:\\x.png", "..\\x.png", "\\\\host\\x", "//x"],
)  # fmt: skip
def test_names_that_lead_out_are_unsafe(name: str) -> None:
    """As POSIX and as Windows write them: a data set is the same on every system."""
    assert unsafe(name) is not None


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_names_of_no_file_are_unsafe(name: str) -> None:
    """Nothing can be called so."""
    assert unsafe(name) == f"{name!r} is no file name"


@given(st.lists(st.from_regex(r"[a-z0-9_ .é]{1,5}", fullmatch=True), min_size=1, max_size=4))
def test_a_safe_name_stays_inside(parts: list[str]) -> None:
    """What passes never leaves the folder that it is appended to."""
    name = "/".join(parts)
    inside = os.path.normpath(
        os.path.join("/root/data", name)  # noqa: PTH118 # the text of the path is what is tested
    ).startswith("/root/data")
    assert inside or unsafe(name) is not None
    assert unsafe(name) is None or not name.strip() or ".." in parts


def test_lists_are_short() -> None:
    """Five names and the number of the others, in order."""
    assert some_of("ba") == "'a', 'b'"
    assert some_of(map(str, range(400))) == "'0', '1', '10', '100', '101' and 395 more"


def test_images_are_found_by_stem(tmp_path: Path) -> None:
    """Directly in the folder, by suffix, hidden ones left out."""
    for name in ("a.JPG", "b.c.png", ".d.png", "notes.txt", "e"):
        (tmp_path / name).write_bytes(b"")
    assert images_by_stem(tmp_path) == {"a": tmp_path / "a.JPG", "b.c": tmp_path / "b.c.png"}


def test_a_stem_twice_is_refused(tmp_path: Path) -> None:
    """Neither file stands for the other."""
    for name in ("a.jpg", "a.png"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DatasetError, match=r"holds 'a\.jpg' and 'a\.png': keep one"):
        images_by_stem(tmp_path)


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    """They could not be written into a baseline."""
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).write_bytes(b"")
    with pytest.raises(DatasetError, match=r"'caf\\udce9\.png' .* is not UTF-8: rename it"):
        images_by_stem(tmp_path)


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    """Its path and the reason."""
    with pytest.raises(DatasetError, match=r"folder '.*gone' cannot be read: No such file"):
        images_by_stem(tmp_path / "gone")
