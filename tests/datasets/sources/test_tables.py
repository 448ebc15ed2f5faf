"""Tables of images on this machine: the same samples whatever file they lie in."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from benchmarks.table_listing import CATEGORIES as TABLE_CATEGORIES
from benchmarks.table_listing import SAMPLES, measure, write_shards
from pytest_cepbench.artifacts import decode_image
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.folder import CATEGORIES
from pytest_cepbench.datasets.sources import table as table_source
from pytest_cepbench.errors import (
    CepError,
    DatasetError,
    ImageError,
    MissingDependencyError,
    SuiteError,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.data import load_data
from tests.artifacts.files import encoded, noise
from tests.datasets.sources.tables import (
    contents,
    image_table,
    load,
    png,
    suite_of,
    write_parquet,
    write_tar,
)


def write_kind(folder: Path, table: pa.Table, kind: str) -> Path:
    """The table as Parquet, or as an Arrow stream or file in record batches of a few rows."""
    if kind == "parquet":
        return write_parquet(folder / "t.parquet", table)
    folder.mkdir(exist_ok=True)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(str(folder / "t.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return folder / "t.arrow"


FOLDER = 'loader = "folder"'


@pytest.fixture
def table() -> pa.Table:
    """Ten images with captions, in two categories."""
    return image_table(
        10,
        caption=[f"text {row}" for row in range(10)],
        category=["even" if row % 2 == 0 else "odd" for row in range(10)],
    )


def test_cells_are_those_of_the_file_that_was_listed(tmp_path: Path, table: pa.Table) -> None:
    """Two cells of one settled file never share a remembered digest, and images of another file
    never stand for those that were listed.
    """
    path = write_parquet(tmp_path / "t.parquet", table)
    os.utime(path, (1e9, 1e9))
    with Store(tmp_path / "store") as store:
        for _ in range(2):
            images = [sample.image for sample in load(tmp_path, path).samples if sample.image]
            assert len({digest_of_image(image, store) for image in images}) == 10
    unread = load(tmp_path, write_parquet(path, table)).samples[0].image
    write_parquet(path, image_table(10, 100))
    assert unread is not None
    with pytest.raises(ImageError, match="changed after its rows were listed: run again"):
        unread.load()


def test_a_cell_without_an_image_names_its_row(tmp_path: Path) -> None:
    """File, row and column, when the image is needed; no path is ever followed. A list holds one
    image, as trainers' sets have them.
    """
    whole = {"bytes": png(7), "path": None}
    cells: list[tuple[Any, str]] = [
        ([None], "null: an image is expected"),
        ([{"bytes": None, "path": "/etc/passwd"}], "holds the path '/etc/passwd' and no bytes"),
        ([{"bytes": b"no image", "path": None}], "not an image of a known format"),
        ([{"bytes": b"", "path": None}], "image"),
        ([whole, whole], "a list of 2 images"),
        ([], "a list of 0 images"),
        ([whole], ""),
    ]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    for name, values, held in (
        ("image", [value[0] for value, _ in cells[:4]], kind),
        ("images", [value for value, _ in cells], pa.list_(kind)),
    ):
        columns = {"id": [*"abcdefg"[: len(values)]], name: pa.array(values, held)}
        path = write_parquet(tmp_path / f"{name}.parquet", pa.table(columns))
        samples = load(tmp_path, path, f'{FOLDER}\nimage = "{name}"').samples
        for number, (sample, (_, words)) in enumerate(zip(samples, cells, strict=False)):
            assert sample.image is not None
            if not words:
                assert sample.image.load().pixels[0, 0, 0] == 7
                continue
            with pytest.raises(ImageError, match=words) as error:
                sample.image.load()
            assert f"{path}, row {number}, column {name!r}" in str(error.value)


def test_only_the_last_images_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many bytes of them, however many are read; a part of a row group is read ahead."""
    images = [encoded(Image.fromarray(noise(64, 64, seed)), "PNG") for seed in range(40)]
    path = write_parquet(tmp_path / "t.parquet", pa.table({"image": images}), group=20)
    samples = load(tmp_path, path).samples
    monkeypatch.setattr(table_source, "MOST_KEPT", 10 * len(images[0]))
    monkeypatch.setattr(table_source, "_MOST_READ", 5 * len(images[0]))
    tracemalloc.start()
    try:
        digests = {sample.image.load().digest for sample in samples if sample.image}
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(digests) == 40
    assert held < 15 * len(images[0])
    assert peak < 25 * len(images[0])


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
    ({**PLAIN, "image": [{"x": 1}, {"x": 2}]}, "", "column 'image' is struct<.*>; one image"),
    ({**PLAIN, "a": [{"x": 1}, {"x": 2}]}, 'text = "a"', "column 'a' is struct<.*>; a text, or"),
    ({**PLAIN, "t": ["x", " "]}, 'text = "t"', "row 1, column 't': null or empty: a chain cannot"),
    ({**PLAIN, "c": [1, 2]}, 'category = "c"', "column 'c' is int64; a text, a label"),
    ({**PLAIN, "c": [["x"], []]}, 'category = "c"', r"row 1, column 'c': \[\] is no category"),
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
        load(tmp_path, path, f"{FOLDER}\n{data}")
    assert "\n" not in str(error.value)


def test_names_go_before_types_and_ids_are_normalized(tmp_path: Path) -> None:
    """Another column of images changes nothing; ids agree over systems, as those of files do."""
    columns = {**PLAIN, "id": ["e\u0301", "b"], "scan": [{"bytes": png(5), "path": None}] * 2}
    found = contents(load(tmp_path, write_parquet(tmp_path / "t.parquet", pa.table(columns))))
    digests = {name: digest for name, (_, _, digest) in found.items()}
    assert digests == {"\xe9": decode_image(png(0)).digest, "b": decode_image(png(1)).digest}


def test_what_is_chosen_while_a_table_is_read_is_what_is_chosen_of_all_of_it(
    tmp_path: Path,
) -> None:
    """In the same categories too. An id that is there twice is refused whatever is chosen."""
    table = image_table(24, category=[["a", "b"], ["b"], ["c", "a"]] * 8)
    data = f'{FOLDER}\ncategory = "category"'
    path = write_parquet(tmp_path / "t.parquet", table)
    whole = load(tmp_path, path, data)
    for most in (1, 3, 30):
        assert contents(load(tmp_path, path, data, most)) == contents(whole.limited(most))
    again = write_parquet(tmp_path / "a.parquet", pa.concat_tables([table, table.slice(20)]))
    with pytest.raises(DatasetError, match=r"the id 's020' is there twice .*row 20.*row 24"):
        load(tmp_path, again, data, most=1)


def test_shards_of_other_columns_are_refused(tmp_path: Path) -> None:
    """A shard without a column, or with another type of it, is not read as nulls; nor is one with
    two columns of a name.
    """
    write_parquet(tmp_path / "data" / "a.parquet", image_table(2))
    other = write_parquet(tmp_path / "data" / "b.parquet", image_table(2, 5).drop_columns(["id"]))
    with pytest.raises(DatasetError, match=r"b\.parquet has no column 'id', which"):
        load(tmp_path, tmp_path / "data")
    pq.write_table(pa.table({"id": [1], "image": [png(1)]}), other)
    with pytest.raises(DatasetError, match="column 'id' is int64, in other shards it is string"):
        load(tmp_path, tmp_path / "data")
    twice = write_parquet(tmp_path / "t.parquet", image_table(2).rename_columns(["image"] * 2))
    with pytest.raises(DatasetError, match="has more than one column 'image'"):
        load(tmp_path, twice)


def test_settings_of_tables_need_tables(tmp_path: Path) -> None:
    """A column that is named for a folder of images, or for generated scenes, is an error. A folder
    of images that holds a table too is read as before; naming a column reads that.
    """
    photos, named = tmp_path / "photos", f'{FOLDER}\nimage = "image"'
    photos.mkdir()
    (photos / "a.png").write_bytes(png(1))
    with pytest.raises(SuiteError, match=r"\[data\] image = 'image' is about tables"):
        load(tmp_path, photos, named)
    with pytest.raises(SuiteError, match=r"\[data\] split = 'x' is about tables"):
        load_data(suite_of(tmp_path / "s", 'loader = "shapes"\nsplit = "x"'), {})
    path = write_parquet(photos / "metadata.parquet", image_table(3))
    with pytest.raises(SuiteError, match="unknown option of folder of tables 'caption'"):
        load(tmp_path, path, f"{FOLDER}\noptions = {{ caption = true }}")
    assert [s.id for s in load(tmp_path, photos).samples] == ["a.png"]
    assert len(load(tmp_path, photos, named).samples) == 3


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
    line = f'{FOLDER}\ntext = "caption"'
    assert contents(load(tmp_path, path, line)) == contents(load(tmp_path, expected, line))


KINDS = ["parquet", "stream", "file"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_samples(tmp_path: Path, kind: str) -> None:
    """Ids, categories, texts and pixels are those of the rows, of more than one group."""
    numbers = range(70)
    words = [f"text {row}" for row in numbers]
    table = image_table(70, caption=words, category=["eo"[row % 2] for row in numbers])
    named = f'{FOLDER}\ntext = "caption"\ncategory = "category"'
    dataset = load(tmp_path, write_kind(tmp_path, table, kind), named)
    assert contents(dataset) == {
        f"s{row:03}": (("eo"[row % 2],), f"text {row}", decode_image(png(row)).digest)
        for row in numbers
    }
    assert dataset.identity == {"loader": "folder", "version": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused(tmp_path: Path, table: pa.Table, kind: str) -> None:
    """Cut anywhere, a shard is damaged, never a smaller data set; Arrow itself reads a stream that
    was cut between batches without a word. Where bytes were written over, offsets lead nowhere,
    and Arrow follows them to the end of the process.
    """
    path = write_kind(tmp_path, table, kind)
    data = path.read_bytes()
    for kept in (0, 3, 100, len(data) // 2, -1, -8):
        path.write_bytes(data[:kept])
        with pytest.raises(DatasetError, match=r"is no whole (Parquet|Arrow) file"):
            load(tmp_path, path)
    data = write_kind(tmp_path, image_table(2), kind).read_bytes()
    for at in range(0, len(data), 12):
        path.write_bytes(data[:at] + b"\xc3\x7f\x80" + data[at + 3 :])
        with suppress(DatasetError, ImageError):
            contents(load(tmp_path, path))


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
    shard = write_kind(tmp_path / "saved", table, "stream")
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


# -- webdataset shards: what is not a plain archive of plain files is refused ----------------------


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
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for member in members:
            archive.addfile(member)
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
    """As `tar --sort` by type leaves them; what macOS and tools hide among them is passed over.
    Names may be longer than those of files.
    """
    long = "b" * 300
    members = {"./a.jpg": png(1), f"./{long}.jpg": png(2), "./a.txt": b"1", f"./{long}.txt": b"2"}
    hidden = {"./._a.jpg": b"fork", "__MACOSX/a.jpg": b"fork", "./.DS_Store": b"view"}
    together = {name: members[name] for name in sorted(members)}
    pairs = f'{FOLDER}\ntext = "txt"'
    apart = load(tmp_path, write_tar(tmp_path / "x.tar", {**hidden, **members}), pairs)
    whole = load(tmp_path, write_tar(tmp_path / "y.tar", together), pairs)
    assert contents(apart) == contents(whole)
    texts = [(sample.id, sample.text) for sample in whole.samples]
    assert texts == [("a", "1"), (long, "2")]


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
