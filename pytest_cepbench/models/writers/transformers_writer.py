"""Writers: transformers image-text-to-text checkpoints that answer questions of texts and images.

A question is one message of the user, its texts and images in reading order, after the system
prompt. Without a chat template a model reads one image with one text, which `prompt_template` says.

Questions with as many images are answered in one call: several processors refuse a batch in which
some have none, and others pad what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.generation import (
    GenerationParams,
    check_prompting,
    decisive_settings,
    generation_settings,
    has_chat_template,
)
from pytest_cepbench.models.describers.text_model import TextModel, chat_inputs, chat_turn
from pytest_cepbench.models.describers.transformers_loader import (
    LoadedDescriber,
    generation_config,
    load_describer,
)
from pytest_cepbench.models.grouping import by_kind
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.protocols import Question, Reply

DEFAULT_MAX_NEW_TOKENS = 2048
"""Room for an answer of ten steps. The gold answers of OpenING have 140 words on average, and a
single step of them up to 1,082. Applies where neither the spec nor the checkpoint says how long."""


@dataclass(frozen=True)
class WriterParams(GenerationParams):
    """Parameters of a writer's spec: those of `GenerationParams`. The suite's system prompt follows
    `system_prompt` in one message; in `prompt_template`, `{prompt}` stands for it and the question.

    Raises ValueError as `GenerationParams`, and for a template without a place for the question.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt_template is not None and "{prompt}" not in self.prompt_template:
            raise ValueError(
                "prompt_template of a writer must say with {prompt} where the question goes"
            )


def writer_settings(checkpoint: Checkpoint, params: GenerationParams) -> dict[str, Any]:
    """The generation settings of a writer that are in force."""
    return generation_settings(checkpoint, params, DEFAULT_MAX_NEW_TOKENS)


def _check(plan: LoadPlan[WriterParams]) -> None:
    """Raise RoleError where the checkpoint has no way to be given a question, SpecError for a
    template that it has no use for.
    """
    check_prompting(plan)
    if has_chat_template(plan.checkpoint):
        return
    if plan.checkpoint.config.get("model_type") == "vision-encoder-decoder":
        raise RoleError(
            f"{plan.spec.text!r} is a {plan.checkpoint.what}: it reads images alone, so it cannot "
            "be the writer. Give a model with a chat template"
        )
    if plan.params.prompt_template is None:
        raise SpecError(
            f"model spec {plan.spec.text!r}: {plan.checkpoint.what} has no chat template, so "
            "nothing says how it is asked a question. Add prompt_template, with {prompt} where "
            "the question goes and the model's own image token where it wants one"
        )


def _decisive(plan: LoadPlan[WriterParams]) -> dict[str, Any]:
    return decisive_settings(plan, writer_settings(plan.checkpoint, plan.params))


def _load(plan: LoadPlan[WriterParams]) -> TransformersWriter:
    chat = has_chat_template(plan.checkpoint)
    loaded = load_describer(plan, writer_settings(plan.checkpoint, plan.params), chat=chat)
    return TransformersWriter(plan.checkpoint, loaded, plan.params)


class TransformersWriter:
    """A loaded writer.

    by_size: whether images of several sizes in one call would change each other's texts.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedDescriber,
        params: GenerationParams,
        *,
        by_size: bool = False,
    ) -> None:
        self._checkpoint = checkpoint
        self._params = params
        self._text_model = TextModel(
            checkpoint,
            loaded,
            sampled=params.do_sample,
            marks=params.reasoning != "keep",
        )
        self._by_size = by_size
        self._special = special_tokens(loaded)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._text_model.loaded.model.to(device)

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure | Reply]:
        """Answer each question; see `Writer`. Special tokens and outer spaces are taken off.

        Without a chat template, a question that does not have exactly one image is a failure.
        Special tokens that a question spells out are left out of it: a model would look for the
        image behind each.
        """
        asked = [self._without_tokens(question) for question in questions]
        prompt = self._special.sub(" ", prompt)
        system = "\n\n".join(filter(None, [self._params.system_prompt, prompt]))
        kinds = [self._kind(question) for question in asked]

        def write_alike(indices: Sequence[int]) -> list[str | Failure | Reply]:
            some = [asked[i] for i in indices]
            if kinds[indices[0]] is None:
                return [self._refusal(question) for question in some]
            return [
                *self._text_model.write_texts(
                    some, [seeds[i] for i in indices], lambda read: self._inputs(read, system)
                )
            ]

        return by_kind(kinds, write_alike)

    def _without_tokens(self, question: Question) -> Question:
        return [
            self._special.sub(" ", piece) if isinstance(piece, str) else piece for piece in question
        ]

    def _kind(self, question: Question) -> Hashable:
        """Equal for questions that go in one call; None for what the model cannot be asked."""
        sizes = [piece.size for piece in question if isinstance(piece, Image.Image)]
        if not self._text_model.chats:
            return 1 if len(sizes) == 1 else None
        return tuple(sizes) if self._by_size else len(sizes)

    def _inputs(self, questions: Sequence[Question], system: str) -> Any:
        if self._text_model.chats:
            before = [chat_turn("system", [system])] if system else []
            turns = [[*before, chat_turn("user", question)] for question in questions]
            return chat_inputs(self._text_model.loaded, turns)
        images = [next(p for p in question if not isinstance(p, str)) for question in questions]
        texts = [
            "\n".join(filter(None, [system, *(p for p in question if isinstance(p, str))]))
            for question in questions
        ]
        template = self._params.prompt_template or "{prompt}"
        return self._text_model.template_inputs(
            images, [template.replace("{prompt}", text) for text in texts]
        )

    def _refusal(self, question: Question) -> Failure:
        count = sum(not isinstance(piece, str) for piece in question)
        return Failure(
            "exception",
            f"{self._checkpoint.what} has no chat template and reads exactly one image with its "
            f"text; the question has {count}",
        )


def special_tokens(loaded: LoadedDescriber) -> re.Pattern[str]:
    """Matches every special token of a model as it is spelled, and no other text."""
    tokens = {token for token in loaded.tokenizer.all_special_tokens if token}
    for name in ("image_token", "video_token", "audio_token"):
        token = getattr(loaded.processor, name, None)
        tokens |= {token} if isinstance(token, str) and token else set()
    # The longest first, where one token begins another.
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or r"(?!)")


def unified_writer(
    checkpoint: Checkpoint,
    loaded: LoadedDescriber,
    params: GenerationParams,
    settings: dict[str, Any],
    *,
    by_size: bool,
) -> TransformersWriter:
    """A writer on a model that is loaded for other roles too, with settings of its own."""
    own = generation_config(loaded.model, loaded.tokenizer, settings)
    own.guidance_scale = None  # a unified checkpoint's is that of its drawings
    return TransformersWriter(
        checkpoint, replace(loaded, generation_config=own), params, by_size=by_size
    )


ADAPTER = Adapter(
    "transformers-writer/1",
    ("torch", "transformers"),
    WriterParams,
    _load,
    check=_check,
    decisive=_decisive,
)
