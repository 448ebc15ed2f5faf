"""MMGenBench's table of base64 images and its label index, written as published."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.datasets.mmgenbench import load_mmgenbench
from pytest_cepbench.datasets.sample import EmbeddedImage
from pytest_cepbench.errors import DatasetError, ImageError
from tests.artifacts.files import encoded, noise
from tests.datasets.files import coded, put_table

QUESTION = '# Role\nYou are an "expert"\tin captions.\n'


def write_table(path: Path, images: Sequence[str]) -> Path:
    """The published columns, quoted where a field needs it."""
    rows = [[str(index), QUESTION, image] for index, image in enumerate(images)]
    return put_table(path, [["index", "question", "image"], *rows])


def test_without_labels_there_is_one_category(tmp_path: Path) -> None:
    """MMGenBench-Domain has no label index; the table itself can be given, by any name."""
    table = write_table(tmp_path / "MMGenBench-Domain.tsv", [coded(0)])
    named = {"file": table.name}
    for path, options in [(table, {}), (tmp_path, {}), (tmp_path, named), (table, {"file": "x"})]:
        dataset = load_mmgenbench(path, **options)
        assert dataset.categories == ("images",)
        assert dataset.identity["labels"] is False


PHOTO = b64encode(encoded(Image.fromarray(noise(32, 32)), "JPEG")).decode()


def test_a_cell_that_is_no_image_is_named_when_it_is_loaded(tmp_path: Path) -> None:
    """File, row and column: the other images of the table can be used."""
    cut_off, one_letter_short = PHOTO[: len(PHOTO) // 2 // 4 * 4], PHOTO[:-1]
    cells = [cut_off, one_letter_short, "not base64!", b64encode(b"GIF").decode(), "é"]
    sound, *spoilt = load_mmgenbench(write_table(tmp_path / "x.tsv", [coded(0), *cells])).samples
    assert isinstance(sound.image, EmbeddedImage)
    assert sound.image.load().pixels[0, 0, 0] == 0
    assert len(spoilt) == len(cells)
    for number, sample in enumerate(spoilt, 2):
        assert isinstance(sample.image, EmbeddedImage)
        # Each question takes two lines, and its last line end a third.
        place = rf"x\.tsv, row {number} \(line {3 * number - 1}\), column 'image': "
        with pytest.raises(ImageError, match=place):
            sample.image.load()


IMAGE = coded(1)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (f"index\tpicture\n0\t{IMAGE}\n", r"no column 'image'; it has 'index', 'picture'"),
        (f"index\timage\n1\t{IMAGE}\n01\t{IMAGE}\n",
         r"row 2 \(line 3\).*'index': 1 is there twice"),
        (f"index\timage\nfirst\t{IMAGE}\n", "'index': a whole number is expected, got 'first'"),
        (f"index\timage\n0.0\t{IMAGE}\n", "'index': a whole number is expected, got '0.0'"),
        (f"index\timage\n-1\t{IMAGE}\n", "'index': a whole number is expected, got '-1'"),
        (f"index\timage\n٣\t{IMAGE}\n", "'index': a whole number is expected"),
        ("index\timage\n0\t \n", r"row 1 \(line 2\), column 'image': empty"),
        (f"index\timage\n0\t{IMAGE}\n1\n", r"row 2 \(line 3\): 1 fields, the header has 2"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused(tmp_path: Path, table: str, words: str) -> None:
    """What is wrong, in which row and column."""
    (tmp_path / "x.tsv").write_text(table, encoding="utf-8")
    with pytest.raises(DatasetError, match=words):
        load_mmgenbench(tmp_path)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"Anime": [0, 7, 99]}, "pattern 'Anime': no row has index '7', '99'"),
        ({"Anime": 0}, "pattern 'Anime': Expected `array`, got `int`"),
        ({"Anime": ["0"]}, r"pattern 'Anime', \[0\]: Expected `int`, got `str`"),
        ({"Anime": [True]}, r"pattern 'Anime', \[0\]: Expected `int`, got `bool`"),
        ([0], "Expected `object`, got `array`"),
        ({" ": [0]}, "a pattern without a name"),
    ],
)
def test_a_wrong_label_index_is_refused(tmp_path: Path, labels: object, words: str) -> None:
    """A label of an image that is not there belongs to another table."""
    write_table(tmp_path / "MMGenBench-Test.tsv", [IMAGE])
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    with pytest.raises(DatasetError, match=rf"labels\.json.*{words}"):
        load_mmgenbench(tmp_path, labels="labels.json")


def test_which_table_must_be_clear(tmp_path: Path) -> None:
    """None, several, or a mistyped path: what was found, and the option that helps."""
    with pytest.raises(DatasetError, match=r"one \.tsv is expected, found none"):
        load_mmgenbench(tmp_path)
    for name in ("Test.tsv", "Domain.tsv"):
        write_table(tmp_path / name, [IMAGE])
    with pytest.raises(DatasetError, match=r"found 'Domain\.tsv', 'Test\.tsv'; name it with"):
        load_mmgenbench(tmp_path)
    with pytest.raises(DatasetError, match="gone' cannot be read: No such file"):
        load_mmgenbench(tmp_path / "gone")
    with pytest.raises(DatasetError, match=r"gone\.tsv' cannot be read: No such file"):
        load_mmgenbench(tmp_path, file="gone.tsv")


def test_the_images_are_not_held_in_memory(tmp_path: Path) -> None:
    """A table of 10 MB takes a fraction of it: the published one has ten gigabytes."""
    cell = b64encode(bytes(96_000)).decode()
    path = write_table(tmp_path / "x.tsv", [cell] * 80)
    assert path.stat().st_size > 10_000_000
    tracemalloc.start()
    try:
        dataset = load_mmgenbench(path)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset.samples) == 80
    assert peak < 2_000_000
    assert held < 200_000
