"""The Semantic Drift Protocol's folders: both chains, matched by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.errors import DatasetError, ImageError
from tests.datasets.replay.files import held, put, put_table, recorded


def build(root: Path) -> Path:
    """Two pairs over four generations of both chains, the rows in different orders."""
    put(root, "image-first/gen-0/a.png", "image-first/gen-0/b.png")
    put_table(
        root / "text-first/gen-0.csv", [["filename", "caption"], ["a.png", "A"], ["b.png", "B"]]
    )
    for start, first in (("text-first", 2), ("image-first", 1)):
        for generation in (first, first + 2):
            rows = [["b.png", f"b{generation}"], ["a.jpg", f'"a",\n{generation} ']]
            put_table(root / start / f"gen-{generation}.csv", [["filename", "caption"], *rows])
        for generation in (3 - first, 5 - first):
            put(root, f"{start}/gen-{generation}/b.jpg", f"{start}/gen-{generation}/a.webp")
    (root / "m_image-first_image_to_image_with_dino.pkl").write_bytes(b"never opened")
    (root / "text-first" / "final.png").write_bytes(b"")
    return root


def opened(root: Path) -> Replay:
    """The replay of a folder, its layout found by looking."""
    return open_replay(str(root), None, {})


def test_both_chains_are_read_by_name(tmp_path: Path) -> None:
    """Texts as they were written, images by their stem, whatever the order or the suffix."""
    replay = opened(build(tmp_path))
    assert recorded(replay) == {"text": [1, 2, 3, 4], "image": [1, 2, 3, 4]}
    assert [held(replay, "a", "text", g) for g in range(1, 5)] == [1, '"a",\n2 ', 1, '"a",\n4 ']
    assert [held(replay, "b", "text", g) for g in range(1, 5)] == [0, "b2", 0, "b4"]
    assert [held(replay, "b", "image", g) for g in range(1, 5)] == ["b1", 0, "b3", 0]
    assert held(replay, "nocaps/a.jpg", "image", 2) == 1
    assert held(replay, "c", "image", 2) is None
    assert held(replay, "a", "image", 5) is None


def test_a_missing_row_shifts_nothing(tmp_path: Path) -> None:
    """The authors' code would give b's text to the next; here b's is missing, a's is empty."""
    rows = [["filename", "caption"], ["a.png", ""], ["c.png", "C"]]
    put_table(tmp_path / "image-first" / "gen-1.csv", rows)
    replay = opened(tmp_path)
    assert [held(replay, name, "image", 1) for name in "abc"] == ["", None, "C"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["../../x.png", "X"], "leads out of the folder"),
        (["/x.png", "X"], "is an absolute path"),
        (["a.jpg", "again"], "'a.jpg' is there twice"),
        (["b.png"], "1 fields, the header has 2"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, row: list[str], words: str) -> None:
    """With file, row and column."""
    rows = [["filename", "caption"], ["a.png", "A"], row]
    path = put_table(tmp_path / "image-first" / "gen-1.csv", rows)
    with pytest.raises(DatasetError, match=rf"{path}, row 2 \(line 3\).*{words}"):
        opened(tmp_path)


def test_kinds_that_are_swapped_are_refused(tmp_path: Path) -> None:
    """Captions where a chain has images mean another start, not a gap."""
    put_table(tmp_path / "text-first" / "gen-1.csv", [["filename", "caption"]])
    with pytest.raises(
        DatasetError, match=r"generation 1 of a text-first chain is images in gen-1/"
    ):
        opened(tmp_path)
    put(tmp_path / "x", "image-first/gen-1/a.png")
    with pytest.raises(
        DatasetError, match=r"generation 1 of a image-first .* captions in gen-1\.csv"
    ):
        opened(tmp_path / "x")


def test_a_generation_twice_is_refused(tmp_path: Path) -> None:
    """A folder and a table, or two ways to write one number."""
    put(tmp_path, "text-first/gen-1/a.png", "text-first/gen-01/a.png")
    with pytest.raises(DatasetError, match="holds generation 1 twice: 'gen-01' and 'gen-1'"):
        opened(tmp_path)


def test_seeds_alone_are_no_chains(tmp_path: Path) -> None:
    """Generation 0 is the data set's own."""
    put(tmp_path, "image-first/gen-0/a.png")
    with pytest.raises(DatasetError, match="holds no generation after gen-0"):
        opened(tmp_path)


def test_latin_1_is_read_when_asked_for(tmp_path: Path) -> None:
    """Never guessed."""
    path = put_table(tmp_path / "image-first" / "gen-1.csv", [["filename", "caption"]])
    path.write_bytes(b"filename,caption\na.png,caf\xe9\n")
    with pytest.raises(DatasetError, match=r"column 'caption': not UTF-8 at byte 26"):
        opened(tmp_path)
    replay = open_replay(str(tmp_path), None, {"encoding": "latin-1"})
    assert held(replay, "a", "image", 1) == "café"


def test_a_damaged_image_is_there_and_does_not_load(tmp_path: Path) -> None:
    """It becomes a failure of its own chain, not of the run."""
    put(tmp_path, "text-first/gen-1/a.png", "text-first/gen-1/b.png")
    (tmp_path / "text-first" / "gen-1" / "b.png").write_bytes(b"\x89PNG")
    replay = opened(tmp_path)
    result = replay.artifact(Sample("b", ("c",)), "text", 1)
    assert isinstance(result, FileImage)
    with pytest.raises(ImageError, match="not an image"):
        result.load()


@pytest.mark.parametrize("link", ["gen-1", "gen-1/b.png", "gen-2.csv"])
def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, link: str) -> None:
    """Downloaded chains cannot read other files of the machine; links that stay inside can."""
    secret = put_table(tmp_path / "secret.csv", [["filename", "caption"], ["a", "password"]])
    chain = put(tmp_path / "root", "text-first/gen-3/a.png") / "text-first"
    (chain / "gen-3" / "linked.png").symlink_to(chain / "gen-3" / "a.png")
    assert held(opened(tmp_path / "root"), "linked", "text", 3) == 0
    place = chain / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path if link == "gen-1" else secret)
    with pytest.raises(DatasetError, match=rf"{place}' is a link out of '.*root': put the file"):
        opened(tmp_path / "root")
