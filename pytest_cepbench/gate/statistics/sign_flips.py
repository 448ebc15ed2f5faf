"""Upper bound of a mean by flipping signs: exact where gains and losses are equally likely.

Without drift a candidate and its baseline could be exchanged, so that the difference of a unit and
its opposite are equally likely, whatever their size. A group of such flips makes an exact test: the
sum that was observed is among the alpha largest or smallest of those that the group makes of the
sizes that were seen with probability at most alpha, for every such law, however lumped, and whether
the group has all flips or some.
Sources: Fisher, The Design of Experiments, 1935, section 21; Hartigan, Using subsample values as
typical values, 1969 (the inversion, and groups of some subsets); Hemerik and Goeman, Exact testing
with random permutations, 2018, section 2 (subgroups).
"""

from __future__ import annotations

from functools import cache
from hashlib import shake_128
from math import floor

import numpy as np
import numpy.typing as npt

from pytest_cepbench.gate.statistics.differences import Array
from pytest_cepbench.gate.statistics.exact import upper_symmetric

GENERATORS = 17
"""Flips from which the group is made: all 2^n of n units up to so many, 2^17 of more units."""


def upper_flipped(values: Array, weights: Array, alpha: float) -> float | None:
    """Upper bound at level alpha of a weighted mean, of units that lie symmetrically about it.

    values: (K,) of the units, finite, K >= 1.
    weights: (K,) above 0.
    alpha: in (0, 0.5].
    Returns the least number below which all but a share alpha of the weighted means of subsets lie,
    the empty subset counted as above all; None where there are too few units, under
    log2(1 / alpha). Never below the weighted mean.
    It is a test turned around: what lies above the bound is excluded at alpha, because few flips
    make the weighted sum of the differences from it as small as it is. A flip of a subset does so
    where the subset's mean is at least that number. A larger value never lowers the bound, and it
    moves and scales with the values.
    Of up to 17 units all subsets count. Of more, those of a subgroup of 2^17 flips that is closed
    under their products, the same for every run: the test stays exact, without random draws. A
    level of under 2^-17 of so many units has Hoeffding's bound (`upper_symmetric`), or this one at
    2^-17 where that is higher.
    Raises ValueError for another alpha.
    """
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha is the error of one bound, in (0, 0.5], got {alpha}")
    units = len(values)
    means = _means_of_subsets(values, weights)
    among = floor(alpha * len(means))
    if among or units <= GENERATORS:
        return _finite(_largest(means, among))
    even = weights / weights.mean()
    mean = float(values @ even) / units
    wide = upper_symmetric(values, even, mean, alpha)
    flipped = _finite(_largest(means, 1))
    return None if wide is None or flipped is None else max(wide, flipped)


def _finite(number: float) -> float | None:
    return None if np.isinf(number) else number


def _largest(means: Array, among: int) -> float:
    """The largest mean but for so many."""
    place = len(means) - 1 - among
    return float(np.partition(means, place)[place])


def _means_of_subsets(values: Array, weights: Array) -> Array:
    """Weighted means of the units that each flip turns around; infinite where it turns none.

    A flip is a number g, and unit k has a number c_k: it is turned where g and c_k have an odd
    number of bits in common. So the sum of all units with signs is a Walsh-Hadamard transform of
    the sums of those that share a number, which takes n log n additions for n flips.
    """
    numbers, size = _numbers(len(values))
    sums = np.stack([_summed(numbers, part, size) for part in (weights, weights * values)])
    signed = _transformed(sums)
    weight, total = (signed[:, :1] - signed) / 2
    none = weight < weights.min() / 2
    return np.where(none, np.inf, total / np.where(none, 1.0, weight))


def _summed(numbers: npt.NDArray[np.int64], values: Array, size: int) -> Array:
    return np.asarray(np.bincount(numbers, values, size), np.float64)


def _transformed(sums: Array) -> Array:
    """(..., n) Walsh-Hadamard transform along the last axis, n a power of two.

    Additions alone, in a fixed order: equal to the last bit on every machine.
    """
    half = sums.shape[-1] // 2
    for _ in range(half.bit_length()):
        after = np.empty_like(sums)
        np.add(sums[..., :half], sums[..., half:], out=after[..., 0::2])
        np.subtract(sums[..., :half], sums[..., half:], out=after[..., 1::2])
        sums = after
    return sums


@cache
def _numbers(units: int) -> tuple[npt.NDArray[np.int64], int]:
    """(K,) number of each unit, and that of flips, a power of two.

    The first units have numbers of which none is the sum of others, so that every combination of
    their signs is among the flips; further ones have hashed ones. All are odd, so that one flip
    turns all units around: with a subset its complement counts, and half of all means lie on or
    above the whole mean.
    """
    bits = min(units, GENERATORS)
    drawn = np.frombuffer(shake_128(b"signs").digest(4 * units), dtype="<u4").astype(np.int64)
    drawn[:bits] = 1 << np.arange(bits)
    return (drawn | 1) & ((1 << bits) - 1), 1 << bits
