"""The panel of the embedded world: rule-based models of known faults, judged by the truth.

Anyone can measure a judge on it without data. The verdicts that stand for those of people are the
exact judge's, which solves the question itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    AnswerPlan,
    refer_to_answer,
    refer_to_question,
)
from pytest_cepbench.chains.answers.answering import AnswerModels, make_answers
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_in_order
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.metrics.arena import JudgedBattle, roulette
from pytest_cepbench.metrics.arena.roulette import Pairing
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.studies.judge_panels import EQUAL, BattlePanel, choose_battles
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.sample_data import SHARD

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
    arranged = roulette(list(PANEL_MODELS), tasks, _ROUNDS)
    pairings = choose_battles(arranged, limit, seed)
    answers = _answers(pairings, samples, pool)

    def pair(battle: JudgedBattle | Pairing) -> AnswerPair:
        question, first, second = battle.question, battle.first, battle.second
        return AnswerPair(
            question,
            refer_to_question(samples[question], pool.store),
            refer_to_answer(answers[question, first], question),
            refer_to_answer(answers[question, second], question),
        )

    fought = [p for p in pairings if _differ(answers, p)]
    equal = len(pairings) - len(fought)
    verdicts = judge_in_order([pair(p) for p in fought], seed, _runner(pool, "judge", "shapes:"))
    return BattlePanel(
        name=f"the truth of {SHAPES_PANEL}",
        people=tuple(
            JudgedBattle(p.question, p.first, p.second, verdict)
            for p, verdict in zip(fought, verdicts, strict=True)
            if not isinstance(verdict, Failure)
        ),
        pair=pair,
        left_out={EQUAL: equal} if equal else {},
    )


def _answers(
    pairings: Iterable[Pairing], samples: Mapping[str, Sample], pool: ModelPool
) -> dict[tuple[str, str], Answer]:
    """The answers that battle, by question and model; those that are missing are left out."""
    questions: dict[str, dict[str, None]] = {model: {} for model in PANEL_MODELS}
    for pairing in pairings:
        questions[pairing.first][pairing.question] = None
        questions[pairing.second][pairing.question] = None
    answers: dict[tuple[str, str], Answer] = {}
    for model, spec in PANEL_MODELS.items():
        models = AnswerModels(pool.store, interleaver=_runner(pool, "interleaver", spec))
        asked = [samples[question] for question in questions[model]]
        for start in range(0, len(asked), SHARD):
            for own in make_answers(AnswerPlan(), asked[start : start + SHARD], models):
                if own.answer is not None:
                    answers[own.sample.id, model] = own.answer
            pool.store.image_cache.clear()
    return answers


def _differ(answers: Mapping[tuple[str, str], Answer], pairing: Pairing) -> bool:
    """Whether both answers are there, and not the same."""
    models = (pairing.first, pairing.second)
    known = [answers.get((pairing.question, model)) for model in models]
    return None not in known and known[0] != known[1]


def _runner(pool: ModelPool, role: RoleName, spec: str) -> RoleRunner:
    return pool.runner(RoleAssignment(role, parse_spec(spec), SHAPES_PANEL))
