"""What bounds of set metrics are made of: influences of samples, and for KID ten blocks of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import Policy, Verdict, dump_baseline, judge, load_baseline, record_of
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures import set_measures
from pytest_cepbench.metrics.set_distances import (
    FrechetInfluences,
    frechet_influences,
)
from pytest_cepbench.metrics.uncertainty import blocks_of, pseudo_values
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace
from tests.metrics.feature_sets import kernel_distance
from tests.suites.world import LOSSY, SETS, SUITE, Staged, stage, vector

METRICS = f"""\
{SETS}[metrics.pooled_kid]
kind = "kid"
pool = "samples"
"""

BLANK = SUITE.replace('generator = "shapes:"', 'generator = "shapes:?blank=0.15"')
"""A generator that draws nothing now and then."""

HERE = "python:tests.measures.test_set_parts"


def _features(staged: Staged, samples: list[Sample], generation: int) -> Any:
    """(n, D) features of the images that these samples' chains have, collected by hand."""
    chain_data = staged.run.chain_data
    chains = chain_data.chains("image", samples).values()
    rows = [vector(load_link(c, generation, chain_data.store)) for c in chains if c.has(generation)]
    return np.array(rows, np.float32)


def _kid(staged: Staged, samples: list[Sample]) -> float:
    return kernel_distance(_features(staged, samples, 0), _features(staged, samples, 2))


def _blocks_by_hand(staged: Staged, samples: list[Sample]) -> dict[str, Any]:
    """Pseudo-values of KID from distances of the remaining samples, each from the beginning."""
    block = blocks_of([sample.unit for sample in samples])
    rests = [
        _kid(staged, [sample for sample in samples if block[sample.unit] != left_out])
        for left_out in sorted(set(block.values()))
    ]
    values = pseudo_values(_kid(staged, samples), rests)
    return {
        str(name): pytest.approx(value, rel=1e-5, abs=1e-4) for name, value in enumerate(values)
    }


def _scores_by_hand(staged: Staged, metric: str, samples: list[Sample]) -> dict[str, Any]:
    """The score of each sample: the distance and the influences of its start and its image."""
    starts, *images = (_features(staged, samples, generation) for generation in (0, 2, 4))
    results = [frechet_influences(starts, rows) for rows in images]
    first, last = (result.distance + result.x + result.y for result in results)
    scores = {"fid": first, "last": last}.get(metric, (first + 2 * last) / 3)
    return {
        f"{SAMPLE}{sample.id}": pytest.approx(score, rel=1e-5, abs=2e-6)
        for sample, score in zip(samples, scores.tolist(), strict=True)
    }


@pytest.mark.parametrize("metric", ["fid", "last", "gc_fid"])
def test_every_sample_has_its_part_of_the_distance(
    tmp_path: Path, store: Store, metric: str
) -> None:
    """By its name, in every category it is in; their mean is the distance."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    measured = staged.measure(f"overall-{metric}")
    for category in ("a", "b"):
        samples = list(staged.run.dataset.in_category(category))
        blocks = measured.blocks[category]
        assert blocks == _scores_by_hand(staged, metric, samples)
        whole = measured.scores[category]["all images"]
        assert np.mean(list(blocks.values())) == pytest.approx(whole, abs=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("text", [SUITE, BLANK], ids=["whole", "stopped"])
def test_blocks_are_what_the_metric_is_without_them(
    tmp_path: Path, store: Store, text: str
) -> None:
    """Starts and images of a block leave together, in each category for itself."""
    staged = stage(tmp_path / "suite", text + METRICS, store)
    of = {name: list(staged.run.dataset.in_category(name)) for name in ("a", "b")}
    expected = {name: _blocks_by_hand(staged, samples) for name, samples in of.items()}
    assert staged.measure("overall-kid").blocks == expected
    assert staged.measure("a-kid").blocks == {"a": expected["a"]}
    assert [len(blocks) for blocks in expected.values()] == [5, 4]
    spread = [value.expected for value in expected["a"].values()]
    assert np.ptp(spread) > 1e-3


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
    """Five clusters make five scores, or two blocks; a category of one makes none, and says so."""
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:clustered") + METRICS
    staged = stage(tmp_path / "suite", text, store)
    in_a = list(staged.run.dataset.in_category("a"))
    fid, kid = (staged.measure(f"overall-{metric}") for metric in ("fid", "kid"))
    assert kid.blocks == {"a": _blocks_by_hand(staged, in_a)}
    assert list(kid.blocks["a"]) == ["0", "1"]
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

    def encode_texts(self, texts: Any) -> Any:
        """(n, D)."""
        return np.array([vector(text) for text in texts])


def fastidious() -> Fastidious:
    """The encoder."""
    return Fastidious()


def test_a_rest_of_one_image_leaves_the_category_without_bounds(
    tmp_path: Path, store: Store
) -> None:
    """Three images in two blocks: the distance is there, its blocks are not; the note says why."""
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:four")
    text = text.replace('encoder = "shapes:"', f'encoder = "{HERE}:fastidious"')
    staged = stage(tmp_path / "suite", text + METRICS, store)
    measure, case = staged.run.measures["kid"], staged.cases["overall-kid"]
    measured = measure.measure(case, staged.run.chain_data)  # the run refuses so many failures
    assert measured.identity["sets"].startswith("a 3 against ")
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
