"""Quantized components of pipelines: by which method, and which packages that needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_cepbench.models.checkpoints import Checkpoint, component_names, read_json
from pytest_cepbench.models.quantization import refuse_cpu, require_packages


def require_quantization(checkpoint: Checkpoint, device: str) -> None:
    """Check, without importing, that a pipeline's quantized components can be read and used.

    device: where it will run. Raises MissingDependencyError naming the packages that are not
    installed, CheckpointError for a method that has no code for a CPU.
    """
    for name, place, method in _quantized(checkpoint):
        require_packages(place, f"the {name} is", method)
        # transformers runs it on a CPU too.
        own = checkpoint.config[name][0] == "diffusers"
        if device == "cpu" and method == "bitsandbytes" and own:
            refuse_cpu(place, f"the {name} is", method)


def _quantized(checkpoint: Checkpoint) -> Iterator[tuple[str, Path, str]]:
    """Name, place and method of each component that is quantized."""
    replaced = {part.component: part.path for part in checkpoint.parts if part.component}
    files = {part.name for part in checkpoint.parts if part.name in part.supplies}
    for name in component_names(checkpoint.config):
        place = replaced.get(name, checkpoint.path / name)
        if name not in files and (place / "config.json").is_file():
            stated: Any = read_json(place / "config.json").get("quantization_config")
            if isinstance(stated, dict) and stated:
                yield name, place, str(stated.get("quant_method", "bitsandbytes"))
