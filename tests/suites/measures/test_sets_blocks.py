"""Blocks of set metrics (`spread = "jackknife"`): a distance without each tenth of the samples."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import (
    Measurement,
    Policy,
    Verdict,
    dump_baseline,
    judge,
    load_baseline,
    record_of,
)
from pytest_cepbench.metrics.frechet import frechet_distance, gc_fid_at_t
from pytest_cepbench.metrics.kernel_distance import kernel_distance
from pytest_cepbench.metrics.uncertainty import blocks_of, pseudo_values
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.measures import feature_sets
from tests.suites.world import LOSSY, SUITE, Staged, stage, vector

METRICS = """\
[metrics.gc_fid]
spread = "jackknife"
[metrics.fid]
spread = "jackknife"
[metrics.last]
kind = "fid"
at = 2
spread = "jackknife"
[metrics.kid]
spread = "jackknife"
[metrics.pooled]
kind = "gc_fid"
pool = "samples"
spread = "jackknife"
"""

BLANK = SUITE.replace('generator = "shapes:"', 'generator = "shapes:?blank=0.15"')
"""A generator that draws nothing now and then."""

HERE = "python:tests.suites.measures.test_sets_blocks"


def _features(staged: Staged, samples: list[Sample], generation: int) -> Any:
    """(n, D) features of the images that these samples' chains have, collected by hand."""
    chain_data = staged.run.chain_data
    chains = chain_data.chains("image", samples).values()
    rows = [vector(load_link(c, generation, chain_data.store)) for c in chains if c.has(generation)]
    return np.array(rows, np.float32)


def _distance(staged: Staged, samples: list[Sample], generation: int) -> float:
    return frechet_distance(_features(staged, samples, 0), _features(staged, samples, generation))


EXPECTED: dict[str, Callable[[Staged, list[Sample]], float]] = {
    "gc_fid": lambda s, c: gc_fid_at_t(np.array([_distance(s, c, 2), _distance(s, c, 4)])),
    "fid": lambda s, c: _distance(s, c, 2),
    "last": lambda s, c: _distance(s, c, 4),
    "kid": lambda s, c: kernel_distance(_features(s, c, 0), _features(s, c, 2)),
}
"""Each number of some samples alone."""


def _by_hand(staged: Staged, metric: str, samples: list[Sample]) -> dict[str, Any]:
    """Pseudo-values from distances of the remaining samples, each from the beginning."""
    block = blocks_of([sample.unit for sample in samples])
    number = EXPECTED[metric]
    rests = [
        number(staged, [sample for sample in samples if block[sample.unit] != left_out])
        for left_out in sorted(set(block.values()))
    ]
    values = pseudo_values(number(staged, samples), rests)
    return {
        str(name): pytest.approx(value, rel=1e-5, abs=1e-4) for name, value in enumerate(values)
    }


@pytest.mark.slow
@pytest.mark.parametrize("text", [SUITE, BLANK], ids=["whole", "stopped"])
@pytest.mark.parametrize("metric", EXPECTED)
def test_blocks_are_what_the_metric_is_without_them(
    tmp_path: Path, store: Store, metric: str, text: str
) -> None:
    """Starts and images of a block leave together, in each category for itself."""
    staged = stage(tmp_path / "suite", text + METRICS, store)
    of = {name: list(staged.run.dataset.in_category(name)) for name in ("a", "b")}
    expected = {name: _by_hand(staged, metric, samples) for name, samples in of.items()}
    assert staged.measure(f"overall-{metric}").blocks == expected
    assert staged.measure(f"a-{metric}").blocks == {"a": expected["a"]}
    assert [len(blocks) for blocks in expected.values()] == [5, 4]
    spread = [value.expected for value in expected["a"].values()]
    assert np.ptp(spread) > 1e-3


def test_one_set_of_all_samples_has_blocks_of_all(tmp_path: Path, store: Store) -> None:
    """`pool = "samples"`: the blocks are those of the whole, under its name."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    samples = list(staged.run.dataset.samples)
    measured = staged.measure("overall-pooled")
    assert measured.blocks == {"overall": _by_hand(staged, "gc_fid", samples)}
    assert len(measured.blocks["overall"]) == 6


def test_a_stopped_chain_moves_no_sample_to_another_block(tmp_path: Path, store: Store) -> None:
    """Blocks are the case's, whatever came of the chains: those of two checkpoints are pairs."""
    whole = stage(tmp_path / "whole", SUITE + METRICS, store).measure("overall-fid")
    fewer = stage(tmp_path / "fewer", BLANK + METRICS, store).measure("overall-fid")
    assert fewer.failures
    assert {c: list(b) for c, b in fewer.blocks.items()} == {
        category: [str(number) for number in range(len(blocks))]
        for category, blocks in whole.blocks.items()
    }


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


def test_samples_of_a_cluster_leave_together(tmp_path: Path, store: Store) -> None:
    """Five clusters make two blocks; a category that is one cluster makes none, and says so."""
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:clustered") + METRICS
    staged = stage(tmp_path / "suite", text, store)
    measured = staged.measure("overall-fid")
    in_a = list(staged.run.dataset.in_category("a"))
    assert measured.blocks == {"a": _by_hand(staged, "fid", in_a)}
    assert list(measured.blocks["a"]) == ["0", "1"]
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


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("fid", "a set of 3 has 1 samples left without its largest block"),
        ("gc_fid", "a set of 3 has 1 samples left without its largest block"),
        ("kid", "without part [01] a block of the kernel distance keeps 1 and [12] samples"),
    ],
)
def test_a_rest_of_one_image_leaves_the_category_without_bounds(
    tmp_path: Path, store: Store, metric: str, why: str
) -> None:
    """Three images in two blocks: the distance is there, its blocks are not; the note says why."""
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:four")
    text = text.replace('encoder = "shapes:"', f'encoder = "{HERE}:fastidious"')
    staged = stage(tmp_path / "suite", text + METRICS, store)
    measure, case = staged.run.measures[metric], staged.cases[f"overall-{metric}"]
    measured = measure.measure(case, staged.run.chain_data)  # the run refuses so many failures
    assert measured.identity["sets"].startswith("a 3 against ")
    assert (len(measured.scores["a"]), measured.blocks) == (1, {})
    (note,) = [note for note in measured.notes if note.startswith("no bounds for a: ")]
    assert re.fullmatch(f"no bounds for a: {why}", note)


def test_a_distance_that_two_metrics_have_is_computed_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FID at 1, FID at 2 and GC_FID of one encoder share their iterations, in either order."""
    computed = []

    def counted(x: Any, y: Any) -> float:
        computed.append(len(x))
        return frechet_distance(x, y)

    monkeypatch.setattr(feature_sets, "frechet_distance", counted)
    for order in (("fid", "gc_fid", "last"), ("gc_fid", "last", "fid")):
        computed.clear()
        staged = stage(tmp_path / "suite", SUITE + METRICS, store)
        for metric in order:
            staged.measure(f"overall-{metric}")
            staged.measure(f"a-{metric}")
        assert len(computed) == 4  # two iterations of each of two categories
        staged.measure("overall-pooled")
        assert len(computed) == 6


def test_a_part_of_the_samples_is_another_set(tmp_path: Path, store: Store) -> None:
    """What is remembered of some samples is not taken for that of others of the same name."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    case, run = staged.cases["a-fid"], staged.run
    whole = run.measures["fid"].measure(case, run.chain_data)
    look = run.chain_data.narrowed(5)
    part = run.measures["fid"].measure(case, look)
    kept = list(look.dataset.in_category("a"))
    assert (part.sizes, whole.sizes) == ({"a": 5}, {"a": 10})
    assert part.scores["a"]["all images"] == pytest.approx(EXPECTED["fid"](staged, kept), rel=1e-5)
    assert part.blocks == {"a": _by_hand(staged, "fid", kept)}


def test_how_blocks_are_left_out_is_part_of_what_is_compared(tmp_path: Path, store: Store) -> None:
    """Other blocks have other pseudo-values: formula, iteration, jackknife are in the identity."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    assert {name: measure.identity for name, measure in staged.run.measures.items()} == {
        "gc_fid": "gc_fid/2 at 2, over categories, jackknife/1 of 10 blocks",
        "fid": "fid/2 at 1, over categories, jackknife/1 of 10 blocks",
        "last": "fid/2 at 2, over categories, jackknife/1 of 10 blocks",
        "kid": "kid/2 at 1, over categories, jackknife/1 of 10 blocks",
        "pooled": "gc_fid/2 at 2, over samples, jackknife/1 of 10 blocks",
    }


def many() -> Dataset:
    """Sixty scenes in one category."""
    chosen = load_shapes(samples_per_category=12, seed=5).samples[:60]
    return Dataset("many", {}, tuple(replace(s, categories=("a",)) for s in chosen))


@pytest.mark.slow
def test_the_gate_has_bounds_on_a_distance(tmp_path: Path, store: Store) -> None:
    """A generator that is as good is told from one that is much worse, by blocks alone."""

    def pooled(generator: str) -> Measurement:
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
