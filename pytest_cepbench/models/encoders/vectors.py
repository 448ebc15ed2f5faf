"""What encoders share: parameters, pixels, vectors, and models that are one file of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.load_plan import Adapter, CheckpointParams, LoadPlan
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole, FloatArray, RoleName
from pytest_cepbench.models.registry import DetectedModel, Provider
from pytest_cepbench.models.torch_runtime import require, to_torch_dtype

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
        raise RoleError(
            f"{checkpoint.path}: {checkpoint.what} gives features of shape {array.shape}; an "
            "encoder gives one vector per input"
        )
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


def file_provider(
    what: str,
    adapter: Adapter[Any],
    *,
    find: Callable[[ModelSpec], Path | None],
    locate: Callable[[ModelSpec], Checkpoint],
    features_name: Callable[[ModelSpec], str],
    weights_present: Callable[[ModelSpec], bool] = lambda _: True,
) -> Provider:
    """The provider of a scheme whose specs name one file, an encoder of images.

    what: the model, for people.
    find: the file of a spec, None where it is not there.
    locate: the file as a checkpoint; raises CheckpointError where it is not there.
    features_name, weights_present: as in `Provider`.
    """

    def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
        if role != "encoder":
            raise RoleError(
                f"{spec.text!r} is {what}: it embeds images, so it can be the encoder, "
                f"not the {role}"
            )
        return adapter.bind(role, spec, locate(spec), context)

    def weights_bytes(spec: ModelSpec, _device: str | None) -> int | None:
        file = find(spec)
        return None if file is None else file.stat().st_size

    return Provider(
        detect=lambda _: DetectedModel(what, ("encoder",), "embeds images"),
        bind=bind,
        check_installed=lambda _: require("torch"),
        weights_bytes=weights_bytes,
        features_name=features_name,
        weights_present=weights_present,
    )
