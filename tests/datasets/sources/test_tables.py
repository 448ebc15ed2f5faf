"""Tables of images on this machine: the same samples whatever file they lie in."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.sample import Candidate, Dataset, SampleChoice, choose
from pytest_cepbench.datasets.sources.table import CellImage, Row
from pytest_cepbench.errors import CepError, DatasetError, ImageError, SuiteError
from pytest_cepbench.store import Store
from pytest_cepbench.suites.data import load_data
from tests.datasets.sources.tables import (
    contents,
    image_table,
    load,
    png,
    suite_of,
    write_parquet,
    write_tar,
)


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


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_every_format_gives_the_same_samples(tmp_path: Path, table: pa.Table, kind: str) -> None:
    """Ids, categories, texts and pixels are those of the rows."""
    if kind == "parquet":
        path = write_parquet(tmp_path / "t.parquet", table)
    else:
        path = write_arrow(tmp_path / "t.arrow", table, stream=kind == "stream")
    dataset = load(tmp_path, path, 'loader = "folder"\ntext = "caption"')
    expected = write_parquet(tmp_path / "other" / "t.parquet", table, group=10)
    assert contents(dataset) == contents(
        load(tmp_path, expected.parent, 'loader = "folder"\ntext = "caption"')
    )
    assert [sample.id for sample in dataset.samples] == [f"s{row:03}" for row in range(10)]
    assert dataset.samples[3].categories == ("odd",)
    assert dataset.samples[3].text == "text 3"
    assert dataset.samples[3].image is not None
    assert dataset.samples[3].image.load().pixels[0, 0].tolist() == [3, 0, 9]
    assert dataset.identity == {"loader": "folder", "version": 1}


def test_a_webdataset_is_read_by_members(tmp_path: Path) -> None:
    """Members of one name are a row; its text and category come from the members named."""
    members: dict[str, bytes] = {}
    for row in range(70, 140):  # of two groups that are read together
        members |= {
            f"a/{row}.png": png(row),
            f"a/{row}.txt": f"text {row}".encode(),
            f"a/{row}.cls": f"c{row % 2}".encode(),
        }
    write_tar(tmp_path / "shard-000.tar", members)
    data = 'loader = "folder"\ntext = "txt"\ncategory = "cls"'
    for _ in range(2):  # from the archive, and from its kept index
        dataset = load(tmp_path, tmp_path / "shard-000.tar", data)
        assert [(s.id, s.categories, s.text) for s in dataset.samples] == [
            (f"a/{row}", (f"c{row % 2}",), f"text {row}") for row in sorted(range(70, 140), key=str)
        ]
        for sample in dataset.samples:
            assert sample.image is not None
            assert f"a/{sample.image.load().pixels[0, 0, 0]}" == sample.id


def test_the_index_of_a_tar_is_kept_until_the_file_changes(tmp_path: Path) -> None:
    """A settled archive is listed once; another one under its name is listed anew."""
    import os
    import time

    path = write_tar(tmp_path / "x.tar", {"0.png": png(0)})
    os.utime(path, (time.time() - 60, time.time() - 60))
    load(tmp_path, path)
    kept = list((tmp_path / "indexes").iterdir())
    assert len(kept) == 1
    kept[0].write_bytes(b"damaged")
    assert len(load(tmp_path, path).samples) == 1
    write_tar(path, {"0.png": png(0), "1.png": png(1)})
    assert len(load(tmp_path, path).samples) == 2


@pytest.mark.slow
def test_saved_data_sets_are_read_as_they_lie(tmp_path: Path) -> None:
    """Folders of `save_to_disk`: the shards that state.json names, splits by their folders."""
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    rows = {
        "id": [f"s{row}" for row in range(6)],
        "image": [Image.new("RGB", (4, 4), (row, 0, 9)) for row in range(6)],
        "label": [row % 2 for row in range(6)],
    }
    labels = datasets.ClassLabel(names=["cat", "dog"])
    whole = datasets.Dataset.from_dict(rows).cast_column("label", labels)
    parts = datasets.DatasetDict({"train": whole, "held-out": whole.select([4, 1])})
    parts.save_to_disk(str(tmp_path / "saved"), num_shards={"train": 2, "held-out": 1})
    train = load(tmp_path, tmp_path / "saved", 'loader = "folder"\nsplit = "train"')
    assert {s.id: s.categories[0] for s in train.samples} == {
        f"s{row}": ("cat", "dog")[row % 2] for row in range(6)
    }
    held_out = load(tmp_path, tmp_path / "saved", 'loader = "folder"\nsplit = "held-out"')
    assert [s.id for s in held_out.samples] == ["s1", "s4"]
    assert held_out.samples[1].image is not None
    assert held_out.samples[1].image.load().pixels[0, 0, 0] == 4
    state = tmp_path / "saved" / "train" / "state.json"
    next(state.parent.glob("data-00001*")).unlink()
    with pytest.raises(DatasetError, match=r"00001-of-00002\.arrow', which is not there"):
        load(tmp_path, tmp_path / "saved", 'loader = "folder"\nsplit = "train"')


def test_a_limit_chooses_the_samples_that_it_chooses_of_files(
    tmp_path: Path, table: pa.Table
) -> None:
    """`--cep-samples` and `skip` on a table are those of a data set that is held whole."""
    write_parquet(tmp_path / "data" / "t.parquet", table)
    whole = load(tmp_path, tmp_path / "data")
    for skip in (0, 2):
        for most in (1, 2, 3, 100):
            part = load(tmp_path, tmp_path / "data", f'loader = "folder"\nskip = {skip}', most)
            rest = whole.without(skip)
            assert rest is not None
            expected = rest.limited(most)
            assert [(s.id, s.categories) for s in part.samples] == [
                (s.id, s.categories) for s in expected.samples
            ]


def test_a_skip_that_leaves_nothing_of_a_category_is_refused(
    tmp_path: Path, table: pa.Table
) -> None:
    """As of files: the category would vanish from the cases."""
    path = write_parquet(tmp_path / "t.parquet", table)
    with pytest.raises(DatasetError, match=r"skip = 5 leaves no sample of even, odd: skip fewer"):
        load(tmp_path, path, 'loader = "folder"\nskip = 5', 2)


@given(
    labels=st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=40),
    skip=st.integers(0, 3),
    most=st.integers(1, 5),
)
def test_choosing_from_a_stream_is_choosing_from_all(
    labels: list[set[str]], skip: int, most: int
) -> None:
    """Samples in several categories too: with every limit, what `limited` and `without` choose."""
    rows = [
        Candidate(f"s{k:02}", tuple(sorted(own)), Row(0, 0, k, k, k, ()))
        for k, own in enumerate(labels)
    ]
    from pytest_cepbench.datasets.sample import Sample

    whole = Dataset("d", {}, tuple(Sample(row.id, row.categories, text="t") for row in rows))
    rest = whole.without(skip)
    chosen, categories = choose(
        lambda: rows, SampleChoice(skip, most), lambda name, _: DatasetError(name)
    )
    assert categories == set(whole.categories)
    expected = () if rest is None else rest.limited(most).samples
    assert [(c.id, c.categories) for c in chosen] == [(s.id, s.categories) for s in expected]


def test_rows_of_a_group_are_read_together(tmp_path: Path, table: pa.Table) -> None:
    """All used images of a row group are decoded from one read of it, and no other group."""
    path = write_parquet(tmp_path / "t.parquet", table, group=5)
    images = [s.image for s in load(tmp_path, path).samples]
    assert all(isinstance(image, CellImage) for image in images)
    first, last = images[0], images[-1]
    assert isinstance(first, CellImage)
    assert isinstance(last, CellImage)
    assert first.together == (0, 1, 2, 3, 4)
    assert (last.group, last.row, last.number) == (1, 4, 9)


def test_remembered_digests_know_the_cell(tmp_path: Path, table: pa.Table) -> None:
    """Two cells of one settled file never share a remembered digest."""
    import os

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


@pytest.mark.parametrize("kind", ["struct", "bytes", "base64", "uri"])
def test_images_as_tables_hold_them(tmp_path: Path, kind: str) -> None:
    """A struct of bytes and path, bytes, and base64 with and without a data URI."""
    text = b64encode(png(7)).decode()
    cell: Any = {
        "struct": {"bytes": png(7), "path": None},
        "bytes": png(7),
        "base64": text,
        "uri": f"data:image/png;base64,{text}",
    }[kind]
    path = write_parquet(tmp_path / "t.parquet", pa.table({"id": [1], "img": [cell]}))
    sample = load(tmp_path, path).samples[0]
    assert sample.id == "1"
    assert sample.image is not None
    assert sample.image.load().pixels[0, 0, 0] == 7


def test_a_list_of_one_image_is_an_image(tmp_path: Path) -> None:
    """As trainers' sets have them; another number of images is named with its row."""
    cells = [[{"bytes": png(row), "path": None}] * count for row, count in ((7, 1), (8, 2), (9, 0))]
    table = pa.table({"prompt": ["a", "b", "c"], "images": cells})
    path = write_parquet(tmp_path / "t.parquet", table)
    images = [sample.image for sample in load(tmp_path, path).samples]
    assert images[0] is not None
    assert images[0].load().pixels[0, 0, 0] == 7
    for image, number in zip(images[1:], (2, 0), strict=True):
        assert image is not None
        with pytest.raises(ImageError, match=f"column 'images': a list of {number} images"):
            image.load()


def test_rows_without_ids_are_counted(tmp_path: Path) -> None:
    """Their order as texts is that of the rows, over all shards."""
    for shard in range(2):
        part = image_table(6, shard * 6).drop_columns(["id"])
        write_parquet(tmp_path / "data" / f"train-0000{shard}-of-00002.parquet", part)
    dataset = load(tmp_path, tmp_path / "data")
    assert [s.id for s in dataset.samples] == [f"{row:09}" for row in range(12)]
    assert [s.image.load().pixels[0, 0, 0] for s in dataset.samples if s.image] == list(range(12))


def _broken_cell(value: Any) -> pa.Table:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.table({"id": ["a"], "image": pa.array([value], kind)})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null: an image is expected"),
        ({"bytes": None, "path": "/etc/passwd"}, "holds the path '/etc/passwd' and no bytes"),
        ({"bytes": b"no image", "path": None}, "not an image of a known format"),
        ({"bytes": b"", "path": None}, "image"),
    ],
)
def test_a_cell_without_an_image_names_its_row(tmp_path: Path, value: Any, words: str) -> None:
    """File, row and column, when the image is needed; no path is ever followed."""
    path = write_parquet(tmp_path / "t.parquet", _broken_cell(value))
    image = load(tmp_path, path).samples[0].image
    assert image is not None
    with pytest.raises(ImageError, match=words) as error:
        image.load()
    assert f"{path}, row 0, column 'image'" in str(error.value)


PLAIN = {"id": ["a", "b"], "image": [png(0), png(1)]}

WRONG_TABLES: list[tuple[dict[str, Any], str, str]] = [
    ({**PLAIN, "id": ["a", "a"]}, "", "the id 'a' is there twice .*row 0.*row 1"),
    ({**PLAIN, "id": ["a", None]}, "", "row 1, column 'id': null or empty: an id is expected"),
    ({**PLAIN, "id": [1.5, 2.5]}, "", "column 'id' is double; an id, a text or a whole number"),
    ({"id": ["a"], "x": [1]}, "", "no column 'image' .*name one as image in .*its columns: id, x"),
    (PLAIN, 'image = "picture"', "no column 'picture' with images"),
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


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, -1])
@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_a_truncated_file_is_refused(
    tmp_path: Path, table: pa.Table, kind: str, keep: float
) -> None:
    """Cut anywhere, a shard is damaged, never a smaller data set."""
    if kind == "parquet":
        path = write_parquet(tmp_path / "t.parquet", table)
    else:
        path = write_arrow(tmp_path / "t.arrow", table, stream=kind == "stream")
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(DatasetError, match=r"is no whole (Parquet|Arrow) file, or is damaged"):
        load(tmp_path, path)


def test_a_stream_cut_between_batches_is_refused(tmp_path: Path, table: pa.Table) -> None:
    """Arrow itself reads such a file without a word."""
    path = write_arrow(tmp_path / "t.arrow", table, stream=True)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DatasetError, match="it was cut short"):
        load(tmp_path, path)


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
    """Each real folder once, as for images."""
    write_parquet(tmp_path / "elsewhere" / "a.parquet", image_table(2))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "circle").symlink_to(tmp_path / "data")
    assert len(load(tmp_path, tmp_path / "data").samples) == 2


def test_a_pipe_in_place_of_a_shard_is_refused(tmp_path: Path) -> None:
    """Opening it would wait for ever."""
    import os

    os.mkfifo(tmp_path / "t.parquet")
    with pytest.raises(CepError, match="a named pipe"):
        load(tmp_path, tmp_path / "t.parquet")


def test_categories_of_a_data_set_of_lists(tmp_path: Path) -> None:
    """A row may be in several categories; a list of captions counts by its first."""
    table = image_table(2, category=[["x", "y"], ["y"]], captions=[["one", "two"], ["three"]])
    path = write_parquet(tmp_path / "t.parquet", table)
    dataset = load(tmp_path, path, 'loader = "folder"\ntext = "captions"')
    assert [(s.categories, s.text) for s in dataset.samples] == [
        (("x", "y"), "one"),
        (("y",), "three"),
    ]


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


def test_categories_of_pandas(tmp_path: Path) -> None:
    """A dictionary of texts is a column of texts, whatever the shard's own dictionary."""
    for shard, names in enumerate((["a", "b"], ["b", "c"])):
        table = image_table(2, 2 * shard, category=pa.array(names).dictionary_encode())
        write_parquet(tmp_path / "data" / f"train-0000{shard}-of-00002.parquet", table)
    dataset = load(tmp_path, tmp_path / "data")
    assert [s.categories for s in dataset.samples] == [("a",), ("b",), ("b",), ("c",)]


def test_labels_are_categories_by_their_names_alone(tmp_path: Path) -> None:
    """A column `label` of names is used; numbers without names are not, nor any text."""
    names = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}
    table = image_table(2, label=[1, 0])
    path = write_parquet(tmp_path / "t.parquet", table)
    assert load(tmp_path, path).categories == ("images",)
    labelled = table.replace_schema_metadata({"huggingface": json.dumps(names)})
    path = write_parquet(tmp_path / "u.parquet", labelled)
    assert [s.categories for s in load(tmp_path, path).samples] == [("dog",), ("cat",)]
