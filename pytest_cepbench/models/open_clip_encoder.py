"""Encoder of open_clip folders (open_clip_config.json, weights beside it): images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError
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
from pytest_cepbench.models.truncation import TruncationNotice

ADAPTER = "open_clip-encoder/1"

# The order in which open_clip 3 picks its weights from a folder; other names come after these.
_PREFERRED = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pth",
    "model.safetensors",
)


@dataclass(frozen=True)
class OpenClipParams:
    """Parameters of an open_clip encoder's spec; image transform and tokenizer are its own.

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


def bind_open_clip(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve an open_clip folder as an encoder, without importing torch. Errors as `bind_encoder`."""
    require("torch", "open_clip")
    params = parse_params(spec, OpenClipParams, f"the encoder {checkpoint.what}")
    device = resolve_device(params.device)
    dtype = resolve_dtype(params.dtype, device, checkpoint.config)
    _check_choice(checkpoint.path)
    return BoundRole(
        role="encoder",
        spec=spec.text,
        what=checkpoint.what,
        fingerprint=fingerprint(checkpoint, context.hash_file, allow_pickle=params.allow_pickle),
        adapter=ADAPTER,
        load=lambda: _load(checkpoint, device, dtype, context.threads),
        params={"dtype": dtype},
        batch_size=params.batch_size,
        provenance={"device": device, **library_versions()},
    )


def _check_choice(folder: Path) -> None:
    """Raise CheckpointError where open_clip would pass over safetensors for a pickle."""
    names = [path.name for path in folder.iterdir()]
    safe = [name for name in names if name.endswith(".safetensors")]
    chosen = next((name for name in _PREFERRED if name in names), None)
    if safe and chosen is not None and not chosen.endswith(".safetensors"):
        msg = (
            f"{folder}: open_clip would read the pickled {chosen} and not {safe[0]}. Remove the one "
            f"that is not meant, or rename {safe[0]} to {_PREFERRED[0]}"
        )
        raise CheckpointError(msg)


def _load(checkpoint: Checkpoint, device: str, dtype: str, threads: int | None) -> OpenClipEncoder:
    import open_clip

    set_threads(threads)
    check_device(device)
    name = f"local-dir:{checkpoint.path}"
    with explained(checkpoint), quiet():
        # Loads strictly: a tensor that is missing is an error.
        model, transform = open_clip.create_model_from_pretrained(name)
        tokenizer = open_clip.get_tokenizer(name)
        model = model.to(device=device, dtype=to_torch_dtype(dtype)).eval()
    return OpenClipEncoder(checkpoint, model, transform, tokenizer, device)


class OpenClipEncoder:
    """A loaded open_clip model; satisfies the Encoder Protocol."""

    def __init__(
        self, checkpoint: Checkpoint, model: Any, transform: Any, tokenizer: Any, device: str
    ) -> None:
        self._model = model
        self._transform = transform
        self._tokenizer = tokenizer
        self._device = device
        self._notice = TruncationNotice(checkpoint.what)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float32 joint-space features of RGB images, not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            pixels = torch.stack([self._transform(image) for image in images])
            dtype = next(self._model.parameters()).dtype
            features = self._model.encode_image(pixels.to(device=self._device, dtype=dtype))
            return np.asarray(features.float().cpu().numpy(), dtype=np.float32)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float32 joint-space features of texts, not normalised.

        Texts longer than the model's context are cut, which is said once in a warning.
        """
        import torch

        with quiet(), torch.inference_mode():
            tokens = self._tokenizer(list(texts))
            longest = int(tokens.shape[1])
            # A text that fits has the same tokens in a longer window; a cut one ends earlier.
            whole = self._tokenizer(list(texts), context_length=longest + 1)
            cut = int((whole[:, :longest] != tokens).any(dim=1).sum())
            features = self._model.encode_text(tokens.to(self._device))
            result: FloatArray = np.asarray(features.float().cpu().numpy(), dtype=np.float32)
        self._notice.report(cut, longest)
        return result
