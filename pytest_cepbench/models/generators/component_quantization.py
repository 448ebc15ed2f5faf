"""Quantized components of pipelines: by which method, and which packages that needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, MissingDependencyError
from pytest_cepbench.models.checkpoints import Checkpoint, component_names, read_json

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "bitsandbytes": ("accelerate", "bitsandbytes"),
    "gguf": ("accelerate", "gguf"),
    "modelopt": ("accelerate", "modelopt"),
    "quanto": ("accelerate", "optimum"),
    "torchao": ("torchao",),
}
"""The packages, as they are imported, by the `quant_method` of a component's configuration."""

_DISTRIBUTIONS = {"modelopt": "nvidia-modelopt", "optimum": "optimum-quanto"}
"""Those whose name at the package index is another one."""


def require_quantization(checkpoint: Checkpoint, device: str) -> None:
    """Check, without importing, that a pipeline's quantized components can be read and used.

    device: where it will run. Raises MissingDependencyError naming the packages that are not
    installed, CheckpointError for a method that has no code for a CPU.
    """
    for name, place, method in _quantized(checkpoint):
        missing = [package for package in _PACKAGES.get(method, ()) if not util.find_spec(package)]
        if missing:
            install = " ".join(_DISTRIBUTIONS.get(package, package) for package in missing)
            msg = (
                f"{place}: the {name} is quantized by {method}, which needs {', '.join(missing)}, "
                f"not installed: pip install {install}"
            )
            raise MissingDependencyError(msg)
        library = checkpoint.config[name][0]
        if device == "cpu" and method == "bitsandbytes" and library == "diffusers":
            msg = (
                f"{place}: the {name} is quantized by bitsandbytes, which diffusers runs on an "
                "accelerator only, and device is cpu. Gate it where there is one, or gate the "
                "weights before they were quantized"
            )
            raise CheckpointError(msg)


def _quantized(checkpoint: Checkpoint) -> Iterator[tuple[str, Path, str]]:
    """Name, place and method of each component that is quantized."""
    replaced = {part.component: part.path for part in checkpoint.parts if part.component}
    files = {part.name: part.path for part in checkpoint.parts if part.name in part.supplies}
    for name in component_names(checkpoint.config):
        if name in files:
            if files[name].suffix == ".gguf":
                yield name, files[name], "gguf"
            continue
        place = replaced.get(name, checkpoint.path / name)
        if (place / "config.json").is_file():
            stated: Any = read_json(place / "config.json").get("quantization_config")
            if isinstance(stated, dict) and stated:
                yield name, place, str(stated.get("quant_method", "bitsandbytes"))
