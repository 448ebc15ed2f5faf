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

import numpy as np
import numpy.typing as npt

from pytest_cepbench.gate.statistics.differences import Array

ALL_UNITS = 17
"""Units that differ of which all flips are made."""

_ROUNDS = (11, 13, 15, 17, 18)  # log2 of flips: the first round is enough for most p values
_HITS = 100  # flips in the tail: they put the p value right within a tenth
_AT_ONCE = 6  # bits: all in two products would take three times as long
_ROUNDING = 1e-9  # within which statistics tie: BLAS libraries round sums differently
_NOTHING = 1e-13  # of the largest part: what is left where the seeds of a unit cancel out


def flip_p_value(parts: Array, alpha: float) -> float:
    """Probability of a mean as low as this one, were each unit as likely to gain as to lose.

    parts: (K,) what each unit adds to the mean difference, finite; positive is better. A unit is
    flipped whole, with all of its seeds, images and categories.
    alpha: level at which the value is needed, in (0, 0.5]; it says how many flips are made.
    Returns a value in (0, 1], 1 where no unit differs. Of up to 17 units that differ all flips are
    made, so the least possible value is 2^-K: seven losses beside any number of ties give 0.008.
    Of more, a group of 2^11 to 2^18: more are made until 100 are in the tail, which puts the value
    right within a tenth, or would if it were alpha. Only the last round has values of at most
    alpha, so stopping before it costs no error, and what one level rejects every higher one does.
    The statistic is the mean y over the root of the sum of squares, S = sum y / sqrt(sum y^2), with
    its skewness a = sum y^3 / (sum y^2)^1.5 taken out: S + a S^2 / 3 + a^2 S^3 / 27 + a / 6.
    Where few units gain much, and the mean is 0 without the symmetry that is promised, the mean
    alone fails up to half as often again (`benchmarks/gate_error_rates.py`).
    """
    sizes = np.abs(parts)
    largest = sizes.max()
    scaled = parts[sizes > _NOTHING * largest] / largest  # cubes of tiny numbers would vanish
    units = len(scaled)
    if units <= ALL_UNITS:
        return _share(scaled, units) if units else 1.0
    p = 1.0
    for bits in _ROUNDS:
        p = _share(scaled, bits)
        if max(p, alpha) * (1 << bits) >= _HITS:
            break
    return p


def _share(values: Array, bits: int) -> float:
    """Share of 2^bits flips with a statistic of at most the first one's, which flips nothing."""
    numbers = _numbers(len(values), bits)
    sums = [
        _signed_sums(np.asarray(np.bincount(numbers, part, 1 << bits), np.float64))
        for part in (values, values**3)
    ]
    square = float(values @ values)
    mean, skewness = sums[0] / square**0.5, sums[1] / square**1.5
    bent = skewness * mean
    statistic = mean * (1 + bent / 3 + bent * bent / 27) + skewness / 6
    observed = statistic[0]
    return float(np.mean(statistic <= observed + _ROUNDING * (1 + abs(observed))))


def _signed_sums(sums: Array) -> Array:
    """(n,) sum over codes c of (-1)^(number of bits that c and g share) sums[c], for each flip g.

    The Walsh-Hadamard transform, n a power of two, by products with small matrices: each takes the
    last bits of the codes and puts them first, so that all are in their places at the end.
    """
    left = len(sums).bit_length() - 1
    while left:
        bits = min(left, _AT_ONCE)
        sums = (sums.reshape(-1, 1 << bits) @ _hadamard(bits)).T.ravel()
        left -= bits
    return sums


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
