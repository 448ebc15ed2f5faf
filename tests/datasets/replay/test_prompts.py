"""Images of GenEval's prompts: its own folder, and MGG's of several generations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.replay import open_replay
from pytest_cepbench.datasets.replay.layouts import prompt_and_image
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from tests.datasets.replay.files import held, put, recorded


@given(st.integers(0, 99_999), st.none() | st.integers(0, 99))
def test_ids_name_prompt_and_image(prompt: int, image: int | None) -> None:
    """With and without the number of the image, which is 0 then."""
    name = f"{prompt:05}" if image is None else f"{prompt:05}-{image}"
    assert prompt_and_image(Sample(name, ("c",))) == (prompt, image or 0)


@pytest.mark.parametrize("name", ["bench", "00012-", "-3", "1-2-3", "٣", "cats/00012.png"])
def test_other_ids_are_not_prompts(name: str) -> None:
    """Samples of other data sets have no place in these layouts."""
    assert prompt_and_image(Sample(name, ("c",))) is None


def test_a_geneval_folder_is_read(tmp_path: Path) -> None:
    """Four or five digits, PNG, JPEG or WebP; grids, metadata and leftovers are passed over."""
    put(tmp_path, "00000/samples/0000.png", "00012/samples/00000.jpg", "00012/samples/00003.webp")
    put(tmp_path, "00012/grid.png", "00012/samples/grid.png", "00012/samples/0001.png.tmp")
    (tmp_path / "00012" / "metadata.jsonl").write_text("{}")
    (tmp_path / "00013").mkdir()
    replay = open_replay(str(tmp_path), None, {})
    assert recorded(replay) == {"text": [1], "image": []}
    names = ("00000", "00012", "00012-0", "00012-3", "00012-1", "00013", "bench")
    assert [held(replay, name, "text", 1) for name in names] == [0, 1, 1, 2, None, None, None]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("00001/samples/0000.png", "00001/samples/00000.png"),
         "holds both '0000.png' and '00000.png'|holds both '00000.png' and '0000.png'"),
        (("00001/samples/0000.png", "00001/samples/0000.jpg"), "holds '0000.jpg' and '0000.png'"),
        (("00001/samples/0000.png", "0001/samples/0001.png"), "holds both '00001' and '0001'"),
        (("00001/samples/grid.png",), "holds no image in folders like 00000/samples/"),
    ],
)  # fmt: skip
def test_an_image_twice_is_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    """Two files for one image, or none at all."""
    with pytest.raises(DatasetError, match=words):
        open_replay(str(put(tmp_path, *names)), None, {})


def test_mgg_folders_are_read(tmp_path: Path) -> None:
    """Images by the line of their prompt, of the odd generations; one image per prompt."""
    put(tmp_path, "gen-1/0.png", "gen-1/10.png", "gen-3/10.png", "gen-3/x.png", "gen-19/552.jpg")
    (tmp_path / "gen-0").mkdir()
    replay = open_replay(str(tmp_path), None, {})
    assert recorded(replay) == {"text": [1, 3, 19], "image": []}
    assert [held(replay, "00010", "text", g) for g in (1, 2, 3, 19)] == [1, None, 2, None]
    assert [held(replay, name, "text", 1) for name in ("00000", "00010-0", "00010-1")] == [
        0,
        1,
        None,
    ]
    assert held(replay, "00552", "text", 19) == 4


def test_mgg_has_images_of_odd_generations_only(tmp_path: Path) -> None:
    """Images in an even generation are of chains that started from images."""
    with pytest.raises(DatasetError, match=r"gen-2': generations of images are odd"):
        open_replay(str(put(tmp_path, "gen-2/0.png")), None, {})


def test_one_chain_of_sdp_is_not_mgg(tmp_path: Path) -> None:
    """Its names are not lines of GenEval: the list of layouts asks for the folder above it."""
    put(tmp_path, "gen-1/0001.png")
    (tmp_path / "gen-2.csv").write_text("filename,caption\n0001.png,x\n")
    with pytest.raises(DatasetError, match=r"found 'gen-1/', 'gen-2\.csv', which is no known"):
        open_replay(str(tmp_path), None, {})


@pytest.mark.parametrize("place", ["00001/samples", "gen-1"])
def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, place: str) -> None:
    """Neither a linked image nor a linked folder."""
    put(tmp_path / "other", "0000.png")
    folder = put(tmp_path / "root", f"{place}/0000.png") / place
    (folder / "0001.png").symlink_to(tmp_path / "other" / "0000.png")
    with pytest.raises(DatasetError, match=r"0001\.png' is a link out of"):
        open_replay(str(tmp_path / "root"), None, {})
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(DatasetError, match=rf"{place}' is a link out of"):
        open_replay(str(tmp_path / "root"), None, {})
