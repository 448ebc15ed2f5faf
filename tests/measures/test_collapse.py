"""diversity and retrieval over chains: what a collapse does to them, and to GC@T; bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate import Policy, Verdict, judge, record_of
from pytest_cepbench.store import Store
from tests.gate.build import replace
from tests.suites.world import Staged, stage

SUITE = """\
name = "collapse"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples}, seed = 0 }}
[chain]
start = "image"
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "{describer}"
generator = "shapes:"
encoder = "{encoder}"
[metrics.gc]
parts = "overall"
[metrics.retrieval]
[metrics.diversity]
"""


def repeated(times: int) -> Dataset:
    """Eight scenes, each with so many seeds."""
    return load_shapes(samples_per_category=1, seed=3).repeated(times)


def copies(scenes: int) -> Dataset:
    """Scenes that are eight samples together."""
    chosen = load_shapes(samples_per_category=1, seed=3).samples[:scenes]
    times = 8 // scenes
    samples = [
        replace(sample, id=f"{sample.id}-{copy}", categories=("all",))
        for sample in chosen
        for copy in range(times)
    ]
    return Dataset("copies", {}, tuple(sorted(samples, key=lambda sample: sample.id)))


def staged(folder: Path, store: Store, describer: str = "shapes:", samples: int = 3) -> Staged:
    """Chains by a describer, and how they collapse."""
    text = SUITE.format(describer=describer, encoder="shapes:", samples=samples)
    return stage(folder / describer.replace("/", "_"), text, store)


def test_perfect_chains_find_their_starts_and_keep_their_diversity(
    tmp_path: Path, store: Store
) -> None:
    """Accuracy 1 at every iteration; diversity is that of the starts."""
    perfect = staged(tmp_path, store)
    found = perfect.measure("overall-retrieval")
    assert (found.value, found.curve) == (1.0, (1.0, 1.0))
    assert found.floor == pytest.approx(1 / 24, abs=1e-6)
    assert found.label == "retrieval@2"
    assert found.shares
    assert "1.000 of 24 chains end nearest to their own start" in found.notes[0]
    measured = perfect.measure("overall-diversity")
    assert measured.curve[0] == pytest.approx(measured.curve[1])
    assert measured.value == pytest.approx(measured.curve[-1], abs=1e-6)
    assert len(measured.blocks["overall"]) == 10
    assert "among the starts" in measured.notes[0]


def test_a_collapse_lowers_retrieval_and_diversity(tmp_path: Path, store: Store) -> None:
    """More of it lowers them more; every measure is gated against the accepted one."""
    before = staged(tmp_path, store)
    mild = staged(tmp_path, store, "shapes:?collapse=0.2")
    whole = staged(tmp_path, store, "shapes:?collapse=1")
    for name in ("retrieval", "diversity"):
        case = f"overall-{name}"
        values = [suite.measure(case).value for suite in (before, mild, whole)]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[1] > values[2]
        tolerance = 0.05 * values[0]
        verdict = judge(
            whole.measure(case), record_of(before.measure(case)), Policy(tolerance=tolerance)
        )
        assert verdict.verdict is Verdict.REGRESSED
    assert whole.measure("overall-retrieval").value == pytest.approx(1 / 24, abs=0.03)
    assert whole.measure("overall-diversity").value == pytest.approx(1.0)


def test_seeds_of_one_sample_do_not_narrow_the_bounds_of_retrieval(
    tmp_path: Path, store: Store
) -> None:
    """Chains that always agree with those of their sample's other seeds add no evidence."""
    bounds = []
    for times in (1, 4):
        text = SUITE.format(describer="shapes:", encoder="shapes:", samples=2).replace(
            'loader = "shapes"\noptions = { samples_per_category = 2, seed = 0 }',
            f'loader = "python:{__name__}:repeated"\noptions = {{ times = {times} }}',
        )
        measured = stage(tmp_path / str(times), text, store).measure("overall-retrieval")
        assert measured.value == 1.0
        bounds.append(measured.notes[0].partition("(")[2].partition(")")[0])
    assert bounds == ["exact 95 % bounds 0.631 to 1.000"] * 2


def test_a_blind_encoder_is_an_error_never_a_perfect_score(tmp_path: Path, store: Store) -> None:
    """One vector for all starts: no measure passes for seeing."""
    text = SUITE.format(
        describer="shapes:",
        encoder="python:tests.measures.test_chain_similarity:HalfBlind",
        samples=2,
    )
    suite = stage(tmp_path, f'{text}[metrics.fid]\npool = "samples"\n', store)
    for name in ("retrieval", "diversity", "fid"):
        with pytest.raises(MeasurementError, match="gives one vector for 16 images that differ"):
            suite.measure(f"overall-{name}")


@pytest.mark.parametrize("scenes", [4, 1])
def test_equal_starts_are_one_start(tmp_path: Path, store: Store, scenes: int) -> None:
    """Eight samples of four scenes have a chance of 1 in 4; of one scene nothing can be told."""
    text = SUITE.format(describer="shapes:", encoder="shapes:", samples=1)
    begin, end = text.index("[data]"), text.index("[chain]")
    source = f'[data]\nloader = "python:{__name__}:copies"\noptions = {{ scenes = {scenes} }}\n'
    suite = stage(tmp_path, text[:begin] + source + text[end:], store)
    if scenes == 1:
        with pytest.raises(MeasurementError, match="8 samples have 1: use more samples"):
            suite.measure("overall-retrieval")
        return
    found = suite.measure("overall-retrieval")
    assert (found.value, found.floor) == (1.0, 0.25)
    assert any("8 samples have 4 different starts" in note for note in found.notes)


def test_chains_that_stop_are_not_retrieved_and_shrink_the_set(
    tmp_path: Path, store: Store
) -> None:
    """A blank answer is a miss; diversity says how many artifacts are left, as part of its name."""
    suite = staged(tmp_path, store, "shapes:?blank=0.3")
    found, diverse = suite.measure("overall-retrieval"), suite.measure("overall-diversity")
    stopped = sum(found.failures.values())
    assert 0 < stopped < 24
    assert found.value == pytest.approx(1 - stopped / 24, abs=1e-6)
    assert f", {24 - stopped} (D = 196)" in diverse.identity["sets"]
    whole = staged(tmp_path, store).measure("overall-diversity")
    verdict = judge(diverse, record_of(whole), Policy(tolerance=100.0))
    assert verdict.verdict is Verdict.INCOMPARABLE


def test_scores_do_not_depend_on_the_part_that_a_look_takes(tmp_path: Path, store: Store) -> None:
    """The gallery is that of the whole suite: for a category, and for a look at some samples."""
    suite = staged(tmp_path, store, "shapes:?miss=0.3")
    whole = suite.measure("overall-retrieval")
    category = suite.measure("color-retrieval")
    assert category.scores["color"] == whole.scores["color"]
    look = suite.run.measure(suite.cases["overall-retrieval"], most=2)
    assert look.floor == whole.floor
    for part, scores in look.scores.items():
        assert scores.items() <= whole.scores[part].items()


def test_hybrid_chains_are_looked_up_among_all_starts(tmp_path: Path, store: Store) -> None:
    """Attribution grows some samples again: a smaller gallery would make them look better."""
    suite = staged(tmp_path, store, samples=2)
    data = suite.run.data
    some = data.dataset.samples[:3]
    again = data.recast(some, suite.run.suite.plans, {})
    case = suite.cases["overall-retrieval"]
    measure = suite.run.measures["retrieval"]
    present = tuple(name for name in case.categories if again.dataset.in_category(name))
    measured = measure.measure(replace(case, categories=present), again)
    assert measured.floor == pytest.approx(1 / 16)
    assert measured.identity == measure.measure(case, data).identity
