"""The answers that a case's record shows: of the store, beside those that they battled."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.chains import Chain
from pytest_cepbench.cli import main
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.evaluation.evaluator import EvaluatedCase
from pytest_cepbench.evaluation.shown_samples import similarity_curve
from pytest_cepbench.gate import Policy
from pytest_cepbench.measures.base import ChainExcerpt
from pytest_cepbench.report.result import AnswerShown, CaseResult, StepShown
from pytest_cepbench.report.writers import properties_of
from pytest_cepbench.store import Store
from tests.evaluation.projects import ArenaProject
from tests.gate.build import accepted, measured
from tests.optional import known

CASE: Any = None


def test_the_samples_that_lost_most_come_first() -> None:
    """All that lost, in order; worse where lower is better counts as lost. None of another kind."""
    before = measured({"c": {f"s{i}": 0.0 for i in range(9)}}, higher_is_better=False)
    now = measured({"c": {f"s{i}": i / 10 for i in range(9)}}, higher_is_better=False)
    evaluated = EvaluatedCase(
        CASE, Policy(), cast("Any", now), accepted(before), None, "exact", (9,), False, 1.0
    )
    assert evaluated.losers == [f"s{i}" for i in range(8, 0, -1)]
    assert evaluated.differences == {f"s{i}": -i / 10 for i in range(9)}
    other = replace(evaluated, measurement=cast("Any", measured(now.scores)))
    assert (other.losers, other.differences) == ([], {})


WORSE = "shapes:?miss=0.3"

WIN_RATE, TRUTH = "small-arena/overall/win_rate", "small-arena/overall/truth"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ArenaProject:
    """Accepted answers of a model that loses nothing."""
    return ArenaProject.make(tmp_path_factory.mktemp("arena"))


@pytest.fixture(scope="module")
def battles(project: ArenaProject) -> CaseResult:
    """The battles of a worse model's answers."""
    return project.gate(model=WORSE)[WIN_RATE]


def _whole(case: CaseResult) -> list[AnswerShown]:
    """The answers that are shown with their steps."""
    return [answer for answer in case.shown.answers if answer.question]


def _digest(steps: list[StepShown]) -> str:
    return Answer(tuple(StoredStep(step.text, step.image) for step in steps)).digest


@pytest.fixture(scope="module")
def first(project: ArenaProject) -> dict[str, str]:
    """The digests of the accepted answers, by measuring their model again."""
    return known(project.gate(model="shapes:")[WIN_RATE].measurement).answers


def test_battles_show_both_answers(
    project: ArenaProject, first: dict[str, str], battles: CaseResult
) -> None:
    """Five samples are named, three of them with the steps of both answers as they are stored.

    The store has the images of their questions, too.
    """
    assert battles.verdict == "regressed"
    assert len(battles.shown.answers) == 5
    assert len(_whole(battles)) == 3
    measured = known(battles.measurement)
    for answer in _whole(battles):
        assert (answer.score, answer.baseline) == (0.0, 0.5)
        assert _digest(answer.steps) == measured.answers[answer.sample]
        assert _digest(answer.opposing) == first[answer.sample] != _digest(answer.steps)
        assert answer.opponent == "accepted answer"
    asked = {step.image for answer in _whole(battles) for step in answer.question} - {None}
    with Store(project.path / ".cepbench" / "store") as store:
        assert asked
        assert all(store.artifact_path(known(image)).exists() for image in asked)


def test_named_samples_are_shown_whole(project: ArenaProject, battles: CaseResult) -> None:
    """Those that lost less after the others, those that were only named in their place."""
    shown = [answer.sample for answer in battles.shown.answers]
    unseen = max(battles.shown.differences.keys() - set(shown))
    result = project.gate(model=WORSE, show=[unseen, shown[4], "no such sample"])
    (line,) = result.unshown
    assert line in str(result)
    assert line.startswith("show 'no such sample': no judged case has such a sample.")
    case = result[WIN_RATE]
    assert [answer.sample for answer in case.shown.answers] == [*shown, unseen]
    assert {answer.sample for answer in _whole(case)} == {*shown[:3], shown[4], unseen}
    same = project.gate(model="shapes:", show=unseen)
    held = same[WIN_RATE]
    (answer,) = held.shown.answers
    assert (answer.sample, answer.score, answer.baseline) == (unseen, 0.5, 0.5)
    assert answer.steps == answer.opposing
    # Without a card of the judge reports say so, and where no verdict was used, nothing.
    assert "how well it agrees with people is not known here" in battles.shown.judge
    assert not held.shown.judge
    assert "judge of" not in str(same)


def test_named_samples_that_were_not_looked_at_are_not_answered(
    project: ArenaProject, first: dict[str, str], tmp_path: Path
) -> None:
    """A budget leaves them out: a report asks no model for them."""
    asked = []
    for name, show in (("plain", []), ("named", [*first])):
        run = project.copy(tmp_path / name).gate(
            model="shapes:?miss=0.31", inconclusive="more", budget=5, show=show
        )
        asked.append(sum(case.effort.inputs for case in run.cases))
    assert run[WIN_RATE].n < len(first)
    assert len(run[WIN_RATE].shown.answers) == run[WIN_RATE].n
    assert asked[0] == asked[1] > 0


def test_missing_answers_say_why(project: ArenaProject) -> None:
    """An answer that failed has its failure, no steps and no verdict; the accepted one is there."""
    case = project.gate(model="shapes:?stop=0.5")[WIN_RATE]
    missing = [answer for answer in _whole(case) if answer.failure]
    assert missing
    for answer in missing:
        assert answer.steps == []
        assert answer.opposing
        assert answer.failure == "empty-text: an answer without steps"
        assert answer.verdicts == ["the new answer is missing: no judge was asked"]


def test_accepted_battles_show_what_was_replaced(
    project: ArenaProject, first: dict[str, str], tmp_path: Path
) -> None:
    """After --snapshot-update the changed answers are shown beside the old ones; those that lost
    most come first, and an unchanged model shows none. What holds against that baseline and not
    against the anchor lost to the anchor's answers: these stand beside.
    """
    project = project.copy(tmp_path / "replaced")
    case = project.gate(model=WORSE, snapshot_update=True)[WIN_RATE]
    assert case.accepted
    assert len(_whole(case)) == 3
    scores = [answer.score for answer in case.shown.answers]
    assert scores == sorted(scores)
    for answer in _whole(case):
        assert _digest(answer.opposing) == first[answer.sample] != _digest(answer.steps)
    same = project.gate(model=WORSE, snapshot_update=True)[WIN_RATE]
    assert (same.accepted, same.shown.answers) == (True, [])

    case = project.gate(model=WORSE)[WIN_RATE]
    assert case.verdict == "regressed"
    assert _whole(case)
    for answer in _whole(case):
        assert answer.opponent == "anchor's answer"
        assert _digest(answer.opposing) == first[answer.sample]
        assert answer.verdicts


def test_an_accepted_answer_that_was_lost_is_said_to_be(tmp_path: Path) -> None:
    """Old answers that the store no longer has are named, not guessed, as they are replaced."""
    project = ArenaProject.make(tmp_path / "lost", samples=1)
    shutil.rmtree(project.path / ".cepbench" / "store")
    case = project.gate(model=WORSE, snapshot_update=True, samples=1)[WIN_RATE]
    assert case.accepted
    assert _whole(case)
    for answer in _whole(case):
        assert answer.opposing == []
        assert answer.remark == "the accepted answer is not in the store"


JUDGE = "shapes:?flip=0.1"


@pytest.mark.slow
def test_every_report_shows_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agreement and date, as the command measured it: terminal, JSON, JUnit, HTML and Markdown."""
    carded = ArenaProject.make(tmp_path / "carded", judge=JUDGE)
    monkeypatch.chdir(carded.path)
    judges = ("--on=shapes-arena", "--samples=40")
    assert main(["agree", "judges", f"--judge={JUDGE}", *judges]) == 0
    result = carded.gate(model=WORSE, judge=JUDGE, report=str(carded.path / "r.json"))
    case = result[WIN_RATE]

    assert case.shown.judge.startswith("agreement 0.")
    for part in ("with the truth of shapes-arena", "measured 20"):
        assert part in case.shown.judge
    line = f"judge of small-arena: {case.shown.judge}"
    assert str(result).count(line) == 1
    assert f"judge: {case.shown.judge}" in str(result)  # why the case fails
    document = json.loads((carded.path / "r.json").read_text("utf-8"))
    named = {c["metric"]: c["shown"]["judge"] for c in document["cases"]}
    assert named.pop("win_rate") == case.shown.judge
    assert not any(named.values())
    assert ("cepbench_judge", case.shown.judge) in properties_of(case)
    for suffix in (".html", ".md"):
        assert "judge of small-arena" in (carded.path / f"r{suffix}").read_text("utf-8")


# -- curves --------------------------------------------------------------------------------------


def _excerpts(rows: np.ndarray) -> dict[str, ChainExcerpt]:
    """An excerpt for each row of similarities at the generations 2 and 4."""
    return {
        str(number): ChainExcerpt(
            Chain(Sample(str(number), ("a",), text="x")), dict(zip((2, 4), row, strict=True))
        )
        for number, row in enumerate(rows.tolist())
    }


@pytest.mark.parametrize("samples", [2, 3, 12, 301])
def test_a_curve_has_students_interval(samples: int) -> None:
    """Of independent samples, the ends are those of SciPy's t interval of each mean."""
    rows = np.random.default_rng(0).uniform(0, 1, (samples, 2))
    excerpts = _excerpts(rows)
    curve = known(similarity_curve(excerpts.get, {name: name for name in excerpts}))
    assert (curve.generations, curve.n) == ([2, 4], samples)
    low, high = stats.t.interval(0.95, samples - 1, rows.mean(axis=0), stats.sem(rows, axis=0))
    assert curve.mean == pytest.approx(rows.mean(axis=0), abs=1e-6)
    assert curve.low == pytest.approx(low, abs=1e-6)
    assert curve.high == pytest.approx(high, abs=1e-6)

    # Every sample twice is as much as every sample once, if both are one unit.
    double = _excerpts(np.repeat(rows, 2, axis=0))
    twice = known(similarity_curve(double.get, {name: str(int(name) // 2) for name in double}))
    assert twice.low == pytest.approx(curve.low, abs=1e-9)
    assert twice.high == pytest.approx(curve.high, abs=1e-9)
    # A curve over some of the samples would be another one's.
    assert similarity_curve(excerpts.get, {"0": "0", "1": "1", "gone": "2"}) is None
    assert similarity_curve(excerpts.get, {}) is None
