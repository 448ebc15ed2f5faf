"""What models of transformers are made of beside a whole folder: PEFT adapters, and loose weights.

FSDP writes its state as shards of torch.distributed.checkpoint (DCP), accelerate's `save_state` as
safetensors without a configuration. Both are read together with a configuration from elsewhere.
What only its own library reads is refused with the command that consolidates it. Reads JSON and
file headers only; `peft_adapters.py` applies adapters.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    WEIGHT_SUFFIXES,
    CheckpointPart,
    check_safetensors,
    read_json,
)

ADAPTER_CONFIG = "adapter_config.json"

ADAPTER_WEIGHTS = "adapter_model.safetensors"

PICKLED_ADAPTER = "adapter_model.bin"

ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED_ADAPTER)
"""The files that PEFT's save_pretrained writes."""

_PROMPTS = (
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE",
    "ADAPTION_PROMPT",
)  # fmt: skip
_NOT_APPLIED = {
    **dict.fromkeys(_PROMPTS, "it puts prompts before a text, and changes no weights"),
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
    return CheckpointPart("adapter", folder, _files, revision=revision, settings=settings)


def _files(folder: Path) -> Sequence[str]:
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


DCP_METADATA = ".metadata"
"""The file that says which tensors lie where in the shards beside it; a pickle."""

SHARD_SUFFIX = ".distcp"

_FSDP = re.compile(r"pytorch_model_fsdp_\d+")
_SAFE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_PICKLED = re.compile(r"(pytorch_|open_clip_)?model.*\.(bin|pt|pth)")
_SAFE_INDEX = "model.safetensors.index.json"
_OF_RANK = re.compile(r"pytorch_model_fsdp(_\d+)?_rank\d+\.bin")
_OF_VERL = re.compile(r"(model|optim)_world_size_\d+_rank_\d+\.pt")
_WHOLE_STATE = re.compile(r"pytorch_model_fsdp(_\d+)?\.bin")
_DEEPSPEED = re.compile(r"(zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt")
_OTHER_KINDS = ("model_index.json", "open_clip_config.json", "modules.json")


def find_loose_weights(folder: Path) -> CheckpointPart | None:
    """The weights in a folder that holds no whole model, as the part "weights"; None without any.

    Raises CheckpointError for those that have to be consolidated first, with the command.
    """
    if any((folder / name).is_file() for name in _OTHER_KINDS) or holds_whole_model(folder):
        return None
    names = sorted(path.name for path in folder.iterdir())
    for place in (folder, *(folder / name for name in names if _FSDP.fullmatch(name))):
        if (place / DCP_METADATA).is_file():
            return CheckpointPart("weights", place, _state_files)
    if any(_SAFE.fullmatch(name) for name in names):
        return CheckpointPart("weights", folder, _state_files)
    for name in names:
        _refuse_rank_files(folder, name)
    # verl keeps the configuration in a folder beside its shards, and both in one for each role.
    above = [folder.parent] if (folder / "config.json").is_file() else []
    for place in (*above, *(folder / name for name in names)):
        for path in place.glob("model_world_size_*.pt"):
            _refuse_rank_files(place, path.name)
    return None


def holds_whole_model(folder: Path) -> bool:
    """Whether a folder holds a model of transformers, configuration and weights."""
    if not (folder / "config.json").is_file():
        return False
    return any(_is_weights_file(path.name) for path in folder.iterdir())


def _is_weights_file(name: str) -> bool:
    if any(kind.fullmatch(name) for kind in (_OF_RANK, _OF_VERL, _WHOLE_STATE)):
        return False
    return name.endswith(".safetensors") or _PICKLED.fullmatch(name) is not None


def _is_deepspeed(path: Path) -> bool:
    if not path.is_dir():
        return bool(_DEEPSPEED.fullmatch(path.name))
    return path.name.startswith(("global_step", "pytorch_model")) and any(
        _DEEPSPEED.fullmatch(inner.name) for inner in path.iterdir()
    )


def _state_files(folder: Path) -> Sequence[str]:
    """The files of a state: shards with their metadata, or safetensors with their index."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    if DCP_METADATA in names:
        shards = (SHARD_SUFFIX, ".safetensors")
        return sorted(n for n in names if n == DCP_METADATA or n.endswith(shards))
    return sorted(name for name in names if _SAFE.fullmatch(name) or name == _SAFE_INDEX)


def _refuse_rank_files(folder: Path, name: str) -> None:
    """Raise CheckpointError where a name is that of a state that only its trainer's tools read."""
    if _is_deepspeed(folder / name):
        raise CheckpointError(_deepspeed(folder, name))
    if _OF_RANK.fullmatch(name):
        raise CheckpointError(
            f"{folder}: FSDP's local state ({name}), which only the same number of processes can "
            "read: load it in the training and save again with StateDictType.SHARDED_STATE_DICT"
        )
    if _OF_VERL.fullmatch(name):
        merged = shlex.quote(str(folder / "merged"))
        raise CheckpointError(
            f"{folder}: verl's state of FSDP, a file for each process ({name}). Merge them: python "
            f"-m verl.model_merger merge --backend fsdp --local_dir {shlex.quote(str(folder))} "
            f"--target_dir {merged}, and give {merged}"
        )
    if _WHOLE_STATE.fullmatch(name):
        raise CheckpointError(
            f"{folder}: FSDP's whole state pickled without a model ({name}): load it in the "
            "training and write the model with accelerator.save_model, or save with "
            "StateDictType.SHARDED_STATE_DICT, whose shards are read as they are"
        )


def _deepspeed(folder: Path, name: str) -> str:
    """How DeepSpeed's state is consolidated, with the paths of this one.

    folder: holds the file or folder of that name.
    """
    inside = _DEEPSPEED.fullmatch(name) is not None
    root, tag = (folder.parent, folder.name) if inside else (folder, name)
    script = root / "zero_to_fp32.py"
    program = str(script) if script.is_file() else "-m deepspeed.utils.zero_to_fp32"
    words = [*program.split(" ", 1)] if program.startswith("-m ") else [program]
    out = root / "consolidated"
    command = shlex.join(["python", *words, str(root), str(out), "--safe_serialization"])
    return (
        f"{folder}: DeepSpeed's state ({tag}/), pickled by rank. Consolidate it: {command} "
        f"--tag {shlex.quote(tag)}, copy config.json and the processor into {out} and give that"
    )


def configuration_folders(folder: Path, part: CheckpointPart) -> list[Path]:
    """Where the configuration of loose weights may lie, the likeliest first: with them or above."""
    places = [part.path, folder, folder.parent, folder.parent.parent]
    return [place for place in dict.fromkeys(places) if (place / "config.json").is_file()]


def check_loose_weights(part: CheckpointPart) -> None:
    """Raise CheckpointError where shards that belong to a state are missing or empty.

    Which ones the state has is told by its metadata, which is read when it is loaded.
    """
    weights = [path for _, path in part.paths() if path.suffix in (*WEIGHT_SUFFIXES, SHARD_SUFFIX)]
    if not weights:
        raise CheckpointError(
            f"{part.path}: {DCP_METADATA} without the shards (.distcp) that it describes"
        )
    empty = [path.name for path in weights if not path.stat().st_size]
    if empty:
        raise CheckpointError(
            f"{part.path}: empty shards ({', '.join(empty[:5])}): was it written completely?"
        )
