"""Simulated differences of a candidate and its baseline whose true drift is known.

Every world has the long tail of its differences below 0, where false passes come from; turned
around about 0, without drift, it is where false failures come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Generator = np.random.Generator

SD = 0.05
"""Standard deviation of a sample's difference, unless the world says otherwise."""


class Layout(NamedTuple):
    """Where the samples of a case stand. categories, clusters: (n,) of each sample, from 0."""

    categories: npt.NDArray[np.int64]
    clusters: npt.NDArray[np.int64]


def categories(sizes: Sequence[int]) -> Layout:
    """So many samples in each category, each a unit of its own."""
    return Layout(np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes)))


def clusters(sizes: Sequence[int]) -> Layout:
    """One category, so many samples in each cluster."""
    return Layout(np.zeros(sum(sizes), np.int64), np.repeat(np.arange(len(sizes)), sizes))


def one_category(n: int) -> Layout:
    """A plain sample."""
    return categories([n])


Draw = Callable[[Generator, int, Layout, float], Array]
"""(generator, runs, layout, drift) -> (runs, samples) differences of mean -drift."""


@dataclass(frozen=True)
class World:
    """One way in which differences can come about.

    draw: see `Draw`.
    layout: of so many units.
    tolerance: that is gated at.
    shares: whether scores are right or wrong.
    symmetric: whether a unit is as likely to gain as to lose without drift.
    promised: whether false passes are.
    turned: -1 where false failures are counted on the mirror image.
    """

    name: str
    draw: Draw
    layout: Callable[[int], Layout] = one_category
    tolerance: float = 0.01
    shares: bool = False
    symmetric: bool = True
    promised: bool = True
    turned: int = -1


Values = Callable[[Generator, tuple[int, int]], Array]
"""(generator, shape) -> values of mean 0."""


def normal(generator: Generator, shape: tuple[int, int]) -> Array:
    return generator.standard_normal(shape)


def exponential(generator: Generator, shape: tuple[int, int]) -> Array:
    """Skewness -2: most gain a little, few lose much."""
    return 1 - generator.standard_exponential(shape)


def lognormal(generator: Generator, shape: tuple[int, int]) -> Array:
    """Skewness -6.2, a standard deviation of 2.2."""
    return np.asarray(np.exp(0.5) - np.exp(generator.standard_normal(shape)))


def student(generator: Generator, shape: tuple[int, int]) -> Array:
    """Student's t with 5 degrees of freedom, of variance 1."""
    return np.asarray(generator.standard_t(5, shape) / np.sqrt(5 / 3))


def scaled(values: Values, scales: Sequence[float] = (SD,)) -> Draw:
    """One value for each cluster, times the scale of its category; scales are repeated."""

    def draw(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
        own = values(generator, (runs, layout.clusters.max() + 1))[:, layout.clusters]
        scale = np.resize(scales, layout.categories.max() + 1)[layout.categories]
        return np.asarray(own * scale - drift)

    return draw


_EASY, _ALIKE, _BETA = 0.6, 0.8, (6.0, 2.0)


def _bounded(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """Six of ten samples are at the ceiling of 1 before and now; the others are Beta(6, 2).

    Hard samples correlate by the gamma variables that their two scores share, and lose an equal
    share of their score, such that the mean of all drops by the drift.
    """
    shape = (runs, len(layout.clusters))
    hard = generator.random(shape) >= _EASY
    common = [generator.standard_gamma(_ALIKE * a, shape) for a in _BETA]

    def scores() -> Array:
        up, down = (
            shared + generator.standard_gamma((1 - _ALIKE) * a, shape)
            for shared, a in zip(common, _BETA, strict=True)
        )
        return np.asarray(up / (up + down))

    lost = drift / ((1 - _EASY) * _BETA[0] / sum(_BETA))
    return np.asarray(hard * (scores() * (1 - lost) - scores()))


def _binary(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """Right or wrong: the two agree on eight of ten samples."""
    u = generator.random((runs, len(layout.clusters)))
    lost = 0.1 + drift / 2
    return np.where(u < lost, -1.0, np.where(u < 0.2, 1.0, 0.0))


def _seeds(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """Samples of one cluster share an effect of it."""
    effect = 0.04 * generator.standard_normal((runs, layout.clusters.max() + 1))
    own = SD * generator.standard_normal((runs, len(layout.clusters)))
    return np.asarray(effect[:, layout.clusters] + own - drift)


def _rare(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """86 % have no difference, 12 % gain 0.1, 2 % lose 0.6."""
    u = generator.random((runs, len(layout.clusters)))
    return np.asarray(0.1 * (u < 0.12) - 0.6 * (u > 0.98) - drift)


def of_few(share: float, noise: float) -> Draw:
    """A drift that only this share of the samples has, the others differing by such noise."""

    def draw(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
        shape = (runs, len(layout.clusters))
        lost = (generator.random(shape) < share) * drift / share
        return noise * generator.standard_normal(shape) - lost

    return draw


def _best_of_5(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """The baseline is the measurement that made it the best of five equal checkpoints."""
    tried = generator.standard_normal((5, runs, len(layout.clusters)))
    best = np.take_along_axis(tried, tried.mean(2).argmax(0)[None, :, None], 0)[0]
    return np.asarray(SD * np.sqrt(0.5) * (generator.standard_normal(best.shape) - best) - drift)


def ties_and(values: Values, share: float) -> Draw:
    """No difference in this share of the samples, exactly; the others make up the drift."""

    def draw(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
        n = len(layout.clusters)
        rest = np.arange(n) >= round(share * n)
        return np.asarray(rest * (SD * values(generator, (runs, n)) - drift * n / rest.sum()))

    return draw


_CLIP_SIZES, CLIP_SPREADS = (2, 3, 3, 4, 5, 7), (0.008, 0.06, 0.02, 0.01, 0.04, 0.03)


def _clip_layout(n: int) -> Layout:
    return categories([max(2, round(n * size / 24)) for size in _CLIP_SIZES])


NORMAL = World("normal", scaled(normal))
LOSSES = World("exponential", scaled(exponential), symmetric=False)
BINARY = World("right or wrong", _binary, tolerance=0.05, shares=True)
CLIP = World("CLIP-like, 6 unequal categories", scaled(student, CLIP_SPREADS), _clip_layout)
BOUNDED = World("bounded, at a ceiling", _bounded)
CLUSTERED = World("3 seeds a sample", _seeds, lambda n: clusters([3] * n))

WORLDS = (
    NORMAL,
    LOSSES,
    BOUNDED,
    BINARY,
    CLUSTERED,
    CLIP,
    World("8 equal categories", scaled(normal), lambda n: categories([max(2, round(n / 8))] * 8)),
)
"""Measured at every number of samples."""


def at(name: str, layout: Layout, draw: Draw, **settings: Any) -> World:
    """Of one layout."""
    return World(name, draw, lambda _: layout, **settings)


def _tailed(
    name: str, layout: Layout, values: Values, scales: Sequence[float] = (SD,), **settings: Any
) -> World:
    return at(name, layout, scaled(values, scales), symmetric=values is normal, **settings)


_60 = one_category(60)

HARD = (
    _tailed("3 x 6, one 8 times louder", categories([6] * 3), exponential, (0.16, 0.02, 0.02)),
    _tailed("9 x 8, two 6 times", categories([8] * 9), exponential, [0.12] * 2 + [0.02] * 7),
    _tailed("6 x 4, one 10 times", categories([4] * 6), exponential, [0.1] + [0.01] * 5),
    _tailed("13 x 10, one 10 times", categories([10] * 13), exponential, [0.1] + [0.01] * 12),
    _tailed("13 x 10, one 5 times", categories([10] * 13), exponential, [0.05] + [0.01] * 12),
    _tailed("10 samples 3 times, 100 quiet", categories([10, 100]), exponential, (0.03, 0.01)),
    _tailed("20 categories of 2", categories([2] * 20), exponential),
    _tailed("20 clusters, one of 60, others of 2", clusters([60] + [2] * 19), normal),
    _tailed("40 singles, 3 clusters of 10", clusters([1] * 40 + [10] * 3), normal),
    *(_tailed("exponential", one_category(n), exponential) for n in (5, 8, 12, 20)),
    *(_tailed("lognormal", one_category(n), lognormal) for n in (10, 14, 19, 40)),
    _tailed("lognormal", _60, lognormal, promised=False),
    at("12 % lose 0.1, 2 % gain 0.6, others tie", _60, _rare, symmetric=False),
    at("3 % drop, others jitter by 1e-4", _60, of_few(0.03, 1e-4)),
    at("3 % drop, others differ by 0.02", _60, of_few(0.03, 0.02), promised=False),
    at("baseline the best of 5", _60, _best_of_5, symmetric=False, turned=1),
    _tailed("the same, measured again", _60, normal),
)
"""Layouts, tails and baselines that break bounds which look sound on even samples."""


def _three_valued(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """65 % tie, 30 % lose, 5 % gain: a mean of minus the drift, far from symmetric about it."""
    u = generator.random((runs, len(layout.clusters)))
    return np.asarray(drift * (10.0 * (u < 0.05) - 5.0 * (u > 0.7)))


def _exponential_gains(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    return -scaled(exponential)(generator, runs, layout, 0.0) - drift


SERIES = (
    NORMAL,
    World("exponential gains", _exponential_gains),
    World("65 % tie, 30 % lose, 5 % gain", _three_valued),
)
"""Of a true drop of exactly the tolerance, which no series may call proven."""


def tied(values: Values, share: float) -> World:
    """For the step from Hall's bound to Gaffke's."""
    return World(f"{share:.0%} tie", ties_and(values, share))


CLIFF = (("others normal", normal), ("others lose exponentially", exponential))


def _failing(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """3 % of the chains of either model fail and lose 0.6."""
    u = generator.random((runs, len(layout.clusters)))
    lost = np.where(u < 0.03, -0.6, np.where(u > 0.97, 0.6, 0.0))
    return np.asarray(SD * generator.standard_normal(u.shape) + lost - drift)


def _rare_losses(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
    """15 % of the samples lose something; without drift they gain as often."""
    shape = (runs, len(layout.clusters))
    size = (generator.random(shape) < 0.15) * generator.uniform(0.0, 0.8, shape)
    sign = -1.0 if drift else generator.choice([-1.0, 1.0], shape)
    return np.asarray(sign * size)


def _in_turn(n: int) -> Layout:
    """Samples of eight categories in the order in which they are looked at."""
    return Layout(np.arange(n) % 8, np.arange(n))


_LOUDER = (SD * np.linspace(0.25, 3, 8)).tolist()

LOOKED = (
    World("8 equal categories", scaled(normal), _in_turn),
    World("8 categories, 0.25 to 3 times as loud", scaled(normal, _LOUDER), _in_turn),
    World("3 % of either's chains fail", _failing, _in_turn),
    World("3 % of the candidate's chains fail", of_few(0.03, SD), _in_turn, promised=False),
    World("15 % lose up to 0.8", _rare_losses, _in_turn, tolerance=0.06),
)
"""Of samples that are looked at again and again."""
