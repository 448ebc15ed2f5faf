"""Samples and data sets: ids in order and once, seeds that can be used or say why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, FileImage, Sample, load_seed_image
from pytest_cepbench.errors import DatasetError
from tests.artifacts.files import noise


def dataset(*ids: str) -> Dataset:
    """A data set of samples that have an id only."""
    return Dataset("d", {}, tuple(Sample(name, ("c",)) for name in ids))


@given(st.lists(st.text(max_size=3), min_size=1, max_size=6))
def test_ids_are_sorted_and_unique(names: list[str]) -> None:
    """A loader that gives ids in another order, or one twice, is stopped: scores go by id."""
    if names == sorted(set(names)):
        assert [sample.id for sample in dataset(*names).samples] == names
    else:
        with pytest.raises(DatasetError, match=r"(?s)data set 'd': sample id .* is there"):
            dataset(*names)


@pytest.mark.parametrize(
    ("ids", "words"), [("aa", "'a' is there twice"), ("ba", "'a' is there out of order")]
)
def test_the_error_names_the_sample(ids: str, words: str) -> None:
    """Which id, and what is wrong with it."""
    with pytest.raises(DatasetError, match=words):
        dataset(*ids)


def test_an_empty_data_set_is_refused() -> None:
    """A gate over nothing must not pass."""
    with pytest.raises(DatasetError, match="'d' has no samples"):
        dataset()


def test_a_sample_can_be_in_several_categories() -> None:
    """Each category has its samples in order of ids; categories come as they first appear."""
    samples = (Sample("1", ("x", "y")), Sample("2", ("z",)), Sample("3", ("y",)))
    found = Dataset("d", {}, samples)
    assert found.categories == ("x", "y", "z")
    assert [sample.id for sample in found.in_category("y")] == ["1", "3"]
    assert found.in_category("absent") == ()


def test_a_drawn_image_is_drawn() -> None:
    """Built-in worlds compute their seeds."""
    image = ImageArtifact(noise())
    assert load_seed_image(Sample("a", ("c",), image=DrawnImage(lambda: image))) is image


def test_a_seed_that_cannot_be_used_names_its_sample(tmp_path: Path) -> None:
    """No image at all, a missing file, a file that is none: the sample is in the message."""
    text = tmp_path / "text.jpg"
    text.write_text("no image")
    for image, words in [
        (None, "sample 's/1' has no image: an image-first chain cannot start from it"),
        (FileImage(tmp_path / "gone.png"), "s/1: cannot be read: No such file"),
        (FileImage(text), "s/1: not an image of a known format"),
    ]:
        with pytest.raises(DatasetError, match=words):
            load_seed_image(Sample("s/1", ("c",), image=image))
