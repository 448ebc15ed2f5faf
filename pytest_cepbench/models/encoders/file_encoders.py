"""Encoders of images that are one file of weights: `unicom:` and `cleanfid:`.

unicom:PATH/TO/FP16-ViT-L-14-336px.pt?allow_pickle=true
cleanfid:, or cleanfid:?weights=PATH

MMGenBench scores with Unicom ViT-L/14@336px (its section 3.1; `evalimg/run.py`): 768 features, the
output of the last batch normalisation, not normalised to unit length before SIM or FID. Images are
resized with the shorter side to 336 pixels (bicubic), cropped to the middle 336 x 336 and
normalised with CLIP's mean and deviation. The file that MMGenBench's code downloads has a SHA-256
that begins 3916ab5a. That file was never loaded here: the network was written by reading the
released implementation (deepglint/unicom, `vision_transformer.py` and `model.py`) for names,
shapes, the order of operations, ReLU6, both epsilons, and which parts run in half precision. It has
no CLS token: the normalised states of all patches are laid end to end, and two linear maps, each
followed by a batch normalisation, make the features of them.

GC_FID (GenCeption, Eq. 4) is measured on features of clean-fid's Inception: clean-fid's resizing
("clean" mode, Pillow bicubic to 299 x 299 without rounding) and the 2,048 outputs of its
TorchScript Inception, both by clean-fid's own code. The distance is this project's. GenCeption's
released code has no FID at all, so the paper and clean-fid decide. TorchScript is code: reading
such a file runs what it holds. It is allowed for this scheme alone, because naming it asks for
exactly that. Nothing is downloaded: the file is looked for at the given path, else where clean-fid
keeps it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.files import expand_user
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel
from pytest_cepbench.models.checkpoints.binding import Bind, LoadPlan, adapter
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.checkpoints.loaded_checks import take_weights
from pytest_cepbench.models.checkpoints.loading import loading
from pytest_cepbench.models.checkpoints.parameters import Placement
from pytest_cepbench.models.encoders.vectors import LoadedEncoder
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec, Positive, parse_params
from pytest_cepbench.models.torch_runtime import (
    library_versions,
    own_memory,
    require,
    to_torch_dtype,
)

if TYPE_CHECKING:
    import torch

UNICOM, INCEPTION = "Unicom vision transformer", "clean-fid's Inception"

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_PICKLED = (".pt", ".pth", ".bin")
_HEAD_WIDTH = 64
_LAYER_NORM_EPS = 1e-5
_BATCH_NORM_EPS = 2e-5


@dataclass(frozen=True)
class UnicomParams(Placement):
    """Parameters of a Unicom encoder's spec, with those of `Placement`.

    dtype: the precision of the linear maps in the blocks; all else is float32. auto is what the
        released code does: float32 on a CPU, float16 on an accelerator.
    allow_pickle: read a pickled file, by torch.load(weights_only=True).
    """

    batch_size: Positive = 32
    allow_pickle: bool = False


def _check_unicom(plan: LoadPlan[UnicomParams]) -> None:
    """Raise CheckpointError for a file that is not there, of another kind or cut off, or a pickle
    without allow_pickle=true.
    """
    file = plan.checkpoint.path
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "is not there"
        raise CheckpointError(
            f"{file}: the weights file of {UNICOM} {problem}. Give the path of the file itself"
        )
    if file.suffix == ".safetensors":
        check_safetensors(file)
    elif file.suffix not in _PICKLED:
        kinds = ", ".join((".safetensors", *_PICKLED))
        raise CheckpointError(
            f"{file}: the weights of a {UNICOM} are a file of one of these kinds: {kinds}"
        )
    elif not plan.params.allow_pickle:
        raise CheckpointError(
            f"{file}: the weights are pickled, and unpickling can run code. Save them as "
            "safetensors, or add allow_pickle=true to the model's spec if you trust where they "
            "come from; they are then read with torch.load(weights_only=True)"
        )


def _load_unicom(plan: LoadPlan[UnicomParams]) -> LoadedEncoder:
    import torch
    from torch import nn
    from torchvision import transforms

    file = plan.checkpoint.path
    with loading(plan):
        tensors = _read(file)
        try:
            network = make_network({name: tuple(t.shape) for name, t in tensors.items()})
            network.load_state_dict(tensors, assign=True)
        except (ValueError, RuntimeError) as error:
            faults = " ".join(str(error).split())[:600]  # of torch a line for each tensor
            raise CheckpointError(f"{file}: not the weights of a {UNICOM}: {faults}") from error
        for layer in network.blocks.modules():
            # The linear maps that the released code runs in half precision on an accelerator.
            if isinstance(layer, nn.Linear):
                layer.to(to_torch_dtype(plan.dtype))
        network.to(plan.device)
    transform = transforms.Compose(
        [
            transforms.Resize(network.side, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(network.side),
            transforms.ToTensor(),
            transforms.Normalize(_MEAN, _STD),
        ]
    )

    def embed(images: Sequence[Image.Image]) -> torch.Tensor:
        pixels = torch.stack([transform(image) for image in images])
        features: torch.Tensor = network(pixels.to(plan.device))
        return features

    return LoadedEncoder(plan.checkpoint, network, embed)


def _read(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, in float32, without the counters of training steps.

    Raises CheckpointError for a file of something else, and for values that are not finite.
    """
    import torch
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        loaded = load_file(file)
    else:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict) or not all(torch.is_tensor(t) for t in loaded.values()):
        raise CheckpointError(
            f"{file}: expected a state dict, tensors by their names, found "
            f"{type(loaded).__name__}. Save the model's state_dict() alone"
        )
    # Not every file has the counters, and torch sets those that are missing to 0.
    stored = {name: t for name, t in loaded.items() if not name.endswith("num_batches_tracked")}
    for name, tensor in stored.items():
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{file}: the tensor {name} holds values that are not finite, so no feature would "
                "mean anything. Fetch the file again"
            )
    return {name: own_memory(tensor.float()) for name, tensor in stored.items()}


def make_network(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The torch module of the sizes that a file's tensors state, in evaluation, without values.

    It takes (n, 3, side, side) float32 pixels, and gives (n, features) float32: the output of the
    last batch normalisation, not normalised to unit length. Its state has the names of the file's
    tensors; the image is a square of whole patches. Of attention heads, which no tensor states, it
    has one per 64 of the width, as all four released models. Raises ValueError for tensors that are
    not Unicom's.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    try:
        width, _, patch, _ = shapes["patch_embed.proj.weight"]
        _, tokens, _ = shapes["pos_embed"]
        inner, _ = shapes["blocks.0.mlp.fc1.weight"]
        features, _ = shapes["feature.2.weight"]
    except (KeyError, ValueError) as error:
        names = ", ".join(sorted(shapes)[:5]) or "none"
        raise ValueError(
            "no weights of a Unicom vision transformer: patch_embed.proj.weight, pos_embed, "
            "blocks.0.mlp.fc1.weight and feature.2.weight are needed to tell its sizes, and the "
            f"tensors are {names}, ..."
        ) from error
    grid = math.isqrt(tokens)
    if grid * grid != tokens:
        raise ValueError(
            f"pos_embed has {tokens} places, which are not the patches of a square image"
        )
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    heads = width // _HEAD_WIDTH
    if not heads or width % _HEAD_WIDTH:
        raise ValueError(
            f"heads of {_HEAD_WIDTH} do not divide the width {width}, as in the released models"
        )

    class Block(nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width, _LAYER_NORM_EPS)
            self.attn = nn.ModuleDict(
                {"qkv": nn.Linear(width, 3 * width, bias=False), "proj": nn.Linear(width, width)}
            )
            self.norm2 = nn.LayerNorm(width, _LAYER_NORM_EPS)
            self.mlp = nn.ModuleDict(
                {"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)}
            )

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            precision = self.attn["qkv"].weight.dtype
            # The released code takes the softmax in float32 whatever the precision around it.
            parts = self.attn["qkv"](self.norm1(states).to(precision)).float()
            query, key, value = parts.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value)
            states = states + self.attn["proj"](mixed.transpose(1, 2).flatten(2).to(precision))
            hidden = functional.relu6(self.mlp["fc1"](self.norm2(states).to(precision)))
            changed: torch.Tensor = states + self.mlp["fc2"](hidden)
            return changed

    class Unicom(nn.Module):  # type: ignore[misc] # as above
        def __init__(self) -> None:
            super().__init__()
            self.side, self.heads = grid * patch, heads
            self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
            self.pos_embed = nn.Parameter(torch.empty(1, tokens, width))
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm = nn.LayerNorm(width, _LAYER_NORM_EPS)
            self.feature = nn.Sequential(
                nn.Linear(width * tokens, width, bias=False),
                nn.BatchNorm1d(width, _BATCH_NORM_EPS),
                nn.Linear(width, features, bias=False),
                nn.BatchNorm1d(features, _BATCH_NORM_EPS),
            )

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            patches = self.patch_embed["proj"](pixels)
            states = patches.flatten(2).transpose(1, 2) + self.pos_embed
            for block in self.blocks:
                states = block(states)
            pooled: torch.Tensor = self.feature(self.norm(states).flatten(1))
            return pooled

    with torch.device("meta"):
        return Unicom().eval()


WEIGHTS_NAME = "inception-2015-12-05.pt"
"""The file's name, under which alone clean-fid finds it in a folder."""

_MODE = "clean"

_KEPT = Path("/tmp")  # noqa: S108 - by clean-fid


@dataclass(frozen=True)
class InceptionParams(Placement):
    """Parameters of the spec of clean-fid's Inception, which runs in float32 only.

    weights: path of the weights file or of its folder; None looks where clean-fid keeps it.
    """

    dtype: str = field(default="float32", init=False)
    batch_size: Positive = 32
    weights: str | None = None


def inception_weights(spec: ModelSpec) -> Path:
    """The weights file that a `cleanfid:` spec means; no torch needed.

    Without `weights` it is looked for where clean-fid downloads it to: /tmp. There it counts only
    if it belongs to this user or to root, because everyone can write there and the file is code.
    Raises SpecError for a target or parameters that are wrong, CheckpointError where it is not
    there.
    """
    if spec.target:
        raise spec.error(
            f"nothing but parameters can follow 'cleanfid:', got {spec.target!r}; write cleanfid: "
            "or cleanfid:?weights=PATH"
        )
    named = parse_params(spec, InceptionParams, f"the encoder {INCEPTION}").weights
    place = _KEPT if named is None else expand_user(named)
    file = place / WEIGHTS_NAME if place.is_dir() else place
    there = file.is_file() and file.name == WEIGHTS_NAME
    if there and (place != _KEPT or file.stat().st_uid in (0, os.getuid())):
        return file.absolute()
    whose = " of this user's or root's" if place == _KEPT else ""
    raise CheckpointError(
        f"{place}: {INCEPTION} needs its weights, and there is no file named {WEIGHTS_NAME}"
        f"{whose}. Put it there (NVIDIA's TorchScript Inception, at the address in clean-fid's "
        "downloads_helper.inception_url), or name it: cleanfid:?weights=PATH"
    )


def _load_inception(plan: LoadPlan[InceptionParams]) -> LoadedEncoder:
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


_ADAPTERS: dict[str, Bind] = {
    "unicom": adapter(
        "unicom-encoder/1",
        UnicomParams,
        _load_unicom,
        packages=("torchvision", "safetensors"),
        check=_check_unicom,
    ),
    "cleanfid": adapter(
        "cleanfid-inception/1",
        InceptionParams,
        _load_inception,
        packages=("torchvision", "cleanfid"),
        decisive=lambda _: {},  # there is one precision
    ),
}


def detect(spec: ModelSpec) -> DetectedModel:
    """What `unicom:` or `cleanfid:` is."""
    what = UNICOM if spec.scheme == "unicom" else INCEPTION
    return DetectedModel(what, ("encoder",), "embeds images")


def _weights(spec: ModelSpec) -> Path:
    """Where a spec's weights are; raises as `inception_weights`."""
    if spec.scheme == "cleanfid":
        return inception_weights(spec)
    # Links stay: in a hub's cache the name of what they lead to says nothing of the format.
    return expand_user(spec.target).absolute()


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """The encoder of a file. Raises RoleError for another role, and as `models.binding.bind`."""
    what = detect(spec).what
    if role != "encoder":
        raise RoleError(
            f"{spec.text!r} is {what}: it embeds images, so it can be the encoder, not the {role}"
        )
    # What decides the features beside the weights, and the precision of the file.
    config: dict[str, Any] = {"dtype": "float16", "code": {}}
    if what == INCEPTION:
        config = {"code": {"clean-fid": library_versions().get("clean-fid", ""), "resize": _MODE}}
    file = _weights(spec)
    checkpoint = Checkpoint(what, ("encoder",), path=file, kind="weights_file", config=config)
    return _ADAPTERS[spec.scheme](role, spec, checkpoint, context)


def check_installed(_: ModelSpec) -> None:
    """Raise MissingDependencyError without torch, which both need."""
    require("torch")


def weights_bytes(spec: ModelSpec, _device: str | None) -> int:
    """The size of the file. Raises OSError or CheckpointError without one."""
    return _weights(spec).stat().st_size


def weights_present(spec: ModelSpec) -> bool:
    """Whether the file of clean-fid is there, which a site of its own gives out."""
    if spec.scheme == "unicom":
        return True
    with suppress(CheckpointError):
        return bool(inception_weights(spec))
    return False
