"""Answers by one model and by a pipeline: steps, losses, and what is asked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains.answers.answer_plan import AnswerPlan, parts_of
from pytest_cepbench.chains.answers.answering import AnswerModels, SampleAnswer, make_answers
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, ModelError
from pytest_cepbench.models.protocols import AnswerStep, StepLimit
from pytest_cepbench.store import Store
from pytest_cepbench.store.answers import get_answers
from tests.artifacts.files import noise
from tests.chains.answers.roles import (
    SmallEditor,
    SmallGenerator,
    SmallInterleaver,
    SmallWriter,
    drawn,
    picture,
    pipeline,
    question,
    questions,
    runner,
)

FREE = AnswerPlan()


def _write(text: str) -> SmallWriter:
    """A writer that gives everyone this text."""
    return SmallWriter(lambda _, __: text)


def _steps(own: SampleAnswer) -> list[tuple[str, bool]]:
    """Text and whether there is an image, of each step."""
    assert own.answer is not None
    return [(step.text, step.image is not None) for step in own.answer.steps]


def _answers(made: list[SampleAnswer]) -> dict[str, Answer | None]:
    return {own.sample.id: own.answer for own in made}


def _interleaver(store: Store, model: SmallInterleaver, **changes: Any) -> AnswerModels:
    return AnswerModels(store, runner(store, "interleaver", model, **changes))


# -- the texts of a writer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told", "parts", "cut"),
    [
        ("one<IMG>two<IMG>", None, [("one", True), ("two", True)], 0),
        (
            "one <IMG> two <IMG> the end",
            None,
            [("one", True), ("two", True), ("the end", False)],
            0,
        ),
        ("no marker", None, [("no marker", False)], 0),
        (" <IMG>\n<IMG>one<IMG>", None, [("one", True)], 0),
        ("one<IMG>two", 2, [("one", True), ("two", True)], 0),
        ("one<IMG>two<IMG>three<IMG>", 2, [("one", True), ("two", True), ("three", False)], 0),
        ("one<IMG>", 3, [("one", True)], 0),
        ("<IMG>".join("abcdefghijkl"), None, [(letter, True) for letter in "abcdefghij"], 2),
        ("<IMG>".join("abcdefghijkl"), 10, [(letter, True) for letter in "abcdefghij"], 2),
        (" \n<IMG> ", None, [], 0),
    ],
)
def test_a_text_becomes_steps(
    text: str, told: int | None, parts: list[tuple[str, bool]], cut: int
) -> None:
    """Steps end at the marker; where a number was told, so many of them are to be drawn."""
    assert parts_of(text, StepLimit(told, 10)) == (parts, cut)


def test_every_step_that_ends_in_a_marker_is_drawn(store: Store) -> None:
    """From its text alone; what stands after the last image is a step without one. Reasoning is
    none, and neither are its markers of images. The writer has the system prompt; step and question
    stand where the suite puts them, once.
    """
    writer = _write("<think>a <IMG> b</think>one <IMG> two <IMG> the end")
    generator = SmallGenerator()
    (own,) = make_answers(FREE, [question(0)], pipeline(store, writer, generator))
    assert _steps(own) == [("one", True), ("two", True), ("the end", False)]
    assert generator.asked == ["one", "two"]
    assert get_answers(store, [own.digest]) == {own.digest: own.answer}

    writer, generator = _write("a {question} of {step}<IMG>"), SmallGenerator()
    plan = AnswerPlan(system="be brief", image="draw {step} ({question})")
    make_answers(plan, [question(0)], pipeline(store, writer, generator))
    assert writer.asked[0].startswith("be brief|question 0|")
    assert generator.asked == ["draw a {question} of {step} (question 0)"]


def test_the_reference_answers_number_is_told(store: Store) -> None:
    """Before the question; so many steps have an image and the surplus keeps its text. Without one
    there is none to tell, which is said and not made up.
    """
    writer = SmallWriter(lambda _, __: "one<IMG>two<IMG>three<IMG>")
    plan = AnswerPlan(steps="gold")
    (own,) = make_answers(plan, [question(0, gold=2)], pipeline(store, writer, SmallGenerator()))
    assert writer.asked[0].startswith(
        "The number of generated text-image pairs can be 2: |question"
    )
    assert _steps(own) == [("one", True), ("two", True), ("three", False)]
    with pytest.raises(DatasetError, match="q00: has no reference answer"):
        make_answers(plan, [question(0)], pipeline(store, writer, SmallGenerator()))


def test_a_text_without_steps_is_no_answer(store: Store) -> None:
    """Nor is a refusal: the writer is to blame, and the other answers stand."""
    texts = {"question 0": " <IMG> ", "question 1": Failure("refused", "no"), "question 2": "one"}
    writer = SmallWriter(lambda pieces, _: texts[str(pieces[0])])
    made = make_answers(FREE, questions(3), pipeline(store, writer, SmallGenerator()))
    blank, refused, answered = made
    assert (blank.blamed, blank.failure) == (
        "writer",
        Failure("empty-text", "the writer's text has no step"),
    )
    assert (refused.blamed, refused.failure) == ("writer", Failure("refused", "no"))
    assert (blank.answer, refused.answer) == (None, None)
    assert _steps(answered) == [("one", False)]


def test_lost_images_are_counted_by_kind(store: Store) -> None:
    """A step whose image failed keeps its text."""
    black = np.zeros((6, 8, 3), np.uint8)
    images = {"one": black, "two": Failure("refused", "no"), "three": noise(6, 8, seed=1)}
    generator = SmallGenerator(lambda text, _: images[text])
    models = pipeline(store, _write("one<IMG>two<IMG>three<IMG>"), generator)
    (own,) = make_answers(FREE, [question(0)], models)
    assert [failure.kind for failure in own.lost_images] == ["blank-image", "refused"]
    assert all(failure.detail.startswith("generator: ") for failure in own.lost_images)
    assert _steps(own) == [("one", False), ("two", False), ("three", True)]


# -- what is asked once ----------------------------------------------------------------------------


def test_a_new_generator_finds_every_text(store: Store) -> None:
    """The writer's part is stored by itself, so attributing a drop costs drawings alone."""
    writer = SmallWriter()
    before = make_answers(FREE, questions(5), pipeline(store, writer, SmallGenerator()))
    assert len(writer.asked) == 5
    models = AnswerModels(
        store,
        writer=runner(store, "writer", writer),
        generator=runner(
            store, "generator", SmallGenerator(lambda *parts: picture(("new", *parts))),
            fingerprint="weights-2",
        ),
    )  # fmt: skip
    after = make_answers(FREE, questions(5), models)
    assert len(writer.asked) == 5
    assert [_steps(own) for own in after] == [_steps(own) for own in before]
    assert all(a.digest != b.digest for a, b in zip(after, before, strict=True))


def test_a_second_run_asks_nothing(store: Store) -> None:
    """Neither writer and editor, whose questions have an image to begin with, nor interleaver."""
    kinds: list[list[Any]] = [[SmallWriter, SmallGenerator, SmallEditor], [SmallInterleaver]]
    for own in kinds:
        made = []
        for asks in (True, False):
            parts = [kind() for kind in own]
            models = pipeline(store, *parts) if len(parts) > 1 else _interleaver(store, *parts)
            made.append(_answers(make_answers(FREE, questions(3), models)))
            assert [bool(part.asked) for part in (parts[0], parts[-1])] == [asks] * 2
        assert made[0] == made[1]


@pytest.mark.parametrize("steps", ["free", "gold"])
def test_batches_change_no_answer(tmp_path: Any, steps: Any) -> None:
    """Of a pipeline with an editor, and of an interleaver: in batches of one and of eight."""
    samples = [*questions(9, gold=2), *(question(k, gold=2, image=False) for k in range(9, 12))]
    made = []
    for size in (1, 8):
        with Store(tmp_path / str(size)) as store:
            parts = (SmallWriter(), SmallGenerator(), SmallEditor())
            plan = AnswerPlan(steps=steps)
            composed = make_answers(plan, samples, pipeline(store, *parts, batch_size=size))
            alone = make_answers(
                plan, samples, _interleaver(store, SmallInterleaver(), batch_size=size)
            )
            assert max(parts[0].batches) == size
            made.append((_answers(composed), _answers(alone)))
    assert made[0] == made[1]


# -- editing ---------------------------------------------------------------------------------------


def test_an_editor_changes_the_image_before(store: Store) -> None:
    """The question's first image, then each step's own; texts as the suite words them."""
    sample = Sample("q", ("c",), question=(drawn("first"), "and", drawn("second")))
    editor, generator = SmallEditor(), SmallGenerator()
    models = pipeline(store, _write("one<IMG>two<IMG>three<IMG>end"), generator, editor)
    (own,) = make_answers(AnswerPlan(edit="change: {step}"), [sample], models)
    assert own.answer is not None
    first = drawn("first").load().digest
    before = [first, *own.answer.images[:2]]
    assert editor.asked == [
        (image, f"change: {text}")
        for image, text in zip(before, ("one", "two", "three"), strict=True)
    ]
    assert generator.asked == []


def test_where_there_is_no_image_the_first_is_drawn(store: Store) -> None:
    """By the generator; the editor goes on from it, also over a step whose image was lost."""
    generator = SmallGenerator()
    editor = SmallEditor(
        lambda image, text, seed: (
            Failure("refused", "no") if text == "two" else picture((image, text, seed))
        )
    )
    models = pipeline(store, _write("one<IMG>two<IMG>three<IMG>"), generator, editor)
    (own,) = make_answers(FREE, [question(0, image=False)], models)
    assert own.answer is not None
    assert generator.asked == ["one"]
    assert editor.asked == [(own.answer.images[0], "two"), (own.answer.images[0], "three")]
    assert _steps(own) == [("one", True), ("two", False), ("three", True)]
    assert [failure.detail for failure in own.lost_images] == ["editor: no"]


# -- one model for texts and images ----------------------------------------------------------------


def test_an_interleaver_that_goes_on_is_cut_and_its_reasoning_is_no_step(store: Store) -> None:
    """After as many steps as an answer may have. Reasoning counts for nothing, images in it
    neither; the answer is known by what is left of it.
    """
    thoughts = [AnswerStep("<think>draft", picture(1)), AnswerStep("another</think>")]
    model = SmallInterleaver(
        lambda _, limit, __: [*thoughts, *(AnswerStep(str(k)) for k in range(limit.most + 3))]
    )
    for _ in range(2):  # from the model, then from the store
        (own,) = make_answers(AnswerPlan(most=4), [question(0)], _interleaver(store, model))
        assert (_steps(own), own.cut) == ([(str(k), False) for k in range(4)], 3)
        assert own.digest in get_answers(store, [own.digest])
        (whole,) = store.get(own.keys).values()
        assert "draft" in str(whole)
    assert len(model.asked) == 1

    thinker = SmallInterleaver(lambda *_: [AnswerStep("<think>"), AnswerStep("", picture(1))])
    (own,) = make_answers(FREE, [question(1)], _interleaver(store, thinker))
    assert own.failure is not None
    assert (own.failure.kind, own.blamed) == ("only-reasoning", "interleaver")


def test_steps_of_nothing_are_none_and_bad_images_are_left_out(store: Store) -> None:
    """A step keeps its text without its image; nothing at all is a failure, blamed on the model."""
    black = np.zeros((6, 8, 3), np.uint8)
    nan = np.full((6, 8, 3), np.nan)
    steps = {
        "question 0": [AnswerStep("kept", black), AnswerStep(" "), AnswerStep(image=picture(1))],
        "question 1": [AnswerStep("", nan)],
        "question 2": [],
        "question 3": Failure("refused", "no"),
    }
    model = SmallInterleaver(lambda pieces, _, __: steps[str(pieces[0])])
    kept, lost, nothing, refused = make_answers(FREE, questions(4), _interleaver(store, model))
    assert _steps(kept) == [("kept", False), ("", True)]
    again = make_answers(FREE, questions(4), _interleaver(store, model))[0]
    assert [[lost.kind for lost in own.lost_images] for own in (kept, again)] == [
        ["blank-image"]
    ] * 2
    failures = [own.failure.kind for own in (lost, nothing, refused) if own.failure is not None]
    assert failures == ["nan-image", "empty-text", "refused"]
    assert {own.blamed for own in (lost, nothing, refused)} == {"interleaver"}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("a text", "returns steps for each question"),
        (7, "returns steps for each question"),
        (["a text"], "are AnswerStep objects"),
        ([("text", None)], "are AnswerStep objects"),
        ([AnswerStep(b"bytes")], "are AnswerStep objects"),  # type: ignore[arg-type]
        ([AnswerStep("text", "no image")], "returns Pillow images or arrays"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_answer_is_the_models_mistake(store: Store, output: Any, message: str) -> None:
    """An error that stops the run, not a failure of the question."""
    model = SmallInterleaver(lambda _, __, ___: output)
    with pytest.raises(ModelError, match=message):
        make_answers(FREE, [question(0)], _interleaver(store, model))


# -- images that the store loses -------------------------------------------------------------------


def _models(store: Store, kind: str) -> AnswerModels:
    if kind == "interleaver":
        return _interleaver(store, SmallInterleaver())
    return pipeline(
        store, SmallWriter(), SmallGenerator(), SmallEditor() if kind == "editor" else None
    )


@pytest.mark.parametrize("kind", ["interleaver", "generator", "editor"])
@pytest.mark.parametrize("place", [0, 1])
def test_deleted_images_are_made_again(store: Store, kind: str, place: int) -> None:
    """The same answer, whole again, and the others are left as they are."""
    before = make_answers(FREE, questions(3), _models(store, kind))
    assert before[1].answer is not None
    store.artifact_path(before[1].answer.images[place]).unlink()
    store.artifact_cache.clear()
    after = make_answers(FREE, questions(3), _models(store, kind))
    assert _answers(after) == _answers(before)
    for own in after:
        assert own.answer is not None
        assert all(store.get_artifact(digest) is not None for digest in own.answer.images)


def test_a_damaged_image_under_an_edit_is_made_again(store: Store) -> None:
    """Where the next step is to be made of it: a new editor meets it before anything else does."""
    sample = question(0, image=False)
    parts = (SmallWriter(), SmallGenerator())
    (before,) = make_answers(FREE, [sample], pipeline(store, *parts, SmallEditor()))
    assert before.answer is not None
    store.artifact_path(before.answer.images[0]).write_bytes(b"no image")
    store.artifact_cache.clear()
    models = AnswerModels(
        store,
        writer=runner(store, "writer", parts[0]),
        generator=runner(store, "generator", parts[1]),
        editor=runner(store, "editor", SmallEditor(), fingerprint="weights-2"),
    )
    (after,) = make_answers(FREE, [sample], models)
    assert after.answer == before.answer
    assert store.get_artifact(before.answer.images[0]) is not None
    assert len(parts[0].asked) == 1
    assert parts[1].asked == [parts[1].asked[0]] * 2
