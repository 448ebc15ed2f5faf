"""Conversations that a local judge or VQA model is shown, and the likelihoods of its replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ModelError, SpecError, is_own_bug, named_error
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.protocols import FloatArray, Piece
from pytest_cepbench.models.text_model.judge_prompts import break_up
from pytest_cepbench.models.text_model.likelihood import Scorer
from pytest_cepbench.models.text_model.loading import (
    Conversation,
    any_of,
    conversation,
    load_text_model,
)
from pytest_cepbench.models.text_model.parameters import ConversationParams, has_chat_template
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet

P = TypeVar("P", bound=ConversationParams)


@dataclass(frozen=True)
class _Words:
    """How messages speak of a role.

    name: of the role. shown: what it is shown. asked: the same as the subject of "no place".
    images: how many it has to read. reply: whose likelihood is read.
    """

    name: str
    shown: str
    asked: str
    images: str
    reply: str


_WORDS = {
    "judge": _Words(
        "judge", "a question and two answers", "question and answers have", "several images",
        "a verdict or score",
    ),
    "vqa": _Words(
        "VQA model", "an image and a question", "a question has", "images", "an answer"
    ),
}  # fmt: skip


def check_chat(plan: LoadPlan[Any]) -> None:
    """Raise SpecError for a checkpoint that can be shown no conversation."""
    if not has_chat_template(plan.checkpoint):
        words = _WORDS[plan.role]
        raise SpecError(
            f"{plan.spec.text!r} cannot be the {words.name}: {plan.checkpoint.what} has no chat "
            f"template, so {words.asked} no place. Give a chat model that reads {words.images}"
        )


class ConversationModel(Generic[P]):
    """A loaded model that reads conversations: holds the model and what prepares its inputs.

    loaded: both.
    """

    def __init__(self, plan: LoadPlan[P]) -> None:
        self._plan = plan
        self.loaded = loaded = load_text_model(plan, {"do_sample": False}, chat=True)
        added = loaded.tokenizer.added_tokens_decoder.values()
        controls = {t.content for t in added if t.special or t.content.startswith("<")}
        controls |= {getattr(loaded.processor, "image_token", None)}
        self._controls = any_of(filter(None, controls))

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.loaded.model.to(device)

    def turns(self, pieces: Sequence[Piece], system: str) -> Conversation:
        """A system prompt, where there is one, and a message of texts and images.

        Control tokens in them are broken up: an answer must not end the judge's turn with its
        words, or claim an image. transformers can do it too (`sanitize_control_tokens`), but not
        for every processor.
        """
        return conversation(break_up(self._controls, pieces), system)

    def inputs(self, conversations: Sequence[Conversation]) -> Any:
        """What the processor makes of them, padded on the left."""
        loaded = self.loaded
        return loaded.chat_inputs(conversations).to(loaded.device, loaded.model.dtype)

    def likelihoods(
        self, conversations: Sequence[Conversation], scorer: Scorer, *, batched: bool, what: str
    ) -> list[FloatArray | Failure]:
        """The scorer's likelihoods of each; a failure for one that is longer than the model reads.

        batched: whether they go together, each read once.
        what: a conversation is about, for people.
        Raises ModelError where a likelihood is not a number.
        """
        import torch

        results: dict[int, FloatArray | Failure] = {}
        # Several processors take a batch in which each conversation has images, or none.
        for illustrated in (True, False):
            rows = [i for i, own in enumerate(conversations) if has_image(own) == illustrated]
            for batch in filter(None, [rows] if batched else [[row] for row in rows]):
                with quiet(), torch.inference_mode():
                    inputs = self.inputs([conversations[row] for row in batch])
                    failures = self._too_long(batch, inputs, scorer.longest, what)
                    fitting = [row for row in batch if row not in failures]
                    if failures and fitting:
                        inputs = self.inputs([conversations[row] for row in fitting])
                    score = scorer.score if batched else scorer.score_whole
                    scores: FloatArray = score(inputs) if fitting else np.empty(0)
                if np.isnan(scores).any():
                    raise ModelError(
                        f"{self._plan.checkpoint.path}: the likelihood of "
                        f"{_WORDS[self._plan.role].reply} is not a number in {self._plan.dtype}. "
                        "Give a dtype that holds the model's values, such as bfloat16"
                    )
                results |= failures
                results |= zip(fitting, scores, strict=True)
        return [results[row] for row in range(len(conversations))]

    def _too_long(
        self, rows: Sequence[int], inputs: Any, room: int, what: str
    ) -> dict[int, Failure]:
        """Failures by row: cut, a conversation would be another one."""
        if self.loaded.positions is None:
            return {}
        most = self.loaded.positions - room
        return {
            row: Failure(
                "exception",
                f"the {what} has {length} tokens, and the model reads {most}: make its images "
                "smaller (max_pixels)",
            )
            for row, length in zip(rows, inputs["attention_mask"].sum(1).tolist(), strict=True)
            if length > most
        }

    def compare_ways(
        self, probes: Sequence[Sequence[Conversation]], scorer: Scorer
    ) -> tuple[bool, bool]:
        """Whether a padded batch whose prompts are read once gives what each of them alone gives,
        and whether the model reads conversations without an image.

        probes: batches of conversations of unequal length, the ones with images first.
        Raises ModelError for a model that cannot be shown a conversation with images.
        """
        import torch

        agrees = reads_texts = True
        for conversations in probes:
            try:
                with quiet(), torch.inference_mode():
                    alone = [scorer.score_whole(self.inputs([single])) for single in conversations]
            # Libraries raise what they like where a model takes no such input.
            except Exception as error:
                if is_out_of_memory(error) or is_own_bug(error):
                    raise
                if has_image(conversations[0]):
                    words, checkpoint = _WORDS[self._plan.role], self._plan.checkpoint
                    raise ModelError(
                        f"{checkpoint.path}: {checkpoint.what} cannot be the {words.name}: shown "
                        f"{words.shown} it failed: {named_error(error)}. Give a chat model that "
                        f"reads {words.images}"
                    ) from error
                reads_texts = False
                continue
            try:
                with quiet(), torch.inference_mode():
                    together = scorer.score(self.inputs(conversations))
            except Exception as error:  # as above, where a cache cannot be shared
                if is_out_of_memory(error) or is_own_bug(error):
                    raise
                agrees = False
                continue
            tolerance = scorer.tolerances[self._plan.dtype != "float32"]
            agrees &= np.allclose(together, np.concatenate(alone), rtol=0.0, atol=tolerance)
        return agrees, reads_texts

    def one_by_one(self, how: str) -> tuple[str]:
        """The remark of a model that cannot be asked in batches; how: it is asked instead."""
        what = self._plan.checkpoint.what
        return (f"{what} gives other likelihoods in a batch than alone: it is {how}",)


def has_image(conversation: Conversation) -> bool:
    """True for a conversation with an image in one of its turns."""
    return any(part["type"] == "image" for turn in conversation for part in turn["content"])
