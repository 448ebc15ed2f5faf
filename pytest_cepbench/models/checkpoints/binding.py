"""Folders and hub ids, bound by the adapter of their role: parameters, device, identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.binding import (
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    HashFile,
    Resources,
)
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    check_configuration,
    complete_checkpoint,
    file_options,
    fingerprint,
    inspect_checkpoint,
    list_files,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint import WEIGHT_FILES
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.checkpoints.peft_adapters import idle_parts
from pytest_cepbench.models.checkpoints.placement import DeviceMap, require_quantization
from pytest_cepbench.models.checkpoints.source_options import SourceOptions
from pytest_cepbench.models.protocols import UNIFIED_ROLES, Model, RoleName, is_unified
from pytest_cepbench.models.spec import ModelSpec, check_at_least, parse_params
from pytest_cepbench.models.torch_runtime import (
    IMAGE_BACKENDS,
    bound_spinning,
    check_configuration_names,
    library_versions,
    require,
    resolve_device,
    resolve_dtype,
)

_SMALL_BYTES = 64 << 20
"""Weights up to here are read from the processor's caches, or nearly so: what takes time is the
overhead of each operation, which a larger batch shares and more threads do not."""

_SMALL_BATCH = 32
"""Inputs per call of a small describer or writer on the CPU, where the spec gives no number: each
token that it writes is a call of all its layers."""

_TENSOR_PARALLEL = ("tp", "tp_plan", "tp_size", "tensor_parallel_size")


@dataclass(frozen=True)
class Placement:
    """The parameters that say where and how a model runs.

    device: auto, cpu, cuda, cuda:N or mps.
    dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call.
    Raises ValueError for a value outside these, so that a wrong one fails at binding.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 8

    def __post_init__(self) -> None:
        resolve_device(self.device)
        resolve_dtype(self.dtype, "cpu", {})
        check_at_least(self, 1, "batch_size")

    @property
    def decisive(self) -> dict[str, Any]:
        """The parameters, besides dtype, that can change an answer: they enter keys.

        Those that say which files are read are left out: the fingerprint covers the files.
        """
        return {}

    @property
    def seeded(self) -> bool:
        """Whether answers depend on the seed."""
        return False

    @property
    def dispatched(self) -> bool:
        """Whether a library places the model's parts, so that it cannot be moved as a whole."""
        return False


@dataclass(frozen=True)
class CheckpointParams(Placement):
    """Parameters that the spec of every checkpoint can carry, with those of `Placement`.

    revision: commit, tag or branch of a hub id.
    allow_pickle: read pickled weights where there are no others.
    """

    revision: str | None = None
    allow_pickle: bool = False


@dataclass(frozen=True)
class TransformersParams(CheckpointParams, SourceOptions, DeviceMap):
    """Parameters of every transformers checkpoint that reads images, with those of
    `CheckpointParams`, `SourceOptions` and `DeviceMap`.

    attn_implementation: eager, sdpa, flash_attention_2, ...; None leaves the library's choice.
    backend: of the image processor, pil or torchvision. The two differ by a level of a pixel here
        and there, so one is pinned: Pillow's, which every installation has; a processor that comes
        in one form only is used in that form.
    """

    attn_implementation: str | None = None
    backend: str = "pil"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_map(self.device)
        if self.backend not in IMAGE_BACKENDS:
            raise ValueError(f"backend must be {' or '.join(IMAGE_BACKENDS)}, got {self.backend!r}")

    @property
    def decisive(self) -> dict[str, Any]:
        """The backend, and the attention where one is given."""
        if self.attn_implementation is None:
            return {"backend": self.backend}
        return {"backend": self.backend, "attn_implementation": self.attn_implementation}

    @property
    def dispatched(self) -> bool:
        """Where a device map divides it."""
        return self.device_map is not None


@dataclass(frozen=True)
class ImageTextParams(TransformersParams):
    """Parameters of every transformers checkpoint that reads images and texts, with those of
    `TransformersParams`.

    variant: weights variant, such as fp16.
    trust_remote_code: run the checkpoint's Python files.
    allow_unused: leave out tensors that the architecture does not know, instead of refusing them.
    """

    variant: str | None = None
    trust_remote_code: bool = False
    allow_unused: bool = False


P = TypeVar("P", bound=Placement)


@dataclass(frozen=True)
class LoadPlan(Generic[P]):
    """All that loading a checkpoint for a role needs, decided at binding.

    params: the spec's.
    device, dtype: what "auto" came to, as torch names them.
    files: those that its fingerprint covers.
    """

    role: RoleName
    spec: ModelSpec
    checkpoint: Checkpoint
    context: BindContext
    params: P
    device: str
    dtype: str
    files: CoveredFiles


def _decisive(plan: LoadPlan[Any]) -> dict[str, Any]:
    return {"dtype": plan.dtype, **plan.params.decisive}


Bind = Callable[[RoleName, ModelSpec, Checkpoint, BindContext], BoundRole]
"""Resolves a checkpoint for a role, without importing torch."""


def adapter(
    name: str,
    packages: tuple[str, ...],
    params: type[P],
    load: Callable[[LoadPlan[P]], Model],
    *,
    check: Callable[[LoadPlan[P]], object] = lambda _: None,
    decisive: Callable[[LoadPlan[P]], Mapping[str, Any]] = _decisive,
    scores_answers: bool = False,
) -> Bind:
    """A library's way to play a role: how its checkpoints are bound and loaded.

    name: with its version, "timm-encoder/1"; part of every step's key.
    packages: have to be installed.
    params: the dataclass of the spec's parameters.
    load: loads the model of a plan; raises what `loading` raises.
    check: raises, at binding, for what loading would refuse or, worse, misread.
    decisive: the parameters that enter keys.
    scores_answers: as in `BoundRole`.
    What it returns raises SpecError for unknown or wrong parameters, CheckpointError for files that
    cannot be used or that no fingerprint can vouch for, MissingDependencyError where a library is
    not installed.
    """

    def bind(
        role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
    ) -> BoundRole:
        require(*packages, *(("peft",) if checkpoint.adapters else ()))
        if "transformers" in packages:
            check_configuration_names(checkpoint.config)
        plan = make_plan(role, params, spec, checkpoint, context)
        dispatched = plan.params.dispatched
        if dispatched:
            require("accelerate")
        require_quantization(checkpoint, plan.device)
        check(plan)
        weights = _stored_bytes(checkpoint)
        small = plan.device == "cpu" and 0 < weights <= _SMALL_BYTES
        size_left_open = "batch_size" not in spec.params
        writes = role in ("describer", "writer")
        least = _SMALL_BATCH if small and size_left_open and writes else 1

        def load_plan() -> Model:
            bound_spinning()
            return load(plan)

        return BoundRole(
            role=role,
            spec=spec.text,
            what=checkpoint.what,
            fingerprint=plan.files.fingerprint,
            adapter=name,
            load=load_plan,
            params=decisive(plan),
            seeded=plan.params.seeded,
            resources=Resources(
                batch_size=max(least, plan.params.batch_size),
                grows=size_left_open and plan.device != "cpu",
                small=small and not dispatched,
                build=f"{weights >> 20} MiB{' dispatched' if dispatched else ''}",
                dispatched=dispatched,
            ),
            provenance={"device": plan.device, **library_versions()},
            files=plan.files,
            scores_answers=scores_answers,
            remarks=checkpoint.remarks,
            idle=cache(lambda: idle_parts(checkpoint, file_options(spec))),
        )

    return bind


def make_plan(
    role: RoleName, kind: type[P], spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> LoadPlan[P]:
    """Read a spec's parameters as `kind` and settle where the checkpoint will run, without torch.

    Raises SpecError naming a parameter that is unknown or wrong.
    """
    _refuse_tensor_parallel(spec)
    params = parse_params(spec, kind, f"the {role} {checkpoint.what}")
    device = resolve_device(params.device)
    if params.device == "auto":
        device = context.devices.get(spec.text, device)
    dtype = resolve_dtype(params.dtype, device, stored_precision(checkpoint))
    options = file_options(spec)

    def identify(hash_file: HashFile) -> str:
        check_configuration(checkpoint)
        return fingerprint(checkpoint, hash_file, options)

    files = CoveredFiles(checkpoint.place, context.hash_file, identify)
    return LoadPlan(role, spec, checkpoint, context, params, device, dtype, files)


def _refuse_tensor_parallel(spec: ModelSpec) -> None:
    """Raise SpecError for parameters of tensor parallelism.

    transformers has one process for each device, all started by torchrun and all asked the same
    thing at the same moment. Several pytest processes that ask one another's models are no run
    whose results can be vouched for.
    """
    names = [name for name in spec.params if name in _TENSOR_PARALLEL]
    if names:
        raise SpecError(
            f"model spec {spec.text!r}: {names[0]} needs one process for each device, started by "
            "torchrun, and a worker is one process. Give device_map=auto, which divides the layers "
            "among the worker's devices, or have an engine serve the checkpoint: "
            f"serve:{spec.target}?engine=vllm&tensor_parallel_size=N"
        )


def _stored_bytes(checkpoint: Checkpoint) -> int:
    """The size of the weights' files, which tells builds of one architecture apart.

    0 for a file of weights by itself.
    """
    path = checkpoint.path
    names = list_files(path) if path.is_dir() and checkpoint.weights_part is None else []
    paths = [path / name for name in names]
    paths += [path for part in checkpoint.parts if not part.component for _, path in part.paths()]
    return sum(path.stat().st_size for path in paths if path.name.endswith(WEIGHT_FILES))


_ADAPTERS: Mapping[RoleName, tuple[Mapping[str, str], str]] = {
    "describer": (
        {"transformers": "text_model.text_generation:DESCRIBER"},
        "describes nothing. Give an image-text-to-text model of transformers",
    ),
    "generator": (
        {"diffusers": "pipelines.roles:GENERATOR"},
        "cannot be a generator. Give a diffusers pipeline (a folder with model_index.json)",
    ),
    "encoder": (
        {
            "transformers": "encoders.transformers_encoder:ADAPTER",
            "open_clip": "encoders.library_encoders:OPEN_CLIP",
            "timm": "encoders.library_encoders:TIMM",
            "sentence_transformers": "encoders.library_encoders:SENTENCE_TRANSFORMERS",
        },
        (
            "gives no vectors. Give a vision model of transformers, timm or open_clip, or a "
            "sentence-transformers model"
        ),
    ),
    "detector": (
        {"transformers": "detectors.classes_detector:BOXES"},
        "finds no boxes. Give a detector of transformers (OWLv2, Mask2Former, DETR)",
    ),
    "judge": (
        {"transformers": "text_model.judge:ADAPTER"},
        "judges nothing. Give an image-text-to-text model of transformers",
    ),
    "writer": (
        {"transformers": "text_model.text_generation:WRITER"},
        "writes nothing. Give an image-text-to-text model of transformers",
    ),
    "editor": (
        {"diffusers": "pipelines.roles:EDITOR"},
        "cannot be an editor. Give a diffusers pipeline that takes an image and a text",
    ),
    "interleaver": (
        {},
        (
            "cannot be an interleaver unless it describes and draws. Give an Emu3 or a Janus, a "
            "writer and a generator, or wrap its own code as python:package.module:factory"
        ),
    ),
    "vqa": (
        {"transformers": "text_model.vqa:ADAPTER"},
        "answers no questions. Give an image-text-to-text model of transformers",
    ),
}
"""The adapter of each role and kind of checkpoint, and what is said where there is none. An adapter
is imported alone, so that a describer binds where diffusers is not installed."""

_OF_UNIFIED = (*UNIFIED_ROLES, "writer", "interleaver")
"""Roles of a unified model that it plays with one load."""

_UNIFIED = "text_model.unified:bind_unified"

_DETECTORS = {
    "owlv2": "detectors.transformers_detector:ADAPTER",
    "owlvit": "detectors.transformers_detector:ADAPTER",
    "mask2former": "detectors.classes_detector:MASKS",
}
"""The adapters of model types that have one of their own."""

_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}

_FLOATS = {"F64", "F32", "F16", "BF16"}
"""Types that loading converts to the model's precision; integers and eight-bit types stay."""


def detect(spec: ModelSpec) -> DetectedModel:
    """What a checkpoint is; raises as `models.binding.detect`."""
    checkpoint = inspect_checkpoint(spec)
    roles = checkpoint.roles
    return DetectedModel(checkpoint.what, roles, checkpoint.because, unified=is_unified(roles))


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `models.binding.bind`."""
    checkpoint = inspect_checkpoint(spec)
    if not _plays(checkpoint, role) and not context.force:
        raise RoleError(_wrong_role(spec, role, checkpoint))
    complete_checkpoint(spec, checkpoint)
    unified = is_unified(checkpoint.roles)
    # A describer that the user forces to draw may be unified by rules that are not known here.
    drawing = role == "generator" and "describer" in checkpoint.roles
    if (unified and role in _OF_UNIFIED) or drawing:
        bound: BoundRole = _imported(_UNIFIED)(role, spec, checkpoint, context)
        return bound
    return _adapter_of(spec, role, checkpoint)(role, spec, checkpoint, context)


def _plays(checkpoint: Checkpoint, role: RoleName) -> bool:
    """A model that describes can judge and answer questions too, where it is named for that."""
    return ("describer" if role in ("judge", "vqa") else role) in checkpoint.roles


def _adapter_of(spec: ModelSpec, role: RoleName, checkpoint: Checkpoint) -> Bind:
    adapters, otherwise = _ADAPTERS[role]
    if checkpoint.kind not in adapters:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint {otherwise}"
        )
    place = adapters[checkpoint.kind]
    if role == "detector":
        place = _DETECTORS.get(str(checkpoint.config.get("model_type")), place)
    bind: Bind = _imported(place)
    return bind


def _imported(place: str) -> Any:
    """An adapter, or a function, by its module and name: "encoders.timm_encoder:ADAPTER"."""
    return resolve_name(f"pytest_cepbench.models.{place}")


def _wrong_role(spec: ModelSpec, role: RoleName, checkpoint: Checkpoint) -> str:
    is_what = f"{spec.text!r} is a {checkpoint.what}: it {checkpoint.because}"
    if checkpoint.roles:
        *others, last = checkpoint.roles
        able = f"{', '.join(others)} or {last}" if others else last
        option = f"--{checkpoint.roles[0]}"
        return f"{is_what}, so it can be the {able}, not the {role}. Give it as {option}"
    return (
        f"{is_what}, so no role could be told from its configuration, and not that of the {role}. "
        f"To try it all the same, name the role: --{role}, or --model with --cep-role={role}"
    )


def check_installed(_: ModelSpec) -> None:
    """Raise MissingDependencyError without torch, which every checkpoint needs."""
    require("torch")


def weights_bytes(spec: ModelSpec, device: str | None) -> int | None:
    """As `models.binding.weights_bytes`."""
    checkpoint = inspect_checkpoint(spec)
    if device is None:
        device = resolve_device(spec.params.get("device", "auto"))
    dtype = resolve_dtype(spec.params.get("dtype", "auto"), device, stored_precision(checkpoint))
    files = checkpoint.weight_files(file_options(spec))
    return sum(_loaded_bytes(file, _WIDTHS[dtype]) for file in files) or None


def _loaded_bytes(file: Path, width: int) -> int:
    """Bytes of a file's weights once loaded; of pickled weights the file's size.

    width: bytes of one number in the model's precision.
    """
    if file.suffix != ".safetensors":
        return file.stat().st_size
    tensors = check_safetensors(file).values()
    return sum(
        prod(tensor["shape"]) * width
        if tensor["dtype"] in _FLOATS
        else tensor["data_offsets"][1] - tensor["data_offsets"][0]
        for tensor in tensors
    )
