"""Folders and hub ids, bound by the adapter of their role: parameters, device, identity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from pytest_cepbench.errors import CheckpointError, RoleError, error_line
from pytest_cepbench.models.binding import (
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    IdleParts,
    Resources,
)
from pytest_cepbench.models.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointPart,
    fingerprint,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    check_safetensors,
    list_files,
    readable_files,
    tensor_shapes,
)
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.checkpoints.parameters import Placement
from pytest_cepbench.models.checkpoints.peft_adapters import (
    adapter_weights,
    read_adapter,
    read_tensors,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import LORA
from pytest_cepbench.models.protocols import UNIFIED_ROLES, Model, RoleName
from pytest_cepbench.models.spec import ModelSpec, parse_params
from pytest_cepbench.models.torch_runtime import (
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

P = TypeVar("P", bound=Placement)
P_co = TypeVar("P_co", bound=Placement, covariant=True)


@dataclass(frozen=True)
class LoadPlan(Generic[P_co]):
    """All that loading a checkpoint for a role needs, decided at binding.

    params: the spec's.
    device, dtype: what "auto" came to, as torch names them.
    files: those that its fingerprint covers.
    """

    role: RoleName
    spec: ModelSpec
    checkpoint: Checkpoint
    context: BindContext
    params: P_co
    device: str
    dtype: str
    files: CoveredFiles


Bind = Callable[[RoleName, ModelSpec, Checkpoint, BindContext], BoundRole]
"""Binds a checkpoint for a role, without importing torch.

Raises SpecError for unknown or wrong parameters, CheckpointError for files that cannot be used or
that no fingerprint can vouch for, MissingDependencyError where a library is not installed.
"""


def adapter(
    name: str,
    kind: type[P],
    load: Callable[[LoadPlan[P]], Model],
    *,
    packages: tuple[str, ...] = (),
    check: Callable[[LoadPlan[P]], object] = lambda _: None,
    decisive: Callable[[LoadPlan[P]], Mapping[str, Any]] | None = None,
) -> Bind:
    """A library's way to play a role: how its checkpoints are bound and loaded.

    name: with its version, "timm-encoder/1"; part of every step's key.
    kind: the dataclass of the spec's parameters.
    load: loads the model of a plan; raises what `loading` raises.
    packages: that it needs beside torch and the library of the checkpoint.
    check: raises, at binding, for what loading would refuse or, worse, misread.
    decisive: the parameters that enter keys; None for dtype and those that the class says.
    """

    def bind(
        role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
    ) -> BoundRole:
        libraries = {"weights_file": (), "diffusers": ("diffusers", "transformers")}
        own = libraries.get(checkpoint.kind, (checkpoint.kind,))
        require("torch", *own, *packages, *(("peft",) if checkpoint.adapters else ()))
        if "transformers" in own:
            check_configuration_names(checkpoint.config)
        params = parse_params(spec, kind, f"the {role} {checkpoint.what}", kind.SOURCES)
        if params.dispatched:
            require("accelerate")
        device = resolve_device(params.device)
        if params.device == "auto":
            device = context.devices.get(spec.text, device)
        dtype = resolve_dtype(params.dtype, device, stored_precision(checkpoint))
        files = CoveredFiles(checkpoint.place, context.hash_file, partial(fingerprint, checkpoint))
        plan = LoadPlan(role, spec, checkpoint, context, params, device, dtype, files)
        check(plan)
        weights = sum(path.stat().st_size for path in checkpoint.weight_files())
        size_left_open = "batch_size" not in spec.params
        small = device == "cpu" and 0 < weights <= _SMALL_BYTES
        writes = role in ("describer", "writer")
        least = _SMALL_BATCH if small and size_left_open and writes else 1
        return BoundRole(
            role=role,
            spec=spec.text,
            what=checkpoint.what,
            fingerprint=files.fingerprint,
            adapter=name,
            load=partial(load, plan),
            params=decisive(plan) if decisive else {"dtype": dtype, **params.decisive},
            seeded=params.seeded,
            resources=Resources(
                batch_size=max(least, params.batch_size),
                grows=size_left_open and device != "cpu",
                # Tells builds of one architecture apart.
                build=f"{weights >> 20} MiB{' dispatched' if params.dispatched else ''}",
                dispatched=params.dispatched,
            ),
            provenance={"device": device, **library_versions()},
            files=files,
            remarks=checkpoint.remarks,
            idle=cache(lambda: idle_parts(checkpoint)),
            reads=checkpoint.reads,
            makes=checkpoint.makes,
        )

    return bind


_ADAPTERS: Mapping[tuple[RoleName, str], str] = {
    ("describer", "transformers"): "text_model.text_generation:DESCRIBER",
    ("generator", "diffusers"): "pipelines.roles:GENERATOR",
    ("encoder", "transformers"): "encoders.transformers_encoder:ADAPTER",
    ("encoder", "open_clip"): "encoders.library_encoders:OPEN_CLIP",
    ("encoder", "timm"): "encoders.library_encoders:TIMM",
    ("encoder", "sentence_transformers"): "encoders.library_encoders:SENTENCE_TRANSFORMERS",
    ("detector", "transformers"): "detectors.transformers_detectors:BOXES",
    ("detector", "owlv2"): "detectors.transformers_detectors:OWL",
    ("detector", "owlvit"): "detectors.transformers_detectors:OWL",
    ("detector", "mask2former"): "detectors.transformers_detectors:MASKS",
    ("judge", "transformers"): "text_model.conversations:JUDGE",
    ("writer", "transformers"): "text_model.text_generation:WRITER",
    ("editor", "diffusers"): "pipelines.roles:EDITOR",
    ("vqa", "transformers"): "text_model.conversations:VQA",
}
"""The adapter of each role and kind of checkpoint, or model type that has one of its own. It is
imported alone, so that a describer binds where diffusers is not installed."""

_READS_IMAGES = "an image-text-to-text model of transformers"

_EXPECTED: Mapping[RoleName, str] = {
    **dict.fromkeys(("describer", "judge", "writer", "vqa"), _READS_IMAGES),
    "generator": "a diffusers pipeline (a folder with model_index.json)",
    "encoder": "a model of transformers or timm that sees, an open_clip, or sentence-transformers",
    "detector": "a detector of transformers (OWLv2, Mask2Former, DETR)",
    "editor": "a diffusers pipeline that takes an image and a text",
    "interleaver": "an Emu3 or a Janus, a writer and a generator, or a python: model",
}
"""What can play each role, for people."""


def detect(spec: ModelSpec) -> DetectedModel:
    """What a checkpoint is; raises as `models.binding.detect`."""
    return inspect_checkpoint(spec)


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `models.binding.bind`."""
    checkpoint = inspect_checkpoint(spec)
    if not context.force:
        check_role(spec, role, checkpoint)
    complete_checkpoint(checkpoint)
    with_one_load = checkpoint.unified and role in (*UNIFIED_ROLES, "writer", "interleaver")
    if with_one_load or (role == "generator" and "describer" in checkpoint.roles):
        place = "text_model.unified:bind_unified"
    elif role == "generator" and checkpoint.makes == "sound":
        place = "sounds.generators:ADAPTER"
    elif (role, checkpoint.kind) not in _ADAPTERS:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint cannot be the "
            f"{role}. Give {_EXPECTED[role]}"
        )
    else:
        model_type = str(checkpoint.config.get("model_type"))
        place = _ADAPTERS.get((role, model_type), _ADAPTERS[role, checkpoint.kind])
    bind_role: Bind = resolve_name(f"pytest_cepbench.models.{place}")
    return bind_role(role, spec, checkpoint, context)


def check_role(spec: ModelSpec, role: RoleName, checkpoint: Checkpoint) -> None:
    """Raise RoleError where nothing says that a spec's checkpoint can play a role."""
    roles = checkpoint.roles
    # A model that describes images can judge and answer questions too, where it is named for that.
    asks = role in ("judge", "vqa") and "image" in checkpoint.reads
    if ("describer" if asks else role) in roles:
        return
    is_what = f"{spec.text!r} is a {checkpoint.what}: it {checkpoint.because}"
    if not roles:
        raise RoleError(
            f"{is_what}, so nothing says that it can be the {role}. To try it all the same, name "
            f"the role: --{role}, or --model with --cep-role={role}"
        )
    *others, last = roles
    able = f"{', '.join(others)} or {last}" if others else last
    raise RoleError(f"{is_what}, so it can be the {able}, not the {role}. Give it as --{roles[0]}")


def check_installed(_: ModelSpec) -> None:
    """Raise MissingDependencyError without torch, which every checkpoint needs."""
    require("torch")


def weights_bytes(spec: ModelSpec, device: str | None) -> int | None:
    """As `models.binding.weights_bytes`."""
    checkpoint = inspect_checkpoint(spec)
    if device is None:
        device = resolve_device(spec.params.get("device", "auto"))
    dtype = resolve_dtype(spec.params.get("dtype", "auto"), device, stored_precision(checkpoint))
    size, width = 0, 4 if dtype == "float32" else 2
    for file in checkpoint.weight_files():
        if file.suffix != ".safetensors":
            size += file.stat().st_size
            continue
        for tensor in check_safetensors(file).values():
            begin, end = tensor["data_offsets"]
            # Loading converts these to the model's precision; integers and eight-bit types stay.
            converted = tensor["dtype"] in ("F64", "F32", "F16", "BF16")
            size += prod(tensor["shape"]) * width if converted else end - begin
    return size or None


# -- trained parts that change nothing -------------------------------------------------------------
# A gate of a checkpoint whose trained parts change nothing measures what was accepted before the
# training. That is found in the files, since stored results are not computed again and load no
# model.


_FACTOR = re.compile(r"(.*?[._])(lora_(embedding_)?[AB]|lora_down|lora_up|down|up)(\.weight)?")
"""Names of the matrices whose product a layer adds: where one is zero, it adds nothing."""


def idle_parts(checkpoint: Checkpoint) -> IdleParts:
    """Which LoRA and components of a checkpoint change nothing.

    LoRA is idle where a matrix or the alpha of each of its layers is zero and it holds no more, a
    component where its tensors are those that it replaces, in its own precision. Other kinds are
    taken to change something.

    Raises CheckpointError for files that cannot be read.
    """
    trained = [p for p in checkpoint.parts if p.name in ("adapter", LORA) or p.replaces]
    idle = [
        part
        for part in trained
        if (_is_equal(checkpoint, part) if part.replaces else _adds_nothing(part))
    ]
    whole = bool(idle) and len(idle) == len(trained)
    return IdleParts(
        tuple(
            f"{part.path} is equal to the {part.name} that it replaces"
            if part.replaces
            else f"{part.path} changes nothing: all that it adds is zero"
            for part in idle
            # A training's folder holds components that it left as they were.
            if whole or not part.replaces
        ),
        whole,
    )


def _adds_nothing(lora: CheckpointPart) -> bool:
    # The alphas of a pipeline's LoRA lie among its tensors.
    config = {} if lora.name == LORA else read_adapter(lora.path)
    pattern = config.get("alpha_pattern")
    alphas = [config.get("lora_alpha", 1), *(pattern.values() if isinstance(pattern, dict) else ())]
    state = read_tensors(lora.path if lora.name == LORA else adapter_weights(lora.path))
    layers: dict[str, bool] = defaultdict(lambda: True)  # whether all matrices hold something
    for name, tensor in state.items():
        if (match := _FACTOR.fullmatch(name)) is not None:
            layers[match[1]] &= bool(tensor.any())
        elif not name.endswith(".alpha"):
            return False
        elif not tensor.any():  # what the product of both is multiplied by
            layers[name.removesuffix("alpha")] = False
    return bool(layers) and not (any(alphas) and any(layers.values()))


def _is_equal(checkpoint: Checkpoint, part: CheckpointPart) -> bool:
    """Whether a component's tensors are those that it replaces, in its own precision."""
    import torch
    from safetensors import safe_open

    folder = checkpoint.path / part.name
    names = readable_files(list_files(folder), "transformers", {}, checkpoint.options)
    own, base = (
        {
            name: file
            for file in files
            if file.suffix == ".safetensors"
            for name in tensor_shapes(file)
        }
        for files in ([path for _, path in part.paths()], [folder / name for name in names])
    )
    if not own or not own.keys() <= base.keys():
        return False
    opened: Any = cache(partial(safe_open, framework="pt"))  # once: its header names all tensors
    for name, path in own.items():
        try:
            tensors = [opened(place[name]).get_tensor(name) for place in (own, base)]
        except Exception as error:  # a file that is being written raises anything
            line = error_line(error)
            raise CheckpointError(f"{path}: {name} cannot be read: {line}") from error
        # As bytes, since torch does not compare numbers of all types.
        values = [t.to(tensors[0].dtype).flatten().view(torch.uint8) for t in tensors]
        if tensors[0].shape != tensors[1].shape or not torch.equal(*values):
            return False
    return True
