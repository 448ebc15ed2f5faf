"""Questions and answers of the arena: grammar, right answers, and how those are made worse."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, parse_image, render
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    VOCABULARY,
    AnswerDegradation,
    ArenaQuestion,
    ArenaStep,
    degraded_answer,
    load_shapes_arena,
    sample_scenes,
    score_answer,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.solver import (
    Request,
    nearest_choice,
    parse_instruction,
    phrase_instruction,
)
from pytest_cepbench.datasets.shapes.scene import COLORS, SIZES
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.strategies import BLUE, GREEN, QUESTIONS, RED, SEEDS, scenes, solved

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


# -- answers ---------------------------------------------------------------------------------------


TWO_STEPS = solved(f"remove one shape per step : {RED} , {BLUE}", f"{RED} , {BLUE} , {GREEN}")
"""Right are {BLUE, GREEN} and then {GREEN}."""

OWN = solved("draw three shapes of your choice , then remove the one that comes first")

PERFECT = dict.fromkeys(CRITERIA, 1.0)


def step(text: str | None, image: str | None, seed: int = 5) -> ArenaStep:
    """A step from what its text tells and its image shows; None where it has none."""
    told = "" if text is None else caption(parse_caption(text))
    return told, None if image is None else render(parse_caption(image), seed)


BOTH = f"{BLUE} , {GREEN}"
FIRST, LAST = step(BOTH, BOTH), step(GREEN, GREEN)
BLACK = ImageArtifact(np.zeros((64, 64, 3), np.uint8))

FAULTS: dict[str, tuple[list[ArenaStep], dict[str, float]]] = {
    "no image in the first step": (
        [step(BOTH, None), LAST],
        {"correctness": 3 / 4, "coherency": 1 / 2, "consistency": 0, "richness": 3 / 4},
    ),
    "no text in the second step": (
        [FIRST, step(None, GREEN)],
        {"correctness": 3 / 4, "coherency": 1 / 2, "richness": 3 / 4},
    ),
    "stopped early": ([FIRST], {"correctness": 1 / 2, "completeness": 1 / 2}),
    "one step too many": ([FIRST, LAST, step("", "")], {"correctness": 2 / 3}),
    "the first step again": ([FIRST] * 2, {"correctness": (1 + 2 / 3) / 2, "richness": 1 / 2}),
    "an object missing in a text": (
        [step(GREEN, BOTH), LAST],
        {"correctness": (2 + 2 / 3 + 1) / 4, "coherency": (1 + 2 / 3) / 2, "richness": 3 / 4},
    ),
    "a kept object missing in one image": (
        [step(BOTH, BLUE), LAST],
        {"correctness": (2 + 2 / 3 + 1) / 4, "coherency": (1 + 2 / 3) / 2, "consistency": 0},
    ),
    "a kept object missing in both images": (
        [step(BOTH, BLUE), step(GREEN, "")],
        {"correctness": (1 + 2 / 3 + 1 + 0) / 4, "coherency": (2 / 3 + 0) / 2},
    ),
    "texts that are no captions": (
        [("a cat", render(Scene(), 0)), ("a dog", render(Scene(), 0))],
        {"correctness": 0, "coherency": 0, "quality": 1 / 2, "richness": 1 / 4},
    ),
    "black images": (
        [(caption(scene), BLACK) for scene in TWO_STEPS.scenes],
        {"correctness": 1 / 2, "coherency": 0, "quality": 1 / 2, "richness": 1 / 2},
    ),
    "no steps": ([], dict.fromkeys(CRITERIA, 0.0)),
    "steps of nothing": (
        [("", None)] * 2,
        dict.fromkeys({*CRITERIA} - {"preference", "completeness"}, 0.0),
    ),
}
"""Answers where {blue, green} and then {green} are right, and the scores that are not 1."""


@pytest.mark.parametrize("fault", FAULTS)
def test_what_faults_cost(fault: str) -> None:
    """Each fault lowers the criteria that it touches, and no other."""
    steps, lost = FAULTS[fault]
    assert asdict(score_answer(TWO_STEPS, steps)) == pytest.approx(PERFECT | lost, abs=1e-9)


@pytest.mark.parametrize("text", ["a cat", "nothing", "one shape : red circle"])
@pytest.mark.parametrize("level", [0, 255])
def test_what_says_and_shows_nothing_is_no_empty_scene(text: str, level: int) -> None:
    """Where no shape is left, the caption and the drawing of that are right, and garbage is not."""
    last = solved("take one shape away per step , top left first , until none is left", RED)
    garbage = ImageArtifact(np.full((64, 64, 3), level, np.uint8))
    assert score_answer(last, [("no shapes", render(Scene(), 0))]).total == pytest.approx(1.0)
    truth = score_answer(last, [(text, garbage)])
    assert (truth.correctness, truth.coherency, truth.quality) == (0.0, 0.0, 0.0)


def test_an_object_that_jumps_inside_its_place_is_not_consistent() -> None:
    """The same scenes, drawn with another jitter each: all is right but the style."""
    first, second = TWO_STEPS.scenes
    truths = [
        score_answer(
            TWO_STEPS, [(caption(first), render(first, 5)), (caption(second), render(second, seed))]
        )
        for seed in range(60)
    ]
    assert {truth.correctness for truth in truths} == {1.0}
    # One object is kept. Its two places, drawn at random in a square of two pixels, are within one
    # pixel of each other with probability pi / 4 - 1 / 3 + 1 / 32.
    assert np.mean([truth.consistency for truth in truths]) == pytest.approx(0.483, abs=0.15)


def test_another_choice_is_held_to_itself() -> None:
    """Drawing one thing and going on from another loses the second step; without a picture the
    second step is held to what the first one told.
    """
    choice = parse_caption(f"{RED} , {BLUE} , {GREEN}")
    _, second = OWN.scenes
    truth = score_answer(OWN, [(caption(scene), render(scene, 5)) for scene in (choice, second)])
    assert truth.correctness == pytest.approx(0.5)
    assert truth.coherency == 1.0
    following = Scene(choice.objects[1:])
    truth = score_answer(OWN, [(caption(choice), None), (caption(following), render(following, 5))])
    assert truth.correctness == pytest.approx(0.75)


PROBABILITIES = st.floats(0, 1)

KNOBS = st.fixed_dictionaries(
    dict.fromkeys(AnswerDegradation.__dataclass_fields__, PROBABILITIES)
).map(lambda values: AnswerDegradation(**values))

FOUR = (
    "small red circle top left , large blue cross top center , "
    "small green square middle center , large cyan triangle bottom right"
)

FOUR_STEPS = solved(
    f"draw this step by step , one shape per step : four shapes : {FOUR} ; order : {FOUR}"
)
"""Four steps, the last of which shows four objects."""


@pytest.mark.slow
def test_with_drift_errors_stay() -> None:
    """An object that is drawn in another color keeps it; without drift the next step is right."""

    def share_that_stays(**knobs: float) -> float:
        stays = []
        for seed in range(100):
            steps = degraded_answer(FOUR_STEPS, AnswerDegradation(recolor=0.2, **knobs), seed)
            images = [image for _, image in steps[:2] if image is not None]
            first, second = [parse_image(image).objects[0].color for image in images]
            if first != "red":
                stays.append(first == second)
        return fmean(stays)

    assert share_that_stays(drift=1.0) > 0.7
    assert share_that_stays() < 0.2


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
    answer = degraded_answer(solution, AnswerDegradation(), seed, told, most)
    right = list(solution.scenes)
    expected = [*right, *[right[-1]] * told][:told][:most]
    assert [parse_caption(text) for text, _ in answer] == expected
    surplus = degraded_answer(solution, AnswerDegradation(surplus=1.0), seed, told, most)
    assert len(surplus) == min(told + 1, most)
