"""Encoder of clean-fid's Inception: `cleanfid:`, or `cleanfid:?weights=PATH`.

GC_FID (GenCeption, Eq. 4) is measured on these features: clean-fid's resizing ("clean" mode, Pillow
bicubic to 299 x 299 without rounding) and the 2,048 outputs of its TorchScript Inception, both by
clean-fid's own code. The distance is this project's. GenCeption's released code has no FID at all,
so the paper and clean-fid decide.

TorchScript is code: reading such a file runs what it holds. It is allowed for this scheme alone,
because naming it asks for exactly that. Nothing is downloaded: the file is looked for at the given
path, else where clean-fid keeps it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.loaded_checks import take_weights
from pytest_cepbench.models.checkpoints.loading import loading
from pytest_cepbench.models.checkpoints.parameters import Placement
from pytest_cepbench.models.encoders.vectors import LoadedEncoder, file_scheme
from pytest_cepbench.models.spec import ModelSpec, parse_params
from pytest_cepbench.models.torch_runtime import library_versions

if TYPE_CHECKING:
    import torch

WHAT = "clean-fid's Inception"

WEIGHTS_NAME = "inception-2015-12-05.pt"
"""The file's name, under which alone clean-fid finds it in a folder."""

_MODE = "clean"


@dataclass(frozen=True)
class InceptionParams(Placement):
    """Parameters of the spec of clean-fid's Inception, which runs in float32 only.

    weights: path of the weights file or of its folder; None looks where clean-fid keeps it.
    """

    dtype: str = field(default="float32", init=False)
    batch_size: int = 32
    weights: str | None = None


def inception_weights(spec: ModelSpec) -> Path | None:
    """The weights file that a `cleanfid:` spec means, or None where it is not there; no torch
    needed.

    Without `weights` it is looked for where clean-fid downloads it to: /tmp. There it counts only
    if it belongs to this user or to root, because everyone can write there and the file is code.
    Raises SpecError for a target or parameters that are wrong.
    """
    place = _place(spec)
    file = place / WEIGHTS_NAME if place.is_dir() else place
    if not file.is_file() or file.name != WEIGHTS_NAME:
        return None
    is_own = file.stat().st_uid in (0, os.getuid())
    return file.absolute() if is_own or _params(spec).weights is not None else None


def _params(spec: ModelSpec) -> InceptionParams:
    if spec.target:
        raise SpecError(
            f"model spec {spec.text!r}: nothing but parameters can follow 'cleanfid:', got "
            f"{spec.target!r}; write cleanfid: or cleanfid:?weights=PATH"
        )
    return parse_params(spec, InceptionParams, f"the encoder {WHAT}")


def _place(spec: ModelSpec) -> Path:
    named = _params(spec).weights
    if named is not None:
        return Path(named).expanduser()
    return Path("/tmp")  # noqa: S108 - clean-fid's


def _locate(spec: ModelSpec) -> Checkpoint:
    """The weights and what else decides the features: clean-fid's version and the resizing.

    Raises SpecError for unknown or wrong parameters, CheckpointError where the weights are not
    there.
    """
    file = inception_weights(spec)
    if file is None:
        place = _place(spec)
        wrong = f"no file named {WEIGHTS_NAME}" if place.exists() else "no such file"
        what = f"{place}: {wrong}, and {WHAT} needs its weights."
        if _params(spec).weights is None:
            what = (
                f"{place / WEIGHTS_NAME}: {WHAT} needs its weights, and there is no such file of "
                "this user's or root's where clean-fid keeps it."
            )
        raise CheckpointError(
            f"{what} Put the file {WEIGHTS_NAME} (NVIDIA's TorchScript Inception, at the address "
            "in clean-fid's downloads_helper.inception_url) there, or name it: "
            "cleanfid:?weights=PATH"
        )
    code = {"clean-fid": library_versions().get("clean-fid", ""), "resize": _MODE}
    return Checkpoint(file, "weights_file", WHAT, ("encoder",), {"code": code})


def _load(plan: LoadPlan[InceptionParams]) -> LoadedEncoder:
    with loading(plan):
        from cleanfid.inception_torchscript import InceptionV3W
        from cleanfid.resize import build_resizer

        folder = str(plan.checkpoint.path.parent)
        model = InceptionV3W(folder, download=False, resize_inside=False).to(plan.device).eval()
        resize = build_resizer(_MODE)
    take_weights(plan.checkpoint, {"": model})

    def embed(images: Sequence[Image.Image]) -> torch.Tensor:
        import torch

        resized = [resize(np.asarray(image.convert("RGB"))) for image in images]
        # Height, width, color to color, height, width; 0 to 255, as clean-fid's model takes it.
        pixels = torch.from_numpy(np.stack(resized).transpose(0, 3, 1, 2).copy())
        features: torch.Tensor = model(pixels.to(plan.device))
        return features

    return LoadedEncoder(plan.checkpoint, model, embed)


ADAPTER = adapter(
    "cleanfid-inception/1",
    ("torch", "torchvision", "cleanfid"),
    InceptionParams,
    _load,
    decisive=lambda _: {},  # there is one precision
)

detect, bind, check_installed = file_scheme(WHAT, ADAPTER, _locate)


def weights_bytes(spec: ModelSpec, _device: str | None) -> int | None:
    """The size of the file, None where it is not there."""
    file = inception_weights(spec)
    return None if file is None else file.stat().st_size


def features_name(_: ModelSpec) -> str:
    """Of its features, for labels."""
    return "Inception"


def weights_present(spec: ModelSpec) -> bool:
    """Whether the file is there, which a site of its own gives out."""
    return inception_weights(spec) is not None
