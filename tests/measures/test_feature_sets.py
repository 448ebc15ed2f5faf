"""fid, gc_fid and kid: distances of sets of images, over categories or over all samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import load_link
from pytest_cepbench.errors import MeasurementError, SuiteError, UnscoredError
from pytest_cepbench.gate import (
    Policy,
    Verdict,
    dump_baseline,
    judge,
    load_baseline,
    record_of,
)
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.metrics.set_distances import gc_fid_at_t
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.metrics.feature_sets import frechet_distance, kernel_distance
from tests.suites.world import LOSSY, SETS, SUITE, Staged, stage, vector

METRICS = f"""\
{SETS}[metrics.failures]
"""

BLANK = SUITE.replace('generator = "shapes:"', 'generator = "shapes:?blank=0.2"')
"""A generator that draws nothing now and then."""

INCEPTION = """\
[encoders]
inception = "cleanfid:?weights={place}"
[metrics.gc_fid]
encoder = {wanted}
"""


@pytest.fixture
def staged(tmp_path: Path, store: Store) -> Staged:
    """Lossy chains, told by distances."""
    return stage(tmp_path / "suite", SUITE + METRICS, store)


def _features(staged: Staged, category: str | None, generation: int) -> Any:
    """(n, D) features of every image at a generation, collected by hand."""
    chain_data = staged.run.chain_data
    samples = chain_data.dataset.samples
    if category is not None:
        samples = chain_data.dataset.in_category(category)
    chains = chain_data.chains("image", samples).values()
    rows = [vector(load_link(c, generation, chain_data.store)) for c in chains if c.has(generation)]
    return np.array(rows, np.float32)


def _distance(staged: Staged, category: str | None, generation: int) -> float:
    return frechet_distance(_features(staged, category, 0), _features(staged, category, generation))


EXPECTED: dict[str, Callable[[Staged, str | None], float]] = {
    "gc_fid": lambda s, c: gc_fid_at_t(np.array([_distance(s, c, 2), _distance(s, c, 4)])),
    "fid": lambda s, c: _distance(s, c, 2),
    "last": lambda s, c: _distance(s, c, 4),
    "kid": lambda s, c: kernel_distance(_features(s, c, 0), _features(s, c, 2)),
}
"""Each distance, on features that were collected by hand; of a category, or of all samples."""


@pytest.mark.parametrize("metric", EXPECTED)
def test_a_category_has_the_distance_of_its_images(staged: Staged, metric: str) -> None:
    """All images of the iteration from all starts, in the metric's own iteration."""
    for category in ("a", "b"):
        measured = staged.measure(f"{category}-{metric}")
        expected = EXPECTED[metric](staged, category)
        assert measured.value == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert set(measured.scores) == {category}
        assert set(measured.scores[category].values()) == {measured.value}
    assert abs(EXPECTED[metric](staged, "a") - EXPECTED[metric](staged, "b")) > 1e-4


@pytest.mark.parametrize("metric", EXPECTED)
def test_the_whole_is_the_mean_of_the_categories(staged: Staged, metric: str) -> None:
    """As in GenCeption's Table 2; n counts the images of each category."""
    measured = staged.measure(f"overall-{metric}")
    means = [EXPECTED[metric](staged, category) for category in ("a", "b")]
    assert measured.value == pytest.approx(np.mean(means), rel=1e-5, abs=1e-6)
    counts = {name: len(staged.run.dataset.in_category(name)) for name in ("a", "b")}
    assert (measured.n, measured.sizes) == (sum(counts.values()), counts)


def test_a_chain_that_stopped_has_no_image_in_the_set(tmp_path: Path, store: Store) -> None:
    """The sets shrink from there on, their sizes are said, and the distance is that of the rest."""
    staged = stage(tmp_path / "suite", BLANK + METRICS, store)
    chains = staged.run.chain_data.chains("image", staged.run.dataset.samples).values()
    left = [sum(chain.has(generation) for chain in chains) for generation in (0, 2, 4)]
    assert left[0] == 12 > left[1] >= left[2] > 2
    measured = staged.measure("overall-pooled")
    assert measured.value == pytest.approx(EXPECTED["gc_fid"](staged, None), rel=1e-5)
    width = len(_features(staged, None, 0)[0])
    assert measured.identity["sets"] == f"overall 12 against {left[1]}, {left[2]} (D = {width})"
    assert measured.notes == (f"images of overall: 12 against {left[1]}, {left[2]} (D = {width})",)
    assert measured.failures == {"blank-image": 12 - left[2]}
    assert staged.measure("overall-failures").value == pytest.approx((12 - left[2]) / 12, abs=0.1)
    kid = staged.measure("a-kid")
    assert kid.value == pytest.approx(EXPECTED["kid"](staged, "a"), abs=1e-6)


def test_sets_of_other_sizes_are_incomparable(tmp_path: Path, store: Store) -> None:
    """A distance's bias depends on N: a smaller set is never better or worse than the baseline."""
    accepted = stage(tmp_path / "one", SUITE + METRICS, store).measure("overall-pooled")
    baseline = load_baseline(dump_baseline(record_of(accepted)), accepted.key, "x")
    assert judge(accepted, baseline, Policy()).verdict is Verdict.HELD
    choices = RoleChoices(model="shapes:?blank=0.2", role="generator", roles={"describer": LOSSY})
    fewer = stage(tmp_path / "two", SUITE + METRICS, store, choices).measure("overall-pooled")
    judgement = judge(fewer, baseline, Policy())
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert any(
        reason.startswith("sets: baseline overall 12 against 12") for reason in judgement.reasons
    )


def test_fewer_than_two_images_are_no_set(tmp_path: Path, store: Store) -> None:
    """No covariance, so no distance: the error counts what stopped the chains."""
    text = BLANK.replace("blank=0.2", "blank=1.0") + METRICS
    staged = stage(tmp_path / "suite", text, store)
    with pytest.raises(
        MeasurementError,
        match=r"GC_FID@2 \[shapes\] needs at least 2 images in every set, and there are 12, 0, 0 "
        r"\(chains that stopped: \{'blank-image': 12\}\)",
    ):
        staged.measure("overall-pooled")
    with pytest.raises(MeasurementError, match="there are 10, 0 "):
        staged.measure("a-kid")
    text = text.replace("blank=1.0", "blank=0.8")  # which leaves some for one iteration
    with pytest.raises(MeasurementError, match="there are 12, 2, 1 "):
        stage(tmp_path / "later", text, store).measure("overall-pooled")


def test_a_vector_that_is_none_is_left_out_and_counted(tmp_path: Path, store: Store) -> None:
    """What the encoder fails on is in no set; more than a fiftieth of the images is an error."""
    text = SUITE.replace(
        'encoder = "shapes:"', 'encoder = "python:tests.measures.test_feature_sets:picky"'
    )
    staged = stage(tmp_path / "suite", text + METRICS, store)
    with pytest.raises(UnscoredError, match=r"the encoder .* failed at 1 of 12 .*1 nan-vector"):
        staged.measure("overall-pooled")
    measure = staged.run.measures["pooled"]
    measured = measure.measure(staged.cases["overall-pooled"], staged.run.chain_data)
    assert measured.identity["sets"].startswith("overall 11 against 12, 12 ")


class Picky:
    """The embedded encoder, which gives no vector for the first image that it ever sees."""

    fingerprint = "picky/1"

    def __init__(self) -> None:
        self.seen = 0

    def encode_images(self, images: Any) -> Any:
        """(n, D), one row NaN."""
        rows = np.array([vector(image) for image in images])
        if not self.seen:
            rows[0] = np.nan
        self.seen += len(images)
        return rows

    def encode_texts(self, texts: Any) -> Any:
        """(n, D)."""
        return np.array([vector(text) for text in texts])


def picky() -> Picky:
    """A picky encoder."""
    return Picky()


@pytest.mark.parametrize(
    ("wanted", "taken", "label"),
    [
        ('["inception", "encoder"]', "encoder", "GC_FID@2 [shapes]"),
        ('["encoder", "inception"]', "encoder", "GC_FID@2 [shapes]"),
        ('["nowhere", "encoder"]', "encoder", "GC_FID@2 [shapes]"),
        ('"inception"', "inception", "GC_FID@2 [Inception]"),
        ('["nowhere", "inception"]', "inception", "GC_FID@2 [Inception]"),
    ],
)
def test_the_first_encoder_that_is_here_is_taken(
    tmp_path: Path, store: Store, wanted: str, taken: str, label: str
) -> None:
    """Without clean-fid's weights the next listed; where none is here the last, to be named."""
    text = SUITE + INCEPTION.format(place=tmp_path / "none", wanted=wanted)
    measure = stage(tmp_path / "suite", text, store).run.measures["gc_fid"]
    assert (readers_of(measure.required_features(None)), measure.label) == ((taken,), label)


def test_weights_that_are_here_are_preferred(tmp_path: Path, store: Store) -> None:
    """With the file in its place the list's first encoder is taken, by name."""
    (tmp_path / "inception-2015-12-05.pt").write_bytes(b"weights")
    text = SUITE + INCEPTION.format(place=tmp_path, wanted='["inception", "encoder"]')
    measure = stage(tmp_path / "suite", text, store).run.measures["gc_fid"]
    assert (readers_of(measure.required_features(None)), measure.label) == (
        ("inception",),
        "GC_FID@2 [Inception]",
    )


def test_a_list_of_no_encoders_is_refused(tmp_path: Path, store: Store) -> None:
    """By suite and metric."""
    text = SUITE + "[metrics.fid]\nencoder = []\n"
    with pytest.raises(SuiteError, match=r"'world', metric 'fid': encoder = \[\] names none"):
        stage(tmp_path / "suite", text, store)


@pytest.mark.parametrize("metric", ["gc_fid", "kid", "pooled"])
def test_a_distance_does_not_depend_on_what_was_measured_before(
    tmp_path: Path, store: Store, metric: str
) -> None:
    """To the last bit: another worker has met the categories in another order, or none of them."""
    features = []
    for order in ((), ("a", "b"), ("b", "a")):
        staged = stage(tmp_path / "suite", SUITE + METRICS, store)
        for category in order:
            staged.measure(f"{category}-{metric}")
        measured = staged.measure(f"overall-{metric}")
        features.append((measured.curve, measured.blocks))
    assert features[0] == features[1] == features[2]
