"""The gate with people's labels: whose win rate decides, at which error, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.gate import FreshMeasurement, Judgement, Policy, Verdict, judge
from pytest_cepbench.gate.compare import OVERTURNED
from pytest_cepbench.gate.labels.usable import PeopleScores
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.gate.policy import SeriesShares
from pytest_cepbench.gate.statistics import GAFFKE, HALL
from pytest_cepbench.gate.statistics.prediction_powered import PEOPLE_ONLY, PREDICTION_POWERED
from tests.gate.build import accepted, measured, replace

NAMES = {task: [f"{task}/{i:03d}" for i in range(300)] for task in ("long", "short")}

POLICY = Policy(tolerance=0.1)


def battled(judge_says: float, people_say: float, labels: int = 100) -> FreshMeasurement:
    """A candidate that wins so often, by the judge on all battles and by people on some."""
    generator = np.random.default_rng([round(100 * judge_says), round(100 * people_say), labels])
    scores = {
        task: dict(zip(names, (generator.random(300) < judge_says).astype(float), strict=True))
        for task, names in NAMES.items()
    }
    chosen = [name for names in NAMES.values() for name in names[: labels // 2]]
    own = (generator.random(len(chosen)) < people_say).astype(float).tolist()
    return _measured(scores, PeopleScores(dict(zip(chosen, own, strict=True))))


def _measured(scores: dict[str, dict[str, float]], labels: PeopleScores | None) -> FreshMeasurement:
    model = "accepted" if labels is None else "candidate"
    return measured(
        scores,
        model={"spec": model, "identity": model},
        answers={name: f"{model} {name}" for part in scores.values() for name in part},
        strata={task: tuple(names) for task, names in NAMES.items()},
        labels=labels,
    )


def judged(
    candidate: FreshMeasurement, policy: Policy = POLICY, *, anchor: bool = False
) -> Judgement:
    """Against accepted answers to all questions."""
    even = _measured({t: dict.fromkeys(n, 0.5) for t, n in NAMES.items()}, None)
    baseline = accepted(even)
    other = accepted(replace(even, answers={n: f"first {n}" for n in even.answers}))
    return judge(candidate, baseline, policy, anchor=other if anchor else None)


def test_people_overrule_a_judge_that_is_too_kind() -> None:
    """The judge alone says held; with labels the regression shows, and the report says by what."""
    candidate = battled(judge_says=0.5, people_say=0.25)
    alone, labelled = judged(replace(candidate, labels=None)), judged(candidate)
    assert alone.verdict is Verdict.HELD
    assert (labelled.verdict, labelled.method) == (Verdict.REGRESSED, PREDICTION_POWERED)
    assert labelled.units == 100
    assert labelled.difference == pytest.approx(-0.25, abs=0.12)
    assert not labelled.warnings
    statement = labelled.statements[0]
    assert statement.startswith("people's labels decide: win rate 0.")
    assert (
        " by the judge alone; people labelled 100 of 600 battles; the judge has weight" in statement
    )
    assert "whatever the judge gets wrong" in statement


def test_people_overrule_a_judge_that_is_too_strict() -> None:
    """It passes where people find it as good, with a warning that the judge alone would fail it."""
    candidate = battled(judge_says=0.3, people_say=0.5, labels=400)
    assert judged(replace(candidate, labels=None)).verdict is Verdict.REGRESSED
    judgement = judged(candidate)
    assert judgement.verdict is Verdict.HELD
    assert judgement.warnings == (OVERTURNED.format(verdict="held"),)
    assert not judged(battled(judge_says=0.5, people_say=0.5, labels=400)).warnings


def test_labels_that_nearly_all_tie_show_nothing() -> None:
    """Of people as of a judge; what a judge cannot see does not matter where people decide."""
    candidate = battled(judge_says=0.5, people_say=0.5, labels=400)
    blind = replace(candidate, blind=Blindness("the judge cannot see a drop: why", 0.5))
    assert judged(blind).verdict is Verdict.HELD
    assert judged(replace(blind, labels=None)).verdict is Verdict.INCONCLUSIVE
    assert blind.labels is not None
    for ties, verdict in ((359, Verdict.HELD), (360, Verdict.INCONCLUSIVE)):
        judgement = judged(replace(blind, labels=replace(blind.labels, ties=ties)))
        assert judgement.verdict is verdict
    assert "people's labels cannot see a drop: 360 of 400 are ties" in judgement.reasons[0]


def test_undecided_labels_say_how_many_would_do() -> None:
    """In labels, not in samples: more of the judge's verdicts would not help."""
    judgement = judged(battled(judge_says=0.5, people_say=0.45, labels=60))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.needed is None
    assert any(
        line.startswith("with 60 labelled battles and a tolerance of 0.1 a checkpoint as good")
        for line in judgement.statements
    )
    assert any("would do" in line for line in judgement.statements)


@pytest.mark.parametrize("label", [0.0, 0.5])
def test_labels_that_are_all_alike_are_judged(label: float) -> None:
    """They show no spread: Gaffke's bounds decide, and no drop is said to be visible."""
    candidate = battled(judge_says=0.5, people_say=0.5)
    assert candidate.labels is not None
    alike = replace(candidate.labels, scores=dict.fromkeys(candidate.labels.scores, label))
    judgement = judged(replace(candidate, labels=alike))
    assert judgement.verdict is (Verdict.HELD if label else Verdict.REGRESSED)
    assert (judgement.method, judgement.visible) == (f"{PEOPLE_ONLY}, {GAFFKE}", None)


def test_the_anchor_goes_by_the_judge() -> None:
    """Labels are of the battles against the last accepted answers, not of those before."""
    candidate = battled(judge_says=0.5, people_say=0.5, labels=400)
    both = judged(replace(candidate, anchor_scores=candidate.scores), anchor=True)
    assert both.method == PREDICTION_POWERED
    assert both.since_anchor is not None
    assert both.since_anchor.method == HALL


def test_a_threshold_has_no_use_for_labels() -> None:
    """Without bounds there is nothing that labels could make valid: the judge's mean decides."""
    candidate = battled(judge_says=0.5, people_say=0.1)
    judgement = judged(candidate, Policy(gate="threshold", tolerance=0.1))
    assert (judgement.verdict, judgement.method) == (Verdict.HELD, "")


def test_a_series_has_its_own_upper_bound() -> None:
    """Each bound is made at its own error, as without labels."""
    candidate = battled(judge_says=0.5, people_say=0.4)
    once = judged(candidate)
    series = judged(candidate, replace(POLICY, series=SeriesShares(0.02, 0.01)))
    assert series.low == once.low
    assert series.high is not None
    assert once.high is not None
    assert series.high > once.high


def test_labels_of_a_part_that_is_left_out_are_not_used() -> None:
    """With samples paired in common, the drawn ones are no random part of what is left."""
    candidate = battled(judge_says=0.5, people_say=0.1)
    short = {**candidate.scores, "long": dict(list(candidate.scores["long"].items())[5:])}
    answers = {s: f"new {s}" for part in short.values() for s in part}
    fewer = replace(candidate, scores=short, answers=answers)
    even = accepted(_measured({t: dict.fromkeys(n, 0.5) for t, n in NAMES.items()}, None))
    judgement = judge(fewer, even, POLICY, pairing="common")
    assert judgement.verdict is Verdict.HELD
    assert any("labels are not used" in line for line in judgement.statements)
    assert candidate.labels is not None
    needed = replace(fewer, labels=replace(candidate.labels, needed=True))
    refused = judge(needed, even, POLICY, pairing="common")
    assert refused.verdict is Verdict.INCOMPARABLE
    assert "this suite needs people's labels" in refused.reasons[0]
