"""Items for people of runs; agreement of annotators, and of metrics with people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import DatasetError, StoreError
from pytest_cepbench.gate import Measurement, record_of
from pytest_cepbench.gate.measurement import FORMAT
from pytest_cepbench.metrics.human_ratings import Grade
from pytest_cepbench.metrics.judge_agreement import krippendorff_alpha
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Part, Vote, option_name
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import RatedItems, RatedRun, answer_items, described_images
from pytest_cepbench.studies.rating_agreement import (
    Coefficient,
    RatingAgreement,
    RatingAlignment,
    measure_agreement,
    measure_alignment,
)
from tests.optional import known
from tests.ratings.studies import cast, make_study, picture, side_vote, write_rated
from tests.suites.answers import WORSE, MeasuredSuite, prepare


def of(agreed: RatingAgreement, name: str) -> Coefficient:
    """A coefficient by its name."""
    return next(each for each in agreed.coefficients if each.name == name)


def measured(ratings: Ratings) -> RatingAgreement:
    """Of the votes in its folder."""
    return measure_agreement(ratings, read_votes(ratings))


VERDICTS = {
    "a1": ["A", "A", "B", "Tie(A)", "B", "A"],
    "a2": ["A", "Tie(A)", "B", "Tie(B)", "A", "A"],
}


def test_verdicts_are_compared_in_the_items_order(tmp_path: Path) -> None:
    """Of six battles with two votes each, of which everybody sees half swapped, four are equal
    where ties are forced, four where they are one verdict.

    An answer that is none is told; skipped items are counted for themselves.
    """
    ratings = make_study(tmp_path / "study", "pair", 6)
    flipped = {"A": "B", "B": "A", "Tie(A)": "Tie(B)", "Tie(B)": "Tie(A)"}
    for name, verdicts in VERDICTS.items():
        for number, (item, verdict) in enumerate(
            zip(ratings.items.values(), verdicts, strict=True)
        ):
            turned = number % 2 == 1
            pressed = flipped[verdict] if turned else verdict
            seconds = float(number + 1)
            cast(ratings, side_vote(item, name, pressed, swapped=turned, seconds=seconds))
    agreed = measured(ratings)
    codes = {"A": 0.0, "Tie(A)": 1.0, "Tie(B)": 2.0, "B": 3.0}
    table = np.array([[codes[verdict] for verdict in own] for own in VERDICTS.values()])

    assert (agreed.items, agreed.judged, agreed.shared) == (6, 6, 6)
    assert of(agreed, "equal votes, ties forced").estimate.value == pytest.approx(4 / 6)
    assert of(agreed, "equal votes, ties one verdict").estimate.value == pytest.approx(4 / 6)
    alpha = of(agreed, "Krippendorff's alpha, ordinal").estimate
    assert alpha.value == pytest.approx(krippendorff_alpha(table))
    assert [each.votes for each in agreed.annotators] == [6, 6]

    first = next(iter(ratings.items.values()))
    at = "2026-11-22T10:00:00Z"
    cast(ratings, Vote(task="pair", item=first.item, annotator="a1", skip="unclear", at=at))
    cast(ratings, msgspec.structs.replace(side_vote(first, "a2", "A"), winner="second"))
    agreed = measured(ratings)
    assert len(agreed.remarks) == 1
    assert agreed.annotators[0].skipped == 1
    assert agreed.judged == 6
    assert agreed.shared == 5


def test_repeats_and_checks(tmp_path: Path) -> None:
    """A repeat agrees where the same side wins; a check that was not passed counts as wrong."""
    ratings = make_study(tmp_path / "study", "pair", 4, attention=0.5)
    items = [item for item in ratings.items.values() if item.kind == "item"]
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    for item, first, again in zip(items, "AABB", ["A", "Tie(A)", "B", "A"], strict=True):
        cast(ratings, side_vote(item, "a1", first))
        cast(ratings, side_vote(item, "a1", again, kind="repeat"))
    for number, item in enumerate(checks):
        right = "A" if item.known["winner"] == "first" else "B"
        wrong = "B" if right == "A" else "A"
        vote = side_vote(item, "a1", wrong if number else right, kind="attention")
        cast(ratings, vote)
    agreed = measured(ratings)

    assert of(agreed, "the same answer again").estimate.value == 3 / 4
    assert of(agreed, "attention checks passed").estimate.value == 1 / len(checks)
    assert of(agreed, "Krippendorff's alpha, nominal").estimate.value is None  # one vote each


def test_grades_are_drawn_by_item(tmp_path: Path) -> None:
    """Three grades of an item are one item of the bootstrap; ranks have an alpha of their own."""
    ratings = make_study(tmp_path / "study", "grades", 5)
    for name in ("a1", "a2"):
        for number, item in enumerate(ratings.items):
            vote = Vote(
                task="grades",
                item=item,
                annotator=name,
                shown=(0, 1, 2),
                grades={"0": "good", "1": "medium" if number % 2 else "poor", "2": "poor"},
                ranking=(0, (1, 2)) if name == "a1" else (0, 1, 2),
                seconds=4.0,
            )
            cast(ratings, vote)
    agreed = measured(ratings)

    equal = of(agreed, "equal votes").estimate
    assert (equal.value, equal.items) == (1, 5)
    scales = {each.scale for each in agreed.coefficients}
    assert scales == {"grades", "ranks", "votes"}
    ranks = next(each for each in agreed.coefficients if each.scale == "ranks")
    assert 0 < known(ranks.estimate.value) < 1


def test_ticked_names_are_compared_one_by_one(tmp_path: Path) -> None:
    """Two people who differ in one of three names of each image agree in two thirds."""
    ratings = make_study(tmp_path / "study", "verify", 4)
    for name in ("a1", "a2"):
        for item in ratings.items.values():
            offered = [option_name(option) for option in item.options]
            ticked = offered[:2] if name == "a1" else offered[:1]
            rest = tuple(other for other in offered if other not in ticked)
            vote = Vote(
                task="verify", item=item.item, annotator=name, ticked=tuple(ticked), unticked=rest
            )
            cast(ratings, vote)
    agreed = measured(ratings)
    equal = of(agreed, "equal votes").estimate
    assert equal.value == pytest.approx(2 / 3)
    assert equal.items == 4
    with pytest.raises(StopIteration):
        of(agreed, "Krippendorff's alpha, ordinal")  # names have no order


# -- metrics beside people ---------------------------------------------------------------------

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


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Ratings:
    """Captions and images of three models on eight samples, graded good, medium and poor by model.

    What the fair one draws is poor.
    """
    runs = {name: RatedRun(name, record(name)) for name in MODELS}
    rated = RatedItems("grades", "toy")
    for number, sample in enumerate(SAMPLES):
        shown = picture(number)
        rated.images[shown.digest] = shown
        captions = [(run, (Part(text=f"{name} caption {number}"),)) for name, run in runs.items()]
        rated.add(sample, [Part(image=shown.digest)], captions)
        drawn = []
        for place, run in enumerate(runs.values()):
            image = picture(10 + number, place)
            rated.images[image.digest] = image
            drawn.append((run, (Part(image=image.digest),)))
        rated.add(sample, [Part(text=f"draw {number}")], drawn)
    ratings = write_rated(tmp_path_factory.mktemp("study") / "it", rated, ("ada",))
    for item in ratings.items.values():
        middle: Grade = "medium" if item.question[0].text is None else "poor"
        grades: dict[str, Grade] = {"0": "good", "1": middle, "2": "poor"}
        ranking = (0, 1, 2)
        vote = Vote(task="grades", item=item.item, annotator="ada", grades=grades, ranking=ranking)
        cast(ratings, vote)
    return ratings


def aligned(ratings: Ratings, **runs: Any) -> RatingAlignment:
    """runs: name -> records; one of each model where none are given."""
    given = runs or {name: [record(name)] for name in MODELS}
    return measure_alignment(ratings, read_votes(ratings), given)


def test_people_of_each_model_and_both_sections(graded: Ratings) -> None:
    """Shares of grades, mean ranks, and the nine cells of grades in both sections.

    A metric has correlation 1 within items where grades follow it; over models in all three. A
    distance agrees with people where small values are the better outputs.
    """
    result = measure_alignment(graded, read_votes(graded), {})

    people = {(own.section, own.model): own for own in result.people}
    assert list(people["understanding", "fair"].grades) == [0, 1, 0]
    assert list(people["generation", "fair"].grades) == [1, 0, 0]
    good = people["generation", "good"]
    assert (good.score, good.rank) == (1, 1)
    assert good.low == pytest.approx(0.025 ** (1 / 8))  # of 8 items that are alike
    assert good.high == 1
    fair = [list(row) for row in result.inconsistency["fair"].counts]
    assert fair == [[0, 0, 0], [8, 0, 0], [0, 0, 0]]
    assert result.inconsistency["all"].total == 24
    assert result.inconsistency["all"].inconsistent == pytest.approx(1 / 3)
    assert result.metrics == ()
    result = aligned(graded)
    by_section = {metric.section: metric for metric in result.metrics}

    understanding = by_section["understanding"]
    assert known(understanding.samples.value) > 0.9
    assert understanding.samples.items == 8
    assert [own and own.value for own in understanding.models][1:] == [1, 1]
    assert understanding.direction is None  # three outputs have no side
    turned = {"good": "poor", "fair": "fair", "poor": "good"}
    runs = {
        name: [record(turned[name], higher_is_better=False, model={"spec": name})]
        for name in MODELS
    }
    distances = [metric.samples.value for metric in aligned(graded, **runs).metrics]
    assert all(value > 0.7 for value in distances if value)


def test_what_has_no_score_per_sample_is_left_out(graded: Ratings) -> None:
    """Battles, distances of sets, and cases of other suites; a metric that is constant is named.

    Runs are matched with rated models, by name here; a run of a model that nobody rated is told,
    and such runs alone are refused.
    """
    flat_scores = {"overall": dict.fromkeys(SAMPLES, 0.0)}
    runs = {
        name: [
            record(name, answers={"s0": "x"}),
            record(name, "toy/overall/fid", sizes={"overall": 8}),
            record(name, "other/overall/sim"),
            record(name, "toy/overall/failures", scores=flat_scores),
        ]
        for name in MODELS
    }
    result = aligned(graded, **runs)
    assert (result.metrics, result.constant) == ((), ("toy/overall/failures",))
    result = aligned(graded, good=[record("good")], fair=[record("fair")], new=[record("poor")])
    assert result.unmatched == ("new",)
    assert result.metrics[0].models == ()  # of two models any correlation is 1 or -1
    with pytest.raises(DatasetError, match="has ratings of fair, good, poor, and none of new"):
        aligned(graded, new=[record("poor")])


def test_choices_within_a_margin(tmp_path: Path) -> None:
    """Captions whose scores differ by .01 are comparable, as MMGenBench has it.

    Without a vote no models are compared, and without sources nobody knows who made what.
    """
    runs = {name: RatedRun(name, record(name)) for name in ("fair", "good")}
    rated = RatedItems("caption", "toy")
    for number, sample in enumerate(SAMPLES[:4]):
        shown = picture(number)
        rated.images[shown.digest] = shown
        outputs = [(run, (Part(text=f"{name} {number}"),)) for name, run in runs.items()]
        rated.add(sample, [Part(image=shown.digest)], outputs)
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
    turned = aligned(ratings, fair=[scored("good")], good=[scored("fair")]).metrics
    assert [own.direction and own.direction.value for own in (metric, *turned)] == [1, 0]
    ratings = make_study(tmp_path / "pairs", "pair", 2)
    with pytest.raises(DatasetError, match="nobody has judged an item yet"):
        aligned(ratings)
    (ratings.path / "sources.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"has no sources\.jsonl"):
        aligned(read_ratings(ratings.path))


def run_of(measured: MeasuredSuite, name: str) -> RatedRun:
    """The run of a measured suite."""
    return RatedRun(name, record_of(measured.measure()))


def pairs_of(
    dataset: Dataset, runs: Sequence[RatedRun], store: Store, most: int | None = None, seed: int = 0
) -> RatedItems:
    """The items of two runs."""
    made = RatedItems("pair", "arena", most, seed)
    answer_items(made, dataset, runs, store)
    return made


@dataclass(frozen=True)
class Answered:
    """What two models answered, and their runs."""

    store: Store
    good: MeasuredSuite
    runs: tuple[RatedRun, RatedRun]

    @property
    def dataset(self) -> Dataset:
        """The questions."""
        return self.good.run.dataset


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answered]:
    """By a model that loses nothing, and by a worse one."""
    folder = tmp_path_factory.mktemp("answered")
    with Store(folder / "store") as store:
        good, worse = prepare(folder, store), prepare(folder, store, model=WORSE)
        yield Answered(store, good, (run_of(good, "good"), run_of(worse, "worse")))


def test_pairs_are_the_answers_of_both_runs(answered: Answered) -> None:
    """Each item has the question, both answers with their images, and who made which. A draw does
    not follow the verdicts: it is of the seed and the ids alone, says its probability, and fewer
    are among more.
    """
    first, second = (run.record.answers for run in answered.runs)
    rated = pairs_of(answered.dataset, answered.runs, answered.store)

    equal = sum(first[name] == second[name] for name in answered.good.answers())
    assert rated.population == len(rated.items) == len(answered.dataset.samples) - equal
    assert rated.probability == 1.0
    assert rated.remarks == [f"{equal} samples have equal answers and are left out"]
    assert {source.model for source in rated.sources} == {"good", "worse"}
    assert len({source.fingerprint for source in rated.sources}) == 2
    named = {part.image for i in rated.items for o in i.options for part in o.parts}
    assert named - {None} <= rated.images.keys()
    assert all(image.digest == digest for digest, image in rated.images.items())

    def drawn(most: int, seed: int = 0) -> set[str]:
        made = pairs_of(answered.dataset, answered.runs, answered.store, most, seed)
        assert made.probability == most / made.population
        assert {item.probability for item in made.items} == {made.probability}
        return {item.item for item in made.items}

    assert len(drawn(6)) == 6
    assert drawn(3) < drawn(6)
    assert drawn(6, seed=1) != drawn(6)


def test_answers_of_several_runs_are_graded_together(answered: Answered, tmp_path: Path) -> None:
    """Equal answers of two models are one option with two sources."""
    again = prepare(tmp_path, answered.store, model="shapes:?recolor=0.2")
    rated = RatedItems("grades", "arena")
    answer_items(rated, answered.dataset, (*answered.runs, run_of(again, "again")), answered.store)

    assert {len(item.options) for item in rated.items} == {2, 3}
    assert len(rated.sources) == 3 * len(rated.items)


def test_what_cannot_be_rated_is_refused(answered: Answered, store: Store) -> None:
    """Equal runs, a run of other samples, one name twice, and answers that a store lacks."""
    first, second = answered.runs
    same = RatedRun("b", first.record)
    every, less = answered.dataset, answered.dataset.limited(1)
    for dataset, runs, held, error, message in (
        (every, (first, same), answered.store, DatasetError,
         "nothing to rate: 20 samples have equal answers"),
        (every, (first, first), answered.store, DatasetError, "two runs are of 'good'"),
        (every, (first,), answered.store, DatasetError, "2 runs are compared here, got 1"),
        (every, (first, second), store, StoreError, "answers of the runs are not in the store"),
        (less, (first, second), answered.store, DatasetError,
         "are not those that the run of 'good' measured"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            pairs_of(dataset, runs, held)


def test_images_to_describe(tmp_path: Path) -> None:
    """Each different image of a data set once, with the sample that it is of."""
    dataset = load_shapes(samples_per_category=1)
    rated = RatedItems("describe", "toy", 3)
    described_images(rated, dataset)

    assert len(rated.items) == len(rated.sources) == 3
    for item, source in zip(rated.items, rated.sources, strict=True):
        sample = next(sample for sample in dataset.samples if sample.id == source.sample)
        assert sample.image is not None
        assert item.question == (Part(image=sample.image.load().digest),)
        assert (item.options, source.model, source.option) == ((), "", "")
