"""How the metrics of runs agree with people's ratings of the same outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.correlation import Correlation, Method, correlation
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

_FEWEST_MODELS = 3
"""With two models every correlation over them is 1 or -1."""


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
    by_model: of each model over its samples (Spearman).
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
    by_model: dict[str, Estimate]
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
    matched, unmatched = _matched(scores, runs)
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


def _matched(
    scores: Iterable[PeopleScore], runs: Mapping[str, Sequence[Measurement]]
) -> tuple[dict[str, Sequence[Measurement]], list[str]]:
    """Rated model -> its cases, and the runs of other models."""
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
    return matched, unmatched


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


@dataclass(frozen=True)
class _Rated:
    """Mean scores of people, and a metric's, of the same outputs: both higher where better.

    item, model -> score.
    """

    people: dict[tuple[str, str], float]
    metric: dict[tuple[str, str], float]

    @property
    def items(self) -> dict[str, list[str]]:
        """Item -> its models, of items with at least two."""
        models: dict[str, list[str]] = defaultdict(list)
        for item, model in sorted(self.people):
            models[item].append(model)
        return {item: own for item, own in models.items() if len(own) > 1}


def _metrics(
    ratings: Ratings,
    scores: Sequence[PeopleScore],
    runs: Mapping[str, Sequence[Measurement]],
    draws: int,
) -> Iterator[MetricAlignment | str]:
    """Each metric beside people, or the name of a case whose metric is the same everywhere."""
    if not runs:
        return
    suite = ratings.study.suite
    by_case: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for model, records in runs.items():
        for record in records:
            per_sample = not record.sizes and not record.answers
            if per_sample and (not suite or record.case.startswith(f"{suite}/")):
                by_case[record.case][model] = record
    for case, measured in by_case.items():
        for section in sorted({score.section for score in scores}):
            own = [score for score in scores if score.section == section]
            rated = _rated(own, measured)
            if len(set(rated.metric.values())) == 1:
                yield case
            elif rated.people:
                yield _aligned(case, section, rated, measured, ratings, own, draws)


def _rated(scores: Iterable[PeopleScore], records: Mapping[str, Measurement]) -> _Rated:
    given: dict[tuple[str, str], list[float]] = defaultdict(list)
    metric: dict[tuple[str, str], float] = {}
    by_sample = {model: _sample_scores(record) for model, record in records.items()}
    for score in scores:
        own = by_sample.get(score.model, {})
        if score.sample in own:
            given[score.item, score.model].append(score.score)
            metric[score.item, score.model] = own[score.sample]
    return _Rated({key: _mean(values) for key, values in given.items()}, metric)


def _sample_scores(record: Measurement) -> dict[str, float]:
    sign = 1 if record.higher_is_better else -1
    return {name: sign * value for part in record.scores.values() for name, value in part.items()}


def _aligned(
    case: str,
    section: str,
    rated: _Rated,
    records: Mapping[str, Measurement],
    ratings: Ratings,
    scores: Sequence[PeopleScore],
    draws: int,
) -> MetricAlignment:
    first = next(iter(records.values()))
    items = rated.items
    pairs = all(len(models) == 2 for models in items.values())
    return MetricAlignment(
        case=case,
        label=first.metric,
        section=section,
        items=len({item for item, _ in rated.people}),
        samples=_within_items(rated, items, draws),
        direction=_direction(rated, items, draws) if items and pairs else None,
        by_model={model: _over_samples(rated, model, draws) for model in sorted(records)},
        models=_over_models(rated, sorted(records)),
        within_margin=(
            _within_margin(rated, items, scores) if ratings.study.kind == "caption" else None
        ),
    )


def _within_items(rated: _Rated, items: Mapping[str, Sequence[str]], draws: int) -> Estimate:
    """Correlation of what is left when each item's own mean is taken away."""
    metric: list[float] = []
    people: list[float] = []
    owners: list[int] = []
    for number, (item, models) in enumerate(items.items()):
        for values, scores in ((metric, rated.metric), (people, rated.people)):
            own = [scores[item, model] for model in models]
            values += [value - _mean(own) for value in own]
        owners += [number] * len(models)
    return sample_correlation(np.array(metric), np.array(people), owners, draws)


def _direction(rated: _Rated, items: Mapping[str, Sequence[str]], draws: int) -> Estimate:
    def differences(scores: Mapping[tuple[str, str], float]) -> list[float]:
        return [
            scores[item, first] - scores[item, second] for item, (first, second) in items.items()
        ]

    return same_direction(
        np.round(differences(rated.metric), 9), np.round(differences(rated.people), 9), draws
    )


def _over_samples(rated: _Rated, model: str, draws: int) -> Estimate:
    keys = [key for key in rated.people if key[1] == model]
    metric, people = (
        np.array([scores[key] for key in keys]) for scores in (rated.metric, rated.people)
    )
    return sample_correlation(metric, people, list(range(len(keys))), draws)


def _over_models(rated: _Rated, models: Sequence[str]) -> tuple[Correlation | None, ...]:
    keys = {model: [key for key in rated.people if key[1] == model] for model in models}
    means = [
        [_mean(scores[key] for key in own) for scores in (rated.metric, rated.people)]
        for own in keys.values()
        if own
    ]
    if len(means) < _FEWEST_MODELS:
        return ()
    metric, people = np.array(means).T
    return tuple(correlation(metric, people, method) for method in METHODS)


def _within_margin(
    rated: _Rated, items: Mapping[str, Sequence[str]], scores: Iterable[PeopleScore]
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
        predicted_choice(*(rated.metric[item, model] for model in items[item])) for item in votes
    ]
    return alignment(predictions, list(votes.values()))


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)
