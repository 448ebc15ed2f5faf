"""The figures of three encoders that have the word together, as correlated as one likes.

Each encoder sees a score of its own for every sample. The differences of a sample are normal, with
one correlation for all pairs of encoders; some of the encoders' scores have truly dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.worlds import SD, Array
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.agreement import agreed_verdict, upper_share
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import Differences, mean_bounds

ENCODERS = "encoders: "
"""Before the names of these worlds: their table is their own."""

COUNT = 3

NEEDED = (1, 2, 3)

PLAIN = "2 of 3, at alpha each"
"""Upper bounds that are not divided, of which nothing is promised."""

_CORRELATIONS = (-0.4, 0.0, 0.5, 0.95)
_SIZES = (60, 192)
_FAR = 8.0  # tolerances that an encoder has lost which is to see it


def figures(settings: Settings, *, quick: bool) -> Iterator[Figure]:
    """False failures where fewer encoders have dropped than are needed, and false passes."""
    for correlation in _CORRELATIONS[2:3] if quick else _CORRELATIONS:
        for n in _SIZES[:1] if quick else _SIZES:
            for dropped in range(COUNT):
                yield from _failures(correlation, n, dropped, settings)
            yield from _passes(correlation, n, settings)


def _failures(correlation: float, n: int, dropped: int, settings: Settings) -> Iterator[Figure]:
    """Some encoders see a large drop, the others none; a tolerance of 0 is the hardest."""
    drifts = [_FAR * settings.tolerance] * dropped + [0.0] * (COUNT - dropped)
    verdicts = list(_judged(correlation, n, drifts, 0.0, settings))
    for rule in (*map(_name, NEEDED), PLAIN):
        needed = 2 if rule == PLAIN else int(rule[0])
        if dropped >= needed:
            continue
        hits = [by_rule[rule] is Verdict.REGRESSED for by_rule in verdicts]
        cell = Cell(f"regression, {rule}", _world(correlation), n, 1, drifts[0], 0.0)
        promise = None if rule == PLAIN else settings.alpha
        yield cell.rate(f"false failures, {dropped} dropped", np.array(hits), promise)


def _passes(correlation: float, n: int, settings: Settings) -> Iterator[Figure]:
    """One encoder's score has dropped by the tolerance, the others have not moved."""
    drifts = [settings.tolerance] + [0.0] * (COUNT - 1)
    verdicts = list(_judged(correlation, n, drifts, settings.tolerance, settings))
    hits = [by_rule[_name(2)] in (Verdict.HELD, Verdict.IMPROVED) for by_rule in verdicts]
    cell = Cell("noninferiority", _world(correlation), n, 1, drifts[0], settings.tolerance)
    yield cell.rate("false passes", np.array(hits), settings.alpha)
    power = list(
        _judged(correlation, n, [4 * settings.tolerance] * COUNT, settings.tolerance, settings)
    )
    for needed in NEEDED:
        found = [by_rule[_name(needed)] is Verdict.REGRESSED for by_rule in power]
        yield Cell(
            f"regression, {_name(needed)}",
            _world(correlation),
            n,
            1,
            4 * settings.tolerance,
            settings.tolerance,
        ).rate("detection", np.array(found))


def _judged(
    correlation: float, n: int, drifts: list[float], tolerance: float, settings: Settings
) -> Iterator[Mapping[str, Verdict]]:
    """The verdict of every rule, run by run."""
    seed = [settings.seed, n, round(100 * (1 + correlation)), *(round(d * 1e4) for d in drifts)]
    generator = np.random.default_rng(seed)
    for _ in range(settings.runs):
        drawn = draw(generator, n, correlation) - np.array(drifts)
        by_share = {
            share: [_verdict(column, tolerance, share, settings.alpha) for column in drawn.T]
            for share in {1.0, *(upper_share(needed, COUNT) for needed in NEEDED)}
        }
        by_rule = {}
        for rule in (*map(_name, NEEDED), PLAIN):
            needed = 2 if rule == PLAIN else int(rule[0])
            share = 1.0 if rule == PLAIN else upper_share(needed, COUNT)
            by_rule[rule] = agreed_verdict(by_share[share], needed)
        yield by_rule


def draw(generator: np.random.Generator, n: int, correlation: float) -> Array:
    """(n, 3) differences of samples without drift, by encoder."""
    covariance = np.full((COUNT, COUNT), correlation)
    np.fill_diagonal(covariance, 1.0)
    rows: Array = generator.standard_normal((n, COUNT)) @ np.linalg.cholesky(covariance).T
    return SD * rows


def _verdict(values: Array, tolerance: float, share: float, alpha: float) -> Verdict:
    """What one encoder says, by the gate's own bounds."""
    units = np.arange(len(values))
    pairs = Differences(values, np.zeros(len(values), dtype=np.int64), units)
    whole = mean_bounds(pairs, alpha)
    high = whole.high if share == 1 else mean_bounds(pairs, alpha * share).high
    return verdict_of(pairs.mean, whole.low, high, tolerance)


def _name(needed: int) -> str:
    return f"{needed} of {COUNT}"


def _world(correlation: float) -> str:
    return f"{ENCODERS}correlation {correlation:g}"
