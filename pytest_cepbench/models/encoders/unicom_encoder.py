"""Encoder of Unicom's released weights: `unicom:PATH/TO/FP16-ViT-L-14-336px.pt?allow_pickle=true`.

MMGenBench scores with Unicom ViT-L/14@336px (its section 3.1; `evalimg/run.py`): 768 features, the
output of the last batch normalisation, not normalised to unit length before SIM or FID. Images are
resized with the shorter side to 336 pixels (bicubic), cropped to the middle 336 x 336 and
normalised with CLIP's mean and deviation. The file that MMGenBench's code downloads has a SHA-256
that begins 3916ab5a. That file was never loaded here: the network was written by reading the
released implementation (deepglint/unicom, `vision_transformer.py` and `model.py`) for names,
shapes, the order of operations, ReLU6, both epsilons, and which parts run in half precision.

The transformer has no CLS token. The normalised states of all patches are laid end to end, and two
linear maps, each followed by a batch normalisation, make the features of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.checkpoints.loading import loading
from pytest_cepbench.models.checkpoints.parameters import Placement
from pytest_cepbench.models.encoders.vectors import LoadedEncoder, file_scheme
from pytest_cepbench.models.spec import ModelSpec, check_at_least
from pytest_cepbench.models.torch_runtime import own_memory, to_torch_dtype

if TYPE_CHECKING:
    import torch

WHAT = "Unicom vision transformer"

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
    heads: attention heads; None is one per 64 of the width, as in the released models.
    """

    batch_size: int = 32
    allow_pickle: bool = False
    heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "heads")

    @property
    def decisive(self) -> dict[str, Any]:
        """The number of heads, where it is given."""
        return {} if self.heads is None else {"heads": self.heads}


def _locate(spec: ModelSpec) -> Checkpoint:
    """The weights file of a spec. Raises CheckpointError where there is no such file."""
    path = Path(spec.target).expanduser()
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "is not there"
        raise CheckpointError(
            f"{path}: the weights file of {WHAT} {problem}. Give the path of the file itself"
        )
    # Links stay: in a hub's cache the name of what they lead to says nothing of the format.
    config = {"dtype": "float16", "code": {}}
    return Checkpoint(path.absolute(), "weights_file", WHAT, ("encoder",), config)


def _check_format(plan: LoadPlan[UnicomParams]) -> None:
    """Raise CheckpointError for a file that is cut off, or a pickle without allow_pickle=true."""
    file = plan.checkpoint.path
    if file.suffix == ".safetensors":
        check_safetensors(file)
    elif file.suffix not in _PICKLED:
        kinds = ", ".join((".safetensors", *_PICKLED))
        raise CheckpointError(
            f"{file}: the weights of a {WHAT} are a file of one of these kinds: {kinds}"
        )
    elif not plan.params.allow_pickle:
        raise CheckpointError(
            f"{file}: the weights are pickled, and unpickling can run code. Save them as "
            "safetensors, or add allow_pickle=true to the model's spec if you trust where they "
            "come from; they are then read with torch.load(weights_only=True)"
        )


def _load(plan: LoadPlan[UnicomParams]) -> LoadedEncoder:
    import torch
    from torch import nn
    from torchvision import transforms

    file = plan.checkpoint.path
    with loading(plan):
        tensors = _read(file)
        try:
            network = make_network(
                {name: tuple(tensor.shape) for name, tensor in tensors.items()}, plan.params.heads
            )
            network.load_state_dict(tensors, assign=True)
        except (ValueError, RuntimeError) as error:
            faults = " ".join(str(error).split())[:600]  # of torch a line for each tensor
            raise CheckpointError(f"{file}: not the weights of a {WHAT}: {faults}") from error
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


def make_network(shapes: Mapping[str, tuple[int, ...]], heads: int | None) -> Any:
    """The torch module of the sizes that a file's tensors state, in evaluation, without values.

    It takes (n, 3, side, side) float32 pixels, and gives (n, features) float32: the output of the
    last batch normalisation, not normalised to unit length. Its state has the names of the file's
    tensors; the image is a square of whole patches.

    heads: attention heads, which no tensor states; None is one per 64 of the width, as in all four
    released models. Raises ValueError for tensors that are not Unicom's.
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
    heads = heads or max(1, width // _HEAD_WIDTH)
    if width % heads:
        raise ValueError(
            f"{heads} heads do not divide the width {width}: give another number of heads"
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


ADAPTER = adapter(
    "unicom-encoder/1",
    ("torch", "torchvision", "safetensors"),
    UnicomParams,
    _load,
    check=_check_format,
)

detect, bind, check_installed = file_scheme(WHAT, ADAPTER, _locate)


def weights_bytes(spec: ModelSpec, _device: str | None) -> int:
    """The size of the file. Raises OSError where it is not there."""
    return Path(spec.target).expanduser().stat().st_size


def features_name(spec: ModelSpec) -> str:
    """Of its features, for labels: the name of the file."""
    return Path(spec.target).name.removesuffix(".pt").removesuffix(".safetensors")
