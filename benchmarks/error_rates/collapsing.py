"""The figures of diversity: ends of real chains, drawn again with replacement as whole sets.

A set has no score per sample. So a simulated run draws samples, measures both sets as the metric
does, each block left out in turn, and goes through `judge` from the pseudo-values to the verdict.
There is no drift where the two ends of each sample are exchanged with probability one half. The
drift of sets of n samples is the mean over further draws.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.error_rates.embedded import BASELINE, staged_run
from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.verdicts import FAILS, PASSES
from benchmarks.error_rates.worlds import Array
from pytest_cepbench.gate import CaseKey, Measurement, Policy, Verdict, judge, record_of
from pytest_cepbench.metrics.diversity import DiversityTotals
from pytest_cepbench.metrics.uncertainty import blocks_of
from pytest_cepbench.store import Store
from pytest_cepbench.suites.measures.base import scored_blocks

COLLAPSED = f"{BASELINE}&collapse=0.1"
"""A description in ten is of one and the same scene."""

_SLOWER = 4  # a verdict takes 22 eigendecompositions: a quarter of the runs

_DRIFT_DRAWS = 50

_Score = tuple[Callable[[DiversityTotals], float], Callable[[DiversityTotals, int], float]]

_SCORES: dict[str, _Score] = {
    "Vendi(3)": (DiversityTotals.vendi_score, DiversityTotals.vendi_score_without),
    "pairwise distance(3)": (DiversityTotals.mean_distance, DiversityTotals.mean_distance_without),
}


@dataclass(frozen=True)
class EndSets:
    """Ends of the same samples by two models. before, now: (units, D)."""

    name: str
    before: Array
    now: Array

    def drift(self, generator: np.random.Generator, n: int) -> float:
        """Mean drop of sets of n samples."""
        whole = _SCORES[self.name][0]
        drops = []
        for _ in range(_DRIFT_DRAWS):
            units = generator.integers(len(self.before), size=n)
            none = np.empty(0, np.intp)
            before, now = (DiversityTotals(v[units], none) for v in (self.before, self.now))
            drops.append(whole(before) - whole(now))
        return float(np.mean(drops))

    def verdict(
        self, generator: np.random.Generator, n: int, policy: Policy, *, drifts: bool
    ) -> Verdict:
        """Of one case with n samples that are drawn now."""
        units = generator.integers(len(self.before), size=n)
        before, now = self.before[units], self.now[units]
        if not drifts:
            turned = generator.random((n, 1)) < 0.5
            before, now = np.where(turned, now, before), np.where(turned, before, now)
        candidate, baseline = self._measured(now, "candidate"), self._measured(before, "baseline")
        return judge(candidate, record_of(baseline), policy).verdict

    def _measured(self, vectors: Array, model: str) -> Measurement:
        whole, without = _SCORES[self.name]
        names = [str(row) for row in range(len(vectors))]
        block_of = blocks_of(names)
        blocks = np.array([block_of[name] for name in names], dtype=np.intp)
        totals = DiversityTotals(vectors, blocks)
        value = whole(totals)
        rest = [without(totals, block) for block in range(max(block_of.values()) + 1)]
        return Measurement(
            key=CaseKey("simulated", "overall", "diversity"),
            label="diversity",
            higher_is_better=True,
            scores={"overall": {"all artifacts": value}},
            identity={"samples": str(len(vectors))},
            model={"identity": model},
            sizes={"overall": len(vectors)},
            blocks={"overall": scored_blocks(value, rest)},
        )


def end_sets(samples: int) -> list[EndSets]:
    """Play the chains. samples: of each of the world's eight categories."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:

        def ends(describer: str, seed: int) -> Array:
            run = staged_run(Path(folder), store, samples, describer, seed)
            data, rows = run.chain_data, {}
            for shard in data.features("image", "encoder", 6, data.dataset.samples):
                rows.update({chain.sample.id: vector for chain, vector in shard})
            return np.array([rows[name] for name in sorted(rows)], dtype=np.float64)

        before, now = ends(BASELINE, 0), ends(COLLAPSED, 3)
    return [EndSets(name, before, now) for name in _SCORES]


def figures(sets: EndSets, n: int, settings: Settings) -> Iterator[Figure]:
    """Promises of one case, and detection, of one score at one n."""
    generator = np.random.default_rng([settings.seed, *map(ord, sets.name), n])
    drift = sets.drift(generator, n)
    world = f"embedded {sets.name}"
    runs = max(2, settings.runs // _SLOWER)

    def rate(cell: Cell, wanted: set[Verdict], what: str, promise: float | None) -> Figure:
        policy = Policy(tolerance=cell.tolerance, alpha=settings.alpha)
        hits = [
            sets.verdict(generator, n, policy, drifts=cell.drift > 0) in wanted for _ in range(runs)
        ]
        return cell.rate(what, np.array(hits), promise)

    still = Cell("regression", world, n, 1, 0.0, 0.0)
    yield rate(still, FAILS, "false failures", settings.alpha)
    at = Cell("noninferiority", world, n, 1, drift, drift)
    yield rate(at, PASSES, "false passes", settings.alpha)
    for times in (2, 4):
        cell = Cell("regression", world, n, 1, drift, drift / times)
        yield rate(cell, FAILS, "detected", None)
