"""Battles of two answers to each question, judged in one order or both.

A verdict is a step like any other, so a battle that was judged before costs no call. Equal answers
are a tie without a call, and an answer that is missing loses without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import EVEN, Winner
from pytest_cepbench.chains.answers.answer_plan import BattleRules, TieName
from pytest_cepbench.chains.answers.piece_refs import PieceRefs
from pytest_cepbench.chains.chain_plan import derive_seed
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step, key_of
from pytest_cepbench.models.protocols import Battle

_CANDIDATE_FIRST: dict[Winner, float] = {"A": 1.0, "Tie(A)": 0.5, "Tie(B)": 0.5, "B": 0.0}


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


@dataclass(frozen=True)
class OrderedVerdict:
    """A verdict on a pair in one order.

    candidate_first: which of the two answers was A.
    winner: the verdict, or why there is none.
    """

    candidate_first: bool
    winner: Winner | Failure

    def score(self, tie: TieName) -> float:
        """The candidate's score: 1 where its answer is better, one half without a verdict."""
        if isinstance(self.winner, Failure):
            return EVEN
        if tie == "lean":
            first_wins = 1.0 if self.winner in ("A", "Tie(A)") else 0.0
        else:
            first_wins = _CANDIDATE_FIRST[self.winner]
        return first_wins if self.candidate_first else 1.0 - first_wins


@dataclass
class PairOutcome:
    """What became of a pair.

    score: the candidate's, in [0, 1]: the mean over the orders that were asked.
    verdicts: in the orders that were asked; none where the pair needed no judge.
    """

    score: float = EVEN
    verdicts: list[OrderedVerdict] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        """Of verdicts that the judge did not give."""
        winners = (verdict.winner for verdict in self.verdicts)
        return [winner for winner in winners if isinstance(winner, Failure)]


def judge_pairs(
    pairs: Sequence[AnswerPair], rules: BattleRules, judge: RoleRunner
) -> list[PairOutcome]:
    """The outcome of each pair.

    A verdict that the judge fails to give is asked for once more with another seed, and is then a
    score of one half. Raises DamagedInputsError with the places of pairs whose images are damaged,
    ModelError, CheckpointError, StoreError.
    """
    outcomes = [PairOutcome(_without_judge(pair)) for pair in pairs]
    open_pairs = [
        number
        for number, pair in enumerate(pairs)
        if pair.candidate and pair.opponent and pair.candidate.inputs != pair.opponent.inputs
    ]
    asked = [(number, _candidate_first(pairs[number], rules)) for number in open_pairs]
    if rules.order == "both":
        asked = [(number, first) for number in open_pairs for first in (True, False)]
    _ask(pairs, asked, outcomes, rules, judge)
    if rules.order == "adaptive":
        doubtful = [
            (number, not outcomes[number].verdicts[0].candidate_first)
            for number in open_pairs
            if outcomes[number].verdicts[0].winner not in ("A", "B")
        ]
        _ask(pairs, doubtful, outcomes, rules, judge)
    for number in open_pairs:
        scores = [verdict.score(rules.tie) for verdict in outcomes[number].verdicts]
        outcomes[number].score = sum(scores) / len(scores)
    return outcomes


def judge_in_order(
    pairs: Sequence[AnswerPair], seed: int, judge: RoleRunner
) -> list[Winner | Failure]:
    """The verdict on each pair, the candidate's answer being shown first; a failure for none.

    The keys are those of `judge_pairs`, so a verdict that a suite has asked for costs no call.
    pairs: both answers there, and different. seed: of the judge.
    Raises as `judge_pairs`.
    """
    outcomes = [PairOutcome() for _ in pairs]
    asked = [(number, True) for number in range(len(pairs))]
    _ask(pairs, asked, outcomes, BattleRules(seed=seed), judge)
    return [outcome.verdicts[0].winner for outcome in outcomes]


def battle_key(
    pair: AnswerPair, rules: BattleRules, judge: RoleRunner, *, candidate_first: bool, again: bool
) -> tuple[str, int]:
    """Key and seed of a verdict. again: whether it was asked for before and failed."""
    assert pair.candidate is not None
    assert pair.opponent is not None
    first, second = pair.candidate, pair.opponent
    if not candidate_first:
        first, second = second, first
    # Of the answers as they are shown, whichever is the candidate: it is the same verdict.
    ascending = first.digest < second.digest
    seed = derive_seed(rules.seed, pair.sample, 2 * again + ascending)
    parts = (("question", pair.question), ("first", first), ("second", second))
    inputs = [[part, kind, digest] for part, refs in parts for kind, digest in refs.inputs]
    return key_of(judge.bound, "", seed, inputs), seed


def _without_judge(pair: AnswerPair) -> float:
    if pair.candidate is None and pair.opponent is not None:
        return 0.0
    if pair.opponent is None and pair.candidate is not None:
        return 1.0
    return EVEN


def _candidate_first(pair: AnswerPair, rules: BattleRules) -> bool:
    """Which answer is first where one order is asked: alike for every candidate."""
    return int(digest_text(f"{rules.seed} {pair.sample}")[:8], 16) % 2 == 0


def _ask(
    pairs: Sequence[AnswerPair],
    asked: Sequence[tuple[int, bool]],
    outcomes: Sequence[PairOutcome],
    rules: BattleRules,
    judge: RoleRunner,
) -> None:
    """Add the verdicts on pairs, each in the order that is asked for."""
    step = partial(_step, rules=rules, judge=judge)
    steps = [step(pairs[number], candidate_first=first, again=False) for number, first in asked]
    results = judge.judge_steps(steps) if steps else []
    failed = [k for k, result in enumerate(results) if isinstance(result, Failure)]
    if failed and judge.bound.seeded:
        steps = [step(pairs[asked[k][0]], candidate_first=asked[k][1], again=True) for k in failed]
        for k, result in zip(failed, judge.judge_steps(steps), strict=True):
            results[k] = result
    for (number, first), result in zip(asked, results, strict=True):
        outcomes[number].verdicts.append(OrderedVerdict(first, result))  # type: ignore[arg-type]


def _step(
    pair: AnswerPair, *, candidate_first: bool, again: bool, rules: BattleRules, judge: RoleRunner
) -> Step:
    key, seed = battle_key(pair, rules, judge, candidate_first=candidate_first, again=again)

    def load() -> Battle | None:
        assert pair.candidate is not None
        assert pair.opponent is not None
        question = pair.question.load(judge.store)
        candidate = pair.candidate.load(judge.store)
        opponent = pair.opponent.load(judge.store)
        if question is None or candidate is None or opponent is None:
            return None
        if candidate_first:
            return Battle(question, candidate, opponent)
        return Battle(question, opponent, candidate)

    return Step(key, seed, load)
