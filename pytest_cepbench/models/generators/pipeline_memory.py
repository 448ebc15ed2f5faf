"""How a pipeline's parts are placed and called: devices, host memory, VAE, attention.

What can change an image enters keys: the attention and the tiles of the VAE. Where parts lie, and
how many images the VAE decodes at a time, changes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_cepbench.errors import (
    DeviceMemoryError,
    MissingDependencyError,
    SpecError,
    error_line,
    unknown_name,
)
from pytest_cepbench.models.device_maps import parse_max_memory
from pytest_cepbench.models.load_plan import CheckpointParams, LoadPlan
from pytest_cepbench.models.versions import need

if TYPE_CHECKING:
    import torch

_STRATEGIES = ("balanced",)

_OFFLOADS = ("model", "sequential")

_DENOISERS = ("unet", "transformer", "transformer_2", "prior")
"""Components of pipelines that are called at every step."""


@dataclass(frozen=True)
class PipelineMemoryParams(CheckpointParams):
    """Parameters of a pipeline's parts on devices, with those of `CheckpointParams`.

    device_map: balanced puts whole parts on the devices that the process sees, the largest first;
        None puts all on one.
    max_memory: of each device for this pipeline's weights, "0:20GiB,1:20GiB".
    offload: model keeps parts in host memory, one at a time on the device; sequential does so with
        each layer, which takes the least memory and by far the most time.
    attention_backend: of diffusers, for models whose attention has them; None leaves its choice.
    vae_slicing: decode the images of a batch one at a time.
    vae_tiling: decode large images in tiles, which are blended where they meet.
    Raises ValueError for values outside these, and for those that contradict one another.
    """

    device_map: str | None = None
    max_memory: str | None = None
    offload: str | None = None
    attention_backend: str | None = None
    vae_slicing: bool = False
    vae_tiling: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map not in (None, *_STRATEGIES):
            raise ValueError(f"device_map of a pipeline must be balanced, got {self.device_map!r}")
        if self.offload not in (None, *_OFFLOADS):
            raise ValueError(
                f"offload of a pipeline must be {' or '.join(_OFFLOADS)}, got {self.offload!r}"
            )
        if self.device_map is None and self.max_memory is not None:
            raise ValueError("max_memory divides a pipeline among devices: add device_map=balanced")
        if self.device_map is not None and self.offload is not None:
            raise ValueError(
                "device_map divides a pipeline among devices, offload keeps it in host memory: "
                "give one of them"
            )
        if self.device_map is not None and ":" in self.device:
            raise ValueError(
                "device_map divides a pipeline among all devices that the process sees: leave out "
                f"device={self.device}"
            )
        if self.max_memory is not None and "cpu" in parse_max_memory(self.max_memory):
            raise ValueError(
                "max_memory of a pipeline names devices alone: for host memory give offload=model"
            )

    @property
    def decisive(self) -> dict[str, Any]:
        """Those that were given and can change an image."""
        given = {
            "attention_backend": self.attention_backend,
            "vae_tiling": self.vae_tiling,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def dispatched(self) -> bool:
        """Where parts lie on several devices, or come from host memory."""
        return self.device_map is not None or self.offload is not None


P = TypeVar("P", bound=PipelineMemoryParams)


def check_memory(plan: LoadPlan[P]) -> None:
    """Raise SpecError where there is no accelerator that parts could be brought to."""
    if plan.device == "cpu":
        for name in ("offload", "device_map"):
            value = getattr(plan.params, name)
            if value is not None:
                raise SpecError(
                    f"model spec {plan.spec.text!r}: {name}={value} places parts of a pipeline on "
                    "accelerators, and it runs on the cpu: leave it out, or run where one is "
                    "visible"
                )


def map_options(params: PipelineMemoryParams) -> dict[str, Any]:
    """The options of from_pretrained with which diffusers divides a pipeline among devices."""
    if params.device_map is None:
        return {}
    options: dict[str, Any] = {"device_map": params.device_map}
    if params.max_memory is not None:
        options["max_memory"] = parse_max_memory(params.max_memory)
    return options


def place(plan: LoadPlan[P], pipeline: Any) -> Any:
    """The pipeline on its device, before its weights are looked over.

    One that is to be offloaded stays in host memory until then. Raises DeviceMemoryError where a
    part has no room on the devices.
    """
    if plan.params.offload is not None:
        return pipeline
    if plan.params.device_map is None:
        return pipeline.to(plan.device)
    if "cpu" in {str(device) for device in (pipeline.hf_device_map or {}).values()}:
        raise DeviceMemoryError(
            f"{plan.checkpoint.path}: {plan.checkpoint.what} has no room on the devices that this "
            "process sees: a part of it would work from host memory. Give it more devices "
            "(--cep-devices-per-worker), a smaller dtype, or offload=model without device_map"
        )
    return pipeline


def offload(plan: LoadPlan[P], pipeline: Any) -> None:
    """Keep parts in host memory and bring them to the device when they are called."""
    if plan.params.offload == "model":
        pipeline.enable_model_cpu_offload(device=plan.device)
    elif plan.params.offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=plan.device)


def adapt(plan: LoadPlan[P], pipeline: Any) -> None:
    """Set up the VAE and the attention as the spec says.

    Raises SpecError for what the pipeline does not have, MissingDependencyError for an attention
    whose package is not installed or does not work here.
    """
    for parameter in ("vae_slicing", "vae_tiling"):
        if getattr(plan.params, parameter):
            _enable_vae(plan, pipeline, parameter)
    if plan.params.attention_backend is not None:
        _choose_attention(plan, pipeline, plan.params.attention_backend)


def _enable_vae(plan: LoadPlan[P], pipeline: Any, parameter: str) -> None:
    vae = getattr(pipeline, "vae", None)
    way = parameter.removeprefix("vae_")
    try:
        getattr(vae, f"enable_{way}")()
    except (AttributeError, NotImplementedError):
        has = "no vae" if vae is None else f"a {type(vae).__name__}, which has no {way}"
        raise SpecError(
            f"model spec {plan.spec.text!r}: {type(pipeline).__name__} has {has}: leave out "
            f"{parameter}"
        ) from None


def _choose_attention(plan: LoadPlan[P], pipeline: Any, name: str) -> None:
    need("attention_backend", "diffusers", "0.35")
    from diffusers.models.attention_dispatch import AttentionBackendName, attention_backend

    # Those of the hub are code that would be downloaded.
    known = [backend.value for backend in AttentionBackendName]
    known = [backend for backend in known if not backend.endswith("_hub")]
    if name not in known:
        fault = unknown_name("attention_backend", name, known)
        raise SpecError(f"model spec {plan.spec.text!r}: {fault}")
    parts = [part for part in _denoisers(pipeline) if _has_backends(part)]
    if not parts:
        raise SpecError(
            f"model spec {plan.spec.text!r}: the attention of {type(pipeline).__name__} has no "
            "backends to choose from: leave attention_backend out"
        )
    try:
        # Choosing one for a model makes it the choice of every other pipeline of the process, too;
        # after the block it is what it was.
        with attention_backend(name):
            for part in parts:
                part.set_attention_backend(name)
    except (ImportError, RuntimeError) as error:
        raise MissingDependencyError(
            f"model spec {plan.spec.text!r}: attention_backend={name} cannot be used here: "
            f"{error_line(error)}"
        ) from error


def _denoisers(pipeline: Any) -> Iterator[Any]:
    for name in _DENOISERS:
        part = getattr(pipeline, name, None)
        if part is not None:
            yield part


def _has_backends(part: Any) -> bool:
    processors = (getattr(module, "processor", None) for module in part.modules())
    return any(hasattr(processor, "_attention_backend") for processor in processors)


def working_devices(pipeline: Any) -> list[torch.device]:
    """The devices that a pipeline works on."""
    import torch

    mapped = getattr(pipeline, "hf_device_map", None)
    if not mapped:
        # Of an offloaded one, `device` is where its parts wait.
        return [getattr(pipeline, "_execution_device", pipeline.device)]
    return [torch.device(place) for place in set(mapped.values())]
