"""How often the intervals of `cepbench agreement` have the true agreement inside.

    python -m benchmarks.agreement_intervals

Three annotators judge battles whose true verdicts are as frequent as people's in OpenING's released
battles. Each annotator keeps a true verdict with a probability, and else draws one as frequent. The
true coefficients are those of a study of 400,000 items of the same annotators.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.judge_agreement import (
    RatedThings,
    alpha_estimate,
    equal_votes_estimate,
    fleiss_estimate,
    mean_cohen_estimate,
)
from pytest_cepbench.metrics.uncertainty import Estimate

RESULTS = Path(__file__).parent / "results"

VERDICTS = (1562, 709, 605, 1426)
"""People's A, Tie(A), Tie(B) and B. Source: OpenING, released battles."""

KEEPING = (0.9, 0.8, 0.6)
"""Probability with which each annotator keeps the true verdict."""

SIZES = (20, 50, 100, 200)

RUNS = 1000

DRAWS = 400

_TRUTH = 400_000

COEFFICIENTS: Mapping[str, Callable[[RatedThings, int], Estimate]] = {
    "alpha, ordinal": lambda rated, draws: alpha_estimate(rated, "ordinal", draws),
    "alpha, nominal": lambda rated, draws: alpha_estimate(rated, "nominal", draws),
    "mean of Cohen's kappa": mean_cohen_estimate,
    "Fleiss' kappa": lambda rated, draws: fleiss_estimate(rated, draws)[0],
    "equal votes": equal_votes_estimate,
}


def main() -> None:
    """Measure, and write the figures as JSON and as a page."""
    truth = true_values()
    rows = [figures(name, size, truth[name]) for name in COEFFICIENTS for size in SIZES]
    document = {"runs": RUNS, "draws": DRAWS, "keeping": KEEPING, "rows": rows}
    text = json.dumps(document, indent=1) + "\n"
    (RESULTS / "agreement_intervals.json").write_text(text, encoding="utf-8")
    (RESULTS / "agreement_intervals.md").write_text(page(rows), encoding="utf-8")
    print(page(rows))


def votes(rng: np.random.Generator, items: int) -> npt.NDArray[np.float64]:
    """(3, items) the numbers of the verdicts of three annotators."""
    shares = np.array(VERDICTS) / sum(VERDICTS)
    truth = rng.choice(len(shares), items, p=shares)
    drawn = rng.choice(len(shares), (len(KEEPING), items), p=shares)
    keeps = rng.random((len(KEEPING), items)) < np.array(KEEPING)[:, None]
    return np.where(keeps, truth, drawn).astype(np.float64)


def true_values() -> dict[str, float]:
    """Each coefficient of a very large study."""
    rated = RatedThings(votes(np.random.default_rng(0), _TRUTH))
    values = {name: measure(rated, 2).value for name, measure in COEFFICIENTS.items()}
    return {name: round(value, 4) for name, value in values.items() if value is not None}


def figures(name: str, size: int, truth: float, runs: int = RUNS) -> dict[str, Any]:
    """The share of studies whose interval has the true value inside."""
    rng = np.random.default_rng([len(name), size])
    covered, widths = [], []
    for _ in range(runs):
        estimate = COEFFICIENTS[name](RatedThings(votes(rng, size)), DRAWS)
        if estimate.low is None or estimate.high is None:
            covered.append(False)
            continue
        covered.append(estimate.low <= truth <= estimate.high)
        widths.append(estimate.high - estimate.low)
    return {
        "coefficient": name,
        "true": truth,
        "items": size,
        "covered": round(sum(covered) / runs, 4),
        "half width": round(float(np.mean(widths)) / 2, 3),
    }


_PAGE = """\
# Intervals of agreement

`benchmarks/agreement_intervals.py` draws {runs} studies of each size, in which three annotators
judge every item. Verdicts are as frequent as people's in OpenING's released battles; the annotators
keep the true verdict with probability {keeping}, and else draw one. *Covered*: studies whose 95 %
interval (bootstrap by item, {draws} draws) has the true coefficient inside. The standard error of a
share of 95 % over {runs} studies is {error:.1f} points.

| coefficient | true | items | covered | half width |
|---|---:|---:|---:|---:|
{rows}
"""


def page(rows: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = [
        f"| {row['coefficient']} | {row['true']:.3f} | {row['items']} | "
        f"{100 * row['covered']:.1f} % | {row['half width']:.3f} |"
        for row in rows
    ]
    keeping = ", ".join(f"{share:.1f}" for share in KEEPING)
    error = 100 * (0.95 * 0.05 / RUNS) ** 0.5
    return _PAGE.format(error=error, runs=RUNS, draws=DRAWS, keeping=keeping, rows="\n".join(lines))


if __name__ == "__main__":
    main()
