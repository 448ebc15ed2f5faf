"""Truth: the right answer has all of it, and every fault costs what the formulas say."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, render
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    WEIGHTS,
    ArenaQuestion,
    ArenaStep,
    Solution,
    Truth,
    load_shapes_arena,
    read_question,
    score_answer,
    solve,
    solve_sample,
)
from pytest_cepbench.datasets.shapes.arena.solver import choose
from tests.datasets.shapes.arena.strategies import QUESTIONS, gold_steps
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes

RED, BLUE, GREEN = (
    "small red circle top left",
    "large blue cross middle center",
    "small green square bottom right",
)
TWO_STEPS = solve(
    read_question(
        [
            render(parse_caption(f"{RED} , {BLUE} , {GREEN}"), 0),
            f"remove one shape per step : {RED} , {BLUE}",
        ]
    )
)
"""Right are {BLUE, GREEN} and then {GREEN}."""

OWN = solve(
    read_question(["draw three shapes of your choice , then remove the one that comes first"])
)

PERFECT = dict.fromkeys(CRITERIA, 1.0)


def step(text: str | None, image: str | None, seed: int = 5) -> ArenaStep:
    """A step from what its text tells and its image shows; None where it has none."""
    told = "" if text is None else caption(parse_caption(text))
    return told, None if image is None else render(parse_caption(image), seed)


def right_steps(solution: Solution, seed: int = 5) -> list[ArenaStep]:
    """The answer that a solution has itself."""
    return [(caption(scene), render(scene, seed)) for scene in solution.scenes]


def scores(truth: Truth) -> dict[str, float]:
    """The seven scores by name, rounded off what sums leave."""
    return {name: round(score, 9) for name, score in asdict(truth).items()}


def test_gold_answers_are_the_whole_truth() -> None:
    """Every sample's reference answer scores 1 by each criterion."""
    for sample in load_shapes_arena(8).samples:
        truth = score_answer(solve_sample(sample), gold_steps(sample))
        assert scores(truth) == PERFECT
        assert truth.total == pytest.approx(1.0)


def test_the_weights_are_those_of_the_criteria() -> None:
    """OpenING's seven criteria in its order; weights add up to 1."""
    assert CRITERIA == (
        "correctness", "coherency", "consistency", "quality", "preference", "completeness",
        "richness",
    )  # fmt: skip
    assert sum(WEIGHTS) == pytest.approx(1.0)
    for place, weight in enumerate(WEIGHTS):
        truth = Truth(*(float(place == other) for other in range(len(CRITERIA))))
        assert truth.total == pytest.approx(weight)


# With two right steps, {blue, green} and {green}.
@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        pytest.param(
            [step(f"{BLUE} , {GREEN}", None), step(GREEN, GREEN)],
            {"correctness": 3 / 4, "coherency": 1 / 2, "consistency": 0, "richness": 3 / 4},
            id="no image in the first step",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", f"{BLUE} , {GREEN}"), step(None, GREEN)],
            {"correctness": 3 / 4, "coherency": 1 / 2, "richness": 3 / 4},
            id="no text in the second step",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", f"{BLUE} , {GREEN}")],
            {"correctness": 1 / 2, "completeness": 1 / 2},
            id="stopped early",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", f"{BLUE} , {GREEN}"), step(GREEN, GREEN), step("", "")],
            {"correctness": 2 / 3},
            id="one step too many",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", f"{BLUE} , {GREEN}")] * 2,
            {"correctness": (1 + 2 / 3) / 2, "richness": 1 / 2},
            id="the first step again",
        ),
        pytest.param(
            [step(GREEN, f"{BLUE} , {GREEN}"), step(GREEN, GREEN)],
            {"correctness": (2 + 2 / 3 + 1) / 4, "coherency": (1 + 2 / 3) / 2, "richness": 3 / 4},
            id="an object missing in a text",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", BLUE), step(GREEN, GREEN)],
            {"correctness": (2 + 2 / 3 + 1) / 4, "coherency": (1 + 2 / 3) / 2, "consistency": 0},
            id="a kept object missing in one image",
        ),
        pytest.param(
            [step(f"{BLUE} , {GREEN}", BLUE), step(GREEN, "")],
            {"correctness": (1 + 2 / 3 + 1 + 0) / 4, "coherency": (2 / 3 + 0) / 2},
            id="a kept object missing in both images",
        ),
        pytest.param(
            [("a cat", render(Scene(), 0)), ("a dog", render(Scene(), 0))],
            {"correctness": 0, "coherency": 0, "quality": 1 / 2, "richness": 1 / 4},
            id="texts that are no captions",
        ),
        pytest.param(
            [(caption(scene), ImageArtifact(np.zeros((64, 64, 3), np.uint8)))
             for scene in TWO_STEPS.scenes],
            {"correctness": 1 / 2, "coherency": 0, "quality": 1 / 2, "richness": 1 / 2},
            id="black images",
        ),
        pytest.param([], dict.fromkeys(CRITERIA, 0.0), id="no steps"),
    ],
)  # fmt: skip
def test_what_faults_cost(steps: list[ArenaStep], lost: dict[str, float]) -> None:
    """Each fault lowers the criteria that it touches, and no other."""
    expected = {name: round(score, 9) for name, score in (PERFECT | lost).items()}
    assert scores(score_answer(TWO_STEPS, steps)) == expected


@pytest.mark.parametrize("text", ["a cat", "nothing", "one shape : red circle"])
@pytest.mark.parametrize("level", [0, 255])
def test_what_says_and_shows_nothing_is_no_empty_scene(text: str, level: int) -> None:
    """Where no shape is left, the caption and the drawing of that are right, and garbage is not."""
    last = solve(
        read_question(
            [
                render(parse_caption(RED), 0),
                "take one shape away per step , top left first , until none is left",
            ]
        )
    )
    garbage = ImageArtifact(np.full((64, 64, 3), level, np.uint8))
    assert score_answer(last, [("no shapes", render(Scene(), 0))]).total == pytest.approx(1.0)
    truth = score_answer(last, [(text, garbage)])
    assert (truth.correctness, truth.coherency, truth.quality) == (0.0, 0.0, 0.0)


def test_an_object_that_jumps_inside_its_place_is_not_consistent() -> None:
    """The same scenes, drawn with another jitter each: all is right but the style."""
    first, second = TWO_STEPS.scenes
    truths = [
        score_answer(
            TWO_STEPS,
            [(caption(first), render(first, 5)), (caption(second), render(second, seed))],
        )
        for seed in range(100)
    ]
    assert {truth.correctness for truth in truths} == {1.0}
    # One object is kept. Its two places, drawn at random in a square of two pixels, are within one
    # pixel of each other with probability pi / 4 - 1 / 3 + 1 / 32.
    assert np.mean([truth.consistency for truth in truths]) == pytest.approx(0.483, abs=0.15)


@given(QUESTIONS, SEEDS)
def test_right_answers_are_right_in_any_jitter(question: ArenaQuestion, seed: int) -> None:
    """The whole truth does not depend on how the scenes are drawn, as long as they look alike."""
    solution = solve(question)
    assert score_answer(solution, right_steps(solution, seed)).total == pytest.approx(1.0)


@given(SEEDS)
def test_any_choice_is_as_good_as_the_reference(seed: int) -> None:
    """Where the first step is free, the answer's own drawing decides what is right after it."""
    assert OWN.request is not None
    choice = choose(OWN.request, seed)
    answer = [
        (caption(scene), render(scene, seed)) for scene in (choice, Scene(choice.objects[1:]))
    ]
    assert score_answer(OWN, answer).total == pytest.approx(1.0)


def test_the_reference_is_wrong_after_another_choice() -> None:
    """Drawing one thing and going on from another loses the second step."""
    choice = parse_caption(f"{RED} , {BLUE} , {GREEN}")
    _, second = OWN.scenes
    truth = score_answer(OWN, [(caption(scene), render(scene, 5)) for scene in (choice, second)])
    assert truth.correctness == pytest.approx(0.5)
    assert truth.coherency == 1.0


def test_a_choice_without_a_picture_is_read_from_its_text() -> None:
    """The second step is then held to what the first one told."""
    choice = parse_caption(f"{RED} , {BLUE} , {GREEN}")
    following = Scene(choice.objects[1:])
    truth = score_answer(OWN, [(caption(choice), None), (caption(following), render(following, 5))])
    assert truth.correctness == pytest.approx(0.75)


@given(
    QUESTIONS,
    st.lists(
        st.tuples(
            st.one_of(drawn_scenes(at_least=0).map(caption), st.text(max_size=20)),
            st.one_of(st.none(), st.builds(render, drawn_scenes(at_least=0), SEEDS)),
        ),
        max_size=5,
    ),
)
def test_truth_is_a_share(question: ArenaQuestion, steps: list[ArenaStep]) -> None:
    """Whatever is answered, each score and their sum lie in [0, 1]."""
    truth = score_answer(solve(question), steps)
    assert all(0.0 <= score <= 1.0 for score in asdict(truth).values())
    assert 0.0 <= truth.total <= 1.0 + 1e-12
