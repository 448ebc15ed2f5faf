"""Scores by criteria as metrics: their values, their gate, and what a judge does not give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.errors import MeasurementError, RoleError, SuiteError, UnscoredError
from pytest_cepbench.gate import Verdict
from pytest_cepbench.store import Store
from pytest_cepbench.suites import load_suite
from tests.suites.answers import DISLIKED, HEAD, WORSE, MeasuredSuite, prepare

SCORES = HEAD + (
    '[answer]\n[roles]\ninterleaver = "shapes:"\njudge = "shapes:"\n'
    '[metrics.overall_score]\nkind = "criteria"\ntolerance = 0.02\n'
    '[metrics.truth]\n[metrics.failures]\n[metrics.judge_failures]\ngate = "threshold"\n'
    "tolerance = 0.0\n"
    + "".join(f'[metrics.{c}]\nkind = "criteria"\ncriterion = "{c}"\n' for c in CRITERIA)
)
"""Twenty questions, scored in every criterion and overall."""

WITHOUT_IMAGES = "shapes:?no_image=0.1"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """A store of a test's own, in which what models are asked is counted."""
    with Store(tmp_path / "store") as opened:
        yield opened


def judged_by(name: str) -> str:
    """The suite with a judge of `tests.suites.answers`."""
    return SCORES.replace('judge = "shapes:"', f'judge = "python:tests.suites.answers:{name}"')


def _scores(suite: MeasuredSuite, metric: str) -> dict[str, float]:
    parts = suite.measure(f"overall-{metric}").scores
    return {name: score for part in parts.values() for name, score in part.items()}


def test_each_criterion_is_a_metric_from_0_to_1(tmp_path: Path, empty: Store) -> None:
    """A tenth of the judge's score, here the rounded truth; the overall is the mean of all seven.

    One reply of the judge has all of them.
    """
    more = "".join(f'[metrics.true_{c}]\nkind = "truth"\ncriterion = "{c}"\n' for c in CRITERIA)
    suite = prepare(tmp_path, empty, SCORES + more, WORSE)
    by_criterion = [_scores(suite, c) for c in CRITERIA]
    overall = _scores(suite, "overall_score")
    for name, score in overall.items():
        assert score == pytest.approx(np.mean([own[name] for own in by_criterion]), abs=1e-6)
    for criterion, own in zip(CRITERIA, by_criterion, strict=True):
        truth = _scores(suite, f"true_{criterion}")
        assert all(abs(own[name] - truth[name]) <= 0.05 + 1e-6 for name in own)
    assert suite.inputs("judge") == len(overall) == 20
    measurement = suite.measure("overall-overall_score")
    assert (measurement.label, measurement.higher_is_better) == ("overall score", True)
    assert measurement.identity["scores"] == "criteria-scores/1, seed 0"
    means = [np.mean(list(own.values())) * 10 for own in by_criterion]
    published = np.mean([round(float(mean), 2) for mean in means])
    assert any(f"the mean of the rounded means: {published:.2f} (" in n for n in measurement.notes)


@pytest.mark.slow
def test_scores_are_gated_as_paired_differences(tmp_path: Path, store: Store) -> None:
    """A worse model regresses; the accepted one holds, and its scores cost no call again."""
    good = "shapes:?miss=0.05"
    prepare(tmp_path, store, SCORES, good).accept()
    worse = prepare(tmp_path, store, SCORES, WORSE)
    judgement = worse.judge("overall-correctness")
    assert judgement.verdict is Verdict.REGRESSED
    assert 0.9 < (judgement.baseline_value or 0.0) < 1
    assert (judgement.difference or 0.0) < -0.1
    lost = _scores(worse, "correctness")
    assert min(lost.values()) < 1
    again = prepare(tmp_path, store, SCORES, good)
    assert again.judge("overall-correctness").verdict is Verdict.HELD
    assert (again.inputs("judge"), again.inputs("interleaver")) == (0, 0)


def test_a_missing_answer_scores_nothing(tmp_path: Path, empty: Store) -> None:
    """It is the model's failure and no gap: leaving hard questions out would raise the mean."""
    suite = prepare(tmp_path, empty, SCORES, "shapes:?stop=0.5")
    answers = suite.run.data.answers(suite.run.dataset.samples)
    missing = {name for name, own in answers.items() if own.answer is None}
    scores = _scores(suite, "overall_score")
    assert missing
    assert {name for name, score in scores.items() if score == 0.0} == missing
    assert suite.inputs("judge") == 20 - len(missing)
    assert suite.measure("overall-judge_failures").value == 0.0


def test_what_the_judge_does_not_score_is_an_error(tmp_path: Path, store: Store) -> None:
    """No 0, which would be the model's: so many are no measurement, each the judge's failure.

    A judge that falls silent over a candidate's answers must not hide what they are worth.
    """
    prepare(tmp_path, store, judged_by("FussyJudge")).accept(["overall-judge_failures"])
    suite = prepare(tmp_path, store, judged_by("FussyJudge"), WITHOUT_IMAGES)
    answers = suite.run.data.answers(suite.run.dataset.samples)
    steps = {name: own.answer.steps for name, own in answers.items() if own.answer is not None}
    mute = {name for name, own in steps.items() if any(not step.image for step in own)}
    letters = {name: sum(len(step.text) for step in own) for name, own in steps.items()}
    disliked = {name for name, count in letters.items() if count % DISLIKED == 0} - mute
    assert mute
    assert disliked
    for criterion, lacking in (("correctness", mute), ("quality", mute | disliked)):
        with pytest.raises(UnscoredError, match=rf"failed at {len(lacking)} of 20 .*no-score"):
            suite.measure(f"overall-{criterion}")
    failed = _scores(suite, "judge_failures")
    assert {name for name, share in failed.items() if share == 1.0} == mute
    assert {name for name, share in failed.items() if 0 < share < 1} == disliked
    assert all(failed[name] == pytest.approx(1 / 7, abs=1e-6) for name in disliked)
    assert suite.judge("overall-judge_failures").verdict is Verdict.REGRESSED


def test_a_judge_that_scores_nothing_is_an_error(tmp_path: Path, store: Store) -> None:
    """With its own words; there is no mean of nothing."""
    suite = prepare(tmp_path, store, judged_by("MuteJudge"))
    with pytest.raises(MeasurementError, match=r"all 20 answers failed at the judge .*not my bus"):
        suite.measure("overall-overall_score")
    assert suite.measure("overall-judge_failures").value == 1.0


def test_a_judge_without_the_ability_is_refused_before_anything_is_made(
    tmp_path: Path, store: Store
) -> None:
    """One line that names metric, judge and method; no answer is made, and no case passes."""
    suite = prepare(tmp_path, store, judged_by("BattleJudge"), "shapes:?miss=0.9")
    for metric in ("overall_score", "failures"):
        with pytest.raises(RoleError, match=r"\[metrics.overall_score\] .*BattleJudge.*score_answ"):
            suite.measure(f"overall-{metric}")
    assert suite.inputs("interleaver") == 0


def test_a_judge_that_sees_no_difference_holds_nothing(tmp_path: Path, store: Store) -> None:
    """Its scores are the same whatever the answers are; a first baseline has a warning."""
    said = "the judge cannot see a drop: all 20 answers have the score 7 by it"
    accepted = prepare(tmp_path, store, judged_by("EvenJudge"))
    assert accepted.judge("overall-quality").warnings == (said,)
    accepted.accept()
    judgement = prepare(tmp_path, store, judged_by("EvenJudge"), WORSE).judge("overall-quality")
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reasons == (f"{said}; a drop of 1 could hide, and 0.01 is tolerated",)


def test_the_reader_sees_the_judge_s_words(tmp_path: Path, store: Store) -> None:
    """On a criterion the justification or why there is none, on the overall what makes it up."""
    suite = prepare(tmp_path, store, judged_by("FussyJudge"), WITHOUT_IMAGES)
    unscored = next(n for n, share in _scores(suite, "judge_failures").items() if share == 1.0)
    scored = next(n for n, share in _scores(suite, "judge_failures").items() if not share)

    def remark(metric: str, sample: str) -> Any:
        excerpt = suite.run.show(suite.cases[f"overall-{metric}"], sample)
        assert excerpt is not None
        return excerpt.remark

    assert remark("quality", unscored) == "a step lacks its image"
    assert remark("overall_score", scored).startswith("correctness 10, coherency 10, ")


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ('[metrics.criteria]\ncriterion = "corectness"\n', "Did you mean 'correctness'"),
        ('[metrics.criteria]\ncriterion = "total"\n', "criterion"),
        ("[metrics.criteria]\nscale = 5\n", "scale"),
        ("[metrics.criterion]\n", "Did you mean 'criteria'"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, metrics: str, message: str) -> None:
    """That names the key and the nearest word."""
    path = tmp_path / "suite.toml"
    path.write_text(HEAD + "[answer]\n" + metrics, encoding="utf-8")
    with pytest.raises(SuiteError, match=message):
        load_suite(path)


def test_battles_and_scores_are_counted_together(tmp_path: Path, store: Store) -> None:
    """Each reply once: two verdicts and the scores of an answer are three."""
    text = judged_by("FussyJudge") + "[metrics.win_rate]\n"
    prepare(tmp_path, store, text).accept(["overall-win_rate"])
    suite = prepare(tmp_path, store, text, WITHOUT_IMAGES)
    assert suite.measure("overall-judge_failures").identity["metric"] == (
        "judge_failures/2 of verdicts and scores"
    )
    shares = {round(share, 4) for share in _scores(suite, "judge_failures").values()}
    assert shares <= {0.0, round(1 / 3, 4), round(1 / 7, 4), round(1 / 21, 4)}
    assert round(1 / 3, 4) in shares
