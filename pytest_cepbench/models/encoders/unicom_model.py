"""The Unicom vision transformer: names and shapes of its weights, and its computation.

Established by reading the released implementation (deepglint/unicom, `vision_transformer.py` and
`model.py`), not by running it: names, shapes, the order of operations, ReLU6, both epsilons, and
which parts run in half precision there. The released weights themselves were never loaded here.

The transformer has no CLS token. The normalised states of all patches are laid end to end, and two
linear maps, each followed by a batch normalisation, make the features of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

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
        given = ", ".join(sorted(shapes)[:5]) or "none"
        msg = (
            "no weights of a Unicom vision transformer: patch_embed.proj.weight, pos_embed, "
            "blocks.0.mlp.fc1.weight and feature.2.weight are needed to tell its sizes, and the "
            f"tensors are {given}, ..."
        )
        raise ValueError(msg) from error
    grid = math.isqrt(tokens)
    if grid * grid != tokens:
        msg = f"pos_embed has {tokens} places, which are not the patches of a square image"
        raise ValueError(msg)
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    heads = heads or max(1, width // _HEAD_WIDTH)
    if width % heads:
        msg = f"{heads} heads do not divide the width {width}: give another number of heads"
        raise ValueError(msg)
    return UnicomSizes(grid * patch, patch, width, hidden, depth, heads, features)


def check_tensors(shapes: Mapping[str, Shape], sizes: UnicomSizes) -> None:
    """Raise ValueError naming each tensor that is missing, unexpected or of another shape."""
    expected = _expected(sizes)
    given = {name: shape for name, shape in shapes.items() if not name.endswith(_COUNTER)}
    faults = [f"{name} is missing" for name in expected if name not in given]
    faults += [f"{name} is unexpected" for name in given if name not in expected]
    faults += [
        f"{name} is {given[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in given and given[name] != shape
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
