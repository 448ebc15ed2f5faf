"""Questions of the arena: their grammar, their right answers, and the data set of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption
from pytest_cepbench.datasets.shapes.arena import (
    VOCABULARY,
    ArenaQuestion,
    load_shapes_arena,
    sample_scenes,
)
from pytest_cepbench.datasets.shapes.arena.solver import (
    Request,
    nearest_choice,
    parse_instruction,
    phrase_instruction,
)
from pytest_cepbench.datasets.shapes.scene import COLORS, SIZES
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.strategies import BLUE, GREEN, QUESTIONS, RED, scenes, solved

RED_NAME, BLUE_NAME = "small red cross top left", "small blue cross top left"

OUTSIDE = st.lists(
    st.sampled_from(["please", "answer", "in", "3", "steps :", "two", "red", "circle", "."])
).map(" ".join)
"""Words around an instruction that are none."""


@given(QUESTIONS, OUTSIDE, OUTSIDE)
def test_a_sentence_reads_back_to_its_instruction(
    question: ArenaQuestion, before: str, after: str
) -> None:
    """Nothing that a question asks is lost in its sentence. A prompt that wraps the question, or a
    shouting one, asks the same.
    """
    sentence = phrase_instruction(question.instruction)
    assert parse_instruction(sentence) == question.instruction
    shouted = sentence.upper().replace(" ", " \n ")
    assert parse_instruction(f"{before} {shouted} {after}") == question.instruction


def test_the_vocabulary_is_closed_and_has_no_idle_word() -> None:
    """Questions and captions use all words of it and no other: a tokenizer needs no more. No scene
    has more objects than the world draws: trained models of it know four, and so does it.
    """
    samples = load_shapes_arena(60).samples
    texts = [piece for sample in samples for piece in sample.question if isinstance(piece, str)]
    texts += [step.text for sample in samples for step in sample.gold]
    assert {word for text in texts for word in text.split()} == set(VOCABULARY)
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 66
    sizes = {len(scene.objects) for sample in samples for scene in sample_scenes(sample)}
    assert sizes == {0, 1, 2, 3, 4}


REQUESTS = st.builds(
    Request,
    number=st.integers(2, 4),
    size=st.sampled_from([None, *SIZES]),
    color=st.sampled_from([None, *COLORS]),
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
        (BUILD, [], [BLUE, f"{RED} , {BLUE}"]),
        (f"add one shape per step : {BLUE} , {GREEN}", [RED],
         [f"{RED} , {BLUE}", f"{RED} , {BLUE} , {GREEN}"]),
        (f"remove one shape per step : {BLUE} , {RED}", [f"{RED} , {BLUE} , {GREEN}"],
         [f"{RED} , {GREEN}", GREEN]),
        (RESTORE, [f"{RED} , {BLUE} , {GREEN}"],
         [f"{RED} , {GREEN}", GREEN, f"{BLUE} , {GREEN}"]),
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
    """One example of each, written out: what each step of the solution shows in reading order."""
    scenes = solved(text, *pictures).scenes
    assert [caption(scene).partition(" : ")[2] for scene in scenes] == expected


def test_a_free_choice_is_right_whatever_it_is() -> None:
    """The second step changes what the answer drew, not what the reference answer would have: also
    where of three red shapes that were asked for, the answer drew a red and a blue one.
    """
    solution = solved("draw two shapes of your choice , then remove the one that comes last")
    own = parse_caption(f"{RED} , {GREEN}")
    assert solution.scenes_after(own) == (own, parse_caption(RED))
    assert solution.scenes_after(None) == solution.scenes
    solution = solved("draw three red shapes of your choice , then remove the one that comes first")
    first, second = solution.scenes_after(parse_caption(f"{RED} , {BLUE}"))
    assert second == parse_caption(BLUE)
    assert len(first.objects) == 3
    assert {what.color for what in first.objects} == {"red"}
    assert parse_caption(RED).objects[0] in first.objects


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


TWICE = "small red circle top left , large red cross top left"
OTHER = f"one shape : {RED_NAME} ; order : {BLUE_NAME}"
NO_QUESTION = "is no question of the arena of shapes: see docs/"


@pytest.mark.parametrize(
    ("text", "pictures", "message"),
    [
        ("", [], NO_QUESTION),
        ("describe the image", [], NO_QUESTION),
        ("add one shape per step :", [], NO_QUESTION),
        ("draw five shapes of your choice , then remove the one that comes first", [], NO_QUESTION),
        ("make the small red circle top left pink", [], NO_QUESTION),
        ("swap the small red circle top left", [], NO_QUESTION),
        ("move the small red circle to top left", [], NO_QUESTION),
        (f"add one shape per step : {TWICE}", [], f"names two objects in one place: {TWICE}"),
        (f"draw this step by step , one shape per step : {OTHER}", [],
         f"orders other objects than it describes: one shape : {RED_NAME} ; {BLUE_NAME}"),
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
    """What does not fit together is named; of what is no question, the text and where the grammar
    is; of one that contradicts itself, both sides.
    """
    with pytest.raises(DatasetError, match=message):
        solved(text, *pictures)
