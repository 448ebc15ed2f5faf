"""Lumps: differences most of which are alike, so that their mean has no bell shape."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from pytest_cepbench.gate.statistics.paired import Array, Differences

_HALF, _QUARTER = 0.5, 0.25  # of the other units: alike enough for a lump, and for none of it
_FEW, _ENOUGH = 30, 45  # unlike units, too few for a bell shape, and enough for it
_NEAR, _APART = 0.0005, 0.001  # of the span: counts as the same difference, and as another
_GRID = 9  # decimals within which differences of six-decimal scores count as equal


class Lump(NamedTuple):
    """How much of a lump the differences are.

    share: 1 where they are one, 0 where not at all, and between as it dissolves. statement: a
    sentence where they are, else "".
    """

    share: float
    statement: str


def find_lump(d: Differences, span: float) -> Lump:
    """Whether most differences are alike, by how many others there are.

    span: the most that a sample can lose or gain. A lump is full where at least half of the units
    have the same difference and at most 30 another, and gone where fewer than a quarter have the
    same or 45 another. Differences within 0.0005 of the span are the same, those 0.001 apart are
    not: noise of such a size says nothing of what a sample may lose that no unit shows. Units whose
    categories each have a difference of their own are alike as well. Between these numbers the
    share falls evenly, so that no small change of the data changes the bounds much.
    """
    count = d.units
    if count == 1:
        said = "one unit shows no spread: the bounds allow for whatever others may show"
        return Lump(1.0, said)
    weights = d.weights()
    values = np.sort(d.weighted() / weights)
    apart = np.sort(d.residuals / weights)
    least = max(ceil(_QUARTER * (count - 1)) + 1, count - _ENOUGH)
    reach = 2 * _APART * span
    if not any((x[least - 1 :] - x[: count - least + 1]).min() <= reach for x in (values, apart)):
        return Lump(0.0, "")
    alike = _alike(values, values, span)
    within = float(_alike(apart, np.zeros(1), span)[0])
    most = max(float(alike.max()), within)
    falling = ((most - 1) / (count - 1) - _QUARTER) / (_HALF - _QUARTER)
    share = _inside(falling) * _inside((_ENOUGH - (count - most)) / (_ENOUGH - _FEW))
    if not share:
        return Lump(0.0, "")
    return Lump(share, _statement(values, float(values[int(alike.argmax())]), share, most, within))


def _alike(values: Array, centers: Array, span: float) -> Array:
    """(m,) how many values are the same as each center; those between near and apart in part.

    values: (n,) rising. centers: (m,).
    """
    sums = np.append(0.0, np.cumsum(values))

    def tent(reach: float) -> Array:
        """Sum over values of what their distance leaves of the reach."""
        first = np.searchsorted(values, centers - reach, "left")
        middle = np.searchsorted(values, centers, "left")
        last = np.searchsorted(values, centers + reach, "right")
        above = sums[last] - sums[middle] - centers * (last - middle)
        below = centers * (middle - first) - (sums[middle] - sums[first])
        return np.asarray(reach * (last - first) - above - below, np.float64)

    wide, narrow = tent(_APART * span), tent(_NEAR * span)
    return np.round((wide - narrow) / ((_APART - _NEAR) * span), 6)


def _inside(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _statement(values: Array, center: float, share: float, most: float, within: float) -> str:
    count, same = len(values), round(most)
    value = f"{round(center, _GRID) + 0.0:g}"
    if float(values[-1] - values[0]) <= 10.0**-_GRID:
        return f"all {count} differences are {value}: the bounds allow for rare others"
    if within == count:
        return "no category shows any spread: the bounds allow for rare others"
    equal = np.abs(values - center) <= 10.0**-_GRID
    if within == most and equal.sum() < same:
        said = f"{same} of {count} differences are those of their category"
    elif equal.sum() == same:
        said = f"{same} of {count} differences are {value}"
    else:
        said = f"{same} of {count} differences are {value} but for noise"
    if share < 1:
        return f"{said}, few are others: the bounds lie between exact ones and t"
    return f"{said}, too few are others for a bell shape"
