"""fid, gc_fid, kid: distances of sets of images, and what their bounds are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import MeasurementError, SuiteError, UnscoredError
from pytest_cepbench.gate import Policy, Verdict, dump_baseline, judge, load_baseline, record_of
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures import set_measures
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.metrics.set_distances import FrechetInfluences, frechet_influences, gc_fid_at_t
from pytest_cepbench.metrics.uncertainty import blocks_of, pseudo_values
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace
from tests.metrics.test_set_distances import frechet_distance, kernel_distance
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


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Staged:
    """Lossy chains, told by distances."""
    return stage(tmp_path_factory.mktemp("suite"), SUITE + METRICS, store)


def _features(staged: Staged, category: str | None, generation: int) -> Any:
    """(n, D) features of every image at a generation, collected by hand."""
    dataset = staged.run.dataset
    samples = dataset.samples if category is None else dataset.in_category(category)
    return _rows(staged, samples, generation)


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
    """All images of the metric's iteration from all starts; the whole is the categories' mean."""
    means = [EXPECTED[metric](staged, category) for category in ("a", "b")]
    assert abs(means[0] - means[1]) > 1e-4
    for category, expected in zip(("a", "b"), means, strict=True):
        measured = staged.measure(f"{category}-{metric}")
        assert measured.value == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert measured.scores == {category: {"all images": measured.value}}
    measured = staged.measure(f"overall-{metric}")
    assert measured.value == pytest.approx(np.mean(means), rel=1e-5, abs=1e-6)
    counts = {name: len(staged.run.dataset.in_category(name)) for name in ("a", "b")}
    assert (measured.n, measured.sizes) == (sum(counts.values()), counts)


def test_a_chain_that_stopped_has_no_image_in_the_set(tmp_path: Path, store: Store) -> None:
    """The sets shrink from there on, their sizes are said, and the distance is that of the rest."""
    staged = stage(tmp_path / "suite", BLANK + METRICS, store)
    chains = staged.run.data.chains("image", staged.run.dataset.samples).values()
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


def test_sets_of_other_sizes_are_incomparable(tmp_path: Path, store: Store, staged: Staged) -> None:
    """A distance's bias depends on N: a smaller set is never better or worse than the baseline."""
    accepted = staged.measure("overall-pooled")
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


@pytest.mark.parametrize(
    ("wanted", "here", "taken", "features"),
    [
        ('["inception", "encoder"]', False, "encoder", "shapes"),
        ('["inception", "encoder"]', True, "inception", "Inception"),
        ('["encoder", "inception"]', False, "encoder", "shapes"),
        ('["nowhere", "encoder"]', False, "encoder", "shapes"),
        ('["nowhere", "inception"]', False, "inception", "Inception"),
    ],
)
def test_the_first_encoder_that_is_here_is_taken(
    tmp_path: Path, store: Store, wanted: str, here: bool, taken: str, features: str
) -> None:
    """Without clean-fid's weights the next listed; where none is here the last, to be named."""
    if here:
        (tmp_path / "inception-2015-12-05.pt").write_bytes(b"weights")
    text = SUITE + INCEPTION.format(place=tmp_path, wanted=wanted)
    measure = stage(tmp_path / "suite", text, store).run.measures["gc_fid"]
    assert readers_of(measure.required_features(None)) == (taken,)
    assert measure.label == f"GC_FID@2 [{features}]"
    with pytest.raises(SuiteError, match=r"'world', metric 'fid': encoder = \[\] names none"):
        stage(tmp_path / "none", SUITE + "[metrics.fid]\nencoder = []\n", store)


def test_a_distance_does_not_depend_on_what_was_measured_before(
    tmp_path: Path, store: Store
) -> None:
    """To the last bit: another worker has met the categories in another order, or none of them."""
    metrics = ("gc_fid", "kid", "pooled")
    features = []
    for order in ((), ("a", "b"), ("b", "a")):
        staged = stage(tmp_path / "suite", SUITE + METRICS, store)
        for category in order:
            for metric in metrics:
                staged.measure(f"{category}-{metric}")
        measured = [staged.measure(f"overall-{metric}") for metric in metrics]
        features.append([(own.curve, own.blocks) for own in measured])
    assert features[0] == features[1] == features[2]


HERE = "python:tests.measures.test_set_measures"


def _rows(staged: Staged, samples: Sequence[Sample], generation: int) -> Any:
    """(n, D) features of the images that these samples' chains have, collected by hand."""
    chain_data = staged.run.data
    chains = chain_data.chains("image", samples).values()
    rows = [vector(load_link(c, generation, chain_data.store)) for c in chains if c.has(generation)]
    return np.array(rows, np.float32)


@pytest.mark.parametrize("metric", ["fid", "last", "gc_fid"])
def test_every_sample_has_its_part_of_the_distance(staged: Staged, metric: str) -> None:
    """By its name, in every category it is in: the distance and the influences of its start and its
    image; their mean is the distance.
    """
    measured = staged.measure(f"overall-{metric}")
    for category in ("a", "b"):
        samples = list(staged.run.dataset.in_category(category))
        starts, *images = (_rows(staged, samples, generation) for generation in (0, 2, 4))
        results = [frechet_influences(starts, rows) for rows in images]
        first, last = (result.distance + result.x + result.y for result in results)
        scores = {"fid": first, "last": last}.get(metric, (first + 2 * last) / 3)
        blocks = measured.blocks[category]
        assert blocks == {
            f"{SAMPLE}{sample.id}": pytest.approx(score, rel=1e-5, abs=2e-6)
            for sample, score in zip(samples, scores.tolist(), strict=True)
        }
        whole = measured.scores[category]["all images"]
        assert np.mean(list(blocks.values())) == pytest.approx(whole, abs=2e-6)


def clustered() -> Dataset:
    """Sixteen scenes, seeds of five starts; another four that have one start between them."""
    chosen = load_shapes(samples_per_category=4, seed=5).samples[:20]
    samples = [
        replace(sample, categories=("a",) if n < 16 else ("b",), cluster=f"c{n % 5}")
        if n < 16
        else replace(sample, categories=("b",), cluster="one")
        for n, sample in enumerate(chosen)
    ]
    return Dataset("clustered", {}, tuple(samples))


def test_samples_of_a_cluster_are_one_unit(tmp_path: Path, store: Store) -> None:
    """Five clusters make five scores, or two blocks; a category of one makes none, and says so. The
    pseudo-values of KID are those of distances of the remaining samples, each from the beginning.
    """
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:clustered") + METRICS
    staged = stage(tmp_path / "suite", text, store)
    in_a = list(staged.run.dataset.in_category("a"))
    fid, kid = (staged.measure(f"overall-{metric}") for metric in ("fid", "kid"))
    block = blocks_of([sample.unit for sample in in_a])
    whole, *rests = (
        kernel_distance(*(_rows(staged, kept, generation) for generation in (0, 2)))
        for kept in (in_a, *([s for s in in_a if block[s.unit] != out] for out in (0, 1)))
    )
    assert set(block.values()) == {0, 1}
    values = map(str, range(2)), pseudo_values(whole, rests).tolist()
    expected = dict(zip(*values, strict=True))
    assert kid.blocks == {"a": pytest.approx(expected, rel=1e-5, abs=1e-4)}
    assert list(fid.blocks) == ["a"]
    assert list(fid.blocks["a"]) == [f"{SAMPLE}c{n}" for n in range(5)]
    mean = np.mean(list(fid.blocks["a"].values()))
    assert mean == pytest.approx(fid.scores["a"]["all images"], abs=2e-6)
    for measured in (fid, kid):
        assert measured.notes[-1] == (
            "no bounds for b: 1 independent samples make no blocks, at least 4 would"
        )


def four() -> Dataset:
    """Four scenes: two blocks of two."""
    chosen = load_shapes(samples_per_category=1, seed=5).samples[:4]
    return Dataset("four", {}, tuple(replace(s, categories=("a",)) for s in chosen))


class Fastidious:
    """The embedded encoder, which gives no vector for the image of the first of the four."""

    fingerprint = "fastidious/1"

    def encode_images(self, images: Any) -> Any:
        """(n, D), a row of NaN for that image."""
        refused = np.asarray(load_seed_image(four().samples[0]).to_pil())
        rows = np.array([vector(image) for image in images])
        rows[[np.array_equal(np.asarray(image), refused) for image in images]] = np.nan
        return rows

    encode_texts = encode_images


def test_a_vector_that_is_none_is_left_out_and_counted(tmp_path: Path, store: Store) -> None:
    """More than a fiftieth of the images is an error; of few that are left there are no bounds.

    Three images in two blocks: the distance is there, its blocks are not; the note says why.
    """
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:four")
    text = text.replace('encoder = "shapes:"', f'encoder = "{HERE}:Fastidious"')
    staged = stage(tmp_path / "suite", text + METRICS, store)
    with pytest.raises(UnscoredError, match=r"the encoder .* failed at 1 of 4 .*1 nan-vector"):
        staged.measure("overall-pooled")
    measure, case = staged.run.measures["kid"], staged.cases["overall-kid"]
    measured = measure.measure(case, staged.run.data)
    assert measured.identity["sets"].startswith("a 3 against 4 ")
    assert (len(measured.scores["a"]), measured.blocks) == (1, {})
    (note,) = [note for note in measured.notes if note.startswith("no bounds for a: ")]
    why = "without part [01] a block of the kernel distance keeps 1 and [12] samples"
    assert re.fullmatch(f"no bounds for a: {why}", note)


@pytest.mark.parametrize("order", [("fid", "gc_fid", "last"), ("gc_fid", "last", "fid")])
def test_a_distance_that_two_metrics_have_is_computed_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    """FID at 1, FID at 2 and GC_FID of one encoder share their iterations, in either order."""
    computed = []

    def counted(x: Any, y: Any) -> FrechetInfluences:
        computed.append(len(x))
        return frechet_influences(x, y)

    monkeypatch.setattr(set_measures, "frechet_influences", counted)
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    for metric in order:
        staged.measure(f"overall-{metric}")
        staged.measure(f"a-{metric}")
    assert len(computed) == 4  # two iterations of each of two categories
    staged.measure("overall-pooled")
    assert len(computed) == 6


def many() -> Dataset:
    """Sixty scenes in one category."""
    chosen = load_shapes(samples_per_category=12, seed=5).samples[:60]
    return Dataset("many", {}, tuple(replace(s, categories=("a",)) for s in chosen))


@pytest.mark.slow
def test_the_gate_has_bounds_on_a_distance(tmp_path: Path, store: Store) -> None:
    """A generator that is as good is told from one that is much worse."""

    def pooled(generator: str) -> CaseMeasurement:
        text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:many") + METRICS
        choices = RoleChoices(model=generator, role="generator", roles={"describer": LOSSY})
        return stage(tmp_path / "suite", text, store, choices).measure("overall-pooled")

    accepted, worse = pooled("shapes:"), pooled("shapes:?recolor=0.9&move=0.9")
    baseline = load_baseline(dump_baseline(record_of(accepted)), accepted.key, "x")
    policy = Policy(tolerance=0.05)
    assert judge(pooled("shapes:"), baseline, policy).verdict is Verdict.HELD
    judgement = judge(worse, baseline, policy)
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.difference == pytest.approx(accepted.value - worse.value, abs=2e-6)
    assert judgement.difference is not None
    assert judgement.high is not None
    assert judgement.difference < judgement.high < 0
