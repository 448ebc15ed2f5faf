"""Estimates of what would be asked, and looks at part of the samples: as in the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.batching import Throughput, save_throughput
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import Policy, Verdict, dump_baseline, judge, load_baseline, record_of
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun
from pytest_cepbench.suites.suite_run import Forecast
from tests.suites.answers import ANSWERS, HEAD, PIPELINE, WORSE, MeasuredSuite, prepare
from tests.suites.world import LOSSY, SUITE, TASKS, Staged, stage

LOSSLESS = SUITE.replace(LOSSY, "shapes:")

STARTS = SUITE.replace('start = "image"', 'start = "both"').replace(LOSSY, "shapes:")
for spec in ("describer", "generator", "encoder"):
    STARTS = STARTS.replace(f'{spec} = "shapes:"', f'{spec} = "python:{__name__}:Unlike"')
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


def _foreseen(suite: Staged | MeasuredSuite, *names: str) -> Forecast:
    """Of the cases of these names, all where none is given."""
    return suite.run.forecast([(suite.cases[n], None) for n in names or suite.cases])


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


def _asked(suite: MeasuredSuite) -> dict[str, int]:
    """How many inputs each model was given while everything was measured."""
    for case in suite.cases:
        suite.measure(case)
    roles = suite.run.assignments.roles
    return {role: suite.inputs(role) for role in roles if suite.inputs(role)}


def test_a_new_model_answers_all_and_is_judged_in_both_orders(tmp_path: Path, store: Store) -> None:
    """Answers that are yet to be made are taken to differ, so no more is asked than foreseen. Known
    answers are judged where they differ: the forecast is what is asked then.
    """
    prepare(tmp_path, store).accept(["overall-win_rate"])
    worse = prepare(tmp_path, store, model=WORSE)
    work = _foreseen(worse)
    assert (_by_role(work), work.samples, work.units, work.steps) == (
        {"interleaver": 20, "judge": 40},
        20,
        20,
        60,
    )
    assert (worse.inputs("interleaver"), worse.inputs("judge")) == (0, 0)
    asked = _asked(worse)
    assert asked["interleaver"] == 20
    assert 20 < asked["judge"] <= 40
    done = _foreseen(prepare(tmp_path, store, model=WORSE))
    assert _by_role(done) == {}
    assert done.stored == 20 + asked["judge"]
    few = "shapes:?miss=0.05"
    prepare(tmp_path, store, model=few).answers()
    suite = prepare(tmp_path, store, model=few)
    work = _foreseen(suite)
    assert set(_by_role(work)) == {"judge"}
    assert 0 < work.steps - work.stored < 40
    assert _by_role(work) == _asked(suite)


@pytest.mark.parametrize(
    ("arena", "anchored", "judged"),
    [("", True, 80), ('against = "gold"', False, 40), ('order = "balanced"', False, 20)],
)
def test_each_comparison_has_battles_of_its_own(
    tmp_path: Path, store: Store, arena: str, *, anchored: bool, judged: int
) -> None:
    """In both orders or one, against the accepted, the anchor's, and the reference answers."""
    text = f"{ANSWERS}\n[arena]\n{arena}\n"
    prepare(tmp_path, store, text).accept(["overall-win_rate"])
    if anchored:
        prepare(tmp_path, store, text, "shapes:?no_image=1").accept(
            ["overall-win_rate"], anchor=True
        )
    work = _foreseen(prepare(tmp_path, store, text, WORSE))
    assert _by_role(work) == {"interleaver": 20, "judge": judged}


def test_scores_are_one_call_for_each_answer(tmp_path: Path, store: Store) -> None:
    """In however many criteria they are gated; the accepted answers' are not needed again."""
    metrics = '[metrics.criteria]\n[metrics.right]\nkind = "criteria"\ncriterion = "correctness"\n'
    text = f'{HEAD}[answer]\n[roles]\ninterleaver = "shapes:"\njudge = "shapes:"\n{metrics}'
    suite = prepare(tmp_path, store, text, model=WORSE)
    assert _by_role(_foreseen(suite)) == {"interleaver": 20, "judge": 20}
    suite.answers()
    suite = prepare(tmp_path, store, text, model=WORSE)
    assert _by_role(_foreseen(suite)) == {"judge": 20} == _asked(suite)
    assert _by_role(_foreseen(prepare(tmp_path, store, text, model=WORSE))) == {}


def test_what_is_drawn_follows_from_the_texts(tmp_path: Path, store: Store) -> None:
    """It is left open until they are written, and is known then for another generator. A forecast
    stores nothing: no answer with images that are not there, above all.
    """
    suite = prepare(tmp_path, store, PIPELINE, model="shapes:", role="writer")
    work = _foreseen(suite)
    before = set(store.root.rglob("*"))
    _foreseen(suite)
    assert set(store.root.rglob("*")) == before
    assert suite.inputs("writer") == suite.inputs("generator") == 0
    assert _by_role(work) == {"writer": 20}
    assert [need.bound.role for need in work.needs if need.incomplete] == ["generator"]
    suite.answers()

    other = prepare(tmp_path, store, PIPELINE, model="shapes:?miss=0.1", role="generator")
    work = _foreseen(other)
    assert not any(need.incomplete for need in work.needs)
    assert other.answers() != suite.answers()
    assert _by_role(work) == {"generator": other.inputs("generator")}


LOOKED = """\
[metrics.gc]
[metrics.sim]
pool = "samples"
[metrics.fid]
[metrics.failures]
"""

CHECKED = "[metrics.geneval]\n[metrics.mgg]\n"

ALONE = SUITE.replace("tests.suites.world:overlapping", "tests.suites.test_suite_run:uneven")
"""The embedded world's samples, each in one category."""


def uneven() -> Dataset:
    """Eight scenes of a and three of b, none in both."""
    chosen = load_shapes(samples_per_category=2, seed=3).samples[:11]
    samples = [
        Sample(sample.id, ("a" if i < 8 else "b",), sample.image, sample.text)
        for i, sample in enumerate(chosen)
    ]
    return Dataset("uneven", {}, tuple(samples))


def _staged(tmp_path: Path, text: str, name: str = "one") -> Staged:
    return stage(tmp_path / name, text, Store(tmp_path / f"store of {name}"))


@pytest.mark.parametrize(
    ("text", "case_ids"),
    [
        (ALONE + LOOKED, ["a-gc", "overall-gc", "overall-sim", "overall-failures"]),
        (SUITE + LOOKED, ["overall-gc"]),
        (TASKS + CHECKED, ["overall-geneval", "colors-mgg"]),
    ],
)
def test_a_look_measures_what_the_whole_measures(
    tmp_path: Path, text: str, case_ids: list[str]
) -> None:
    """Same scores for the same samples, whether the whole is measured before, after or never."""
    whole, looking = _staged(tmp_path, text, "whole"), _staged(tmp_path, text, "looking")
    cases = [whole.cases[case_id] for case_id in case_ids]
    wholes = {case: whole.run.measure(case) for case in cases}
    for most in (1, 2):
        for case, every in wholes.items():
            first, after = looking.run.measure(case, most), whole.run.measure(case, most)
            assert first.scores == after.scores
            assert first.n < every.n
            for category, part in first.scores.items():
                assert part.items() <= every.scores[category].items()
            assert first.identity == every.identity
    assert {case: looking.run.measure(case) for case in cases} == wholes


def test_the_identity_of_a_look_is_that_of_all_samples(tmp_path: Path) -> None:
    """So it can be judged against a baseline of all of them, and never become one unseen."""
    staged = _staged(tmp_path, ALONE + LOOKED)
    case = staged.cases["overall-gc"]
    look = staged.run.measure(case, 2)
    assert look.n == 4
    assert look.identity["samples"].startswith("11 ")
    assert look.identity["version"] == "2"
    every = staged.run.measure(case)
    baseline = load_baseline(dump_baseline(record_of(every)), case.key, "x")
    policy = Policy(gate="threshold", tolerance=0.1)
    assert judge(look, baseline, policy, partial=True).verdict is Verdict.HELD
    assert judge(look, baseline, policy).verdict is Verdict.INCOMPARABLE


def test_seeds_are_drawn_after_samples(tmp_path: Path) -> None:
    """A look at as many as there are samples has each once; the clusters are in the measurement."""
    staged = _staged(tmp_path, ALONE + LOOKED)
    run = staged.run
    again = ChainRun(
        run.suite, run.dataset.repeated(2), run.assignments, run.measures, run._model_pool
    )
    case = staged.cases["a-gc"]
    assert (run.samples(case), again.samples(case)) == (8, 16)
    alone = again.measure(case, 8)
    assert alone.scores == run.measure(case).scores
    assert alone.clusters == {}
    both = again.measure(case)
    assert both.n == 16
    assert sorted(both.clusters) == [f"{name} seed 1" for name in sorted(alone.scores["a"])]
    assert all(name == f"{unit} seed 1" for name, unit in both.clusters.items())
    assert both.scores["a"].items() >= alone.scores["a"].items()
    assert both.identity["samples"] != run.measure(case).identity["samples"]


@given(st.integers(1, 30))
def test_the_depth_is_the_least_that_makes_the_number(
    tmp_path_factory: pytest.TempPathFactory, samples: int
) -> None:
    """One less would have too few; None has all, also where samples count in two categories."""
    folder = tmp_path_factory.getbasetemp() / "depths"
    staged = stage(folder, SUITE + LOOKED, Store(folder / "store"))
    for name in ("a-gc", "overall-gc"):
        case = staged.cases[name]
        sizes = [len(staged.run.dataset.in_category(category)) for category in case.categories]
        depth = staged.run.depth(case, samples)
        if depth is None:
            assert sum(min(size, max(sizes) - 1) for size in sizes) < samples
        else:
            assert sum(min(size, depth) for size in sizes) >= samples
            assert sum(min(size, depth - 1) for size in sizes) < samples
