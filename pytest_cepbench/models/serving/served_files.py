"""The files that a server reads: the checkpoint, its adapters and its chat template, as one digest.

The digest of a checkpoint that is served without adapters and template is that of the checkpoint
loaded in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import CoveredFiles, HashFile
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    check_configuration,
    file_options,
    fingerprint,
    list_files,
    read_json,
)
from pytest_cepbench.models.serving.parameters import EngineParams
from pytest_cepbench.models.spec import ModelSpec

_CONFIG = "adapter_config.json"

_READ = (".json", ".safetensors", ".txt", ".model", ".jinja")

_PICKLED = (".bin", ".pt", ".pth")


def served_files(
    spec: ModelSpec, checkpoint: Checkpoint, params: EngineParams, hash_file: HashFile
) -> CoveredFiles:
    """All files that decide the answers of a server.

    spec: of the checkpoint alone.
    hash_file: SHA-256 of a file's bytes, hexadecimal.
    """
    options = file_options(spec)

    def identify(hash_file: HashFile) -> str:
        check_configuration(checkpoint)
        whole = fingerprint(checkpoint, hash_file, options)
        others: dict[str, Any] = {}
        # Mistral's own format, which engines may prefer and this package never loads.
        own_format = [name for name in list_files(checkpoint.path) if _is_consolidated(name)]
        if own_format:
            others["consolidated"] = _hashed(checkpoint.path, own_format, hash_file)
        if params.adapters:
            others["adapters"] = {
                name: _hashed(folder, adapter_files(folder, options.allow_pickle), hash_file)
                for name, folder in params.adapters.items()
            }
            others["answers"] = params.adapter
        if params.chat_template is not None:
            others["chat_template"] = hash_file(Path(params.chat_template).expanduser().absolute())
        return digest_json({"checkpoint": whole, **others}) if others else whole

    return CoveredFiles(checkpoint.path, hash_file, identify)


def adapter_files(folder: Path, allow_pickle: bool) -> list[str]:  # noqa: FBT001 - of a spec
    """The files of a PEFT adapter that an engine can read.

    Raises CheckpointError where the folder holds no adapter, or only pickled weights that are not
    allowed.
    """
    if not (folder / _CONFIG).is_file():
        raise CheckpointError(
            f"{folder}: no PEFT adapter; lora_modules expects a folder with {_CONFIG} in it"
        )
    names = list_files(folder)
    inner = [name for name in names if "/" not in name]
    safe = [name for name in inner if name.endswith(".safetensors")]
    pickled = [name for name in inner if name.startswith("adapter_model") and _is_pickled(name)]
    if not safe and not pickled:
        raise CheckpointError(
            f"{folder}: the adapter's weights are missing (adapter_model.safetensors)"
        )
    if not safe and not allow_pickle:
        raise CheckpointError(
            f"{folder}: the adapter's weights are pickled ({pickled[0]}), and pickles can run "
            "code: save them as safetensors, or give allow_pickle=true"
        )
    return [name for name in inner if name.endswith(_READ)] + ([] if safe else pickled)


def adapter_ranks(folders: Mapping[str, Path]) -> list[int]:
    """The ranks of LoRA adapters, the largest of each. Raises CheckpointError for a broken file."""
    ranks = []
    for folder in folders.values():
        config = read_json(folder / _CONFIG)
        pattern = config.get("rank_pattern")
        values = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
        ranks.append(max((rank for rank in values if isinstance(rank, int)), default=0))
    return ranks


def _hashed(folder: Path, names: list[str], hash_file: HashFile) -> list[list[str]]:
    return [[name, hash_file(folder / name)] for name in sorted(names)]


def _is_pickled(name: str) -> bool:
    return name.endswith(_PICKLED)


def _is_consolidated(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".safetensors" and path.name.startswith("consolidated")
