"""Describers: any transformers image-text-to-text checkpoint, with a chat template or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from pytest_cepbench.errors import ModelError, named_error
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.generation import (
    GenerationParams,
    check_prompting,
    decisive_settings,
    generation_settings,
    has_chat_template,
)
from pytest_cepbench.models.describers.text_model import TextModel, chat_inputs, chat_turn
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber, load_describer
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.protocols import Reply
from pytest_cepbench.models.torch_runtime import is_out_of_memory

DEFAULT_MAX_NEW_TOKENS = 512
"""Room for a full and precise description; the longest that the papers' prompts ask for is a
paragraph. Applies where neither the spec nor the checkpoint says how long."""


@dataclass(frozen=True)
class DescriberParams(GenerationParams):
    """Parameters of a describer's spec: those of `GenerationParams`. In `prompt_template`,
    `{prompt}` stands for the suite's prompt; without it a captioner is given the image alone.
    """


def _settings(plan: LoadPlan[DescriberParams]) -> dict[str, Any]:
    return generation_settings(plan.checkpoint, plan.params, DEFAULT_MAX_NEW_TOKENS)


def _decisive(plan: LoadPlan[DescriberParams]) -> dict[str, Any]:
    return decisive_settings(plan, _settings(plan))


def _load(plan: LoadPlan[DescriberParams]) -> TransformersDescriber:
    chat = has_chat_template(plan.checkpoint)
    loaded = load_describer(plan, _settings(plan), chat=chat)
    return TransformersDescriber(plan.checkpoint, loaded, plan.params)


class TransformersDescriber:
    """A loaded describer: holds the model, its tokenizer and its image processor."""

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedDescriber, params: DescriberParams
    ) -> None:
        self._checkpoint = checkpoint
        self._loaded = loaded
        self._params = params
        self._text_model = TextModel(
            checkpoint,
            loaded,
            sampled=params.do_sample,
            marks=params.reasoning != "keep",
        )

    @property
    def loaded(self) -> LoadedDescriber:
        """The model and what prepares its inputs."""
        return self._loaded

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._loaded.model.to(device)

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str | Reply]:
        """Describe each image; one text per image, special tokens and outer spaces taken off.

        Raises ModelError when the checkpoint's parts do not fit together or it needs a text that it
        was not given.
        """
        try:
            return self._text_model.write_texts(
                images, seeds, lambda some: self._inputs(some, prompt)
            )
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            # What libraries raise when an image comes without the text that its model needs.
            given = self._text_model.chats or self._params.prompt_template
            if given or is_out_of_memory(error):
                raise
            raise ModelError(self._no_template(error)) from error

    def _inputs(self, images: Sequence[Image.Image], prompt: str) -> Any:
        loaded, template = self._loaded, self._params.prompt_template
        if self._text_model.chats:
            return chat_inputs(loaded, [self._conversation(i, prompt) for i in images])
        if template is not None and loaded.processor is not None:
            text = template.replace("{prompt}", prompt)
            return self._text_model.template_inputs(images, [text] * len(images))
        process = loaded.processor or loaded.image_processor
        return process(images=list(images), return_tensors="pt")

    def _conversation(self, image: Image.Image, prompt: str) -> list[dict[str, Any]]:
        system = self._params.system_prompt
        before = [chat_turn("system", [system])] if system else []
        return [*before, chat_turn("user", [image, prompt] if prompt else [image])]

    def _no_template(self, error: Exception) -> str:
        return (
            f"{self._checkpoint.path}: {self._checkpoint.what} has no chat template, so "
            f"it was given the image alone, and failed: {named_error(error)}. If it "
            "needs a "
            "text, add prompt_template to its spec, with {prompt} where the suite's prompt goes "
            "and the model's own image token where it wants one"
        )


ADAPTER = Adapter(
    "transformers-describer/1",
    ("torch", "transformers"),
    DescriberParams,
    _load,
    check=check_prompting,
    decisive=_decisive,
)
