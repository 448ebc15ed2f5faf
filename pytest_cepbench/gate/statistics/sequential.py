"""Looking again: after how many samples, and which share of the error each look has."""

from __future__ import annotations

FIRST_LOOK = 25

_LEAST_GROWTH = 1.25  # a look at hardly more samples costs error and shows nothing new


def look_sizes(most: int, first: int = FIRST_LOOK) -> tuple[int, ...]:
    """Numbers of samples to look at: first, twice as many, and so on, and at last the most.

    most, first: at least 1. Returns sizes that rise by at least a quarter from look to look: (25,
    50, 100, 200, 300) for 300, and (25, 50, 110) for 110, where the last look replaces the one at
    100. Raises ValueError for other numbers.
    """
    if most < 1 or first < 1:
        msg = f"expected at least 1 sample at the first look and at most, got {first} and {most}"
        raise ValueError(msg)
    sizes = []
    size = first
    while size * _LEAST_GROWTH <= most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def look_shares(count: int) -> tuple[float, ...]:
    """Share of the error that each of the looks has: half for the last, the rest in equal parts.

    count: looks, at least 1. Returns (count,) shares of sum 1. By the union bound the promise on
    alpha holds whatever the looks have to do with each other. Pocock's and O'Brien and Fleming's
    boundaries are less strict, but they are for sums of independent increments that are normal and
    of known variance; here an early look has 25 samples of unknown shape, in clusters, and its
    bounds may be of another kind than the last. Half for the last: a run that does not stop early
    pays little for having looked. Raises ValueError for fewer looks.
    """
    if count < 1:
        msg = f"expected at least 1 look, got {count}"
        raise ValueError(msg)
    if count == 1:
        return (1.0,)
    return (*[0.5 / (count - 1)] * (count - 1), 0.5)
