"""Unified models: a describer and a generator that are one checkpoint, bound apart and loaded once.

Describing is the describers' own code. Drawing goes by families, since transformers has no one way
for it: Janus and Emu3, and by rule what keeps to the common interface.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_describer import (
    TransformersDescriber,
    bind_describer,
    stored_settings,
)
from pytest_cepbench.models.protocols import BindContext, BoundRole, ImageLike, RoleName
from pytest_cepbench.models.safe_loading import explained
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import quiet
from pytest_cepbench.models.unified.image_decoder import ImageDecoder
from pytest_cepbench.models.unified.unified_params import drawing_settings, split_params

ADAPTER = "transformers-unified/1"


def bind_unified(
    role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> BoundRole:
    """Bind a transformers checkpoint as describer or generator of one load, without importing torch.

    Both roles of one spec name the same load in `shares`. Raises SpecError for unknown, wrong or
    contradictory parameters of either role, MissingDependencyError where a library is not installed.
    """
    family = str(checkpoint.config.get("model_type") or "")
    describing, drawing = split_params(spec, family, checkpoint.what)
    settings = drawing_settings(drawing, stored_settings(checkpoint), family)
    plain = bind_describer(describing, checkpoint, context)
    bound = replace(
        plain,
        adapter=ADAPTER,
        load=lambda: _load(plain, checkpoint, family, settings),
        shares=f"{plain.fingerprint} {spec.text}",
    )
    if role == "describer":
        return bound
    shared = {name: plain.params[name] for name in ("dtype", "attn_implementation")}
    return replace(
        bound,
        role=role,
        params=shared | settings,
        seeded=drawing.image_do_sample,
        batch_size=drawing.image_batch_size,
        grows=bound.device != "cpu" and "image_batch_size" not in spec.params,
    )


def _load(
    bound: BoundRole, checkpoint: Checkpoint, family: str, settings: Mapping[str, Any]
) -> UnifiedModel:
    describer = bound.load()
    assert isinstance(describer, TransformersDescriber)
    loaded = describer.loaded
    # A checkpoint's guidance is that of its drawings; a text would be guided away from no prompt.
    loaded.generation_config.guidance_scale = None
    with explained(checkpoint), quiet():
        # Drawings are made the same way whatever images are read with: torchvision rounds otherwise.
        finish = _image_processor(checkpoint)
        painter = _painter(checkpoint, family, loaded, settings)
    return UnifiedModel(describer, painter, finish, settings["prompt_template"])


def _image_processor(checkpoint: Checkpoint) -> Any:
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(checkpoint.path, backend="pil")


def _painter(
    checkpoint: Checkpoint, family: str, loaded: Any, settings: Mapping[str, Any]
) -> ImageDecoder:
    if family == "janus":
        from pytest_cepbench.models.unified.janus import JanusPainter

        return JanusPainter(checkpoint, loaded, settings)
    if family == "emu3":
        from pytest_cepbench.models.unified.emu3 import Emu3Painter

        return Emu3Painter(checkpoint, loaded, settings)
    from pytest_cepbench.models.unified.rule_based_pair import PipelineDecoder

    return PipelineDecoder(checkpoint, loaded, settings)


class UnifiedModel:
    """A loaded unified model: describes as its describer does, draws by its painter.

    finish: the image processor that turns pixel values into pictures. template: the text before an
    image, with {prompt}; None leaves it to the family.
    """

    def __init__(
        self,
        describer: TransformersDescriber,
        painter: ImageDecoder,
        finish: Any,
        template: str | None = None,
    ) -> None:
        self._describer = describer
        self._painter = painter
        self._finish = finish
        self._template = template
        special = [token for token in describer.loaded.tokenizer.all_special_tokens if token]
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._describer.move(device)

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Describe each image; see `TransformersDescriber`."""
        if not self._painter.by_size:
            return self._describer.describe(images, prompt, seeds)
        alike: dict[tuple[int, int], list[int]] = {}
        for index, image in enumerate(images):
            alike.setdefault(image.size, []).append(index)
        texts = [""] * len(images)
        for places in alike.values():
            found = self._describer.describe(
                [images[i] for i in places], prompt, [seeds[i] for i in places]
            )
            for place, text in zip(places, found, strict=True):
                texts[place] = text
        return texts

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text: a picture, or a "nan-image" where the model's numbers were none.

        The caller's random state is left as it was.
        """
        import torch

        with quiet(), torch.inference_mode():
            pixels = self._painter.paint([self._prompt(text) for text in texts], seeds)
        return [self._picture(image.numpy()) for image in pixels]

    def _prompt(self, text: str) -> str:
        # A model may spell its own image token, and would then be asked where the image is.
        text = self._special.sub(" ", text)
        if self._template is not None:
            return self._template.replace("{prompt}", text)
        loaded = self._describer.loaded
        if not (self._painter.chats and loaded.chat_template):
            return text
        said = {"role": "user", "content": [{"type": "text", "text": text}]}
        rendered: str = loaded.processor.apply_chat_template(
            [said], chat_template=loaded.chat_template, add_generation_prompt=True, tokenize=False
        )
        return rendered

    def _picture(self, pixels: np.ndarray[Any, Any]) -> ImageLike | Failure:
        if not np.isfinite(pixels).all():
            share = 1 - float(np.isfinite(pixels).mean())
            return Failure("nan-image", f"{share:.0%} of the pixel values are not numbers")
        drawn = self._finish.postprocess([pixels], return_tensors="PIL.Image.Image")["pixel_values"]
        picture: Image.Image = drawn[0]
        return picture
