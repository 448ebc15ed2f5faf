"""Writes the intervals of ppi-python with which ours are compared, into published_intervals.json.

    pip install ppi-python==0.2.3 && python -m tests.gate.statistics.published_intervals

The package brings numba, statsmodels and scikit-learn, so the tests read its numbers from a file,
and ask it again only where it is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_cepbench.gate.statistics.differences import Array

FILE = Path(__file__).with_name("published_intervals.json")

LAMS = (0.0, 0.3, 1.0, None)
"""Fixed ones, and the tuned one."""

ALPHA = 0.1

SIZES = ((4, 5), (30, 50), (100, 600), (250, 1000))
"""Labelled and unlabelled."""


class Drawn(NamedTuple):
    """Scores of people and of a judge, of the labelled and of the others."""

    people: Array
    judge: Array
    judge_unlabelled: Array


def drawn(labelled: int, unlabelled: int) -> Drawn:
    """Made-up scores in quarters, the judge's with a lean and noise of its own."""
    generator = np.random.default_rng([labelled, unlabelled])
    quality = generator.random(labelled + unlabelled)
    noisy = quality + 0.1 + generator.normal(0, 0.3, labelled + unlabelled)
    judge = np.round(np.clip(noisy, 0, 1) * 4) / 4
    people = np.round(quality * 2) / 2
    return Drawn(people[:labelled], judge[:labelled], judge[labelled:])


def published(own: Drawn, lam: float | None) -> tuple[float, float]:
    """What ppi-python says. Raises ImportError where it is not installed."""
    from ppi_py import ppi_mean_ci

    low, high = ppi_mean_ci(*own, alpha=ALPHA, lam=lam)
    return float(low[0]), float(high[0])


def main() -> None:
    """Write the file."""
    intervals = [
        {
            "labelled": n,
            "unlabelled": count,
            "lam": lam,
            "interval": published(drawn(n, count), lam),
        }
        for n, count in SIZES
        for lam in LAMS
    ]
    FILE.write_text(json.dumps(intervals, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
