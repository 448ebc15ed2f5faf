"""The parameters that an encoder's spec can carry."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cepbench.models.encoders.pooling import POOLINGS
from pytest_cepbench.models.plan import check_placement
from pytest_cepbench.models.torch_runtime import IMAGE_BACKENDS


@dataclass(frozen=True)
class EncoderParams:
    """Parameters of an open_clip or timm encoder's spec; the image transform is the checkpoint's own.

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
