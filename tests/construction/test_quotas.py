"""The choice of images: quotas are met, grow, and do not depend on any order; draws are fair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.construction.quotas import (
    SAMPLINGS,
    Sampling,
    choose_images,
    expected_size,
    members_of,
)

LABELS = st.dictionaries(
    st.integers(0, 60).map(lambda number: digest_text(str(number))),
    st.lists(st.sampled_from("ABCDE"), max_size=5),
    max_size=40,
)


@given(LABELS, st.integers(1, 12))
def test_every_quota_is_met_and_no_image_is_idle(labels: dict[str, list[str]], quota: int) -> None:
    """A pattern has its quota or all its images; every image has a pattern that needed it."""
    chosen = set(choose_images(labels, quota, "quota", 0))

    for images in members_of(labels).values():
        assert len(chosen.intersection(images)) >= min(quota, len(images))
    assert all(labels[image] for image in chosen)
    assert len(chosen) <= quota * len(members_of(labels))


@given(LABELS, st.integers(1, 8), st.integers(0, 5), st.sampled_from(SAMPLINGS))
def test_a_larger_set_contains_a_smaller_one(
    labels: dict[str, list[str]], quota: int, more: int, sampling: Sampling
) -> None:
    """Whatever the patterns share: what was verified stays of use."""
    small = choose_images(labels, quota, sampling, 3)
    large = choose_images(labels, quota + more, sampling, 3)

    assert set(small) <= set(large)


@given(LABELS, st.integers(1, 8), st.randoms(use_true_random=False), st.sampled_from(SAMPLINGS))
def test_no_order_matters(
    labels: dict[str, list[str]], quota: int, random: object, sampling: Sampling
) -> None:
    """Not that of images, nor that of an image's patterns."""
    items = [(image, patterns[::-1]) for image, patterns in labels.items()]
    random.shuffle(items)  # type: ignore[attr-defined] # of random.Random

    assert choose_images(dict(items), quota, sampling, 1) == choose_images(
        labels, quota, sampling, 1
    )


def test_the_rarest_pattern_is_filled_first() -> None:
    """An image of a rare pattern counts for the frequent one too."""
    both = digest_text("both")
    labels = {both: ["rare", "often"]} | {digest_text(str(i)): ["often"] for i in range(20)}

    assert choose_images(labels, 1, "quota", 0) == [both]


def test_draws_have_the_size_that_is_expected() -> None:
    """Over many seeds the mean is the formula's: sum over images of 1 - prod(1 - n / N)."""
    labels = {
        digest_text(str(number)): [name for place, name in enumerate("ABC") if number % (place + 2)]
        for number in range(60)
    }
    sizes = [len(choose_images(labels, 10, "bernoulli", seed)) for seed in range(300)]

    error = np.std(sizes) / np.sqrt(len(sizes))
    assert abs(np.mean(sizes) - expected_size(labels, 10)) < 4 * error
    assert len(set(sizes)) > 5
    assert expected_size(labels, 1000) == sum(bool(patterns) for patterns in labels.values())


def test_one_image_of_each_pattern_is_the_least() -> None:
    """None is a mistake."""
    with pytest.raises(ValueError, match="at least one image"):
        choose_images({}, 0, "quota", 0)
