"""Answers in one sequence, by a tiny Emu3 with random weights."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import AnswerStep, Interleaver, Movable, Question, StepLimit
from pytest_cepbench.models.registry import bind
from tests.models.binding import CONTEXT, bind_text, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.models.interleavers.conftest import Load
from tests.tiny.common import pictures

pytest.importorskip("torch", reason="interleavers need the [models] extra")

pytestmark = pytest.mark.models

ONE, OTHER, _ = pictures()

QUESTIONS: tuple[Question, ...] = (
    ["describe the red circle"],
    ["what is shown ?", ONE],
    ["a small square"],
    [ONE, "and", OTHER, "what is left ?"],
    ["two large circle"],
    [OTHER, "what is on the top ?"],
    ["green"],
    [ONE, "what is shown ?"],
)
SAMPLED = "max_text_tokens=6&do_sample=true"

Shown = tuple[str, bytes | None]


def shown(answer: Any) -> list[Shown]:
    """An answer as texts and pixels."""
    (answer,) = plain([answer])
    assert not isinstance(answer, Failure), answer
    steps: Sequence[AnswerStep] = answer
    return [
        (step.text, step.image.tobytes() if isinstance(step.image, Image.Image) else None)
        for step in steps
    ]


def interleave(
    model: Interleaver, questions: Sequence[Question], limit: StepLimit, first_seed: int = 7
) -> list[list[Shown]]:
    """The answers, with seeds that count up."""
    seeds = range(first_seed, first_seed + len(questions))
    answers = model.interleave(questions, [limit] * len(questions), list(seeds))
    return [shown(answer) for answer in answers]


@pytest.mark.slow
def test_an_answer_depends_on_its_question_limit_and_seed_alone(load: Load) -> None:
    """In a batch of eight and alone the same to the last pixel; the caller's random state stays."""
    import torch

    model, limit = load("emu3", SAMPLED), StepLimit(most=3)
    before = torch.get_rng_state()

    together = interleave(model, QUESTIONS, limit)

    assert torch.equal(torch.get_rng_state(), before)
    alone = [interleave(model, [q], limit, 7 + i)[0] for i, q in enumerate(QUESTIONS)]
    assert together == alone
    assert together != interleave(model, QUESTIONS, limit, 107)
    assert len({len(answer) for answer in together}) > 1
    assert all(1 <= len(answer) <= 3 for answer in together)
    assert all(len(text.split()) <= 6 for answer in together for text, _ in answer)
    assert any(image for answer in together for _, image in answer)


@pytest.mark.slow
def test_a_told_number_of_steps_is_kept(load: Load) -> None:
    """Each step has an image, and limits of a batch may differ."""
    model = load("emu3", SAMPLED)
    limits = [StepLimit(1), StepLimit(3), StepLimit(4, most=2)]

    answers = model.interleave(QUESTIONS[:3], limits, [1, 2, 3])

    assert [len(shown(answer)) for answer in answers] == [1, 3, 2]
    assert all(image is not None for answer in answers for _, image in shown(answer))


def test_images_have_the_size_that_the_spec_says(load: Load) -> None:
    """In whole tokens of 8 pixels."""
    model = load("emu3", f"{SAMPLED}&image_ratio=2:1")
    assert isinstance(model, Movable)

    (answer,) = model.interleave(QUESTIONS[:1], [StepLimit(1)], [1])

    assert not isinstance(answer, Failure)
    (step,) = answer  # type: ignore[misc]
    assert isinstance(step.image, Image.Image)
    assert step.image.size == (48, 24)


@pytest.mark.slow
def test_greedy_answers_do_not_depend_on_the_seed(load: Load) -> None:
    """Neither words nor codes are drawn then."""
    model = load("emu3", "max_text_tokens=4&image_do_sample=false")

    first, second = (interleave(model, QUESTIONS[:2], StepLimit(2), seed) for seed in (1, 50))

    assert first == second


def test_scores_that_are_no_numbers_fail_their_own_answer(folders: dict[str, Path]) -> None:
    """An overflow on one question is a failure of that one."""
    model: Any = bind_text(f"{folders['emu3']}?image_area=1024&{SAMPLED}", "interleaver").load()
    number = model._tokenizer.convert_tokens_to_ids("square")
    # Never chosen itself: what it touches is the question that it stands in.
    model._vocabulary.words.copy_(
        model._vocabulary.words.where(model._vocabulary.words != number, number - 1)
    )
    model._model.get_input_embeddings().weight.data[number] = float("nan")

    good, bad = model.interleave([["red circle"], ["red square"]], [StepLimit(1)] * 2, [1, 2])

    assert len(shown(good)) == 1
    assert bad == Failure("exception", "the model's scores of the next word are not numbers")


def test_random_scores_give_whole_answers(load: Load) -> None:
    """Whatever the network says, images are whole, no more than allowed, and each answer ends."""
    import torch

    from pytest_cepbench.models.interleavers.answer_grammar import AnswerAutomaton, longest_answer
    from pytest_cepbench.models.interleavers.emu3_interleaver import TokenChooser

    model: Any = load("emu3", SAMPLED)
    vocabulary = model._vocabulary
    layout, rows = vocabulary.layout, int(model._model.config.text_config.vocab_size)
    source = torch.Generator().manual_seed(1)
    for most in (1, 2, 5):
        limits = [StepLimit(told, most) for told in (None, 1, None, most)]
        automata = [AnswerAutomaton(layout, vocabulary.end, limit, 6) for limit in limits]
        chooser = TokenChooser(automata, vocabulary, model._settings, [1, 2, 3, 4])
        ids = torch.zeros(4, 1, dtype=torch.long)
        for _ in range(longest_answer(layout, most, 6)):
            left = chooser(ids, torch.randn(4, rows, generator=source) * 9)
            assert (left.isfinite().sum(dim=1) == 1).all()
            ids = left.argmax(dim=1)[:, None]
        chooser.advance(ids[:, -1])
        counts = [sum(piece.kind == "image" for piece in state.pieces) for state in automata]
        assert all(state.ended for state in automata)
        assert all(count <= most for count in counts)
        assert (counts[1], counts[3]) == (1, most)
        steps = [model._steps(state, "") for state in automata]
        assert all(np.asarray(step.image).shape == (32, 32, 3) for step in steps[1])


def test_every_setting_that_decides_is_in_the_key(folders: dict[str, Path]) -> None:
    """Of words and of images apart, whatever the spec leaves open."""
    base = f"{folders['emu3']}?image_area=1024"

    plain = bind_text(base, "interleaver")

    assert plain.adapter == "transformers-interleaver/1"
    assert plain.params["text"] == {"do_sample": False}
    assert plain.params["image"]["top_k"] == 2048
    assert plain.seeded
    assert plain.shares == ""
    changed = bind_text(f"{base}&do_sample=true&top_k=3&max_text_tokens=9", "interleaver").params
    assert changed["text"] == {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 3}
    assert changed["max_text_tokens"] == 9
    assert not bind_text(f"{base}&image_do_sample=false", "interleaver").seeded
    assert bind_text(f"{base}&batch_size=2", "interleaver").identity == plain.identity


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("max_text_tokens=0", "max_text_tokens must be at least 1"),
        ("image_top_p=2", "image_top_p must be above 0"),
        ("top_k=3", "top_k acts on sampling only"),
        ("guidance_scale=3", "unknown parameter .*guidance_scale"),
        ("two_stage=true&max_text_tokens=9", "unknown parameter .*max_text_tokens"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    folders: dict[str, Path], query: str, message: str
) -> None:
    """At binding; those of the two ways to answer are not mixed."""
    with pytest.raises(SpecError, match=message):
        bind_text(f"{folders['emu3']}?{query}", "interleaver")


@pytest.mark.parametrize("family", ["janus", "emu3"])
def test_a_checkpoint_without_chat_template_is_refused(
    folders: dict[str, Path], tmp_path: Path, family: str
) -> None:
    """At binding: nothing else says how it is asked a question."""
    folder = Path(shutil.copytree(folders[family], tmp_path / family))
    (folder / "chat_template.jinja").unlink()

    with pytest.raises(CheckpointError, match="asked by its chat template, and there is none"):
        bind_text(str(folder), "interleaver")


def test_a_model_of_texts_alone_is_refused(tmp_path: Path) -> None:
    """Also where the user insists."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)

    with pytest.raises(RoleError, match="can be the describer or writer, not the interleaver"):
        bind_text(str(folder), "interleaver")
    with pytest.raises(RoleError, match="does not hold words and image tokens in one vocabulary"):
        bind(parse_spec(str(folder)), "interleaver", CONTEXT, force=True)
