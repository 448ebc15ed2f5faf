"""The parameters of a generator's spec, and which of them decide an image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.models.load_plan import check_placement

CALL_PARAMETERS = (
    "num_inference_steps",
    "guidance_scale",
    "height",
    "width",
    "negative_prompt",
    "max_sequence_length",
    "true_cfg_scale",
    "use_resolution_binning",
    "clean_caption",
)
"""Parameters that are handed to the pipeline's call, where it has them."""


@dataclass(frozen=True)
class GeneratorParams:
    """Parameters of a generator's spec.

    device: auto, cpu, cuda, cuda:N or mps. dtype: auto, float32, float16 or bfloat16.
    batch_size: most texts in one call. revision: commit, tag or branch of a hub id.
    variant: weights variant, such as fp16. trust_remote_code, allow_pickle: run the checkpoint's
        Python files, read pickled weights.
    allow_unused: leave out tensors that a part does not know, instead of refusing them.
    safety_checker: false takes the pipeline's safety checker out.
    scheduler: class name of a compatible diffusers scheduler, made from the pipeline's settings.
    height, width: pixels. The rest as in the pipeline's own documentation; None is its default.
    Raises ValueError for a value outside its range.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 4
    revision: str | None = None
    variant: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    allow_unused: bool = False
    safety_checker: bool = True
    scheduler: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    height: int | None = None
    width: int | None = None
    negative_prompt: str | None = None
    max_sequence_length: int | None = None
    true_cfg_scale: float | None = None
    use_resolution_binning: bool | None = None
    clean_caption: bool | None = None

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)
        for name in ("num_inference_steps", "height", "width", "max_sequence_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                msg = f"{name} must be at least 1, got {value}"
                raise ValueError(msg)
        for name in ("guidance_scale", "true_cfg_scale"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                msg = f"{name} must be a finite number, got {value}"
                raise ValueError(msg)

    @property
    def call(self) -> dict[str, Any]:
        """The call parameters that were given."""
        values = {name: getattr(self, name) for name in CALL_PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}


def decisive_params(params: GeneratorParams, dtype: str) -> dict[str, Any]:
    """What was asked for and can change an image. Which files are read is in the fingerprint."""
    decisive: dict[str, Any] = {"dtype": dtype, **params.call}
    if params.scheduler is not None:
        decisive["scheduler"] = params.scheduler
    if not params.safety_checker:
        decisive["safety_checker"] = False
    return decisive
