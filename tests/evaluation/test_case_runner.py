"""Cases judged in a run: shares of alpha, the verdict of a suite, and looking at more samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import CaseResult, GateResult
from pytest_cepbench.evaluation.case_runner import judge_case
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.gate import CaseKey, Policy, judge, load_baseline
from pytest_cepbench.measures.cases import Case, PooledCase
from pytest_cepbench.suites.gate_config import Overrides
from tests.evaluation.projects import GatedProject, verdicts
from tests.optional import known

POOLED = "scored/suite/verdict"

FAINT: dict[str, Any] = {"drop": "0.05,0.05,0.05,0.012", "spread": "0.01,0.01,0.01,0.028"}
"""Three clear losses, and one that is found at the whole alpha and not at a quarter of it."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Four cases with baselines, and a verdict for all of them."""
    return GatedProject.make(
        tmp_path_factory.mktemp("pooled") / "project",
        n=30,
        categories=("a", "b", "c", "d"),
        rest="[metrics.gc]\n[gate]\nprimary = ['a/gc', 'b/gc', 'c/gc', 'd/gc']\npooled = true\n",
    )


def test_holm_finds_what_a_case_alone_does_not(accepted: GatedProject) -> None:
    """Inconclusive at its share, found by the suite when the others are rejected, and said so."""
    result = accepted.gate(**FAINT)

    assert verdicts(result)["d-gc"] == "inconclusive"
    pooled = result[POOLED]
    assert pooled.verdict == "regressed"
    assert pooled.alpha == pytest.approx(0.05)
    assert pooled.primary
    assert pooled.measurement is None
    assert [reason.split(":")[0] for reason in pooled.reasons] == ["a/gc", "b/gc", "c/gc", "d/gc"]
    seen = [reason.endswith("(not seen by the case alone)") for reason in pooled.reasons]
    assert seen == [False, False, False, True]


def test_what_is_too_little_for_a_case_alone(accepted: GatedProject) -> None:
    """Without losses beside it Holm gives it no more than its share; not green by silence.

    The suite holds where every case excludes its drop at the whole alpha: a claim of all cases at
    once needs no division. By plain rules nothing is divided: it regressed where a case did.
    """
    faint: dict[str, Any] = {"drop": "0,0,0,0.012", "spread": "0.004,0.004,0.004,0.028"}
    result = accepted.gate(**faint)
    assert verdicts(result)["d-gc"] == result[POOLED].verdict == "inconclusive"
    assert result.passed
    assert result[POOLED].reasons == ["a drop larger than tolerated is not excluded in 1: d/gc"]
    assert not accepted.gate({"inconclusive": "fail"}, **faint).passed

    result = accepted.gate(drop="0.0005", spread="0.004,0.004,0.004,0.026")
    assert verdicts(result)["d-gc"] == "inconclusive"
    assert result[POOLED].verdict == "held"
    assert result[POOLED].notes == ["each of 4 cases excludes its tolerated drop at alpha 0.05"]

    result = accepted.gate({"gate": "threshold"}, drop="0,0,0,0.02")
    assert verdicts(result)["d-gc"] == result[POOLED].verdict == "regressed"
    assert result[POOLED].alpha is None
    held = accepted.gate({"gate": "threshold"}, drop="0.002")
    assert held[POOLED].verdict == "held"


def test_what_cannot_be_compared_cannot_be_pooled(accepted: GatedProject, tmp_path: Path) -> None:
    """A case without a baseline is the suite's verdict too, and an error where it is unreadable.

    The message names the file; accepting a new one replaces it.
    """
    project = accepted.copy(tmp_path / "project")
    project.baseline("b-gc").write_text("no baseline")
    result = project.gate()
    assert verdicts(result)["b-gc"] == result[POOLED].verdict == "error"
    assert "b-gc-" in result["scored/b/gc"].reasons[0]
    assert result["scored/b/gc"].alpha == pytest.approx(0.0125)
    assert not result.passed
    assert project.gate(snapshot_update=True).passed
    assert project.gate().passed

    project.baseline("b-gc").unlink()
    result = project.gate(drop=0.0005, spread=0.004)
    assert verdicts(result)["b-gc"] == result[POOLED].verdict == "no-baseline"
    assert result[POOLED].reasons == ["b/gc: no-baseline"]
    assert not result.passed


def test_its_cases_are_entered_once_in_their_series(accepted: GatedProject, tmp_path: Path) -> None:
    """By the verdict of the suite where it comes first, and not again by the tests of the cases."""
    project = accepted.copy(tmp_path / "series")
    evaluator = _evaluator(project, "?drop=0.08&spread=0.01", series=["run"])
    path = project.path / "suite.toml"
    try:
        pooled = evaluator.suites.cases(path, pooled=True)[-1]
        assert isinstance(pooled, PooledCase)
        evaluator.assign({case.id: (path, case, Overrides()) for case in pooled.members})
        judged = judge_case(evaluator, path, pooled, "verdict", Overrides())
        entered = _entered(project)
        alone = [judge_case(evaluator, path, case, case.id, Overrides()) for case in pooled.members]
    finally:
        evaluator.close()

    assert judged.verdict == "regressed"
    assert sorted(entered) == [f"scored/{case.part}/gc" for case in alone]
    assert _entered(project) == entered
    assert all(case.series is not None and case.series.look == 1 for case in alone)


def _entered(project: GatedProject) -> list[str]:
    """The cases in the record of the series."""
    (file,) = project.path.rglob("series/run.jsonl")
    return [line["case"] for line in map(json.loads, file.read_text().splitlines()[1:])]


def _evaluator(project: GatedProject, knobs: str = "?drop=0.02", **options: list[str]) -> Evaluator:
    """Of a checkpoint that lost in every case, or has other knobs."""
    options["model"] = [f"python:tests.plugin.scored:Describer{knobs}"]
    return Evaluator(
        RunContext(read_settings(options, dict.fromkeys(options, "here"), project.path))
    )


def test_a_case_that_two_tests_gate_counts_once(accepted: GatedProject) -> None:
    """With one share of alpha, and by the smaller of their tolerances."""
    evaluator = _evaluator(accepted)
    path = accepted.path / "suite.toml"
    try:
        *cases, pooled = evaluator.suites.cases(path, pooled=True)
        assert isinstance(pooled, PooledCase)
        case = next(case for case in cases if isinstance(case, Case) and case.id == "a-gc")
        tolerant = Overrides(tolerance=0.5)
        evaluator.assign({"one": (path, case, Overrides()), "two": (path, case, tolerant)})
        result = judge_case(evaluator, path, pooled, "verdict", Overrides())
    finally:
        evaluator.close()

    assert result.alpha == pytest.approx(0.025)
    assert result.verdict == "regressed"
    assert len(result.reasons) == 1


SUITE = """\
[metrics.gc]
[metrics.s]
[gate]
primary = ['one/gc', 'two/gc']
[cases.'one/gc']
weight = 4
"""


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Two categories, one of which has most of alpha; `s` is informational."""
    path = tmp_path_factory.mktemp("runner") / "project"
    return GatedProject.make(path, n=20, categories=("one", "two"), rest=SUITE)


def test_a_case_is_judged_at_its_share_of_alpha(weighted: GatedProject) -> None:
    """One that was not collected has the smallest share, one that is informational all of it.

    Similarities differ by 2 at most: with a larger tolerance every checkpoint would pass.
    """
    evaluator, path = _evaluator(weighted, ""), weighted.path / "suite.toml"
    every = evaluator.suites.cases(path, pooled=False)
    cases = {case.id: case for case in every if isinstance(case, Case)}
    evaluator.assign({name: (path, cases[name], Overrides()) for name in ("one-gc", "two-gc")})
    for case, test, alpha in (
        ("one-gc", "one-gc", 0.04),
        ("two-gc", "two-gc", 0.01),
        ("one-gc", "another test", 0.01),
        ("one-s", "one-s", 0.05),
    ):
        result = judge_case(evaluator, path, cases[case], test, Overrides())
        assert result.alpha == pytest.approx(alpha)
        assert result.verdict == "held"
    result = judge_case(evaluator, path, cases["one-gc"], "one-gc", Overrides(tolerance=5.0))
    evaluator.close()
    assert result.verdict == "error"
    assert "so no drop exceeds it" in result.reasons[0]


def test_an_informational_category_at_chance_is_accepted(
    weighted: GatedProject, tmp_path: Path
) -> None:
    """It lets no worse checkpoint pass; what can fail a run: tests/plugin/test_blind_setups.py."""
    project = weighted.copy(tmp_path / "primary")
    suite = project.path / "suite.toml"
    suite.write_text(suite.read_text().replace(", 'two/gc'", ""))
    taken = project.gate(snapshot_update=True, drop="0,0.77")
    assert taken.passed
    assert taken["scored/two/gc"].accepted


MORE: dict[str, Any] = {"inconclusive": "more", "attribute": 0}

GC = "scored/overall/gc"

VAGUE: dict[str, Any] = {"drop": 0.006, "spread": 0.05}
"""A drop of which two hundred samples of this spread do not tell whether it is tolerable."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Two hundred samples, all of them in the baseline; one metric more that fails nothing."""
    return GatedProject.make(
        tmp_path_factory.mktemp("looks") / "project",
        n=200,
        rest="[metrics.gc]\n[metrics.s]\n[gate]\nprimary = ['gc']\nalpha = 0.06\n",
    )


@pytest.fixture(scope="module")
def vague(large: GatedProject) -> GateResult:
    """A run of which the samples decide nothing."""
    return large.gate(MORE, **VAGUE)


def _bounds(case: CaseResult) -> list[float | str | None]:
    return [case.verdict, case.judgement.difference, case.judgement.low, case.judgement.high]


def _judged_alone(
    project: GatedProject, case: CaseResult, share: float
) -> list[float | str | None]:
    """Verdict and bounds of what a run measured, by `judge` at a share of the case's alpha."""
    file = project.baseline("overall-gc")
    baseline = load_baseline(file.read_text(), CaseKey.parse(GC), file.name)
    policy = Policy(alpha=known(case.alpha) * share)
    judged = judge(known(case.measurement).fresh, baseline, policy, partial=case.partial)
    return [judged.verdict.value, judged.difference, judged.low, judged.high]


def test_a_clear_drop_ends_at_the_first_look(
    large: GatedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty-five descriptions in place of two hundred; the result says that more were there.

    Samples that are to be shown and were not looked at are not described for that.
    """
    calls = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    project = large.copy(tmp_path / "copy")
    every = [f"one/{number:03}" for number in range(200)]
    case = project.case(MORE | {"show": every}, drop=0.05, spread=0.01)
    shown = case.shown.median, *case.shown.chains, *case.shown.requested
    assert len({chain.sample for chain in shown if chain is not None}) == 25

    assert (case.verdict, case.looks, case.n, case.partial) == ("regressed", [25], 25, True)
    assert len(calls.read_text()) == 25
    assert case.effort.inputs >= 25
    whole = project.case({"attribute": 0}, drop=0.05, spread=0.01)
    assert (whole.looks, whole.partial) == ([200], False)
    assert [bool(chain.links) for chain in whole.shown.chains] == [True] * 3 + [False] * 2
    assert len(calls.read_text()) == 200


def test_what_stays_vague_is_looked_at_whole(large: GatedProject, vague: GateResult) -> None:
    """25, 50, 100, 200; then inconclusive at half of alpha, as judge() says of the same scores.

    An end at the second of four looks is judged at a sixth of alpha.
    """
    case = vague[GC]

    assert (case.looks, case.partial, case.n) == ([25, 50, 100, 200], False, 200)
    assert _bounds(case) == _judged_alone(large, case, 0.5)
    assert case.verdict == "inconclusive"
    whole = large.case(**VAGUE)
    assert whole.judgement.difference == case.judgement.difference
    assert known(whole.judgement.low) > known(case.judgement.low)

    early = large.case(MORE, drop=0.018, spread=0.035)
    assert (early.looks, early.verdict) == ([25, 50], "regressed")
    assert _bounds(early) == _judged_alone(large, early, 1 / 6)


def test_what_ends_the_looks_before_all_samples(large: GatedProject, vague: GateResult) -> None:
    """When a budget of seconds is over the look that was taken stands; the first is always taken.

    The first samples would decide a threshold that can fail the run by chance: it is judged on all,
    unless a budget ends it earlier, and says so. A case that decides nothing is looked at once.
    """
    case = large.case(MORE | {"budget": "800,0.001s"}, **VAGUE)
    plenty = large.case(MORE | {"budget": "600s"}, **VAGUE)
    assert (case.looks, case.partial, case.verdict) == ([25], True, "inconclusive")
    assert plenty.looks == [25, 50, 100, 200]

    threshold = large.gate(MORE | {"gate": "threshold"}, **VAGUE)
    plain = threshold["scored/overall/s"]
    assert vague["scored/overall/s"].looks == plain.looks == [25]
    assert any("judged on the first 25 samples" in note for note in plain.notes)
    whole = threshold[GC]
    assert (whole.looks, whole.partial) == ([200], False)
    assert not any("judged on the first" in note for note in whole.notes)
    limited = large.case(MORE | {"gate": "threshold", "budget": 80}, **VAGUE)
    assert limited.looks == [80]
    assert any("judged on the first 80 samples" in note for note in limited.notes)


def test_a_baseline_is_made_of_all_samples(large: GatedProject, tmp_path: Path) -> None:
    """Accepting takes one look at everything, whatever else was asked for."""
    project = large.copy(tmp_path / "whole")
    case = project.case(MORE | {"budget": 25}, snapshot_update=True, drop=0.05, spread=0.01)

    assert (case.looks, case.accepted) == ([200], True)
    assert "\nn = 200\n" in project.baseline("overall-gc").read_text()
