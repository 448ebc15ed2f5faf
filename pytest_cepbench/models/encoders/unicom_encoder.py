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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.binding import LoadPlan, Placement, adapter
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.checkpoints.loading import loading
from pytest_cepbench.models.encoders.vectors import LoadedEncoder, bind_file
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec, check_at_least
from pytest_cepbench.models.torch_runtime import own_memory, require, to_torch_dtype

if TYPE_CHECKING:
    import torch

WHAT = "Unicom vision transformer"

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_PICKLED = (".pt", ".pth", ".bin")


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

    file = plan.checkpoint.path
    with loading(plan):
        tensors = _read(file)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        try:
            sizes = infer_sizes(shapes, plan.params.heads)
            check_tensors(shapes, sizes)
        except ValueError as error:
            raise CheckpointError(f"{file}: not the weights of a {WHAT}: {error}") from error
        _refuse_non_finite(file, tensors)
        with torch.device("meta"):
            network = make_network(sizes)
        precision = to_torch_dtype(plan.dtype)
        weights = {
            # The counters are integers, and not every file has them.
            name: torch.zeros((), dtype=torch.long, device=plan.device)
            if name.endswith(_COUNTER)
            else tensors[name].to(
                plan.device, precision if _BLOCK_LINEAR.fullmatch(name) else torch.float32
            )
            for name in network.state_dict()
        }
        network.load_state_dict(weights, assign=True)
    transform = _make_transform(sizes.side)

    def embed(images: Sequence[Image.Image]) -> torch.Tensor:
        pixels = torch.stack([transform(image) for image in images])
        features: torch.Tensor = network(pixels.to(plan.device))
        return features

    return LoadedEncoder(plan.checkpoint, network, embed)


def _read(file: Path) -> Mapping[str, torch.Tensor]:
    import torch
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        return {name: own_memory(tensor) for name, tensor in load_file(file).items()}
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict) or not all(torch.is_tensor(t) for t in loaded.values()):
        raise CheckpointError(
            f"{file}: expected a state dict, tensors by their names, found "
            f"{type(loaded).__name__}. Save the model's state_dict() alone"
        )
    return loaded


def _refuse_non_finite(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{file}: the tensor {name} holds values that are not finite, so no feature would "
                "mean anything. Fetch the file again"
            )


def _make_transform(side: int) -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize(side, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(side),
            transforms.ToTensor(),
            transforms.Normalize(_MEAN, _STD),
        ]
    )


Shape = tuple[int, ...]

_HEAD_WIDTH = 64
_LAYER_NORM_EPS = 1e-5
_BATCH_NORM_EPS = 2e-5

# The linear maps of a block, which the released code runs in half precision on an accelerator.
_BLOCK_LINEAR = re.compile(r"blocks\.\d+\.(attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2)\.(weight|bias)")

_COUNTER = "num_batches_tracked"
"""Training steps of a batch normalisation: stored with it, not used in evaluation."""


@dataclass(frozen=True)
class UnicomSizes:
    """The sizes of one model.

    side: image height and width in pixels. patch: pixels of a patch's side. width, hidden: of a
    token and inside the MLP. depth: blocks. heads: attention heads. features: of the output.
    """

    side: int
    patch: int
    width: int
    hidden: int
    depth: int
    heads: int
    features: int

    @property
    def tokens(self) -> int:
        """Patches of an image."""
        return (self.side // self.patch) ** 2


def infer_sizes(shapes: Mapping[str, Shape], heads: int | None) -> UnicomSizes:
    """The sizes that the tensors of a file state; the image is a square of whole patches.

    heads: attention heads, which no tensor states; None is one per 64 of the width, as in all four
    released models. Raises ValueError for tensors that are not Unicom's.
    """
    try:
        width, _, patch, _ = shapes["patch_embed.proj.weight"]
        _, tokens, _ = shapes["pos_embed"]
        hidden, _ = shapes["blocks.0.mlp.fc1.weight"]
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
    return UnicomSizes(grid * patch, patch, width, hidden, depth, heads, features)


def check_tensors(shapes: Mapping[str, Shape], sizes: UnicomSizes) -> None:
    """Raise ValueError naming each tensor that is missing, unexpected or of another shape."""
    import torch

    with torch.device("meta"):
        state = make_network(sizes).state_dict()
    expected = {
        name: tuple(tensor.shape) for name, tensor in state.items() if not name.endswith(_COUNTER)
    }
    stored = {name: shape for name, shape in shapes.items() if not name.endswith(_COUNTER)}
    faults = [f"{name} is missing" for name in expected if name not in stored]
    faults += [f"{name} is unexpected" for name in stored if name not in expected]
    faults += [
        f"{name} is {stored[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in stored and stored[name] != shape
    ]
    if faults:
        more = f"; and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise ValueError("; ".join(faults[:8]) + more)


def make_network(sizes: UnicomSizes) -> Any:
    """The torch module in evaluation, its state named as the tensors of a file are.

    It takes (n, 3, side, side) float32 pixels, and gives (n, features) float32: the output of the
    last batch normalisation, not normalised to unit length.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    width = sizes.width

    class Linear(nn.Linear):  # type: ignore[misc] # torch is Any to mypy
        """One of those that the released code runs in half precision on an accelerator."""

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            mapped: torch.Tensor = super().forward(states.to(self.weight.dtype))
            return mapped

    class Attention(nn.Module):  # type: ignore[misc] # as above
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = Linear(width, 3 * width, bias=False), Linear(width, width)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            # The released code takes the softmax in float32 whatever the precision around it.
            parts = self.qkv(states).float().unflatten(-1, (3, sizes.heads, -1))
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            heads = functional.scaled_dot_product_attention(query, key, value)
            mixed: torch.Tensor = self.proj(heads.transpose(1, 2).flatten(2))
            return mixed

    class Block(nn.Module):  # type: ignore[misc] # as above
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attn = nn.LayerNorm(width, _LAYER_NORM_EPS), Attention()
            self.norm2 = nn.LayerNorm(width, _LAYER_NORM_EPS)
            maps = {"fc1": Linear(width, sizes.hidden), "fc2": Linear(sizes.hidden, width)}
            self.mlp = nn.ModuleDict(maps)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            states = states + self.attn(self.norm1(states))
            hidden = functional.relu6(self.mlp["fc1"](self.norm2(states)))
            changed: torch.Tensor = states + self.mlp["fc2"](hidden)
            return changed

    class Unicom(nn.Module):  # type: ignore[misc] # as above
        def __init__(self) -> None:
            super().__init__()
            self.patch_embed = nn.ModuleDict(
                {"proj": nn.Conv2d(3, width, sizes.patch, sizes.patch)}
            )
            self.pos_embed = nn.Parameter(torch.empty(1, sizes.tokens, width))
            self.blocks = nn.ModuleList(Block() for _ in range(sizes.depth))
            self.norm = nn.LayerNorm(width, _LAYER_NORM_EPS)
            self.feature = nn.Sequential(
                nn.Linear(width * sizes.tokens, width, bias=False),
                nn.BatchNorm1d(width, _BATCH_NORM_EPS),
                nn.Linear(width, sizes.features, bias=False),
                nn.BatchNorm1d(sizes.features, _BATCH_NORM_EPS),
            )

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            patches = self.patch_embed["proj"](pixels)
            states = patches.flatten(2).transpose(1, 2) + self.pos_embed
            for block in self.blocks:
                states = block(states)
            features: torch.Tensor = self.feature(self.norm(states).flatten(1))
            return features

    return Unicom().eval()


ADAPTER = adapter(
    "unicom-encoder/1",
    ("torch", "torchvision", "safetensors"),
    UnicomParams,
    _load,
    check=_check_format,
)


def detect(_: ModelSpec) -> DetectedModel:
    """An encoder of images."""
    return DetectedModel(WHAT, ("encoder",), "embeds images")


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `models.binding.bind`."""
    return bind_file(WHAT, ADAPTER, spec, role, _locate, context)


def check_installed(_: ModelSpec) -> None:
    """Raise MissingDependencyError without torch."""
    require("torch")


def weights_bytes(spec: ModelSpec, _device: str | None) -> int:
    """The size of the file. Raises OSError where it is not there."""
    return Path(spec.target).expanduser().stat().st_size


def features_name(spec: ModelSpec) -> str:
    """Of its features, for labels: the name of the file."""
    return Path(spec.target).name.removesuffix(".pt").removesuffix(".safetensors")
