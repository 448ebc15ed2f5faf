"""MMGenBench's tables of predictions and drawn images."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.datasets.replay import Replay, mmgenbench_tables, open_replay
from pytest_cepbench.errors import DatasetError, MissingDependencyError
from tests.datasets.replay.files import coded, held, put, put_table, recorded

NAME = "Qwen2-VL_MMGenBench-Test"

LETTERS = st.characters(exclude_categories=["Cs", "Cc"])


def opened(path: Path, **params: str) -> Replay:
    """The replay of a folder or file, its layout found by looking."""
    return open_replay(str(path), None, params)


def put_images(root: Path, name: str = "flux-1-dev.tsv", *, header: str = "image") -> Path:
    """The generation script's table: pictures of grey 12 and 7 under these indices."""
    put_table(root / name, [["index", header], ["12", coded(12)], ["7", coded(7)]])
    return root


def put_workbook(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    """An XLSX file as the describers' tool writes it."""
    openpyxl = importlib.import_module("openpyxl")
    path.parent.mkdir(exist_ok=True)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in rows:
        sheet.append(row)
    book.save(path)
    return path


def put_predictions(root: Path, suffix: str) -> Path:
    """The describers' table, rows in another order than the images'."""
    rows: list[list[object]] = [
        ["index", "question", "prediction"],
        [7, "Describe.", "seven"],
        [12, "Describe.", "twelve"],
    ]
    if suffix == ".xlsx":
        put_workbook(root / f"{NAME}.xlsx", rows)
    else:
        put_table(root / f"{NAME}.tsv", [list(map(str, row)) for row in rows])
    return root  # fmt: skip


@pytest.mark.parametrize("suffix", [".tsv", ".xlsx"])
def test_the_pair_is_read_by_index(tmp_path: Path, suffix: str) -> None:
    """Text and image of a sample, however many zeros its id has; what is missing is None."""
    replay = opened(put_predictions(put_images(tmp_path), suffix))
    assert recorded(replay) == {"image": [1, 2], "text": []}
    for name in ("000007", "7"):
        assert (held(replay, name, "image", 1), held(replay, name, "image", 2)) == ("seven", 7)
    assert (held(replay, "000012", "image", 1), held(replay, "12", "image", 2)) == ("twelve", 12)
    assert held(replay, "000008", "image", 1) is None
    assert held(replay, "cat.png", "image", 1) is None


def test_half_a_pair_is_what_is_recorded(tmp_path: Path) -> None:
    """Predictions alone, images alone, or one of the files by its path."""
    put_predictions(tmp_path / "texts", ".tsv")
    assert recorded(opened(tmp_path / "texts"))["image"] == [1]
    assert recorded(opened(put_images(tmp_path / "images")))["image"] == [2]
    put_images(tmp_path / "texts")
    assert recorded(opened(tmp_path / "texts" / "flux-1-dev.tsv"))["image"] == [2]


def test_the_benchmarks_own_table_is_no_output(tmp_path: Path) -> None:
    """Its images are the seeds: they must not be taken for drawn ones."""
    put_images(put_predictions(tmp_path, ".tsv"))
    header = ["index", "question", "image"]
    put_table(tmp_path / "MMGenBench-Test.tsv", [header, ["7", "Describe.", coded(0)]])
    assert held(opened(tmp_path), "7", "image", 2) == 7
    (tmp_path / "flux-1-dev.tsv").unlink()
    assert recorded(opened(tmp_path))["image"] == [1]


def test_several_tables_must_be_told_apart(tmp_path: Path) -> None:
    """Two generators of one describer: a parameter says which."""
    put_images(put_images(put_predictions(tmp_path, ".tsv")), "kolors.tsv")
    with pytest.raises(
        DatasetError,
        match=r"several tables of images: 'flux-1-dev\.tsv', 'kolors\.tsv'; name one .* images",
    ):
        opened(tmp_path)
    assert held(opened(tmp_path, images="kolors.tsv"), "7", "image", 2) == 7
    put_table(tmp_path / "b.tsv", [["index", "prediction"], ["7", "b"]])
    replay = opened(tmp_path, images="kolors.tsv", predictions="b.tsv")
    assert held(replay, "7", "image", 1) == "b"


@settings(max_examples=25)
@given(st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=4))
def test_workbooks_give_texts_back(texts: list[str]) -> None:
    """Any letters, quotes, a text that begins with "=": as they were written, empty ones too."""
    texts = [text.replace("_x", "") for text in texts]  # XLSX's own escape, which writers leave
    with TemporaryDirectory() as folder:
        rows = [[number, text] for number, text in enumerate(["=SUM(1)", *texts])]
        path = put_workbook(Path(folder) / "a.xlsx", [["index", "prediction"], *rows])
        replay = opened(path)
        result = [held(replay, str(number), "image", 1) for number in range(len(rows))]
    assert result == ["=SUM(1)", *texts]


def test_cells_that_are_no_texts_are_written_out(tmp_path: Path) -> None:
    """A model that answers "42", an index kept as 7.0, an empty cell, blank rows between."""
    rows: list[list[object]] = [
        ["prediction", "index"],
        [42, 7.0],
        [None, None],
        [None, "8"],
        ["x", 9],
    ]
    replay = opened(put_workbook(tmp_path / "a.xlsx", rows))
    assert [held(replay, name, "image", 1) for name in "789"] == ["42", "", "x"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["index", "answer"], [1, "x"]], "index and prediction, or index and image, is expected"),
        ([["index", "prediction"], ["one", "x"]], "row 2, column 'index': a whole number is"),
        ([["index", "prediction"], [1.5, "x"]], r"a whole number is expected, got '1\.5'"),
        ([["index", "prediction"], [1, "x"], ["01", "y"]],
         "row 3, column 'index': 1 is there twice"),
        ([], "is expected"),
    ],
)  # fmt: skip
def test_wrong_workbooks_are_refused(tmp_path: Path, rows: list[list[object]], words: str) -> None:
    """File, row and column."""
    put_workbook(tmp_path / "a.xlsx", rows)
    with pytest.raises(DatasetError, match=rf"a\.xlsx.*{words}"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["x", "y"]], "'index': a whole number is expected, got 'x'"),
        ([["1", "y"], ["1", "z"]], r"row 2 \(line 3\), column 'index': 1 is there twice"),
        ([["1"]], "1 fields, the header has 2"),
    ],
)
def test_wrong_predictions_are_refused(tmp_path: Path, rows: list[list[str]], words: str) -> None:
    """File, row and column."""
    put_table(tmp_path / "a.tsv", [["index", "prediction"], *rows])
    with pytest.raises(DatasetError, match=words):
        opened(tmp_path)


def test_a_workbook_without_openpyxl_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is needed for .xlsx only."""
    put_workbook(tmp_path / "a.xlsx", [["index", "prediction"], [1, "x"]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"a\.xlsx: .* pip install openpyxl, or save"):
        opened(tmp_path)


def test_damaged_workbooks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No archive, an archive of something else, a sheet cut short, one that unpacks to too much."""
    path = tmp_path / "a.xlsx"
    for content in (b"", b"index\tprediction\n"):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=r"a\.xlsx' cannot be read"):
            opened(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.txt", "x")
    with pytest.raises(DatasetError, match=r"a\.xlsx' cannot be read"):
        opened(tmp_path)
    put_workbook(path, [["index", "prediction"], *([n, "x"] for n in range(50))])
    with zipfile.ZipFile(path) as sound:
        parts = {name: sound.read(name) for name in sound.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data[: len(data) // 2] if name == sheet else data)
    with pytest.raises(DatasetError, match=r"a\.xlsx' cannot be read"):
        opened(tmp_path)
    monkeypatch.setattr(mmgenbench_tables, "MAX_BYTES", 1000)
    with pytest.raises(DatasetError, match=r"has [\d,]+ bytes, and at most 1,000 are"):
        opened(tmp_path)


def test_entities_of_a_workbook_are_not_expanded(tmp_path: Path) -> None:
    """A sheet that refers to a file of the machine, or to itself a billion times, gives neither."""
    secret = put(tmp_path, "secret.txt") / "secret.txt"
    secret.write_text("password")
    path = put_workbook(tmp_path / "a.xlsx", [["index", "prediction"], [1, "MARK"]])
    with zipfile.ZipFile(path) as sound:
        parts = {name: sound.read(name) for name in sound.namelist()}
    lots = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    for kind in (
        f'<!ENTITY x SYSTEM "file://{secret}">',
        f'<!ENTITY l0 "lol">{lots}<!ENTITY x "&l11;">',
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in parts.items():
                text = data.decode()
                if "MARK" in text:
                    end = text.index("?>") + 2 if text.startswith("<?xml") else 0
                    text = f"{text[:end]}<!DOCTYPE x [{kind}]>{text[end:].replace('MARK', '&x;')}"
                archive.writestr(name, text)
        try:
            result = str(held(opened(path), "1", "image", 1))
        except DatasetError:
            continue
        assert "password" not in result
        assert len(result) < 1000


def test_an_open_workbooks_lock_file_is_passed_over(tmp_path: Path) -> None:
    """Office programs leave it beside the file."""
    put_predictions(tmp_path, ".xlsx")
    (tmp_path / f"~${NAME}.xlsx").write_bytes(b"\x05user")
    assert held(opened(tmp_path), "7", "image", 1) == "seven"


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """A linked table is refused by its name."""
    put_images(tmp_path / "other")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "flux.tsv").symlink_to(tmp_path / "other" / "flux-1-dev.tsv")
    with pytest.raises(DatasetError, match=r"flux\.tsv' is a link out of"):
        opened(tmp_path / "root")
