"""Unified models: a describer, a writer and a generator that are one checkpoint, loaded once.

Describing and writing are the code of these roles. Drawing goes by families, since transformers
has no one way for it: Janus and Emu3, and by rule what keeps to the common interface.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import SpecError, unknown_name
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.generation import stored_settings
from pytest_cepbench.models.describers.transformers_describer import ADAPTER as DESCRIBER
from pytest_cepbench.models.describers.transformers_describer import (
    DescriberParams,
    TransformersDescriber,
)
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.load_plan import check_at_least
from pytest_cepbench.models.model_spec import ModelSpec, parse_params
from pytest_cepbench.models.protocols import (
    BindContext,
    BoundRole,
    ImageLike,
    Question,
    RoleName,
)
from pytest_cepbench.models.safe_loading import explained
from pytest_cepbench.models.torch_runtime import quiet
from pytest_cepbench.models.unified.image_decoder import (
    Emu3Decoder,
    ImageDecoder,
    JanusDecoder,
    PipelineDecoder,
)
from pytest_cepbench.models.writers.transformers_writer import ADAPTER as WRITER
from pytest_cepbench.models.writers.transformers_writer import (
    TransformersWriter,
    WriterParams,
    by_kind,
    special_tokens,
    unified_writer,
    writer_settings,
)

_SAMPLING = ("temperature", "top_p", "top_k")

_NEUTRAL: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}

_OF_EMU3 = ("negative_prompt", "image_ratio", "image_area")
"""Parameters of a family that draws any size and has a prompt for what is not wanted."""

_PUBLISHED: dict[str, dict[str, Any]] = {
    "janus": {"guidance_scale": 5.0},
    "emu3": {
        "guidance_scale": 3.0,
        "top_k": 2048,
        "negative_prompt": "",
        "image_ratio": "1:1",
        "image_area": 720 * 720,
    },
}
"""How the authors' code draws, where neither the spec nor the checkpoint says how."""

_OTHERWISE: dict[str, Any] = {"guidance_scale": 5.0}
"""Settings of a family that is not known: transformers' own value."""


@dataclass(frozen=True)
class UnifiedParams:
    """Parameters of drawing in a unified model's spec; those of describing are a describer's
    does.

    image_batch_size: most texts in one call.
    guidance_scale: how far scores are pushed away from those of no prompt; 1 is no guidance.
    image_do_sample: draw image tokens from the step's seed; false takes the likeliest (greedy).
    image_temperature, image_top_p, image_top_k: of that drawing; top_k=0 means no limit.
    image_prompt_template: the text before the image, `{prompt}` standing for the step's own. None
        is the family's way: the chat template for Janus, the prompt alone for Emu3.
    negative_prompt: for Emu3, the prompt whose scores are pushed away from.
    image_ratio, image_area: for Emu3, "width:height" and pixels of an image.
    None leaves the setting to the checkpoint's generation_config.json, else to the authors' own
    code. Raises ValueError for values out of range and for sampling parameters without sampling.
    """

    image_batch_size: int = 4
    guidance_scale: float | None = None
    image_do_sample: bool = True
    image_temperature: float | None = None
    image_top_p: float | None = None
    image_top_k: int | None = None
    image_prompt_template: str | None = None
    negative_prompt: str | None = None
    image_ratio: str | None = None
    image_area: int | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "image_batch_size", "image_area")
        check_at_least(self, 0, "image_top_k")
        scale = self.guidance_scale
        if scale is not None and not (math.isfinite(scale) and scale >= 1):
            msg = f"guidance_scale must be a number from 1 (no guidance) upwards, got {scale}"
            raise ValueError(msg)
        if self.image_ratio is not None and not re.fullmatch(
            r"[1-9]\d*:[1-9]\d*", self.image_ratio
        ):
            msg = f"image_ratio must be width:height such as 16:9, got {self.image_ratio!r}"
            raise ValueError(msg)
        if self.image_prompt_template is not None and "{prompt}" not in self.image_prompt_template:
            msg = "image_prompt_template must say with {prompt} where the text to draw goes"
            raise ValueError(msg)
        self._check_sampling()

    def _check_sampling(self) -> None:
        temperature, top_p = self.image_temperature, self.image_top_p
        if temperature is not None and not (math.isfinite(temperature) and temperature > 0):
            msg = f"image_temperature must be a number above 0, got {temperature}"
            raise ValueError(msg)
        if top_p is not None and not 0 < top_p <= 1:
            msg = f"image_top_p must be above 0 and at most 1, got {top_p}"
            raise ValueError(msg)
        sampling = [
            f"image_{name}" for name in _SAMPLING if getattr(self, f"image_{name}") is not None
        ]
        if sampling and not self.image_do_sample:
            msg = f"{sampling[0]} acts on sampling only: leave it or image_do_sample=false out"
            raise ValueError(msg)


def split_params(spec: ModelSpec, family: str, what: str) -> tuple[ModelSpec, UnifiedParams]:
    """The spec as a describer takes it, and what is said in it of drawing.

    family: the checkpoint's model type. what: its architecture, for people. Raises SpecError for a
    parameter that neither role of the family knows, and for wrong values of drawing.
    """
    drawing = [field.name for field in dataclasses.fields(UnifiedParams)]
    if family != "emu3":
        drawing = [name for name in drawing if name not in _OF_EMU3]
    known = [*(field.name for field in dataclasses.fields(DescriberParams)), *drawing]
    for name in spec.params:
        if name not in known:
            fault = unknown_name(f"parameter for the unified model {what}", name, known)
            msg = f"model spec {spec.text!r}: {fault}"
            raise SpecError(msg)
    own = {name: value for name, value in spec.params.items() if name in drawing}
    rest = {name: value for name, value in spec.params.items() if name not in drawing}
    drawing_params = parse_params(replace(spec, params=own), UnifiedParams, what)
    return replace(spec, params=rest), drawing_params


def drawing_settings(
    params: UnifiedParams, stored: Mapping[str, Any], family: str
) -> dict[str, Any]:
    """The settings that decide an image: the spec's, else those of the checkpoint's own
    generation_config.json, else those of the authors' code; sampling settings where tokens are
    sampled.

    A checkpoint's own do_sample does not count: images are sampled unless the spec says otherwise.
    """
    published = _PUBLISHED.get(family, _OTHERWISE)
    of_spec = {name: getattr(params, f"image_{name}") for name in _SAMPLING}
    of_spec |= {"guidance_scale": params.guidance_scale}
    of_spec |= {name: getattr(params, name) for name in _OF_EMU3 if name in published}
    settings: dict[str, Any] = {
        "do_sample": params.image_do_sample,
        "prompt_template": params.image_prompt_template,
    }
    for name, value in of_spec.items():
        if name in _SAMPLING and not params.image_do_sample:
            continue
        stored_value = None if name in _OF_EMU3 else stored.get(name)
        choices = (value, stored_value, published.get(name, _NEUTRAL.get(name)))
        settings[name] = next((choice for choice in choices if choice is not None), None)
    return settings


ADAPTER = "transformers-unified/1"

_DECODERS: dict[str, Callable[[Checkpoint, LoadedDescriber, Mapping[str, Any]], ImageDecoder]] = {
    "janus": JanusDecoder,
    "emu3": Emu3Decoder,
}
"""By model type; other families draw in the common way."""


def bind_unified(
    role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> BoundRole:
    """Bind a transformers checkpoint as describer, writer or generator of one load, without
    importing torch.

    All roles of one spec name the same load in `shares`. Raises SpecError for unknown, wrong or
    contradictory parameters of any role, MissingDependencyError where a library is not installed.
    """
    family = str(checkpoint.config.get("model_type") or "")
    texts, drawing = split_params(spec, family, checkpoint.what)
    settings = drawing_settings(drawing, stored_settings(checkpoint), family)
    plain = DESCRIBER.bind("describer", texts, checkpoint, context)

    def of_one_load(bound: BoundRole) -> BoundRole:
        return replace(
            bound,
            adapter=ADAPTER,
            load=lambda: _load(plain, texts, checkpoint, family, settings),
            shares=f"{plain.fingerprint} {spec.text}",
        )

    if role == "describer":
        return of_one_load(plain)
    if role == "writer":
        return of_one_load(WRITER.bind("writer", texts, checkpoint, context))
    named = {name: plain.params[name] for name in ("dtype", "attn_implementation")}
    return replace(
        of_one_load(plain),
        role=role,
        params=named | settings,
        seeded=drawing.image_do_sample,
        batch_size=drawing.image_batch_size,
        grows=plain.device != "cpu" and "image_batch_size" not in spec.params,
    )


def _load(
    bound: BoundRole,
    texts: ModelSpec,
    checkpoint: Checkpoint,
    family: str,
    settings: Mapping[str, Any],
) -> UnifiedModel:
    from transformers import AutoImageProcessor

    describer = bound.load()
    assert isinstance(describer, TransformersDescriber)
    loaded = describer.loaded
    # A checkpoint's guidance is that of its drawings; a text would be guided away from no prompt.
    loaded.generation_config.guidance_scale = None
    with explained(checkpoint), quiet():
        # Drawings are made the same way whatever images are read with: torchvision rounds
        # otherwise.
        finish = AutoImageProcessor.from_pretrained(checkpoint.path, backend="pil")
        decoder = _DECODERS.get(family, PipelineDecoder)(checkpoint, loaded, settings)
    params = parse_params(texts, WriterParams, checkpoint.what)
    own = writer_settings(checkpoint, params)
    writer = unified_writer(checkpoint, loaded, params, own, by_size=decoder.by_size)
    return UnifiedModel(describer, writer, decoder, finish, settings["prompt_template"])


class UnifiedModel:
    """A loaded unified model: describes and writes as its parts do, draws by its decoder.

    finish: the image processor that turns pixel values into pictures. template: the text before an
    image, with {prompt}; None leaves it to the family.
    """

    def __init__(
        self,
        describer: TransformersDescriber,
        writer: TransformersWriter,
        decoder: ImageDecoder,
        finish: Any,
        template: str | None = None,
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
    ) -> list[str]:
        """Describe each image; see `TransformersDescriber`."""
        if not self._decoder.by_size:
            return self._describer.describe(images, prompt, seeds)
        return by_kind(
            [image.size for image in images],
            lambda indices: self._describer.describe(
                [images[i] for i in indices], prompt, [seeds[i] for i in indices]
            ),
        )

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure]:
        """Answer each question; see `TransformersWriter`."""
        return self._writer.write(questions, prompt, seeds)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text: an image, or a "nan-image" failure where the model's scores are NaN.

        The caller's random state is left as it was.
        """
        import torch

        with quiet(), torch.inference_mode():
            pixels = self._decoder.draw([self._prompt(text) for text in texts], seeds)
        return [self._to_image(image.numpy()) for image in pixels]

    def _prompt(self, text: str) -> str:
        # A model may spell its own image token, and would then be asked where the image is.
        text = self._special.sub(" ", text)
        if self._template is not None:
            return self._template.replace("{prompt}", text)
        loaded = self._describer.loaded
        if not (self._decoder.chats and loaded.chat_template):
            return text
        turn = {"role": "user", "content": [{"type": "text", "text": text}]}
        rendered: str = loaded.processor.apply_chat_template(
            [turn], chat_template=loaded.chat_template, add_generation_prompt=True, tokenize=False
        )
        return rendered

    def _to_image(self, pixels: np.ndarray[Any, Any]) -> ImageLike | Failure:
        if not np.isfinite(pixels).all():
            share = 1 - float(np.isfinite(pixels).mean())
            return Failure("nan-image", f"{share:.0%} of the pixel values are not numbers")
        drawn = self._finish.postprocess([pixels], return_tensors="PIL.Image.Image")["pixel_values"]
        picture: Image.Image = drawn[0]
        return picture
