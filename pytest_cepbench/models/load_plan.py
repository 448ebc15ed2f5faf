"""Binding a checkpoint, as the adapters of all libraries do it: parameters, device, identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    check_configuration,
    file_options,
    fingerprint,
    list_files,
    stored_precision,
)
from pytest_cepbench.models.fingerprint_check import CoveredFiles, HashFile
from pytest_cepbench.models.model_spec import ModelSpec, parse_params
from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName
from pytest_cepbench.models.torch_runtime import (
    bound_spinning,
    library_versions,
    resolve_device,
    resolve_dtype,
)

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")

_SMALL_BYTES = 64 << 20
"""Weights up to here are read from the processor's caches, or nearly so: what takes time is the
overhead of each operation, which a larger batch shares and more threads do not."""

_SMALL_BATCH = 32
"""Inputs in one call of a small describer on the CPU, where the spec gives no number: each token that
it writes is a call of all its layers."""


class Placement(Protocol):
    """The parameters that say where and how a model runs."""

    @property
    def device(self) -> str:
        """One of auto, cpu, cuda, cuda:N and mps."""

    @property
    def dtype(self) -> str:
        """One of auto, float32, float16 and bfloat16."""

    @property
    def batch_size(self) -> int:
        """Most inputs in one call."""


@dataclass(frozen=True)
class CheckpointParams:
    """Parameters that the spec of every checkpoint can carry.

    device: auto, cpu, cuda, cuda:N or mps.
    dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call.
    revision: commit, tag or branch of a hub id.
    allow_pickle: read pickled weights where there are no others.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 8
    revision: str | None = None
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        check_placement(self)


P = TypeVar("P", bound=Placement)


@dataclass(frozen=True)
class LoadPlan(Generic[P]):
    """All that loading a checkpoint for a role needs, decided at binding.

    params: the spec's. device, dtype: what "auto" came to, as torch names them. files: those that
    its fingerprint covers.
    """

    role: RoleName
    spec: ModelSpec
    checkpoint: Checkpoint
    context: BindContext
    params: P
    device: str
    dtype: str
    files: CoveredFiles


def make_plan(
    role: RoleName, kind: type[P], spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> LoadPlan[P]:
    """Read a spec's parameters as `kind` and settle where the checkpoint will run, without torch.

    Raises SpecError naming a parameter that is unknown or wrong.
    """
    params = parse_params(spec, kind, f"the {role} {checkpoint.what}")
    device = resolve_device(params.device)
    dtype = resolve_dtype(params.dtype, device, stored_precision(checkpoint))
    options = asdict(file_options(spec))

    def identify(hash_file: HashFile) -> str:
        check_configuration(checkpoint)
        return fingerprint(checkpoint, hash_file, **options)

    files = CoveredFiles(checkpoint.path, context.hash_file, identify)
    return LoadPlan(role, spec, checkpoint, context, params, device, dtype, files)


def bind_plan(
    plan: LoadPlan[P],
    *,
    adapter: str,
    load: Callable[[], Model],
    params: Mapping[str, Any],
    seeded: bool = False,
    identified: str | None = None,
) -> BoundRole:
    """The bound role of a plan.

    adapter, load, params, seeded: as in `BoundRole`. identified: the fingerprint where the adapter
    makes it itself, out of that of the plan's files; None is that one. Raises CheckpointError where
    no fingerprint can vouch for what would be loaded.
    """
    checkpoint = plan.checkpoint
    weights = _weights_bytes(checkpoint)
    small = plan.device == "cpu" and 0 < weights <= _SMALL_BYTES
    unsaid = "batch_size" not in plan.spec.params
    least = _SMALL_BATCH if small and unsaid and plan.role == "describer" else 1
    return BoundRole(
        role=plan.role,
        spec=plan.spec.text,
        what=checkpoint.what,
        fingerprint=plan.files.fingerprint if identified is None else identified,
        adapter=adapter,
        load=partial(_load, load),
        params=params,
        seeded=seeded,
        batch_size=max(least, plan.params.batch_size),
        grows=unsaid and plan.device != "cpu",
        small=small,
        build=f"{weights >> 20} MiB",
        provenance={"device": plan.device, **library_versions()},
        files=plan.files,
    )


def _load(load: Callable[[], Model]) -> Model:
    bound_spinning()
    return load()


def _weights_bytes(checkpoint: Checkpoint) -> int:
    """The size of the weights' files, which tells builds of one architecture apart."""
    path = checkpoint.path
    sizes = [
        (path / name).stat().st_size
        for name in (list_files(path) if path.is_dir() else [])
        if name.endswith(_WEIGHTS)
    ]
    return sum(sizes)


def check_placement(params: Placement) -> None:
    """Raise ValueError for a device, precision or batch size that no adapter knows.

    For the `__post_init__` of an adapter's parameters, so that a wrong one fails at binding.
    """
    resolve_device(params.device)
    resolve_dtype(params.dtype, "cpu", {})
    if params.batch_size < 1:
        msg = f"batch_size must be at least 1, got {params.batch_size}"
        raise ValueError(msg)
