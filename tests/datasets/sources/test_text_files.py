"""JSON, JSON Lines, CSV and TSV: what is read, and what is refused with its place."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sources import text_files
from pytest_cepbench.datasets.sources.text_files import (
    read_columns,
    read_json,
    read_json_lines,
    read_rows,
    split_row,
)
from pytest_cepbench.errors import DatasetError
from tests.special_files import a_link_to_an_endless_device, a_pipe, a_sparse_file


@given(
    st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.integers(), max_size=3)),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
def test_what_is_written_is_read(entries: list[dict[str, object]], end: str, bom: bool) -> None:
    """With and without BOM, CRLF or blank lines; letters like U+2028 end no line."""
    lines = "".join(json.dumps(entry, ensure_ascii=False) + end for entry in entries)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        encoded = lines.encode("utf-8-sig" if bom else "utf-8", "surrogatepass")
        path.write_bytes(encoded)
        assert [entry for _, entry in read_json_lines(path)] == entries


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1}\n{"a": ', r"x\.json, line 2: not JSON"),
        (b'{"a": 1}\n\n[1]\n', r"x\.json, line 3: an object is expected, got list"),
        (b'{"a": 1, "b": 2, "a": 3}', r"line 1: not JSON: key 'a' is there twice"),
        (b'{"a": "caf\xe9"}', "not UTF-8 at byte 10: save it as UTF-8"),
        (b"[" * 100_000, "line 1: not JSON"),
    ],
    ids=["cut off", "no object", "key twice", "Latin-1", "too deep"],
)
def test_a_bad_line_is_named(tmp_path: Path, data: bytes, words: str) -> None:
    """A damaged line is an error of the data set, with its place."""
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=words):
        list(read_json_lines(path))


@pytest.mark.parametrize("make", [a_pipe, a_link_to_an_endless_device, a_sparse_file])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Neither as a whole nor line by line; the file is named."""
    path = tmp_path / "data.json"
    make(path)
    for read in (read_json, lambda path: list(read_json_lines(path))):
        with pytest.raises(DatasetError, match=r"data\.json' cannot be read: it (is|has) a?"):
            read(path)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    st.sampled_from('a"\t,\n é猫'), max_size=12
)


@given(
    rows=st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=5),
    delimiter=st.sampled_from(",\t"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    bom=st.booleans(),
    last_end=st.booleans(),
)
def test_a_written_table_is_read(
    rows: list[list[str]], delimiter: str, end: str, quoting: int, *, bom: bool, last_end: bool
) -> None:
    """Quotes, delimiters, line ends and any letters come back; offsets lead to a cell's bytes."""
    if end == "\n":  # Python 3.11's writer leaves a bare CR unquoted there, and it is ambiguous
        rows = [[text.replace("\r", "") for text in row] for row in rows]
    stream = io.StringIO(newline="")
    csv.writer(
        stream,
        delimiter=delimiter,
        lineterminator=end,
        quoting=quoting,  # type: ignore[arg-type] # typeshed wants a literal
    ).writerows([["a", "b"], *rows])
    data = b"\xef\xbb\xbf" * bom + stream.getvalue().encode()
    data = data if last_end else data.removesuffix(end.encode())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data)
        result = list(read_rows(path, delimiter, ("a", "b")))
        assert read_columns(path, delimiter) == ["a", "b"]
    assert [[row.text("a"), row.text("b")] for row in result] == rows
    assert [row.number for row in result] == list(range(1, len(rows) + 1))
    for row in result:
        raw = data[row.offset : row.offset + row.length]
        assert split_row(raw, delimiter) == list(row.cells.values())


@given(st.binary(max_size=60) | st.text(st.sampled_from('a,"\n\r'), max_size=30).map(str.encode))
def test_rubbish_is_rows_or_a_data_set_error(data: bytes) -> None:
    """Whatever bytes a file holds, no other kind of error comes out."""
    with TemporaryDirectory() as folder:
        path = table(Path(folder), b"a,b\n" + data)
        complaint = str(path)
        try:
            for row in read_rows(path, ",", ("a", "b")):
                row.text("a")
        except DatasetError as error:
            complaint = str(error)
        assert str(path) in complaint


def table(root: Path, data: bytes) -> Path:
    """A file with these bytes."""
    path = root / "t.csv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty: a first row with the columns' names"),
        (b"a;b\n", r"has no column 'a', 'b'; it has 'a;b'"),
        (b"b," + b"x" * 10**6, r"has no column 'a'; it has 'b', 'x{59}$"),
        (b"a,b,a\n", "has more than one column 'a'"),
        (b"a,b\n1\n", r"row 1 \(line 2\): 1 fields, the header has 2: was the file cut short"),
        (b"a,b\n1,2\n1,2,3\n", r"row 2 \(line 3\): 3 fields, the header has 2"),
        (b'a,b\n1,2\n3,"x\n4,5\n', "line 3: .*: is a quote not closed"),
        (b'a,b\n"x\ny"z,2\n', "line 2: .*: is a quote not closed, or not doubled"),
        ("a,b\n1,2\n".encode("utf-16"), "header: not UTF-8"),
        (b"a,caf\xe9\n", "header: not UTF-8"),
    ],
)
def test_a_table_that_is_none_says_so(tmp_path: Path, data: bytes, words: str) -> None:
    """File, row and line are named, and what to do."""
    with pytest.raises(DatasetError, match=rf"t\.csv.*{words}"):
        list(read_rows(table(tmp_path, data), ",", ("a", "b")))


def test_places_of_rows_and_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a caption of two lines, row number and editor's line differ: both are reported. A file
    of one endless line, or a quote never closed in ten gigabytes, is an error in time. Missing, or
    a folder in its place.
    """
    path = table(tmp_path, b'a,b\n"x\ny",1\n\nz,2\n')
    assert [row.where("b") for row in read_rows(path, ",", ())] == [
        "row 1 (line 2), column 'b'",
        "row 2 (line 5), column 'b'",
    ]
    monkeypatch.setattr(text_files, "MAX_ROW", 1000)
    for data in (b"a\n" + b"x" * 1001, b'a\n"' + b"x\n" * 5000 + b'"\n'):
        with pytest.raises(DatasetError, match=r"line 2: .*: is a quote not closed"):
            list(read_rows(table(tmp_path, data), ",", ()))
    for place, words in (
        (tmp_path / "gone.csv", r"gone\.csv' cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
    ):
        with pytest.raises(DatasetError, match=words):
            list(read_rows(place, ",", ()))
