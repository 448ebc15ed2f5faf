"""Spread between several measurements of the accepted model, beside that between samples.

Sign flips and bounds take units for independent. What moves all units of a category together, from
one measurement to the next, they take for a change; several measurements of one model show how much
of that is usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite, sqrt

from pytest_cepbench.gate.statistics.bounds import Bounds
from pytest_cepbench.gate.statistics.power import Design, whole_degrees
from pytest_cepbench.metrics.uncertainty import t_upper_quantile


@dataclass(frozen=True)
class MeasurementSpread:
    """What one more measurement of the accepted model may differ from the mean of those there are.

    error: standard deviation of that difference, at least 0.
    degrees: of freedom of its estimate, at least 1.
    measurements: how many there are, K.
    """

    error: float
    degrees: float
    measurements: int

    @classmethod
    def of(cls, deviations: Sequence[float], measurements: int) -> MeasurementSpread:
        """The spread of a case.

        deviations: (C,) standard deviation over the measurements of each part, finite, at least 0;
        parts share no samples, and the case's value is their unweighted mean.
        measurements: K, at least 2.
        The error is sqrt(sum s_c^2 / C^2 * (1 + 1 / K)); its degrees of freedom are Satterthwaite's
        of parts that have K - 1 each.
        Source: Satterthwaite, An approximate distribution of estimates of variance components,
        1946.
        Raises ValueError for other numbers.
        """
        sound = all(s >= 0 and isfinite(s) for s in deviations)
        if not (deviations and sound and measurements >= 2):
            raise ValueError(
                "expected a deviation of at least 0 for each part and 2 or more measurements, got "
                f"{list(deviations)} and {measurements}"
            )
        largest = max(deviations)
        if largest == 0:
            return cls(0.0, float(measurements - 1), measurements)
        shares = [(s / largest) ** 2 for s in deviations]  # squares of tiny numbers would vanish
        error = largest * sqrt(fsum(shares) * (1 + 1 / measurements)) / len(deviations)
        effective = fsum(shares) ** 2 / fsum(share * share for share in shares)
        return cls(error, (measurements - 1) * effective, measurements)

    def p_value(self, mean: float) -> float:
        """Probability of a mean difference as low as this, were the model still the accepted one.

        0 where the measurements do not differ: then they have no say.
        """
        from scipy.special import stdtr

        return float(stdtr(self.degrees, mean / self.error)) if self.error else 0.0

    def reach(self, alpha: float) -> float:
        """Distance of a one-sided bound from the mean difference; alpha in (0, 0.5]."""
        return self.error * t_upper_quantile(alpha, whole_degrees(self.degrees))

    def widened(self, bounds: Bounds, span: float) -> Bounds:
        """Bounds, and a p value, that hold for samples and for measurements.

        span: the most that a mean can be; a bound as far away excludes nothing.
        Those of one unit or block stay as they are: they exclude nothing anyway.
        """
        if bounds.p is None:
            return bounds
        reach = self.reach(bounds.alpha)
        low, high = bounds.low, bounds.high
        if low is not None and bounds.mean - reach < low:
            low = bounds.mean - reach
        if high is not None and bounds.mean + reach > high:
            high = bounds.mean + reach
        p = max(bounds.p, self.p_value(bounds.mean))
        if (low, high, p) == (bounds.low, bounds.high, bounds.p):
            return bounds
        statement = (
            f"{self.measurements} measurements of the accepted model spread more than its samples "
            "say: p and the bounds allow for that"
        )
        return replace(
            bounds,
            low=low if low is not None and low > -span else None,
            high=high if high is not None and high < span else None,
            p=p,
            statement="; ".join(filter(None, (bounds.statement, statement))),
        )

    def limited(self, design: Design, alpha: float) -> Design:
        """The design that power is computed of: of samples, or of measurements that spread more.

        alpha: level of the test, in (0, 0.5].
        """
        of_samples = design.error * t_upper_quantile(alpha, whole_degrees(design.effective - 1))
        if self.reach(alpha) <= of_samples:
            return design
        sd = self.error * sqrt(design.units)
        return Design(sd, design.units, self.degrees + 1, self.degrees, student=True)
