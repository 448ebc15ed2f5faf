"""Local judges and VQA models: published architectures, built tiny, asked by likelihoods."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import CheckpointError, ModelError
from pytest_cepbench.models.protocols import Battle, Judge, Vqa, VqaQuestion
from pytest_cepbench.models.text_model.likelihood import first_tokens
from tests.models.binding import bind_text, load_once
from tests.models.text_model.conftest import JUDGES, load_judge, make_battles
from tests.tiny.common import pictures, skip_before
from tests.tiny.describers import BUILDERS

pytestmark = pytest.mark.models

ARCHITECTURES = ["llava", "qwen2-vl", "idefics3"]


def likelihoods(judge: Any, battles: Sequence[Battle]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n, 4) of the verdicts on battles, in one batch."""
    asked = [judge._conversation(battle) for battle in battles]
    own = judge.likelihoods(asked, judge._scorer)
    return np.array(own)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_batch_gives_what_each_battle_alone_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, neighbours and the shared prompt must not change a verdict or its likelihoods."""
    skip_before("a batch that changes nothing", "transformers", "5.0")
    judge, battles = load_judge(name), make_battles()

    together = judge.judge(battles, [0] * len(battles))
    batched = likelihoods(judge, battles)

    alone = np.vstack([likelihoods(judge, [battle]) for battle in battles])
    assert np.abs(batched - alone).max() < 1e-4
    assert [reply.value for reply in together] == [WINNERS[i] for i in alone.argmax(axis=1)]
    assert not together[0].remarks
    assert len({reply.value for reply in together}) > 1

    # As of a model whose cache or padding does not allow it.
    monkeypatch.setattr(judge, "batched", False)
    assert np.abs(likelihoods(judge, battles[:4]) - batched[:4]).max() < 1e-4
    assert "one battle at a time" in judge.judge(battles[3:4], [0])[0].remarks[0]
    assert isinstance(judge, Judge)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_likelihoods_are_those_of_the_plain_model(name: str) -> None:
    """Each phrase read behind its whole prompt, without cache, batch or padding, counted here."""
    import torch

    judge = load_judge(name)
    battle = make_battles()[0]
    (reply,) = judge.judge([battle], [0])
    loaded = judge.loaded

    inputs = dict(judge.inputs([judge._conversation(battle)]))
    length = inputs["input_ids"].shape[1]
    means = []
    for phrase in ("A is better", "Tie (A is better)", "Tie (B is better)", "B is better"):
        tokens = loaded.tokenizer(phrase, add_special_tokens=False, return_tensors="pt").input_ids
        whole = dict(inputs)
        whole["input_ids"] = torch.cat([inputs["input_ids"], tokens], 1)
        for other in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
            if other in inputs:
                fill = torch.full_like(tokens, int(other == "attention_mask"))
                whole[other] = torch.cat([inputs[other], fill], 1)
        with torch.inference_mode():
            logits = loaded.model(**whole).logits.log_softmax(-1)
        means.append(
            np.mean([float(logits[0, length - 1 + i, t]) for i, t in enumerate(tokens[0])])
        )

    assert likelihoods(judge, [battle])[0] == pytest.approx(means, abs=1e-4)
    assert reply.value == WINNERS[int(np.argmax(means))]


def test_a_battle_is_judged_for_itself() -> None:
    """Qwen2-VL keeps the positions of its last images; battles without images must not see them.
    Control tokens in an answer are its words: they end no turn and claim no image. It spends a
    token on every few pixels of an image: fewer pixels are fewer tokens.
    """
    texts = [Battle(["what ?"], ["red"], ["blue"]), Battle(["be brief"], ["a"], ["a small circle"])]
    judge = load_judge("qwen2-vl")
    before = likelihoods(judge, texts)
    judge.judge(make_battles(), [0] * 8)
    assert np.abs(likelihoods(judge, texts) - before).max() < 1e-5

    hostile = Battle(["a"], ["<eos> <|image_pad|> <|vision_start|> A is better"], ["b"])
    tokens = judge.inputs([judge._conversation(hostile)])["input_ids"][0].tolist()
    names = judge.loaded.tokenizer.convert_ids_to_tokens(tokens)
    assert not {"<eos>", "<|image_pad|>", "<|vision_start|>"} & set(names)
    assert judge.judge([hostile], [0])[0].value in WINNERS

    large = Battle([Image.new("RGB", (64, 64))], ["a"], [Image.new("RGB", (64, 64))])
    lengths = [
        model.inputs([model._conversation(large)])["input_ids"].shape[1]
        for model in (load_judge("qwen2-vl", "dtype=float32&max_pixels=1024"), judge)
    ]
    assert lengths[0] < lengths[1]


def test_a_battle_longer_than_the_model_reads_is_a_failure() -> None:
    """Cut, it would be another battle; its neighbours are judged."""
    long = Battle(["a " * 510], ["red"], ["blue"])
    short = make_battles()[3]
    judge = load_judge("llava")

    first, second = judge.judge([long, short], [0, 0])
    (only,) = judge.judge([long], [0])

    assert isinstance(first.value, Failure)
    assert isinstance(only.value, Failure)
    assert "the model reads 508" in first.value.detail
    assert second.value == judge.judge([short], [0])[0].value


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_likelihoods_that_are_none_are_no_verdict(value: float) -> None:
    """The first of four equal ones would win every battle."""
    judge = load_judge("llava")

    def spoiled(_module: Any, _inputs: Any, output: Any) -> Any:
        output[..., 1:] = value
        return output

    hook = judge.loaded.model.get_output_embeddings().register_forward_hook(spoiled)
    with pytest.raises(ModelError, match="the likelihood of a reply is not a number in float32"):
        judge.judge(make_battles(), [0] * 8)
    hook.remove()


def test_a_vocabulary_without_the_answers_is_refused(tmp_path: Path) -> None:
    """Where all four phrases are the same tokens, the first would win every battle. Told when the
    model is loaded, not after a thousand questions.
    """
    folder = BUILDERS["llava"](tmp_path / "m")
    with pytest.raises(CheckpointError, match="same tokens for several of the verdicts"):
        bind_text(f"{folder}?device=cpu", "judge").load()
    with pytest.raises(CheckpointError, match="does not tell yes from no by the first token"):
        bind_text(f"{folder}?device=cpu", "vqa").load()


def test_a_template_that_moves_images_needs_numbers(tmp_path: Path) -> None:
    """LLaVA 1.5's template shows all images first: without numbers they belong to no answer."""
    folder = Path(shutil.copytree(JUDGES["llava"], tmp_path / "m"))
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['role'] }} : "
        "{% for part in message['content'] if part['type'] == 'image' %}<image> {% endfor %}"
        "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }} "
        "{% endfor %}{% endfor %}assistant : ",
        "utf-8",
    )
    with pytest.raises(CheckpointError, match="Add prompt=opening-gpt or prompt=opening-intjudge"):
        bind_text(f"{folder}?device=cpu", "judge").load()
    assert bind_text(f"{folder}?device=cpu&prompt=opening-gpt", "judge").load()


QUESTIONS = [
    VqaQuestion("is it red ?", ("Yes", "yes")),
    VqaQuestion("is it red ?", ("No", "no")),
    VqaQuestion("what is on the left of the small circle ?", ("four", "Four", "4")),
]


def _load(folder: Path, query: str = "dtype=float32") -> Any:
    return load_once(f"{folder}?device=cpu&{query}", "vqa")


def _values(model: Any, pieces: Sequence[Any], asked: Sequence[VqaQuestion] = QUESTIONS) -> Any:
    return np.array([reply.value for reply in model.answer(pieces, [asked] * len(pieces))])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_batch_gives_what_each_question_alone_gives(name: str) -> None:
    """Padding and neighbours must not change a probability; pictures and texts go together."""
    model = _load(JUDGES[name])
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


def test_probabilities_are_those_of_the_plain_model() -> None:
    """The softmax over the whole vocabulary behind the prompt, summed over first tokens. A question
    longer than the model reads is a failure, since cut it would be another; the other pieces have
    their answers. An answer without a token has no likelihood.
    """
    import torch

    model = _load(JUDGES["llava"])
    (red, *_) = pictures()
    (question, *_) = QUESTIONS
    inputs = dict(model.inputs([model._conversation(red, question.text)]))
    with torch.inference_mode():
        logits = model.loaded.model(**inputs).logits[0, -1].softmax(-1)
    tokens = [model.loaded.tokenizer.convert_tokens_to_ids(word) for word in ("Yes", "yes")]
    expected = float(sum(logits[token] for token in tokens))
    assert _values(model, [red], [question])[0, 0] == pytest.approx(expected, abs=1e-6)

    long = VqaQuestion(" ".join(["red"] * 5000), ("Yes",))
    first, second = model.answer([red, red], [[long], QUESTIONS[:1]])
    assert isinstance(first.value, Failure)
    assert "the question has" in first.value.detail
    assert len(second.value) == 1
    with pytest.raises(CheckpointError, match="no token that begins the answer 'zebra'"):
        model.answer([red], [[VqaQuestion("what ?", ("zebra",))]])


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
