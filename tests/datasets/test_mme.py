"""MME's folders, in both of the released layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.datasets.folder import CATEGORIES, load_mme
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import DatasetError
from tests.artifacts.files import encoded

PNG = encoded(Image.new("RGB", (2, 2)), "PNG")


def build(root: Path, nested: frozenset[str], *, without: tuple[str, ...] = ()) -> Path:
    """The release's layout; nested: the categories that keep images apart from questions."""
    for category in CATEGORIES:
        if category in without:
            continue
        images = root / category / "images" if category in nested else root / category
        questions = root / category / "questions_answers_YN" if category in nested else images
        images.mkdir(parents=True)
        questions.mkdir(exist_ok=True)
        for number in range(2):
            (images / f"000{number}.png").write_bytes(PNG)
            (questions / f"000{number}.txt").write_text("Is this a cat?\tYes\n")
    return root


@pytest.mark.parametrize(
    "nested",
    [
        frozenset(),
        frozenset(CATEGORIES),
        frozenset({"posters", "celebrity", "scene", "landmark", "artwork"}),
    ],
    ids=["beside", "apart", "as released"],
)
def test_both_layouts_give_the_same_samples(tmp_path: Path, nested: frozenset[str]) -> None:
    """Ids are category and file: a baseline holds whichever way the data was unpacked."""
    dataset = load_mme(build(tmp_path, nested))
    expected = sorted(f"{category}/000{n}.png" for category in CATEGORIES for n in range(2))
    assert [sample.id for sample in dataset.samples] == expected
    assert set(dataset.categories) == set(CATEGORIES)
    assert dataset.identity == {"loader": "mme", "version": 1}
    for sample in dataset.samples:
        assert sample.categories == (sample.id.split("/")[0],)
        assert isinstance(sample.image, FileImage)
        assert sample.image.load().size == (2, 2)


def test_there_are_ten_visual_and_four_textual_categories() -> None:
    """The paper's 14, under the names of the released folders."""
    assert len(set(CATEGORIES)) == 14
    assert CATEGORIES[10:] == ("OCR", "code_reasoning", "numerical_calculation", "text_translation")


def test_other_folders_do_not_matter(tmp_path: Path) -> None:
    """What lies beside the categories (an evaluation tool, an archive) is no category."""
    build(tmp_path, frozenset())
    (tmp_path / "eval_tool").mkdir()
    (tmp_path / "eval_tool" / "x.png").write_bytes(PNG)
    assert len(load_mme(tmp_path).samples) == 28


def test_all_missing_categories_are_named(tmp_path: Path) -> None:
    """A mean over 12 of 14 categories is not MME's: each that is absent or empty is said."""
    build(tmp_path, frozenset({"scene"}), without=("OCR", "count"))
    for image in (tmp_path / "scene" / "images").iterdir():
        image.unlink()
    with pytest.raises(
        DatasetError, match=r"no images for 3 of the 14 .*: count, scene, OCR \(each is"
    ):
        load_mme(tmp_path)


@pytest.mark.parametrize("what", ["nothing", "a file"])
def test_no_folder_is_an_error(tmp_path: Path, what: str) -> None:
    """A mistyped path, or the archive that was not unpacked."""
    path = tmp_path / "MME_Benchmark.zip"
    if what == "a file":
        path.write_bytes(b"PK")
    message = {"nothing": "does not exist", "a file": "is a file"}[what]
    with pytest.raises(DatasetError, match=rf"MME folder '.*MME_Benchmark\.zip' {message}"):
        load_mme(path)
