"""Sets as published: MMGenBench's table and labels, pairs of NoCaps and DOCCI with their list."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.datasets.mmgenbench import load_mmgenbench
from pytest_cepbench.datasets.nocaps_docci import load_pairs
from pytest_cepbench.datasets.sample import EmbeddedImage
from pytest_cepbench.errors import DatasetError, ImageError
from tests.artifacts.files import encoded, noise
from tests.datasets.files import coded, put, put_lines, put_table

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


# -- Nocaps+Docci400: pairs in the Semantic Drift Protocol's layout, and the id list with copies ---


def refused(root: Path, words: str, **options: Any) -> None:
    """Loading fails with these words."""
    with pytest.raises(DatasetError, match=words):
        load_pairs(root, **options)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("b.png", "B"), "captions without an image, or images without a caption: 'b', 'c'"),
        (("a.jpg", "again"),
         r"gen-0\.csv, row 2 \(line 3\), column 'filename': 'a\.jpg' is there twice, row 1"),
        (("/data/b.png", "B"), r"gen-0\.csv, .*'filename': '/data/b\.png' is an absolute path"),
        (("../b.png", "B"), r"gen-0\.csv, .*'\.\./b\.png' leads out of the folder"),
        (("", "B"), r"gen-0\.csv, .*column 'filename': '' is no file name"),
        (("c.png", " \n"), r"gen-0\.csv, row 2 \(line 3\), column 'caption': empty"),
        (("b.png",), r"gen-0\.csv, row 2 \(line 3\): 1 fields, the header has 2"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_refused(tmp_path: Path, row: tuple[str, ...], words: str) -> None:
    """File, row and column are named; a missing partner, after which the authors' code would shift
    every row, by its name.
    """
    put(tmp_path, "image-first/gen-0/a.png", "image-first/gen-0/c.png")
    rows = [["filename", "caption"], ["a.png", "A"], [*row]]
    put_table(tmp_path / "text-first" / "gen-0.csv", rows)
    refused(tmp_path, words)


IDS = (("docci", "test_00002"), ("nocaps", 4), ("docci", "test_00001"), ("nocaps", "beef04"))


def write_ids(root: Path, ids: Iterable[tuple[str, object]] = IDS) -> Path:
    """The published list."""
    return put_lines(root / "nd400.jsonl", [{"source": s, "image_id": i} for s, i in ids])


NOCAPS: dict[str, Any] = {
    "licenses": [],
    "images": [
        {"id": 4, "file_name": "beef00.jpg", "domain": "out-domain"},
        {"id": 0, "file_name": "beef04.jpg", "domain": "in-domain"},
    ],
    "annotations": [
        {"id": 9, "image_id": 0, "caption": "A bull. "},
        {"id": 8, "image_id": 4, "caption": "First of four."},
        {"id": 7, "image_id": 0, "caption": "Some cattle."},
        {"id": 6, "image_id": 4, "caption": "Second of four."},
    ],
}
"""COCO-style captions, several per image, images named by Open Images ids."""


def build(root: Path, *docci: dict[str, str], **nocaps: Any) -> Path:
    """The list and both copies where they are looked for: of DOCCI two test images and one for
    training, and further lines; of NoCaps with other entries.
    """
    write_ids(root)
    entries = [
        {"example_id": f"{split}_0000{n}", "split": split, "image_file": f"{split}_0000{n}.jpg",
         "description": f" A {split} scene, {n}.\n"}
        for split, n in (("train", 0), ("test", 1), ("test", 2))
    ]  # fmt: skip
    put_lines(root / "docci" / "docci_descriptions.jsonlines", [*entries, *docci])
    put(root, *(f"docci/images/{entry['image_file']}" for entry in entries))
    put(root, "nocaps/images/beef00.jpg", "nocaps/images/beef04.jpg")
    (root / "nocaps" / "nocaps_val_4500_captions.json").write_text(json.dumps(NOCAPS | nocaps))
    return root


def test_what_is_not_found_is_refused_and_counted(tmp_path: Path) -> None:
    """The authors' code passes over it: 398 pairs would be called 400."""
    build(tmp_path)
    write_ids(tmp_path, [*IDS, ("docci", "test_99999"), ("nocaps", 77)])
    (tmp_path / "nocaps" / "images" / "beef00.jpg").unlink()
    refused(
        tmp_path,
        r"3 of the 6 pairs listed in '.*nd400\.jsonl' are not in .*: 'docci test_99999: not "
        r"annotated', 'nocaps 4: no file beef00\.jpg', 'nocaps 77: not annotated'",
    )


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([("coco", 1)], r"nd400\.jsonl, line 1: unknown source 'coco'.*docci, nocaps"),
        ([("docci", "x"), ("docci", "x")], "line 2: image_id 'x' is there twice"),
        ([("docci", "x"), ("nocaps", "x")], "line 2: image_id 'x' is there twice"),
        ([("docci", " ")], "line 1: image_id is empty"),
        ([("docci", None)], "line 1, image_id: Expected `int | str`, got `null`"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, ids: list[tuple[str, object]], words: str) -> None:
    """With file and line."""
    write_ids(tmp_path, ids)
    refused(tmp_path, words)


def test_which_list_must_be_clear(tmp_path: Path) -> None:
    """None or several lists in the folder: what was found, and the option that helps."""
    refused(tmp_path, r"one id list \(\.csv, \.jsonl, \.jsonlines\) is expected, found none")
    write_ids(build(tmp_path)).with_suffix(".csv").write_text("source,image_id\nnocaps,4\n")
    refused(tmp_path, "found 'nd400.csv', 'nd400.jsonl'; name it itself")
    assert len(load_pairs(tmp_path / "nd400.csv").samples) == 1
    refused(tmp_path / "gone", "gone' cannot be read")


def test_damaged_entries_are_refused(tmp_path: Path) -> None:
    """File, entry and field are named; no entry leads out of the folder."""
    twice = {"images": [{"id": 4, "file_name": "a.jpg"}] * 2}
    for changes, words in (
        ({"annotations": [3]}, r"annotations\[0\]: Expected `object`, got `int`"),
        ({"annotations": [{"image_id": "4", "caption": "x"}]},
         r"annotations\[0\]\.image_id: Expected `int`"),
        ({"images": [{"id": 4, "file_name": "../x.jpg"}]}, r"images\[0\]\.file_name: .*out"),
        (twice, r"images\[1\]: image 4 .* is there twice"),
    ):  # fmt: skip
        refused(build(tmp_path, **changes), words)
    for name, file, words in (
        ("x", "../x.jpg", "image_file: .*out"),
        ("test_00001", "x.jpg", "'test_00001' is there twice"),
    ):
        line = {"example_id": name, "image_file": file, "description": "x"}
        refused(build(tmp_path, line), rf"docci_descriptions\.jsonlines, line 4.*{words}")
