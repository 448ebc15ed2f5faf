"""`--cep-inconclusive=more`: looking again while nothing is decided, and no further than that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cepbench.gate import CaseKey, Measurement, Policy, judge, load_baseline
from tests.plugin.project import MODES
from tests.plugin.scored_project import ACCEPT, Ended, ScoredProject, model, scored_suite

MORE = "--cep-inconclusive=more"

CLEAR = model(drop=0.05, spread=0.01)

VAGUE = model(drop=0.006, spread=0.05)
"""A drop of which two hundred samples of this spread do not tell whether it is tolerable."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two hundred samples, all of them in the baseline; one metric more that fails nothing."""
    suite = scored_suite(
        n=200, rest="[metrics.gc]\n[metrics.s]\n[gate]\nprimary = ['gc']\nalpha = 0.06\n"
    )
    project = ScoredProject.make(tmp_path_factory.mktemp("looks"), suite)
    ended = project.accept(MORE)
    assert ended.cases["overall-gc"]["n"] == 200
    assert not ended.cases["overall-gc"]["partial"]
    return project


def _fresh(project: ScoredProject, tmp_path: Path) -> tuple[ScoredProject, Path]:
    """A copy to fill its own store, and the file in which its describer counts."""
    return project.copy(tmp_path / "copy"), tmp_path / "calls"


def test_a_clear_drop_ends_at_the_first_look(accepted: ScoredProject, tmp_path: Path) -> None:
    """Twenty-five descriptions in place of two hundred; the report says that more were there."""
    project, calls = _fresh(accepted, tmp_path)
    ended = project.run(MORE, CLEAR, "--cep-attribute=0", env={"CALLS": str(calls)})
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    gc = ended.cases["overall-gc"]
    assert (gc["verdict"], gc["looks"], gc["n"], gc["partial"]) == ("regressed", [25], 25, True)
    assert len(gc["measured"]["scores"]["one"]) == 25
    assert len(calls.read_text()) == 25
    ended.lines.fnmatch_lines(
        [
            "  alpha *0.06   0.01 of each bound, divided among the looks",
            "  looked at 25 samples; more are there",
        ]
    )
    whole = project.run(CLEAR, "--cep-attribute=0", env={"CALLS": str(calls)})
    assert whole.cases["overall-gc"]["looks"] == [200]
    assert len(calls.read_text()) == 200


def _judged_alone(project: ScoredProject, ended: Ended, share: float) -> list[float | str | None]:
    """Verdict and bounds of what a run measured, by `judge` at a share of the case's alpha."""
    case = ended.cases["overall-gc"]
    measured = case["measured"]
    key = CaseKey("scored", "overall", "gc")
    measurement = Measurement(
        key=key,
        label=measured["metric"],
        higher_is_better=True,
        scores=measured["scores"],
        identity=measured["identity"],
        model=measured["model"],
    )
    file = project.baseline("overall-gc")
    baseline = load_baseline(file.read_text(), key, file.name)
    policy = Policy(alpha=case["alpha"])
    level = replace(policy, alpha=policy.alpha * share)
    found = judge(measurement, baseline, level, partial=case["partial"])
    return [found.verdict.value, found.difference, found.low, found.high]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_what_stays_vague_is_looked_at_whole(accepted: ScoredProject, mode: str) -> None:
    """25, 50, 100, 200; then inconclusive at half of alpha, as judge() says of the same scores."""
    ended = accepted.run(*MODES[mode], MORE, VAGUE, "-k", "gc")
    assert ended.code == pytest.ExitCode.OK
    case = ended.cases["overall-gc"]
    assert (case["looks"], case["partial"], case["n"]) == ([25, 50, 100, 200], False, 200)
    shown = [case[name] for name in ("verdict", "difference", "low", "high")]
    assert shown == _judged_alone(accepted, ended, 0.5)
    assert case["verdict"] == "inconclusive"
    whole = accepted.run(VAGUE, "-k", "gc")
    assert whole.cases["overall-gc"]["difference"] == case["difference"]
    assert whole.cases["overall-gc"]["low"] > case["low"]


def test_early_looks_have_their_own_share(accepted: ScoredProject) -> None:
    """An end at the second of four looks is judged at a sixth of alpha."""
    ended = accepted.run(MORE, model(drop=0.02, spread=0.03), "-k", "gc", "--cep-attribute=0")
    case = ended.cases["overall-gc"]
    assert (case["looks"], case["verdict"]) == ([25, 50], "regressed")
    shown = [case[name] for name in ("verdict", "difference", "low", "high")]
    assert shown == _judged_alone(accepted, ended, 1 / 6)


def test_the_budget_in_samples(accepted: ScoredProject) -> None:
    """The last look is at as many as may be spent, at half of alpha; still inconclusive, and said."""
    ended = accepted.run(MORE, VAGUE, "-k", "gc", "--cep-budget=80")
    case = ended.cases["overall-gc"]
    assert (case["looks"], case["partial"]) == ([25, 50, 80], True)
    assert case["verdict"] == "inconclusive"
    assert [case["low"], case["high"]] == _judged_alone(accepted, ended, 0.5)[2:]


def test_the_budget_in_seconds(accepted: ScoredProject) -> None:
    """When the time is over the look that was taken stands; the first is always taken."""
    ended = accepted.run(MORE, VAGUE, "-k", "gc", "--cep-budget=800,0.001s")
    case = ended.cases["overall-gc"]
    assert (case["looks"], case["partial"]) == ([25], True)
    assert case["verdict"] == "inconclusive"
    plenty = accepted.run(MORE, VAGUE, "-k", "gc", "--cep-budget=600s").cases["overall-gc"]
    assert plenty["looks"] == [25, 50, 100, 200]


def test_who_decides_nothing_is_looked_at_once(accepted: ScoredProject) -> None:
    """Informational cases, and those under threshold."""
    ended = accepted.run(MORE, VAGUE)
    assert ended.cases["overall-s"]["looks"] == [25]
    plain = accepted.run(MORE, VAGUE, "--cep-gate=threshold", "-k", "gc", "--cep-attribute=0")
    assert plain.cases["overall-gc"]["looks"] == [25]


def test_a_baseline_is_made_of_all_samples(accepted: ScoredProject, tmp_path: Path) -> None:
    """--snapshot-update takes one look at everything, whatever else was asked for."""
    project = accepted.copy(tmp_path / "whole")
    ended = project.run(ACCEPT, MORE, "--cep-budget=25", CLEAR, "-k", "gc")
    assert ended.code == pytest.ExitCode.OK
    assert ended.cases["overall-gc"]["looks"] == [200]
    assert "\nn = 200\n" in project.baseline("overall-gc").read_text()
