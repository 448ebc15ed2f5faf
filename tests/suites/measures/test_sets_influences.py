"""Scores of samples that distances of sets have: their influences, by unit, in every category."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.gate import Measurement, Policy, Verdict, judge, record_of
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.metrics.frechet_influence import frechet_influences
from pytest_cepbench.metrics.kernel_distance import KernelBlocks
from pytest_cepbench.store import Store
from tests.suites.measures.test_sets_blocks import BLANK, HERE, METRICS, _features
from tests.suites.world import SUITE, stage

INFLUENCE = METRICS.replace('spread = "jackknife"', 'spread = "influence"')


def _by_hand(metric: str, starts: Any, images: Any) -> Any:
    """(n,) the score of each pair of a start and its image."""
    if metric == "kid":
        sums = KernelBlocks(len(starts), len(images))
        sums.add(starts, images)
        return sums.distance() + sum(sums.influences())
    result = frechet_influences(starts, images)
    return result.distance + result.x + result.y


@pytest.mark.parametrize("metric", ["fid", "kid", "gc_fid"])
def test_every_sample_has_its_part_of_the_distance(
    tmp_path: Path, store: Store, metric: str
) -> None:
    """By its name, in every category it is in; their mean is the distance."""
    staged = stage(tmp_path / "suite", SUITE + INFLUENCE, store)
    measured = staged.measure(f"overall-{metric}")
    for category in ("a", "b"):
        samples = list(staged.run.dataset.in_category(category))
        starts, first, last = (_features(staged, samples, generation) for generation in (0, 2, 4))
        scores = [_by_hand(metric, starts, first), _by_hand(metric, starts, last)]
        expected = (scores[0] + 2 * scores[1]) / 3 if metric == "gc_fid" else scores[0]
        blocks = measured.blocks[category]
        assert blocks == {
            f"{SAMPLE}{sample.id}": pytest.approx(score, rel=1e-5, abs=2e-6)
            for sample, score in zip(samples, expected.tolist(), strict=True)
        }
        whole = measured.scores[category]["all images"]
        assert np.mean(list(blocks.values())) == pytest.approx(whole, abs=2e-6)


def test_the_distances_are_those_of_the_jackknife(tmp_path: Path, store: Store) -> None:
    """What bounds are made of changes no number, only the identity by which they are compared."""
    ours = stage(tmp_path / "ours", SUITE + INFLUENCE, store)
    theirs = stage(tmp_path / "theirs", SUITE + METRICS, store)
    for metric in ("fid", "gc_fid", "kid", "pooled", "last"):
        case = f"overall-{metric}"
        assert ours.measure(case).scores == theirs.measure(case).scores
    assert ours.run.measures["pooled"].identity == "gc_fid/2 at 2, over samples, influence/1"
    judgement = judge(
        ours.measure("a-fid"), record_of(theirs.measure("a-fid")), Policy(tolerance=0.05)
    )
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "influence/1" in judgement.reasons[0]


def test_seeds_of_a_start_are_one_unit(tmp_path: Path, store: Store) -> None:
    """Five clusters in a: five scores, whose mean is the distance; b is one, and has no bounds."""
    text = SUITE.replace("python:tests.suites.world:overlapping", f"{HERE}:clustered") + INFLUENCE
    measured = stage(tmp_path / "suite", text, store).measure("overall-fid")
    assert list(measured.blocks) == ["a"]
    assert list(measured.blocks["a"]) == [f"{SAMPLE}c{n}" for n in range(5)]
    mean = np.mean(list(measured.blocks["a"].values()))
    assert mean == pytest.approx(measured.scores["a"]["all images"], abs=2e-6)
    assert measured.notes[-1].startswith("no bounds for b: 1 independent samples")


def test_a_stopped_chain_adds_its_start_alone(tmp_path: Path, store: Store) -> None:
    """Every sample keeps its name among the scores, whatever came of its chain."""
    whole = stage(tmp_path / "whole", SUITE + INFLUENCE, store).measure("overall-fid")
    fewer = stage(tmp_path / "fewer", BLANK + INFLUENCE, store).measure("overall-fid")
    assert fewer.failures
    assert {c: list(b) for c, b in fewer.blocks.items()} == {
        category: list(blocks) for category, blocks in whole.blocks.items()
    }


def test_a_sample_in_two_categories_is_one_unit_of_the_gate(tmp_path: Path, store: Store) -> None:
    """Twelve samples, six of them in both categories, are twelve units, not eighteen."""

    def measured(seed: int) -> Measurement:
        text = SUITE.replace("recolor=0.2", f"recolor=0.{seed}") + INFLUENCE
        return stage(tmp_path / f"{seed}", text, store).measure("overall-fid")

    before, now = measured(2), measured(6)
    judgement = judge(now, record_of(before), Policy(tolerance=0.05))
    assert judgement.verdict is not Verdict.INCOMPARABLE
    assert judgement.units == 12
    assert judgement.low is not None
    assert judgement.high is not None
    assert judgement.difference is not None
    assert judgement.low < judgement.difference < judgement.high


def test_the_kernel_distance_keeps_its_blocks_by_default(tmp_path: Path, store: Store) -> None:
    """Bounds by its projection erred too often where a checkpoint had drifted, as was measured."""
    text = SUITE + METRICS.replace('spread = "jackknife"\n', "")
    measures = stage(tmp_path / "suite", text, store).run.measures
    assert {name: measure.identity.rpartition(", ")[2] for name, measure in measures.items()} == {
        "gc_fid": "influence/1",
        "fid": "influence/1",
        "last": "influence/1",
        "kid": "jackknife/1 of 10 blocks",
        "pooled": "influence/1",
    }
