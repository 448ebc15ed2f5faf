"""People's ratings: how far annotators agree with one another, with themselves and with known
answers, and how the metrics of runs agree with people.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.gate.statistics.bounds import gaffke_lower
from pytest_cepbench.metrics.correlation import FEWEST_CORRELATED, Correlation, Method, correlation
from pytest_cepbench.metrics.human_ratings import (
    GRADES,
    Alignment,
    Choice,
    CrossInconsistency,
    Grade,
    alignment,
    cross_inconsistency,
    predicted_choice,
    same_direction,
    sample_correlation,
)
from pytest_cepbench.metrics.judge_agreement import (
    VERDICTS,
    RatedThings,
    Reading,
    alpha_estimate,
    equal_votes_estimate,
    ratio_estimate,
)
from pytest_cepbench.metrics.uncertainty import Estimate
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.ratings.summary import (
    AnnotatorSummary,
    attention_results,
    repeat_results,
    summarize_people,
)
from pytest_cepbench.ratings.votes import SCALES, PeopleScore, VoteScale, people_scores, vote_table
from pytest_cepbench.studies.rated_items import fingerprint_of

# -- annotators ------------------------------------------------------------------------------------

_READINGS: tuple[tuple[Reading, str], ...] = (
    ("fdt", "equal votes, ties forced"),
    ("three_way", "equal votes, ties one verdict"),
)


@dataclass(frozen=True)
class Coefficient:
    """One number of agreement. name: in words. scale: what it is of. note: how to read it."""

    name: str
    scale: str
    estimate: Estimate
    note: str = ""


@dataclass(frozen=True)
class RatingAgreement:
    """The agreement of the annotators of one study.

    ratings: the folder. kind, suite: of the study.
    items: asked of people. judged: that have an answer. shared: that have several.
    remarks: what of the votes does not count, a sentence each.
    """

    ratings: str
    kind: str
    suite: str
    items: int
    judged: int
    shared: int
    coefficients: tuple[Coefficient, ...]
    annotators: tuple[AnnotatorSummary, ...]
    remarks: tuple[str, ...]


def measure_agreement(ratings: Ratings, votes: Votes) -> RatingAgreement:
    """The agreement of all annotators who answered, with intervals by a bootstrap by item.

    Raises DatasetError where nobody has answered an item.
    """
    answers = votes.answers()
    if not answers:
        why = "; ".join(["nobody has judged an item yet", *votes.remarks])
        raise DatasetError(f"{ratings.path}: {why}")
    answered = {vote.annotator for vote in answers}
    names = [name for name in ratings.study.annotators if name in answered]
    scales = SCALES[ratings.study.kind]
    tables = [(scale, vote_table(scale, answers, names)) for scale in scales]
    coefficients = [each for table in tables for each in _coefficients(*table)]
    coefficients += _of_annotators(ratings, votes)
    judged = Counter(vote.item for vote in answers)
    return RatingAgreement(
        ratings=str(ratings.path),
        kind=ratings.study.kind,
        suite=ratings.study.suite,
        items=len(ratings.asked),
        judged=len(judged),
        shared=sum(count > 1 for count in judged.values()),
        coefficients=tuple(coefficients),
        annotators=tuple(p for p in summarize_people(ratings, votes) if p.name in answered),
        remarks=votes.remarks,
    )


def _coefficients(scale: VoteScale, rated: RatedThings) -> Iterator[Coefficient]:
    if scale.ordered:
        alpha = alpha_estimate(rated, "ordinal")
        yield Coefficient("Krippendorff's alpha, ordinal", scale.name, alpha)
    if not scale.labels:  # ranks that are shared are no names
        return
    nominal = alpha_estimate(rated, "nominal")
    yield Coefficient("Krippendorff's alpha, nominal", scale.name, nominal)
    if scale.labels != WINNERS:
        yield Coefficient("equal votes", scale.name, equal_votes_estimate(rated))
        return
    given = np.isfinite(rated.values)
    for reading, name in _READINGS:
        words = [VERDICTS[reading][winner] for winner in WINNERS]
        codes = np.array([sorted(set(words)).index(word) for word in words], float)
        values = np.full_like(rated.values, np.nan)
        values[given] = codes[rated.values[given].astype(int)]
        read = replace(rated, values=values)
        yield Coefficient(name, scale.name, equal_votes_estimate(read))


def _of_annotators(ratings: Ratings, votes: Votes) -> Iterator[Coefficient]:
    """Agreement with oneself and with known answers."""
    number = {item: place for place, item in enumerate(ratings.items)}

    def share(name: str, results: Iterable[tuple[Vote, bool]], note: str = "") -> Coefficient:
        right, total = np.zeros(len(number)), np.zeros(len(number))
        for vote, good in results:
            right[number[vote.item]] += good
            total[number[vote.item]] += 1
        return Coefficient(name, "votes", ratio_estimate(right, total), note)

    yield share("the same answer again", repeat_results(votes), "items that came twice")
    yield share("attention checks passed", attention_results(ratings, votes), "hidden checks")


# -- metrics beside people ---------------------------------------------------------------------

METHODS: tuple[Method, ...] = ("pearson", "spearman", "kendall")


@dataclass(frozen=True)
class PeopleOfModel:
    """What people think of one model in one section.

    votes: on its outputs. items: that these are of.
    score: mean in [0, 1]; of comparisons the win rate, ties being one half.
    low, high: ends of its 95 % interval, a bootstrap by item, or Gaffke's bounds where all items
        are alike or few; None of fewer than two items.
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
    ratings: Ratings, votes: Votes, runs: Mapping[str, Sequence[Measurement]]
) -> RatingAlignment:
    """People's view of each model, and how each metric of the runs agrees with it.

    runs: name -> what it measured. A run is of the rated model with its fingerprint, else with its
        name; cases of other suites, of battles and of whole sets are left out.
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
        rated = ", ".join(sorted(names))
        raise DatasetError(f"{ratings.path} has ratings of {rated}, and none of {', '.join(runs)}")
    sections: dict[str, list[PeopleScore]] = defaultdict(list)
    for score in scores:
        sections[score.section].append(score)
    metrics: list[MetricAlignment] = []
    constant: dict[str, None] = {}
    for case, measured in _records_by_case(ratings, matched).items():
        by_sample = {}
        for model, record in measured.items():
            sign = 1 if record.higher_is_better else -1
            every = (pair for part in record.scores.values() for pair in part.items())
            by_sample[model] = {name: sign * value for name, value in every}
        for section, own in sorted(sections.items()):
            given: dict[tuple[str, str], list[float]] = defaultdict(list)
            metric: _Scores = {}
            for score in own:
                values = by_sample.get(score.model, {})
                if score.sample in values:
                    given[score.item, score.model].append(score.score)
                    metric[score.item, score.model] = values[score.sample]
            people = {key: fmean(each) for key, each in given.items()}
            if len(set(metric.values())) == 1:
                constant[case] = None
            elif people:
                label = next(iter(measured.values())).metric
                captions = own if ratings.study.kind == "caption" else []
                metrics.append(_aligned(case, label, section, metric, people, captions))
    return RatingAlignment(
        ratings=str(ratings.path),
        kind=ratings.study.kind,
        suite=ratings.study.suite,
        people=tuple(_people(scores)),
        inconsistency=_inconsistency(scores),
        metrics=tuple(metrics),
        constant=tuple(constant),
        unmatched=tuple(unmatched),
        remarks=votes.remarks,
    )


_Scores = dict[tuple[str, str], float]
"""Item, model -> mean score, higher where better."""


def _records_by_case(
    ratings: Ratings, runs: Mapping[str, Sequence[Measurement]]
) -> dict[str, dict[str, Measurement]]:
    """Case -> model -> its record, of the cases of the study's suite with a score per sample."""
    suite = ratings.study.suite
    by_case: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for model, records in runs.items():
        for record in records:
            per_sample = not record.sizes and not record.answers
            if per_sample and (not suite or record.case.startswith(f"{suite}/")):
                by_case[record.case][model] = record
    return by_case


def _people(scores: Sequence[PeopleScore]) -> Iterator[PeopleOfModel]:
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
        mean = ratio_estimate(sums, votes)
        low, high = mean.low, mean.high
        if low is None and len(by_item) > 1:  # of few, or alike, draws tell too little
            low, high = (
                abs(end - gaffke_lower(abs(end - sums / votes), 0.0, 0.025)) for end in (0.0, 1.0)
            )
        yield PeopleOfModel(
            model=model,
            section=section,
            votes=len(own),
            items=len(by_item),
            score=fmean(score.score for score in own),
            low=low,
            high=high,
            rank=fmean(ranked) if ranked else None,
            grades=tuple(graded.count(grade) / len(graded) for grade in GRADES) if graded else (),
        )


def _inconsistency(scores: Sequence[PeopleScore]) -> dict[str, CrossInconsistency]:
    """The tables of nine cells, of all models and of each."""
    grades: dict[tuple[str, str, str], dict[str, Grade]] = defaultdict(dict)
    for score in scores:
        if score.grade is not None:
            grades[score.annotator, score.sample, score.model][score.section] = score.grade
    pairs: dict[str, list[tuple[Grade, Grade]]] = {}
    for (*_, model), own in grades.items():
        if "understanding" in own and "generation" in own:
            for name in ("all", model):
                pairs.setdefault(name, []).append((own["understanding"], own["generation"]))
    return {
        name: cross_inconsistency(*map(list, zip(*pairs[name], strict=True)))
        for name in sorted(pairs, key=lambda name: (name != "all", name))
    }


def _aligned(
    case: str,
    label: str,
    section: str,
    metric: _Scores,
    people: _Scores,
    captions: Sequence[PeopleScore],
) -> MetricAlignment:
    """A metric beside people.

    metric, people: of the same outputs.
    captions: people's scores where captions were compared, else none.
    """
    by_item: dict[str, list[str]] = defaultdict(list)
    for item, model in sorted(people):
        by_item[item].append(model)
    items = {item: own for item, own in by_item.items() if len(own) > 1}
    # What is left of each when the item's own mean is taken away.
    left: tuple[list[float], list[float]] = ([], [])
    owners: list[int] = []
    for number, (item, compared) in enumerate(items.items()):
        for values, given in zip(left, (metric, people), strict=True):
            own = [given[item, model] for model in compared]
            values += [value - fmean(own) for value in own]
        owners += [number] * len(compared)
    direction = None
    if items and all(len(compared) == 2 for compared in items.values()):
        first, second = (
            np.round([given[i, one] - given[i, other] for i, (one, other) in items.items()], 9)
            for given in (metric, people)
        )
        direction = same_direction(first, second)
    keys: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for item, model in people:
        keys[model].append((item, model))
    means = np.array(
        [[fmean(given[k] for k in keys[m]) for m in sorted(keys)] for given in (metric, people)]
    )
    return MetricAlignment(
        case=case,
        label=label,
        section=section,
        items=len(by_item),
        samples=sample_correlation(np.array(left[0]), np.array(left[1]), owners),
        direction=direction,
        models=tuple(correlation(means[0], means[1], method) for method in METHODS)
        if len(keys) >= FEWEST_CORRELATED
        else (),
        within_margin=_within_margin(metric, items, captions),
    )


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
