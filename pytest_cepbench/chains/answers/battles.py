"""Battles of two answers to each question, judged in one order or both.

A verdict is a step like any other, so a battle that was judged before costs no call. Equal answers
are a tie without a call, and an answer that is missing loses without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import EVEN, CriteriaScores, Winner
from pytest_cepbench.chains.answers.answer_plan import BattleRules, PieceRefs
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step, key_of
from pytest_cepbench.metrics.battles import FIRST_SCORES
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle
from pytest_cepbench.models.text_model.judge_prompts import SCORE_PROMPT
from pytest_cepbench.store import Result


@dataclass(frozen=True)
class AnswerPair:
    """A question with two answers.

    sample: id of the question's sample.
    question: its pieces.
    candidate, opponent: the answers; None for one that is missing.
    """

    sample: str
    question: PieceRefs
    candidate: PieceRefs | None
    opponent: PieceRefs | None

    @property
    def needs_judge(self) -> bool:
        """Whether both answers are there, and differ."""
        first, second = self.candidate, self.opponent
        return first is not None and second is not None and first.inputs != second.inputs


@dataclass(frozen=True)
class OrderedVerdict:
    """A verdict on a pair in one order.

    candidate_first: which of the two answers was A.
    winner: the verdict, or why there is none.
    """

    candidate_first: bool
    winner: Winner | Failure

    @property
    def score(self) -> float:
        """The candidate's: 1 where its answer is better, 0 where it is worse, one half for a tie.

        Without a verdict there is none.
        """
        assert not isinstance(self.winner, Failure)
        first = FIRST_SCORES[self.winner]
        return first if self.candidate_first else 1.0 - first


@dataclass
class PairOutcome:
    """What became of a pair.

    score: the candidate's, in [0, 1]: the mean over the orders that were asked. One half where the
    battle is missing, which stands for nothing.
    verdicts: in the orders that were asked; none where the pair needed no judge.
    """

    score: float = EVEN
    verdicts: list[OrderedVerdict] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        """Of verdicts that the judge did not give."""
        winners = (verdict.winner for verdict in self.verdicts)
        return [winner for winner in winners if isinstance(winner, Failure)]

    @property
    def missing(self) -> bool:
        """Whether a verdict that the rules ask for was not given: the other order alone would be
        biased by what the judge prefers for its place.
        """
        return bool(self.failures)


def judge_pairs(
    pairs: Sequence[AnswerPair], rules: BattleRules, judge: RoleRunner
) -> list[PairOutcome]:
    """The outcome of each pair.

    A verdict that the judge fails to give is asked for once more with another seed, and its battle
    is missing then. Raises DamagedInputsError with the places of pairs whose images are damaged,
    ModelError, CheckpointError, StoreError.
    """
    outcomes: list[PairOutcome] = []
    for pair in pairs:
        missing = pair.candidate is None, pair.opponent is None
        outcomes.append(PairOutcome({(True, False): 0.0, (False, True): 1.0}.get(missing, EVEN)))
    open_pairs = [number for number, pair in enumerate(pairs) if pair.needs_judge]
    if rules.order == "both":
        asked = [(number, first) for number in open_pairs for first in (True, False)]
    else:  # which answer is first is alike for every candidate
        digests = [digest_text(f"{rules.seed} {pairs[number].sample}") for number in open_pairs]
        asked = [(n, int(d[:8], 16) % 2 == 0) for n, d in zip(open_pairs, digests, strict=True)]
    shown = [(pairs[number], first) for number, first in asked]
    for (number, first), winner in zip(asked, _ask(shown, rules, judge), strict=True):
        outcomes[number].verdicts.append(OrderedVerdict(first, winner))
    for number in open_pairs:
        if not outcomes[number].missing:
            outcomes[number].score = mean_score(outcomes[number].verdicts)
    return outcomes


def judge_in_order(
    pairs: Sequence[AnswerPair], seed: int, judge: RoleRunner
) -> list[Winner | Failure]:
    """The verdict on each pair, the candidate's answer being shown first; a failure for none.

    The keys are those of `judge_pairs`, so a verdict that a suite has asked for costs no call.
    pairs: both answers there, and different. seed: of the judge.
    Raises as `judge_pairs`.
    """
    return _ask([(pair, True) for pair in pairs], BattleRules(seed=seed), judge)


def mean_score(verdicts: Sequence[OrderedVerdict]) -> float:
    """The candidate's mean score over the orders asked, at least one, each with a verdict."""
    return sum(verdict.score for verdict in verdicts) / len(verdicts)


def battle_step(
    pair: AnswerPair, rules: BattleRules, judge: RoleRunner, *, candidate_first: bool, again: bool
) -> Step:
    """The step that judges a pair. again: whether it was asked for before and failed."""
    assert pair.candidate is not None
    assert pair.opponent is not None
    first, second = pair.candidate, pair.opponent
    if not candidate_first:
        first, second = second, first
    # Of the answers as they are shown, whichever is the candidate: it is the same verdict.
    ascending = first.digest < second.digest
    seed = derive_seed(rules.seed, pair.sample, 2 * again + ascending)
    parts = {"question": pair.question, "first": first, "second": second}
    return _step(judge, "", seed, parts, Battle)


def _step(
    judge: RoleRunner,
    prompt: str,
    seed: int,
    parts: Mapping[str, PieceRefs],
    make: Callable[..., object],
) -> Step:
    """A step of a judge. parts: by name, in the order in which `make` takes their pieces."""
    inputs = [[part, kind, digest] for part, refs in parts.items() for kind, digest in refs.inputs]

    def load() -> object:
        pieces = [refs.load(judge.store) for refs in parts.values()]
        return None if None in pieces else make(*pieces)

    return Step(key_of(judge.bound, prompt, seed, inputs), seed, load)


def verdict_keys(pair: AnswerPair, rules: BattleRules, judge: RoleRunner) -> list[str]:
    """Keys of all verdicts that a pair can have: either order, asked once or again.

    None for a pair whose score needs no judge.
    """
    if not pair.needs_judge:
        return []
    return [
        battle_step(pair, rules, judge, candidate_first=first, again=again).key
        for first in (True, False)
        for again in (False, True)
    ]


def _ask(
    asked: Sequence[tuple[AnswerPair, bool]], rules: BattleRules, judge: RoleRunner
) -> list[Winner | Failure]:
    """The verdict on each pair in an order: whether the candidate's answer is shown first."""

    def ask(numbers: Sequence[int], *, again: bool) -> list[Any]:
        steps = [
            battle_step(pair, rules, judge, candidate_first=first, again=again)
            for pair, first in (asked[number] for number in numbers)
        ]
        return judge.ask("judge", steps) if steps else []

    winners = ask(range(len(asked)), again=False)
    failed = [number for number, own in enumerate(winners) if isinstance(own, Failure)]
    if judge.bound.seeded:
        for number, winner in zip(failed, ask(failed, again=True), strict=True):
            winners[number] = winner
    return winners


def score_answers(
    pairs: Sequence[AnswerPair], run_seed: int, judge: RoleRunner
) -> list[CriteriaScores]:
    """The scores of the candidate of each pair, which has one; the opponents are not looked at.

    Where a criterion has none, the judge is asked once more with another seed, and what it gives
    then fills the gaps; the scores that it gave at first stay.

    run_seed: of the judge.
    Raises DamagedInputsError with the places of answers whose images are damaged, ModelError,
    CheckpointError, StoreError.
    """
    steps = [score_step(pair, run_seed, judge, again=False) for pair in pairs]
    scores = [_stored_scores(result) for result in judge.ask("score_answers", steps)]
    lacking = [number for number, own in enumerate(scores) if own.failures]
    if lacking and judge.bound.seeded:
        steps = [score_step(pairs[number], run_seed, judge, again=True) for number in lacking]
        for number, more in zip(lacking, judge.ask("score_answers", steps), strict=True):
            scores[number] = scores[number].filled_from(_stored_scores(more))
    return scores


def score_step(pair: AnswerPair, run_seed: int, judge: RoleRunner, *, again: bool) -> Step:
    """The step that scores a candidate. again: whether a score was missing the first time."""
    assert pair.candidate is not None
    seed = derive_seed(run_seed, pair.sample, int(again))
    parts = {"question": pair.question, "answer": pair.candidate}
    return _step(judge, SCORE_PROMPT, seed, parts, AnsweredQuestion)


def _stored_scores(result: Result) -> CriteriaScores:
    """The scores of a stored result; all of them failures where it is one, or no scores."""
    if isinstance(result, Failure):
        return CriteriaScores.failed(result)
    try:
        return CriteriaScores.from_json(str(result))
    except ValueError as error:  # a shared store may hold anything under a key
        return CriteriaScores.failed(Failure("no-score", str(error)))
