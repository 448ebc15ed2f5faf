"""The judge's card: what is known of a judge's errors from verdicts of people on the same battles.

Verdicts of the judge in either order of the answers count: where people saw the other order, their
verdict is turned round. Scores are 1 for a win, 1/2 for a tie of either side, 0 for a loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.metrics.battles import FIRST_SCORES, BattleTable, FloatArray, JudgedBattle
from pytest_cepbench.metrics.judge_agreement import (
    Agreement,
    Share,
    agreement,
    confusion,
    grades_of,
    krippendorff_alpha,
    share,
)
from pytest_cepbench.metrics.pair_models import fit_ratings

TRUE_WIN_RATE = 0.45
"""Of which the card says what the judge would show: the default tolerance below one half."""

_MIRRORED: dict[Winner, Winner] = dict(zip(WINNERS, reversed(WINNERS), strict=True))


@dataclass(frozen=True)
class OrderEffect:
    """How far a judge favours the answer that it sees first.

    logit: delta of the ordered logit; 0 for none.
    error: its standard error, clustered by question.
    """

    logit: float
    error: float


@dataclass(frozen=True)
class ModelBias:
    """How a judge treats one model.

    people, judge: the model's win rate by each, ties as half, over the battles that both judged.
    """

    model: str
    people: float
    judge: float

    @property
    def bias(self) -> float:
        """What the judge adds to the model's win rate."""
        return self.judge - self.people


@dataclass(frozen=True)
class JudgeCard:
    """What is known of a judge.

    battles: those that people judged too.
    agreements: forced ties, three-way, decided only; people's verdicts are the first judge's.
    alpha: Krippendorff's over the four verdicts in order; None where one alone occurs.
    confusion: (4, 4) counts, people's verdict by row, in the order of `WINNERS`.
    first_right, second_right: of the battles that people gave to the first answer, ties forced, the
        judge's share; the same for the second.
    score_correlation: Pearson's, of the judge's scores with people's over battles; None where
        either never varies.
    score_correlation_within: the same within the battles of each model, averaged over models.
    order: of the judge; None where its verdicts cannot tell.
    people_order: of people on the same battles.
    models: win rates of each model, by people the best first.
    slope: of the judge's win rates on people's; None for fewer than three models.
    """

    battles: int
    agreements: tuple[Agreement, ...]
    alpha: float | None
    confusion: tuple[tuple[int, ...], ...]
    first_right: Share
    second_right: Share
    score_correlation: float | None
    score_correlation_within: float | None
    order: OrderEffect | None
    people_order: OrderEffect | None
    models: tuple[ModelBias, ...]
    slope: float | None

    @property
    def accuracy(self) -> float:
        """Agreement with people, ties forced."""
        return self.agreements[0].overall.value or 0.0

    @property
    def visible_drop(self) -> float:
        """What the judge shows of a true drop of a win rate, as a factor: 2 * accuracy - 1.

        Of symmetric errors that do not depend on the model; below 0 the judge prefers what people
        do not.
        """
        return 2 * self.accuracy - 1

    @property
    def sample_factor(self) -> float | None:
        """How many times the samples of a perfect judge it needs: 1 / visible_drop ** 2."""
        drop = self.visible_drop
        return 1 / drop**2 if drop > 0 else None

    @property
    def bias_rms(self) -> float:
        """Root mean square over the models of what the judge adds to a win rate."""
        return sqrt(float(np.mean([model.bias**2 for model in self.models])))

    @property
    def largest_bias(self) -> ModelBias:
        """The model that the judge misjudges most."""
        return max(self.models, key=lambda model: abs(model.bias))

    def shown_win_rate(self, true: float = TRUE_WIN_RATE) -> tuple[float, float]:
        """What the judge shows of a true win rate, and its standard error.

        true: share of battles that people would give to a model, ties forced, in [0, 1]; the model
            is first in half of them. This is the equation that Rogan and Gladen (1978) turn round;
            it holds where the errors are those of the battles at hand and do not depend on the
            model, so it serves for a card and not to correct a number.
        Raises ValueError where people never gave a battle to one of the sides.
        """
        first, second = self.first_right, self.second_right
        if first.value is None or second.value is None:
            raise ValueError(
                "people gave all battles to the same side: the judge's errors on the other are "
                "unknown"
            )
        accuracy = (first.value + second.value) / 2
        variances = (
            own * (1 - own) / side.total
            for own, side in ((first.value, first), (second.value, second))
        )
        variance = sum(variances) / 4
        return accuracy * true + (1 - accuracy) * (1 - true), abs(2 * true - 1) * sqrt(variance)

    @property
    def one_side(self) -> str | None:
        """Which answer it leaned to in all battles, "first" or "second"; None where it varies."""
        a, tie_a, tie_b, b = np.sum(self.confusion, axis=0).tolist()
        if not a + tie_a:
            return "second"
        return None if tie_b + b else "first"

    def sentence(self) -> str:
        """The card in a line."""
        if self.one_side is not None:
            return (
                f"this judge leaned to the {self.one_side} answer in all {self.battles} battles: "
                "it sees nothing of a true drop"
            )
        if self.visible_drop <= 0:
            return (
                f"this judge agrees with people at {self.accuracy:.2f}, no better than a coin: it "
                "sees nothing of a true drop"
            )
        return (
            f"a judge that agrees with people at {self.accuracy:.2f} sees {self.visible_drop:.2f} "
            f"of a true drop, and needs {self.sample_factor:.1f} times the samples"
        )


def judge_card(
    judge: Sequence[JudgedBattle], people: Sequence[JudgedBattle], *, unseen: Collection[str] = ()
) -> JudgeCard:
    """Measure a judge on the battles that people judged too.

    judge: its verdicts, each battle at most once in each order.
    people: theirs.
    unseen: models that were not known while the judge was made.
    Raises ValueError where they have no battle in common.
    """
    matched = match_battles(people, judge)
    if not matched:
        raise ValueError("the judge and people have no battle in common")
    scores = np.array([[FIRST_SCORES[b.winner], FIRST_SCORES[winner]] for b, winner in matched]).T
    columns: dict[str, list[FloatArray]] = {}  # of each model its scores by people and the judge
    for (battle, _), column in zip(matched, scores.T, strict=True):
        columns.setdefault(battle.first, []).append(column)
        columns.setdefault(battle.second, []).append(1 - column)
    by_model = {model: np.array(rows).T for model, rows in sorted(columns.items())}
    biases = [ModelBias(name, *map(float, own.mean(axis=1))) for name, own in by_model.items()]
    models = sorted(biases, key=lambda model: -model.people)
    win_rates = np.array([[model.people, model.judge] for model in models]).T
    lined = len(models) > 2 and win_rates[0].std()
    within = [value for own in by_model.values() if (value := _correlation(*own)) is not None]
    fought = {_pair(battle) for battle, _ in matched}
    return JudgeCard(
        battles=len(matched),
        agreements=tuple(
            agreement(matched, reading, unseen) for reading in ("fdt", "three_way", "decided")
        ),
        alpha=krippendorff_alpha(grades_of(matched)),
        confusion=tuple(map(tuple, confusion(matched).tolist())),
        first_right=_right(matched, ("A", "Tie(A)")),
        second_right=_right(matched, ("B", "Tie(B)")),
        score_correlation=_correlation(*scores),
        score_correlation_within=float(np.mean(within)) if within else None,
        order=_order_effect([battle for battle in judge if _pair(battle) in fought]),
        people_order=_order_effect([battle for battle in people if _pair(battle) in fought]),
        models=tuple(models),
        slope=float(np.polyfit(win_rates[0], win_rates[1], 1)[0]) if lined else None,
    )


def match_battles(
    people: Iterable[JudgedBattle], judge: Iterable[JudgedBattle]
) -> list[tuple[JudgedBattle, Winner]]:
    """Battles of people that the judge judged too, as the judge saw them, with its verdict.

    Its verdict in people's order is taken; where it has none, that in the other order, people's
    verdict being turned round. A battle counts once: where people judged both orders, by their
    first verdict.
    """
    verdicts = {(b.question, b.first, b.second): b.winner for b in judge}
    matched = []
    counted = set()
    for battle in people:
        if _pair(battle) in counted:
            continue
        counted.add(_pair(battle))
        for shown in (battle, mirror(battle)):
            winner = verdicts.get((shown.question, shown.first, shown.second))
            if winner is not None:
                matched.append((shown, winner))
                break
    return matched


def mirror(battle: JudgedBattle) -> JudgedBattle:
    """The same verdict on the answers in the other order, which keep their errors."""
    winner, errors = _MIRRORED[battle.winner], (battle.errors[1], battle.errors[0])
    return JudgedBattle(battle.question, battle.second, battle.first, winner, errors)


def _right(matched: Sequence[tuple[JudgedBattle, Winner]], side: tuple[Winner, ...]) -> Share:
    own = [(battle, winner) for battle, winner in matched if battle.winner in side]
    return share([winner in side for _, winner in own], [battle.question for battle, _ in own])


def _pair(battle: JudgedBattle) -> tuple[str, str, str]:
    low, high = sorted((battle.first, battle.second))
    return battle.question, low, high


def _order_effect(battles: Sequence[JudgedBattle]) -> OrderEffect | None:
    try:
        ratings = fit_ratings(BattleTable(battles))
    except ValueError:  # models that never met, one side always: the verdicts cannot tell
        return None
    return OrderEffect(ratings.order_effect, ratings.order_error)


def _correlation(people: FloatArray, judge: FloatArray) -> float | None:
    if not (people.std() and judge.std()):
        return None
    return float(np.corrcoef(people, judge)[0, 1])
