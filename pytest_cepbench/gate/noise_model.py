"""What a calibration says of a case: the smallest drop that can be seen, and whether that will do."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from pytest_cepbench.gate.baseline import Noise
from pytest_cepbench.gate.policy import Policy
from pytest_cepbench.gate.statistics import samples_needed, smallest_visible
from pytest_cepbench.gate.statistics.power import POWER


@dataclass(frozen=True)
class Reach:
    """How well a case can be told from noise.

    visible: the smallest drop that so many units see (high bound below 0) with 80 % power.
    needed: units that see a drop of the tolerance with 80 % power; None where no number does.
    """

    visible: float
    needed: int | None


def reach(sd: float, units: int, policy: Policy) -> Reach:
    """Of a case whose unit differences scatter by sd, with so many independent samples."""
    if sd == 0:
        return Reach(0.0, 1)
    visible = smallest_visible(sd, units, policy.alpha) if units > 1 else inf
    needed = None
    if policy.tolerance > 0:
        needed = samples_needed(sd, policy.tolerance, policy.alpha)
    return Reach(visible, needed)


def tolerance_remark(noise: Noise, units: int, policy: Policy) -> str | None:
    """A sentence where the tolerance is smaller than what can be seen; else None."""
    found = reach(noise.sd, units, policy)
    if not isfinite(found.visible) or found.visible <= policy.tolerance:
        return None
    more = f": {found.needed} units would show it" if found.needed else ""
    return (
        f"the tolerance {policy.tolerance:g} is below the smallest drop that {units} units can show "
        f"above this model's own noise ({found.visible:.4f} with {POWER:.0%} power at alpha "
        f"{policy.alpha:.2g}){more}"
    )
