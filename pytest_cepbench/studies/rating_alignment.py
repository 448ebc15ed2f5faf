"""How the metrics of runs agree with people's ratings of the same outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.correlation import FEWEST_CORRELATED, Correlation, Method, correlation
from pytest_cepbench.metrics.human_ratings import (
    GRADES,
    Alignment,
    Choice,
    CrossInconsistency,
    alignment,
    cross_inconsistency,
    predicted_choice,
    same_direction,
    sample_correlation,
)
from pytest_cepbench.metrics.judge_agreement import ratio_estimate
from pytest_cepbench.metrics.uncertainty import DRAWS, Estimate
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.votes import PeopleScore, people_scores
from pytest_cepbench.studies.rated_items import fingerprint_of

METHODS: tuple[Method, ...] = ("pearson", "spearman", "kendall")


@dataclass(frozen=True)
class PeopleOfModel:
    """What people think of one model in one section.

    votes: on its outputs. items: that these are of.
    score: mean in [0, 1]; of comparisons the win rate, ties being one half.
    low, high: ends of its 95 % interval, a bootstrap by item; None of fewer than two items.
    rank: mean, 1 for the best; None of comparisons.
    grades: share of each of `GRADES`; empty of comparisons.
    """

    model: str
    section: str
    votes: int
    items: int
    score: float
    low: float | None
    high: float | None
    rank: float | None
    grades: tuple[float, ...]


@dataclass(frozen=True)
class MetricAlignment:
    """One case of the runs beside people's ratings.

    samples: correlation within items (Spearman), of the differences of outputs by the metric and
        by people, with its interval by item.
    direction: how often the metric prefers the output that people prefer, of two.
    models: over the models, by their means; one for each of `METHODS`, None where it is not
        defined. Empty of fewer than three models.
    within_margin: agreement with votes on captions where a difference of at most .01 is none; None
        of other ratings.
    """

    case: str
    label: str
    section: str
    items: int
    samples: Estimate
    direction: Estimate | None
    models: tuple[Correlation | None, ...]
    within_margin: Alignment | None


@dataclass(frozen=True)
class RatingAlignment:
    """People's ratings of one study, and the metrics beside them.

    inconsistency: model -> grades of understanding against those of generation, "all" first; empty
        where a study has not both.
    constant: cases whose metric gave all rated outputs the same score, of which nothing follows.
    unmatched: runs whose model nobody rated.
    """

    ratings: str
    kind: str
    suite: str
    people: tuple[PeopleOfModel, ...]
    inconsistency: dict[str, CrossInconsistency]
    metrics: tuple[MetricAlignment, ...]
    constant: tuple[str, ...]
    unmatched: tuple[str, ...]
    remarks: tuple[str, ...]


def measure_alignment(
    ratings: Ratings,
    votes: Votes,
    runs: Mapping[str, Sequence[Measurement]],
    draws: int = DRAWS,
) -> RatingAlignment:
    """People's view of each model, and how each metric of the runs agrees with it.

    runs: name -> what it measured. A run is of the rated model with its fingerprint, else with its
        name; cases of other suites, of battles and of whole sets are left out.
    draws: of the bootstrap behind each interval.
    Raises DatasetError as `people_scores`, where nobody has rated anything, and for runs none of
    which was rated.
    """
    scores = people_scores(ratings, votes)
    if not scores:
        raise DatasetError(f"{ratings.path}: nobody has judged an item yet")
    by_print = {score.fingerprint: score.model for score in scores if score.fingerprint}
    names = {score.model for score in scores}
    matched: dict[str, Sequence[Measurement]] = {}
    unmatched = []
    for name, records in runs.items():
        prints = {fingerprint_of(record) for record in records}
        model = next((by_print[own] for own in prints if own in by_print), None)
        if model is None and name in names:
            model = name
        if model is None:
            unmatched.append(name)
        elif model in matched:
            raise DatasetError(f"two runs are of the rated model {model!r}: give one of them")
        else:
            matched[model] = records
    if runs and not matched:
        rated = ", ".join(sorted({score.model for score in scores}))
        raise DatasetError(f"{ratings.path} has ratings of {rated}, and none of {', '.join(runs)}")
    metrics = list(_metrics(ratings, scores, matched, draws))
    return RatingAlignment(
        ratings=str(ratings.path),
        kind=ratings.study.kind,
        suite=ratings.study.suite,
        people=tuple(_people(scores, draws)),
        inconsistency=_inconsistency(scores),
        metrics=tuple(metric for metric in metrics if isinstance(metric, MetricAlignment)),
        constant=tuple(dict.fromkeys(metric for metric in metrics if isinstance(metric, str))),
        unmatched=tuple(unmatched),
        remarks=tuple(votes.remarks.lines),
    )


# -- people alone ----------------------------------------------------------------------------------


def _people(scores: Sequence[PeopleScore], draws: int) -> Iterator[PeopleOfModel]:
    grouped: dict[tuple[str, str], list[PeopleScore]] = defaultdict(list)
    for score in scores:
        grouped[score.section, score.model].append(score)
    for (section, model), own in sorted(grouped.items()):
        ranked = [score.rank for score in own if score.rank is not None]
        graded = [score.grade for score in own if score.grade is not None]
        by_item: dict[str, list[float]] = defaultdict(list)
        for score in own:
            by_item[score.item].append(score.score)
        sums, votes = (np.array([*map(of, by_item.values())], float) for of in (sum, len))
        mean = ratio_estimate(sums, votes, draws)
        yield PeopleOfModel(
            model=model,
            section=section,
            votes=len(own),
            items=len(by_item),
            score=_mean(score.score for score in own),
            low=mean.low,
            high=mean.high,
            rank=_mean(ranked) if ranked else None,
            grades=tuple(graded.count(grade) / len(graded) for grade in GRADES) if graded else (),
        )


def _inconsistency(scores: Sequence[PeopleScore]) -> dict[str, CrossInconsistency]:
    """The tables of nine cells, of all models and of each."""
    grades: dict[tuple[str, str, str], dict[str, PeopleScore]] = defaultdict(dict)
    for score in scores:
        grades[score.annotator, score.sample, score.model][score.section] = score
    pairs = [
        (understood.model, understood.grade, drawn.grade)
        for own in grades.values()
        if (understood := own.get("understanding")) and (drawn := own.get("generation"))
    ]
    tables = {}
    for name in ["all", *sorted({model for model, _, _ in pairs})] if pairs else []:
        own = [
            (first, second)
            for model, first, second in pairs
            if name in ("all", model) and first is not None and second is not None
        ]
        tables[name] = cross_inconsistency([g for g, _ in own], [g for _, g in own])
    return tables


# -- metrics beside people -------------------------------------------------------------------------


_Scores = dict[tuple[str, str], float]
"""Item, model -> mean score, higher where better."""


def _metrics(
    ratings: Ratings,
    scores: Sequence[PeopleScore],
    runs: Mapping[str, Sequence[Measurement]],
    draws: int,
) -> Iterator[MetricAlignment | str]:
    """Each metric beside people, or the name of a case whose metric is the same everywhere."""
    suite = ratings.study.suite
    by_case: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for model, records in runs.items():
        for record in records:
            per_sample = not record.sizes and not record.answers
            if per_sample and (not suite or record.case.startswith(f"{suite}/")):
                by_case[record.case][model] = record
    for case, measured in by_case.items():
        by_sample = {}
        for model, record in measured.items():
            sign = 1 if record.higher_is_better else -1
            every = (pair for part in record.scores.values() for pair in part.items())
            by_sample[model] = {name: sign * value for name, value in every}
        for section in sorted({score.section for score in scores}):
            own = [score for score in scores if score.section == section]
            given: dict[tuple[str, str], list[float]] = defaultdict(list)
            metric: _Scores = {}
            for score in own:
                values = by_sample.get(score.model, {})
                if score.sample in values:
                    given[score.item, score.model].append(score.score)
                    metric[score.item, score.model] = values[score.sample]
            people = {key: _mean(each) for key, each in given.items()}
            if len(set(metric.values())) == 1:
                yield case
            elif people:
                yield _aligned(case, section, metric, people, measured, ratings, own, draws)


def _aligned(
    case: str,
    section: str,
    metric: _Scores,
    people: _Scores,
    records: Mapping[str, Measurement],
    ratings: Ratings,
    scores: Sequence[PeopleScore],
    draws: int,
) -> MetricAlignment:
    """metric, people: of the same outputs."""
    models: dict[str, list[str]] = defaultdict(list)
    for item, model in sorted(people):
        models[item].append(model)
    items = {item: own for item, own in models.items() if len(own) > 1}
    # What is left of each when the item's own mean is taken away.
    left: tuple[list[float], list[float]] = ([], [])
    owners: list[int] = []
    for number, (item, compared) in enumerate(items.items()):
        for values, given in zip(left, (metric, people), strict=True):
            own = [given[item, model] for model in compared]
            values += [value - _mean(own) for value in own]
        owners += [number] * len(compared)
    direction = None
    if items and all(len(compared) == 2 for compared in items.values()):
        apart = [
            np.round(
                [given[item, one] - given[item, other] for item, (one, other) in items.items()], 9
            )
            for given in (metric, people)
        ]
        direction = same_direction(apart[0], apart[1], draws)
    return MetricAlignment(
        case=case,
        label=next(iter(records.values())).metric,
        section=section,
        items=len(models),
        samples=sample_correlation(np.array(left[0]), np.array(left[1]), owners, draws),
        direction=direction,
        models=_over_models(metric, people, sorted(records)),
        within_margin=(
            _within_margin(metric, items, scores) if ratings.study.kind == "caption" else None
        ),
    )


def _over_models(
    metric: _Scores, people: _Scores, models: Sequence[str]
) -> tuple[Correlation | None, ...]:
    keys = [[key for key in people if key[1] == model] for model in models]
    means = [
        [_mean(given[key] for key in own) for given in (metric, people)] for own in keys if own
    ]
    if len(means) < FEWEST_CORRELATED:
        return ()
    first, second = np.array(means).T
    return tuple(correlation(first, second, method) for method in METHODS)


def _within_margin(
    metric: _Scores, items: Mapping[str, Sequence[str]], scores: Iterable[PeopleScore]
) -> Alignment | None:
    """MMGenBench's alignment: C1 is the caption of the model that comes first by name."""
    votes: dict[str, list[Choice]] = defaultdict(list)
    choices: Mapping[float, Choice] = {1.0: "C1", 0.5: "B", 0.0: "C2"}
    for score in scores:
        if score.item in items and score.model == items[score.item][0]:
            votes[score.item].append(choices[score.score])
    if not votes:
        return None
    predictions = [
        predicted_choice(*(metric[item, model] for model in items[item])) for item in votes
    ]
    return alignment(predictions, list(votes.values()))


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)
