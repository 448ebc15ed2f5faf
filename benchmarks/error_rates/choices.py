"""What was chosen among: statistics inside the flips, and ways to judge many cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.error_rates.report import Promises, share
from benchmarks.error_rates.verdicts import LEVELS, drawn, t_statistics
from benchmarks.error_rates.worlds import (
    CLIP,
    HARD,
    SD,
    Array,
    Layout,
    World,
    categories,
    normal,
    scaled,
)
from pytest_cepbench.gate.statistics import alpha_shares, holm
from pytest_cepbench.gate.statistics.sign_flips import flip_p_value

_FLIPS = 2048

STATISTICS = (
    "mean", "studentized", "Hall's, centred by category", "Hall's, centred on the whole",
    "Hall's, not centred",
)  # fmt: skip
"""The last is what the gate uses."""


def statistics(runs: int, _: Promises) -> Iterator[list[str]]:
    """Rows of each statistic's false failures under skewness, and power, at both levels."""
    loud = World("13 x 10, one 10 times louder", scaled(normal, [0.2] + [0.02] * 12),
                 lambda _: categories([10] * 13))  # fmt: skip
    skewed = [HARD[i] for i in (0, 1, 10, 14, 16)]
    for world, units, drift in (
        *((world, 0, 0.0) for world in skewed),
        (CLIP, 24, 0.02),
        (CLIP, 24, 0.04),
        (CLIP, 60, 0.02),
        (loud, 0, 0.02),
        (loud, 0, 0.04),
    ):
        values, layout = drawn(world, units, runs, drift)
        values = values if drift else -values
        signs = _signs(len(layout.categories))
        below = values.mean(1) < (-world.tolerance if drift else 0.0)
        p = np.array([_p_values(row, layout, signs) for row in values]).T
        cells = ["/".join(share(below & (own <= level)) for level in LEVELS) for own in p]
        student = t_statistics(values, layout).failures(world.tolerance if drift else 0.0)
        cells.append("/".join(map(share, student)))
        what = f"finds a drop of {drift:g}" if drift else "fails falsely"
        yield [world.name, str(len(layout.categories)), what, *cells]


def _signs(units: int) -> Array:
    signs = np.random.default_rng(5).choice([-1.0, 1.0], (_FLIPS, units))
    signs[0] = 1
    return signs


def _p_values(values: Array, layout: Layout, signs: Array) -> list[float]:
    """Of each of `STATISTICS`."""
    sizes = np.bincount(layout.categories)
    own = np.eye(len(sizes))[layout.categories]
    weight = 1 / (len(sizes) * sizes[layout.categories])
    part = weight * values
    mean, cubes = signs @ part, signs @ part**3
    square = np.full(len(signs), part @ part)
    # Centred on each category's mean m_c, which flips move: sums over units of (g (s d - m_c))^k.
    scale = weight * np.sqrt(sizes / (sizes - 1))[layout.categories]
    of_category = signs @ (own / sizes[layout.categories][:, None] * values[:, None])
    away = scale * (signs * values - of_category[:, layout.categories])
    whole = signs * part - mean[:, None] * weight
    results = [mean, mean / np.sqrt(np.maximum((away**2).sum(1), 1e-18))]
    for spread, third in (
        ((away**2).sum(1), (away**3).sum(1)),
        ((whole**2).sum(1), (whole**3).sum(1)),
        (square, cubes),
    ):
        second = np.maximum(spread, 1e-18)
        steps, skewness = mean / np.sqrt(second), third / second**1.5
        bent = skewness * steps
        results.append(steps * (1 + bent / 3 + bent**2 / 27) + skewness / 6)
    return [float(np.mean(x <= x[0] + 1e-12 * abs(x[0]))) for x in results]


# -- many cases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Many:
    """Cases of one suite, which share chains.

    parts: (cases, metrics, samples) weight of each score in each case's mean.
    drops: (metrics, samples) where the drop is, in its own size.
    weights: (cases,) of the division of alpha.
    """

    name: str
    parts: Array
    drops: Array
    weights: Sequence[float]

    @property
    def of_drop(self) -> Array:
        """(cases,) which part of the drop each case's mean loses."""
        return np.asarray(np.einsum("cms,ms->c", self.parts, self.drops))


def _many() -> Iterator[Many]:
    parts = np.zeros((40, 40, 240))
    for case in range(40):
        parts[case, case, case // 4 * 24 :][:24] = 1 / 24
    drops = np.zeros((40, 240))
    drops[:4, :24] = 1
    yield Many("40 cases, one part of ten drops in its 4 metrics", parts, drops, [1.0] * 40)
    for name, count, each, alone, of_all, weight in (
        ("shapes (8 x 24)", 8, 24, 8, 2, 12.0),
        ("drift (8 x 8)", 8, 8, 8, 3, 6.0),
        ("tasks (6 x 16)", 6, 16, 0, 3, 1.0),
    ):
        samples = count * each
        parts = np.zeros((alone + of_all, max(of_all, 1), samples))
        for case in range(alone):
            parts[case, 0, case * each :][:each] = 1 / each
        for number in range(of_all):
            parts[alone + number, number] = 1 / samples
        weights = [1.0] * alone + [weight] + [1.0] * (of_all - 1)
        for where, stop in (("one category drops", each), ("all drop", samples)):
            drops = np.zeros(parts.shape[1:])
            drops[:, :stop] = 1
            yield Many(f"{name}, {where}", parts, drops, weights)


WAYS = ("fixed shares", "Holm", "joint flips")

_TOLERANCE, _ALPHA = 0.01, 0.05


def many(runs: int, _: Promises) -> Iterator[list[str]]:
    """Rows of cases found of those that drop, and runs that fail, by each way."""
    for own in _many():
        for times in (0, 2, 4):
            if times == 0 and "all drop" in own.name:
                continue
            found = _found(own, times * _TOLERANCE, runs)
            dropping = own.of_drop * times > 1
            if not times:
                yield [own.name, "0", *["-"] * 3, *(share(np.asarray(x.any(1))) for x in found)]
            elif dropping.any():
                named = (f"{100 * x[:, dropping].mean():.0f}" for x in found)
                yield [
                    own.name,
                    f"{times} x",
                    *named,
                    *(share(np.asarray(x.any(1))) for x in found),
                ]


def _found(own: Many, drop: float, runs: int) -> list[np.ndarray]:
    """(runs, cases) which are regressed, by each of `WAYS`."""
    names = {str(case): weight for case, weight in enumerate(own.weights)}
    shares = alpha_shares(names, _ALPHA)
    samples = own.drops.shape[1]
    signs = _signs(samples)
    generator = np.random.default_rng([len(own.weights), samples, round(1000 * drop)])
    found = np.zeros((len(WAYS), runs, len(names)), bool)
    for run in range(runs):
        shared = generator.standard_normal(samples)
        noise = SD * np.sqrt(0.5) * (shared + generator.standard_normal(own.drops.shape))
        parts = np.einsum("cms,ms->cs", own.parts, noise - drop * own.drops)
        below = parts.sum(1) < -_TOLERANCE
        p = {name: flip_p_value(parts[int(name)], shares[name]) for name in names}
        lost = {name: p[name] if below[int(name)] else 1.0 for name in names}
        found[0, run] = [lost[name] <= shares[name] for name in names]
        together = holm(partial(_rejects, lost), names, _ALPHA)
        found[1, run] = [name in together for name in names]
        # One flip turns a sample in all cases; the least statistic of any case is what they share.
        second = (parts**2).sum(1)
        steps, skewness = (signs @ parts.T) / np.sqrt(second), signs @ (parts**3).T / second**1.5
        bent = skewness * steps
        statistic = steps * (1 + bent / 3 + bent**2 / 27) + skewness / 6
        least = np.sort(statistic.min(1))
        rank = np.searchsorted(least, statistic[0] + 1e-9, "right")
        found[2, run] = below & (rank <= _ALPHA * len(least))
    return [*found]


def _rejects(p: Mapping[str, float], name: str, level: float) -> bool:
    return p[name] <= level
