"""Coverage of prediction-powered bounds on released verdicts: people's, and a judge's on the same.

    python benchmarks/label_coverage.py human_verdicts.json gpt4o_verdicts.json

The files are OpenING's. For each model, its battles are a population whose win rate by people is
known. A run draws as many battles from it as there are, with replacement, gives the judge's score
of all, and people's of a random part; counted is how often the bounds hold the population's win
rate. Drawn with replacement, the battles are a sample of the population, as a suite's samples are
of all that users ask: bounds that hold for a sample would be too wide for a panel drawn without.
The second table shows that: battles drawn without replacement, the panel's own mean as the target.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run by its path, Python looks beside the script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts
from pytest_cepbench.gate.statistics import Bounds
from pytest_cepbench.gate.statistics.differences import Array
from pytest_cepbench.gate.statistics.prediction_powered import labelled_bounds, scores_of_array

LABELS = (50, 100, 200, 400)

NOMINAL = 0.90
"""Of both bounds together: one-sided, each errs at 0.05."""

WITHIN = 0.015
"""Coverage that is wanted lies as near to the nominal one."""

_SCORES = {"A": 1.0, "Tie(A)": EVEN, "Tie(B)": EVEN, "B": 0.0}


@dataclass(frozen=True)
class Coverage:
    """What was measured with so many labels.

    design: how battles were drawn. coverage: share of the runs whose bounds hold the target, with
    its standard error. below, above: share in which it lies under the lower bound, or over the
    upper one. people_only: coverage of bounds with lam = 0. lam, worth: means over the runs.
    halved: mean width of the bounds, halved. judge_bias: root mean square over models of the
    judge's win rate less people's.
    """

    design: str
    labels: int
    runs: int
    coverage: float
    error: float
    below: float
    above: float
    people_only: float
    lam: float
    worth: float
    halved: float
    judge_bias: float


def read_panel(people: Path, judge: Path) -> dict[str, Array]:
    """Model -> (battles, 2) people's and the judge's score of its answers, less one half.

    Battles that both judged, in either order. Raises DatasetError.
    """
    names = ModelNames()
    asked = {}
    for battle in read_verdicts(judge, names):
        score = _SCORES[battle.winner]
        asked[battle.question, battle.first, battle.second] = score
        asked.setdefault((battle.question, battle.second, battle.first), 1 - score)
    panel: dict[str, list[tuple[float, float]]] = {}
    for battle in read_verdicts(people, names):
        own = asked.get((battle.question, battle.first, battle.second))
        if own is None:
            continue
        pair = (_SCORES[battle.winner] - EVEN, own - EVEN)
        panel.setdefault(battle.first, []).append(pair)
        panel.setdefault(battle.second, []).append((-pair[0], -pair[1]))
    return {model: np.array(rows) for model, rows in sorted(panel.items())}


def measure(panel: Mapping[str, Array], labels: int, runs: int, *, replacement: bool) -> Coverage:
    """Coverage with so many labels, over the models that have more battles than that."""
    generator = np.random.default_rng([labels, replacement])
    rows: list[tuple[float, ...]] = []
    for battles in panel.values():
        count = len(battles)
        if count <= labels:
            continue
        target = float(battles[:, 0].mean())
        for _ in range(runs):
            drawn = battles[generator.choice(count, count, replace=replacement)]
            rows.append(_run(drawn, labels, target))
    below, above, missed_by_people, lam, worth, halved = np.array(rows).mean(axis=0)
    covered = 1 - below - above
    bias = [float(own[:, 1].mean() - own[:, 0].mean()) for own in panel.values()]
    return Coverage(
        "with replacement" if replacement else "without replacement",
        labels,
        len(rows),
        round(float(covered), 4),
        round(sqrt(covered * (1 - covered) / len(rows)), 4),
        round(float(below), 4),
        round(float(above), 4),
        round(1 - float(missed_by_people), 4),
        round(float(lam), 3),
        round(float(worth), 3),
        round(float(halved), 4),
        round(float(np.sqrt(np.mean(np.square(bias)))), 4),
    )


def _ends(bounds: Bounds) -> tuple[float, float]:
    """Of a win rate less one half: what is not excluded where there is no bound."""
    low, high = bounds.low, bounds.high
    return -EVEN if low is None else low, EVEN if high is None else high


def _run(drawn: Array, labels: int, target: float) -> tuple[float, ...]:
    """One draw: misses of either bound, of people alone, lam, worth, half the width."""
    alpha = (1 - NOMINAL) / 2
    people, judge = drawn[:, 0], drawn[:, 1]
    scores = scores_of_array(people[:labels], judge[:labels], judge[labels:])
    bounds, mean = labelled_bounds(scores, alpha, span=EVEN)
    low, high = _ends(bounds)
    alone_low, alone_high = _ends(labelled_bounds(scores, alpha, span=EVEN, lam=0.0)[0])
    missed = not alone_low <= target <= alone_high
    return target < low, target > high, missed, mean.lam, mean.worth, (high - low) / 2


def table(figures: Sequence[Coverage]) -> Iterator[str]:
    """A Markdown table."""
    heads = (
        "labels", "runs", "coverage", "target below", "above", "people only", "lam",
        "a label counts", "half width",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for own in figures:
        yield (
            f"| {own.labels} | {own.runs:,} | {own.coverage:.3f} ± {own.error:.3f} | "
            f"{own.below:.3f} | {own.above:.3f} | {own.people_only:.3f} | {own.lam:.2f} | "
            f"{own.worth:.2f} | {own.halved:.3f} |"
        )


def page(figures: Sequence[Coverage], judge: str, models: int) -> str:
    """The results for readers."""
    within = [f for f in figures if f.design == "with replacement"]
    off = max(abs(f.coverage - NOMINAL) for f in within)
    opening = (
        "Written by `benchmarks/label_coverage.py` from OpenING's released verdicts of people and "
        f"of {judge}, {models} models. Each bound errs at 0.05, so both together hold the target "
        f"in {NOMINAL:.0%} of the runs. The judge's win rates are off by "
        f"{within[0].judge_bias:.3f} (root mean square over models)."
    )
    drawn = (
        "Battles drawn with replacement, as a suite's samples are drawn from all that users ask. "
        f"The coverage farthest from {NOMINAL:.2f} is off by {100 * off:.1f} points; "
        f"{100 * WITHIN:.1f} were wanted."
    )
    panel = (
        "Battles drawn without replacement from the panel, and the panel's own mean as the "
        "target. The bounds are of the population, and so they are too wide for that, the more so "
        "the larger the labelled part is."
    )
    rest = [figure for figure in figures if figure.design != "with replacement"]
    head = "# Coverage of bounds made of labels and verdicts"
    lines = [head, "", opening, "", drawn, "", *table(within), "", panel, "", *table(rest)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 where a coverage is farther off than wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("people", type=Path, help="verdicts of people, in OpenING's format")
    parser.add_argument("judge", type=Path, help="verdicts of a judge on the same battles")
    parser.add_argument("--name", default="GPT-4o", help="of the judge")
    parser.add_argument("--runs", type=int, default=400, help="draws of each model")
    parser.add_argument("--out", type=Path, help="folder of results; default: none is written")
    options = parser.parse_args(arguments)
    panel = read_panel(options.people, options.judge)
    figures = [
        measure(panel, labels, options.runs, replacement=replacement)
        for replacement in (True, False)
        for labels in LABELS
    ]
    text = page(figures, options.name, len(panel))
    print(text)
    if options.out is not None:
        document = {"nominal": NOMINAL, "figures": [asdict(own) for own in figures]}
        (options.out / "label_coverage.json").write_text(json.dumps(document, indent=1) + "\n")
        (options.out / "label-coverage.md").write_text(text)
    sampled = [own for own in figures if own.design == "with replacement"]
    return int(any(abs(own.coverage - NOMINAL) > WITHIN for own in sampled))


if __name__ == "__main__":
    sys.exit(main())
