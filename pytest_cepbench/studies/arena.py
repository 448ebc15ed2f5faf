"""The arena: a leaderboard of models by stored verdicts, and battles for a judge to decide.

Which models meet is drawn by roulette from a seed and the questions' ids alone, before an answer is
read. A verdict is stored as it is given, so a play that was interrupted goes on, and one of more
rounds or more models asks only for what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, AnswerError
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
from pytest_cepbench.metrics.battles import (
    TIE_POLICIES,
    BattleTable,
    Forfeit,
    JudgedBattle,
    Pairing,
    TiePolicy,
    battle_records,
    roulette,
)
from pytest_cepbench.metrics.pair_models import ELO, fit_ratings
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_card import AskedOrder, shown_in_order
from pytest_cepbench.studies.rated_items import RatedRun, answers_of, check_samples, load_answers

# -- leaderboards ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """One row of a leaderboard.

    rating: in Elo points; the models' mean is 0.
    error: standard error of the rating, clustered by question.
    rank_low, rank_high: the ranks that it may have, by simultaneous 95 % intervals of all
    differences.
    battles: those that count, forfeits included.
    win_rates: by tie policy, in [0, 1]; None where no battle counts.
    errors: by kind, the answers that people found it in, each once.
    """

    model: str
    rating: float
    error: float
    rank_low: int
    rank_high: int
    battles: float
    win_rates: Mapping[TiePolicy, float | None]
    errors: Mapping[AnswerError, int]


@dataclass(frozen=True)
class Leaderboard:
    """The models that a judge compared, the best first.

    name: of the panel.
    verdicts, questions: how many there are.
    tie_share: share of the verdicts that are ties.
    order_effect, order_error: logit by which the judge favours the first answer, and its standard
    error.
    regularized: whether the battles alone leave the ratings without bound; see `Ratings`.
    forfeits: battles that a model lost for want of an answer.
    """

    name: str
    verdicts: int
    questions: int
    tie_share: float
    order_effect: float
    order_error: float
    regularized: bool
    forfeits: int
    standings: tuple[Standing, ...]


def make_leaderboard(
    name: str, battles: Sequence[JudgedBattle], forfeits: Sequence[Forfeit] = ()
) -> Leaderboard:
    """A leaderboard of the models of a panel.

    battles: verdicts of one judge. forfeits: they count in win rates, not in ratings.
    Raises DatasetError where the verdicts cannot rank the models.
    """
    try:
        table = BattleTable(battles)
        ratings = fit_ratings(table)
    except ValueError as error:
        raise DatasetError(f"{name}: {error}") from error
    records = battle_records(table, forfeits)
    wrong = {  # an answer counts once for each kind of error that was seen in it
        (model, battle.question, kind)
        for battle in battles
        for model, kinds in zip((battle.first, battle.second), battle.errors, strict=True)
        for kind in kinds
    }
    errors = Counter((model, kind) for model, _, kind in wrong)
    ranks = ratings.rank_intervals()
    standings = [
        Standing(
            model=model,
            rating=float(ratings.ratings[i] * ELO),
            error=float(ratings.errors[i] * ELO),
            rank_low=ranks[i].low,
            rank_high=ranks[i].high,
            battles=records[model].battles,
            win_rates={policy: records[model].win_rate(policy) for policy in TIE_POLICIES},
            errors={k: errors[model, k] for k in ANSWER_ERRORS if errors[model, k]},
        )
        for i, model in enumerate(ratings.models)
    ]
    return Leaderboard(
        name=name,
        verdicts=len(battles),
        questions=len({battle.question for battle in battles}),
        tie_share=sum(battle.winner.startswith("Tie") for battle in battles) / len(battles),
        order_effect=ratings.order_effect,
        order_error=ratings.order_error,
        regularized=ratings.regularized,
        forfeits=len(forfeits),
        standings=tuple(sorted(standings, key=lambda standing: -standing.rating)),
    )


# -- the arena, played -----------------------------------------------------------------------------

Answers = Callable[[Sample], PieceRefs | None]
"""A model's answer to a sample's question; None where it has none."""


def recorded_answers(answers: RecordedAnswers, samples: Iterable[Sample], store: Store) -> Answers:
    """Those of a folder in OpenING's layout; images that are named and gone are no pieces.

    Raises DatasetError where none of the samples' questions is answered.
    """
    if not any(sample.id in answers.answers for sample in samples):
        raise DatasetError(f"{answers.path} holds no answer to these questions")

    def answer(sample: Sample) -> PieceRefs | None:
        own = answers.answer(sample)
        return None if isinstance(own, Failure) else refer_to_recorded(own, sample.id, store)

    return answer


def run_answers(run: RatedRun, samples: Sequence[Sample], store: Store) -> Answers:
    """What a run of the suite left in the store.

    Raises DatasetError where the run named no answers or had other samples, StoreError where the
    store lacks answers.
    """
    digests = answers_of(run)
    check_samples({s.id: (s, refer_to_question(s, store)) for s in samples if s.question}, run)
    stored = load_answers(set(digests.values()) - {""}, f"the run of {run.name!r}", store)

    def answer(sample: Sample) -> PieceRefs | None:
        digest = digests.get(sample.id, "")
        return refer_to_answer(stored[digest], sample.id) if digest else None

    return answer


def reference_answers(samples: Iterable[Sample], store: Store) -> Answers:
    """The reference answers of the data set. Raises DatasetError for none."""
    if not any(sample.gold for sample in samples):
        raise DatasetError("the data set has no reference answers that could battle")
    return lambda sample: refer_to_gold(sample, store)


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
    answers: Mapping[str, Answers],
    samples: Sequence[Sample],
    store: Store,
    rounds: int,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Battles:
    """The battles of so many rounds.

    answers: of each model.
    samples: with questions; the first category of each is its task.
    rounds: battles of each question, at most the number of pairs of models.
    limit: so many battles, the first of all; all where None.
    Raises DatasetError for too few models or too many rounds, and where no battle needs a judge.
    """
    known = {sample.id: sample for sample in samples}
    tasks = {sample.id: sample.categories[0] for sample in samples}
    by_task: dict[str, list[str]] = {}
    for question, task in sorted(tasks.items(), key=lambda pair: (pair[1], pair[0])):
        by_task.setdefault(task, []).append(question)
    try:
        drawn = roulette(list(answers), by_task, rounds, seed)
    except ValueError as error:
        raise DatasetError(f"the battles could not be arranged: {error}") from error
    # One of each question before the second of any, questions by digest: so what was judged when a
    # play ends early is spread over all tasks.
    count: Counter[str] = Counter()
    places = {}
    for battle in drawn:
        count[battle.question] += 1
        places[battle] = count[battle.question], digest_text(f"{seed} {battle.question}")
    arranged = sorted(drawn, key=lambda battle: places[battle])[:limit]

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
        elif pieces.needs_judge:
            fought.append(battle)
        else:
            equal += 1
    if not fought:
        raise DatasetError(
            f"none of {len(arranged)} battles has two different answers: {len(forfeits)} lack one, "
            f"{empty} both, {equal} are equal"
        )
    return Battles(tuple(arranged), tuple(fought), tuple(forfeits), equal, empty, pair, tasks)


def plan_of(battles: Battles, judge: RoleRunner, order: AskedOrder, seed: int = 0) -> str:
    """How many verdicts a play asks for and what the judge is shown. No model is loaded."""
    rules = BattleRules(seed=seed)
    shown: dict[str, tuple[int, int]] = {}
    for battle in battles.fought:
        for _, _, pair in shown_in_order([(battle, battles.pair(battle))], order, seed):
            key = battle_step(pair, rules, judge, candidate_first=True, again=False).key
            sides = (pair.question, pair.candidate, pair.opponent)
            parts = [piece for refs in sides if refs is not None for piece in refs.pieces]
            texts = [part for part in parts if isinstance(part, str)]
            shown[key] = len(parts) - len(texts), sum(len(text.split()) for text in texts)
    stored = judge.store.has(shown)
    asked = [size for key, size in shown.items() if key not in stored]
    images, words = (
        (sum(sizes) / len(asked) for sizes in zip(*asked, strict=True)) if asked else (0.0, 0.0)
    )
    return (
        f"verdicts: {len(shown):,}, of which the store has {len(stored):,}; each of the other "
        f"{len(asked):,} shows the judge {images:.1f} images and {words:,.0f} words in the mean"
    )
