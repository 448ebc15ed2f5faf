"""How much memory a model's weights will take, told from its files without loading them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_cepbench.errors import CepError
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    file_options,
    inspect_checkpoint,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    list_files,
    parse_header,
    readable_files,
)
from pytest_cepbench.models.spec import ENCODER_SCHEMES, ModelSpec
from pytest_cepbench.models.torch_runtime import resolve_device, resolve_dtype

_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}

_FLOATS = {"F64", "F32", "F16", "BF16"}
"""What loading converts to the model's precision; whole numbers and eight bits stay as they are."""

_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


def weights_bytes(spec: ModelSpec, device: str | None = None) -> int | None:
    """Bytes that a model's weights take once they are loaded in the precision of its spec.

    device: where it will run (cpu or cuda), instead of what the spec comes to here. None where
    nobody knows: for `python:` models and the built-in ones, for weights that are not here yet, and
    for a spec that is wrong.
    """
    try:
        if spec.scheme in ENCODER_SCHEMES:
            return Path(spec.target).expanduser().stat().st_size
        if spec.scheme:
            return None
        checkpoint = inspect_checkpoint(spec)
        files = _weights(spec, checkpoint)
        width = _WIDTHS[_precision(spec, checkpoint, device)]
        return sum(_loaded_bytes(file, width) for file in files) or None
    # What is wrong with a model is told where it is bound, in its own words.
    except (CepError, OSError, ValueError):
        return None


def _weights(spec: ModelSpec, checkpoint: Checkpoint) -> list[Path]:
    names = readable_files(
        list_files(checkpoint.path),
        checkpoint.kind,
        checkpoint.config,
        **asdict(file_options(spec)),
    )
    chosen = [name for name in names if PurePosixPath(name).suffix in _SUFFIXES]
    return [checkpoint.path / name for name in chosen]


def _precision(spec: ModelSpec, checkpoint: Checkpoint, device: str | None) -> str:
    named = resolve_device(spec.params.get("device", "auto")) if device is None else device
    return resolve_dtype(spec.params.get("dtype", "auto"), named, stored_precision(checkpoint))


def _loaded_bytes(file: Path, width: int) -> int:
    """width: bytes of one number in the model's precision. Pickled weights count as they lie there."""
    if file.suffix != ".safetensors":
        return file.stat().st_size
    with open_regular(file) as stream:
        length = int.from_bytes(stream.read(8), "little")
        header: Mapping[str, Any] = parse_header(stream, length)
    tensors = (value for name, value in header.items() if name != "__metadata__")
    return sum(
        prod(one["shape"]) * width
        if one["dtype"] in _FLOATS
        else one["data_offsets"][1] - one["data_offsets"][0]
        for one in tensors
    )
