"""The verdicts of a judge on a panel: asked in one order or both, each stored as it is given."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_in_order
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.studies.panels import BattlePanel

AskedOrder = Literal["both", "balanced"]
"""both: each pair of answers in both orders. balanced: once, each order for half of the pairs."""

CHUNK = 64
"""Battles that are asked about together; their images are in memory at once."""

_EVERY = 10.0  # seconds between lines of progress


@dataclass(frozen=True)
class AskedVerdicts:
    """What a judge said of a panel.

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
    panel: BattlePanel,
    judge: RoleRunner,
    order: AskedOrder,
    announce: Announce,
    *,
    seed: int = 0,
    repeats: int = 0,
) -> AskedVerdicts:
    """Ask a judge about every battle of a panel; what the store has is not asked again.

    announce: is given a line of progress every ten seconds.
    seed: of the judge and of the balanced order; each repetition has the next one.
    repeats: how often the judge is asked again; of no use for one that does not use its seed.
    Raises MeasurementError where it gave no verdict at all, and what models and store raise.
    """
    rounds = range(1 + repeats)
    given: list[list[JudgedBattle]] = [[] for _ in rounds]
    failures: Counter[str] = Counter()
    details: dict[str, str] = {}
    equal = 0
    progress = _Progress(len(panel.people), announce)
    for start in range(0, len(panel.people), CHUNK):
        chunk = panel.people[start : start + CHUNK]
        pairs = [(battle, panel.pair(battle)) for battle in chunk]
        different = [(battle, pair) for battle, pair in pairs if not _equal(pair)]
        equal += len(pairs) - len(different)
        shown = list(_shown(different, order, seed))
        for k in rounds:
            winners = judge_in_order([pair for _, _, pair in shown], seed + k, judge)
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
        raise MeasurementError(f"the judge gave no verdict on {len(panel.people)} battles: {why}")
    first, *others = map(tuple, given)
    return AskedVerdicts(first, tuple(others), dict(failures), equal)


_Showing = tuple[str, tuple[str, str], AnswerPair]
"""A question, the models in the order in which the judge sees them, and their answers."""


def _equal(pair: AnswerPair) -> bool:
    return (
        pair.candidate is not None
        and pair.opponent is not None
        and pair.candidate.inputs == pair.opponent.inputs
    )


def _shown(
    pairs: Sequence[tuple[JudgedBattle, AnswerPair]], order: AskedOrder, seed: int
) -> Iterator[_Showing]:
    for battle, pair in pairs:
        models = (battle.first, battle.second)
        turned = AnswerPair(pair.sample, pair.question, pair.opponent, pair.candidate)
        showings = [
            (battle.question, models, pair),
            (battle.question, models[::-1], turned),
        ]
        if order == "balanced":
            # Of the pair alone: whichever order people saw, and for every repetition.
            name = f"{seed} {battle.question} {' '.join(sorted(models))}"
            ascending = models == tuple(sorted(models))
            showings = [showings[(int(digest_text(name)[:8], 16) + ascending) % 2]]
        yield from showings


class _Progress:
    """Lines of progress: how much is done, and how long the rest takes at this rate."""

    def __init__(self, total: int, announce: Announce) -> None:
        self._total = total
        self._announce = announce
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
        self._announce(f"{self._done:,} of {self._total:,} battles judged, {left:.0f} s left")
