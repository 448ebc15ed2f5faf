"""Items for people, made of what runs have left in a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import DatasetError, StoreError
from pytest_cepbench.gate import record_of
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import (
    RatedItems,
    RatedRun,
    answer_items,
    described_images,
)
from tests.suites.answers import WORSE, MeasuredSuite, prepare


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


def test_pairs_are_the_answers_of_both_runs(tmp_path: Path) -> None:
    """Each item has the question, both answers with their images, and who made which."""
    with Store(tmp_path / "store") as store:
        good, worse = prepare(tmp_path, store), prepare(tmp_path, store, model=WORSE)
        runs = run_of(good, "good"), run_of(worse, "worse")
        dataset = good.run.dataset
        rated = pairs_of(dataset, runs, store)

        equal = sum(runs[0].record.answers[n] == runs[1].record.answers[n] for n in good.answers())
        assert rated.population == len(rated.items) == len(dataset.samples) - equal
        assert rated.probability == 1.0
        assert rated.remarks == [f"{equal} samples have equal answers and are left out"]
        assert {source.model for source in rated.sources} == {"good", "worse"}
        assert len({source.fingerprint for source in rated.sources}) == 2
        named = {part.image for i in rated.items for o in i.options for part in o.parts}
        assert named - {None} <= rated.images.keys()
        assert all(image.digest == digest for digest, image in rated.images.items())


def test_a_draw_does_not_follow_the_verdicts(tmp_path: Path) -> None:
    """It is of the seed and the ids alone, says its probability, and fewer are among more."""
    with Store(tmp_path / "store") as store:
        good, worse = prepare(tmp_path, store), prepare(tmp_path, store, model=WORSE)
        runs = run_of(good, "good"), run_of(worse, "worse")

        def drawn(most: int, seed: int = 0) -> set[str]:
            made = pairs_of(good.run.dataset, runs, store, most, seed)
            assert made.probability == most / made.population
            assert {item.probability for item in made.items} == {made.probability}
            return {item.item for item in made.items}

        assert len(drawn(6)) == 6
        assert drawn(3) < drawn(6)
        assert drawn(6, seed=1) != drawn(6)


def test_answers_of_several_runs_are_graded_together(tmp_path: Path) -> None:
    """Equal answers of two models are one option with two sources."""
    with Store(tmp_path / "store") as store:
        models = {"good": None, "worse": WORSE, "again": "shapes:?recolor=0.2"}
        suites = {name: prepare(tmp_path, store, model=model) for name, model in models.items()}
        runs = [run_of(measured, name) for name, measured in suites.items()]
        rated = RatedItems("grades", "arena")
        answer_items(rated, suites["good"].run.dataset, runs, store)

        assert {len(item.options) for item in rated.items} == {2, 3}
        assert len(rated.sources) == 3 * len(rated.items)


def test_what_cannot_be_rated_is_refused(tmp_path: Path) -> None:
    """Equal runs, a run of other samples, one name twice, and answers that a store lacks."""
    with Store(tmp_path / "store") as store, Store(tmp_path / "other") as other:
        good, worse = prepare(tmp_path, store), prepare(tmp_path, store, model=WORSE)
        first, second = run_of(good, "good"), run_of(worse, "worse")
        dataset = good.run.dataset
        with pytest.raises(DatasetError, match="nothing to rate: 20 samples have equal answers"):
            pairs_of(dataset, (first, RatedRun("b", first.record)), store)
        with pytest.raises(DatasetError, match="two runs are of 'good'"):
            pairs_of(dataset, (first, first), store)
        with pytest.raises(DatasetError, match="2 runs are compared here, got 1"):
            pairs_of(dataset, (first,), store)
        with pytest.raises(StoreError, match="answers of the runs are not in the store"):
            pairs_of(dataset, (first, second), other)
        less = dataset.limited(1)
        with pytest.raises(DatasetError, match="are not those that the run of 'good' measured"):
            pairs_of(less, (first, second), store)


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
