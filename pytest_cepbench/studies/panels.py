"""Panels that judges are compared on: released verdicts, people's ratings, arranged scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    AnswerPlan,
    PieceRefs,
    refer_to_answer,
    refer_to_gold,
    refer_to_question,
    refer_to_recorded,
)
from pytest_cepbench.chains.answers.answering import AnswerModels, make_answers
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_in_order
from pytest_cepbench.datasets.opening.answers import RecordedAnswer, RecordedAnswers
from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.measures.cases import SHARD
from pytest_cepbench.metrics.battles import JudgedBattle, Pairing, roulette
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.ratings.votes import named_battles
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_card import Battle
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.role_assignment import RoleAssignment

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
    people: Sequence[JudgedBattle]
    pair: Callable[[JudgedBattle], AnswerPair]
    left_out: Mapping[str, int] = field(default_factory=dict)


def choose_battles(battles: Iterable[Battle], limit: int | None, seed: int) -> list[Battle]:
    """Each pair of answers once, and so many of them, chosen by digest: fewer are among more.

    battles: of people, who may have judged a pair in both orders; their first verdict on it stays.
    limit: all of them where None.
    """
    pairs: dict[tuple[str, ...], Battle] = {}
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

    def lack(battle: JudgedBattle) -> tuple[str, str] | None:
        """Why a battle cannot be shown, and the example that names it; None where it can."""
        sample = samples.get(battle.question)
        if sample is None:
            return "whose question is not there whole", f"first {battle.question!r}"
        for model in (battle.first, battle.second):
            answer = answers[model].answer(sample) if model in answers else None
            if answer is None and not (sample.gold and model.casefold() == GOLD):
                return "of models without a folder of answers", f"first {model!r}"
            if isinstance(answer, Failure):
                return "in which an answer is missing", f"first of {model!r} to {sample.id!r}"
            steps = () if answer is None else answer.steps
            if any(isinstance(step.image, Failure) for step in steps):
                return "in which an image is missing", f"first of {model!r} to {sample.id!r}"
        return None

    shown, lacking = [], []
    for battle in battles:
        reason = lack(battle)
        if reason is None:
            shown.append(battle)
        else:
            lacking.append(reason)
    reasons = Counter(reason for reason, _ in lacking)
    if reasons and not (partial and shown):
        counts = "; ".join(f"{n} {why} ({dict(lacking[::-1])[why]})" for why, n in reasons.items())
        remedy = "give --answers MODEL=FOLDER for each model, and all of OpenING with --data"
        if shown:
            remedy += ", or leave those battles out with --partial"
        raise DatasetError(
            f"{name}: {reasons.total():,} of {len(battles):,} battles cannot be shown to a judge, "
            f"{counts}: {remedy}"
        )

    def refer(sample: Sample, model: str) -> PieceRefs | None:
        recorded = answers[model].answer(sample) if model in answers else None
        if isinstance(recorded, RecordedAnswer):
            return refer_to_recorded(recorded, sample.id, store)
        return refer_to_gold(sample, store)

    def pair(battle: JudgedBattle) -> AnswerPair:
        sample = samples[battle.question]
        sides = (refer(sample, battle.first), refer(sample, battle.second))
        return AnswerPair(sample.id, refer_to_question(sample, store), *sides)

    return BattlePanel(name, shown, pair, reasons)


def ratings_panel(ratings: Ratings, votes: Votes) -> BattlePanel:
    """The battles that people judged in a ratings folder, each by the majority of its votes.

    A judge's verdict on one has the key that it has in a run of the suite, so that what a run has
    asked costs no call. Raises DatasetError as `named_battles`.
    """
    battles = named_battles(ratings, votes)
    items = {(b.question, b.first, b.second): item for item, b in battles}

    def refer(name: str, parts: Sequence[Part]) -> PieceRefs:
        pieces = [
            FileImage(ratings.image_path(str(part.image))) if part.text is None else part.text
            for part in parts
        ]
        inputs = [
            ("image", str(part.image)) if part.text is None else ("text", digest_text(part.text))
            for part in parts
        ]
        return PieceRefs(name, tuple(pieces), tuple(inputs))

    def pair(battle: JudgedBattle) -> AnswerPair:
        item = items[battle.question, battle.first, battle.second]
        first, second = item.options
        return AnswerPair(
            battle.question,
            refer(f"{battle.question}, its question", item.question),
            refer(f"{battle.question}, the answer of {battle.first}", first.parts),
            refer(f"{battle.question}, the answer of {battle.second}", second.parts),
        )

    return BattlePanel(ratings.path.resolve().name, [battle for _, battle in battles], pair)


# -- the panel of the embedded world: rule-based models of known faults, judged by the truth -------
# Anyone can measure a judge on it without data. The verdicts that stand for those of people are
# the exact judge's, which solves the question itself.


SHAPES_PANEL = "shapes-arena"
"""Its name on the command line: that of its data set."""

PANEL_MODELS: Mapping[str, str] = {
    "exact": "shapes:",
    "misses": "shapes:?miss=0.2",
    "recolors": "shapes:?recolor=0.3",
    "stops": "shapes:?stop=0.3&miss=0.1",
    "adds": "shapes:?surplus=0.7&miss=0.1",
    "silent": "shapes:?no_text=0.5",
    "blind": "shapes:?no_image=0.5",
}
"""Name -> spec of the models whose answers battle."""

_ROUNDS = 2
"""Battles of each question: with 240 questions, 480 in all."""


def shapes_panel(pool: ModelPool, limit: int | None = None, seed: int = 0) -> BattlePanel:
    """Battles of the rule-based models over the arena of shapes, with the truth's verdicts.

    limit, seed: as of `choose_battles`.
    Pairs of equal answers, and those of which one is missing, are no battles. Raises as
    `make_answers` and `judge_in_order`.
    """
    samples = {sample.id: sample for sample in load_shapes_arena().samples}
    tasks: dict[str, list[str]] = {}
    for sample in samples.values():
        tasks.setdefault(sample.categories[0], []).append(sample.id)

    def runner(role: RoleName, spec: str) -> RoleRunner:
        return pool.runner(RoleAssignment(role, parse_spec(spec), SHAPES_PANEL))

    arranged = roulette(list(PANEL_MODELS), tasks, _ROUNDS)
    pairings = choose_battles(arranged, limit, seed)
    answers: dict[tuple[str, str], Answer] = {}  # those that are missing are left out
    for model, spec in PANEL_MODELS.items():
        asked = dict.fromkeys(p.question for p in pairings if model in (p.first, p.second))
        models = AnswerModels(pool.store, interleaver=runner("interleaver", spec))
        questions = [samples[question] for question in asked]
        for start in range(0, len(questions), SHARD):
            for own in make_answers(AnswerPlan(), questions[start : start + SHARD], models):
                if own.answer is not None:
                    answers[own.sample.id, model] = own.answer
            pool.store.artifact_cache.clear()

    def pair(battle: JudgedBattle | Pairing) -> AnswerPair:
        question, first, second = battle.question, battle.first, battle.second
        return AnswerPair(
            question,
            refer_to_question(samples[question], pool.store),
            refer_to_answer(answers[question, first], question),
            refer_to_answer(answers[question, second], question),
        )

    sides = [
        (answers.get((p.question, p.first)), answers.get((p.question, p.second))) for p in pairings
    ]
    fought = [
        p for p, two in zip(pairings, sides, strict=True) if None not in two and two[0] != two[1]
    ]
    equal = len(pairings) - len(fought)
    verdicts = judge_in_order([pair(p) for p in fought], seed, runner("judge", "shapes:"))
    return BattlePanel(
        name=f"the truth of {SHAPES_PANEL}",
        people=[
            JudgedBattle(p.question, p.first, p.second, verdict)
            for p, verdict in zip(fought, verdicts, strict=True)
            if not isinstance(verdict, Failure)
        ],
        pair=pair,
        left_out={EQUAL: equal} if equal else {},
    )
