"""Local VQA models: published architectures, built tiny, asked about pictures and texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.protocols import Vqa, VqaQuestion
from pytest_cepbench.models.text_model.likelihood import first_tokens
from tests.models.binding import bind_text
from tests.models.text_model.conftest import Build, build_once
from tests.tiny.common import JUDGE_WORDS, pictures
from tests.tiny.describers import BUILDERS

pytestmark = pytest.mark.models

WORDS = (*JUDGE_WORDS, "Yes", "yes", "No", "no", "four", "Four")

QUESTIONS = [
    VqaQuestion("is it red ?", ("Yes", "yes")),
    VqaQuestion("is it red ?", ("No", "no")),
    VqaQuestion("what is on the left of the small circle ?", ("four", "Four", "4")),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny VQA model by its architecture; built once, not to be changed."""
    return build_once(tmp_path_factory.mktemp("vqa"), BUILDERS, words=WORDS)


def _load(folder: Path, query: str = "dtype=float32") -> Any:
    return bind_text(f"{folder}?device=cpu&{query}", "vqa").load()


def _values(model: Any, pieces: Sequence[Any], asked: Sequence[VqaQuestion] = QUESTIONS) -> Any:
    return np.array([reply.value for reply in model.answer(pieces, [asked] * len(pieces))])


@pytest.mark.parametrize("name", ["llava", "qwen2-vl", "idefics3"])
def test_a_batch_gives_what_each_question_alone_gives(tiny: Build, name: str) -> None:
    """Padding and neighbours must not change a probability; pictures and texts go together."""
    model = _load(tiny(name))
    red, green, _ = pictures()
    pieces = [red, "a small red circle", green]
    together = _values(model, pieces)
    alone = [
        [_values(model, [piece], [question])[0, 0] for question in QUESTIONS] for piece in pieces
    ]
    assert together == pytest.approx(np.array(alone), abs=1e-5)
    assert isinstance(model, Vqa)
    assert ((together > 0) & (together < 1)).all()
    assert len(np.unique(together.round(7))) == together.size


def test_probabilities_are_those_of_the_plain_model(tiny: Build) -> None:
    """The softmax over the whole vocabulary behind the prompt, summed over first tokens."""
    import torch

    model = _load(tiny("llava"))
    (red, *_) = pictures()
    (question, *_) = QUESTIONS
    inputs = dict(model.inputs([model._conversation(red, question.text)]))
    with torch.inference_mode():
        logits = model.loaded.model(**inputs).logits[0, -1].softmax(-1)
    tokens = [model.loaded.tokenizer.convert_tokens_to_ids(word) for word in ("Yes", "yes")]
    expected = float(sum(logits[token] for token in tokens))
    assert _values(model, [red], [question])[0, 0] == pytest.approx(expected, abs=1e-6)


def test_a_question_longer_than_the_model_reads_is_a_failure(tiny: Build) -> None:
    """Cut it would be another question; the other pieces have their answers."""
    model = _load(tiny("llava"))
    (red, *_) = pictures()
    long = VqaQuestion(" ".join(["red"] * 5000), ("Yes",))
    first, second = model.answer([red, red], [[long], QUESTIONS[:1]])
    assert isinstance(first.value, Failure)
    assert "the question has" in first.value.detail
    assert len(second.value) == 1


def test_an_answer_without_a_token_is_named(tiny: Build) -> None:
    """No likelihood could tell it from others."""
    (red, *_) = pictures()
    with pytest.raises(CheckpointError, match="no token that begins the answer 'zebra'"):
        _load(tiny("llava")).answer([red], [[VqaQuestion("what ?", ("zebra",))]])


def test_a_tokenizer_without_yes_and_no_is_refused(tiny_judge: Build) -> None:
    """When the model is loaded, not after a thousand questions."""
    folder = tiny_judge("llava")
    with pytest.raises(CheckpointError, match="does not tell yes from no by the first token"):
        _load(folder)


def test_a_model_that_reads_no_images_is_refused(tmp_path: Path) -> None:
    """The error says what it is."""
    from tests.tiny.encoders import build_clip

    build_clip(tmp_path / "clip")
    with pytest.raises(RoleError, match="not the vqa"):
        bind_text(f"{tmp_path / 'clip'}?device=cpu", "vqa")


class _Pieces:
    """A tokenizer of word pieces, with a piece that is nothing but space, as some have."""

    unk_token_id = 0
    pieces = ("?", "\u2581", "4", "\u2581yes", "yes", "ye")

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        del add_special_tokens
        known = {
            "4": [1, 2], " 4": [1, 2], "yes": [4], " yes": [3], "yeti": [5], " yeti": [0],
        }  # fmt: skip
        return {"input_ids": known[text]}

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i].replace("\u2581", " ") for i in ids)


def test_tokens_of_space_and_of_unknown_words_begin_no_answer() -> None:
    """With them every answer would be as likely as any other."""
    assert first_tokens(_Pieces(), ["yes", "yeti"]) == {3, 4, 5}
    assert first_tokens(_Pieces(), ["4"]) == frozenset()
