"""The figures of win rates of which people labelled a part, under judges that are biased.

People prefer the candidate with a known probability. The judge repeats people's verdict, or says
something of its own with a lean to one of the two models: that is what no number of verdicts shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.error_rates.report import Promises
from benchmarks.error_rates.verdicts import FAILS, LEVELS, PASSES
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.labels.label_file import BattleDigests, Draw, DrawnBattle, LabelFile
from pytest_cepbench.gate.labels.usable import (
    PeopleScores,
    UsableLabels,
    bounds_by_labels,
    people_scores,
)
from pytest_cepbench.gate.statistics import Bounds, Differences, mean_bounds

TOLERANCE = 0.05
"""Of a win rate."""

LABELS = (50, 100, 200)

_BATTLES = 600
_CATEGORIES = 4
_TIES = 0.3  # of people's verdicts
_DECIDED, _MISSING = 0.5, 0.1  # of the battles, and of the labels, in the worlds that have such

HEAD = (
    "false failures, 1 case", "14 cases", "false passes, 1 case", "14 cases",
    "false failures, judge alone", "false passes, judge alone",
)  # fmt: skip


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


Drawing = Callable[
    [np.random.Generator, Judge, int, float], tuple[dict[str, dict[str, float]], PeopleScores]
]
"""See `draw`."""


def rows(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Errors of the labelled rule, which are promised, and of the judge alone, which are not."""
    for judge in JUDGES:
        for labels in LABELS:
            yield _row(judge.name, judge, draw, labels, runs, promises)
    name = f"half decided, a tenth of labels missing, {JUDGES[0].name}"
    for labels in LABELS:
        yield _row(name, JUDGES[0], draw_with_missing, labels, runs, promises)


def _row(
    world: str, judge: Judge, drawing: Drawing, labels: int, runs: int, promises: Promises
) -> list[str]:
    cells, alone = [world, str(labels)], []
    for drift, wanted, what in ((0.0, FAILS, "failures"), (TOLERANCE, PASSES, "passes")):
        generator = np.random.default_rng([labels, round(100 * drift), *world.encode()])
        hits = np.zeros((len(LEVELS) + 1, runs), bool)
        for run in range(runs):
            scores, people = drawing(generator, judge, labels, drift)
            for row, level in enumerate(LEVELS):
                bounds = bounds_by_labels(scores, people, {}, level)
                hits[row, run] = verdict_of(bounds, TOLERANCE) in wanted
                if not hits[row, run]:  # nor is it at a lower level
                    break
            hits[-1, run] = verdict_of(_by_judge(scores, LEVELS[0]), TOLERANCE) in wanted
        for own, cases in zip(hits, (1, 14), strict=False):
            name = f"false {what} by labels, {world}, {labels} labels, {cases} cases"
            cells.append(promises.percent(name, own, LEVELS[0], cases))
        alone.append(promises.percent("", hits[-1]))
    return cells + alone


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
        s: DrawnBattle(sample=s, **BattleDigests(s, s, "")._asdict(), probability=1.0)
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


def _by_judge(scores: dict[str, dict[str, float]], alpha: float) -> Bounds:
    less = {name: {s: x - EVEN for s, x in part.items()} for name, part in scores.items()}
    return mean_bounds(Differences.of(less), alpha, span=EVEN)
