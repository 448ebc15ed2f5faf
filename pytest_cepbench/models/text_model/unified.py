"""Unified models: describer, writer, generator and interleaver in one checkpoint, loaded once.

Describing and writing are the code of these roles, and answers are made in turns of writing and
drawing. Drawing goes by families, since transformers has no one way for it: Janus and Emu3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext, BoundRole, Resources
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.loading import explained
from pytest_cepbench.models.protocols import (
    AnswerStep,
    ImageLike,
    Question,
    Reply,
    RoleName,
    StepLimit,
)
from pytest_cepbench.models.spec import ModelSpec, parse_params, split_params
from pytest_cepbench.models.text_model.drawing import Emu3Decoder, JanusDecoder
from pytest_cepbench.models.text_model.interleaver import PROMPTS, interleave
from pytest_cepbench.models.text_model.loading import conversation, generation_config
from pytest_cepbench.models.text_model.parameters import (
    OF_EMU3,
    GenerationParams,
    UnifiedParams,
    drawing_settings,
    generation_settings,
    has_chat_template,
    stored_settings,
)
from pytest_cepbench.models.text_model.text_generation import (
    ANSWER_TOKENS,
    DESCRIBER,
    WRITER,
    TextModel,
    special_tokens,
)
from pytest_cepbench.models.torch_runtime import backend_option, need, quiet

ADAPTER = "transformers-unified/1"

_DECODERS: dict[str, type[JanusDecoder | Emu3Decoder]] = {
    "janus": JanusDecoder,
    "emu3": Emu3Decoder,
}
"""By model type."""


def bind_unified(
    role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> BoundRole:
    """Bind a transformers checkpoint as describer, writer, generator or interleaver of one load,
    without importing torch.

    All roles of one spec name the same load in `shares`. Raises SpecError for unknown, wrong or
    contradictory parameters of any role, CheckpointError for an interleaver without a chat
    template, MissingDependencyError where a library is not installed.
    """
    family = str(checkpoint.config.get("model_type") or "")
    if family not in _DECODERS:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}, which describes, and only "
            f"{' and '.join(_DECODERS)} draw as well: give a diffusers pipeline as the generator, "
            "or wrap its own code as python:package.module:factory"
        )
    names = {field.name for field in dataclasses.fields(UnifiedParams)}
    names -= set() if family == "emu3" else set(OF_EMU3)
    of_texts = {field.name for field in dataclasses.fields(GenerationParams)} - names
    of_texts |= set(GenerationParams.SOURCES)
    texts, own = split_params(spec, f"the unified model {checkpoint.what}", of_texts, names)
    drawing = parse_params(own, UnifiedParams, checkpoint.what)
    settings = drawing_settings(drawing, stored_settings(checkpoint), family)
    plain = DESCRIBER("describer", texts, checkpoint, context)
    need("a unified model", "transformers", "5.0")

    def of_one_load(bound: BoundRole, resources: Resources, **changes: Any) -> BoundRole:
        return replace(
            bound,
            adapter=ADAPTER,
            load=lambda: _load(plain, checkpoint, family, settings),
            resources=replace(resources, shares=f"{plain.fingerprint} {spec.text}"),
            **changes,
        )

    if role == "describer":
        return of_one_load(plain, plain.resources)
    if role == "writer":
        writer = WRITER("writer", texts, checkpoint, context)
        return of_one_load(writer, writer.resources)
    drawn = replace(plain.resources, batch_size=drawing.image_batch_size, grows=False)
    if role == "interleaver":
        if not has_chat_template(checkpoint):
            raise CheckpointError(
                f"{checkpoint.path}: an interleaver is asked by its chat template, and there is "
                "none. Save the processor that the model was trained with "
                "(processor.save_pretrained)"
            )
        return of_one_load(
            plain,
            drawn,
            role=role,
            params={**plain.params, "prompts": PROMPTS, "image": settings},
            seeded=plain.seeded or drawing.image_do_sample,
        )
    named = {name: plain.params[name] for name in ("dtype", "attn_implementation")}
    grows = plain.device != "cpu" and "image_batch_size" not in spec.params
    return of_one_load(
        plain,
        replace(drawn, grows=grows),
        role=role,
        params=named | settings,
        seeded=drawing.image_do_sample,
    )


def _load(
    bound: BoundRole, checkpoint: Checkpoint, family: str, settings: Mapping[str, Any]
) -> UnifiedModel:
    """bound: as describer. settings: of `drawing_settings`."""
    from transformers import AutoImageProcessor

    alone = bound.load()
    assert isinstance(alone, TextModel)
    loaded, params = alone.loaded, alone.params
    with explained(checkpoint), quiet(), checkpoint.preparation_folder() as folder:
        # Drawings are made the same way whatever images are read with: torchvision rounds
        # otherwise.
        finish = AutoImageProcessor.from_pretrained(folder, **backend_option("pil"))
        decoder = _DECODERS[family](checkpoint, loaded, settings)
    answers = generation_settings(checkpoint, params, ANSWER_TOKENS)
    config = generation_config(loaded.model, loaded.tokenizer, answers)
    # A checkpoint's guidance is that of its drawings; a text would be guided away from no prompt.
    config.guidance_scale = loaded.generation_config.guidance_scale = None
    describer, writer = (
        TextModel(checkpoint, own, params, by_size=decoder.by_size)
        for own in (loaded, replace(loaded, generation_config=config))
    )
    return UnifiedModel(describer, writer, decoder, finish, settings["prompt_template"])


class UnifiedModel:
    """A loaded unified model: describes and writes as its parts do, draws by its decoder.

    describer: writes the text of a step of an answer too, which is about as long as a description.
    finish: the image processor that turns pixel values into pictures.
    template: the text before an image, with {prompt}; None leaves it to the family.
    """

    def __init__(
        self,
        describer: TextModel,
        writer: TextModel,
        decoder: JanusDecoder | Emu3Decoder,
        finish: Any,
        template: str | None,
    ) -> None:
        self._describer = describer
        self._writer = writer
        self._decoder = decoder
        self._finish = finish
        self._template = template
        self._special = special_tokens(describer.loaded)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._describer.move(device)

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure | Reply]:
        """Describe each image; see `TextModel`."""
        return self._describer.describe(images, prompt, seeds)

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure | Reply]:
        """Answer each question; see `TextModel`."""
        return self._writer.write(questions, prompt, seeds)

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[list[AnswerStep] | Failure | Reply]:
        """Answer each question in steps, each a text and then its image."""
        keeps = self._describer.params.reasoning == "keep"
        return interleave(self._describer, self, questions, limits, seeds, keeps_reasoning=keeps)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text: an image, or a "nan-image" failure where the model's scores are NaN.

        The caller's random state is left as it was.
        """
        import torch

        with quiet(), torch.inference_mode():
            pixels = self._decoder.draw([self._prompt(text) for text in texts], seeds)
        drawn: list[ImageLike | Failure] = []
        for values in pixels.numpy():  # each (3, h, w)
            if np.isfinite(values).all():
                made = self._finish.postprocess([values], return_tensors="PIL.Image.Image")
                drawn.append(made["pixel_values"][0])
                continue
            share = 1 - float(np.isfinite(values).mean())
            drawn.append(Failure("nan-image", f"{share:.0%} of the pixel values are not numbers"))
        return drawn

    def _prompt(self, text: str) -> str:
        # A model may spell its own image token, and would then be asked where the image is.
        text = self._special.sub(" ", text)
        if self._template is not None:
            return self._template.replace("{prompt}", text)
        loaded = self._describer.loaded
        if not (self._decoder.chats and loaded.chat_template):
            return text
        return loaded.chat_text(conversation([text]))
