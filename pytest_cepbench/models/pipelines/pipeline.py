"""Pipelines of diffusers as generators and editors use them: parameters, loading, seeded calls.

Every image has a random generator of its own, on the CPU, so that it depends on its own inputs and
seed and not on its batch or on the device's random numbers. Where a parameter is not given, the
pipeline's own default holds.

What can change an image enters keys. Where parts lie changes none.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ModelError, RoleError, unknown_name
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import component_names
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_tokens,
    check_vocabulary,
    cut_off,
    no_random_weights,
    refuse_unused,
    stored_names,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import answer_by_names, loading
from pytest_cepbench.models.checkpoints.parameters import COMPONENTS, OF_CHECKPOINTS, Placement
from pytest_cepbench.models.checkpoints.pipeline_parts import LORA
from pytest_cepbench.models.pipelines.assembly import apply_loras, assemble
from pytest_cepbench.models.protocols import ImageLike
from pytest_cepbench.models.spec import Bounds, Finite, ModelSpec, Positive, given_params
from pytest_cepbench.models.torch_runtime import (
    dtype_option,
    quiet,
    require,
    seeded,
    to_torch_dtype,
)

_SPACINGS = ("leading", "trailing", "linspace")


@dataclass(frozen=True)
class PipelineParams(Placement):
    """Parameters of every pipeline's spec, with those of `Placement`.

    offload: model keeps parts in host memory, one at a time on the device.
    lora_scale: strength of each of the LoRA weights, separated by commas, or one for all; None is
        1.
    fuse: add LoRA weights to the pipeline's own, instead of computing them beside these.
    allow_unused: leave out tensors that a part does not know, instead of refusing them.
    safety_checker: false takes the pipeline's safety checker out.
    scheduler: class name of a compatible diffusers scheduler, made from the pipeline's settings.
    timestep_spacing: leading, trailing or linspace: how the scheduler chooses its steps; None is
        the pipeline's setting.
    clean_caption: of PixArt, false draws captions as they are; None cleans them where the packages
        bs4 and ftfy happen to be installed.
    height, width: pixels. The rest as in the pipeline's own documentation; None is its default.
    Raises ValueError for a lora_scale of other than finite numbers.
    """

    SOURCES: ClassVar[tuple[str, ...]] = (
        *OF_CHECKPOINTS, "variant", "trust_remote_code", "base", "config", "lora", *COMPONENTS,
    )  # fmt: skip

    CALL: ClassVar[tuple[str, ...]] = (
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

    batch_size: Positive = 4
    offload: Annotated[str, Bounds(choices=("model",))] | None = None
    lora_scale: str | None = None
    fuse: bool = True
    allow_unused: bool = False
    safety_checker: bool = True
    scheduler: str | None = None
    timestep_spacing: Annotated[str, Bounds(choices=_SPACINGS)] | None = None
    num_inference_steps: Positive | None = None
    guidance_scale: Finite | None = None
    height: Positive | None = None
    width: Positive | None = None
    negative_prompt: str | None = None
    max_sequence_length: Positive | None = None
    true_cfg_scale: Finite | None = None
    use_resolution_binning: bool | None = None
    clean_caption: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(map(math.isfinite, self.lora_scales)):
            raise ValueError(f"lora_scale must be finite numbers, got {self.lora_scale!r}")

    @property
    def lora_scales(self) -> list[float]:
        """The strengths that were given. Raises ValueError for what is no number."""
        if self.lora_scale is None:
            return []
        try:
            return [float(scale) for scale in self.lora_scale.split(",")]
        except ValueError:
            raise ValueError(
                f"lora_scale must be numbers separated by commas, got {self.lora_scale!r}"
            ) from None

    @property
    def call(self) -> dict[str, Any]:
        """The call parameters that were given."""
        return given_params(self, *self.CALL)

    @property
    def decisive(self) -> dict[str, Any]:
        """The given parameters that can change an image."""
        values = {name: getattr(self, name) for name in _DECISIVE}
        given = {n: value for n, value in values.items() if value != getattr(PipelineParams, n)}
        if self.lora_scale is not None:
            given["lora_scale"] = self.lora_scales
        return {**self.call, **given}

    @property
    def dispatched(self) -> bool:
        """Where parts come from host memory."""
        return self.offload is not None

    @property
    def seeded(self) -> bool:
        """Every image begins with the noise of its seed."""
        return True


_DECISIVE = ("scheduler", "timestep_spacing", "safety_checker", "fuse")
"""Parameters besides those of the call that change images where they are not as by default."""


def check_pipeline(plan: LoadPlan[PipelineParams]) -> None:
    """Raise SpecError for parameters that speak of parts or devices that are not there.

    Those are a safety checker to take out, LoRA weights to scale, and an accelerator. Raises
    MissingDependencyError for the package that LoRA weights need.
    """
    if plan.params.offload is not None and plan.device == "cpu":
        raise plan.spec.error(
            "offload=model moves parts of a pipeline to an accelerator, and it runs on the cpu: "
            "leave it out, or run where one is visible"
        )
    if not plan.params.safety_checker and "safety_checker" not in plan.checkpoint.config:
        what = plan.checkpoint.what
        raise plan.spec.error(f"{what} has no safety_checker to take out")
    loras = plan.checkpoint.named(LORA)
    given = [name for name in ("lora_scale", "fuse") if name in plan.spec.params]
    if given and not loras:
        raise plan.spec.error(f"{' and '.join(given)} without LoRA weights (lora=)")
    scales = plan.params.lora_scales
    if len(scales) > 1 and len(scales) != len(loras):
        raise plan.spec.error(
            f"lora_scale has {len(scales)} numbers for {len(loras)} LoRA weights: give one for "
            "each, or one for all"
        )
    if loras:
        require("peft")


def _check_call(plan: LoadPlan[PipelineParams], pipeline: Any, role: type[LoadedPipeline]) -> None:
    """Raise RoleError when a pipeline is not called with what the role gives alone, SpecError for a
    parameter that its call does not take, or by which it would take no step.
    """
    signature = inspect.signature(pipeline.__call__).parameters
    name = type(pipeline).__name__
    lacking = [parameter for parameter in role.supplied if parameter not in signature]
    needed = [
        p.name
        for p in signature.values()
        if p.default is p.empty
        and p.kind is p.POSITIONAL_OR_KEYWORD
        and p.name not in role.supplied
    ]
    if lacking or needed:
        fault = f"does not take {', '.join(lacking)}" if lacking else f"needs {', '.join(needed)}"
        raise RoleError(
            f"{plan.checkpoint.path}: {name} is no {role.kind} pipeline: its call {fault}"
        )
    accepted = [parameter for parameter in plan.params.CALL if parameter in signature]
    for parameter in plan.params.call:
        if parameter not in accepted:
            unknown = unknown_name(f"parameter for {name}", parameter, accepted)
            raise plan.spec.error(unknown)
    if "strength" in accepted:
        steps, strength = (
            plan.params.call.get(parameter, signature[parameter].default)
            for parameter in ("num_inference_steps", "strength")
        )
        if int(steps * strength) < 1:
            raise plan.spec.error(
                f"strength={strength:g} of num_inference_steps={steps} is less than one step. "
                "Raise one of them"
            )


def _check_encoders(checkpoint: Checkpoint, parts: Mapping[str, Any]) -> None:
    """Raise CheckpointError where transformers left out layers of a part, without a word."""
    safe = [(n, path) for n, path in checkpoint.own_files() if path.suffix == ".safetensors"]
    for name, part in parts.items():
        if hasattr(part, "base_model_prefix"):
            own = stored_names(part, (path for n, path in safe if n.startswith(f"{name}/")))
            refuse_unused(checkpoint, [f"{name}.{tensor}" for tensor in cut_off(part, own)])


def _settle_scheduler(spec: ModelSpec, pipeline: Any, params: PipelineParams) -> None:
    """Swap the scheduler where the spec says so. Raises SpecError for one that cannot serve."""
    own = getattr(pipeline, "scheduler", None)
    name, spacing = params.scheduler or type(own).__name__, params.timestep_spacing
    if name == "DPMSolverSDEScheduler":  # one noise for the whole batch
        raise spec.error(
            f"{name} draws noise from a generator of its own, so an image would depend on its "
            "batch. Give another with scheduler=, such as DPMSolverMultistepScheduler"
        )
    if params.scheduler is None and spacing is None:
        return
    known = {kind.__name__: kind for kind in (*getattr(own, "compatibles", ()), type(own))}
    if own is None or name not in known:
        names = known if own is not None else ()
        raise spec.error(unknown_name(f"scheduler for {type(pipeline).__name__}", name, names))
    if spacing is not None and "timestep_spacing" not in inspect.signature(known[name]).parameters:
        raise spec.error(f"{name} takes no timestep_spacing")
    changes = {} if spacing is None else {"timestep_spacing": spacing}
    pipeline.scheduler = known[name].from_config(own.config, **changes)


class LoadedPipeline:
    """A pipeline on its device.

    kind: of pipeline that the role needs, for people ("text-to-image").
    auto: name of the class of diffusers that finds the class of a folder's pipeline for the role.
    supplied: parameters of the pipeline's call that the role gives.
    """

    kind = auto = ""
    supplied: tuple[str, ...] = ()

    def __init__(self, checkpoint: Checkpoint, pipeline: Any, params: PipelineParams) -> None:
        self._checkpoint, self._pipeline, self._params = checkpoint, pipeline, params

    @classmethod
    def load(cls, plan: LoadPlan[PipelineParams]) -> Self:
        """Load a pipeline onto its device, ready to be called.

        Raises CheckpointError for parts that are missing, damaged or do not fit, RoleError for a
        pipeline that is called otherwise, SpecError for parameters that it does not take.
        """
        import diffusers
        import torch
        import transformers  # noqa: F401 - quiet() reaches only what is imported

        spec, checkpoint, params = plan.spec, plan.checkpoint, plan.params
        options: dict[str, Any] = {
            **dtype_option("diffusers", to_torch_dtype(plan.dtype)),
            "use_safetensors": None if checkpoint.options.allow_pickle else True,
            **checkpoint.options.code,
        }
        if checkpoint.options.variant is not None:
            options["variant"] = checkpoint.options.variant
        if not params.safety_checker:
            options["safety_checker"] = None
            if "requires_safety_checker" in checkpoint.config:
                options["requires_safety_checker"] = False
        with loading(plan):
            for name in component_names(checkpoint.config):
                if "Tokenizer" in (class_name := str(checkpoint.config[name][1])):
                    check_vocabulary(checkpoint.path / name, class_name)
            with (
                no_random_weights(checkpoint, allow_unused=params.allow_unused),
                checkpoint.unwrapped() as whole,
            ):
                pipeline = assemble(getattr(diffusers, cls.auto), whole, options)
                _check_encoders(whole, {} if params.allow_unused else pipeline.components)
            parts = pipeline.components
            for name, part in parts.items():
                if hasattr(part, "modules"):
                    answer_by_names(part)
                encoder = parts.get(name.replace("tokenizer", "text_encoder"))
                if name.startswith("tokenizer") and part is not None and encoder is not None:
                    check_tokens(checkpoint.path / name, tokenizer_of(part), encoder)
            _check_call(plan, pipeline, cls)
            _settle_scheduler(spec, pipeline, params)
            if getattr(pipeline, "watermark", None) is not None:
                # SDXL watermarks where an optional package happens to be installed: not the model's
                # doing.
                pipeline.watermark = None
            if params.offload is None:  # else it stays in host memory until then
                pipeline = pipeline.to(plan.device)
            if loras := [part.path for part in checkpoint.named(LORA)]:
                scales = params.lora_scales or [1.0]
                each = scales * len(loras) if len(scales) == 1 else scales
                apply_loras(pipeline, loras, each, fuse=params.fuse)
            if plan.device == "cpu":
                # Convolutions lie as the CPU's library computes them, or every call reorders them.
                # Each by itself: an autoencoder of videos (Qwen-Image's) has others of three axes.
                modules = (p for p in parts.values() if isinstance(p, torch.nn.Module))
                layers = (layer for module in modules for layer in module.modules())
                for layer in [layer for layer in layers if isinstance(layer, torch.nn.Conv2d)]:
                    layer.to(memory_format=torch.channels_last)
            pipeline.set_progress_bar_config(disable=True)
        take_weights(checkpoint, pipeline.components)
        if params.offload is not None:
            with loading(plan):
                pipeline.enable_model_cpu_offload(device=plan.device)
        return cls(checkpoint, pipeline, params)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        with quiet():  # half precision on the CPU, where it only waits, is warned of
            self._pipeline.to(device)

    def run(
        self, prompts: Sequence[str], seeds: Sequence[int], call: Mapping[str, Any]
    ) -> list[ImageLike | Failure]:
        """One image for each prompt: (height, width, 3) float32 in [0, 1], or a Failure
        ("blank-image") where the safety checker blackened it.

        call: further parameters.
        Raises ModelError when the pipeline returns no images, or not one for each prompt.
        """
        import torch

        pipeline, call = self._pipeline, dict(call)
        if "negative_prompt" in call:
            # Some pipelines do not spread a single negative prompt over a batch.
            call["negative_prompt"] = [call["negative_prompt"]] * len(prompts)
        # Of an offloaded one, `device` is where its parts wait.
        devices = [getattr(pipeline, "_execution_device", pipeline.device)]
        # A few schedulers draw from the global generator whatever they are given: for those at
        # least the batch is seeded. The caller's own random state is left as it was.
        with seeded(devices, seeds[0]), quiet(), np.errstate(invalid="ignore"):
            result = pipeline(
                prompt=list(prompts),
                generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
                output_type="np",
                **call,
            )
        images = getattr(result, "images", None)
        if images is None or len(images) != len(prompts):
            count = "no images" if images is None else f"{len(images)} image(s)"
            raise ModelError(
                f"{self._checkpoint.path}: {self._checkpoint.what} returned {count} for "
                f"{len(prompts)} text(s): it is no {self.kind} pipeline"
            )
        flagged = getattr(result, "nsfw_content_detected", None) or [False] * len(prompts)
        flagged_image = Failure("blank-image", "safety checker flagged the image and blackened it")
        pairs = zip(images, flagged, strict=True)
        return [flagged_image if flag else np.asarray(image) for image, flag in pairs]


def tokenizer_of(part: Any) -> Any:
    """The tokenizer that a pipeline calls so; FLUX.2 has a processor of images and texts there."""
    return getattr(part, "tokenizer", part)
