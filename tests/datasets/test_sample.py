"""Samples and data sets: each id once, in order; replicates; seeds that are usable or say why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, FileImage, Sample, load_seed_image
from pytest_cepbench.errors import DatasetError


def dataset(*ids: str) -> Dataset:
    """A data set of samples that have an id only."""
    return Dataset("d", {}, tuple(Sample(name, ("c",)) for name in ids))


@given(st.lists(st.text(max_size=3), min_size=1, max_size=6))
def test_ids_are_sorted_and_unique(names: list[str]) -> None:
    """Whatever order a loader gives them in; one that is there twice is refused, and so is a data
    set without any: a gate over nothing must not pass.
    """
    if len(names) == len(set(names)):
        assert [sample.id for sample in dataset(*names).samples] == sorted(names)
    else:
        with pytest.raises(DatasetError, match=r"(?s)data set 'd': sample id .* is there twice"):
            dataset(*names)
    with pytest.raises(DatasetError, match="'d' has no samples"):
        dataset()


def test_a_sample_can_be_in_several_categories() -> None:
    """Each category has its samples in order of ids; categories come as they first appear."""
    samples = (Sample("1", ("x", "y")), Sample("2", ("z",)), Sample("3", ("y",)))
    result = Dataset("d", {}, samples)
    assert result.categories == ("x", "y", "z")
    assert [sample.id for sample in result.in_category("y")] == ["1", "3"]
    assert result.in_category("absent") == ()


CATEGORIES = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True).map(tuple)

DATASETS = st.dictionaries(
    st.text("abc", min_size=1, max_size=4),
    st.tuples(CATEGORIES, st.sampled_from([None, "one", "two"])),
    min_size=1,
    max_size=12,
).map(
    lambda result: Dataset(
        "d",
        {"k": 1},
        tuple(
            Sample(name, own, text=name, metadata={"n": name}, cluster=cluster)
            for name, (own, cluster) in sorted(result.items())
        ),
    )
)
"""Data sets whose samples are in several categories and share clusters."""


def _ids(result: Dataset, category: str) -> set[str]:
    return {sample.id for sample in result.in_category(category)}


@given(DATASETS, st.integers(1, 12))
def test_every_sample_is_there_as_often_as_asked(whole: Dataset, times: int) -> None:
    """Itself, and replicates that differ in id alone: of its categories, from its seeds."""
    repeated = whole.repeated(times)
    assert len(repeated.samples) == times * len(whole.samples)
    assert repeated.categories == whole.categories
    result = {sample.id: sample for sample in repeated.samples}
    for sample in whole.samples:
        for k in range(times):
            twin = result[f"{sample.id} seed {k}" if k else sample.id]
            cluster = sample.cluster if times == 1 else sample.unit
            assert (twin.replicate, twin.cluster) == (k, cluster)
            assert (twin.categories, twin.text, twin.metadata) == (
                sample.categories, sample.text, sample.metadata,
            )  # fmt: skip


def test_once_is_the_data_set_itself() -> None:
    """Nothing is renamed where there is one seed, so baselines of one seed stay what they are; an
    id that looks like a replicate is refused.
    """
    whole = dataset("a", "b")
    assert whole.repeated(1) is whole
    assert (whole.whole, whole.repeated(2).whole) == (None, whole)
    assert whole.repeated(2).limited(1).whole is whole
    assert whole.limited(1).repeated(2).whole is whole
    assert whole.repeated(2).identity == whole.identity
    with pytest.raises(DatasetError, match="sample id 'a seed 1' is there twice"):
        dataset("a", "a seed 1").repeated(2)


@given(DATASETS, st.integers(1, 4), st.integers(1, 30), st.integers(0, 12))
def test_fewer_are_among_more_also_of_seeds(
    whole: Dataset, times: int, most: int, more: int
) -> None:
    """Looks are nested, so what was looked at stays part of what is judged. Every sample comes
    before any further seed: it tells more than another seed of one that was seen.
    """
    repeated = whole.repeated(times)
    few, many = repeated.limited(most), repeated.limited(most + more)
    for category in whole.categories:
        ranked = sorted((own.replicate, digest_text(own.id), own.id)
                        for own in repeated.in_category(category))  # fmt: skip
        assert _ids(few, category) == {name for _, _, name in ranked[:most]}
        assert _ids(few, category) <= _ids(many, category)
        counts = Counter(item.replicate for item in few.in_category(category))
        size = len(whole.in_category(category))
        full, rest = divmod(min(most, times * size), size)
        assert [counts[k] for k in range(full)] == [size] * full
        assert counts[full] == rest


def test_a_seed_that_cannot_be_used_names_its_sample(tmp_path: Path) -> None:
    """No image at all, a missing file, a file that is none: the sample is in the message."""
    text = tmp_path / "text.jpg"
    text.write_text("no image")
    drawn = DrawnImage(lambda: Image.new("RGB", (4, 4)))  # type: ignore[arg-type, return-value]
    for image, words in [
        (None, "sample 's/1' has no image: an image-first chain cannot start from it"),
        (FileImage(tmp_path / "gone.png"), "s/1: cannot be read: No such file"),
        (FileImage(text), "s/1: not an image of a known format"),
        (drawn, "s/1: draw gave Image, ImageArtifact.from_pil"),
    ]:
        with pytest.raises(DatasetError, match=words):
            load_seed_image(Sample("s/1", ("c",), image=image))
