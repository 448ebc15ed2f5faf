"""The figures of win rates of which people labelled a part, under judges that are biased.

People prefer the candidate with a known probability. The judge repeats people's verdict, or says
something of its own with a lean to one of the two models: that is what no number of verdicts shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.simulated import Settings
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.labels.bounds import bounds_by_labels
from pytest_cepbench.gate.labels.draw import Battle
from pytest_cepbench.gate.labels.label_file import Draw, DrawnBattle, LabelFile
from pytest_cepbench.gate.labels.usable import PeopleScores, UsableLabels, people_scores
from pytest_cepbench.gate.statistics import Bounds, Differences, mean_bounds

LABELLED = "labelled: "
"""Before the names of these worlds: their table is their own."""

TOLERANCE = 0.05
"""Of a win rate."""

LABELS = (50, 100, 200)

_BATTLES = 600
_CATEGORIES = 4
_TIES = 0.3  # of people's verdicts
_DECIDED, _MISSING = 0.5, 0.1  # of the battles, and of the labels, in the worlds that have such
_CASES = (1, 10)


@dataclass(frozen=True)
class Judge:
    """A judge of the simulation.

    repeats: the share of its verdicts that are people's.
    lean: how far the mean of the others lies from one half, towards the candidate.
    """

    name: str
    repeats: float
    lean: float


JUDGES = (
    Judge("a judge that leans to the candidate", 0.4, 0.3),
    Judge("a judge that leans to the accepted model", 0.4, -0.3),
    Judge("a judge without a lean", 0.6, 0.0),
)


def figures(settings: Settings, *, quick: bool) -> Iterator[Figure]:
    """Errors of the labelled rule, which are promised, and of the judge alone, which are not."""
    for judge in JUDGES:
        for labels in LABELS[1:2] if quick else LABELS:
            yield from _errors(judge.name, judge, draw, labels, settings)
    name = f"half decided, a tenth of labels missing, {JUDGES[0].name}"
    for labels in LABELS[1:2] if quick else LABELS:
        yield from _errors(name, JUDGES[0], draw_with_missing, labels, settings)


Drawing = Callable[
    [np.random.Generator, Judge, int, float], tuple[dict[str, dict[str, float]], PeopleScores]
]
"""See `draw`."""


def _errors(
    world: str, judge: Judge, drawing: Drawing, labels: int, settings: Settings
) -> Iterator[Figure]:
    name = f"{LABELLED}{world}"
    for drift, what, rule, wanted in (
        (0.0, "false failures", "regression", Verdict.REGRESSED),
        (TOLERANCE, "false passes", "noninferiority", Verdict.HELD),
    ):
        names = [ord(letter) for letter in world]
        generator = np.random.default_rng([settings.seed, *names, labels, round(drift * 100)])
        hits: dict[tuple[str, int], list[bool]] = {}
        for _ in range(settings.runs):
            scores, people = drawing(generator, judge, labels, drift)
            for cases in _CASES:
                for by, bounds in _both_rules(scores, people, settings.alpha / cases):
                    hit = _says(bounds, wanted)
                    hits.setdefault((by, cases), []).append(hit)
        for (by, cases), own in hits.items():
            cell = Cell(f"{rule}, {by}", name, labels, cases, drift, TOLERANCE)
            promise = settings.alpha / cases if by == "labels" else None
            yield cell.rate(f"{what} of a case", np.array(own), promise)


def draw(
    generator: np.random.Generator, judge: Judge, labels: int, drift: float
) -> tuple[dict[str, dict[str, float]], PeopleScores]:
    """The judge's scores of all battles, and people's of a random part.

    drift: how far the candidate's true win rate lies below one half.
    """
    people = _verdicts(generator, EVEN - drift, _BATTLES)
    own = _verdicts(generator, EVEN + judge.lean, _BATTLES)
    judged = np.where(generator.random(_BATTLES) < judge.repeats, people, own)
    size = _BATTLES // _CATEGORIES
    scores: dict[str, dict[str, float]] = {}
    labelled: dict[str, float] = {}
    for category in range(_CATEGORIES):
        places = range(category * size, (category + 1) * size)
        scores[f"c{category}"] = {f"s{place}": float(judged[place]) for place in places}
        chosen = generator.permutation(size)[: _share(labels, category)] + category * size
        labelled |= {f"s{place}": float(people[place]) for place in chosen}
    return scores, PeopleScores(labelled)


def draw_with_missing(
    generator: np.random.Generator, judge: Judge, labels: int, drift: float
) -> tuple[dict[str, dict[str, float]], PeopleScores]:
    """The same where half of the battles are decided without people, and labels are missing.

    labels: battles that are drawn; a tenth of those among them that need people have no label.
    The battles that need people lose twice the drift, so that the win rate loses it once.
    """
    scores, people = draw(generator, judge, labels, drift / (1 - _DECIDED))
    decided = {
        s
        for part in scores.values()
        for s in generator.permutation(list(part))[: round(_DECIDED * len(part))].tolist()
    }
    judged = {
        name: {s: EVEN if s in decided else score for s, score in part.items()}
        for name, part in scores.items()
    }
    asked = [s for s in people.scores if s not in decided]
    drawn = {
        s: DrawnBattle(sample=s, **Battle(s, s, "")._asdict(), probability=1.0)
        for s in people.scores
    }
    made = Draw(suite="", population="", battles=_BATTLES, count=labels, drawn="")
    file = LabelFile(Path(), made, drawn)
    while True:
        missing = set(generator.permutation(asked)[: int(_MISSING * len(asked))].tolist())
        given = {s: people.scores[s] for s in asked if s not in missing}
        usable = UsableLabels(file, given, len(missing))
        partly, _ = people_scores(usable, judged, decided, {})
        if partly is not None:  # else most labels of a category are missing
            return judged, partly


def _share(labels: int, category: int) -> int:
    """Labels of a category: as many in each, one more in the first where they do not come out."""
    return labels // _CATEGORIES + (category < labels % _CATEGORIES)


def _verdicts(generator: np.random.Generator, mean: float, count: int) -> np.ndarray:
    """Wins, ties and losses with a given mean score."""
    ties = min(_TIES, 2 * min(mean, 1 - mean))
    drawn = generator.random(count)
    return np.where(drawn < ties, EVEN, np.where(drawn < ties / 2 + mean, 1.0, 0.0))


def _both_rules(
    scores: dict[str, dict[str, float]], people: PeopleScores, alpha: float
) -> Iterator[tuple[str, Bounds]]:
    yield "labels", bounds_by_labels(scores, people, {}, alpha)
    less = {name: {s: x - EVEN for s, x in part.items()} for name, part in scores.items()}
    yield "judge alone", mean_bounds(Differences.of(less), alpha, span=EVEN)


def _says(bounds: Bounds, wanted: Verdict) -> bool:
    verdict = verdict_of(bounds.mean, bounds.low, bounds.high, TOLERANCE)
    passed = verdict in (Verdict.HELD, Verdict.IMPROVED)
    return passed if wanted is Verdict.HELD else verdict is wanted
