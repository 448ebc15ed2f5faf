"""The arena, played: answers of several models to a suite's questions battle, and a judge decides.

Which models meet is drawn by roulette from a seed and the questions' ids alone, before an answer is
read. A verdict is stored as it is given, so a play that was interrupted goes on, and one of more
rounds or more models asks only for what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import comb

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    BattleRules,
    PieceRefs,
    refer_to_answer,
    refer_to_gold,
    refer_to_question,
    refer_to_recorded,
)
from pytest_cepbench.chains.answers.battles import AnswerPair, battle_step
from pytest_cepbench.datasets.opening.answers import RecordedAnswers
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.battles import Forfeit, Pairing, roulette
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.studies.judge_card import (
    AskedOrder,
    AskedVerdicts,
    collect_verdicts,
    equal_answers,
    shown_in_order,
)
from pytest_cepbench.studies.rated_items import RatedRun, answers_of, check_samples, load_answers


@dataclass(frozen=True)
class Entrant:
    """A model whose answers battle.

    answer: to a sample's question; None where the model has none.
    """

    name: str
    answer: Callable[[Sample], PieceRefs | None]


def recorded_entrant(
    name: str, answers: RecordedAnswers, samples: Iterable[Sample], store: Store
) -> Entrant:
    """A model by its folder in OpenING's layout; images that are named and gone are no pieces.

    Raises DatasetError where none of the samples' questions is answered.
    """
    if not any(sample.id in answers.answers for sample in samples):
        raise DatasetError(f"{answers.path} holds no answer to these questions")

    def answer(sample: Sample) -> PieceRefs | None:
        own = answers.answer(sample)
        return None if isinstance(own, Failure) else refer_to_recorded(own, sample.id, store)

    return Entrant(name, answer)


def stored_entrant(run: RatedRun, samples: Sequence[Sample], store: Store) -> Entrant:
    """A model by what a run of the suite left in the store.

    Raises DatasetError where the run named no answers or had other samples, StoreError where the
    store lacks answers.
    """
    digests = answers_of(run)
    check_samples({s.id: (s, refer_to_question(s, store)) for s in samples if s.question}, run)
    stored = load_answers(set(digests.values()) - {""}, f"the run of {run.name!r}", store)

    def answer(sample: Sample) -> PieceRefs | None:
        digest = digests.get(sample.id, "")
        return refer_to_answer(stored[digest], sample.id) if digest else None

    return Entrant(run.name, answer)


def reference_entrant(name: str, samples: Iterable[Sample], store: Store) -> Entrant:
    """The reference answers of the data set as a model. Raises DatasetError for none."""
    if not any(sample.gold for sample in samples):
        raise DatasetError(f"the data set has no reference answers that could battle as {name!r}")
    return Entrant(name, lambda sample: refer_to_gold(sample, store))


@dataclass(frozen=True)
class Battles:
    """Battles that were arranged, and what is to become of each.

    arranged: in the order in which they are judged: one of each question before the second of any.
    fought: those that need a judge.
    forfeits: those in which one answer is missing.
    equal, empty: how many have the same answer twice, or none.
    pair: the question and the answers of a battle, the first answer as the candidate.
    tasks: question -> its task.
    """

    arranged: tuple[Pairing, ...]
    fought: tuple[Pairing, ...]
    forfeits: tuple[Forfeit, ...]
    equal: int
    empty: int
    pair: Callable[[Pairing], AnswerPair]
    tasks: Mapping[str, str]

    def coverage(self, judged: int | None = None) -> str:
        """How far the battles reach, in words. judged: so many of them alone."""
        battles = self.fought[:judged]
        models = sorted({name for p in self.arranged for name in (p.first, p.second)})
        met = {frozenset((p.first, p.second)) for p in battles}
        seen: dict[str, set[str]] = {task: set() for task in self.tasks.values()}
        for p in battles:
            seen[self.tasks[p.question]] |= {p.first, p.second}
        whole = sum(len(names) == len(models) for names in seen.values())
        return (
            f"{len(met)} of {comb(len(models), 2)} pairs have met, all {len(models)} models have "
            f"fought in {whole} of {len(seen)} tasks"
        )


def arrange(
    entrants: Sequence[Entrant],
    samples: Sequence[Sample],
    store: Store,
    rounds: int,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Battles:
    """The battles of so many rounds.

    samples: with questions; the first category of each is its task.
    rounds: battles of each question, at most the number of pairs of models.
    limit: so many battles, the first of all; all where None.
    Raises DatasetError for models of one name, too few of them or too many rounds.
    """
    names = [entrant.name for entrant in entrants]
    known = {sample.id: sample for sample in samples}
    tasks = {sample.id: sample.categories[0] for sample in samples}
    by_task = {
        task: [question for question, _ in own]
        for task, own in groupby(sorted(tasks.items(), key=lambda i: (i[1], i[0])), lambda i: i[1])
    }
    try:
        drawn = roulette(names, by_task, rounds, seed)
    except ValueError as error:
        raise DatasetError(f"the battles could not be arranged: {error}") from error
    arranged = _in_rounds(drawn, seed)[:limit]
    answers = {entrant.name: entrant.answer for entrant in entrants}

    @cache  # arranging, planning and asking each refer to it, and several battles do
    def question_of(question: str) -> PieceRefs:
        return refer_to_question(known[question], store)

    @cache
    def answer(question: str, model: str) -> PieceRefs | None:
        return answers[model](known[question])

    def pair(battle: Pairing) -> AnswerPair:
        return AnswerPair(
            battle.question,
            question_of(battle.question),
            answer(battle.question, battle.first),
            answer(battle.question, battle.second),
        )

    fought, forfeits, equal, empty = [], [], 0, 0
    for battle in arranged:
        pieces = pair(battle)
        if pieces.candidate is None and pieces.opponent is None:
            empty += 1
        elif pieces.candidate is None:
            forfeits.append(Forfeit(battle.question, battle.first, battle.second))
        elif pieces.opponent is None:
            forfeits.append(Forfeit(battle.question, battle.second, battle.first))
        elif equal_answers(pieces):
            equal += 1
        else:
            fought.append(battle)
    return Battles(tuple(arranged), tuple(fought), tuple(forfeits), equal, empty, pair, tasks)


def _in_rounds(battles: Iterable[Pairing], seed: int) -> list[Pairing]:
    """One battle of each question before the second of any, questions by digest.

    So what was judged when a play ends early is spread over all tasks.
    """
    count: dict[str, int] = {}
    placed = []
    for battle in battles:
        place = count[battle.question] = count.get(battle.question, 0) + 1
        placed.append((place, digest_text(f"{seed} {battle.question}"), battle))
    return [battle for *_, battle in sorted(placed, key=lambda each: each[:2])]


@dataclass(frozen=True)
class PlayPlan:
    """What a play costs before it begins.

    verdicts: that are asked for; stored: those of them that the store has.
    images, words: mean numbers that the judge is shown for a verdict that is to be asked for.
    """

    verdicts: int
    stored: int
    images: float
    words: float

    @property
    def sentence(self) -> str:
        """It in words."""
        return (
            f"verdicts: {self.verdicts:,}, of which the store has {self.stored:,}; each of the "
            f"other {self.verdicts - self.stored:,} shows the judge {self.images:.1f} images and "
            f"{self.words:,.0f} words in the mean"
        )


def plan_play(battles: Battles, judge: RoleRunner, order: AskedOrder, seed: int = 0) -> PlayPlan:
    """Count the verdicts of a play and what the judge is shown. No model is loaded."""
    rules = BattleRules(seed=seed)
    shown: dict[str, tuple[int, int]] = {}
    for battle in battles.fought:
        pieces = battles.pair(battle)
        for _, _, pair in shown_in_order([(battle, pieces)], order, seed):
            key = battle_step(pair, rules, judge, candidate_first=True, again=False).key
            sides = (pair.question, pair.candidate, pair.opponent)
            parts = [piece for refs in sides if refs is not None for piece in refs.pieces]
            texts = [part for part in parts if isinstance(part, str)]
            shown[key] = len(parts) - len(texts), sum(len(text.split()) for text in texts)
    stored = judge.store.has(shown)
    asked = [size for key, size in shown.items() if key not in stored]
    mean = [sum(sizes) / len(asked) for sizes in zip(*asked, strict=True)] if asked else [0.0, 0.0]
    return PlayPlan(len(shown), len(stored), *mean)


def play(
    battles: Battles, judge: RoleRunner, order: AskedOrder, announce: Announce, *, seed: int = 0
) -> AskedVerdicts:
    """The judge's verdicts on all battles that need one.

    announce: is given a line of progress with the coverage so far, every ten seconds.
    Raises MeasurementError where it gave no verdict at all, DatasetError where no battle needs one,
    and what models and store raise.
    """
    if not battles.fought:
        raise DatasetError(
            f"none of {len(battles.arranged)} battles has two different answers: "
            f"{len(battles.forfeits)} lack one, {battles.empty} both, {battles.equal} are equal"
        )
    return collect_verdicts(
        battles.fought, battles.pair, judge, order, announce, seed=seed, remark=battles.coverage
    )
