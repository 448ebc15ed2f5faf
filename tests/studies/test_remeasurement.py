"""A chosen checkpoint measured again: what is fresh, and what has to be as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate import CaseKey, Measurement, record_of
from pytest_cepbench.store import Store
from pytest_cepbench.studies.remeasurement import (
    AcceptedCheckpoint,
    PreparedRemeasurement,
    Remeasurement,
    measure_again,
    prepare_remeasurement,
)
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite
from pytest_cepbench.suites.definition import SuiteNumber
from tests.studies.toy import TOY, write_suite

CHOSEN, OLDER = "shapes:?miss=0.1", "shapes:?miss=0.12"

SMALL = TOY.replace("iterations = 2", "iterations = 1").replace("category = 2", "category = 1")
"""One sample in each of the 8 categories, chains of one iteration."""

LARGER = SMALL.replace("category = 1", "category = 2")

FIXED = SMALL.replace('generator = "shapes:"', f'generator = "python:{__name__}:FixedGenerator"')

DIGEST = "ab" * 32


class FixedGenerator:
    """Draws each text in one color, whatever the seed is."""

    fingerprint = "fixed/1"
    seeded = False

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One image for each text."""
        return [Image.new("RGB", (64, 64), (len(text) % 256, 90, 90)) for text in texts]


@dataclass(frozen=True)
class Results:
    """The folder of a suite, and how its checkpoints were measured."""

    folder: Path
    text: str = SMALL
    samples: int | None = None
    seeds: int = 1

    def records(self, model: str = CHOSEN) -> dict[CaseKey, Measurement]:
        """What a run reports of a model."""
        suite = write_suite(self.folder, self.text)
        prepared = load_prepared_suite(suite, RoleChoices(model), {}, self.samples, self.seeds)
        with Store(self.folder / "store") as store:
            run = prepared.run(ModelPool(store))
            return {case.key: record_of(run.measure(case)) for case in prepared.cases}

    def checkpoint(self, model: str = CHOSEN, **changes: Any) -> AcceptedCheckpoint:
        """The chosen checkpoint; fields can be changed by name."""
        suite = write_suite(self.folder, self.text)
        fields: dict[str, Any] = {"records": self.records(model), "samples": self.samples} | changes
        return AcceptedCheckpoint(suite, RoleChoices(model), digest=DIGEST, **fields)


def with_seed(seed: int) -> str:
    """The suite with another seed."""
    return SMALL.replace("[chain]\n", f"[chain]\nseed = {seed}\n")


def prepared(checkpoint: AcceptedCheckpoint) -> PreparedRemeasurement:
    """What is fresh."""
    with Store(checkpoint.suite.parent / "store") as store:
        return prepare_remeasurement(checkpoint, ModelPool(store))


def remeasured(
    checkpoint: AcceptedCheckpoint,
) -> tuple[PreparedRemeasurement, Remeasurement, list[str]]:
    """What is fresh, the new records, and the lines that were announced."""
    lines: list[str] = []
    with Store(checkpoint.suite.parent / "store") as store:
        pool = ModelPool(store)
        ready = prepare_remeasurement(checkpoint, pool)
        return ready, measure_again(ready, pool, lines.append), lines


def test_a_fresh_seed_gives_what_the_suite_measures_with_it(tmp_path: Path) -> None:
    """All cases, on the same samples; the seed follows from the results."""
    results = Results(tmp_path)
    checkpoint = results.checkpoint()
    ready, fresh, lines = remeasured(checkpoint)
    seed = ready.setting.value
    assert ready.setting == SuiteNumber("chain", "seed", seed)
    assert 1 <= seed <= 1_000_000
    assert ready.conditions == f"under seed {seed}, on the same samples"
    assert lines == [f"describer {CHOSEN}: {ready.conditions}"]
    text = with_seed(seed)
    assert fresh.records == Results(tmp_path, text).records()
    assert fresh.records.keys() == checkpoint.records.keys()
    assert fresh.anchors == {}


def test_the_seed_depends_on_the_results_and_is_not_the_old_one(tmp_path: Path) -> None:
    """Equal results give equal seeds, others another; a seed that the suite has is passed over."""
    results = Results(tmp_path)
    records = results.records()
    seeds = [
        prepared(replace(results.checkpoint(records=records), digest=digest)).setting.value
        for digest in (DIGEST, "cd" * 32, DIGEST)
    ]
    assert seeds[0] == seeds[2] != seeds[1]
    assert seeds[0] == 779064  # as every version has made it of this digest
    used = Results(tmp_path, with_seed(seeds[0]))
    assert prepared(used.checkpoint()).setting.value == seeds[0] + 1
    among = Results(tmp_path, with_seed(seeds[0] + 2))
    assert prepared(among.checkpoint(seeds=2)).setting.value == seeds[0]
    assert prepared(among.checkpoint(seeds=3)).setting.value == seeds[0] + 3


def test_held_out_samples_go_before_a_seed(tmp_path: Path) -> None:
    """Half of the samples were seen; the other half is fresh."""
    checkpoint = Results(tmp_path, LARGER, samples=1).checkpoint()
    ready, fresh, _ = remeasured(checkpoint)
    assert ready.setting == SuiteNumber("data", "skip", 1)
    assert ready.conditions == "on 1 held-out samples of each category"
    for key, record in fresh.records.items():
        seen = {name for part in checkpoint.records[key].scores.values() for name in part}
        names = {name for part in record.scores.values() for name in part}
        assert len(names) == len(seen)
        assert not names & seen


@pytest.mark.parametrize(("samples", "skip"), [(2, 0), (1, 1)])
def test_too_few_samples_are_left(samples: int, skip: int, tmp_path: Path) -> None:
    """Where a category has not as many again, a fresh seed is taken."""
    text = LARGER.replace("options =", f"skip = {skip}\noptions =")
    checkpoint = Results(tmp_path, text, samples).checkpoint()
    assert prepared(checkpoint).setting.key == "seed"


def test_samples_have_as_many_seeds_as_in_the_results(tmp_path: Path) -> None:
    """The ids of the samples tell how many (`--cep-seeds`)."""
    results = Results(tmp_path, seeds=3)
    ready, fresh, _ = remeasured(results.checkpoint())
    text = with_seed(ready.setting.value)
    assert fresh.records == replace(results, text=text).records()


def test_where_nothing_is_fresh_it_is_refused(tmp_path: Path) -> None:
    """No model uses its seed, and all samples were seen."""
    with pytest.raises(SpecError, match="uses its seed, and no samples are left"):
        prepared(Results(tmp_path, FIXED).checkpoint("shapes:"))


def test_scores_that_do_not_change_are_refused(tmp_path: Path) -> None:
    """An exact describer's score is the same under every seed."""
    with pytest.raises(SpecError, match="every score is the same as before: under seed"):
        remeasured(Results(tmp_path).checkpoint("shapes:"))


def test_chains_made_elsewhere_cannot_be_measured_again(tmp_path: Path) -> None:
    """They have no other seed."""
    with pytest.raises(SpecError, match="nothing can be measured again"):
        AcceptedCheckpoint(write_suite(tmp_path), RoleChoices(f"replay:{tmp_path}"), {}, DIGEST)


# -- what has to be as it was ----------------------------------------------------------------------


def test_all_cases_of_the_suite_are_needed(tmp_path: Path) -> None:
    """One that lacks and one that the suite does not have are named."""
    results = Results(tmp_path)
    records = results.records()
    (first, *_) = sorted(records, key=str)
    fewer = {key: record for key, record in records.items() if key != first}
    with pytest.raises(SpecError, match=f"10 cases.*the results lack {first}: run the whole suite"):
        prepared(results.checkpoint(records=fewer))
    other = records | {CaseKey("toy", "a", "gc"): records[first]}
    with pytest.raises(SpecError, match="hold toy/a/gc, which it does not have"):
        prepared(results.checkpoint(records=other))


def test_the_suite_has_the_seed_of_the_results(tmp_path: Path) -> None:
    """Results that were measured again are of the suite as it was."""
    records = Results(tmp_path).records()
    later = Results(tmp_path, with_seed(10))
    with pytest.raises(SpecError, match="the suite has seed 10 now: was it measured again before"):
        prepared(later.checkpoint(records=records))


def test_the_samples_are_those_of_the_results(tmp_path: Path) -> None:
    """Compared by their ids."""
    records = Results(tmp_path, LARGER, samples=1).records()
    with pytest.raises(SpecError, match=r"score 1 samples of '.*', here are 2, not the same"):
        prepared(Results(tmp_path, LARGER).checkpoint(records=records))


def test_the_model_is_that_of_the_results(tmp_path: Path) -> None:
    """A checkpoint that changed since is not the one that was chosen."""
    records = Results(tmp_path).records(OLDER)
    with pytest.raises(SpecError, match="the checkpoint that was measured is needed"):
        prepared(Results(tmp_path).checkpoint(records=records))


def test_other_conditions_are_those_of_the_results(tmp_path: Path) -> None:
    """What differs, other than what is fresh, is named with both values."""
    results = Results(tmp_path)
    records = {
        key: msgspec.structs.replace(record, identity=record.identity | {"generator": "another"})
        for key, record in results.records().items()
    }
    with pytest.raises(SpecError, match="were measured with generator another, and here it is"):
        remeasured(results.checkpoint(records=records))


# -- anchors ---------------------------------------------------------------------------------------


def test_anchors_of_other_models_are_measured_again(tmp_path: Path) -> None:
    """Under the same fresh seed; an anchor of the chosen model needs no second measuring."""
    results = Results(tmp_path)
    older, own = results.records(OLDER), results.records()
    first, second, third = list(own)[:3]
    anchors = {first: older[first], second: own[second], third: older[third]}
    ready, fresh, lines = remeasured(results.checkpoint(anchors=anchors))
    text = with_seed(ready.setting.value)
    expected = Results(tmp_path, text).records(OLDER)
    assert fresh.anchors == {key: expected[key] for key in (first, third)}
    assert lines[1:] == [f"describer {OLDER}: {ready.conditions}"]


def test_an_anchor_whose_model_changed_is_refused(tmp_path: Path) -> None:
    """Said with the case, and with the option that forgets it."""
    results = Results(tmp_path)
    records = results.records()
    key = next(iter(records))
    model = {"spec": "shapes:?miss=0.5", "identity": "something else"}
    anchors = {key: msgspec.structs.replace(records[key], model=model)}
    with pytest.raises(
        SpecError, match=r"the anchor of toy/.* is of something else.*--move-anchor"
    ):
        prepared(results.checkpoint(records=records, anchors=anchors))
