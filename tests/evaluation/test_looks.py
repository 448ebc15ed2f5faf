"""`inconclusive="more"`: looking again while nothing is decided, and no further than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import CaseResult, GateResult
from pytest_cepbench.gate import CaseKey, FreshMeasurement, Policy, judge, load_baseline
from tests.evaluation.gated_project import GatedProject
from tests.gate.build import replace

MORE: dict[str, Any] = {"inconclusive": "more", "attribute": 0}

GC = "scored/overall/gc"

VAGUE: dict[str, Any] = {"drop": 0.006, "spread": 0.05}
"""A drop of which two hundred samples of this spread do not tell whether it is tolerable."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Two hundred samples, all of them in the baseline; one metric more that fails nothing."""
    return GatedProject.make(
        tmp_path_factory.mktemp("looks") / "project",
        n=200,
        rest="[metrics.gc]\n[metrics.s]\n[gate]\nprimary = ['gc']\nalpha = 0.06\n",
    )


@pytest.fixture(scope="module")
def vague(accepted: GatedProject) -> GateResult:
    """A run of which the samples decide nothing."""
    return accepted.gate(MORE, **VAGUE)


@pytest.fixture(scope="module")
def threshold(accepted: GatedProject) -> GateResult:
    """The same, judged without statistics."""
    return accepted.gate(MORE | {"gate": "threshold"}, **VAGUE)


def _bounds(case: CaseResult) -> list[float | str | None]:
    return [case.verdict, case.judgement.difference, case.judgement.low, case.judgement.high]


def _judged_alone(
    project: GatedProject, case: CaseResult, share: float
) -> list[float | str | None]:
    """Verdict and bounds of what a run measured, by `judge` at a share of the case's alpha."""
    measured = case.measurement
    assert measured is not None
    assert case.alpha is not None
    key = CaseKey("scored", "overall", "gc")
    measurement = FreshMeasurement.of(
        key=key,
        label=measured.metric,
        higher_is_better=True,
        scores=measured.scores,
        identity=measured.identity,
        model=measured.model,
    )
    file = project.baseline("overall-gc")
    baseline = load_baseline(file.read_text(), key, file.name)
    level = replace(Policy(alpha=case.alpha), alpha=case.alpha * share)
    judged = judge(measurement, baseline, level, partial=case.partial)
    return [judged.verdict.value, judged.difference, judged.low, judged.high]


def test_a_clear_drop_ends_at_the_first_look(
    accepted: GatedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty-five descriptions in place of two hundred; the result says that more were there."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    project = accepted.copy(tmp_path / "copy")
    case = project.case(MORE, drop=0.05, spread=0.01)

    assert (case.verdict, case.looks, case.n, case.partial) == ("regressed", [25], 25, True)
    assert len(calls.read_text()) == 25
    assert case.effort.inputs >= 25
    whole = project.case({"attribute": 0}, drop=0.05, spread=0.01)
    assert (whole.looks, whole.partial) == ([200], False)
    assert len(calls.read_text()) == 200


def test_what_stays_vague_is_looked_at_whole(accepted: GatedProject, vague: GateResult) -> None:
    """25, 50, 100, 200; then inconclusive at half of alpha, as judge() says of the same scores."""
    case = vague[GC]

    assert (case.looks, case.partial, case.n) == ([25, 50, 100, 200], False, 200)
    assert _bounds(case) == _judged_alone(accepted, case, 0.5)
    assert case.verdict == "inconclusive"
    whole = accepted.case(**VAGUE)
    assert whole.judgement.difference == case.judgement.difference
    assert whole.judgement.low is not None
    assert case.judgement.low is not None
    assert whole.judgement.low > case.judgement.low


def test_early_looks_have_their_own_share(accepted: GatedProject) -> None:
    """An end at the second of four looks is judged at a sixth of alpha."""
    case = accepted.case(MORE, drop=0.018, spread=0.035)

    assert (case.looks, case.verdict) == ([25, 50], "regressed")
    assert _bounds(case) == _judged_alone(accepted, case, 1 / 6)


def test_the_budget_in_seconds(accepted: GatedProject) -> None:
    """When the time is over the look that was taken stands; the first is always taken."""
    case = accepted.case(MORE | {"budget": "800,0.001s"}, **VAGUE)
    plenty = accepted.case(MORE | {"budget": "600s"}, **VAGUE)

    assert (case.looks, case.partial, case.verdict) == ([25], True, "inconclusive")
    assert plenty.looks == [25, 50, 100, 200]


def test_a_case_that_decides_nothing_is_looked_at_once(
    vague: GateResult, threshold: GateResult
) -> None:
    """An informational case has the first look; under threshold it says so."""
    assert vague["scored/overall/s"].looks == [25]
    plain = threshold["scored/overall/s"]
    assert plain.looks == [25]
    assert any("judged on the first 25 samples" in note for note in plain.notes)


def test_a_threshold_that_can_fail_the_run_is_judged_on_all_samples(
    accepted: GatedProject, threshold: GateResult
) -> None:
    """Its first samples would decide it by chance; a budget ends it earlier, and it says so."""
    whole = threshold[GC]
    assert (whole.looks, whole.partial) == ([200], False)
    assert not any("judged on the first" in note for note in whole.notes)
    limited = accepted.case(MORE | {"gate": "threshold", "budget": 80}, **VAGUE)
    assert limited.looks == [80]
    assert any("judged on the first 80 samples" in note for note in limited.notes)


def test_a_baseline_is_made_of_all_samples(accepted: GatedProject, tmp_path: Path) -> None:
    """Accepting takes one look at everything, whatever else was asked for."""
    project = accepted.copy(tmp_path / "whole")
    case = project.case(MORE | {"budget": 25}, snapshot_update=True, drop=0.05, spread=0.01)

    assert (case.looks, case.accepted) == ([200], True)
    assert "\nn = 200\n" in project.baseline("overall-gc").read_text()
