"""Parameters, pixels for a library's model and vectors of its features, as encoders share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.load_plan import CheckpointParams, LoadPlan
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.torch_runtime import to_torch_dtype

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class EncoderParams(CheckpointParams):
    """Parameters of an encoder's spec: those of `CheckpointParams`, in larger batches."""

    batch_size: int = 32


def to_pixels(
    plan: LoadPlan[Any],
    transform: Callable[[Image.Image], torch.Tensor],
    images: Sequence[Image.Image],
) -> torch.Tensor:
    """The batch (n, 3, height, width) of a checkpoint's own transform, on the plan's device."""
    import torch

    pixels = torch.stack([transform(image) for image in images])
    return pixels.to(device=plan.device, dtype=to_torch_dtype(plan.dtype))


def to_vectors(checkpoint: Checkpoint, features: Any) -> FloatArray:
    """(n, dimension) float32 vectors out of a library's features.

    Raises RoleError where there is not one vector per input.
    """
    if features.ndim > 2 and set(features.shape[2:]) == {1}:
        features = features.flatten(1)  # convolutional poolers keep height and width of 1
    array = features.float().cpu().numpy()
    if array.ndim != 2:
        msg = (
            f"{checkpoint.path}: {checkpoint.what} gives features of shape {array.shape}; an "
            "encoder gives one vector per input"
        )
        raise RoleError(msg)
    result: FloatArray = np.asarray(array, dtype=np.float32)
    return result


def reads_no_texts(checkpoint: Checkpoint) -> RoleError:
    """The error of an encoder that is given texts and knows images only."""
    msg = (
        f"{checkpoint.path}: {checkpoint.what} embeds images only and reads no texts. Give a dual "
        "encoder (CLIP, SigLIP, open_clip) to compare images with texts, or a "
        "sentence-transformers model to compare texts"
    )
    return RoleError(msg)
