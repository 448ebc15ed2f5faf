"""The forecast: what a run would ask of its models, computed without calling them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.batching import Throughput, save_throughput
from pytest_cepbench.store import Store
from pytest_cepbench.suites.estimate import Forecast
from tests.suites.world import LOSSY, SUITE, TASKS, Staged, stage

LOSSLESS = SUITE.replace(LOSSY, "shapes:")

STARTS = SUITE.replace('start = "image"', 'start = "both"').replace(LOSSY, "shapes:")
for spec in ("describer", "generator", "encoder"):
    STARTS = STARTS.replace(f'{spec} = "shapes:"', f'{spec} = "python:{__name__}:unlike"')
"""Both starts, played by models that never give the same answer to two inputs."""

METRICS = {
    "similarity": LOSSLESS + "[metrics.gc]\n[metrics.failures]\n",
    "sets": LOSSLESS + "[metrics.fid]\n[metrics.kid]\nat = 2\n",
    "mappings": STARTS + "[metrics.mcd]\n",
    "pictures": TASKS.replace(LOSSY, "shapes:") + '[metrics.mgg]\ncolors = "detector"\n',
}


class Unlike:
    """Plays every role; its answers to two inputs are never equal."""

    fingerprint = "unlike/1"

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The digest of each image."""
        return [digest_text(str(image.tobytes())) for image in images]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """(2, 5, 3) bytes of each text's digest."""
        rows = [bytes.fromhex(digest_text(text))[:30] for text in texts]
        return [np.frombuffer(row, np.uint8).reshape(2, 5, 3) for row in rows]

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 16) a vector by each image's digest."""
        return self.encode_texts([str(image.tobytes()) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 16) a vector by each text's digest."""
        rows = [bytes.fromhex(digest_text(text))[:16] for text in texts]
        return np.array([np.frombuffer(row, np.uint8) for row in rows]) + 1.0


def unlike() -> Unlike:
    """The player of that name."""
    return Unlike()


def _foreseen(staged: Staged, *names: str, most: int | None = None) -> Forecast:
    """Of the cases of these names, all where none is given."""
    return staged.run.forecast([(staged.cases[n], most) for n in names or staged.cases])


def _by_role(estimate: Forecast) -> dict[str, int]:
    return {need.bound.role: need.inputs for need in estimate.needs if need.inputs}


def _made(staged: Staged) -> dict[str, int]:
    """Inputs that models were given, by role."""
    runners = staged.run._model_pool.runners.values()
    return {runner.bound.role: runner.tally.inputs for runner in runners if runner.tally.inputs}


@pytest.mark.parametrize("text", METRICS.values(), ids=METRICS)
def test_a_run_makes_what_was_foreseen(tmp_path: Path, store: Store, text: str) -> None:
    """From an empty store, after a part of the cases, and after all of them, model by model."""
    first = stage(tmp_path / "first", text, store)
    some, *_ = first.cases
    before = _foreseen(first, some)
    assert before.stored == 0
    assert _made(first) == {}
    assert len(store) == 0

    first.measure(some)
    assert _made(first) == _by_role(before)

    rest = stage(tmp_path / "rest", text, store)
    foreseen = _foreseen(rest)
    for name in rest.cases:
        rest.measure(name)
    assert _made(rest) == _by_role(foreseen) != {}

    done = _foreseen(stage(tmp_path / "done", text, store))
    assert _by_role(done) == {}
    assert done.stored == done.steps == foreseen.steps


def test_a_chain_that_stopped_takes_nothing_more(tmp_path: Path, store: Store) -> None:
    """What a failure that is stored keeps from being made is not to be made; what may pass is."""
    text = SUITE.replace(LOSSY, "shapes:?blank=0.4") + "[metrics.gc]\n"
    staged = stage(tmp_path, text, store)
    before = _by_role(_foreseen(staged))
    failures = staged.measure("overall-gc").failures
    assert failures["empty-text"]
    assert all(_made(staged)[role] < inputs for role, inputs in before.items() if role != "encoder")
    assert _by_role(_foreseen(stage(tmp_path, text, store))) == {}


def test_a_look_at_a_part_takes_a_part(tmp_path: Path, store: Store) -> None:
    """Over no more than so many samples of each category."""
    staged = stage(tmp_path, LOSSLESS + "[metrics.gc]\n", store)
    foreseen = _foreseen(staged, "overall-gc", most=2)
    staged.run.measure(staged.cases["overall-gc"], 2)
    assert _made(staged) == _by_role(foreseen)
    assert foreseen.samples == foreseen.units < 12


def test_equal_steps_are_foreseen_once(tmp_path: Path, store: Store) -> None:
    """Of a sample played with several seeds the first description is one, if it is unseeded."""
    staged = stage(tmp_path, LOSSLESS + "[metrics.gc]\n", store)
    once = _by_role(_foreseen(staged))
    staged = stage(tmp_path, LOSSLESS + "[metrics.gc]\n", store)
    staged.run.dataset = staged.run.dataset.repeated(3)
    thrice = _by_role(_foreseen(staged))
    staged.measure("overall-gc")
    assert thrice == _made(staged)
    assert thrice["generator"] == 3 * once["generator"]
    assert thrice["describer"] == 3 * once["describer"] - 2 * 12


def test_what_is_found_in_pictures_is_left_open(tmp_path: Path, store: Store) -> None:
    """Cut-outs are not known before there are boxes; once they are made they are not open."""
    text = TASKS + "[metrics.geneval]\n"
    staged = stage(tmp_path, text, store)
    assert [need.bound.role for need in _foreseen(staged).needs if need.incomplete] == ["encoder"]
    staged.measure("overall-geneval")
    done = _foreseen(stage(tmp_path, text, store))
    assert _by_role(done) == {}
    assert not any(need.incomplete for need in done.needs)


def test_habits_tell_calls_and_time(tmp_path: Path, store: Store) -> None:
    """By the batch that fitted and the seconds an input took; unknown where no model has any."""
    staged = stage(tmp_path, LOSSLESS + "[metrics.gc]\n", store)
    needs = {need.bound.role: need for need in _foreseen(staged).needs}
    assert needs["describer"].seconds is None
    assert needs["describer"].calls == 1
    save_throughput(needs["describer"].bound, Throughput(batch_size=5, seconds=0.5), store)
    (need,) = [need for need in _foreseen(staged).needs if need.bound.role == "describer"]
    assert (need.inputs, need.calls, need.seconds) == (24, 5, 12.0)
