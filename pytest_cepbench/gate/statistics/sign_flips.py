"""Test of a drop by flipping signs: exact where gains and losses are equally likely.

A checkpoint that could be exchanged with its baseline is as likely to have gained in a unit as to
have lost, independently of the other units, whatever the sizes of the differences. Then the
observed signs are one draw among all flips, and the share of flips whose statistic is at most the
observed one is a p value, for every such law, however lumped. It stays one if the flips are a
group of some, the same for every run.
Sources: Fisher, The Design of Experiments, 1935, section 21; Hemerik and Goeman, Exact testing with
random permutations, 2018, section 2 (subgroups); Hall, On the removal of skewness by
transformation, 1992 (the statistic).
"""

from __future__ import annotations

from functools import cache
from hashlib import shake_128
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.gate.statistics.differences import Array

ALL_UNITS = 17
"""Units that differ of which all flips are made."""

_HITS = 100  # flips in the tail at alpha: they put the p value right within a tenth
_FIRST = 11  # log2 of the flips of a first round, which is enough for most p values
_MOST = 18  # log2 of all flips: 4e-6 is the smallest p value of many units
_CLEAR = 4  # times alpha: a p value of the first round that far above it is not refined
_LEAST = 10  # flips in the tail that say so
_ROUNDING = 1e-9  # within which statistics tie: BLAS libraries round sums differently


def flip_p_value(parts: Array, alpha: float) -> float:
    """Probability of a mean as low as this one, were each unit as likely to gain as to lose.

    parts: (K,) what each unit adds to the mean difference, finite; positive is better. A unit is
    flipped whole, with all of its seeds, images and categories.
    alpha: level at which the value is needed, in (0, 0.5]; it says how many flips are made.
    Returns a value in (0, 1], 1 where no unit differs. Of up to 17 units that differ all flips are
    made, so the least possible value is 2^-K: seven losses beside any number of ties give 0.008.
    Of more, a group of so many that the value is right within a tenth at alpha, at most 2^18; where
    a first round of 2^11 shows that it is far above alpha, that round's.
    The statistic is the mean y over the root of the sum of squares, S = sum y / sqrt(sum y^2), with
    its skewness a = sum y^3 / (sum y^2)^1.5 taken out: S + a S^2 / 3 + a^2 S^3 / 27 + a / 6.
    Where few units gain much, and the mean is 0 without the symmetry that is promised, the mean
    alone fails up to half as often again (`benchmarks/gate_error_rates.py`).
    """
    differing = parts[parts != 0]
    units = len(differing)
    if not units:
        return 1.0
    scaled = differing / np.abs(differing).max()  # cubes of tiny numbers would vanish
    if units <= ALL_UNITS:
        return _share(scaled, units)
    bits = min(max(ceil(log2(_HITS / alpha)), _FIRST), _MOST)
    if bits > _FIRST:
        first = _share(scaled, _FIRST)
        if first * (1 << _FIRST) >= _LEAST and first > _CLEAR * alpha:
            return first
    return _share(scaled, bits)


def _share(values: Array, bits: int) -> float:
    """Share of 2^bits flips with a statistic of at most the first one's, which flips nothing."""
    numbers = _numbers(len(values), bits)
    sums = [_signed_sums(np.bincount(numbers, part, 1 << bits)) for part in (values, values**3)]
    square = float(values @ values)
    mean, skewness = sums[0] / square**0.5, sums[1] / square**1.5
    bent = skewness * mean
    statistic = mean * (1 + bent / 3 + bent * bent / 27) + skewness / 6
    observed = statistic[0]
    return float(np.mean(statistic <= observed + _ROUNDING * (1 + abs(observed))))


def _signed_sums(sums: npt.NDArray[Any]) -> Array:
    """(n,) sum over codes c of (-1)^(number of bits that c and g share) sums[c], for each flip g.

    The Walsh-Hadamard transform, n a power of two, as two products of matrices.
    """
    bits = len(sums).bit_length() - 1
    left, right = _hadamard(bits // 2), _hadamard(bits - bits // 2)
    return np.asarray(left @ sums.reshape(len(left), len(right)) @ right, np.float64).ravel()


@cache
def _hadamard(bits: int) -> Array:
    from scipy.linalg import hadamard

    return np.asarray(hadamard(1 << bits), np.float64)


@cache
def _numbers(units: int, bits: int) -> npt.NDArray[np.int64]:
    """(K,) code of each unit: flip g turns it where g and the code share an odd number of bits.

    The first codes are the powers of two, so that units that can be flipped on their own are; the
    others are hashed. Flips are closed under their products, which keeps the test exact.
    """
    drawn = np.frombuffer(shake_128(b"signs").digest(4 * units), dtype="<u4").astype(np.int64)
    codes = drawn & ((1 << bits) - 1)
    first = min(units, bits)
    codes[:first] = 1 << np.arange(first)
    return np.where(codes == 0, 1, codes)
