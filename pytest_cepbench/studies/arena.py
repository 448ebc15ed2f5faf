"""Studies of stored verdicts: a leaderboard of models, and the agreement of two judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, AnswerError
from pytest_cepbench.datasets.opening.questions import (
    CAPABILITIES,
    HARD_TASKS,
    META_TOPICS,
    TASKS,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.battles import (
    TIE_POLICIES,
    BattleTable,
    Forfeit,
    JudgedBattle,
    TiePolicy,
    battle_records,
)
from pytest_cepbench.metrics.judge_agreement import (
    Agreement,
    agreement,
    confusion,
    grades_of,
    krippendorff_alpha,
    shared_battles,
)
from pytest_cepbench.metrics.pair_models import (
    ELO,
    fit_ratings,
)

Grouping = Literal["task", "meta-topic", "capability", "difficulty"]

_CAPABILITY = {task: name for name, tasks in CAPABILITIES.items() for task in tasks}


@dataclass(frozen=True)
class Standing:
    """One row of a leaderboard.

    rating: in Elo points; the models' mean is 0.
    error: standard error of the rating, clustered by question.
    rank_low, rank_high: the ranks that it may have, by simultaneous 95 % intervals of all
    differences.
    battles: those that count, forfeits included.
    win_rates: by tie policy, in [0, 1]; None where no battle counts.
    groups: win rate with ties as half in each group of questions, by the group's name.
    errors: by kind, the answers that people found it in, each once.
    """

    model: str
    rating: float
    error: float
    rank_low: int
    rank_high: int
    battles: float
    win_rates: Mapping[TiePolicy, float | None]
    groups: Mapping[str, float | None]
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


def make_leaderboard(
    name: str,
    battles: Sequence[JudgedBattle],
    *,
    forfeits: Sequence[Forfeit] = (),
    grouping: Grouping | None = None,
) -> Leaderboard:
    """A leaderboard of the models of a panel.

    battles: verdicts of one judge.
    grouping: of questions by their OpenING ids.
    forfeits: they count in win rates, not in ratings.
    Raises DatasetError where the verdicts cannot rank the models.
    """
    try:
        table = BattleTable(battles)
        ratings = fit_ratings(table)
    except ValueError as error:
        raise DatasetError(f"{name}: {error}") from error
    records = battle_records(table, forfeits)
    groups = _groups(battles, grouping)
    by_group = {group: battle_records(BattleTable(part)) for group, part in groups.items()}
    errors = _seen_errors(battles)
    order = sorted(range(len(ratings.models)), key=lambda i: -ratings.ratings[i])
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
            groups={
                group: part[model].win_rate("ties_as_half") if model in part else None
                for group, part in by_group.items()
            },
            errors={k: errors[model, k] for k in ANSWER_ERRORS if errors[model, k]},
        )
        for i in order
        for model in (ratings.models[i],)
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
        standings=tuple(standings),
    )


def _seen_errors(battles: Sequence[JudgedBattle]) -> Counter[tuple[str, str]]:
    """(model, kind of error) -> answers in which it was seen, each once."""
    wrong = {
        (model, battle.question, kind)
        for battle in battles
        for model, kinds in zip((battle.first, battle.second), battle.errors, strict=True)
        for kind in kinds
    }
    return Counter((model, kind) for model, _, kind in wrong)


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
    known = {name for battle, _ in shared for name in (battle.first, battle.second)}
    if absent := sorted(set(unseen) - known):
        raise DatasetError(
            f"no battle has the model {', '.join(map(repr, absent))}: {', '.join(sorted(known))} do"
        )
    counts = confusion(shared)
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
        confusion=tuple(map(tuple, counts.tolist())),
        unseen=tuple(sorted(unseen)),
    )


def _groups(
    battles: Sequence[JudgedBattle], grouping: Grouping | None
) -> dict[str, list[JudgedBattle]]:
    """Battles by the name of their group, groups in order of their ids."""
    if grouping is None:
        return {}
    groups: dict[str, list[JudgedBattle]] = {}
    for battle in sorted(battles, key=lambda battle: battle.question):
        # By the question's OpenING id; the id's own digits where OpenING has no such task.
        task, topic = battle.question[:4], battle.question[:2]
        match grouping:
            case "task":
                name = TASKS.get(task, task)
            case "meta-topic":
                name = META_TOPICS.get(topic, topic)
            case "capability":
                name = _CAPABILITY.get(task, task)
            case "difficulty":
                known = "hard tasks" if task in HARD_TASKS else "common tasks"
                name = known if task in TASKS else task
        groups.setdefault(name, []).append(battle)
    return groups
