"""Binding a checkpoint, as the adapters of all libraries do it: parameters, device, identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    check_configuration,
    file_options,
    fingerprint,
    list_files,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint import WEIGHT_FILES
from pytest_cepbench.models.checkpoints.source_options import SourceOptions
from pytest_cepbench.models.device_maps import DeviceMap
from pytest_cepbench.models.fingerprint_check import CoveredFiles, HashFile
from pytest_cepbench.models.idle_parts import idle_parts
from pytest_cepbench.models.model_spec import ModelSpec, check_at_least, parse_params
from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName
from pytest_cepbench.models.quantization import require_quantization
from pytest_cepbench.models.torch_runtime import (
    IMAGE_BACKENDS,
    bound_spinning,
    library_versions,
    require,
    resolve_device,
    resolve_dtype,
)
from pytest_cepbench.models.versions import check_configuration_names

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
class TransformersParams(CheckpointParams, SourceOptions):
    """Parameters of every transformers checkpoint that reads images, with those of
    `CheckpointParams` and `SourceOptions`.

    attn_implementation: eager, sdpa, flash_attention_2, ...; None leaves the library's choice.
    backend: of the image processor, pil or torchvision. The two differ by a level of a pixel here
        and there, so one is pinned: Pillow's, which every installation has; a processor that comes
        in one form only is used in that form.
    device_map: auto, balanced, balanced_low_0 or sequential: how the model is divided among the
        devices that the process sees; None puts it on one.
    max_memory: of each device and the host for this model's weights, "0:20GiB,1:20GiB,cpu:60GiB".
    offload: cpu or disk: what may hold the parts that no device has room for.
    offload_folder: where the parts on disk are kept while the model is loaded.
    """

    attn_implementation: str | None = None
    backend: str = "pil"
    device_map: str | None = None
    max_memory: str | None = None
    offload: str | None = None
    offload_folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.division.check(self.device)
        if self.backend not in IMAGE_BACKENDS:
            raise ValueError(f"backend must be {' or '.join(IMAGE_BACKENDS)}, got {self.backend!r}")

    @property
    def decisive(self) -> dict[str, Any]:
        """The backend, and the attention where one is given."""
        if self.attn_implementation is None:
            return {"backend": self.backend}
        return {"backend": self.backend, "attn_implementation": self.attn_implementation}

    @property
    def division(self) -> DeviceMap:
        """How the model is divided among devices."""
        return DeviceMap(self.device_map, self.max_memory, self.offload, self.offload_folder)

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


@dataclass(frozen=True)
class Adapter(Generic[P]):
    """A library's way to play a role: how its checkpoints are bound and loaded.

    name: with its version, "timm-encoder/1"; part of every step's key.
    packages: have to be installed.
    params: the dataclass of the spec's parameters.
    load: loads the model of a plan; raises what `loading` raises.
    check: raises, at binding, for what loading would refuse or, worse, misread.
    decisive: the parameters that enter keys.
    scores_answers: as in `BoundRole`.
    """

    name: str
    packages: tuple[str, ...]
    params: type[P]
    load: Callable[[LoadPlan[P]], Model]
    check: Callable[[LoadPlan[P]], object] = lambda _: None
    decisive: Callable[[LoadPlan[P]], Mapping[str, Any]] = _decisive
    scores_answers: bool = False

    def bind(
        self, role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
    ) -> BoundRole:
        """Resolve a checkpoint for a role, without importing torch.

        Raises SpecError for unknown or wrong parameters, CheckpointError for files that cannot be
        used or that no fingerprint can vouch for, MissingDependencyError where a library is not
        installed.
        """
        require(*self.packages, *(("peft",) if checkpoint.adapters else ()))
        if "transformers" in self.packages:
            check_configuration_names(checkpoint.config)
        plan = make_plan(role, self.params, spec, checkpoint, context)
        if plan.params.dispatched:
            require("accelerate")
        require_quantization(checkpoint, plan.device)
        self.check(plan)
        weights = _weights_bytes(checkpoint)
        small = plan.device == "cpu" and 0 < weights <= _SMALL_BYTES
        size_left_open = "batch_size" not in spec.params
        writes = role in ("describer", "writer")
        dispatched = plan.params.dispatched
        least = _SMALL_BATCH if small and size_left_open and writes else 1

        def load() -> Model:
            bound_spinning()
            return self.load(plan)

        return BoundRole(
            role=role,
            spec=spec.text,
            what=checkpoint.what,
            fingerprint=plan.files.fingerprint,
            adapter=self.name,
            load=load,
            params=self.decisive(plan),
            seeded=plan.params.seeded,
            batch_size=max(least, plan.params.batch_size),
            grows=size_left_open and plan.device != "cpu",
            small=small and not dispatched,
            build=f"{weights >> 20} MiB{' dispatched' if dispatched else ''}",
            provenance={"device": plan.device, **library_versions()},
            files=plan.files,
            scores_answers=self.scores_answers,
            dispatched=dispatched,
            remarks=checkpoint.remarks,
            idle=cache(lambda: idle_parts(checkpoint, file_options(spec))),
        )


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


def _weights_bytes(checkpoint: Checkpoint) -> int:
    """The size of the weights' files, which tells builds of one architecture apart.

    0 for a file of weights by itself.
    """
    path = checkpoint.path
    names = list_files(path) if path.is_dir() and checkpoint.weights_part is None else []
    paths = [path / name for name in names]
    paths += [path for part in checkpoint.parts if not part.component for _, path in part.paths()]
    return sum(path.stat().st_size for path in paths if path.name.endswith(WEIGHT_FILES))
