"""Encoder of timm folders (config.json with "architecture", weights beside it): images only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext
from pytest_cepbench.models.checkpoint import Checkpoint
from pytest_cepbench.models.fingerprint import fingerprint
from pytest_cepbench.models.loading import check_placement, explained
from pytest_cepbench.models.roles import BoundRole, FloatArray
from pytest_cepbench.models.spec import ModelSpec, parse_params
from pytest_cepbench.models.torch_runtime import (
    check_device,
    library_versions,
    quiet,
    require,
    resolve_device,
    resolve_dtype,
    set_threads,
    to_torch_dtype,
)

ADAPTER = "timm-encoder/1"


@dataclass(frozen=True)
class TimmParams:
    """Parameters of a timm encoder's spec; the image transform is the checkpoint's own.

    device: auto, cpu, cuda, cuda:N or mps. dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call. revision: commit, tag or branch of a hub id.
    allow_pickle: read pickled weights where there are no others.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    revision: str | None = None
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)


def bind_timm(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a timm folder as an encoder, without importing torch. Errors as `bind_encoder`."""
    require("torch", "timm")
    params = parse_params(spec, TimmParams, f"the encoder {checkpoint.what}")
    device = resolve_device(params.device)
    dtype = resolve_dtype(params.dtype, device, checkpoint.config)
    weights = find_weights(checkpoint.path, allow_pickle=params.allow_pickle)
    return BoundRole(
        role="encoder",
        spec=spec.text,
        what=checkpoint.what,
        fingerprint=fingerprint(checkpoint, context.hash_file, allow_pickle=params.allow_pickle),
        adapter=ADAPTER,
        load=lambda: _load(checkpoint, weights, device, dtype, context.threads),
        params={"dtype": dtype},
        batch_size=params.batch_size,
        provenance={"device": device, **library_versions()},
    )


def find_weights(folder: Path, *, allow_pickle: bool) -> Path:
    """The one file of weights in a folder: safetensors, or where allowed a pickle if none is there.

    Left to itself timm prefers some pickles to some safetensors. Raises CheckpointError when there
    is none, or more than one and no model.safetensors among them.
    """
    found = sorted(folder.glob("*.safetensors"))
    if not found and allow_pickle:
        found = sorted(p for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    preferred = [path for path in found if path.stem in ("model", "pytorch_model")]
    chosen = preferred[:1] or found
    if len(chosen) != 1:
        names = ", ".join(path.name for path in found) or "none"
        msg = f"{folder}: expected one file of weights, model.safetensors, found {names}"
        raise CheckpointError(msg)
    return chosen[0]


def _load(
    checkpoint: Checkpoint, weights: Path, device: str, dtype: str, threads: int | None
) -> TimmEncoder:
    import timm
    from timm.data import create_transform, resolve_model_data_config

    set_threads(threads)
    check_device(device)
    with explained(checkpoint), quiet():
        # The checkpoint's classifier is kept, though unused: timm checks strictly that every tensor
        # is there only as long as the number of classes is the stored one.
        model = timm.create_model(
            f"local-dir:{checkpoint.path}",
            pretrained=True,
            pretrained_cfg_overlay={"source": "", "file": str(weights)},
        )
        transform = create_transform(**resolve_model_data_config(model))
        model = model.to(device=device, dtype=to_torch_dtype(dtype)).eval()
    return TimmEncoder(checkpoint, model, transform, device, dtype)


class TimmEncoder:
    """A loaded timm model; satisfies the Encoder Protocol for images."""

    def __init__(
        self, checkpoint: Checkpoint, model: Any, transform: Any, device: str, dtype: str
    ) -> None:
        self._checkpoint = checkpoint
        self._model = model
        self._transform = transform
        self._device = device
        self._dtype = dtype

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float32 features before the classifier, not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            pixels = torch.stack([self._transform(image) for image in images])
            pixels = pixels.to(device=self._device, dtype=to_torch_dtype(self._dtype))
            maps = self._model.forward_features(pixels)
            features = self._model.forward_head(maps, pre_logits=True)
            return np.asarray(features.float().cpu().numpy(), dtype=np.float32)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """Raises RoleError: timm models read no texts."""
        msg = (
            f"{self._checkpoint.path}: {self._checkpoint.what} embeds images only and cannot read "
            f"{len(texts)} text(s). Give a dual encoder (CLIP, SigLIP, open_clip) for this comparison"
        )
        raise RoleError(msg)
