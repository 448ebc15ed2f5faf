"""Tiny models with random weights that are one file: Unicom's layout, and clean-fid's Inception.

`make_unicom` is a model of torch.nn modules, written beside the package's own for comparison: its
state dict has the names and shapes of the released files.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

INCEPTION_NAME = "inception-2015-12-05.pt"

UNICOM = {"side": 24, "patch": 8, "width": 128, "depth": 2, "features": 20}


def make_unicom(*, side: int, patch: int, width: int, depth: int, features: int) -> torch.nn.Module:
    """A model in Unicom's layout, in evaluation; large weights, so that ReLU6 meets its limit."""
    import torch
    from torch import nn

    heads = width // 64

    def named(**parts: nn.Module) -> nn.Module:
        module = nn.Module()
        for name, part in parts.items():
            module.add_module(name, part)
        return module

    class Block(nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            qkv = nn.Linear(width, 3 * width, bias=False)
            self.attn = named(qkv=qkv, proj=nn.Linear(width, width))
            self.mlp = named(fc1=nn.Linear(width, 4 * width), fc2=nn.Linear(4 * width, width))

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            query, key, value = (
                part.unflatten(-1, (heads, -1))
                for part in self.attn.qkv(self.norm1(states)).chunk(3, dim=-1)
            )
            scores = torch.einsum("nihd,njhd->nhij", query, key) / (width // heads) ** 0.5
            mixed = torch.einsum("nhij,njhd->nihd", scores.softmax(dim=-1), value)
            states = states + self.attn.proj(mixed.flatten(-2))
            hidden = self.mlp.fc1(self.norm2(states)).clamp(0, 6)
            changed: torch.Tensor = states + self.mlp.fc2(hidden)
            return changed

    class Unicom(nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            tokens = (side // patch) ** 2
            self.patch_embed = named(proj=nn.Conv2d(3, width, patch, patch))
            self.pos_embed = nn.Parameter(torch.empty(1, tokens, width))
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm = nn.LayerNorm(width)
            self.feature = nn.Sequential(
                nn.Linear(tokens * width, width, bias=False),
                nn.BatchNorm1d(width, eps=2e-5),
                nn.Linear(width, features, bias=False),
                nn.BatchNorm1d(features, eps=2e-5),
            )

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            states = self.patch_embed.proj(pixels).flatten(2).mT + self.pos_embed
            for block in self.blocks:
                states = block(states)
            features: torch.Tensor = self.feature(self.norm(states).flatten(1))
            return features

    return Unicom().eval()


def randomize(model: torch.nn.Module, seed: int = 31) -> torch.nn.Module:
    """Every parameter and statistic drawn anew; variances so small that epsilon matters."""
    import torch

    source = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            drawn = torch.randn(tensor.shape, generator=source) * 0.6
            tensor.copy_(drawn.abs() * 1e-3 if name.endswith("running_var") else drawn)
    return model


def save_unicom(file: Path, tensors: dict[str, Any]) -> Path:
    """A state dict in the format that the file's name asks for, in float16 as the released ones."""
    import torch
    from safetensors.torch import save_file

    half = {k: v.half() if v.is_floating_point() else v for k, v in tensors.items()}
    if file.suffix == ".safetensors":
        save_file(half, file)
    else:
        torch.save(half, file)
    return file


def build_unicom(file: Path) -> Path:
    """A file of the tiny Unicom's weights under this name; returns the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return save_unicom(file, randomize(make_unicom(**UNICOM)).state_dict())


def build_inception(folder: Path) -> Path:
    """A TorchScript file with the interface of clean-fid's Inception; returns the file."""
    import torch
    from torch import nn

    class Layers(nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.AvgPool2d(46)
            self.out = nn.Linear(3 * 6 * 6, 2048)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.out(self.pool(x).flatten(1))
            return features

    class Inception(nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.layers = Layers()

        def forward(self, x: torch.Tensor, return_features: bool = False) -> torch.Tensor:
            features: torch.Tensor = self.layers(x)
            return features

    torch.manual_seed(32)
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch deprecates TorchScript
        torch.jit.save(torch.jit.script(Inception().eval()), str(folder / INCEPTION_NAME))
    return folder / INCEPTION_NAME
