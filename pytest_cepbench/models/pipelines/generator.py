"""Generators: any diffusers text-to-image pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.pipelines.assembly import (
    load_pipeline_class,
    load_single_file,
    single_file,
)
from pytest_cepbench.models.pipelines.pipeline import (
    PipelineParams,
    check_pipeline,
    load_pipeline,
    prompt_lengths,
    run_pipeline,
)
from pytest_cepbench.models.protocols import ImageLike
from pytest_cepbench.models.torch_runtime import quiet


@dataclass(frozen=True)
class GeneratorParams(PipelineParams):
    """Parameters of a generator's spec, with those of `PipelineParams`.

    use_resolution_binning, clean_caption: as in the pipeline's own documentation; None is its
        default.
    """

    CALL: ClassVar[tuple[str, ...]] = (
        *PipelineParams.CALL,
        "use_resolution_binning",
        "clean_caption",
    )

    use_resolution_binning: bool | None = None
    clean_caption: bool | None = None


_KIND = "text-to-image"

_SUPPLIED = ("prompt", "generator", "output_type")

_TEXT_TO_IMAGE = frozenset(
    {
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusion3Pipeline",
        "FluxPipeline",
    }
)
"""Classes that diffusers' auto class resolves to themselves. Importing that one costs a second, for
it imports every other pipeline."""


def _load(plan: LoadPlan[GeneratorParams]) -> DiffusersGenerator:
    pipeline = load_pipeline(plan, _from_pretrained, _SUPPLIED, _KIND)
    return DiffusersGenerator(plan.checkpoint, pipeline, plan.params.call)


def _from_pretrained(diffusers: Any, checkpoint: Checkpoint, options: dict[str, Any]) -> Any:
    if (file := single_file(checkpoint)) is not None:
        return load_single_file(diffusers, checkpoint, file, options)
    name = str(checkpoint.config.get("_class_name"))  # a list of a custom pipeline
    auto = name if name in _TEXT_TO_IMAGE else "AutoPipelineForText2Image"
    return load_pipeline_class(getattr(diffusers, auto), diffusers, checkpoint, options)


class DiffusersGenerator:
    """A loaded text-to-image pipeline; satisfies the Generator Protocol."""

    def __init__(self, checkpoint: Checkpoint, pipeline: Any, call: Mapping[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._pipeline = pipeline
        self._call = dict(call)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        with quiet():  # half precision on the CPU, where it only waits, is warned of
            self._pipeline.to(device)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text; see `run_pipeline`."""
        return run_pipeline(self._checkpoint, self._pipeline, texts, seeds, self._call, _KIND)

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, and the most that are drawn; see `prompt_lengths`."""
        with quiet():
            return prompt_lengths(self._pipeline, self._call, texts)


ADAPTER = adapter(
    "diffusers-generator/1",
    ("torch", "diffusers", "transformers"),
    GeneratorParams,
    _load,
    check=check_pipeline,
)
