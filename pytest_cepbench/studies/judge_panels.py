"""Panels: battles that people have judged, with the questions and answers for a judge to see them.

Answers come from folders in OpenING's layout, one for each model; the reference answers of the
questions are those of the model that OpenING's files call Human.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains.answers.answer_plan import (
    PieceRefs,
    refer_to_gold,
    refer_to_question,
    refer_to_recorded,
)
from pytest_cepbench.chains.answers.battles import AnswerPair
from pytest_cepbench.datasets.opening.answers import RecordedAnswer, RecordedAnswers
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.arena import JudgedBattle, Pairing
from pytest_cepbench.store import Store

B = TypeVar("B", JudgedBattle, Pairing)

GOLD = "human"
"""Case-folded name, in OpenING's files, of the model whose answers are the reference answers."""

EQUAL = "with equal answers"
"""Why a battle needs no judge."""


@dataclass(frozen=True)
class BattlePanel:
    """Battles that people judged, or that the truth decides.

    name: what the verdicts are called.
    people: verdicts, each battle in one order.
    pair: gives the question and the answers of a battle, the first answer as the candidate.
    left_out: battles that cannot be shown, by reason in words.
    """

    name: str
    people: tuple[JudgedBattle, ...]
    pair: Callable[[JudgedBattle], AnswerPair]
    left_out: Mapping[str, int]

    def limited(self, limit: int | None, seed: int) -> BattlePanel:
        """The same with some of its battles; parameters as of `choose_battles`."""
        return replace(self, people=tuple(choose_battles(self.people, limit, seed)))


def choose_battles(battles: Iterable[B], limit: int | None, seed: int) -> list[B]:
    """Each pair of answers once, and so many of them, chosen by digest: fewer are among more.

    battles: of people, who may have judged a pair in both orders; their first verdict on it stays.
    limit: all of them where None.
    """
    pairs: dict[tuple[str, ...], B] = {}
    for battle in battles:
        low, high = sorted((battle.first, battle.second))
        pairs.setdefault((battle.question, low, high), battle)
    if limit is None or limit >= len(pairs):
        return list(pairs.values())
    ranked = sorted(pairs, key=lambda pair: digest_text(f"{seed} {' '.join(pair)}"))
    chosen = set(ranked[:limit])
    return [battle for pair, battle in pairs.items() if pair in chosen]


def opening_panel(
    name: str,
    battles: Sequence[JudgedBattle],
    questions: Dataset,
    answers: Mapping[str, RecordedAnswers],
    store: Store,
    *,
    partial: bool = False,
) -> BattlePanel:
    """Battles over OpenING's questions that can be shown to a judge.

    name: of the verdicts. battles: of people.
    answers: by the name of the model, as the battles spell it.
    partial: leave out battles whose question, answers or images are not all there, instead of
        refusing them.
    Raises DatasetError for those, with a count and the first of them, and where none is left.
    """
    samples = {sample.id: sample for sample in questions.samples}
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    shown = []
    for battle in battles:
        lack = _lack(battle, samples, answers)
        if lack is None:
            shown.append(battle)
        else:
            reason, example = lack
            reasons[reason] += 1
            examples.setdefault(reason, example)
    if reasons and not (partial and shown):
        counts = "; ".join(f"{n} {reason} ({examples[reason]})" for reason, n in reasons.items())
        remedy = "give --answers MODEL=FOLDER for each model, and all of OpenING with --data"
        if shown:
            remedy += ", or leave those battles out with --partial"
        raise DatasetError(
            f"{name}: {reasons.total():,} of {len(battles):,} battles cannot be shown to a judge, "
            f"{counts}: {remedy}"
        )

    def refer(sample: Sample, model: str) -> PieceRefs | None:
        recorded = _answer(sample, model, answers)
        if isinstance(recorded, RecordedAnswer):
            return refer_to_recorded(recorded, sample.id, store)
        return refer_to_gold(sample, store)

    def pair(battle: JudgedBattle) -> AnswerPair:
        sample = samples[battle.question]
        return AnswerPair(
            sample.id,
            refer_to_question(sample, store),
            refer(sample, battle.first),
            refer(sample, battle.second),
        )

    return BattlePanel(name, tuple(shown), pair, dict(reasons))


def _lack(
    battle: JudgedBattle, samples: Mapping[str, Sample], answers: Mapping[str, RecordedAnswers]
) -> tuple[str, str] | None:
    """Why a battle cannot be shown, and the example that names it; None where it can."""
    sample = samples.get(battle.question)
    if sample is None:
        return "whose question is not there whole", f"first {battle.question!r}"
    for model in (battle.first, battle.second):
        answer = _answer(sample, model, answers)
        if answer is None and not (sample.gold and model.casefold() == GOLD):
            return "of models without a folder of answers", f"first {model!r}"
        if isinstance(answer, Failure):
            return "in which an answer is missing", f"first of {model!r} to {sample.id!r}"
        if isinstance(answer, RecordedAnswer):
            lost = _lost_image(answer)
            if lost is not None:
                return "in which an image is missing", f"first of {model!r} to {sample.id!r}"
    return None


def _answer(
    sample: Sample, model: str, answers: Mapping[str, RecordedAnswers]
) -> RecordedAnswer | Failure | None:
    """The recorded answer of a model; None where it is the reference answer, or has no folder."""
    return answers[model].answer(sample) if model in answers else None


def _lost_image(answer: RecordedAnswer) -> Failure | None:
    lost = (step.image for step in answer.steps)
    return next((image for image in lost if isinstance(image, Failure)), None)
