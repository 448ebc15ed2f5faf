"""Judges: asked about battles, measured on those that people judged too, and beside one another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_in_order
from pytest_cepbench.errors import DatasetError, MeasurementError
from pytest_cepbench.metrics.battles import JudgedBattle, Pairing
from pytest_cepbench.metrics.judge_agreement import (
    Agreement,
    agreement,
    confusion,
    grades_of,
    krippendorff_alpha,
    shared_battles,
)
from pytest_cepbench.metrics.judge_card import JudgeCard, judge_card, match_battles
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.suites.judge_cards import JudgeIdentity

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
    failures: how often it gave no verdict, by kind.
    equal: battles of equal answers, which need no judge.
    """

    verdicts: tuple[JudgedBattle, ...]
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
    remark: Callable[[int], str] | None = None,
) -> AskedVerdicts:
    """Ask a judge about every battle; what the store has is not asked again.

    pair: gives the question and the answers of a battle, the first answer as the candidate.
    announce: is given a line of progress every ten seconds.
    seed: of the judge and of the balanced order.
    remark: what a line of progress says besides, of so many judged battles.
    Raises MeasurementError where it gave no verdict at all, and what models and store raise.
    """
    given: list[JudgedBattle] = []
    failures: Counter[str] = Counter()
    detail = "every two answers are equal"
    equal = 0
    begun = told = time.monotonic()
    for start in range(0, len(battles), CHUNK):
        chunk = battles[start : start + CHUNK]
        pairs = [(battle, pair(battle)) for battle in chunk]
        different = [(battle, answers) for battle, answers in pairs if answers.needs_judge]
        equal += len(pairs) - len(different)
        shown = list(shown_in_order(different, order, seed))
        winners = judge_in_order([answers for _, _, answers in shown], seed, judge)
        for (question, models, _), winner in zip(shown, winners, strict=True):
            if isinstance(winner, Failure):
                detail = detail if failures else f"{winner.kind}: {winner.detail}"
                failures[winner.kind] += 1
            else:
                given.append(JudgedBattle(question, *models, winner))
        judge.store.artifact_cache.clear()
        done, now = start + len(chunk), time.monotonic()
        if now - told >= _EVERY and done < len(battles):
            told = now
            left = (len(battles) - done) * (now - begun) / done
            more = f"; {remark(done)}" if remark else ""
            announce(f"{done:,} of {len(battles):,} battles judged, {left:.0f} s left{more}")
    if not given:
        raise MeasurementError(f"the judge gave no verdict on {len(battles)} battles: {detail}")
    return AskedVerdicts(tuple(given), dict(failures), equal)


_Showing = tuple[str, tuple[str, str], AnswerPair]
"""A question, the models in the order in which the judge sees them, and their answers."""


def shown_in_order(
    pairs: Iterable[tuple[JudgedBattle | Pairing, AnswerPair]], order: AskedOrder, seed: int
) -> Iterator[_Showing]:
    """What a judge is shown of battles: question, models and answers, each answer first in turn."""
    for battle, pair in pairs:
        models = (battle.first, battle.second)
        turned = AnswerPair(pair.sample, pair.question, pair.opponent, pair.candidate)
        showings = [(battle.question, models, pair), (battle.question, models[::-1], turned)]
        if order == "arranged":
            showings = showings[:1]
        elif order == "balanced":
            # Of the pair alone: whichever order people saw.
            name = f"{seed} {battle.question} {' '.join(sorted(models))}"
            ascending = models == tuple(sorted(models))
            showings = [showings[(int(digest_text(name)[:8], 16) + ascending) % 2]]
        yield from showings


@dataclass(frozen=True)
class AskedJudge:
    """A judge that was asked for the verdicts of its card, and how.

    judge: which one; a run with another does not use the card.
    order: whether each pair was shown in both orders.
    seed: of the judge and of the choice of battles.
    failures: how often it gave no verdict, by kind.
    left_out: battles that were not shown to it, by reason in words.
    """

    judge: JudgeIdentity
    order: AskedOrder
    seed: int
    failures: Mapping[str, int]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class MeasuredJudge:
    """The card of a judge, and what it was measured on.

    judge, people: what the panels are called.
    date: of the measuring, in UTC.
    asked: the judge and how it was asked; None where its verdicts came from a file, which does not
        say whose they are.
    judge_alone, people_alone: their battles that the other did not judge.
    unknown_models: models of the judge's battles that people never judged.
    seen: models that were known while the judge was made; empty where that is not said.
    card: its errors.
    accuracy, sentence: of the card, for reports that show it.
    sees_nothing: whether it is no better than a coin, or leaned to the same side in every battle.
    """

    judge: str
    people: str
    date: str
    asked: AskedJudge | None
    judge_alone: int
    people_alone: int
    unknown_models: tuple[str, ...]
    seen: tuple[str, ...]
    card: JudgeCard
    accuracy: float
    sees_nothing: bool
    sentence: str


def measure_judge(
    names: tuple[str, str],
    judge: Sequence[JudgedBattle],
    people: Sequence[JudgedBattle],
    *,
    seen: Collection[str] = (),
    asked: AskedJudge | None = None,
) -> MeasuredJudge:
    """The card of a judge.

    names: of the judge's and of people's verdicts.
    judge: its verdicts, each battle at most once in each order.
    seen: models that were known while the judge was made; none where that is unknown.
    asked: the judge that was asked for the verdicts; None where they come from a file.
    Raises DatasetError where the two judged no battle both, where files hold the same verdicts, and
    for a seen model that has no battle.
    """
    matched = match_battles(people, judge)
    if asked is None and set(judge) == set(people):  # one that was asked may agree in everything
        raise DatasetError(
            f"{names[0]} and {names[1]} hold the same {len(judge)} verdicts: give the judge's, and "
            "with --people those of people"
        )
    own, theirs = _models(judge), _models(people)
    if not matched:
        what = "battle in common, of the same question and models"
        if not own & theirs:
            what = f"model in common: {', '.join(sorted(own))} against {', '.join(sorted(theirs))}"
        raise DatasetError(f"{names[0]} and {names[1]} have no {what}")
    known = require_models(seen, [battle for battle, _ in matched])
    card = judge_card(judge, people, unseen=known - set(seen) if seen else set())
    shared = _pairs(battle for battle, _ in matched)
    return MeasuredJudge(
        judge=names[0],
        people=names[1],
        date=datetime.now(UTC).date().isoformat(),
        asked=asked,
        judge_alone=len(_pairs(judge) - shared),
        people_alone=len(_pairs(people) - shared),
        unknown_models=tuple(sorted(own - theirs)),
        seen=tuple(sorted(seen)),
        card=card,
        accuracy=card.accuracy,
        sees_nothing=card.one_side is not None or card.visible_drop <= 0,
        sentence=card.sentence(),
    )


def require_models(named: Collection[str], battles: Iterable[JudgedBattle]) -> set[str]:
    """The models of battles. Raises DatasetError for a named one that has none."""
    known = _models(battles)
    if absent := sorted(set(named) - known):
        raise DatasetError(
            f"no battle has the model {', '.join(map(repr, absent))}: {', '.join(sorted(known))} do"
        )
    return known


def _models(battles: Iterable[JudgedBattle]) -> set[str]:
    return {name for battle in battles for name in (battle.first, battle.second)}


def _pairs(battles: Iterable[JudgedBattle]) -> set[tuple[str, frozenset[str]]]:
    return {(battle.question, frozenset((battle.first, battle.second))) for battle in battles}


@dataclass(frozen=True)
class JudgeComparison:
    """Two judges over the battles that both judged.

    shared: how many those are; only_first, only_second: the battles of one of them alone.
    agreements: forced ties, three-way, decided only.
    alpha: Krippendorff's over the four verdicts in order; None where one alone occurs.
    confusion: counts, the first judge's verdict by row.
    unseen: models that the second judge did not know while it was made.
    """

    first: str
    second: str
    shared: int
    only_first: int
    only_second: int
    agreements: tuple[Agreement, ...]
    alpha: float | None
    confusion: tuple[tuple[int, ...], ...]
    unseen: tuple[str, ...]


def compare_judges(
    names: tuple[str, str],
    first: Sequence[JudgedBattle],
    second: Sequence[JudgedBattle],
    unseen: Collection[str] = (),
) -> JudgeComparison:
    """The agreement of two judges. Raises DatasetError where they share no battle."""
    shared = shared_battles(first, second)
    if not shared:
        raise DatasetError(
            f"{names[0]} and {names[1]} judged no battle both: same questions, models and order"
        )
    require_models(unseen, [battle for battle, _ in shared])
    return JudgeComparison(
        first=names[0],
        second=names[1],
        shared=len(shared),
        only_first=len(first) - len(shared),
        only_second=len(second) - len(shared),
        agreements=tuple(
            agreement(shared, reading, unseen) for reading in ("fdt", "three_way", "decided")
        ),
        alpha=krippendorff_alpha(grades_of(shared)),
        confusion=tuple(map(tuple, confusion(shared).tolist())),
        unseen=tuple(sorted(unseen)),
    )
