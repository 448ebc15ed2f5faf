"""Policy of a case: its rule, what it tolerates, and its share of the error that a run may make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from pytest_cepbench.gate.statistics.error_budget import checkpoint_share, reference_share
from pytest_cepbench.option_values import check_not_blind

GateName = Literal["regression", "noninferiority", "threshold"]

Pairing = Literal["exact", "common"]
"""Samples of a measurement and its baseline: the same ones, or those that both have."""

ANCHOR_FACTOR = 2.0
"""Tolerance since the anchor, in tolerances, where nothing else is set."""


@dataclass(frozen=True)
class Place:
    """The place of a case in a series of gates.

    series: its name.
    look: number of the checkpoint's look.
    expected: checkpoints over which half of the error is spent.
    alpha: of the case, before the series divides it.
    baseline, anchor: numbers of the looks that these come from; 0 for another model from before the
    series, None for the baseline that it began with.
    """

    series: str
    look: int
    expected: int
    alpha: float
    baseline: int | None = None
    anchor: int | None = None

    @property
    def share(self) -> float:
        """Share of alpha that the look has."""
        return checkpoint_share(self.look, self.expected)

    def share_beside(self, reference: int | None) -> float:
        """Share of alpha of the upper bound against `baseline` or `anchor`."""
        return self.share * reference_share(self.look, reference)


@dataclass(frozen=True)
class Policy:
    """Rule, tolerances and error of a case.

    gate: "regression" fails a drop that is larger than the tolerance and not noise,
    "noninferiority" passes only where a larger drop is excluded, "threshold" compares the mean
    difference with the tolerance and knows nothing of noise.
    tolerance: the drop that does not matter, in the metric's own unit, >= 0.
    alpha: error of this case in each direction, in (0, 0.5]; of "threshold" it has no part.
    anchor_tolerance: the drop since the anchor that does not matter; twice the tolerance when None.
    primary: whether the case can fail a run.
    series: its place where the run is one of a series, which divides the alpha of upper bounds. In
    a series only a drop that is larger than the tolerance beyond doubt is a regression.
    origins: setting -> where it came from, as reports show it.
    Raises ValueError for a number out of its range.
    """

    gate: GateName = "regression"
    tolerance: float = 0.01
    alpha: float = 0.05
    anchor_tolerance: float | None = None
    primary: bool = True
    series: Place | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance, "a tolerance")
        if self.anchor_tolerance is not None:
            check_tolerance(self.anchor_tolerance, "an anchor tolerance")
        _check_error(self.alpha, "alpha")

    @property
    def since_anchor(self) -> float:
        """The drop since the anchor that does not matter."""
        if self.anchor_tolerance is not None:
            return self.anchor_tolerance
        return ANCHOR_FACTOR * self.tolerance

    @property
    def given_tolerances(self) -> dict[str, tuple[float, str]]:
        """Name -> tolerance, and where it was set; the anchor's where it is no multiple."""
        tolerances = {"tolerance": self.tolerance, "anchor_tolerance": self.anchor_tolerance}
        return {
            name: (value, self.origins.get(name) or "the defaults")
            for name, value in tolerances.items()
            if value is not None
        }

    @property
    def statistical(self) -> bool:
        """True where the rule makes use of alpha."""
        return self.gate != "threshold"


def check_tolerance(value: float, name: str) -> None:
    """Raise ValueError for a tolerance that is negative or not finite."""
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"{name} is a number of at least 0, got {value}")


def check_span(policy: Policy, span: float, what: str) -> None:
    """Raise ValueError for a tolerance that no drop can exceed, naming where it came from.

    span: how far apart the best and the worst value of the metric are.
    what: names the case.
    """
    for name, (value, source) in policy.given_tolerances.items():
        if value >= span:
            raise ValueError(
                f"{name} = {value:g} from {source}: {what} "
                f"spans {span:g}, so no drop exceeds it; give one below {span:g}"
            )


def check_alpha(value: float, name: str) -> None:
    """Raise ValueError for an error that a user asks for and at which nothing could fail."""
    _check_error(value, name)
    check_not_blind(value, f"{name} = {value:g}")


def _check_error(value: float, name: str) -> None:
    """Raise ValueError for an error probability of which no bound could be made."""
    if not 0 < value <= 0.5:
        raise ValueError(f"{name} is a number over 0 and at most 0.5, got {value}")
