"""Models that read conversations by likelihood: what judges and VQA models share, and the latter.

A VQA model is any transformers image-text-to-text checkpoint with a chat template. It is not asked
to write: the probability of an answer is that of the tokens which begin it, as the first of the
model's reply to picture and question: Soft-TIFA's soft score. A text is asked about as a picture
is, in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Generic, TypeVar

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, ModelError, SpecError, is_own_bug, named_error
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.protocols import FloatArray, Piece, Reply, VqaQuestion
from pytest_cepbench.models.text_model.judge_prompts import break_up, shrink_image
from pytest_cepbench.models.text_model.likelihood import Scorer, first_tokens, token_scorer
from pytest_cepbench.models.text_model.loading import (
    Conversation,
    any_of,
    conversation,
    load_text_model,
)
from pytest_cepbench.models.text_model.parameters import ConversationParams, has_chat_template
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet

P = TypeVar("P", bound=ConversationParams)


_SHOWN = {
    "judge": ("judge", "a question and two answers", "several images"),
    "vqa": ("VQA model", "an image and a question", "images"),
}
"""By role: its name in messages, what it is shown, and how many images it has to read."""


def check_chat(plan: LoadPlan[Any]) -> None:
    """Raise SpecError for a checkpoint that can be shown no conversation."""
    if not has_chat_template(plan.checkpoint):
        name, shown, images = _SHOWN[plan.role]
        raise SpecError(
            f"{plan.spec.text!r} cannot be the {name}: {plan.checkpoint.what} has no chat "
            f"template, so {shown} have no place. Give a chat model that reads {images}"
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
                        f"{self._plan.checkpoint.path}: the likelihood of a reply is not a number "
                        f"in {self._plan.dtype}. Give a dtype that holds the model's values, such "
                        "as bfloat16"
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

        def ask(score: Callable[[Any], FloatArray], shown: Sequence[Conversation]) -> Any:
            try:
                with quiet(), torch.inference_mode():
                    return score(self.inputs(shown))
            except Exception as error:
                # Libraries raise what they like where a model takes no such input.
                if is_out_of_memory(error) or is_own_bug(error):
                    raise
                return error

        agrees = reads_texts = True
        for conversations in probes:
            alone = [ask(scorer.score_whole, [single]) for single in conversations]
            fault = next((made for made in alone if isinstance(made, Exception)), None)
            if fault is not None and has_image(conversations[0]):
                checkpoint, (name, shown, many) = self._plan.checkpoint, _SHOWN[self._plan.role]
                raise ModelError(
                    f"{checkpoint.path}: {checkpoint.what} cannot be the {name}: shown {shown} it "
                    f"failed: {named_error(fault)}. Give a chat model that reads {many}"
                ) from fault
            if fault is not None:
                reads_texts = False
                continue
            together = ask(scorer.score, conversations)  # a cache may not be shared
            tolerance = scorer.tolerances[self._plan.dtype != "float32"]
            agrees &= not isinstance(together, Exception) and bool(
                np.allclose(together, np.concatenate(alone), rtol=0.0, atol=tolerance)
            )
        return agrees, reads_texts

    def one_by_one(self, how: str) -> tuple[str]:
        """The remark of a model that cannot be asked in batches; how: it is asked instead."""
        what = self._plan.checkpoint.what
        return (f"{what} gives other likelihoods in a batch than alone: it is {how}",)


def has_image(conversation: Conversation) -> bool:
    """True for a conversation with an image in one of its turns."""
    return any(part["type"] == "image" for turn in conversation for part in turn["content"])


# -- VQA models ------------------------------------------------------------------------------------


_YES, _NO = ("Yes", "yes"), ("No", "no")

_PROBE_IMAGE = Image.new("RGB", (64, 48), (200, 40, 40))

_PROBES: tuple[tuple[tuple[Piece, str], ...], ...] = (
    ((_PROBE_IMAGE, "Is it red?"), (_PROBE_IMAGE, "Is there a circle on the left of it?")),
    (("a red circle", "Is it red?"), ("a circle", "Is there a circle on the left of it?")),
)
"""Questions of unequal length, so that one is padded, first about pictures and then about texts."""


class TransformersVqa(ConversationModel[ConversationParams]):
    """A loaded VQA model."""

    def __init__(self, plan: LoadPlan[ConversationParams]) -> None:
        """Raises what loading does, CheckpointError for a tokenizer that does not tell yes from no,
        ModelError for a model that fails when it is shown a picture and a question.
        """
        super().__init__(plan)
        loaded = self.loaded
        yes, no = (first_tokens(loaded.tokenizer, words) for words in (_YES, _NO))
        if not yes or not no or yes & no:
            raise CheckpointError(
                f"{plan.checkpoint.path}: its tokenizer does not tell yes from no by the first "
                "token, so no likelihood does. Give a model whose vocabulary has both words"
            )
        scorer = token_scorer(loaded.model, sorted(yes | no))
        probes = [[self._conversation(*asked) for asked in batch] for batch in _PROBES]
        self._batched, self._reads_texts = self.compare_ways(probes, scorer)

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[Reply]:
        """The probability of each answer; a failure for a piece that the model cannot read.

        Raises CheckpointError for an answer that no token begins.
        """
        asked = [
            (piece, question)
            for piece, own in zip(pieces, questions, strict=True)
            for question in own
        ]
        most = self._plan.params.batch_size
        results: list[float | Failure] = []
        for low in range(0, len(asked), most):
            results += self._probabilities(asked[low : low + most])
        how = "asked one question at a time"
        remarks = () if self._batched else self.one_by_one(how)
        replies = []
        for own in questions:
            answers, results = results[: len(own)], results[len(own) :]
            failed = next((each for each in answers if isinstance(each, Failure)), None)
            replies.append(Reply(failed or answers, remarks=remarks))
        return replies

    def _probabilities(self, asked: Sequence[tuple[Piece, VqaQuestion]]) -> list[float | Failure]:
        wanted = []
        for _, question in asked:
            tokens = first_tokens(self.loaded.tokenizer, question.answers)
            if not tokens:
                raise CheckpointError(
                    f"{self._plan.checkpoint.path}: its tokenizer has no token that begins the "
                    f"answer {question.answers[0]!r:.80}, so it has no likelihood. Give a model "
                    "whose vocabulary has it"
                )
            wanted.append(tokens)
        known = sorted(set().union(*wanted))
        columns = {token: column for column, token in enumerate(known)}
        conversations = [self._conversation(piece, question.text) for piece, question in asked]
        readable = [self._reads_texts or has_image(own) for own in conversations]
        likelihoods = iter(
            self.likelihoods(
                list(compress(conversations, readable)),
                token_scorer(self.loaded.model, known),
                batched=self._batched,
                what="question",
            )
        )
        unread = Failure("refused", f"{self._plan.checkpoint.what} reads no text without an image")
        results: list[float | Failure] = []
        for tokens, is_read in zip(wanted, readable, strict=True):
            own = next(likelihoods) if is_read else unread
            if isinstance(own, Failure):
                results.append(own)
            else:
                total = sum(float(own[columns[token]]) for token in tokens)
                results.append(min(1.0, total))  # probabilities of different tokens, rounded
        return results

    def _conversation(self, piece: Piece, question: str) -> Conversation:
        params = self._plan.params
        shown = piece if isinstance(piece, str) else shrink_image(piece, params.max_pixels)
        return self.turns([shown, question], params.system_prompt or "")


VQA = adapter(
    "transformers-vqa/1",
    ("torch", "transformers"),
    ConversationParams,
    TransformersVqa,
    check=check_chat,
)
