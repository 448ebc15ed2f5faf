"""Parameters of drawing with a unified model, and the settings in force."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.models.model_spec import check_at_least

_SAMPLING = ("temperature", "top_p", "top_k")

_NEUTRAL: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}

OF_EMU3 = ("negative_prompt", "image_ratio", "image_area")
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
            raise ValueError(
                f"guidance_scale must be a number from 1 (no guidance) upwards, got {scale}"
            )
        if self.image_ratio is not None and not re.fullmatch(
            r"[1-9]\d*:[1-9]\d*", self.image_ratio
        ):
            raise ValueError(
                f"image_ratio must be width:height such as 16:9, got {self.image_ratio!r}"
            )
        if self.image_prompt_template is not None and "{prompt}" not in self.image_prompt_template:
            raise ValueError(
                "image_prompt_template must say with {prompt} where the text to draw goes"
            )
        self._check_sampling()

    def _check_sampling(self) -> None:
        temperature, top_p = self.image_temperature, self.image_top_p
        if temperature is not None and not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"image_temperature must be a number above 0, got {temperature}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"image_top_p must be above 0 and at most 1, got {top_p}")
        sampling = [
            f"image_{name}" for name in _SAMPLING if getattr(self, f"image_{name}") is not None
        ]
        if sampling and not self.image_do_sample:
            raise ValueError(
                f"{sampling[0]} acts on sampling only: leave it or image_do_sample=false out"
            )


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
    of_spec |= {name: getattr(params, name) for name in OF_EMU3 if name in published}
    settings: dict[str, Any] = {
        "do_sample": params.image_do_sample,
        "prompt_template": params.image_prompt_template,
    }
    for name, value in of_spec.items():
        if name in _SAMPLING and not params.image_do_sample:
            continue
        stored_value = None if name in OF_EMU3 else stored.get(name)
        choices = (value, stored_value, published.get(name, _NEUTRAL.get(name)))
        settings[name] = next((choice for choice in choices if choice is not None), None)
    return settings
