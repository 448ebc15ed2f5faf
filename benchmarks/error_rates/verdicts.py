"""Verdicts on simulated differences by the gate's own test, bounds and table of verdicts.

Beside them stands a paired t test that knows the categories, with the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.worlds import Array, Layout, World
from pytest_cepbench.gate import FreshMeasurement, Verdict, present
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.measurement import DECIMALS, CaseKey
from pytest_cepbench.gate.statistics.bounds import (
    find_lump,
    flip_p_value,
    hall_steps,
    mean_bounds,
    shows_spread,
)
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.error_budget import look_shares, look_sizes

Hits = npt.NDArray[np.bool_]

FAILS = {verdict for verdict in Verdict if not present(verdict).passes}
"""What fails a run under the regression gate."""

PASSES = {verdict for verdict in Verdict if present(verdict, strict=True).passes}
"""What passes under the noninferiority gate."""

LEVELS = (0.05, 0.05 / 14)
"""Alpha of the case of a run of one, and of a case of a run of fourteen."""


def _nearest(level: float) -> float:
    """Standard errors within which no bound is: those of ties and shares can be near."""
    return -NormalDist().inv_cdf(level) / 2


def drawn(world: World, units: int, runs: int, drift: float, seed: int = 0) -> tuple[Array, Layout]:
    """(runs, samples) differences, rounded as those of scores are, and where samples stand."""
    name = [*world.name.encode(), units, round(drift * 1e6)]
    layout = world.layout(units)
    values = world.draw(np.random.default_rng([seed, *name]), runs, layout, drift)
    return np.round(values, DECIMALS), layout


def turned(values: Array, layout: Layout) -> Array:
    """The same with the sign of each cluster drawn anew: candidate and baseline exchanged."""
    shape = (len(values), layout.clusters.max() + 1)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], shape)
    return np.asarray(values * signs[:, layout.clusters])


def failures(
    values: Array, layout: Layout, tolerance: float, levels: Sequence[float] = LEVELS
) -> Hits:
    """(levels, runs) whether the regression gate fails: a mean below -tolerance, and p <= level.

    A p value for the smallest level decides at the others too: where it is not refined it is the
    value of the first round, which is theirs.
    """
    hits = np.zeros((len(levels), len(values)), bool)
    for run in np.flatnonzero(np.round(values @ _weights(layout), DECIMALS) < -tolerance):
        p = flip_p_value(Differences(values[run], *layout).parts, min(levels))
        hits[:, run] = [p <= level for level in levels]
    return hits


def passes(
    values: Array,
    layout: Layout,
    tolerance: float,
    levels: Sequence[float] = LEVELS,
    *,
    shares: bool = False,
) -> Hits:
    """(levels, runs) whether the noninferiority gate passes.

    Bounds are not made where the mean is nearer to -tolerance than any bound is to the mean.
    """
    hits = np.zeros((len(levels), len(values)), bool)
    ahead = values @ _weights(layout) + tolerance
    error = t_statistics(values, layout).error if _even(layout) else np.zeros(len(values))
    for row, level in enumerate(levels):
        for run in np.flatnonzero(ahead >= _nearest(level) * error):
            bounds = mean_bounds(Differences(values[run], *layout), level, shares=shares)
            hits[row, run] = verdict_of(bounds, tolerance) in PASSES
    return hits


def proven(values: Array, layout: Layout, tolerance: float, level: float) -> Hits:
    """(runs,) whether a series calls it regressed: upper bounds at this level below -tolerance."""
    hits = np.zeros(len(values), bool)
    behind = -(values @ _weights(layout) + tolerance)
    for run in np.flatnonzero(behind > 0):
        d = Differences(values[run], *layout)
        if find_lump(d, 1.0) is None and shows_spread(d):  # the test of `mean_bounds` takes long
            high = d.mean + hall_steps(d, level)[1] * d.sd / sqrt(d.units)
        else:
            high = mean_bounds(d, level).high or inf
        hits[run] = high < -tolerance
    return hits


class Student(NamedTuple):
    """A paired t test that knows the categories. mean, error, degrees: (runs,)."""

    mean: Array
    error: Array
    degrees: Array

    def failures(self, tolerance: float, levels: Sequence[float] = LEVELS) -> Hits:
        """(levels, runs) by the same rule as the gate's, with its p value."""
        from scipy.special import stdtr

        p = stdtr(self.degrees, self.mean / self.error)
        return np.array([(self.mean < -tolerance) & (p <= level) for level in levels])

    def passes(self, tolerance: float, levels: Sequence[float] = LEVELS) -> Hits:
        """(levels, runs) by the same rule as the gate's, with its bound."""
        from scipy.special import stdtrit

        steps = [stdtrit(self.degrees, 1 - level) for level in levels]
        return np.array([self.mean - step * self.error > -tolerance for step in steps])


def t_statistics(values: Array, layout: Layout) -> Student:
    """Of clusters of one size within categories that stand one after another.

    Degrees of freedom after Welch and Satterthwaite, from the variances that were found.
    """
    order = np.argsort(layout.categories, kind="stable")
    each = len(layout.clusters) // (layout.clusters.max() + 1)
    units = values[:, order].reshape(len(values), -1, each).mean(2)
    own = layout.categories[order][::each]
    sizes = np.bincount(own)
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(units, starts, axis=1) / sizes
    squares = np.add.reduceat((units - means[:, own]) ** 2, starts, axis=1)
    parts = squares / (sizes - 1) / sizes / len(sizes) ** 2
    error2 = np.maximum(parts.sum(1), 1e-18)
    degrees = error2**2 / np.maximum((parts**2 / (sizes - 1)).sum(1), 1e-36)
    return Student(means.mean(1), np.sqrt(error2), np.maximum(degrees, 1))


def _weights(layout: Layout) -> Array:
    """(n,) part of each sample in the mean of the categories' means."""
    sizes = np.bincount(layout.categories)
    return np.asarray(1 / (len(sizes) * sizes[layout.categories]))


def _even(layout: Layout) -> bool:
    return len(np.unique(np.bincount(layout.clusters))) == 1


def looks(
    values: Array, layout: Layout, tolerance: float, alpha: float
) -> tuple[list[Verdict], Array]:
    """Verdicts of (runs, samples) looked at with `--cep-inconclusive=more`, and samples used.

    Categories stand in turn. Bounds are made where one could decide (`passes`).
    """
    count, most = int(layout.categories.max()) + 1, values.shape[1]
    sizes = tuple(dict.fromkeys(min(most, ceil(n / count) * count) for n in look_sizes(most)))
    shares = look_shares(len(sizes))
    verdicts = [Verdict.INCONCLUSIVE] * len(values)
    used = np.full(len(values), float(most))
    for size, level in zip(sizes, [alpha * share for share in shares], strict=True):
        own = Layout(layout.categories[:size], layout.clusters[:size])
        student = t_statistics(values[:, :size], own)
        away = np.maximum(student.mean + tolerance, -student.mean)
        for run in np.flatnonzero(away >= _nearest(level) * student.error):
            if verdicts[run] is Verdict.INCONCLUSIVE:
                verdicts[run] = _at_look(values[run, :size], own, tolerance, level)
                used[run] = size if verdicts[run] is not Verdict.INCONCLUSIVE else most
    return verdicts, used


def _at_look(values: Array, layout: Layout, tolerance: float, level: float) -> Verdict:
    """As the gate has it.

    With the flips of alpha / 14, which put p values at the smallest levels right within a quarter.
    """
    d = Differences(values, *layout)
    if d.mean < -tolerance:
        p = flip_p_value(d.parts, max(level, LEVELS[-1]))
        return Verdict.REGRESSED if p <= level else Verdict.INCONCLUSIVE
    return verdict_of(mean_bounds(d, level), tolerance)


def measured(
    values: Array, layout: Layout, model: str, *, shares: bool = False
) -> FreshMeasurement:
    """A measurement whose scores are these, for `judge`. values: (samples,)."""
    scores: dict[str, dict[str, float]] = {}
    for name, (category, score) in enumerate(zip(layout.categories, values.tolist(), strict=True)):
        scores.setdefault(f"c{category}", {})[f"s{name:05}"] = score
    of = {f"s{name:05}": f"u{unit:05}" for name, unit in enumerate(layout.clusters)}
    return FreshMeasurement.of(
        key=CaseKey("simulated", "overall", "score"),
        label="score",
        higher_is_better=True,
        scores=scores,
        identity={"samples": str(len(values))},
        model={"identity": model},
        shares=shares,
        clusters=of,
    )
