"""Local judges that score single answers: published architectures, built tiny, by likelihoods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerScorer, Reply
from pytest_cepbench.models.text_model.judge_prompts import LINE_LEADS
from tests.models.binding import bind_text
from tests.models.text_model.conftest import Build, Load, make_battles
from tests.tiny.common import pictures, skip_before

pytest.importorskip("torch", reason="local judges need the [models] extra")
pytest.importorskip("transformers", reason="local judges need the [models] extra")

pytestmark = pytest.mark.models


def make_answers() -> list[AnsweredQuestion]:
    """Eight answers of unequal length, with several images, with one and without any."""
    return [AnsweredQuestion(battle.question, battle.first) for battle in make_battles()]


def expected(replies: Sequence[Reply]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n, 7) expected scores."""
    return np.array([[reply.value.value(name) for name in CRITERIA] for reply in replies])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "qwen2-vl", "idefics3"])
def test_a_batch_gives_what_each_answer_alone_gives(load_judge: Load, name: str) -> None:
    """Padding, neighbours and the shared prompt change no score; no criterion fails."""
    judge, answers = load_judge(name), make_answers()

    together = judge.score_answers(answers, [0] * 8)
    alone = [judge.score_answers([answered], [5])[0] for answered in answers]

    assert np.abs(expected(together) - expected(alone)).max() < 1e-4
    assert [r.value.by_criterion["quality"].score for r in together] == [
        r.value.by_criterion["quality"].score for r in alone
    ]
    assert not together[0].remarks
    assert np.ptp(expected(together), axis=0).min() > 0
    assert isinstance(judge, AnswerScorer)


def test_scores_are_those_of_the_plain_model(load_judge: Load) -> None:
    """The distribution over the numbers after each title, read here one number at a time."""
    import torch

    judge, answered = load_judge("llava"), make_answers()[0]
    (reply,) = judge.score_answers([answered], [0])
    loaded = judge._loaded
    inputs = dict(judge._conversations.inputs([judge._answer_conversation(answered)]))
    for lead, name in zip(LINE_LEADS, CRITERIA, strict=True):
        logarithms = []
        for number in range(11):
            tokens = loaded.tokenizer(
                f"{lead}{number}", add_special_tokens=False, return_tensors="pt"
            ).input_ids
            whole = dict(inputs)
            whole["input_ids"] = torch.cat([inputs["input_ids"], tokens], 1)
            whole["attention_mask"] = torch.ones_like(whole["input_ids"])
            with torch.inference_mode():
                logits = loaded.model(**whole).logits.log_softmax(-1)
            logarithms.append(float(logits[0, -2, tokens[0, -1]]))
        chances = np.exp(logarithms) / np.exp(logarithms).sum()
        result = reply.value.by_criterion[name]
        assert result.expected == pytest.approx(chances @ np.arange(11), abs=1e-4)
        assert result.score == int(np.argmax(chances))


def test_images_are_read_once_for_all_criteria(load_judge: Load) -> None:
    """They are most of an answer's tokens, and most of its time."""
    skip_before("a cache that images are kept in", "transformers", "5.0")
    judge, answers = load_judge("llava"), make_answers()
    judge.score_answers(answers[:1], [0])  # which compares the two ways once
    read: list[int] = []
    tower = judge._loaded.model.model.vision_tower
    tower.register_forward_hook(lambda _module, inputs, output: read.append(len(output[0])))

    judge.score_answers(answers, [0] * 8)

    pieces = [piece for a in answers for part in (a.question, a.answer) for piece in part]
    assert sum(read) == sum(not isinstance(piece, str) for piece in pieces)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "qwen2-vl"])
def test_a_model_that_cannot_be_batched_scores_one_by_one(load_judge: Load, name: str) -> None:
    """The same scores by the plain way, and the run says that it was taken."""
    judge, answers = load_judge(name), make_answers()
    batched = judge.score_answers(answers, [0] * 8)
    scorer, _ = judge._number_scorer
    judge.__dict__["_number_scorer"] = (scorer, False)
    alone = judge.score_answers(answers, [0] * 8)

    assert np.abs(expected(alone) - expected(batched)).max() < 1e-4
    assert "one answer at a time, each of them seven times" in alone[0].remarks[0]


@pytest.mark.slow
def test_a_score_depends_on_all_that_is_shown(load_judge: Load) -> None:
    """Question, answer, images and their layout reach the model; words for verdicts do not."""
    red, green, _ = pictures()
    answers = [
        AnsweredQuestion(["a", red], ["red", red]),
        AnsweredQuestion(["is", red], ["red", red]),
        AnsweredQuestion(["a", red], ["blue", red]),
        AnsweredQuestion(["a", red], ["red", green]),
    ]
    shown = expected(load_judge("qwen2-vl").score_answers(answers, [0] * 4))
    numbered = expected(
        load_judge("qwen2-vl", "prompt=opening-gpt").score_answers(answers[:1], [0])
    )
    briefed = expected(
        load_judge("qwen2-vl", "system_prompt=be brief").score_answers(answers[:1], [0])
    )

    different = np.concatenate([shown, numbered])
    assert len(np.unique(different.round(5), axis=0)) == 5
    assert np.abs(briefed - shown[:1]).max() < 1e-4


def test_an_answer_longer_than_the_model_reads_is_a_failure(load_judge: Load) -> None:
    """Cut, it would be another answer; its neighbours are scored."""
    judge, short = load_judge("llava"), make_answers()[3]
    long, fits = judge.score_answers([AnsweredQuestion(["a " * 600], ["b"]), short], [0, 0])

    assert isinstance(long.value, Failure)
    assert "the answer has" in long.value.detail
    assert fits.value == judge.score_answers([short], [0])[0].value


def test_a_vocabulary_without_numbers_gives_verdicts_alone(tmp_path: Path) -> None:
    """A judge of battles is not refused for what nobody asks of it; scores are one clear line."""
    from tests.tiny.common import JUDGE_WORDS
    from tests.tiny.describers import build_llava

    words = [word for word in JUDGE_WORDS if not word.isdigit()]
    judge: Any = bind_text(f"{build_llava(tmp_path / 'm', words=words)}?device=cpu", "judge").load()

    assert len(judge.judge(make_battles(), [0] * 8)) == 8
    with pytest.raises(CheckpointError, match="same tokens for several of the numbers 0 to 10"):
        judge.score_answers(make_answers(), [0] * 8)


def test_the_binding_says_that_answers_can_be_scored(tiny_judge: Build) -> None:
    """Before the model is loaded, so that a suite that wants scores can refuse other judges."""
    assert bind_text(f"{tiny_judge('llava')}?device=cpu", "judge").scores_answers
    assert not bind_text(f"{tiny_judge('llava')}?device=cpu", "describer").scores_answers
