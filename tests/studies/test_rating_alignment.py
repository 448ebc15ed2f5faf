"""Metrics of runs beside people's ratings of the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.gate.measurement import FORMAT
from pytest_cepbench.metrics.human_ratings import Grade
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Part, Vote
from pytest_cepbench.studies.rated_items import RatedItems, RatedOutput, RatedRun
from pytest_cepbench.studies.rating_alignment import RatingAlignment, measure_alignment
from tests.ratings.studies import make_study
from tests.ratings.voted import cast, flat, side_vote, write_rated

MODELS = ("good", "fair", "poor")

QUALITY = {"good": 0.9, "fair": 0.6, "poor": 0.2}

SAMPLES = [f"s{number}" for number in range(8)]


def record(quality: str, case: str = "toy/overall/sim", **changes: Any) -> Measurement:
    """What a run measured: a model's quality, and a little more for each sample."""
    scores = {name: QUALITY[quality] + number / 100 for number, name in enumerate(SAMPLES)}
    fields: dict[str, Any] = {
        "format": FORMAT,
        "case": case,
        "metric": "SIM",
        "value": QUALITY[quality],
        "n": len(SAMPLES),
        "higher_is_better": True,
        "model": {"spec": quality, "role": "describer"},
        "identity": {},
        "scores": {"overall": scores},
    }
    return Measurement(**(fields | changes))


def graded(folder: Path) -> Ratings:
    """Captions and images of three models on eight samples, in both sections."""
    runs = {name: RatedRun(name, record(name)) for name in MODELS}
    rated = RatedItems("grades", "toy")
    for number, sample in enumerate(SAMPLES):
        picture = flat(number)
        rated.images[picture.digest] = picture
        captions = [
            RatedOutput(run, (Part(text=f"{name} caption {number}"),)) for name, run in runs.items()
        ]
        rated.add(sample, [Part(image=picture.digest)], captions)
        drawn = []
        for place, run in enumerate(runs.values()):
            image = flat(10 + number, place)
            rated.images[image.digest] = image
            drawn.append(RatedOutput(run, (Part(image=image.digest),)))
        rated.add(sample, [Part(text=f"draw {number}")], drawn)
    return write_rated(folder, rated, ("ada",))


def grade_all(ratings: Ratings) -> None:
    """Good, medium and poor by model; what the fair one draws is poor."""
    for item in ratings.items.values():
        drawn = item.question[0].text is not None
        middle: Grade = "poor" if drawn else "medium"
        grades: dict[str, Grade] = {"0": "good", "1": middle, "2": "poor"}
        ranking = (0, 1, 2)
        vote = Vote(task="grades", item=item.item, annotator="ada", grades=grades, ranking=ranking)
        cast(ratings, vote)


def aligned(ratings: Ratings, **runs: Any) -> RatingAlignment:
    """With few draws. runs: name -> records; one of each model where none are given."""
    given = runs or {name: [record(name)] for name in MODELS}
    return measure_alignment(ratings, read_votes(ratings), given, draws=20)


def test_people_of_each_model_and_both_sections(tmp_path: Path) -> None:
    """Shares of grades, mean ranks, and the nine cells of grades in both sections."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    result = measure_alignment(ratings, read_votes(ratings), {})

    people = {(own.section, own.model): own for own in result.people}
    assert list(people["understanding", "fair"].grades) == [0, 1, 0]
    assert list(people["generation", "fair"].grades) == [1, 0, 0]
    assert people["generation", "good"].rank == 1
    fair = [list(row) for row in result.inconsistency["fair"].counts]
    assert fair == [[0, 0, 0], [8, 0, 0], [0, 0, 0]]
    assert result.inconsistency["all"].total == 24
    assert result.inconsistency["all"].inconsistent == pytest.approx(1 / 3)
    assert result.metrics == ()


def test_a_metric_that_orders_models_as_people_do(tmp_path: Path) -> None:
    """Correlation 1 within items where grades follow the metric; over models in all three."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    result = aligned(ratings)
    by_section = {metric.section: metric for metric in result.metrics}

    understanding = by_section["understanding"]
    assert understanding.samples.value is not None
    assert understanding.samples.value > 0.9
    assert understanding.samples.items == 8
    assert [own and own.value for own in understanding.models][1:] == [1, 1]
    assert understanding.direction is None  # three outputs have no side


def test_lower_is_better_is_turned(tmp_path: Path) -> None:
    """A distance agrees with people where small values are the better outputs."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    turned = {"good": "poor", "fair": "fair", "poor": "good"}
    runs = {
        name: [record(turned[name], higher_is_better=False, model={"spec": name})]
        for name in MODELS
    }
    result = aligned(ratings, **runs)
    assert all(metric.samples.value > 0.7 for metric in result.metrics if metric.samples.value)


def test_what_has_no_score_per_sample_is_left_out(tmp_path: Path) -> None:
    """Battles, distances of sets, and cases of other suites."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    runs = {
        name: [
            record(name, answers={"s0": "x"}),
            record(name, "toy/overall/fid", sizes={"overall": 8}),
            record(name, "other/overall/sim"),
        ]
        for name in MODELS
    }
    assert aligned(ratings, **runs).metrics == ()


def test_a_constant_metric_is_named(tmp_path: Path) -> None:
    """Nothing follows from one that gave all outputs the same score."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    flat_scores = {"overall": dict.fromkeys(SAMPLES, 0.0)}
    runs = {name: [record(name, "toy/overall/failures", scores=flat_scores)] for name in MODELS}
    result = aligned(ratings, **runs)
    assert result.metrics == ()
    assert result.constant == ("toy/overall/failures",)


def test_runs_are_matched_with_rated_models(tmp_path: Path) -> None:
    """By name here; a run of a model that nobody rated is told, and such runs alone are refused."""
    ratings = graded(tmp_path / "study")
    grade_all(ratings)
    result = aligned(ratings, good=[record("good")], fair=[record("fair")], new=[record("poor")])
    assert result.unmatched == ("new",)
    assert result.metrics[0].models == ()  # of two models any correlation is 1 or -1
    with pytest.raises(DatasetError, match="has ratings of fair, good, poor, and none of new"):
        aligned(ratings, new=[record("poor")])


def test_choices_within_a_margin(tmp_path: Path) -> None:
    """Captions whose scores differ by .01 are comparable, as MMGenBench has it."""
    runs = {name: RatedRun(name, record(name)) for name in ("fair", "good")}
    rated = RatedItems("caption", "toy")
    for number, sample in enumerate(SAMPLES[:4]):
        picture = flat(number)
        rated.images[picture.digest] = picture
        outputs = [RatedOutput(run, (Part(text=f"{name} {number}"),)) for name, run in runs.items()]
        rated.add(sample, [Part(image=picture.digest)], outputs)
    ratings = write_rated(tmp_path / "study", rated, ("ada", "bob", "cyd"))
    for number, item in enumerate(ratings.items.values()):
        for name, verdict in {"ada": "C2", "bob": "C2", "cyd": "B"}.items():
            pressed = "B" if number == 3 and name != "cyd" else verdict
            cast(ratings, side_vote(item, name, pressed, task="caption"))
    near = {name: 0.5 + place / 100 for place, name in enumerate(("fair", "good"))}

    def scored(model: str) -> Measurement:
        own = dict.fromkeys(SAMPLES[:3], QUALITY[model]) | {SAMPLES[3]: near[model]}
        return record(model, scores={"overall": own})

    result = aligned(ratings, fair=[scored("fair")], good=[scored("good")])
    (metric,) = result.metrics
    assert metric.within_margin is not None
    assert (metric.within_margin.votes.right, metric.within_margin.votes.total) == (9, 12)
    assert metric.within_margin.majorities.share == 1
    assert metric.direction is not None
    assert metric.direction.value == 1


def test_what_has_no_models(tmp_path: Path) -> None:
    """Descriptions compare none, and without sources nobody knows who made what."""
    with pytest.raises(DatasetError, match="in which no models are compared"):
        aligned(make_study(tmp_path / "words", "describe", 2))
    ratings = make_study(tmp_path / "pairs", "pair", 2)
    with pytest.raises(DatasetError, match="nobody has judged an item yet"):
        aligned(ratings)
    (ratings.path / "sources.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"has no sources\.jsonl"):
        aligned(read_ratings(ratings.path))
