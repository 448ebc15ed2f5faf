"""Judges and VQA models: checkpoints with a chat template that are asked by likelihood.

Any transformers image-text-to-text checkpoint can be one; it is not asked to write.

A judge's verdict is the one of the four phrases that it finds likeliest after question and answers,
by the mean log-probability of the phrase's tokens: it never fails to name one, and depends on no
seed.

Of a VQA model the probability of an answer is that of the tokens which begin it, as the first of
the model's reply to picture and question: Soft-TIFA's soft score. A text is asked about as a
picture is, in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import CheckpointError, ModelError, SpecError, is_own_bug, named_error
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.protocols import Battle, FloatArray, Piece, Reply, VqaQuestion
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS, break_up, shrink_image
from pytest_cepbench.models.text_model.likelihood import Scorer, first_tokens
from pytest_cepbench.models.text_model.loading import (
    Conversation,
    LoadedTextModel,
    any_of,
    conversation,
    load_text_model,
)
from pytest_cepbench.models.text_model.parameters import (
    ConversationParams,
    LocalJudgeParams,
    decisive_of_conversation,
    has_chat_template,
)
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet

_SHOWN = {
    "judge": ("judge", "a question and two answers", "several images", "battle"),
    "vqa": ("VQA model", "an image and a question", "images", "question"),
}
"""By role: its name in messages, what it is shown, how many images it has to read, and what a
conversation is about."""


def check_chat(plan: LoadPlan[Any]) -> None:
    """Raise SpecError for a checkpoint that can be shown no conversation."""
    if not has_chat_template(plan.checkpoint):
        name, shown, images, _ = _SHOWN[plan.role]
        raise SpecError(
            f"{plan.spec.text!r} cannot be the {name}: {plan.checkpoint.what} has no chat "
            f"template, so {shown} have no place. Give a chat model that reads {images}"
        )


class ConversationModel:
    """A loaded model that reads conversations: holds the model and what prepares its inputs.

    loaded: both.
    batched: whether it can be asked in batches, each prompt read once.
    reads_texts: whether it reads conversations without an image.
    """

    batched = reads_texts = True

    def __init__(self, plan: LoadPlan[Any]) -> None:
        self._plan = plan
        self.loaded = loaded = load_text_model(plan, {"do_sample": False})
        added = loaded.tokenizer.added_tokens_decoder.values()
        controls = {t.content for t in added if t.special or t.content.startswith("<")}
        controls |= {getattr(loaded.processor, "image_token", None)}
        self._controls = any_of(filter(None, controls))

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.loaded.model.to(device)

    def turns(self, pieces: Sequence[Piece], system: str) -> Conversation:
        """A system prompt, where there is one, and a message of texts and images, which are shrunk
        to `max_pixels`.

        Control tokens in them are broken up: an answer must not end the judge's turn with its
        words, or claim an image. transformers can do it too (`sanitize_control_tokens`), but not
        for every processor.
        """
        most = self._plan.params.max_pixels
        shown = [piece if isinstance(piece, str) else shrink_image(piece, most) for piece in pieces]
        return conversation(break_up(self._controls, shown), system)

    def inputs(self, conversations: Sequence[Conversation]) -> Any:
        """What the processor makes of them, padded on the left."""
        loaded = self.loaded
        return loaded.chat_inputs(conversations).to(loaded.device, loaded.model.dtype)

    def likelihoods(
        self, conversations: Sequence[Conversation], scorer: Scorer
    ) -> list[FloatArray | Failure]:
        """The scorer's likelihoods of each; a failure for one that is longer than the model reads:
        cut, it would be another one. Raises ModelError where a likelihood is not a number.
        """
        import torch

        *_, what = _SHOWN[self._plan.role]
        most = (self.loaded.positions or sys.maxsize) - scorer.longest
        results: dict[int, FloatArray | Failure] = {}
        # Several processors take a batch in which each conversation has images, or none.
        for illustrated in (True, False):
            rows = [i for i, own in enumerate(conversations) if has_image(own) == illustrated]
            for batch in filter(None, [rows] if self.batched else [[row] for row in rows]):
                with quiet(), torch.inference_mode():
                    inputs = self.inputs([conversations[row] for row in batch])
                    lengths = inputs["attention_mask"].sum(1).tolist()
                    fitting = [row for row, n in zip(batch, lengths, strict=True) if n <= most]
                    if fitting and len(fitting) < len(batch):
                        inputs = self.inputs([conversations[row] for row in fitting])
                    score = scorer.score if self.batched else scorer.score_whole
                    scores: FloatArray = score(inputs) if fitting else np.empty(0)
                # Also where none is above minus infinity, which would name the first of all.
                if fitting and not (scores.max(axis=1) > -np.inf).all():
                    raise ModelError(
                        f"{self._plan.checkpoint.path}: the likelihood of a reply is not a number "
                        f"in {self._plan.dtype}. Give a dtype that holds the model's values, such "
                        "as bfloat16"
                    )
                for row, length in zip(batch, lengths, strict=True):
                    results[row] = Failure(
                        "exception",
                        f"the {what} has {length} tokens, and the model reads {most}: make its "
                        "images smaller (max_pixels)",
                    )
                results |= zip(fitting, scores, strict=True)
        return [results[row] for row in range(len(conversations))]

    def compare_ways(self, probes: Sequence[Sequence[Conversation]], scorer: Scorer) -> None:
        """Find out whether a padded batch whose prompts are read once gives what each of them alone
        gives, and whether the model reads conversations without an image.

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

        for conversations in probes:
            alone = [ask(scorer.score_whole, [single]) for single in conversations]
            fault = next((made for made in alone if isinstance(made, Exception)), None)
            if fault is not None and has_image(conversations[0]):
                checkpoint, (name, shown, many, _) = self._plan.checkpoint, _SHOWN[self._plan.role]
                raise ModelError(
                    f"{checkpoint.path}: {checkpoint.what} cannot be the {name}: shown {shown} it "
                    f"failed: {named_error(fault)}. Give a chat model that reads {many}"
                ) from fault
            if fault is not None:
                self.reads_texts = False
                continue
            together = ask(scorer.score, conversations)  # a cache may not be shared
            tolerance = scorer.tolerances[self._plan.dtype != "float32"]
            self.batched &= not isinstance(together, Exception) and bool(
                np.allclose(together, np.concatenate(alone), rtol=0.0, atol=tolerance)
            )

    def remarks(self, how: str) -> tuple[str, ...]:
        """The remark of a model that cannot be asked in batches; how: it is asked instead."""
        what = self._plan.checkpoint.what
        told = f"{what} gives other likelihoods in a batch than alone: it is {how}"
        return () if self.batched else (told,)


def has_image(conversation: Conversation) -> bool:
    """True for a conversation with an image in one of its turns."""
    return any(part["type"] == "image" for turn in conversation for part in turn["content"])


_PROBE_IMAGE = Image.new("RGB", (64, 48), (200, 40, 40))

_BATTLES = (
    (
        Battle(["draw"], [_PROBE_IMAGE], ["here it is", _PROBE_IMAGE]),
        Battle(["draw a circle , and say why"], [_PROBE_IMAGE, "done"], ["no"]),
    ),
    (Battle(["say"], ["a"], ["b"]), Battle(["say more about it"], ["a longer answer"], ["b"])),
)
"""Battles of unequal length, so that one is padded, first with images and then without."""


class TransformersJudge(ConversationModel):
    """A loaded judge, with the tokens of its verdicts and scores."""

    def __init__(self, plan: LoadPlan[LocalJudgeParams]) -> None:
        """Raises what loading does, CheckpointError for a tokenizer that cannot tell the verdicts
        apart and for a chat template that takes images out of their order, ModelError for a model
        that fails when it is shown a battle.
        """
        super().__init__(plan)
        loaded = self.loaded
        self._prompt = JUDGE_PROMPTS[plan.params.prompt]
        phrases = [self._prompt.phrases[winner] for winner in WINNERS]
        tokens: list[list[int]] = [
            loaded.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in phrases
        ]
        if len({tuple(phrase) for phrase in tokens}) < len(tokens) or not all(tokens):
            raise CheckpointError(
                f"{plan.checkpoint.path}: its tokenizer has the same tokens for several of the "
                f"verdicts ({'; '.join(phrases)}), so no likelihood tells them apart. Give a judge "
                "whose vocabulary has them"
            )
        if not self._prompt.numbered:
            _check_order(plan, loaded)
        self._scorer = Scorer(loaded.model, tokens)
        probes = [[self._conversation(battle) for battle in battles] for battles in _BATTLES]
        self.compare_ways(probes, self._scorer)

    def judge(
        self,
        battles: Sequence[Battle],
        seeds: Sequence[int],  # noqa: ARG002 - the Protocol's; likelihoods depend on no seed
    ) -> list[Reply]:
        """The likeliest verdict of each battle; a failure of one longer than the model reads."""
        conversations = [self._conversation(battle) for battle in battles]
        likelihoods = self.likelihoods(conversations, self._scorer)
        remarks = self.remarks("shown one battle at a time, each of them four times")
        return [
            Reply(own if isinstance(own, Failure) else WINNERS[int(own.argmax())], remarks=remarks)
            for own in likelihoods
        ]

    def _conversation(self, battle: Battle) -> Conversation:
        own = self._plan.params.system_prompt
        return self.turns(self._prompt.show(battle), self._prompt.system if own is None else own)


def _check_order(plan: LoadPlan[LocalJudgeParams], loaded: LoadedTextModel) -> None:
    """Raise CheckpointError where nothing would say to which answer an image belongs."""
    marker = getattr(loaded.processor, "image_token", None)
    if not marker:
        return
    text = loaded.chat_text(
        conversation(["before", _PROBE_IMAGE, "between", _PROBE_IMAGE, "after"])
    )
    places = [
        text.find("before"), text.find(marker), text.find("between"), text.rfind(marker),
        text.find("after"),
    ]  # fmt: skip
    if places != sorted(places):
        numbered = " or ".join(
            f"prompt={name}" for name, prompt in JUDGE_PROMPTS.items() if prompt.numbered
        )
        raise CheckpointError(
            f"{plan.checkpoint.path}: its chat template takes images out of their places between "
            f"texts, so nothing says to which answer one belongs. Add {numbered}, whose texts "
            "number the images"
        )


JUDGE = adapter(
    "transformers-judge/1",
    LocalJudgeParams,
    TransformersJudge,
    check=check_chat,
    decisive=decisive_of_conversation,
)


# -- VQA models ------------------------------------------------------------------------------------


_YES, _NO = ("Yes", "yes"), ("No", "no")

_PROBES: tuple[tuple[tuple[Piece, str], ...], ...] = (
    ((_PROBE_IMAGE, "Is it red?"), (_PROBE_IMAGE, "Is there a circle on the left of it?")),
    (("a red circle", "Is it red?"), ("a circle", "Is there a circle on the left of it?")),
)
"""Questions of unequal length, so that one is padded, first about pictures and then about texts."""


class TransformersVqa(ConversationModel):
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
        probes = [[self._conversation(*asked) for asked in batch] for batch in _PROBES]
        self.compare_ways(probes, self._scorer(yes | no))

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
        remarks = self.remarks("asked one question at a time")
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
        readable = [self.reads_texts or has_image(own) for own in conversations]
        shown = list(compress(conversations, readable))
        likelihoods = iter(self.likelihoods(shown, self._scorer(known)))
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

    def _scorer(self, tokens: Iterable[int]) -> Scorer:
        phrases = [[token] for token in sorted(tokens)]
        return Scorer(self.loaded.model, phrases, probabilities=True)

    def _conversation(self, piece: Piece, question: str) -> Conversation:
        return self.turns([piece, question], self._plan.params.system_prompt or "")


VQA = adapter(
    "transformers-vqa/1",
    ConversationParams,
    TransformersVqa,
    check=check_chat,
    decisive=decisive_of_conversation,
)
