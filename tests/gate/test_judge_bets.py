"""Win rates judged by bets: looks in the order of digests, strict regressions, and anchors."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.gate import FreshMeasurement, Judgement, Policy, Verdict, judge
from pytest_cepbench.gate.policy import BETTING, LooksName
from pytest_cepbench.gate.statistics import Rounds, betting_bounds
from tests.gate.build import Scores, accepted, measured, replace

TASKS = {"long": 200, "short": 100}


def samples_of(task: str) -> list[str]:
    """All samples of a task, in the order in which looks come to them."""
    return sorted((f"{task}/{i:03d}" for i in range(TASKS[task])), key=digest_text)


def battled(share_won: float, depth: int = 1000, *, pooled: bool = True) -> FreshMeasurement:
    """A candidate that battled over the first samples of each task; a third of battles are ties."""
    generator = np.random.default_rng(round(1000 * share_won))
    scores: dict[str, dict[str, float]] = {}
    chances = [(1 - share_won) * 2 / 3, 1 / 3, share_won * 2 / 3]
    for task, size in TASKS.items():
        values = generator.choice([0.0, 0.5, 1.0], p=chances, size=size).tolist()
        names = samples_of(task)[:depth]
        part = dict(zip(names, values, strict=False))
        scores.setdefault("overall" if pooled else task, {}).update(part)
    return _measured(scores, "candidate")


def _measured(scores: Scores, model: str) -> FreshMeasurement:
    return measured(
        scores,
        model={"spec": model, "identity": model},
        answers={name: f"{model} {name}" for part in scores.values() for name in part},
        strata={task: tuple(sorted(samples_of(task))) for task in TASKS},
    )


def judged(
    candidate: FreshMeasurement, looks: LooksName = "betting", *, partial: bool = False
) -> Judgement:
    """Against accepted answers to all questions."""
    names = {task: samples_of(task) for task in TASKS}
    if candidate.scores.keys() != names.keys():
        names = {"overall": [name for task in TASKS for name in samples_of(task)]}
    even = {part: dict.fromkeys(members, 0.5) for part, members in names.items()}
    baseline = accepted(_measured(even, "accepted"))
    return judge(candidate, baseline, Policy(tolerance=0.05, looks=looks), partial=partial)


@pytest.mark.parametrize("pooled", [True, False])
def test_bets_decide(pooled: bool) -> None:
    """Many more battles won are held or better, and many more lost regress, at the first look."""
    better = judged(battled(0.7, 60, pooled=pooled), partial=True)
    worse = judged(battled(0.2, 60, pooled=pooled), partial=True)

    assert better.verdict in (Verdict.HELD, Verdict.IMPROVED)
    assert worse.verdict is Verdict.REGRESSED
    for judgement in (better, worse):
        assert judgement.method == BETTING
        assert any("overstated" in statement for statement in judgement.statements)
    whole = judged(battled(0.2, pooled=pooled))
    assert not any("overstated" in statement for statement in whole.statements)


def test_what_was_decided_stays_decided() -> None:
    """Bounds only narrow from look to look, whatever the depth, and are those of the rounds."""
    ends = []
    for depth in (25, 50, 100, 200):
        candidate = battled(0.4, depth)
        judgement = judged(candidate, partial=depth < 200)
        assert judgement.difference is not None
        by_task = {
            task: {n: candidate.scores["overall"][n] for n in samples_of(task)[:depth]}
            for task in TASKS
        }
        rounds = Rounds.deal(candidate.strata, by_task, pooled=True)
        assert rounds is not None
        low, high = betting_bounds(rounds, 0.05)
        least = min(low - 0.5, judgement.difference) if low > 0 else None
        most = max(high - 0.5, judgement.difference) if high < 1 else None
        assert judgement.low == pytest.approx(least)
        assert judgement.high == pytest.approx(most)
        ends.append((low, high))
    assert ends == sorted(ends, key=lambda bounds: (bounds[0], -bounds[1]))


def test_bounds_follow_the_mean_of_all_samples() -> None:
    """A case that counts every sample once weighs its tasks by size, another one alike."""
    scores = {task: dict.fromkeys(samples_of(task), float(task == "long")) for task in TASKS}
    pooled = {"overall": {name: x for part in scores.values() for name, x in part.items()}}

    by_size = judged(_measured(pooled, "candidate"))
    alike = judged(_measured(scores, "candidate"))

    assert by_size.low is not None
    assert alike.low is not None
    assert by_size.difference == pytest.approx(2 / 3 - 0.5, abs=1e-6)
    assert by_size.low > 0.05
    assert alike.difference == 0
    assert alike.low < 0 < (alike.high or 0.0)


def test_the_strict_rule_asks_for_proof() -> None:
    """A drop that may be no larger than tolerated regresses by the plain rule only."""
    plain, strict = (judged(battled(0.4), looks) for looks in ("betting", "betting-strict"))

    assert plain.verdict is Verdict.REGRESSED
    assert strict.verdict is Verdict.INCONCLUSIVE
    assert (plain.low, plain.high) == (strict.low, strict.high)
    assert judged(battled(0.1), "betting-strict").verdict is Verdict.REGRESSED


def test_other_metrics_are_judged_by_bounds() -> None:
    """Scores that are no battles have no bets made on them."""
    plain = measured({"color": {f"{i}": i / 100 for i in range(100)}})
    other = replace(plain, model={"spec": "x", "identity": "x"})
    by_bets = judge(other, accepted(plain), Policy(looks="betting"))
    assert by_bets == judge(other, accepted(plain), Policy())
    assert by_bets.method != BETTING


def test_before_a_round_is_complete_nothing_is_said() -> None:
    """A look at one of the tasks alone leaves the win rate wherever it may be."""
    candidate = battled(0.1)
    first = {name: candidate.scores["overall"][name] for name in samples_of("long")}
    judgement = judged(_measured({"overall": first}, "candidate"), partial=True)
    assert (judgement.verdict, judgement.low, judgement.high) == (
        Verdict.INCONCLUSIVE,
        None,
        None,
    )
    assert any("no bet was made" in statement for statement in judgement.statements)
