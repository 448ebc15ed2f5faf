"""PEFT adapters on disk: their configuration, their base, and whether they are whole.

Reads JSON and file headers only; `models/adapters.py` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors, read_json
from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart

ADAPTER_CONFIG = "adapter_config.json"

ADAPTER_WEIGHTS = "adapter_model.safetensors"

PICKLED_ADAPTER = "adapter_model.bin"

ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED_ADAPTER)
"""The files that PEFT's save_pretrained writes."""

_PROMPTS = (
    "PROMPT_TUNING",
    "MULTITASK_PROMPT_TUNING",
    "P_TUNING",
    "PREFIX_TUNING",
    "CPT",
    "CARTRIDGE",
)
_NOT_APPLIED = {
    **dict.fromkeys(_PROMPTS, "it puts prompts before a text, and changes no weights"),
    "ADAPTION_PROMPT": "it puts prompts before a text, and changes no weights",
    "POLY": "it chooses its modules by tasks, which are not told here",
    "XLORA": "it chooses its experts for each text, and cannot be merged",
}
"""Types of PEFT whose models are asked in another way, and why."""


def holds_adapter(folder: Path) -> bool:
    """Whether a folder is that of a PEFT adapter."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter, its peft_type in capitals as PEFT has it.

    Raises CheckpointError for one that is no adapter's, that of a type which changes no weights,
    and one that would have code of its own imported.
    """
    if not holds_adapter(folder):
        whole = " It holds a whole model" if (folder / "config.json").is_file() else ""
        raise CheckpointError(f"{folder}: no {ADAPTER_CONFIG}, so it is no PEFT adapter.{whole}")
    config = read_json(folder / ADAPTER_CONFIG)
    kind = config.get("peft_type")
    if not isinstance(kind, str) or not kind.isidentifier():
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: no peft_type, so nothing says what kind of adapter it is"
        )
    kind = config["peft_type"] = kind.upper()
    if kind in _NOT_APPLIED:
        raise CheckpointError(
            f"{folder}: a PEFT adapter of type {kind}, which is not applied: {_NOT_APPLIED[kind]}"
        )
    if config.get("megatron_config"):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: megatron_config has a module imported by its name, which "
            "a configuration may not. Merge the adapter where it was trained"
        )
    return config


def check_adapter(folder: Path, *, allow_pickle: bool) -> None:
    """Raise CheckpointError where an adapter's weights are missing, pickled only or cut off."""
    if (folder / ADAPTER_WEIGHTS).is_file():
        check_safetensors(folder / ADAPTER_WEIGHTS)
    elif not (folder / PICKLED_ADAPTER).is_file():
        names = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file())[:12])
        raise CheckpointError(
            f"{folder}: a PEFT adapter without weights: expected {ADAPTER_WEIGHTS}, found {names}. "
            "Was it written completely?"
        )
    elif not allow_pickle:
        raise CheckpointError(
            f"{folder}: the adapter's weights are pickled only ({PICKLED_ADAPTER}), and unpickling "
            "can run code. Save them as safetensors, or add allow_pickle=true to the model's spec "
            "if you trust where they come from"
        )
    for name in ("non_lora_trainables.bin", "non_lora_state_dict.bin"):
        if (folder / name).is_file():
            raise CheckpointError(
                f"{folder}: {name} beside the adapter holds weights that its training code alone "
                "puts in place, and without them it is another model. Merge with that code, save "
                "the whole model and give its folder"
            )


def adapter_weights(folder: Path) -> Path:
    """The file that an adapter's weights are read from."""
    safe = folder / ADAPTER_WEIGHTS
    return safe if safe.is_file() else folder / PICKLED_ADAPTER


def adapter_part(
    folder: Path, *, factor: float, merge: bool, revision: str | None = None
) -> CheckpointPart:
    """An adapter as a part of its base; see `SourceOptions` for factor and merge."""
    settings: dict[str, Any] = {} if factor == 1 else {"factor": factor}
    if not merge:
        settings["merge"] = False
    return CheckpointPart("adapter", folder, _read, revision=revision, settings=settings)


def _read(folder: Path) -> Sequence[str]:
    # What is missing shows when it is checked: a list that cannot be made would hide the reason.
    names = (ADAPTER_CONFIG, adapter_weights(folder).name)
    return sorted(name for name in names if (folder / name).is_file())


def base_candidates(folder: Path, config: Mapping[str, Any]) -> tuple[list[Path], str]:
    """The folders that an adapter's base may be, the likeliest first, and its name.

    A relative path counts from the working folder, as PEFT takes it, else from the adapter's.
    Raises CheckpointError where the adapter names none.
    """
    name = config.get("base_model_name_or_path")
    if not isinstance(name, str) or not name or "\0" in name:
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG} names no base model (base_model_name_or_path): add "
            "base=FOLDER to the model's spec"
        )
    return [Path(name).expanduser(), folder / name], name
