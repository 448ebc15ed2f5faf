"""Trained parts of a checkpoint that change nothing, found in their files.

A gate of a checkpoint whose trained parts change nothing measures what was accepted before the
training: adapters as a training begins, components as they were. That is found in the files, since
stored results are not computed again and load no model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, error_line
from pytest_cepbench.models.binding import IdleParts
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    list_files,
    readable_files,
    tensor_shapes,
)
from pytest_cepbench.models.checkpoints.peft_adapters import (
    adapter_weights,
    read_adapter,
    read_tensors,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import LORA

if TYPE_CHECKING:
    import torch


_FACTOR = re.compile(
    r"(.*[._])(lora_(embedding_)?[AB]|lora_down|lora_up|down|up|(hada|lokr)_\w+|vera_lambda_[bd])"
    r"(\.weight)?"
)
"""Names of the matrices whose product a layer adds: where one is zero, it adds nothing."""

_NEUTRAL: tuple[tuple[re.Pattern[str], float | None], ...] = (
    (re.compile(r".*\.(ia3_l|b?oft_s)"), 1.0),
    (re.compile(r".*\.(lora_B\.bias|b?oft_[rR](\.weight)?)"), 0.0),
    (re.compile(r".*\.alpha|.*\bvera_[AB]"), None),
)
"""Names of other tensors of adapters, and the value with which they change nothing; None: any."""

_NORM = re.compile(r".*\.(lora_magnitude_vector(\.weight)?|dora_scale)")
"""DoRA's lengths of a layer's rows: those of its base as a training begins."""


def idle_parts(checkpoint: Checkpoint) -> IdleParts:
    """Which adapters, LoRA weights and components of a checkpoint change nothing.

    Compared are values: one that was saved in another precision is the same. A part is taken to
    change something where its base is pickled or not on this machine, and where its kind is none of
    LoRA, DoRA, IA3, LoHa, LoKr, VeRA, OFT and trained modules or tokens.
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
    folder, loose = checkpoint.path, checkpoint.weights_part
    names = readable_files(
        list_files(folder), checkpoint.kind, checkpoint.config, checkpoint.options
    )
    base = [folder / name for name in names]
    if loose is not None:
        base = [path for _, path in loose.paths()]
    if not _replaces(part):
        return _adds_nothing(part, _Weights(base))
    own = _Weights([path for _, path in part.paths()])
    within = _Weights([path for path in base if path.parent == folder / part.name])
    return bool(own.names) and all(within.holds(name, own.read(name)) for name in own.names)


def _adds_nothing(part: CheckpointPart, base: _Weights) -> bool:
    """Whether the tensors of an adapter, or of LoRA weights, leave their base as it is."""
    # Indices of tokens that were trained, of one table or by the names of several.
    tokens: Mapping[str, Any] | Sequence[int] = {}
    if part.name == LORA:
        state = read_tensors(part.path)
    else:
        tokens = read_adapter(part.path).get("trainable_token_indices") or {}
        state = read_tensors(adapter_weights(part.path))
    layers: dict[str, list[str]] = defaultdict(list)
    others: list[str] = []
    for name in state:
        match = _FACTOR.fullmatch(name)
        if match:
            layers[match[1]].append(name)
        else:
            others.append(name)
    if any(all(state[name].any() for name in factors) for factors in layers.values()):
        return False

    def is_neutral(name: str, tensor: torch.Tensor) -> bool:
        for pattern, value in _NEUTRAL:
            if pattern.fullmatch(name):
                return value is None or bool((tensor == value).all())
        if _NORM.fullmatch(name):
            return base.has_rows_of(tensor)
        if "trainable_tokens" in name:
            listed = tokens.items() if isinstance(tokens, Mapping) else [("", tokens)]
            indices = next((own for table, own in listed if table in name), [])
            return base.holds(name, tensor, lambda table: table[indices])
        return base.holds(name, tensor)

    return bool(state) and all(is_neutral(name, state[name]) for name in others)


class _Weights:
    """The tensors of safetensors files; one is read when it is asked for.

    files: others among them are left out.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.names: dict[str, tuple[Path, tuple[int, ...]]] = {
            name: (path, shape)
            for path in files
            if path.suffix == ".safetensors"
            for name, shape in tensor_shapes(path).items()
        }

    def read(self, name: str) -> torch.Tensor:
        """A tensor, on the CPU. Raises CheckpointError where it cannot be read."""
        from safetensors import safe_open

        path = self.names[name][0]
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                tensor: torch.Tensor = file.get_tensor(name)
        except Exception as error:
            # A file that is being written, and a type of numbers that torch does not have.
            raise CheckpointError(f"{path}: {name} cannot be read: {error_line(error)}") from error
        return tensor

    def holds(
        self,
        name: str,
        tensor: torch.Tensor,
        part: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> bool:
        """Whether the values are those of the tensor of this name, where there is none of any.

        Libraries rename tensors, and the names in an adapter are not those in its base's files.
        part: of each, in the place of all of it.
        """
        known = [name] if name in self.names else self.names
        for other in known:
            shape = self.names[other][1]
            if part is None and shape == tuple(tensor.shape) and _same(tensor, self.read(other)):
                return True
            is_table = len(shape) == 2 and shape[1:] == tuple(tensor.shape[1:])
            if part is not None and is_table and _same(tensor, part(self.read(other))):
                return True
        return False

    def has_rows_of(self, lengths: torch.Tensor) -> bool:
        """Whether the rows of some matrix have these lengths, but for rounding."""
        import torch

        lengths = lengths.flatten()
        for name, (_, shape) in self.names.items():
            if len(shape) > 1 and shape[0] == len(lengths):
                weight = self.read(name)
                if not weight.is_floating_point():
                    continue
                rows = weight.float().flatten(1).norm(dim=1)
                rounding = max(torch.finfo(each.dtype).eps for each in (weight, lengths))
                if torch.allclose(rows, lengths.float(), rtol=4 * rounding, atol=0):
                    return True
        return False


def _same(trained: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a trained tensor has the values of its base's, in its own precision."""
    import torch

    return trained.shape == base.shape and bool(torch.equal(trained, base.to(trained.dtype)))
