"""Answers of the rule-based models: exact without knobs, and worse by known amounts with them."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import (
    Degradation,
    Scene,
    degrade_scene,
    parse_caption,
    parse_image,
)
from pytest_cepbench.datasets.shapes.arena import (
    AnswerDegradation,
    ArenaQuestion,
    ArenaStep,
    Solution,
    degraded_answer,
    load_shapes_arena,
    read_question,
    score_answer,
    solve,
    solve_sample,
)
from pytest_cepbench.datasets.shapes.degrade import KNOB_NAMES
from tests.datasets.shapes.arena.strategies import QUESTIONS, draw_question
from tests.datasets.shapes.strategies import SEEDS, scenes

PROBABILITIES = st.floats(0, 1)

KNOBS = st.fixed_dictionaries(
    dict.fromkeys(AnswerDegradation.__dataclass_fields__, PROBABILITIES)
).map(lambda values: AnswerDegradation(**values))

FOUR = (
    "small red circle top left , large blue cross top center , "
    "small green square middle center , large cyan triangle bottom right"
)

BUILD = solve(
    read_question(
        [f"draw this step by step , one shape per step : four shapes : {FOUR} ; order : {FOUR}"]
    )
)
"""Four steps, the last of which shows four objects."""

RECOLOR = solve(draw_question("recolor", 0))
"""One step."""

ROUNDS = 300


def answers(solution: Solution, number: int = ROUNDS, **knobs: float) -> list[list[ArenaStep]]:
    """The answers of many seeds."""
    return [degraded_answer(solution, AnswerDegradation(**knobs), seed) for seed in range(number)]


def near(rate: float, number: int = ROUNDS) -> Any:
    """A share of so many independent trials, within four standard errors of its rate."""
    return pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / number))


def truth_of(solution: Solution, steps: list[ArenaStep]) -> float:
    """The weighted sum of an answer's scores."""
    return score_answer(solution, steps).total


def test_without_knobs_every_sample_is_answered_right() -> None:
    """A perfect interleaver has the whole truth in every category, whatever its seed."""
    for number, sample in enumerate(load_shapes_arena(8).samples):
        solution = solve_sample(sample)
        answer = degraded_answer(solution, AnswerDegradation(), seed=number)
        assert truth_of(solution, answer) == pytest.approx(1.0), sample.id


# An answer of one step without one of its parts loses half of its correctness and richness and all
# of its coherency; one without its step, everything; one with a step too many, half of correctness
# and richness.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("knob", "loss"),
    [
        ("no_image", 0.5 * 0.40 + 0.20 + 0.5 * 0.03),
        ("no_text", 0.5 * 0.40 + 0.20 + 0.5 * 0.03),
        ("stop", 1.0),
        ("surplus", 0.5 * 0.40 + 0.5 * 0.03),
    ],
)
@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_each_knob_lowers_the_truth_at_its_rate(knob: str, loss: float, rate: float) -> None:
    """The share of answers with the fault is the knob's value, and each costs what it costs."""
    losses = [
        1.0 - truth_of(RECOLOR, answer) for answer in answers(RECOLOR, ROUNDS, **{knob: rate})
    ]
    faulty = [lost for lost in losses if lost > 1e-9]
    assert faulty == pytest.approx([loss] * len(faulty))
    assert len(faulty) / ROUNDS == near(rate)


def test_stop_acts_before_every_step() -> None:
    """The share of answers that reach step k is (1 - stop) ** k."""
    lengths = [len(answer) for answer in answers(BUILD, stop=0.3)]
    for number in range(1, 5):
        assert sum(length >= number for length in lengths) / ROUNDS == near(0.7**number)


def test_parts_are_lost_step_by_step() -> None:
    """Each step loses its text and its image by itself, and one that loses both is no step."""
    steps = [step for answer in answers(BUILD, no_image=0.3, no_text=0.4) for step in answer]
    number = 4 * ROUNDS
    assert sum(not text for text, _ in steps) / number == near(0.7 * 0.4, number)
    assert sum(image is None for _, image in steps) / number == near(0.6 * 0.3, number)
    assert len(steps) / number == near(1 - 0.3 * 0.4, number)


def test_a_surplus_step_repeats_the_last() -> None:
    """It comes after an answer that did not stop."""
    assert {len(answer) for answer in answers(BUILD, 10, surplus=1.0)} == {5}
    for answer in answers(BUILD, 10, surplus=1.0):
        (text, image), (again, drawn_again) = answer[-2:]
        assert text == again
        assert image is not None
        assert drawn_again is not None
        assert image.digest == drawn_again.digest
    assert {len(answer) for answer in answers(BUILD, 10, surplus=1.0, stop=1.0)} == {0}


def told_scenes(answer: list[ArenaStep]) -> list[Scene]:
    """What the texts of an answer tell."""
    return [parse_caption(text) for text, _ in answer]


@pytest.mark.slow
def test_with_drift_errors_stay() -> None:
    """An object that is drawn in another color keeps it; without drift the next step is right."""

    def share_that_stays(**knobs: float) -> float:
        stays = []
        for seed in range(100):
            steps = degraded_answer(BUILD, AnswerDegradation(recolor=0.2, **knobs), seed)
            first, second = [shown_scene(step).objects[0].color for step in steps[:2]]
            if first != "red":
                stays.append(first == second)
        return fmean(stays)

    assert share_that_stays(drift=1.0) > 0.7
    assert share_that_stays() < 0.2


def shown_scene(step: ArenaStep) -> Scene:
    """What the image of a step shows."""
    assert step[1] is not None
    return parse_image(step[1])


@pytest.mark.slow
def test_drift_makes_answers_that_err_consistently_wrong() -> None:
    """By itself it changes nothing; errors that stay are less correct and more consistent."""
    sure = [truth_of(BUILD, answer) for answer in answers(BUILD, 10, drift=1.0)]
    assert sure == pytest.approx([1.0] * 10)
    anew = [score_answer(BUILD, answer) for answer in answers(BUILD, 120, miss=0.1)]
    lasting = [score_answer(BUILD, answer) for answer in answers(BUILD, 120, miss=0.1, drift=1.0)]
    correctness = fmean(truth.correctness for truth in lasting)
    assert correctness < fmean(truth.correctness for truth in anew) - 0.02
    consistency = fmean(truth.consistency for truth in lasting)
    assert consistency > fmean(truth.consistency for truth in anew) + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("knob", [*KNOB_NAMES, "no_image", "no_text", "stop", "surplus"])
def test_more_of_a_knob_is_less_truth(knob: str) -> None:
    """The mean over all tasks falls strictly with each knob by itself."""
    solutions = [solve_sample(sample) for sample in load_shapes_arena(3).samples]
    means = [
        fmean(
            truth_of(solution, degraded_answer(solution, AnswerDegradation(**{knob: value}), seed))
            for seed, solution in enumerate(solutions)
        )
        for value in (0.0, 0.2, 0.6)
    ]
    assert means[0] == pytest.approx(1.0)
    assert means[0] > means[1] + 0.005 > means[2] + 0.01


@given(QUESTIONS, KNOBS, SEEDS)
def test_the_same_seed_gives_the_same_answer(
    question: ArenaQuestion, knobs: AnswerDegradation, seed: int
) -> None:
    """Nothing but question, knobs and seed decides, and no step is empty."""
    first, second = (degraded_answer(solve(question), knobs, seed) for _ in range(2))
    assert [(text, image and image.digest) for text, image in first] == [
        (text, image and image.digest) for text, image in second
    ]
    assert all(text or image is not None for text, image in first)


@given(QUESTIONS, SEEDS, st.integers(1, 12), st.integers(1, 12))
def test_a_told_number_is_kept_and_the_most_never_exceeded(
    question: ArenaQuestion, seed: int, told: int, most: int
) -> None:
    """What is right beyond the told number is left out, and what is wanting repeats the last."""
    solution = solve(question)
    steps = told_scenes(degraded_answer(solution, AnswerDegradation(), seed, told, most))
    right = list(solution.scenes)
    expected = [*right, *[right[-1]] * told][:told][:most]
    assert steps == expected
    surplus = degraded_answer(solution, AnswerDegradation(surplus=1.0), seed, told, most)
    assert len(surplus) == min(told + 1, most)


@given(QUESTIONS, SEEDS, PROBABILITIES, PROBABILITIES)
def test_a_higher_knob_keeps_what_a_lower_one_did(
    question: ArenaQuestion, seed: int, low: float, high: float
) -> None:
    """An answer never becomes longer, nor a step whole again, by turning a knob further."""
    low, high = sorted((low, high))
    solution = solve(question)
    weak, strong = (
        degraded_answer(solution, AnswerDegradation(stop=value), seed) for value in (low, high)
    )
    assert told_scenes(strong) == told_scenes(weak)[: len(strong)]
    weak, strong = (
        degraded_answer(solution, AnswerDegradation(no_image=value), seed) for value in (low, high)
    )
    assert not [
        step for step, other in zip(strong, weak, strict=True) if step[1] and other[1] is None
    ]


@given(scenes(), SEEDS, st.fixed_dictionaries(dict.fromkeys(KNOB_NAMES, PROBABILITIES)))
def test_the_knobs_of_answers_leave_those_of_scenes_as_they_are(
    scene: Scene, seed: int, values: dict[str, float]
) -> None:
    """A describer's mistakes of a seed are the same whatever knobs there are besides."""
    alone = degrade_scene(scene, Degradation(**values), seed)
    beside = AnswerDegradation(**values, no_text=0.5, no_image=0.5, stop=0.5, surplus=1, drift=1)
    assert degrade_scene(scene, beside, seed) == alone


@pytest.mark.parametrize("knob", ["no_image", "no_text", "stop", "surplus", "drift", "miss"])
def test_what_is_no_probability_is_refused_by_name(knob: str) -> None:
    """The message names the knob, the range and the value."""
    with pytest.raises(ValueError, match=rf"{knob} is a probability in \[0, 1\], got 1.5"):
        AnswerDegradation(**{knob: 1.5})
