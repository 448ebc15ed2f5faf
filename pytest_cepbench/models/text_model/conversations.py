"""Conversations that a local judge or VQA model reads, made of texts and images; likelihoods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import (
    CheckpointError,
    ModelError,
    SpecError,
    is_own_bug,
    named_error,
)
from pytest_cepbench.models.checkpoints.binding import ImageTextParams, LoadPlan
from pytest_cepbench.models.checkpoints.placement import input_device
from pytest_cepbench.models.protocols import FloatArray, Piece
from pytest_cepbench.models.spec import check_at_least
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS, break_up
from pytest_cepbench.models.text_model.likelihood import Scorer
from pytest_cepbench.models.text_model.loading import LoadedDescriber
from pytest_cepbench.models.text_model.parameters import has_chat_template
from pytest_cepbench.models.text_model.text_generation import chat_inputs, chat_turn
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet

Conversation = list[dict[str, Any]]
"""Turns as chat templates take them."""


@dataclass(frozen=True)
class ConversationParams(ImageTextParams):
    """Parameters of the spec of a local judge or VQA model, with those of `ImageTextParams`.

    system_prompt: of a judge in the place of its prompt's own, of a VQA model before each question.
    max_pixels: larger images are made smaller, to at most so many pixels; None leaves them to the
        checkpoint's own processor.
    Raises ValueError for values out of range.
    """

    system_prompt: str | None = None
    max_pixels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_pixels")

    @property
    def decisive(self) -> dict[str, Any]:
        """With system prompt and pixels, where they are given."""
        optional = {"system_prompt": self.system_prompt, "max_pixels": self.max_pixels}
        given = {name: value for name, value in optional.items() if value is not None}
        return {**super().decisive, **given}


def check_chat(plan: LoadPlan[Any]) -> None:
    """Raise SpecError for a checkpoint that can be shown no conversation."""
    if not has_chat_template(plan.checkpoint):
        asks = plan.role == "vqa"
        raise SpecError(
            f"{plan.spec.text!r} cannot be the {'VQA model' if asks else 'judge'}: "
            f"{plan.checkpoint.what} has no chat template, so "
            f"{'a question has' if asks else 'question and answers have'} no place. Give a chat "
            f"model that reads {'images' if asks else 'several images'}"
        )


class JudgeConversations:
    """Builds conversations for a loaded checkpoint, and reads them."""

    def __init__(self, plan: LoadPlan[Any], loaded: LoadedDescriber) -> None:
        self._plan = plan
        self._loaded = loaded
        self._controls = _control_tokens(loaded)

    def turns(self, pieces: Sequence[Piece], system: str) -> Conversation:
        """A system prompt, where there is one, and a message of texts and images.

        Control tokens in them are broken up: an answer must not end the judge's turn with its
        words, or claim an image. transformers can do it too (`sanitize_control_tokens`), but not
        for every processor.
        """
        turns = [chat_turn("user", break_up(self._controls, pieces))]
        return [chat_turn("system", [system]), *turns] if system else turns

    def inputs(self, conversations: Sequence[Conversation]) -> Any:
        """What the processor makes of them, padded on the left."""
        loaded = self._loaded
        inputs = chat_inputs(loaded, conversations)
        return inputs.to(input_device(loaded.model), loaded.model.dtype)

    def likelihoods(
        self, conversations: Sequence[Conversation], scorer: Scorer, *, batched: bool, what: str
    ) -> list[FloatArray | Failure]:
        """The scorer's likelihoods of each; a failure for one that is longer than the model reads.

        batched: whether they go together, each read once.
        what: a conversation is about, for people.
        Raises ModelError where a likelihood is not a number.
        """
        results: dict[int, FloatArray | Failure] = {}
        # Several processors take a batch in which each conversation has images, or none.
        for illustrated in (True, False):
            rows = [i for i, parts in enumerate(conversations) if has_image(parts) == illustrated]
            batches = [rows] if batched else [[row] for row in rows]
            for batch in filter(None, batches):
                chosen = [conversations[row] for row in batch]
                read = self._likelihoods(chosen, scorer, batched=batched, what=what)
                results |= zip(batch, read, strict=True)
        return [results[row] for row in range(len(conversations))]

    def _likelihoods(
        self, conversations: Sequence[Conversation], scorer: Scorer, *, batched: bool, what: str
    ) -> list[FloatArray | Failure]:
        import torch

        with quiet(), torch.inference_mode():
            inputs = self.inputs(conversations)
            failures = self._too_long(inputs, scorer.longest, what)
            fitting = [c for i, c in enumerate(conversations) if i not in failures]
            if failures and fitting:
                inputs = self.inputs(fitting)
            score = scorer.score if batched else scorer.score_whole
            scores: FloatArray = score(inputs) if fitting else np.empty(0)
        if np.isnan(scores).any():
            raise ModelError(
                f"{self._plan.checkpoint.path}: the likelihood of {self._wanted} is not a "
                f"number in {self._plan.dtype}. Give a dtype that holds the model's values, such "
                "as bfloat16"
            )
        rows: Iterator[FloatArray] = iter(scores)
        return [failures[i] if i in failures else next(rows) for i in range(len(conversations))]

    def _too_long(self, inputs: Any, room: int, what: str) -> dict[int, Failure]:
        """Failures by row: cut, a conversation would be another one."""
        positions = self._loaded.positions
        if positions is None:
            return {}
        most = positions - room
        lengths = inputs["attention_mask"].sum(1).tolist()
        return {
            row: Failure(
                "exception",
                f"the {what} has {length} tokens, and the model reads {most}: make its images "
                "smaller (max_pixels)",
            )
            for row, length in enumerate(lengths)
            if length > most
        }

    def check_order(self) -> None:
        """Raise CheckpointError where nothing would say to which answer an image belongs."""
        loaded = self._loaded
        marker = getattr(loaded.processor, "image_token", None)
        if not marker or JUDGE_PROMPTS[self._plan.params.prompt].numbered:
            return
        image = Image.new("RGB", (8, 8))
        text: str = loaded.processor.apply_chat_template(
            [chat_turn("user", ["before", image, "between", image, "after"])],
            chat_template=loaded.chat_template,
            add_generation_prompt=True,
        )
        places = [
            text.find("before"),
            text.find(marker),
            text.find("between"),
            text.rfind(marker),
            text.find("after"),
        ]
        if places != sorted(places):
            numbered = " or ".join(
                f"prompt={name}" for name, prompt in JUDGE_PROMPTS.items() if prompt.numbered
            )
            raise CheckpointError(
                f"{self._plan.checkpoint.path}: its chat template takes images out of their places "
                f"between texts, so nothing says to which answer one belongs. Add {numbered}, "
                "whose texts number the images"
            )

    def reads_prompts_once(self, probes: Sequence[Sequence[Conversation]], scorer: Scorer) -> bool:
        """Whether a padded batch whose prompts are read once gives what each of them alone gives.

        probes: batches of conversations of unequal length, the ones with images first.
        Raises ModelError for a model that cannot be shown a conversation with images.
        """
        import torch

        with quiet(), torch.inference_mode():
            for conversations in probes:
                try:
                    inputs = [self.inputs([conversation]) for conversation in conversations]
                    alone = np.concatenate([scorer.score_whole(single) for single in inputs])
                # Libraries raise what they like where a model takes no such input.
                except Exception as error:
                    if is_out_of_memory(error) or is_own_bug(error):
                        raise
                    if has_image(conversations[0]):
                        raise ModelError(self._no_judge(error)) from error
                    continue  # it reads no conversation without an image
                if not self._agrees(conversations, alone, scorer):
                    return False
        return True

    def _agrees(
        self, conversations: Sequence[Conversation], alone: FloatArray, scorer: Scorer
    ) -> bool:
        try:
            together = scorer.score(self.inputs(conversations))
        except Exception as error:  # as above, where a cache cannot be shared
            if is_out_of_memory(error) or is_own_bug(error):
                raise
            return False
        tolerance = scorer.tolerances[self._plan.dtype != "float32"]
        return bool(np.allclose(together, alone, rtol=0.0, atol=tolerance))

    @property
    def _wanted(self) -> str:
        return "an answer" if self._plan.role == "vqa" else "a verdict or score"

    def _no_judge(self, error: Exception) -> str:
        asks = self._plan.role == "vqa"
        role = "VQA model" if asks else "judge"
        shown = "an image and a question" if asks else "a question and two answers"
        what = "images" if asks else "several images"
        return (
            f"{self._plan.checkpoint.path}: {self._plan.checkpoint.what} cannot be the {role}: "
            f"shown {shown} it failed: {named_error(error)}. Give a chat model that "
            f"reads {what}"
        )


def has_image(conversation: Conversation) -> bool:
    """True for a conversation with an image in one of its turns."""
    return any(part["type"] == "image" for turn in conversation for part in turn["content"])


def _control_tokens(loaded: LoadedDescriber) -> re.Pattern[str]:
    added = loaded.tokenizer.added_tokens_decoder.values()
    tokens = {token.content for token in added if token.special or token.content.startswith("<")}
    tokens |= {getattr(loaded.processor, "image_token", None)}
    longest_first = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
