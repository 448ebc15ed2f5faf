"""The parameters that an encoder's spec can carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_cepbench.models.encoders.pooling import POOLINGS
from pytest_cepbench.models.load_plan import check_placement
from pytest_cepbench.models.torch_runtime import IMAGE_BACKENDS

_INTERPOLATIONS = ("bilinear", "bicubic")


@dataclass(frozen=True)
class EncoderParams:
    """Parameters of an open_clip or sentence-transformers encoder's spec.

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


@dataclass(frozen=True)
class TimmEncoderParams:
    """Parameters of a timm encoder's spec.

    device, dtype, batch_size, revision, allow_pickle: as in `EncoderParams`.
    crop_pct: side of the crop as a share of the resized shorter side, in (0, 1]; interpolation:
        bilinear or bicubic. None leaves the checkpoint's own.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    revision: str | None = None
    allow_pickle: bool = False
    crop_pct: float | None = None
    interpolation: str | None = None

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            msg = f"crop_pct must be above 0 and at most 1, got {self.crop_pct}"
            raise ValueError(msg)
        if self.interpolation not in (None, *_INTERPOLATIONS):
            known = ", ".join(_INTERPOLATIONS)
            msg = f"interpolation must be {known}, got {self.interpolation!r}"
            raise ValueError(msg)

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What is given of the image transform; the rest is the checkpoint's own."""
        given = {"crop_pct": self.crop_pct, "interpolation": self.interpolation}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class UnicomParams:
    """Parameters of a Unicom encoder's spec.

    device: auto, cpu, cuda, cuda:N or mps. batch_size: most inputs in one call.
    dtype: auto, float32, float16 or bfloat16, the precision of the linear maps in the blocks; all
        else is float32.
    allow_pickle: read a pickled file, by torch.load(weights_only=True).
    heads: attention heads; None is one per 64 of the width, as in the released models.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    allow_pickle: bool = False
    heads: int | None = None

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)
        if self.heads is not None and self.heads < 1:
            msg = f"heads must be at least 1, got {self.heads}"
            raise ValueError(msg)


@dataclass(frozen=True)
class InceptionParams:
    """Parameters of the spec of clean-fid's Inception, which runs in float32 only.

    weights: path of the weights file or of its folder; None looks where clean-fid keeps it.
    device: auto, cpu, cuda, cuda:N or mps. batch_size: most inputs in one call.
    Raises ValueError for a value outside these.
    """

    weights: str | None = None
    device: str = "auto"
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)

    @property
    def dtype(self) -> str:
        """The one precision."""
        return "float32"


@dataclass(frozen=True)
class TransformersEncoderParams:
    """Parameters of a transformers encoder's spec.

    device: auto, cpu, cuda, cuda:N or mps. dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call.
    revision: commit, tag or branch of a hub id.
    attn_implementation: eager, sdpa, ...; None leaves the library's choice.
    trust_remote_code, allow_pickle: run the checkpoint's Python files, read pickled weights.
    pooling: "auto" (joint features of a dual encoder, else pooler, else CLS), "cls" (first token of
        the last hidden state, GenCeption's choice for ViT), "pooler" (the model's own pooled
        output), "mean" (over all tokens or places of the last hidden state).
    backend: the image processor's implementation; the two differ by one grey level here and there,
        so it is pinned ("pil") instead of following what is installed.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    revision: str | None = None
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    pooling: str = "auto"
    backend: str = "pil"

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)
        for name, value, known in (
            ("pooling", self.pooling, POOLINGS),
            ("backend", self.backend, IMAGE_BACKENDS),
        ):
            if value not in known:
                msg = f"{name} must be {', '.join(known)}, got {value!r}"
                raise ValueError(msg)
