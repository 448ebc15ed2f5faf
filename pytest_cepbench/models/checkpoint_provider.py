"""Folders and hub ids: detected, bound by the adapter of their role, estimated before loading."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    complete_checkpoint,
    file_options,
    inspect_checkpoint,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.load_plan import Adapter
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import (
    UNIFIED_ROLES,
    BindContext,
    BoundRole,
    RoleName,
    is_unified,
)
from pytest_cepbench.models.registry import DetectedModel, Provider
from pytest_cepbench.models.torch_runtime import require, resolve_device, resolve_dtype

_ADAPTERS: Mapping[RoleName, tuple[Mapping[str, str], str]] = {
    "describer": (
        {"transformers": "text_model.text_generation:DESCRIBER"},
        "describes nothing. Give an image-text-to-text model of transformers",
    ),
    "generator": (
        {"diffusers": "pipelines.generator:ADAPTER"},
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
        {"diffusers": "pipelines.editor:ADAPTER"},
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

_DETECTORS = {
    "owlv2": "detectors.transformers_detector:ADAPTER",
    "owlvit": "detectors.transformers_detector:ADAPTER",
    "mask2former": "detectors.classes_detector:MASKS",
}
"""The adapters of model types that have one of their own."""

_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}

_FLOATS = {"F64", "F32", "F16", "BF16"}
"""Types that loading converts to the model's precision; integers and eight-bit types stay."""


def _detect(spec: ModelSpec) -> DetectedModel:
    checkpoint = inspect_checkpoint(spec)
    roles = checkpoint.roles
    return DetectedModel(checkpoint.what, roles, checkpoint.because, unified=is_unified(roles))


def _bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `registry.bind`."""
    checkpoint = inspect_checkpoint(spec)
    if not _plays(checkpoint, role) and not context.force:
        raise RoleError(_wrong_role(spec, role, checkpoint))
    complete_checkpoint(spec, checkpoint)
    unified = is_unified(checkpoint.roles)
    # A describer that the user forces to draw may be unified by rules that are not known here.
    drawing = role == "generator" and "describer" in checkpoint.roles
    if (unified and role in _OF_UNIFIED) or drawing:
        from pytest_cepbench.models.text_model.unified import bind_unified

        return bind_unified(role, spec, checkpoint, context)
    return _adapter(spec, role, checkpoint).bind(role, spec, checkpoint, context)


def _plays(checkpoint: Checkpoint, role: RoleName) -> bool:
    """A model that describes can judge and answer questions too, where it is named for that."""
    return ("describer" if role in ("judge", "vqa") else role) in checkpoint.roles


def _adapter(spec: ModelSpec, role: RoleName, checkpoint: Checkpoint) -> Adapter[Any]:
    adapters, otherwise = _ADAPTERS[role]
    if checkpoint.kind not in adapters:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint {otherwise}"
        )
    place = adapters[checkpoint.kind]
    if role == "detector":
        place = _DETECTORS.get(str(checkpoint.config.get("model_type")), place)
    module, _, name = place.partition(":")
    adapter: Adapter[Any] = getattr(
        importlib.import_module(f"pytest_cepbench.models.{module}"), name
    )
    return adapter


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


def _weights_bytes(spec: ModelSpec, device: str | None) -> int | None:
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


PROVIDER = Provider(
    detect=_detect,
    bind=_bind,
    check_installed=lambda _: require("torch"),
    weights_bytes=_weights_bytes,
)
