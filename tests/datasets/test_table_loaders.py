"""Published data sets in tables: the samples that their files give."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pytest_cepbench.datasets.folder import CATEGORIES
from pytest_cepbench.datasets.mmgenbench import UNLABELLED
from pytest_cepbench.errors import DatasetError, SuiteError
from tests.datasets.sources.tables import contents, load, png, suite_of, write_parquet

MMGENBENCH = 'loader = "mmgenbench"\noptions = { labels = "labels.json" }'


def mme_rows() -> dict[str, list[Any]]:
    """Two images of every category, two questions about each, as the hub has them."""
    rows: dict[str, list[Any]] = {"question_id": [], "image": [], "question": [], "category": []}
    for k, category in enumerate(CATEGORIES):
        for image in range(2):
            for question in ("Is it?", "Is it not?"):
                rows["question_id"].append(f"{category}/{image:04}.png")
                rows["image"].append({"bytes": png(2 * k + image), "path": None})
                rows["question"].append(question)
                rows["category"].append(category)
    return rows


def test_mme_in_a_table_is_mme_in_folders(tmp_path: Path) -> None:
    """Ids, categories, pixels and identity; the two questions about an image are one sample."""
    for k, category in enumerate(CATEGORIES):
        for image in range(2):
            path = tmp_path / "folders" / category / f"{image:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(2 * k + image))
    table = write_parquet(tmp_path / "test-00000-of-00001.parquet", pa.table(mme_rows()))
    in_folders = load(tmp_path, tmp_path / "folders", 'loader = "mme"')
    in_table = load(tmp_path, table, 'loader = "mme"')
    assert contents(in_table) == contents(in_folders)
    assert in_table.identity == in_folders.identity
    limited = load(tmp_path, table, 'loader = "mme"', most=1)
    assert [s.id for s in limited.samples] == [s.id for s in in_folders.limited(1).samples]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scene", "scenery", "row 2[4-7], column 'category': unknown category of MME 'scenery'"),
        ("scene", "posters", "no images for 1 of the 14 MME categories: scene"),
    ],
)
def test_mme_of_other_categories_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Unknown ones by their row, missing ones by name."""
    rows = mme_rows()
    rows["category"] = [new if name == old else name for name in rows["category"]]
    table = write_parquet(tmp_path / "t.parquet", pa.table(rows))
    with pytest.raises(DatasetError, match=words):
        load(tmp_path, table, 'loader = "mme"')


def test_mmgenbench_in_a_table_is_its_tsv(tmp_path: Path) -> None:
    """Ids by the index, patterns by the label index beside it; images in base64 too."""
    for folder in ("tsv", "table"):
        (tmp_path / folder).mkdir()
        labels = {"Surreal": [0, 2], "Anime": [2]}
        (tmp_path / folder / "labels.json").write_text(json.dumps(labels))
    images = [b64encode(png(k)).decode() for k in range(4)]
    rows = "".join(f"{k}\tq\t{image}\n" for k, image in enumerate(images))
    (tmp_path / "tsv" / "x.tsv").write_text(f"index\tquestion\timage\n{rows}")
    write_parquet(tmp_path / "table" / "x.parquet", pa.table({"index": range(4), "image": images}))
    in_tsv = load(tmp_path, tmp_path / "tsv", MMGENBENCH)
    in_table = load(tmp_path, tmp_path / "table", MMGENBENCH)
    assert contents(in_table) == contents(in_tsv)
    assert in_table.identity == in_tsv.identity
    (tmp_path / "table" / "labels.json").write_text(json.dumps({"Surreal": [0, 9]}))
    with pytest.raises(DatasetError, match=r"no row of .* has index '9'"):
        load(tmp_path, tmp_path / "table", MMGENBENCH)


def test_mmgenbench_with_patterns_in_a_column(tmp_path: Path) -> None:
    """A list of them, where the table has it, and no label index is needed."""
    rows = {
        "index": [0, 1, 2],
        "image": [png(0), png(1), png(2)],
        "patterns": [["Surreal", "Anime"], ["Food"], []],
    }
    write_parquet(tmp_path / "x.parquet", pa.table(rows))
    dataset = load(tmp_path, tmp_path / "x.parquet", MMGENBENCH)
    assert [s.categories for s in dataset.samples] == [
        ("Surreal", "Anime"),
        ("Food",),
        (UNLABELLED,),
    ]
    assert dataset.identity["labels"]
    rows["index"] = ["0", "x", "2"]
    write_parquet(tmp_path / "x.parquet", pa.table(rows))
    with pytest.raises(DatasetError, match="row 1, column 'index': a whole number is expected"):
        load(tmp_path, tmp_path / "x.parquet", MMGENBENCH)


def test_pairs_of_image_and_caption(tmp_path: Path) -> None:
    """As NoCaps and DOCCI lie on the hub: lists of captions count by their first."""
    docci = {"image": [png(0), png(1)], "example_id": ["b", "a"], "description": ["two", " one "]}
    path = write_parquet(tmp_path / "docci.parquet", pa.table(docci))
    dataset = load(tmp_path, path, 'loader = "sdp"')
    assert [(s.id, s.text, s.categories) for s in dataset.samples] == [
        ("a", "one", ("nd400",)),
        ("b", "two", ("nd400",)),
    ]
    nocaps = {"image": [png(0)], "image_id": [7], "annotations_captions": [["first", "second"]]}
    path = write_parquet(tmp_path / "nocaps.parquet", pa.table(nocaps))
    dataset = load(tmp_path, path, 'loader = "sdp"\noptions = { category = "nocaps" }')
    assert [(s.id, s.text, s.categories) for s in dataset.samples] == [("7", "first", ("nocaps",))]
    with pytest.raises(SuiteError, match="unknown option of sdp of tables 'encoding'"):
        load(tmp_path, path, 'loader = "sdp"\noptions = { encoding = "latin-1" }')


_WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from pathlib import Path
from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import load_suite
place = sys.argv[3] if "://" in sys.argv[3] else Path(sys.argv[3])
try:
    load_data(load_suite(Path(sys.argv[2])), {"folder": place})
except MissingDependencyError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pyarrow", "huggingface_hub"])
def test_a_missing_package_names_the_extra(tmp_path: Path, package: str) -> None:
    """One line with the command, where a table or a location on the hub needs it."""
    place = "hf://datasets/o/n"
    if package == "pyarrow":
        place = str(write_parquet(tmp_path / "t.parquet", pa.table({"image": [png(0)]})))
    suite = suite_of(tmp_path)
    arguments = [package, str(suite.file), place]
    result = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith(f"needs {package}: pip install 'pytest-cepbench[data]'\n")
