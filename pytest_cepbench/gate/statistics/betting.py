"""Bounds and verdicts that hold at every stopping time: betting on the mean of scores in [0, 1].

A gambler who starts with 1 bets on scores to exceed m, with stakes that depend on the past alone.
If the mean is at most m, the wealth is expected not to grow, so it ever reaches 1 / alpha with
probability at most alpha, however often one looks. Source: Ville's inequality; Waudby-Smith and
Ramdas, Estimating means of bounded random variables by betting, 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.statistics.constants import LEAST_LOST
from pytest_cepbench.gate.statistics.differences import Array

Direction = Literal["above", "below"]
"""The side of m on which the mean is shown to lie."""

Decision = Literal["held", "regressed", "inconclusive"]

_LARGEST_STAKE = 0.5  # of the wealth that the worst score would lose
_PRIOR_VARIANCE = 0.25  # of one score of 1/2, which stands for the past before there is any
_AT_ONCE = 1 << 18  # numbers of a table of wealth that are held in memory
_MEANS = np.unique(np.concatenate([np.arange(1, 100) / 100, np.arange(300, 701) / 1000]).round(3))
"""Means of which bounds are made: a hundredth apart, and a thousandth near one half."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """Scores in the order in which bets are made on them, cut into rounds.

    Categories have the same weights in every round, and the stake stays as it is. So the wealth is
    not expected to grow if the mean of the categories' means is at most m, although some of them
    may lie above it: the geometric mean of factors is at most their arithmetic one.

    scores: (..., n) in [0, 1]; leading axes are simulated runs.
    weights: (n,) over 0 and at most 1.
    starts: (R,) the place at which each round starts, from 0, rising.
    Raises ValueError for other numbers, and where there is no score.
    """

    scores: Array
    weights: Array
    starts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        n = self.scores.shape[-1]
        if not n or not ((self.scores >= 0) & (self.scores <= 1)).all():
            raise ValueError("bets are made on one or more scores in [0, 1]")
        if self.weights.shape != (n,) or not ((self.weights > 0) & (self.weights <= 1)).all():
            raise ValueError(
                f"expected {n} weights over 0 and at most 1, got shape {self.weights.shape}"
            )
        if self.starts[0] != 0 or (np.diff(self.starts, append=n) < 1).any():
            raise ValueError(f"expected the starts of rounds of {n} scores, from 0 and rising")

    @classmethod
    def single(cls, scores: npt.ArrayLike) -> Rounds:
        """Rounds of one score each, of one category. scores: (..., n)."""
        array = np.asarray(scores, np.float64)
        n = array.shape[-1]
        return cls(array, np.ones(n), np.arange(n))

    @classmethod
    def deal(
        cls,
        samples: Mapping[str, Iterable[str]],
        scores: Mapping[str, Mapping[str, float]],
        clusters: Mapping[str, str] | None = None,
        *,
        pooled: bool = False,
    ) -> Rounds | None:
        """The complete rounds of what was measured so far; None where there is none.

        samples: category -> all samples that can be measured, measured or not: rounds and weights
        depend on these alone, so that they stay as they are while more is measured.
        scores: category -> sample -> score, of those that were.
        clusters: sample -> the cluster that it shares with others: a unit, whose score is the mean.
        pooled: whether the mean is that of all samples, not the unweighted one of the categories'.

        Units are in the order of their names' digests, which knows nothing of scores. There are as
        many rounds as the smallest category has units; each category's are dealt to them evenly.
        Where units are in several categories, their weighted scores are one category.
        """
        units = _units(samples, clusters or {}, pooled=pooled)
        names = {unit for members in units.values() for unit in members}
        if len(names) < sum(map(len, units.values())):
            units = _merged(units)
        count = min(map(len, units.values()))
        rows: list[tuple[int, float, float | None]] = []
        for members in units.values():
            ordered = sorted(members, key=digest_text)
            numbers = np.arange(len(ordered)) * count // len(ordered)
            shares = np.bincount(numbers)
            whole = sum(weight for unit in members.values() for weight in unit.values())
            share = whole if pooled else 1.0
            for name, number in zip(ordered, numbers.tolist(), strict=True):
                unit = members[name]
                weight = sum(unit.values()) / whole * len(ordered) / int(shares[number]) * share
                rows.append((number, weight, _score(unit, scores)))
        complete = min((number for number, _, score in rows if score is None), default=count)
        heaviest = max(weight for _, weight, _ in rows)
        kept = sorted((row for row in rows if row[0] < complete), key=lambda row: row[0])
        if not kept:
            return None
        order = np.array([number for number, _, _ in kept])
        return cls(
            np.array([score for _, _, score in kept], np.float64),
            np.array([weight / heaviest for _, weight, _ in kept]),
            np.searchsorted(order, np.arange(complete)).astype(np.int64),
        )

    @property
    def mirrored(self) -> Rounds:
        """The same with each score x as 1 - x."""
        return Rounds(1 - self.scores, self.weights, self.starts)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(R,) scores up to the end of each round."""
        return np.append(self.starts[1:], self.scores.shape[-1])

    @cached_property
    def means(self) -> Array:
        """(..., R) weighted mean of the scores up to the end of each round."""
        sums = np.cumsum(self._summed(self.weights * self.scores), axis=-1)
        means: Array = sums / np.cumsum(self._summed(self.weights))
        return means

    def log_wealth(self, mean: float | Array, direction: Direction = "above") -> Array:
        """(..., R) log of the wealth after each round, of bets that the mean lies beyond another.

        mean: m in (0, 1); an array of them is broadcast against the runs, one more axis at its end.
        Its exponential is expected to be at most 1 at any stopping time if the mean is at most m,
        or, for "below", at least m. The stake of a round is clip(sum z / sum z^2, 0, c / m) over
        the rounds before it, z = w (x - m), as if there had been one score more, 1/2 with variance
        1/4; c = 1/2.
        Source: Waudby-Smith and Ramdas, 2024, section B.3 (the approximate Kelly stake).
        """
        if direction == "below":
            return self.mirrored.log_wealth(1 - np.asarray(mean))
        m = np.asarray(mean, np.float64)[..., None]
        z = self.weights * (self.scores - m)
        sums, squares = self._summed(z), self._summed(z * z)
        before = np.cumsum(sums, axis=-1) - sums + (EVEN - m)
        square = np.cumsum(squares, axis=-1) - squares + (_PRIOR_VARIANCE + (EVEN - m) ** 2)
        stakes = np.clip(before / square, 0, _LARGEST_STAKE / m)
        sizes = np.diff(self.starts, append=self.scores.shape[-1])
        growth = self._summed(np.log1p(np.repeat(stakes, sizes, axis=-1) * z))
        wealth: Array = np.cumsum(growth, axis=-1)
        return wealth

    def _summed(self, values: Array) -> Array:
        sums: Array = np.add.reduceat(values, self.starts, axis=-1)
        return sums


def betting_bounds(rounds: Rounds, alpha: float) -> tuple[float, float]:
    """One-sided bounds of the mean score, each wrong at any look with probability at most alpha.

    rounds: of one run. alpha: in (0, 1).
    The lower one is the last of `_MEANS` that is rejected with all before it, 0 if there is none;
    the upper one is its mirror image, 1 before there are `LEAST_LOST` scores. Once rejected, a mean
    stays so. Raises ValueError for another alpha.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is the error of a bound, in (0, 1), got {alpha}")
    low = _rejected_up_to(rounds, alpha, 0)
    high = 1 - _rejected_up_to(rounds.mirrored, alpha, LEAST_LOST)
    return low, round(high, 3)


def _rejected_up_to(rounds: Rounds, alpha: float, least: int) -> float:
    counted = rounds.counts >= least
    if not counted.any():
        return 0.0
    last = 0.0
    step = max(1, _AT_ONCE // rounds.scores.shape[-1])
    for first in range(0, len(_MEANS), step):
        means = _MEANS[first : first + step]
        highest = rounds.log_wealth(means)[:, counted].max(axis=-1)
        rejected = highest >= log(1 / alpha)
        if not rejected.all():
            stop = int(np.argmin(rejected))
            return last if stop == 0 else float(means[stop - 1])
        last = float(means[-1])
    return last


@dataclass(frozen=True, eq=False)
class Stops:
    """Where runs that look after every round stop.

    held, regressed: (...) booleans; neither where a run stays undecided to its end.
    counts: (...) scores that were looked at.
    means: (...) weighted mean of these. Of those that stopped early it lies too far from 1/2.
    """

    held: npt.NDArray[np.bool_]
    regressed: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64]
    means: Array


def stops_of(rounds: Rounds, tolerance: float, alpha: float, *, strict: bool = False) -> Stops:
    """The verdicts of runs that stop as soon as they have one.

    held: "the mean is at most 1/2 - tolerance" is rejected.
    regressed: "the mean is at least 1/2" is, after `LEAST_LOST` scores or more, while the mean so
    far is below 1/2 - tolerance; strict: "the mean is at least 1/2 - tolerance" is.
    tolerance: in [0, 1/2). alpha: of each of the two, in (0, 1).
    Raises ValueError for other numbers.
    """
    if not 0 <= tolerance < EVEN:
        raise ValueError(f"a tolerance on win rates is in [0, 0.5), got {tolerance}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is the error of each verdict, in (0, 1), got {alpha}")
    enough = log(1 / alpha)
    beyond = EVEN - tolerance
    held = rounds.log_wealth(beyond) >= enough
    lost = rounds.log_wealth(beyond if strict else EVEN, "below")
    # Wealth that was reached once is a rejection for good, also if the mean falls only later.
    ever = np.maximum.accumulate(np.where(rounds.counts >= LEAST_LOST, lost, -np.inf), axis=-1)
    regressed = ever >= enough
    if not strict:
        regressed &= rounds.means < beyond
    decided = held | regressed
    last = decided.shape[-1] - 1
    stop = np.where(decided.any(axis=-1), decided.argmax(axis=-1), last)

    def at_stop(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.take_along_axis(values, stop[..., None], axis=-1)[..., 0]

    held_there = at_stop(held)
    return Stops(
        held_there, at_stop(regressed) & ~held_there, rounds.counts[stop], at_stop(rounds.means)
    )


_Unit = dict[tuple[str, str], float]
"""(category, sample) -> its weight in the mean of the categories' means."""


def _units(
    samples: Mapping[str, Iterable[str]], clusters: Mapping[str, str], *, pooled: bool
) -> dict[str, dict[str, _Unit]]:
    """Category -> unit -> its samples there."""
    units: dict[str, dict[str, _Unit]] = {}
    for category, names in sorted(samples.items()):
        members = list(names)
        for sample in members:
            unit = units.setdefault(category, {}).setdefault(clusters.get(sample, sample), {})
            unit[category, sample] = 1.0 if pooled else 1 / len(members)
    return units


def _merged(units: Mapping[str, Mapping[str, _Unit]]) -> dict[str, dict[str, _Unit]]:
    """All units in one category."""
    merged: dict[str, _Unit] = {}
    for members in units.values():
        for name, unit in members.items():
            merged.setdefault(name, {}).update(unit)
    return {"": merged}


def _score(unit: _Unit, scores: Mapping[str, Mapping[str, float]]) -> float | None:
    """The weighted mean of a unit's scores; None where one is not measured."""
    total = 0.0
    for (category, sample), weight in unit.items():
        score = scores.get(category, {}).get(sample)
        if score is None:
            return None
        total += weight * score
    return min(max(total / sum(unit.values()), 0.0), 1.0)
