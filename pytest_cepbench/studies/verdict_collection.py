"""The verdicts of a judge on battles: asked in one order or both, each stored as it is given."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_in_order
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.battles import JudgedBattle, Pairing
from pytest_cepbench.studies.calibration import Announce

AskedOrder = Literal["both", "balanced", "arranged"]
"""both: each pair of answers in both orders. balanced: once, each order for half of the pairs.
arranged: once, in the order of the battle."""

CHUNK = 64
"""Battles that are asked about together; their images are in memory at once."""

_EVERY = 10.0  # seconds between lines of progress


Battle = TypeVar("Battle", JudgedBattle, Pairing)


@dataclass(frozen=True)
class AskedVerdicts:
    """What a judge said of battles.

    verdicts: each battle at most once in each order.
    repeats: the same, asked again, each time with another seed.
    failures: how often it gave no verdict, by kind.
    equal: battles of equal answers, which need no judge.
    """

    verdicts: tuple[JudgedBattle, ...]
    repeats: tuple[tuple[JudgedBattle, ...], ...]
    failures: Mapping[str, int]
    equal: int


def collect_verdicts(
    battles: Sequence[Battle],
    pair: Callable[[Battle], AnswerPair],
    judge: RoleRunner,
    order: AskedOrder,
    announce: Announce,
    *,
    seed: int = 0,
    repeats: int = 0,
    remark: Callable[[int], str] | None = None,
) -> AskedVerdicts:
    """Ask a judge about every battle; what the store has is not asked again.

    pair: gives the question and the answers of a battle, the first answer as the candidate.
    announce: is given a line of progress every ten seconds.
    seed: of the judge and of the balanced order; each repetition has the next one.
    repeats: how often the judge is asked again; of no use for one that does not use its seed.
    remark: what a line of progress says besides, of so many judged battles.
    Raises MeasurementError where it gave no verdict at all, and what models and store raise.
    """
    rounds = range(1 + repeats)
    given: list[list[JudgedBattle]] = [[] for _ in rounds]
    failures: Counter[str] = Counter()
    details: dict[str, str] = {}
    equal = 0
    progress = _Progress(len(battles), announce, remark)
    for start in range(0, len(battles), CHUNK):
        chunk = battles[start : start + CHUNK]
        pairs = [(battle, pair(battle)) for battle in chunk]
        different = [(battle, answers) for battle, answers in pairs if not equal_answers(answers)]
        equal += len(pairs) - len(different)
        shown = list(shown_in_order(different, order, seed))
        for k in rounds:
            winners = judge_in_order([answers for _, _, answers in shown], seed + k, judge)
            for (question, models, _), winner in zip(shown, winners, strict=True):
                if isinstance(winner, Failure):
                    failures[winner.kind] += 1
                    details.setdefault(winner.kind, winner.detail)
                else:
                    given[k].append(JudgedBattle(question, *models, winner))
        judge.store.image_cache.clear()
        progress.add(len(chunk))
    if not given[0]:
        kind, detail = next(iter(details.items()), ("", "every two answers are equal"))
        why = f"{kind}: {detail}" if kind else detail
        raise MeasurementError(f"the judge gave no verdict on {len(battles)} battles: {why}")
    first, *others = map(tuple, given)
    return AskedVerdicts(first, tuple(others), dict(failures), equal)


_Showing = tuple[str, tuple[str, str], AnswerPair]
"""A question, the models in the order in which the judge sees them, and their answers."""


def equal_answers(pair: AnswerPair) -> bool:
    """Whether both answers are there and are the same, so that no judge is needed."""
    return (
        pair.candidate is not None
        and pair.opponent is not None
        and pair.candidate.inputs == pair.opponent.inputs
    )


def shown_in_order(
    pairs: Iterable[tuple[JudgedBattle | Pairing, AnswerPair]], order: AskedOrder, seed: int
) -> Iterator[_Showing]:
    """What a judge is shown of battles: question, models and answers, each answer first in turn."""
    for battle, pair in pairs:
        models = (battle.first, battle.second)
        turned = AnswerPair(pair.sample, pair.question, pair.opponent, pair.candidate)
        showings = [
            (battle.question, models, pair),
            (battle.question, models[::-1], turned),
        ]
        if order == "arranged":
            showings = showings[:1]
        elif order == "balanced":
            # Of the pair alone: whichever order people saw, and for every repetition.
            name = f"{seed} {battle.question} {' '.join(sorted(models))}"
            ascending = models == tuple(sorted(models))
            showings = [showings[(int(digest_text(name)[:8], 16) + ascending) % 2]]
        yield from showings


class _Progress:
    """Lines of progress: how much is done, and how long the rest takes at this rate."""

    def __init__(self, total: int, announce: Announce, remark: Callable[[int], str] | None) -> None:
        self._total = total
        self._announce = announce
        self._remark = remark
        self._done = 0
        self._begun = self._told = time.monotonic()

    def add(self, battles: int) -> None:
        """Count battles that are judged."""
        self._done += battles
        now = time.monotonic()
        if now - self._told < _EVERY or self._done == self._total:
            return
        self._told = now
        left = (self._total - self._done) * (now - self._begun) / self._done
        more = f"; {self._remark(self._done)}" if self._remark else ""
        self._announce(f"{self._done:,} of {self._total:,} battles judged, {left:.0f} s left{more}")
