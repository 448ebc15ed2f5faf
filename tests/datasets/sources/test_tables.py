"""Tables of images on this machine: the same samples whatever file they lie in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.table_listing import CATEGORIES as TABLE_CATEGORIES
from benchmarks.table_listing import SAMPLES, measure, write_shards
from pytest_cepbench.artifacts import decode_image
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.folder import CATEGORIES
from pytest_cepbench.errors import (
    CepError,
    DatasetError,
    ImageError,
    MissingDependencyError,
    SuiteError,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.data import load_data
from tests.datasets.sources.tables import contents, image_table, load, png, suite_of, write_parquet


def write_arrow(path: Path, table: pa.Table, *, stream: bool) -> Path:
    """The table in record batches of a few rows, as a stream or as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return path


@pytest.fixture
def table() -> pa.Table:
    """Ten images with captions, in two categories."""
    return image_table(
        10,
        caption=[f"text {row}" for row in range(10)],
        category=["even" if row % 2 == 0 else "odd" for row in range(10)],
    )


def test_remembered_digests_know_the_cell(tmp_path: Path, table: pa.Table) -> None:
    """Two cells of one settled file never share a remembered digest."""
    path = write_parquet(tmp_path / "t.parquet", table)
    os.utime(path, (1e9, 1e9))
    with Store(tmp_path / "store") as store:
        for _ in range(2):
            digests = []
            for sample in load(tmp_path, path).samples:
                assert sample.image is not None
                digests.append(digest_of_image(sample.image, store))
            assert len(set(digests)) == 10


def test_a_file_that_changes_under_the_run_is_refused(tmp_path: Path, table: pa.Table) -> None:
    """Images of another file never stand for those that were listed."""
    path = write_parquet(tmp_path / "t.parquet", table)
    sample = load(tmp_path, path).samples[0]
    write_parquet(path, image_table(10, 100))
    assert sample.image is not None
    with pytest.raises(ImageError, match="changed after its rows were listed: run again"):
        sample.image.load()


def test_a_cell_without_an_image_names_its_row(tmp_path: Path) -> None:
    """File, row and column, when the image is needed; no path is ever followed."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    cells: list[tuple[Any, str]] = [
        (None, "null: an image is expected"),
        ({"bytes": None, "path": "/etc/passwd"}, "holds the path '/etc/passwd' and no bytes"),
        ({"bytes": b"no image", "path": None}, "not an image of a known format"),
        ({"bytes": b"", "path": None}, "image"),
    ]
    images = pa.array([value for value, _ in cells], kind)
    path = write_parquet(tmp_path / "t.parquet", pa.table({"id": [*"abcd"], "image": images}))
    samples = load(tmp_path, path).samples
    for number, (sample, (_, words)) in enumerate(zip(samples, cells, strict=True)):
        assert sample.image is not None
        with pytest.raises(ImageError, match=words) as error:
            sample.image.load()
        assert f"{path}, row {number}, column 'image'" in str(error.value)


PLAIN = {"id": ["a", "b"], "image": [png(0), png(1)]}

WRONG_TABLES: list[tuple[dict[str, Any], str, str]] = [
    ({**PLAIN, "id": ["a", "a"]}, "", "the id 'a' is there twice .*row 0.*row 1"),
    ({**PLAIN, "id": ["a", None]}, "", "row 1, column 'id': null or empty: an id is expected"),
    ({**PLAIN, "id": [1.5, 2.5]}, "", "column 'id' is double; an id, a text or a whole number"),
    ({"id": ["a"], "x": [1]}, "", "no column 'image' .*name one as image in .*its columns: id, x"),
    (PLAIN, 'image = "picture"', "no column 'picture' with one image"),
    (PLAIN, 'image = "imag"', "Did you mean 'image'"),
    (PLAIN, 'text = "id"\nid = "words"', "no column 'words'"),
    ({**PLAIN, "image": [[png(0)], [png(1)]]}, "", r"column 'image' is list<.*>; one image, as"),
    ({**PLAIN, "image": [1, 2]}, "", "column 'image' is int64; one image"),
    ({**PLAIN, "a": [{"x": 1}, {"x": 2}]}, 'text = "a"', "column 'a' is struct<.*>; a text, or"),
    ({**PLAIN, "t": ["x", " "]}, 'text = "t"', "row 1, column 't': null or empty: a chain cannot"),
    ({**PLAIN, "c": [1, 2]}, 'category = "c"', "column 'c' is int64; a text, a label"),
    ({**PLAIN, "c": ["x", None]}, 'category = "c"', "row 1, column 'c': None is no category"),
    ({"id": pa.array([], pa.string()), "image": pa.array([], pa.binary())}, "", "has no rows"),
]


@pytest.mark.parametrize(("columns", "data", "words"), WRONG_TABLES)
def test_a_wrong_table_is_one_line(
    tmp_path: Path, columns: dict[str, Any], data: str, words: str
) -> None:
    """What is wrong, with file, row and column, or with the columns that there are."""
    path = write_parquet(tmp_path / "t.parquet", pa.table(columns))
    with pytest.raises(DatasetError, match=words) as error:
        load(tmp_path, path, f'loader = "folder"\n{data}')
    assert "\n" not in str(error.value)


def test_shards_of_other_columns_are_refused(tmp_path: Path) -> None:
    """A shard without a column, or with another type of it, is not read as nulls."""
    write_parquet(tmp_path / "data" / "a.parquet", image_table(2))
    other = write_parquet(tmp_path / "data" / "b.parquet", image_table(2, 5).drop_columns(["id"]))
    with pytest.raises(DatasetError, match=r"b\.parquet has no column 'id', which"):
        load(tmp_path, tmp_path / "data")
    pq.write_table(pa.table({"id": [1], "image": [png(1)]}), other)
    with pytest.raises(DatasetError, match="column 'id' is int64, in other shards it is string"):
        load(tmp_path, tmp_path / "data")


def test_settings_of_tables_need_tables(tmp_path: Path) -> None:
    """A column that is named for a folder of images, or for generated scenes, is an error."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(png(1))
    assert len(load(tmp_path, tmp_path / "photos").samples) == 1
    with pytest.raises(SuiteError, match=r"\[data\] image = 'x' is about tables"):
        load(tmp_path, tmp_path / "photos", 'loader = "folder"\nimage = "x"')
    with pytest.raises(SuiteError, match=r"\[data\] split = 'x' is about tables"):
        load_data(suite_of(tmp_path / "s", 'loader = "shapes"\nsplit = "x"'), {})
    write_parquet(tmp_path / "t.parquet", image_table(1))
    with pytest.raises(SuiteError, match="unknown option of folder of tables 'caption'"):
        load(tmp_path, tmp_path / "t.parquet", 'loader = "folder"\noptions = { caption = true }')


def test_images_beside_shards_are_the_folder(tmp_path: Path) -> None:
    """A folder of images that holds a table too is read as before; naming a column reads that."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(png(1))
    write_parquet(tmp_path / "photos" / "metadata.parquet", image_table(3))
    assert [s.id for s in load(tmp_path, tmp_path / "photos").samples] == ["a.png"]
    named = load(tmp_path, tmp_path / "photos", 'loader = "folder"\nimage = "image"')
    assert len(named.samples) == 3


def test_links_to_folders_of_shards_are_followed(tmp_path: Path) -> None:
    """Each real folder once, as for images. A pipe in place of a shard is not waited for."""
    write_parquet(tmp_path / "elsewhere" / "a.parquet", image_table(2))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "circle").symlink_to(tmp_path / "data")
    assert len(load(tmp_path, tmp_path / "data").samples) == 2
    os.mkfifo(tmp_path / "t.parquet")
    with pytest.raises(CepError, match="a named pipe"):
        load(tmp_path, tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "data", "listed"),
    [
        (pa.large_string(), pa.large_binary(), pa.large_list),
        (pa.string_view(), pa.binary_view(), pa.list_),
        (pa.string(), pa.binary(), lambda kind: pa.list_(kind, 1)),
    ],
    ids=["large", "view", "fixed"],
)
def test_texts_and_bytes_lie_in_several_ways(
    tmp_path: Path, text: pa.DataType, data: pa.DataType, listed: Callable[..., pa.DataType]
) -> None:
    """Polars writes views where pandas writes plain ones: they mean the same."""
    columns = {
        "id": pa.array(["s0", "s1"], text),
        "image": pa.array([png(0), png(1)], data),
        "category": pa.array([["x"], ["y"]], listed(text)),
        "caption": pa.array(["one", "two"], text),
    }
    path = write_parquet(tmp_path / "t.parquet", pa.table(columns))
    plain = [list(values) for values in (("s0", "s1"), (png(0), png(1)), ("x", "y"))]
    table = pa.table({**dict(zip(columns, plain, strict=False)), "caption": ["one", "two"]})
    expected = write_parquet(tmp_path / "plain.parquet", table)
    line = 'loader = "folder"\ntext = "caption"'
    assert contents(load(tmp_path, path, line)) == contents(load(tmp_path, expected, line))


def write_kind(path: Path, table: pa.Table, kind: str) -> Path:
    """The table as Parquet, or as an Arrow stream or file."""
    if kind == "parquet":
        return write_parquet(path / "t.parquet", table)
    return write_arrow(path / "t.arrow", table, stream=kind == "stream")


KINDS = ["parquet", "stream", "file"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_samples(tmp_path: Path, kind: str) -> None:
    """Ids, categories, texts and pixels are those of the rows, of more than one group."""
    numbers = range(70)
    words = [f"text {row}" for row in numbers]
    table = image_table(70, caption=words, category=["eo"[row % 2] for row in numbers])
    dataset = load(
        tmp_path, write_kind(tmp_path, table, kind),
        'loader = "folder"\ntext = "caption"\ncategory = "category"',
    )  # fmt: skip
    assert contents(dataset) == {
        f"s{row:03}": (("eo"[row % 2],), f"text {row}", decode_image(png(row)).digest)
        for row in numbers
    }
    assert dataset.identity == {"loader": "folder", "version": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused(tmp_path: Path, table: pa.Table, kind: str) -> None:
    """Cut anywhere, a shard is damaged, never a smaller data set; Arrow itself reads a stream that
    was cut between batches without a word.
    """
    path = write_kind(tmp_path, table, kind)
    data = path.read_bytes()
    for kept in (0, 3, 100, len(data) // 2, -1, -8):
        path.write_bytes(data[:kept])
        with pytest.raises(DatasetError, match=r"is no whole (Parquet|Arrow) file"):
            load(tmp_path, path)


def test_a_list_holds_one_image(tmp_path: Path) -> None:
    """As trainers' sets have them; another number of images is named with its row."""
    images: list[Any] = [{"bytes": png(7), "path": None}]
    columns = {"images": [images, images * 2, []]}
    path = write_parquet(tmp_path / "t.parquet", pa.table(columns))
    first, *others = load(tmp_path, path, 'loader = "folder"\nimage = "images"').samples
    assert first.image is not None
    assert first.image.load().pixels[0, 0, 0] == 7
    for sample, number in zip(others, (2, 0), strict=True):
        assert sample.image is not None
        with pytest.raises(ImageError, match=f"column 'images': a list of {number} images"):
            sample.image.load()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"_data_files": [{"filename": "a.arrow"}]}, "names 'a.arrow', which is not there"),
        (
            {"_data_files": [{"filename": "t.arrow"}], "_indices_data_files": [{"filename": "i"}]},
            "the rows are a selection: save the data set after flatten_indices",
        ),
    ],
)
def test_saved_data_sets_are_whole(
    tmp_path: Path, table: pa.Table, state: dict[str, Any], words: str
) -> None:
    """Folders of `save_to_disk`: a shard that is gone, and rows that are chosen elsewhere. A shard
    that is named itself is read, whatever lies beside it.
    """
    shard = write_arrow(tmp_path / "saved" / "t.arrow", table, stream=True)
    (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
    with pytest.raises(DatasetError, match=words):
        load(tmp_path, tmp_path / "saved")
    assert len(load(tmp_path, shard).samples) == len(table)


def mme_rows(**renamed: str) -> dict[str, list[Any]]:
    """An image of every category, two questions about each, as the hub has them."""
    rows: dict[str, list[Any]] = {"question_id": [], "image": [], "category": []}
    for k, category in enumerate(CATEGORIES):
        for _ in range(2):
            rows["question_id"].append(f"{category}/0.png")
            rows["image"].append({"bytes": png(k), "path": None})
            rows["category"].append(renamed.get(category, category))
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (mme_rows(scene="scenery"),
         "row 1[2-3], column 'category': unknown category of MME 'scenery'"),
        (mme_rows(scene="posters"), "no images for 1 of the 14 MME categories: scene"),
    ],
)  # fmt: skip
def test_mme_of_other_categories_is_refused(
    tmp_path: Path, rows: dict[str, list[Any]], words: str
) -> None:
    """Unknown ones by their row, missing ones by name; texts are none of MME's images."""
    data = 'loader = "mme"'
    table = write_parquet(tmp_path / "t.parquet", pa.table(rows))
    with pytest.raises(DatasetError, match=words):
        load(tmp_path, table, data)
    whole = write_parquet(tmp_path / "mme.parquet", pa.table(mme_rows()))
    samples = load(tmp_path, whole, f'{data}\ntext = "question_id"', most=1).samples
    assert [sample.text for sample in samples] == [None] * 14


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """A million rows take 8 bytes each, sorted, over a thousand rows."""
    write_shards(tmp_path / "few", 1_000)
    write_shards(tmp_path / "many", 1_000_000)
    few = measure(tmp_path, tmp_path / "few", SAMPLES)
    many = measure(tmp_path, tmp_path / "many", SAMPLES)
    assert few["samples"] == many["samples"] == SAMPLES * TABLE_CATEGORIES
    assert many["MiB"] - few["MiB"] < 32


@pytest.mark.parametrize("package", ["pyarrow", "huggingface_hub"])
def test_a_missing_package_names_the_extra(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the command, where a table or a location on the hub needs it."""
    place: Path | str = "hf://datasets/o/n"
    if package == "pyarrow":
        place = write_parquet(tmp_path / "t.parquet", pa.table({"image": [png(0)]}))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as error:
        load(tmp_path, place)
    assert str(error.value).endswith(f"needs {package}: pip install 'pytest-cepbench[data]'")
