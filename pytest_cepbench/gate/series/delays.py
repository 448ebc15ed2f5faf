"""Detection delays of a series of gates: checkpoints until a drop is found with 80 % power."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_cepbench.gate.policy import Policy
from pytest_cepbench.gate.series.record import Place
from pytest_cepbench.gate.statistics import (
    Design,
    checkpoint_share,
    detection_delay,
    reference_share,
)

DROPS = (1, 2, 4)
"""Drops of which delays are told, in tolerances."""

DECLINE = 0.5
"""Tolerances that a slow decline loses at each checkpoint."""

LONGEST = 20
"""Checkpoints that are looked ahead."""


@dataclass(frozen=True)
class Delays:
    """Checkpoints until a drop is found, the next one being 1; None: more than `LONGEST`.

    drops: of a drop of each of `DROPS` tolerances since the baseline, which stays as it is.
    decline: of a slow decline since the anchor, of `DECLINE` tolerances at each checkpoint, however
    the baseline moves on the way.
    """

    drops: tuple[int | None, ...]
    decline: int | None


def delays_of(place: Place, design: Design, policy: Policy) -> Delays | None:
    """Delays from the next checkpoint on.

    place: of the last one.
    design: of what is compared.
    Returns None without spread or tolerance, where there is nothing to tell.
    """
    tolerance = policy.tolerance
    if not design.sd or tolerance <= 0:
        return None
    numbers = range(place.look + 1, place.look + 1 + LONGEST)
    levels = list(_levels(place, policy.alpha, numbers))
    drops = [
        detection_delay(design, levels, [drop * tolerance] * LONGEST, tolerance) for drop in DROPS
    ]
    fixed = [
        policy.alpha * checkpoint_share(number, place.expected) * reference_share(number, None)
        for number in numbers
    ]
    losses = [DECLINE * tolerance * number for number in range(1, LONGEST + 1)]
    return Delays(tuple(drops), detection_delay(design, fixed, losses, policy.since_anchor))


def _levels(place: Place, alpha: float, numbers: range) -> Iterator[float]:
    """Error of the upper bound against the baseline at each of the next checkpoints."""
    for number in numbers:
        share = checkpoint_share(number, place.expected)
        yield alpha * share * reference_share(number, place.baseline)
