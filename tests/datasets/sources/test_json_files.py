"""JSON and JSON Lines: read, or refused with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sources.text_files import read_json, read_json_lines
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


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(DatasetError, match=r"gone\.json' cannot be read: No such file"):
        read_json(tmp_path / "gone.json")


@pytest.mark.parametrize("make", [a_pipe, a_link_to_an_endless_device, a_sparse_file])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Neither as a whole nor line by line; the file is named."""
    path = tmp_path / "data.json"
    make(path)
    for read in (read_json, lambda path: list(read_json_lines(path))):
        with pytest.raises(DatasetError, match=r"data\.json' cannot be read: it (is|has) a?"):
            read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * 100_000, "nested too deeply"), ("9" * 5_000, "thousands of digits")],
    ids=["deep", "digits"],
)
def test_what_no_parser_takes_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """With its file in front."""
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=f"data.json: not JSON: .*{message}"):
        read_json(path)
