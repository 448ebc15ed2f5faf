"""Trained parts of a checkpoint that change nothing, found in their files.

A gate of a checkpoint whose trained parts change nothing measures what was accepted before the
training: LoRA as a training begins, components as they were. That is found in the files, since
stored results are not computed again and load no model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import IdleParts
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, CheckpointPart
from pytest_cepbench.models.checkpoints.peft_adapters import adapter_weights, read_tensors
from pytest_cepbench.models.checkpoints.pipeline_parts import LORA

_FACTOR = re.compile(r"(.*[._])(lora_(embedding_)?[AB]|lora_down|lora_up|down|up)(\.weight)?")
"""Names of the matrices whose product a layer adds: where one is zero, it adds nothing."""

_SCALE = re.compile(r".*\.alpha")


def idle_parts(checkpoint: Checkpoint) -> IdleParts:
    """Which LoRA and components of a checkpoint change nothing.

    LoRA is idle where one matrix of each of its layers is zero and it holds nothing else, a
    component where its files are those that it replaces. Other kinds are taken to change something.
    """
    trained = [p for p in checkpoint.parts if p.name in ("adapter", LORA) or _replaces(p)]
    idle = [part for part in trained if _is_idle(checkpoint, part)]
    whole = bool(idle) and len(idle) == len(trained)
    return IdleParts(
        tuple(
            f"{part.path} is equal to the {part.name} that it replaces"
            if _replaces(part)
            else f"{part.path} changes nothing: it is as a training begins"
            for part in idle
            # A training's folder holds components that it left as they were.
            if whole or not _replaces(part)
        ),
        whole,
    )


def _replaces(part: CheckpointPart) -> bool:
    return bool(part.component) or part.name in part.supplies


def _is_idle(checkpoint: Checkpoint, part: CheckpointPart) -> bool:
    if _replaces(part):
        own = {path for _, path in part.paths() if path.suffix == ".safetensors"}
        base = {checkpoint.path / part.name / (path.name) for path in own}
        return bool(own) and all(map(Path.is_file, base)) and _digests(own) == _digests(base)
    state = read_tensors(part.path if part.name == LORA else adapter_weights(part.path))
    layers: dict[str, bool] = defaultdict(lambda: True)  # whether all matrices hold something
    for name, tensor in state.items():
        if (match := _FACTOR.fullmatch(name)) is not None:
            layers[match[1]] &= bool(tensor.any())
        elif not _SCALE.fullmatch(name):
            return False
    return bool(layers) and not any(layers.values())


def _digests(paths: set[Path]) -> set[str]:
    return {sha256_of(path) for path in paths}
