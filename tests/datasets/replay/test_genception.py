"""GenCeption's results folders: images by stem and iteration, pickles never opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from tests.datasets.replay.files import held, put, recorded

TRAP = b"cbuiltins\nexit\n(I3\ntR."  # ends the process when it is unpickled


def opened(root: Path, **params: str) -> Replay:
    """The replay of a folder, its layout found by looking."""
    return open_replay(str(root), None, params)


def test_images_are_those_of_the_iterations(tmp_path: Path) -> None:
    """Iteration i + 1 is generation 2(i + 1) of an image-first chain; texts are not recorded."""
    put(tmp_path, *(f"{stem}_{i}.jpg" for stem in ("cat", "my.dog_1") for i in range(3)))
    (tmp_path / "cat_result.pkl").write_bytes(TRAP)
    (tmp_path / "GC@3.json").write_text("{}")
    replay = opened(tmp_path)
    assert recorded(replay) == {"image": [2, 4, 6], "text": []}
    assert [held(replay, "cat.png", "image", g) for g in range(1, 8)] == [
        None,
        0,
        None,
        1,
        None,
        2,
        None,
    ]
    assert [held(replay, "my.dog_1.jpg", "image", g) for g in (2, 4, 6)] == [3, 4, 5]
    assert held(replay, "pets/cat.jpg", "image", 2) == 0
    assert held(replay, "my", "image", 2) is None  # fmt: skip


def test_an_iteration_that_is_missing_is_missing(tmp_path: Path) -> None:
    """A chain that stopped is not mixed in with shorter ones."""
    replay = opened(put(tmp_path, "a_0.jpg", "a_1.jpg", "b_0.jpg"))
    assert [held(replay, "b.jpg", "image", g) for g in (2, 4)] == [2, None]


@pytest.mark.parametrize(
    "place", ["{}/", "{}/results_gpt-4o/", "results_gpt-4o/{}/", "{}/images/results_gpt-4o/"]
)
def test_each_category_has_its_own_images(tmp_path: Path, place: str) -> None:
    """MME repeats its file names: folders of categories, with results below or above them."""
    names = [place.format(category) + "0001_0.jpg" for category in ("count", "OCR")]
    replay = opened(put(tmp_path, *names))
    samples = [Sample("count/0001.jpg", ("count",)), Sample("OCR/0001.png", ("OCR",))]
    replay.check(samples)
    assert [held(replay, sample.id, "image", 2) for sample in samples] == [0, 1]
    assert held(replay, "posters/0001.jpg", "image", 2) is None  # fmt: skip


def test_seeds_beside_the_results_are_not_results(tmp_path: Path) -> None:
    """A photo called img_0 in the data folder is no drawing."""
    replay = opened(put(tmp_path, "img_0.jpg", "results_llava7b/img_0_0.jpg"))
    assert held(replay, "img_0.jpg", "image", 2) == 1
    assert held(replay, "img.jpg", "image", 2) is None


def test_several_models_must_be_told_apart(tmp_path: Path) -> None:
    """The results of two describers in one data folder: a parameter says whose are meant."""
    put(tmp_path, "results_a/x_0.jpg", "results_b/x_0.jpg")
    with pytest.raises(DatasetError, match="several models: 'results_a', 'results_b'; name one"):
        opened(tmp_path)
    assert held(opened(tmp_path, results="results_b"), "x.png", "image", 2) == 1
    with pytest.raises(DatasetError, match="has no folder 'results_c'; it has 'results_a'"):
        opened(tmp_path, results="results_c")
    assert held(opened(tmp_path / "results_a"), "x.png", "image", 2) == 0


def test_pickles_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    """They are not opened even to look: this one would end the process."""
    (tmp_path / "cat_result.pkl").write_bytes(TRAP)
    with pytest.raises(
        DatasetError,
        match=r"only pickles of GenCeption \('cat_result\.pkl'\): .* unpickling runs whatever code",
    ):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a_0.jpg", "a_0.png"), r"holds 'a_0\.jpg' and 'a_0\.png': keep one"),
        (("a_0.jpg", "a_00.jpg"),
         "holds 'a_00' of '.' in more than one|holds 'a_0' of '.' in more"),
        (("c/results_x/a_0.jpg", "results_x/c/a_0.jpg"),
         "holds 'a_0' of 'c' in more than one folder"),
    ],
)  # fmt: skip
def test_an_image_twice_is_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    """Neither file stands for the other."""
    with pytest.raises(DatasetError, match=words):
        opened(put(tmp_path, *names))


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Neither linked images nor linked folders, and a loop ends."""
    put(tmp_path / "other", "b_0.jpg")
    root = put(tmp_path / "root", "a_0.jpg")
    (root / "loop").symlink_to(root)
    assert held(opened(root), "a", "image", 2) == 0
    (root / "c").symlink_to(tmp_path / "other")
    with pytest.raises(DatasetError, match=r"root/c' is a link out of"):
        opened(root)
    (root / "c").unlink()
    (root / "b_0.jpg").symlink_to(tmp_path / "other" / "b_0.jpg")
    with pytest.raises(DatasetError, match=r"b_0\.jpg' is a link out of"):
        opened(root)
