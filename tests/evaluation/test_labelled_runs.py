"""People's labels in whole runs: draw, rate, import, gate; what reports and baselines say."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import CaseResult, gate_checkpoint
from pytest_cepbench.cli import main
from pytest_cepbench.gate.baseline import as_accepted
from pytest_cepbench.gate.compare import OVERTURNED
from pytest_cepbench.gate.statistics.prediction_powered import PREDICTION_POWERED
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.report.ci_reports import markdown_summary
from pytest_cepbench.report.headline import headline
from pytest_cepbench.report.text import brief, explain, people_lines
from pytest_cepbench.report.writers import RunFacts
from tests.ratings.voted import cast, side_vote

SUITE = Path(__file__).parents[2] / "suites" / "arena" / "instrument.toml"

CANDIDATE = "shapes:?miss=0.25"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of 240 questions, in which people find the candidate better in 4 of 5 battles."""
    root = tmp_path_factory.mktemp("labelled")
    (root / "suite.toml").write_text(SUITE.read_text("utf-8"), encoding="utf-8")
    gate(root, "shapes:?miss=0.2", snapshot_update=True)
    with contextlib.chdir(root):
        words = f"rate draw . --model {CANDIDATE} --battles 120 --ratings ratings/new"
        assert main([*words.split(), "--annotators=ann"]) == 0
        ratings = read_ratings(root / "ratings/new")
        items = [item for item in ratings.items.values() if item.kind == "item"]
        votes = (side_vote(item, "ann", "A" if n % 5 else "B") for n, item in enumerate(items))
        cast(ratings, *votes)
        assert main(["rate", "labels", "ratings/new"]) == 0
    return root


def gate(root: Path, model: str, **options: Any) -> CaseResult:
    """The case of the win rate of a gated model."""
    result = gate_checkpoint(root / "suite.toml", root=root, model=model, attribute=0, **options)
    return result["arena-instrument/overall/win_rate"]


def test_people_decide_against_the_judge(labelled: Path) -> None:
    """The judge finds the candidate worse, people better: it passes, by numbers of people's."""
    case = gate(labelled, CANDIDATE)
    assert case.judgement.method == PREDICTION_POWERED
    assert case.verdict in ("held", "improved")
    assert case.judgement.units == 120
    assert case.value is not None
    assert case.judgement.difference is not None
    assert case.judgement.difference > 0
    assert case.value == pytest.approx(0.5 + case.judgement.difference, abs=1e-6)
    assert case.measurement is not None
    kept = as_accepted(case.measurement).scores
    assert {score for part in kept.values() for score in part.values()} == {0.5}
    (note,) = [note for note in case.notes if note.startswith("people's labels decide")]
    assert f"win rate {case.value:.3f} with them, 0.3" in note
    assert "by the judge alone; people labelled 34 of 240 battles" in note
    assert "86 drawn ones are decided without them" in note
    assert case.decided_by.startswith(f"people decide: {case.value:.3f} with their labels, 0.3")
    assert case.decided_by.removesuffix(" by the judge alone")[-5:] in note
    assert case.decided_by in " ".join(explain(case).split())
    assert case.decided_by in brief(case).splitlines()[0]
    assert people_lines([case]) == [f"arena-instrument overall win rate: {case.decided_by}"]
    report = markdown_summary(RunFacts("passed", "0", (), ()), [case])
    assert case.decided_by in report
    assert OVERTURNED.format(verdict=case.verdict) in case.warnings
    assert "people's labels overturn the judge in 1" in headline([case])


def test_a_labelled_case_is_judged_whole(labelled: Path) -> None:
    """Labels are a random part of all battles, so a run that looks again looks once."""
    case = gate(labelled, CANDIDATE, inconclusive="more")
    assert (case.looks, case.partial, case.judgement.method) == ([240], False, PREDICTION_POWERED)


def test_another_candidate_is_judged_by_the_judge(labelled: Path) -> None:
    """Its answers are others: the labels are counted in a note, and decide nothing."""
    case = gate(labelled, "shapes:?miss=0.6")
    assert case.verdict == "regressed"
    assert "people" not in case.judgement.method
    assert any("labels in other files are of other answers" in note for note in case.notes)
