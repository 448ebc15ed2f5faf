"""The values of loaded weights: in memory of their own, numbers, and no matrix of zeros without a
word.

A model with NaN among its weights writes empty texts and draws nothing, which would be counted as
so many failures of its own; where the tensor has little say it would even be measured. It is
neither
better nor worse than its baseline: it is broken.

On a CPU, safetensors leaves weights in the file and maps that into memory: a trainer that writes
into the file changes the model that was loaded from it, between one answer and the next.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.safe_loading import few_of

if TYPE_CHECKING:
    import torch


def take_weights(checkpoint: Checkpoint, parts: Mapping[str, Any]) -> None:
    """Make the weights of a loaded model independent of its files, and look them over.

    parts: its modules by name, "" for a model that is one module; a part without weights is passed
    over. Raises and warns as `check_values`.
    """
    for module in parts.values():
        if hasattr(module, "named_parameters"):
            _copy_mapped(module)
    check_values(checkpoint, parts)


def _copy_mapped(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data = own_memory(parameter.data)
    for part in module.modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            own = own_memory(buffer)
            if own is not buffer:  # put in its place: it may be a view, and keep the file mapped
                setattr(part, name, own)


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where its memory is not torch's own: mostly a mapped file."""
    if tensor.device.type != "cpu" or tensor.untyped_storage().resizable():
        return tensor
    return tensor.clone()


def check_values(checkpoint: Checkpoint, parts: Mapping[str, Any]) -> None:
    """Look over the weights of a loaded model, one reduction per tensor, on the device they are on.

    parts: its modules by name, "" for a model that is one module; a part without weights is passed
    over. Raises CheckpointError for a parameter that holds NaN or infinity, and for a buffer that
    holds NaN (infinity has its place in masks). Warns of weight matrices that are zero throughout:
    a layer may start like that, and a damaged checkpoint may look like that.
    """
    tensors = list(_tensors(parts))
    broken, empty = [], []
    for (name, tensor, finite), (low, high) in zip(
        tensors, _extremes([tensor for _, tensor, _ in tensors]), strict=True
    ):
        if np.isnan(low) or (finite and not np.isfinite([low, high]).all()):
            broken.append(f"{name} ({str(tensor.dtype).removeprefix('torch.')})")
        elif low == high == 0 and _is_matrix(name, tensor):
            empty.append(name)
    if broken:
        msg = (
            f"{checkpoint.path}: {checkpoint.what} holds NaN or infinite values in "
            f"{few_of(broken)}. Take a step from before the training diverged; where the file's "
            "own values are finite, give a dtype that holds them"
        )
        raise CheckpointError(msg)
    if empty:
        msg = (
            f"{checkpoint.path}: zero throughout: {few_of(empty)}. A layer may start so, and a "
            "damaged checkpoint may look so"
        )
        warnings.warn(msg, stacklevel=2)


def _tensors(parts: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name, tensor, whether it must be finite; of floating tensors of 16 bits and more."""
    for part, module in parts.items():
        if not hasattr(module, "named_parameters"):
            continue
        prefix = f"{part}." if part else ""
        for listed, finite in ((module.named_parameters(), True), (module.named_buffers(), False)):
            for name, tensor in listed:
                # Lower precisions have no such reduction, and most of them no NaN.
                wide = tensor.is_floating_point() and tensor.element_size() > 1
                if wide and tensor.numel() and not tensor.is_meta:
                    yield prefix + name, tensor, finite


def _extremes(tensors: list[torch.Tensor]) -> list[list[float]]:
    """The least and the greatest value of each; both NaN where one value is."""
    import torch

    pairs = [torch.stack(torch.aminmax(tensor.detach())).float() for tensor in tensors]
    # Fetched together: one by one, each would wait for the accelerator.
    found: list[list[float]] = torch.stack(pairs).tolist() if pairs else []
    return found


def _is_matrix(name: str, tensor: torch.Tensor) -> bool:
    return name.endswith("weight") and sum(side > 1 for side in tensor.shape) > 1
