"""What larger answers win: known coefficients are recovered, and what cannot be told is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy.special import expit

from pytest_cepbench.metrics.arena import (
    WINNERS,
    AnswerSize,
    BattleTable,
    JudgedBattle,
    fit_ratings,
    judge_card,
)
from pytest_cepbench.metrics.arena.answer_sizes import SizeEffects, size_effects
from tests.metrics.arena.panels import simulate, swap

LEVELS = np.array([1.0, 0.3, -0.3, -1.0])

Sizes = dict[tuple[str, str], AnswerSize]


def draw_sizes(battles: Sequence[JudgedBattle], rng: np.random.Generator) -> Sizes:
    """Answers of 5 to 200 words, 0 to 3 images and 1 to 8 steps, whoever gives them."""
    answers = {(b.question, model) for b in battles for model in (b.first, b.second)}
    return {
        key: AnswerSize(*map(int, (rng.integers(5, 200), rng.integers(0, 4), rng.integers(1, 9))))
        for key in sorted(answers)
    }


def relative(size: AnswerSize, other: AnswerSize) -> list[float]:
    """Differences as a share of the sum."""
    pairs = zip(vars(size).values(), vars(other).values(), strict=True)
    return [(mine - its) / max(mine + its, 1) for mine, its in pairs]


def judge_by_size(
    battles: Sequence[JudgedBattle],
    sizes: Mapping[tuple[str, str], AnswerSize],
    coefficients: Sequence[float],
    rng: np.random.Generator,
) -> list[JudgedBattle]:
    """Verdicts by the ordered logit, of a judge that likes what is large.

    coefficients: of words, images and steps, each for one standard deviation.
    """
    differences = np.array(
        [relative(sizes[b.question, b.first], sizes[b.question, b.second]) for b in battles]
    )
    spreads = np.sqrt((differences**2).mean(axis=0))
    scaled = differences / np.where(spreads > 0, spreads, 1)
    first = LEVELS[[int(b.first[1:]) for b in battles]]
    second = LEVELS[[int(b.second[1:]) for b in battles]]
    x = first - second + 0.2 + scaled @ np.array(coefficients)
    ends = expit(np.stack([x - 0.8, x, x + 0.8]))
    places = (rng.random(len(battles)) > ends).sum(axis=0)
    return [
        JudgedBattle(b.question, b.first, b.second, WINNERS[place])
        for b, place in zip(battles, places.tolist(), strict=True)
    ]


def logits(effects: SizeEffects, judge: str = "judge") -> list[float | None]:
    """The coefficients in order."""
    found = [getattr(effect, judge) for effect in effects.effects]
    return [None if coefficient is None else coefficient.logit for coefficient in found]


@pytest.mark.slow
def test_intervals_cover_the_coefficients() -> None:
    """Of 200 simulated judges some 95 % of the 95 % intervals hold the truth, for each measure."""
    rng = np.random.default_rng(0)
    truth = np.array([0.5, 0.3, -0.2])
    covered = np.zeros(3)
    for _ in range(200):
        people = simulate(LEVELS, 600, rng)
        sizes = draw_sizes(people, rng)
        effects = size_effects(judge_by_size(people, sizes, truth.tolist(), rng), people, sizes)
        for i, effect in enumerate(effects.effects):
            assert effect.judge is not None
            covered[i] += abs(effect.judge.logit - truth[i]) < 1.96 * effect.judge.error
    # Three standard errors of a share of .95 in 200 trials are .046.
    assert ((covered / 200 > 0.90) & (covered / 200 < 0.995)).all()


def test_a_judge_that_likes_words_is_told_from_people() -> None:
    """The judge's coefficient is what it was made with; people have none."""
    rng = np.random.default_rng(1)
    people = simulate(LEVELS, 2000, rng)
    sizes = draw_sizes(people, rng)
    card = judge_card(judge_by_size(people, sizes, [0.8, 0.0, 0.0], rng), people, sizes=sizes)

    assert card.sizes is not None
    assert card.sizes.battles == 2000
    for effect, expected in zip(card.sizes.effects, [0.8, 0.0, 0.0], strict=True):
        assert effect.judge is not None
        assert effect.people is not None
        assert abs(effect.judge.logit - expected) < 4 * effect.judge.error
        assert abs(effect.people.logit) < 4 * effect.people.error
        assert 0.03 < effect.judge.error < 0.1


def test_trading_places_changes_no_coefficient() -> None:
    """A difference changes its sign with the answers."""
    rng = np.random.default_rng(2)
    people = simulate(LEVELS, 400, rng)
    sizes = draw_sizes(people, rng)
    judge = judge_by_size(people, sizes, [0.5, 0.5, 0.5], rng)
    effects = size_effects(judge, people, sizes)
    swapped = size_effects(swap(judge), swap(people), sizes)

    assert logits(swapped) == pytest.approx(logits(effects), abs=1e-4)
    assert logits(swapped, "people") == pytest.approx(logits(effects, "people"), abs=1e-4)
    assert [e.spread for e in swapped.effects] == [e.spread for e in effects.effects]


def test_ratings_allow_for_covariates() -> None:
    """Without covariates there are no coefficients; with them levels are those at equal size."""
    rng = np.random.default_rng(3)
    people = simulate(LEVELS, 3000, rng)
    sizes = draw_sizes(people, rng)
    # The weakest model writes most, and the judge likes that.
    long = {k: AnswerSize(400 if k[1] == "m03" else s.words, 1, 1) for k, s in sizes.items()}
    table = BattleTable(judge_by_size(people, long, [1.0, 0.0, 0.0], rng))
    words = np.array(
        [[relative(long[b.question, b.first], long[b.question, b.second])[0]] for b in people]
    )
    raw = fit_ratings(table)
    even = fit_ratings(table, covariates=words / np.sqrt((words**2).mean()))

    assert len(raw.coefficients) == 0
    assert even.coefficients == pytest.approx([1.0], abs=4 * even.coefficient_errors[0])
    assert raw.ratings[3] > raw.ratings[2] + 0.2
    assert even.ratings == pytest.approx(LEVELS, abs=0.3)


def test_what_cannot_be_told_is_none() -> None:
    """Sizes that never differ, that are those of a model, and a second name for the first one."""
    rng = np.random.default_rng(4)
    people = simulate(LEVELS, 400, rng)
    drawn = draw_sizes(people, rng)
    same = {key: AnswerSize(size.words, 2, size.words) for key, size in drawn.items()}
    effects = size_effects(people, people, same).effects
    assert [effect.judge is None for effect in effects] == [False, True, True]
    assert effects[1].spread == 0

    pair = [b for b in people if {b.first, b.second} == {"m00", "m01"}]
    of_model = {key: AnswerSize(10, 1 if key[1] == "m00" else 0, 1) for key in drawn}
    assert logits(size_effects(pair, pair, of_model)) == [None, None, None]


def test_a_judge_that_counts_words_has_a_large_coefficient() -> None:
    """No number is the likeliest for it; the prior keeps it finite, so that it is shown."""
    rng = np.random.default_rng(6)
    people = simulate(LEVELS, 600, rng)
    sizes = draw_sizes(people, rng)
    judge = [
        JudgedBattle(
            b.question,
            b.first,
            b.second,
            "A" if sizes[b.question, b.first].words > sizes[b.question, b.second].words else "B",
        )
        for b in people
    ]
    words, images, steps = size_effects(judge, people, sizes).effects

    assert words.judge is not None
    assert 5 < words.judge.logit < 50
    for effect in (images, steps):
        assert effect.judge is not None
        assert abs(effect.judge.logit) < 1


def test_only_answers_at_hand_count() -> None:
    """A battle counts where both answers are known; where none is, nothing is told."""
    rng = np.random.default_rng(5)
    people = simulate(LEVELS, 400, rng)
    sizes = draw_sizes(people, rng)
    without = {key: size for key, size in sizes.items() if key[1] != "m02"}

    expected = sum("m02" not in (b.first, b.second) for b in people)
    assert size_effects(people, people, without).battles == expected
    nothing = size_effects(people, people, {})
    assert nothing.battles == 0
    assert logits(nothing) == [None, None, None]
    assert judge_card(people, people).sizes is None
