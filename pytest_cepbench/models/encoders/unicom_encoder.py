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
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.encoders.vectors import file_provider, reads_no_texts, to_vectors
from pytest_cepbench.models.load_plan import Adapter, LoadPlan, Placement, check_at_least
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.safe_loading import loading
from pytest_cepbench.models.torch_runtime import own_memory, quiet, to_torch_dtype

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


def _load(plan: LoadPlan[UnicomParams]) -> UnicomEncoder:
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
        weights = prepare(tensors, plan.device, to_torch_dtype(plan.dtype))
    return UnicomEncoder(plan, weights, sizes)


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


class UnicomEncoder:
    """A loaded Unicom model; satisfies the Encoder Protocol for images."""

    def __init__(
        self, plan: LoadPlan[UnicomParams], weights: Mapping[str, torch.Tensor], sizes: UnicomSizes
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._sizes = sizes
        self._transform = _make_transform(sizes.side)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, features) float32 features of RGB images (768 for ViT-L/14), not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            pixels = torch.stack([self._transform(image) for image in images])
            features = compute_features(self._weights, self._sizes, pixels.to(self._plan.device))
            return to_vectors(self._plan.checkpoint, features)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:  # noqa: ARG002 - the Protocol's
        """Raises RoleError: Unicom reads no texts."""
        raise reads_no_texts(self._plan.checkpoint)


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
    expected = _expected(sizes)
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


def _expected(sizes: UnicomSizes) -> dict[str, Shape]:
    width, patch = sizes.width, sizes.patch
    shapes: dict[str, Shape] = {
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "patch_embed.proj.bias": (width,),
        "pos_embed": (1, sizes.tokens, width),
    }
    for block in (f"blocks.{index}" for index in range(sizes.depth)):
        shapes |= _affine(f"{block}.norm1", width) | _affine(f"{block}.norm2", width)
        shapes[f"{block}.attn.qkv.weight"] = (3 * width, width)
        shapes |= {f"{block}.attn.proj.weight": (width, width), f"{block}.attn.proj.bias": (width,)}
        for name, out, into in (("fc1", sizes.hidden, width), ("fc2", width, sizes.hidden)):
            shapes |= {
                f"{block}.mlp.{name}.weight": (out, into),
                f"{block}.mlp.{name}.bias": (out,),
            }
    shapes |= _affine("norm", width)
    shapes["feature.0.weight"] = (width, width * sizes.tokens)
    shapes |= _affine("feature.1", width, statistics=True)
    shapes["feature.2.weight"] = (sizes.features, width)
    return shapes | _affine("feature.3", sizes.features, statistics=True)


def _affine(name: str, width: int, *, statistics: bool = False) -> dict[str, Shape]:
    parts = ["weight", "bias"] + ["running_mean", "running_var"] * statistics
    return {f"{name}.{part}": (width,) for part in parts}


def prepare(
    tensors: Mapping[str, torch.Tensor], device: str, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Weights ready to run: float32, but the linear maps of the blocks in `dtype`."""
    import torch

    return {
        name: tensor.to(device, dtype if _BLOCK_LINEAR.fullmatch(name) else torch.float32)
        for name, tensor in tensors.items()
    }


def compute_features(
    weights: Mapping[str, torch.Tensor], sizes: UnicomSizes, pixels: torch.Tensor
) -> torch.Tensor:
    """(n, features) float32 output of the last batch normalisation, not normalised to unit length.

    weights: of `prepare`. pixels: (n, 3, side, side) float32 on the weights' device.
    """
    from torch.nn.functional import conv2d, linear

    patches = conv2d(
        pixels,
        weights["patch_embed.proj.weight"],
        weights["patch_embed.proj.bias"],
        stride=sizes.patch,
    )
    states = patches.flatten(2).transpose(1, 2) + weights["pos_embed"]
    for index in range(sizes.depth):
        block = f"blocks.{index}"
        states = states + _attend(weights, sizes, block, _norm(weights, f"{block}.norm1", states))
        states = states + _mlp(weights, block, _norm(weights, f"{block}.norm2", states))
    flat = _norm(weights, "norm", states).flatten(1)
    middle = _batch_norm(weights, "feature.1", linear(flat, weights["feature.0.weight"]))
    return _batch_norm(weights, "feature.3", linear(middle, weights["feature.2.weight"]))


def _attend(
    weights: Mapping[str, torch.Tensor], sizes: UnicomSizes, block: str, states: torch.Tensor
) -> torch.Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    batch, tokens, width = states.shape
    mixed = _linear(weights, f"{block}.attn.qkv", states)
    # The released code takes the softmax in float32 whatever the precision around it.
    parts = mixed.float().view(batch, tokens, 3, sizes.heads, width // sizes.heads)
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    heads = scaled_dot_product_attention(query, key, value)
    return _linear(weights, f"{block}.attn.proj", heads.transpose(1, 2).flatten(2))


def _mlp(weights: Mapping[str, torch.Tensor], block: str, states: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import relu6

    return _linear(weights, f"{block}.mlp.fc2", relu6(_linear(weights, f"{block}.mlp.fc1", states)))


def _linear(weights: Mapping[str, torch.Tensor], name: str, states: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import linear

    weight = weights[f"{name}.weight"]
    return linear(states.to(weight.dtype), weight, weights.get(f"{name}.bias"))


def _norm(weights: Mapping[str, torch.Tensor], name: str, states: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import layer_norm

    scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return layer_norm(states, scale.shape, scale, shift, _LAYER_NORM_EPS)


def _batch_norm(
    weights: Mapping[str, torch.Tensor], name: str, states: torch.Tensor
) -> torch.Tensor:
    from torch.nn.functional import batch_norm

    return batch_norm(
        states,
        weights[f"{name}.running_mean"],
        weights[f"{name}.running_var"],
        weights[f"{name}.weight"],
        weights[f"{name}.bias"],
        eps=_BATCH_NORM_EPS,
    )


ADAPTER = Adapter(
    "unicom-encoder/1",
    ("torch", "torchvision", "safetensors"),
    UnicomParams,
    _load,
    check=_check_format,
)

PROVIDER = file_provider(
    WHAT,
    ADAPTER,
    locate=_locate,
    find=lambda spec: Path(spec.target).expanduser(),
    features_name=lambda spec: (
        Path(spec.target).name.removesuffix(".pt").removesuffix(".safetensors")
    ),
)
