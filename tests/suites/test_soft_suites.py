"""Win rates by the probabilities that a judge gives its verdicts, from the suite's file on."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path

import pytest

from pytest_cepbench.artifacts.outcome import PROBABILITIES, VerdictProbabilities
from pytest_cepbench.errors import MeasurementError, SpecError
from pytest_cepbench.gate import Verdict
from pytest_cepbench.models.protocols import Battle, Reply
from pytest_cepbench.models.rule_based.arena_models import JudgeKnobs, ShapesJudge
from pytest_cepbench.store import Store
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.suites.answers import ANSWERS, WORSE, MeasuredSuite, prepare

_MODULE = "python:tests.suites.test_soft_suites"


class SureJudge(ShapesJudge):
    """Judges as the embedded judge does, and gives its verdicts probabilities.

    confidence: logits by which it prefers the better answer; as many for the first one of two.
    """

    fingerprint = "sure/1"

    def __init__(self, confidence: str = "2", first: str = "0") -> None:
        super().__init__(JudgeKnobs())
        object.__setattr__(self, "logits", (float(confidence), float(first)))

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:  # type: ignore[override]
        """A verdict with its probabilities."""
        return [self._reply(str(verdict)) for verdict in super().judge(battles, seeds)]

    def _reply(self, verdict: str) -> Reply:
        confidence, first = self.logits  # type: ignore[attr-defined]
        lead = {"A": 1.0, "Tie(A)": 0.1, "Tie(B)": -0.1, "B": -1.0}[verdict]
        wins = 1 / (1 + exp(-(confidence * lead + first)))
        values = (0.9 * wins, 0.1 * wins, 0.1 * (1 - wins), 0.9 * (1 - wins))
        probabilities = VerdictProbabilities(values)
        return Reply(probabilities.winner, provenance={PROBABILITIES: probabilities.to_text()})


def _text(parameters: str = "", score: str = "soft") -> str:
    judge = f'judge = "{_MODULE}:SureJudge{parameters}"'
    return ANSWERS.replace('judge = "shapes:"', judge) + f'[arena]\nscore = "{score}"\n'


def _gated(tmp_path: Path, store: Store, text: str) -> MeasuredSuite:
    """A worse model, to be gated against the accepted one."""
    prepare(tmp_path, store, text).accept()
    return prepare(tmp_path, store, text, model=WORSE)


def _remarks(measurement: CaseMeasurement) -> str:
    return "\n".join((*measurement.notes, *measurement.warnings))


@pytest.mark.slow
def test_a_worse_model_loses_softly(tmp_path: Path, store: Store) -> None:
    """The same verdicts, scored by how sure the judge was of each; the report says how sure."""
    hard = _gated(tmp_path / "hard", store, _text(score="verdict"))
    soft = _gated(tmp_path / "soft", store, _text())
    assert soft.judge().verdict is Verdict.REGRESSED
    assert hard.measure().value < soft.measure().value < 0.4
    assert "soft scores show 0.69 of" in _remarks(soft.measure())
    assert "soft scores" not in _remarks(hard.measure())
    scores = {score for part in soft.measure().scores.values() for score in part.values()}
    assert not scores <= {0, 0.25, 0.5, 0.75, 1}


def test_a_shy_judge_is_a_warning(tmp_path: Path, store: Store) -> None:
    """Its scores hardly leave one half, so the tolerance is much wider than it looks."""
    shy = _gated(tmp_path, store, _text("?confidence=0.2")).measure()
    assert any("soft scores show 0.09 of" in warning for warning in shy.warnings)
    assert any("no drop beyond 0.045 can show" in warning for warning in shy.warnings)
    judgement = _gated(tmp_path, store, _text("?confidence=0.2")).judge()
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "its soft scores show none beyond 0.04" in judgement.reasons[0]


def test_soft_scores_that_are_all_near_one_half_hold_nothing(tmp_path: Path, store: Store) -> None:
    """However few they are: here too few to say how much of a difference they show."""
    text = _text("?confidence=0.02")
    prepare(tmp_path, store, text).accept()
    judgement = prepare(tmp_path, store, text, model="shapes:?miss=0.08").judge()
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "different answers are ties to it" in judgement.reasons[0]


def test_a_judge_that_is_never_sure_is_an_error(tmp_path: Path, store: Store) -> None:
    """A model that lost every battle would pass otherwise."""
    with pytest.raises(MeasurementError, match=r"show 0.01 of .*hardly ever sure"):
        _gated(tmp_path, store, _text("?confidence=0.02")).measure()


def test_the_kind_of_score_is_part_of_what_is_compared(tmp_path: Path, store: Store) -> None:
    """A baseline of verdicts says nothing of soft scores."""
    prepare(tmp_path, store, _text(score="verdict")).accept()
    changed = prepare(tmp_path, store, _text(), model=WORSE).judge()
    assert changed.verdict is Verdict.INCOMPARABLE
    assert any("battles" in reason and "soft scores" in reason for reason in changed.reasons)


def test_a_judge_without_probabilities_is_refused_before_anything_is_answered(
    tmp_path: Path, store: Store
) -> None:
    """The embedded judge has none; no question was answered for nothing."""
    suite = prepare(tmp_path, store, ANSWERS + '[arena]\nscore = "soft"\n')
    with pytest.raises(SpecError, match=r"'shapes:' gives verdicts without probabilities"):
        suite.measure()
    assert suite.inputs("interleaver") == 0


@pytest.mark.slow
def test_soft_scores_see_through_a_strong_order_effect(tmp_path: Path, store: Store) -> None:
    """A judge whose verdicts are all for the first answer is an error, unless its scores differ."""
    blinded = "?confidence=1&first=3"
    with pytest.raises(MeasurementError, match="looks at the order of the answers"):
        _gated(tmp_path / "hard", store, _text(blinded, score="verdict")).measure()
    soft = _gated(tmp_path / "soft", store, _text(blinded))
    assert soft.measure().value < 0.49
    assert any("strong order effect" in warning for warning in soft.measure().warnings)
    with pytest.raises(MeasurementError, match="looks at the order of the answers"):
        _gated(tmp_path / "none", store, _text("?confidence=0.01&first=3")).measure()
