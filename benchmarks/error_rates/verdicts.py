"""Verdicts on simulated cases, by the gate's own bounds and its own table of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.worlds import Array, Layout, World
from pytest_cepbench.gate import Measurement, Policy, Verdict, judge, present, record_of
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.measurement import DECIMALS, CaseKey
from pytest_cepbench.gate.statistics import (
    Bounds,
    Differences,
    holm,
    look_shares,
    look_sizes,
    mean_bounds,
)

Hits = npt.NDArray[np.bool_]

FAILS = {verdict for verdict in Verdict if not present(verdict).passes}
"""What fails a run under the regression gate."""

PASSES = {verdict for verdict in Verdict if present(verdict, strict=True).passes}
"""What passes under the noninferiority gate."""


def any_of_rows(hits: Hits) -> Hits:
    """(runs,) of (runs, cases): whether any case of a run was hit."""
    return np.asarray(hits.any(axis=1))


@dataclass(frozen=True)
class Cases:
    """Paired differences of simulated cases.

    values: (cases, units, seeds), positive is better, rounded as scores are.
    """

    world: World
    values: Array

    @cached_property
    def means_and_errors(self) -> tuple[Array, Array]:
        """(cases,) each: the mean and its standard error.

        Residuals and mean are linear in the values, so those of unit vectors give them all.
        """
        values = self.values.mean(2)
        units = values.shape[1]
        if self.world.layout is None:
            return values.mean(1), values.std(1, ddof=1) / np.sqrt(units)
        basis = [_differences(row[:, None], self.world.layout) for row in np.eye(units)]
        residuals = values @ np.array([d.residuals for d in basis])
        error = np.sqrt((residuals**2).sum(1)) / residuals.shape[1]
        return values @ np.array([d.mean for d in basis]), error

    @classmethod
    def of(cls, world: World, before: Array, now: Array) -> Cases:
        """From scores of shape (..., units, seeds)."""
        drops = np.round(np.round(now, DECIMALS) - np.round(before, DECIMALS), DECIMALS)
        return cls(world, drops.reshape(-1, *drops.shape[-2:]))

    def bounds(self, case: int, alpha: float, units: int | None = None) -> Bounds:
        """Of one case, from its first units where they are given."""
        values = self.values[case, :units]
        if self.world.shares:
            lost, won = int((values < 0).sum()), int((values > 0).sum())
            return of_shares(lost, won, len(values), alpha)
        return _of_values(values, alpha, layout=self.world.layout)

    def verdict(
        self, case: int, alpha: float, tolerance: float, units: int | None = None
    ) -> Verdict:
        """Of one case at this level."""
        return judged(self.bounds(case, alpha, units), tolerance)


def _of_values(
    values: Array, alpha: float, *, shares: bool = False, layout: Layout | None = None
) -> Bounds:
    return mean_bounds(_differences(values, layout), alpha, shares=shares)


def _differences(values: Array, layout: Layout | None) -> Differences:
    units, seeds = values.shape
    if layout is not None:
        return Differences(values[:, 0], layout.categories, layout.clusters)
    clusters = np.repeat(np.arange(units), seeds)
    return Differences(values.ravel(), np.zeros(units * seeds, np.int64), clusters)


@cache
def of_shares(lost: int, won: int, units: int, alpha: float) -> Bounds:
    """Right or wrong: the order of samples has no say, so equal counts have equal bounds."""
    values = np.repeat([-1.0, 1.0, 0.0], [lost, won, units - lost - won])
    return _of_values(values[:, None], alpha, shares=True)


def judged(bounds: Bounds, tolerance: float) -> Verdict:
    """What the gate's table says of bounds."""
    return verdict_of(bounds.mean, bounds.low, bounds.high, tolerance)


NEAREST = 0.5
"""Of a normal quantile in standard errors: bounds are twice as far, bad ones still beyond it."""


def found_at(
    cases: Cases, levels: Sequence[float], tolerances: Sequence[float], wanted: set[Verdict]
) -> Mapping[tuple[float, float], Hits]:
    """(level, tolerance) -> (cases,) whether the verdict of each case is one of those wanted.

    levels: falling. wanted: `FAILS` or `PASSES`. What has failed, or passed, at a level has done so
    at every higher one (the bounds only widen), so a case is looked at again only where it did at
    the level before; the test of the gate's properties holds it to that. Nor is one judged whose
    mean is nearer to what it must exclude than any bound (`NEAREST`): four in five are not.
    """
    count = len(cases.values)
    hits = {(level, t): np.zeros(count, bool) for level in levels for t in tolerances}
    left: Sequence[int] = range(count)
    for level in levels:
        again = []
        far = _far_enough(cases, level, max(tolerances), wanted)
        for case in left:
            if not far[case]:
                continue
            bounds = cases.bounds(case, level)
            decided = [t for t in tolerances if judged(bounds, t) in wanted]
            for t in decided:
                hits[level, t][case] = True
            if decided:
                again.append(case)
        left = again
    return hits


def _far_enough(cases: Cases, level: float, tolerance: float, wanted: set[Verdict]) -> Hits:
    """(cases,) whether the mean is as far from 0, or from the tolerance, as a bound can be."""
    if cases.world.shares:
        return np.ones(len(cases.values), bool)  # their bounds are kept, and take no time
    mean, error = cases.means_and_errors
    away = -mean if wanted == FAILS else mean + tolerance
    least = -NEAREST * NormalDist().inv_cdf(level)
    return np.asarray((away >= least * error) | (error < 1e-9))


@dataclass(frozen=True)
class Looked:
    """What looking again came to. verdicts: one for each case. used: (cases,) units looked at."""

    verdicts: Sequence[Verdict]
    used: Array

    def are(self, wanted: set[Verdict]) -> Hits:
        """(cases,) whether the verdict is one of those wanted."""
        return np.array([verdict in wanted for verdict in self.verdicts])


def look_again(cases: Cases, alpha: float, tolerance: float) -> Looked:
    """Every case with `--cep-inconclusive=more`: looks until decided or all units are used."""
    sizes = look_sizes(cases.values.shape[1])
    looks = list(zip(sizes, look_shares(len(sizes)), strict=True))
    verdicts, used = [], []
    for case in range(len(cases.values)):
        for size, share in looks:
            verdict = cases.verdict(case, alpha * share, tolerance, size)
            if verdict is not Verdict.INCONCLUSIVE:
                break
        verdicts.append(verdict)
        used.append(size)
    return Looked(verdicts, np.array(used, np.float64))


def found_by_holm(cases: Cases, of_run: Sequence[int], alpha: float, tolerance: float) -> set[int]:
    """The cases of a run that its pooled verdict calls regressed. of_run: their numbers."""
    names = {str(case): case for case in of_run}

    def rejects(name: str, level: float) -> bool:
        return cases.verdict(names[name], min(level, 0.5), tolerance) is Verdict.REGRESSED

    return {names[name] for name in holm(rejects, dict.fromkeys(names, 1.0), alpha)}


def judged_whole(
    before: Array,
    now: Array,
    policy: Policy,
    *,
    categories: npt.NDArray[np.int64] | None = None,
    shares: bool = False,
    failures: bool = False,
) -> Verdict:
    """The verdict of one case by the whole gate, from its scores.

    before, now: (units, seeds). categories: (units,), one for all when None. shares: whether scores
    are right or wrong. failures: whether they are failures, of which fewer are better.
    """

    def measured(scores: Array, model: str) -> Measurement:
        named = _named(scores, categories)
        return Measurement(
            key=CaseKey("simulated", "overall", "score"),
            label="score",
            higher_is_better=not failures,
            scores=named,
            identity={"samples": str(scores.size)},
            model={"identity": model},
            shares=shares or failures,
            clusters=_clusters(named) if scores.shape[1] > 1 else {},
        )

    return judge(
        measured(now, "candidate"), record_of(measured(before, "baseline")), policy
    ).verdict


def _named(scores: Array, categories: npt.NDArray[np.int64] | None) -> dict[str, dict[str, float]]:
    """Category -> unit/seed -> score."""
    named: dict[str, dict[str, float]] = {}
    for unit, row in enumerate(scores.tolist()):
        part = named.setdefault("all" if categories is None else str(categories[unit]), {})
        part.update({f"{unit}/{seed}": score for seed, score in enumerate(row)})
    return named


def _clusters(named: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Every score belongs to its unit."""
    return {name: name.partition("/")[0] for part in named.values() for name in part}
