"""Looks at part of a case's samples: the same numbers as in the whole, under its identity."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import Policy, Verdict, dump_baseline, judge, load_baseline, record_of
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun
from tests.suites.world import SUITE, TASKS, Staged, stage

METRICS = """\
[metrics.gc]
[metrics.sim]
pool = "samples"
[metrics.fid]
[metrics.failures]
"""

CHECKED = "[metrics.geneval]\n[metrics.mgg]\n"

ALONE = SUITE.replace("tests.suites.world:overlapping", "tests.suites.test_looks:uneven")
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
    ("text", "case_id"),
    [
        (ALONE + METRICS, "a-gc"),
        (ALONE + METRICS, "overall-gc"),
        (ALONE + METRICS, "overall-sim"),
        (ALONE + METRICS, "overall-failures"),
        (SUITE + METRICS, "overall-gc"),
        (TASKS + CHECKED, "overall-geneval"),
        (TASKS + CHECKED, "colors-mgg"),
    ],
)
def test_a_look_measures_what_the_whole_measures(tmp_path: Path, text: str, case_id: str) -> None:
    """Same scores for the same samples, whether the whole is measured before, after or never."""
    whole = _staged(tmp_path, text, "whole")
    case = whole.cases[case_id]
    every = whole.run.measure(case)
    looking = _staged(tmp_path, text, "looking")
    for most in (1, 2):
        first, after = looking.run.measure(case, most), whole.run.measure(case, most)
        assert first.scores == after.scores
        assert first.n < every.n
        for category, part in first.scores.items():
            assert part.items() <= every.scores[category].items()
        assert first.identity == every.identity
    assert looking.run.measure(case).scores == every.scores


def test_the_identity_of_a_look_is_that_of_all_samples(tmp_path: Path) -> None:
    """So it can be judged against a baseline of all of them, and never become one unseen."""
    staged = _staged(tmp_path, ALONE + METRICS)
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
    staged = _staged(tmp_path, ALONE + METRICS)
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
    staged = stage(folder, SUITE + METRICS, Store(folder / "store"))
    for name in ("a-gc", "overall-gc"):
        case = staged.cases[name]
        sizes = [len(staged.run.dataset.in_category(category)) for category in case.categories]
        depth = staged.run.depth(case, samples)
        if depth is None:
            assert sum(min(size, max(sizes) - 1) for size in sizes) < samples
        else:
            assert sum(min(size, depth) for size in sizes) >= samples
            assert sum(min(size, depth - 1) for size in sizes) < samples
