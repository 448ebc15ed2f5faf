"""Pairs in the Semantic Drift Protocol's layout: matched by name, or refused."""

from __future__ import annotations

import csv
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.datasets.nocaps_docci import load_pairs
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import DatasetError
from tests.artifacts.files import encoded

PNG = encoded(Image.new("RGB", (2, 2), "red"), "PNG")

CAPTIONS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


def images(root: Path, *names: str) -> Path:
    """Seed images under these names; returns the root."""
    folder = root / "image-first" / "gen-0"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(PNG)
    return root


def captions(root: Path, *rows: tuple[str, ...], header: str = "filename,caption") -> Path:
    """The seed captions; returns the root."""
    folder = root / "text-first"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gen-0.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header.split(","), *rows])
    return root


def refused(root: Path, words: str, **options: Any) -> None:
    """Loading fails with these words."""
    with pytest.raises(DatasetError, match=words):
        load_pairs(root, **options)


def test_pairs_are_matched_by_name_and_not_by_row(tmp_path: Path) -> None:
    """Rows in any order and suffixes that differ: each caption stays with its image."""
    images(tmp_path, "a.png", "b.c.jpg", "d.JPEG", "e.webp")
    captions(tmp_path, ("e.jpg", "E"), ("b.c.png", "B"), ("d", "D"), ("a.png", " A\n"))
    dataset = load_pairs(tmp_path)
    result = {sample.id: (sample.text, sample.image) for sample in dataset.samples}
    folder = tmp_path / "image-first" / "gen-0"
    assert result == {
        "a": ("A", FileImage(folder / "a.png")),
        "b.c": ("B", FileImage(folder / "b.c.jpg")),
        "d": ("D", FileImage(folder / "d.JPEG")),
        "e": ("E", FileImage(folder / "e.webp")),
    }
    assert dataset.categories == ("nd400",)
    assert dataset.identity == {"loader": "sdp", "version": 1}


@settings(max_examples=40)
@given(st.lists(CAPTIONS, min_size=1, max_size=5))
def test_captions_are_read_as_written(texts: list[str]) -> None:
    """Quotes, commas, newlines and any letters inside; white space around is taken off."""
    with TemporaryDirectory() as folder:
        root = images(Path(folder), *(f"{n}.png" for n in range(len(texts))))
        captions(root, *((f"{n}.png", text) for n, text in enumerate(texts)))
        result = [sample.text for sample in load_pairs(root).samples]
    assert result == [text.strip() for text in texts]


def test_accents_pair_however_they_are_composed(tmp_path: Path) -> None:
    """A Mac's file names and a CSV from elsewhere name the same sample."""
    images(tmp_path, unicodedata.normalize("NFD", "é.png"))
    assert load_pairs(captions(tmp_path, ("é.png", "x"))).samples[0].id == "é"


def test_a_missing_partner_is_refused_with_its_name(tmp_path: Path) -> None:
    """The authors' code would shift every row after it; both kinds are listed."""
    images(tmp_path, "a.png", "c.png")
    captions(tmp_path, ("a.png", "A"), ("b.png", "B"))
    refused(tmp_path, "captions without an image: 'b'; images without a caption: 'c'")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("a.jpg", "again"),
         r"row 2 \(line 3\), column 'filename': 'a\.jpg' is there twice, row 1"),
        (("/data/b.png", "B"), r"column 'filename': '/data/b\.png' is an absolute path"),
        (("../b.png", "B"), r"'\.\./b\.png' leads out of the folder"),
        (("", "B"), "column 'filename': '' is no file name"),
        (("b.png", " \n"), r"row 2 \(line 3\), column 'caption': empty"),
        (("b.png",), r"row 2 \(line 3\): 1 fields, the header has 2"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_refused(tmp_path: Path, row: tuple[str, ...], words: str) -> None:
    """File, row and column are named."""
    images(tmp_path, "a.png", "b.png")
    refused(captions(tmp_path, ("a.png", "A"), row), rf"gen-0\.csv, .*{words}")


def test_latin_1_is_an_option_and_never_guessed(tmp_path: Path) -> None:
    """UTF-8 with a BOM is read; another encoding must be named."""
    images(tmp_path, "a.png")
    path = captions(tmp_path) / "text-first" / "gen-0.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "filename,caption\r\na.png,café\r\n".encode())
    assert load_pairs(tmp_path).samples[0].text == "café"
    path.write_bytes("filename,caption\na.png,café\n".encode("latin-1"))
    refused(tmp_path, r"row 1 \(line 2\), column 'caption': not UTF-8 at byte 26 of the file")
    assert load_pairs(tmp_path, encoding="latin-1").samples[0].text == "café"


def test_all_pairs_are_in_one_category(tmp_path: Path) -> None:
    """Further columns, as one that tells the source of each pair, are passed over."""
    images(tmp_path, "a.png", "b.png")
    header = "filename,caption,source"
    captions(tmp_path, ("a.png", "A", "docci"), ("b.png", "B", "nocaps"), header=header)
    assert load_pairs(tmp_path, category="pairs").categories == ("pairs",)


def test_a_root_that_is_none_says_what_is_missing(tmp_path: Path) -> None:
    """The captions, then the images."""
    (tmp_path / "text-first").mkdir()
    refused(tmp_path, r"gen-0\.csv' cannot be read: No such file")
    refused(captions(tmp_path, ("a.png", "A")), r"folder '.*image-first/gen-0' cannot be read")
