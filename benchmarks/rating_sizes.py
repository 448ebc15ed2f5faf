"""How many items people have to judge before a study of pairs is decided.

    python -m benchmarks.rating_sizes

Verdicts are drawn as people gave them in OpenING's released battles (4,302 of them: 1,562 A,
709 Tie(A), 605 Tie(B), 1,426 B), with a share of B turned into A until the first model wins by so
much. Two rules look at them: the bets of the operator's page, after every item, and a 95 % interval
of Student's t after the last one, which asks whether the win rate is not 1/2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from pytest_cepbench.gate.labels.bounds import ALPHA, TOLERANCE
from pytest_cepbench.gate.statistics.betting import Rounds, stops_of

RESULTS = Path(__file__).parent / "results"

COUNTS = {1.0: 1562, 0.5: 709 + 605, 0.0: 1426}
"""Score of the first answer -> people's verdicts. Source: OpenING, released battles."""

WIN_RATES = (0.5, 0.55, 0.6, 0.7)

SIZES = (50, 100, 200, 400, 800)

RUNS = 400


def main() -> None:
    """Measure, and write the figures as JSON and as a page."""
    rows = [figures(rate, size) for rate in WIN_RATES for size in SIZES]
    document = {"runs": RUNS, "tolerance": TOLERANCE, "alpha": ALPHA, "rows": rows}
    text = json.dumps(document, indent=1) + "\n"
    (RESULTS / "rating_sizes.json").write_text(text, encoding="utf-8")
    (RESULTS / "rating_sizes.md").write_text(page(rows), encoding="utf-8")
    print(page(rows))


def figures(rate: float, size: int) -> dict[str, Any]:
    """Shares of runs that are decided, of one win rate and one number of items."""
    rng = np.random.default_rng([int(1000 * rate), size])
    scores = rng.choice([1.0, 0.5, 0.0], (RUNS, size), p=probabilities(rate))
    stops = stops_of(Rounds.single(scores), TOLERANCE, ALPHA)
    decided = stops.held | stops.regressed
    means = scores.mean(axis=1)
    half = student.ppf(1 - ALPHA / 2, size - 1) * scores.std(axis=1, ddof=1) / np.sqrt(size)
    return {
        "win rate": rate,
        "items": size,
        "half width": round(float(half.mean()), 3),
        "not 1/2": round(float((np.abs(means - 0.5) > half).mean()), 3),
        "bets decided": round(float(decided.mean()), 3),
        "items when decided": int(np.median(stops.counts[decided])) if decided.any() else None,
    }


def probabilities(rate: float) -> list[float]:
    """Of a win, a tie and a loss: people's, with losses turned into wins up to a win rate."""
    total = sum(COUNTS.values())
    tie = COUNTS[0.5] / total
    win = rate - tie / 2
    return [win, tie, 1 - tie - win]


_PAGE = """\
# How many items people have to judge

`benchmarks/rating_sizes.py` draws {runs} studies of each size. Verdicts are as frequent as those of
people in OpenING's released battles (4,302; 30.5 % ties), with a first model that wins as often as
the first column says. *Half width*: of the 95 % interval of the win rate. *Not 1/2*: studies whose
interval leaves 1/2 out; at a win rate of .50 these are wrong. *Bets*: studies that the operator's
page calls decided, at a tolerance of {tolerance} and an error of {alpha} in each direction, and the
items after which half of them were: equal models are decided too, as *held*.

| win rate | items | half width | not 1/2 | bets decided | items then |
|---:|---:|---:|---:|---:|---:|
{rows}
"""


def page(rows: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = [
        f"| {row['win rate']:.2f} | {row['items']} | {row['half width']:.3f} | "
        f"{100 * row['not 1/2']:.1f} % | {100 * row['bets decided']:.1f} % | "
        f"{row['items when decided'] or '-'} |"
        for row in rows
    ]
    return _PAGE.format(runs=RUNS, tolerance=TOLERANCE, alpha=ALPHA, rows="\n".join(lines))


if __name__ == "__main__":
    main()
