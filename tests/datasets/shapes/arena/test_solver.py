"""Solving: the right scenes of every task from its question alone, and questions without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, render
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    ArenaQuestion,
    Solution,
    load_shapes_arena,
    read_question,
    solve,
    solve_sample,
)
from pytest_cepbench.datasets.shapes.arena.solver import IMAGES, Request, choose, nearest_choice
from pytest_cepbench.datasets.shapes.scene import COLORS, SIZES
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.arena.strategies import QUESTIONS
from tests.datasets.shapes.strategies import SEEDS, scenes

REQUESTS = st.builds(
    Request,
    number=st.integers(2, 4),
    size=st.sampled_from([None, *SIZES]),
    color=st.sampled_from([None, *COLORS]),
)


def solved(text: str, *pictures: str) -> Solution:
    """The solution of a question whose images show what captions tell."""
    images = [render(parse_caption(picture), seed=7) for picture in pictures]
    return solve(read_question([*images, text]))


def right_captions(text: str, *pictures: str) -> list[str]:
    """What each step of the solution shows, objects in reading order."""
    return [caption(scene).partition(" : ")[2] for scene in solved(text, *pictures).scenes]


@pytest.mark.parametrize("task", TASKS)
def test_the_solution_of_a_question_is_its_gold_answer(task: str) -> None:
    """Text and pixels are enough: what the data set knows beyond them is not needed."""
    for sample in load_shapes_arena(40).in_category(task):
        assert [caption(scene) for scene in solve_sample(sample).scenes] == [
            step.text for step in sample.gold
        ]


RED, BLUE, GREEN = (
    "small red circle top left",
    "large blue cross middle center",
    "small green square bottom right",
)

BUILD = (
    f"draw this step by step , one shape per step : two shapes : {RED} , {BLUE} ; "
    f"order : {BLUE} , {RED}"
)
RESTORE = (
    f"remove one shape per step : {BLUE} , {RED} , "
    "then bring back what was removed two steps before"
)


@pytest.mark.parametrize(
    ("text", "pictures", "expected"),
    [
        (
            BUILD,
            [],
            [BLUE, f"{RED} , {BLUE}"],
        ),
        (f"add one shape per step : {BLUE} , {GREEN}", [RED],
         [f"{RED} , {BLUE}", f"{RED} , {BLUE} , {GREEN}"]),
        (f"remove one shape per step : {BLUE} , {RED}", [f"{RED} , {BLUE} , {GREEN}"],
         [f"{RED} , {GREEN}", GREEN]),
        (
            RESTORE,
            [f"{RED} , {BLUE} , {GREEN}"],
            [f"{RED} , {GREEN}", GREEN, f"{BLUE} , {GREEN}"],
        ),
        (f"describe , then move the {RED} to bottom left", [f"{RED} , {BLUE}"],
         [f"{RED} , {BLUE}", f"{BLUE} , small red circle bottom left"]),
        (f"make the {BLUE} cyan", [f"{RED} , {BLUE}"],
         [f"{RED} , large cyan cross middle center"]),
        (f"swap the {BLUE} and the {RED}", [f"{RED} , {BLUE}"],
         ["large blue cross top left , small red circle middle center"]),
        ("continue with the next step",
         [f"{RED} , {GREEN}", f"small red circle top center , {GREEN}"],
         [f"small red circle top right , {GREEN}"]),
        ("continue with the next step",
         [GREEN, "small green square bottom center"], ["small green square bottom left"]),
        ("take one shape away per step , top left first , until none is left",
         [f"{GREEN} , {RED}"], [GREEN, ""]),
    ],
)  # fmt: skip
def test_what_each_task_asks_for(text: str, pictures: list[str], expected: list[str]) -> None:
    """One example of each, written out."""
    assert right_captions(text, *pictures) == expected


def test_a_free_choice_is_right_whatever_it_is() -> None:
    """The second step changes what the answer drew, not what the reference answer would have."""
    solution = solved("draw two shapes of your choice , then remove the one that comes last")
    own = parse_caption(f"{RED} , {GREEN}")
    assert solution.scenes_after(own) == (own, parse_caption(RED))
    assert solution.scenes_after(None) == solution.scenes


def test_a_choice_that_misses_the_request_is_still_what_the_second_step_changes() -> None:
    """Of three red shapes that were asked for, the answer drew a red and a blue one."""
    solution = solved("draw three red shapes of your choice , then remove the one that comes first")
    first, second = solution.scenes_after(parse_caption(f"{RED} , {BLUE}"))
    assert second == parse_caption(BLUE)
    assert len(first.objects) == 3
    assert {what.color for what in first.objects} == {"red"}
    assert parse_caption(RED).objects[0] in first.objects


def test_an_answer_that_draws_nothing_is_not_right_by_drawing_nothing_again() -> None:
    """There is nothing of its own to change, so it is held to a choice that it could have made."""
    solution = solved("draw two shapes of your choice , then remove the one that comes first")
    first, second = solution.scenes_after(Scene())
    assert len(first.objects) == 2
    assert second.objects == first.objects[1:]


@given(REQUESTS, SEEDS)
def test_a_choice_meets_its_request(request: Request, seed: int) -> None:
    """As many objects as are asked for, all of which fit, and no two alike."""
    objects = choose(request, seed).objects
    assert len({what.look for what in objects}) == len(objects) == request.number
    assert all(map(request.fits, objects))


@given(REQUESTS, scenes())
def test_the_nearest_choice_meets_the_request_and_counts_what_fits(
    request: Request, scene: Scene
) -> None:
    """It shares with the scene the objects that fit, as many as are asked for, and no other."""
    nearest = nearest_choice(request, scene)
    assert len(nearest.objects) == request.number
    assert all(map(request.fits, nearest.objects))
    shared = {*nearest.objects} & {*scene.objects}
    assert len(shared) == min(request.number, sum(map(request.fits, scene.objects)))


@given(REQUESTS, SEEDS)
def test_a_choice_that_is_right_is_the_nearest_to_itself(request: Request, seed: int) -> None:
    """So an answer that met the request loses nothing."""
    choice = choose(request, seed)
    assert nearest_choice(request, choice) == choice


@given(QUESTIONS)
def test_solutions_have_steps_and_no_step_repeats_another(question: ArenaQuestion) -> None:
    """Every step of a right answer shows something new, so that richness can be full."""
    right = solve(question).scenes
    assert 1 <= len(right) <= 4
    assert len(set(right)) == len(right)
    assert len(question.scenes) == IMAGES[question.instruction.task]


@pytest.mark.parametrize(
    ("text", "pictures", "message"),
    [
        (f"make the {RED} blue", [], "recolor asks about 1 images, the question has 0"),
        ("continue with the next step", [RED], "continue asks about 2 images"),
        (f"make the {RED} blue", [BLUE], f"names the {RED}, which its image does not show"),
        (f"remove one shape per step : {RED}", [BLUE], "which its image does not show"),
        (f"swap the {RED} and the {GREEN}", [RED], f"names the {GREEN}, which its image"),
        (f"add one shape per step : {RED}", ["large blue cross top left"],
         "puts a shape where one is"),
        (f"describe , then move the {RED} to middle center", [f"{RED} , {BLUE}"],
         "puts a shape where one is"),
        (f"remove one shape per step : {RED} , then bring back what was removed two steps before",
         [RED], "brings back what was removed two steps before, and removes one shape"),
        ("take one shape away per step , top left first , until none is left", [""],
         "takes shapes away from an image that shows none"),
        ("continue with the next step", [RED, RED], "do not show one shape on its way"),
        ("continue with the next step", [RED, BLUE], "do not show one shape on its way"),
        ("continue with the next step",
         ["small red circle top center", "small red circle top right"],
         "do not show one shape on its way"),
    ],
)  # fmt: skip
def test_questions_without_an_answer_are_refused(
    text: str, pictures: list[str], message: str
) -> None:
    """What does not fit together is named."""
    with pytest.raises(DatasetError, match=message):
        solved(text, *pictures)


@pytest.mark.slow
@given(QUESTIONS, st.lists(scenes(), max_size=2))
def test_a_question_with_any_images_is_answered_or_refused(
    question: ArenaQuestion, pictures: list[Scene]
) -> None:
    """Images of another question: there is an answer of one step at least, or a reason."""
    try:
        solution = solve(ArenaQuestion(question.instruction, tuple(pictures)))
    except DatasetError:
        return
    assert solution.scenes
    assert len(solution.scenes_after(Scene())) == len(solution.scenes)
