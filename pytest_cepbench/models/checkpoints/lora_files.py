"""Files of LoRA weights for pipelines of diffusers: found, told from whole models, checked.

diffusers' training scripts, peft and kohya's scripts write them. They differ in the names of their
tensors, which diffusers brings into one form when it loads them. Reads file headers; no model
library is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import Shapes, tensor_shapes

LORA_FILE = "pytorch_lora_weights.safetensors"
"""The name under which diffusers saves LoRA weights."""

# A layer's two matrices: the first reduces its input to the rank, the second brings it back.
_SIDES = {"lora_A": "lora_B", "lora_down": "lora_up", "down": "up"}
_MATRIX = re.compile(r"(?P<layer>.*[._])(?P<side>lora_A|lora_B|lora_down|lora_up|down|up)(?P<rest>\.(?:[\w-]+\.)?weight)")  # fmt: skip  # noqa: E501
_BESIDE = re.compile(r".*(\.alpha|\.lora_B\.bias|\.lora_magnitude_vector(\.weight)?)")

_OTHER_METHODS = {
    ".dora_scale": "DoRA of kohya's scripts",
    ".hada_": "LoHa",
    ".lokr_": "LoKr",
    ".lora_mid": "LoCon with a Tucker decomposition",
    ".oft_": "OFT",
    ".diff": "differences of whole layers",
}


def is_lora(names: Iterable[str]) -> bool:
    """True where tensors of these names are LoRA weights for a pipeline, and nothing else.

    Those of a PEFT adapter begin with the model that it wraps.
    """
    names = list(names)
    return bool(names) and all(
        ("lora" in name or name.endswith(".alpha")) and not name.startswith("base_model.")
        for name in names
    )


def find_lora_file(folder: Path) -> Path | None:
    """The file of LoRA weights in a folder: of diffusers' name, else the one of its kind.

    None where there is none. Raises CheckpointError where there are several, and for a damaged one.
    """
    named = folder / LORA_FILE
    if named.is_file():
        return named
    paths = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    paths = [path for path in paths if is_lora(tensor_shapes(path))]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise CheckpointError(
            f"{folder}: several files of LoRA weights ({names}): give the path of one of them"
        )
    return paths[0] if paths else None


def check_lora(path: Path) -> None:
    """Raise CheckpointError where a file holds other tensors than whole LoRA layers.

    Every layer has two matrices of one rank. Tensors of other methods, which diffusers leaves out
    with a line in its log, are refused by name.
    """
    shapes = tensor_shapes(path)
    if not shapes:
        raise CheckpointError(
            f"{path}: no tensors: it is damaged or was written before the training began"
        )
    for name in shapes:
        for part, method in _OTHER_METHODS.items():
            if part in name:
                raise CheckpointError(
                    f"{path}: {name} belongs to {method}, which diffusers does not load. Merge it "
                    "into the pipeline with the tool that trained it, and give the whole pipeline"
                )
        if not _MATRIX.fullmatch(name) and not _BESIDE.fullmatch(name):
            raise CheckpointError(
                f"{path}: {name} is no part of a LoRA, so it would be left out or misread"
            )
    for name, shape in shapes.items():
        _check_pair(path, name, shape, shapes)


def _check_pair(path: Path, name: str, shape: tuple[int, ...], shapes: Shapes) -> None:
    """Raise CheckpointError where a matrix is alone, or of another rank than its partner."""
    match = _MATRIX.fullmatch(name)
    if match is None:
        return
    partners = _SIDES | {up: down for down, up in _SIDES.items()}
    partner = f"{match['layer']}{partners[match['side']]}{match['rest']}"
    if partner not in shapes:
        raise CheckpointError(
            f"{path}: {name} is there and {partner} is not: half a LoRA layer. Was it written "
            "completely?"
        )
    if match["side"] in _SIDES and (len(shape) < 2 or shapes[partner][1:2] != shape[:1]):
        raise CheckpointError(
            f"{path}: {name} has shape {shape} and {partner} {shapes[partner]}: two ranks in one "
            "layer. It is damaged or mixed from two trainings"
        )
