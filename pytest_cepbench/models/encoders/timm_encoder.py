"""Encoder of timm folders (config.json with "architecture", weights beside it): images only.

SDP compares images with DINO v1 ViT-B/16 (`vit_base_patch16_224.dino`): the CLS token after the
last norm, which is what this adapter gives. Its released code resizes the shorter side to 256
pixels (bilinear) before the crop of 224, where timm's configuration of that model says 248
(bicubic): `crop_pct=0.875&interpolation=bilinear` is SDP's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import file_options
from pytest_cepbench.models.checkpoints.wrapped_names import unwrapped
from pytest_cepbench.models.encoders.vectors import EncoderParams, LoadedEncoder, to_pixels
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.safe_loading import loading, take_weights
from pytest_cepbench.models.torch_runtime import to_torch_dtype

_INTERPOLATIONS = ("bilinear", "bicubic")


@dataclass(frozen=True)
class TimmEncoderParams(EncoderParams):
    """Parameters of a timm encoder's spec, with those of `EncoderParams`.

    crop_pct: side of the crop as a share of the resized shorter side, in (0, 1]; interpolation:
        bilinear or bicubic. None leaves the checkpoint's own.
    Raises ValueError for a value outside these.
    """

    crop_pct: float | None = None
    interpolation: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")
        if self.interpolation not in (None, *_INTERPOLATIONS):
            known = ", ".join(_INTERPOLATIONS)
            raise ValueError(f"interpolation must be {known}, got {self.interpolation!r}")

    @property
    def decisive(self) -> dict[str, Any]:
        """The given settings of the image transform; the rest is the checkpoint's own."""
        settings = {"crop_pct": self.crop_pct, "interpolation": self.interpolation}
        return {name: value for name, value in settings.items() if value is not None}


def _find_weights(plan: LoadPlan[TimmEncoderParams]) -> Path:
    """The one file of weights: safetensors, or where allowed a pickle if none is there.

    Left to itself timm prefers some pickles to some safetensors. Raises CheckpointError when there
    is none, or more than one and no model.safetensors among them.
    """
    folder, allow_pickle = plan.checkpoint.path, plan.params.allow_pickle
    candidates = sorted(folder.glob("*.safetensors"))
    if not candidates and allow_pickle:
        candidates = sorted(p for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    preferred = [path for path in candidates if path.stem in ("model", "pytorch_model")]
    chosen = preferred[:1] or candidates
    if len(chosen) != 1:
        names = ", ".join(path.name for path in candidates) or "none"
        raise CheckpointError(
            f"{folder}: expected one file of weights, model.safetensors, found {names}"
        )
    return chosen[0]


def _load(plan: LoadPlan[TimmEncoderParams]) -> LoadedEncoder:
    import timm
    from timm.data import create_transform, resolve_model_data_config

    with loading(plan), unwrapped(plan.checkpoint, file_options(plan.spec)) as whole:
        # The checkpoint's classifier is kept, though unused: timm checks strictly that every tensor
        # is there only as long as the number of classes is the stored one.
        model = timm.create_model(
            f"local-dir:{whole.path}",
            pretrained=True,
            pretrained_cfg_overlay={
                "source": "",
                "file": str(_find_weights(replace(plan, checkpoint=whole))),
            },
        )
        transform = create_transform(**resolve_model_data_config(model, args=plan.params.decisive))
        model = model.to(device=plan.device, dtype=to_torch_dtype(plan.dtype)).eval()
    take_weights(plan.checkpoint, {"": model})

    def embed(images: Sequence[Image.Image]) -> Any:
        maps = model.forward_features(to_pixels(plan, transform, images))
        return model.forward_head(maps, pre_logits=True)  # before the classifier

    return LoadedEncoder(plan.checkpoint, model, embed)


ADAPTER = Adapter(
    "timm-encoder/1", ("torch", "timm"), TimmEncoderParams, _load, check=_find_weights
)
