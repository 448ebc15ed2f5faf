"""States as trainings save them: weights without a model around them.

FSDP writes its state as shards of torch.distributed.checkpoint (DCP), accelerate's `save_state` as
safetensors without a configuration. Both are read together with a configuration from elsewhere.
What only its own library reads is refused with the command that consolidates it. Shards are put
together by torch's own reader. Their `.metadata` is a pickle, so only the few classes that torch
writes there are let in.
"""

from __future__ import annotations

import pickle
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints.checkpoint import CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    SHARD_SUFFIX,
    WEIGHT_SUFFIXES,
    own_names,
    tensor_shapes,
)
from pytest_cepbench.models.torch_runtime import undistributed

if TYPE_CHECKING:
    import torch


_DCP_METADATA = ".metadata"  # says which tensors lie where in the shards beside it; a pickle

_FSDP = re.compile(r"pytorch_model_fsdp_\d+")
_SAFE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_DEEPSPEED = re.compile(r"(zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt")


def find_loose_weights(folder: Path) -> CheckpointPart | None:
    """The weights in a folder that holds no whole model, as the part "weights"; None without any.

    Raises CheckpointError for those that have to be consolidated first, with the command.
    """
    names = sorted(path.name for path in folder.iterdir())
    for place in (folder, *(folder / name for name in names if _FSDP.fullmatch(name))):
        if (place / _DCP_METADATA).is_file():
            return CheckpointPart("weights", place, _state_files)
    if any(_SAFE.fullmatch(name) for name in names):
        return CheckpointPart("weights", folder, _state_files)
    for name in names:
        path = folder / name
        inside = not path.is_dir() and _DEEPSPEED.fullmatch(name) is not None
        tagged = path.is_dir() and name.startswith(("global_step", "pytorch_model"))
        if inside or (tagged and any(_DEEPSPEED.fullmatch(inner.name) for inner in path.iterdir())):
            root, tag = (folder.parent, folder.name) if inside else (folder, name)
            script, out = root / "zero_to_fp32.py", root / "consolidated"
            program = [str(script)] if script.is_file() else ["-m", "deepspeed.utils.zero_to_fp32"]
            options = ["--safe_serialization", "--tag", tag]
            command = ["python", *program, str(root), str(out), *options]
            raise CheckpointError(
                f"{folder}: DeepSpeed's state ({tag}/), pickled by rank. Consolidate it: "
                f"{shlex.join(command)}, copy config.json and the processor into {out} and give "
                "that"
            )
    return None


def _state_files(folder: Path) -> Sequence[str]:
    """The files of a state: shards with their metadata, or safetensors with their index."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    if _DCP_METADATA in names:
        shards = (SHARD_SUFFIX, ".safetensors")
        return sorted(n for n in names if n == _DCP_METADATA or n.endswith(shards))
    index = "model.safetensors.index.json"
    return sorted(name for name in names if _SAFE.fullmatch(name) or name == index)


def check_loose_weights(part: CheckpointPart) -> None:
    """Raise CheckpointError where shards that belong to a state are missing or empty.

    Which ones the state has is told by its metadata, which is read when it is loaded.
    """
    weights = [path for _, path in part.paths() if path.suffix in (*WEIGHT_SUFFIXES, SHARD_SUFFIX)]
    if not weights:
        raise CheckpointError(
            f"{part.path}: {_DCP_METADATA} without the shards (.distcp) that it describes"
        )
    empty = [path.name for path in weights if not path.stat().st_size]
    if empty:
        raise CheckpointError(
            f"{part.path}: empty shards ({few_of(empty)}): was it written completely?"
        )
    if (part.path / _DCP_METADATA).is_file():
        return
    stored = Counter(name for path in weights for name in tensor_shapes(path))
    if twice := [name for name, count in stored.items() if count > 1]:
        raise CheckpointError(
            f"{part.path}: several files hold {few_of(twice)}: shards of two states lie beside one "
            "another. Remove those of the older one"
        )


def read_state(part: CheckpointPart) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint's part "weights", on the CPU, by the names of the model's own.

    Optimizer states are left out. Raises CheckpointError for shards that are missing, cut off or
    hold anything else than tensors.
    """
    folder = part.path
    state: dict[str, torch.Tensor] = {}
    if not (folder / _DCP_METADATA).is_file():
        from safetensors.torch import load_file

        for name, path in part.paths():
            if name.endswith(".safetensors"):
                state |= load_file(path)
        own = own_names(state, folder)
        return {own[name]: tensor for name, tensor in state.items()}
    import torch
    from torch.distributed.checkpoint import FileSystemReader, load
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    metadata = _read_metadata(folder)
    # The way of each through the saved state: ("model", "lm_head.weight").
    paths: dict[str, tuple[Any, ...]] = {
        **{key: (key,) for key in metadata.state_dict_metadata},
        **(metadata.planner_data or {}),
    }

    def inner(first: object, *rest: object) -> str:
        """The name inside of the model; empty for what trainers keep beside it."""
        if rest and first == "app":  # of model and optimizer, in torch's own examples
            return inner(*rest)
        if rest:
            kept = first in ("model", "module", "state_dict")
            return ".".join(map(str, rest)) if kept else ""
        others = {"optimizer", "optim", "lr_scheduler", "scheduler", "train_state", "dataloader"}
        return "" if str(first).partition(".")[0] in others else str(first)

    names = {key: inner(*path) for key, path in paths.items()}
    wanted = {
        key: stored
        for key, stored in metadata.state_dict_metadata.items()
        if isinstance(stored, TensorStorageMetadata) and names[key]
    }
    if not wanted:
        entries = {str(path[0]) for path in paths.values()}
        raise CheckpointError(
            f"{folder}: shards that hold no tensors of a model, only {few_of(entries) or 'nothing'}"
        )
    _check_shards(folder, metadata, wanted)

    class Reader(FileSystemReader):  # type: ignore[misc] # torch has no types here
        """Does not unpickle the metadata again, which would run what is in it."""

        def read_metadata(self, *_: Any, **__: Any) -> Any:
            return metadata

    state = {
        key: torch.empty(stored.size, dtype=stored.properties.dtype)
        for key, stored in wanted.items()
    }
    load(state, storage_reader=Reader(folder), **undistributed(load))
    own = own_names([names[key] for key in state], folder)
    return {own[names[key]]: tensor for key, tensor in state.items()}


_DCP = "torch.distributed.checkpoint"

_EXPECTED = {
    f"{_DCP}.filesystem": ["_StorageInfo"],
    f"{_DCP}.metadata": [
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ],
    "collections": ["OrderedDict"],
    "pathlib": ["Path", "PosixPath"],
    "pathlib._local": ["PosixPath"],
    "torch": ["Size"],
    "torch.serialization": ["_get_layout"],
}  # fmt: skip
"""What `.metadata` consists of: module and names of its classes, beside torch's dtypes."""


class _MetadataUnpickler(pickle.Unpickler):
    """Reads DCP's metadata, and refuses everything that is no part of it."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if name not in _EXPECTED.get(module, ()):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return super().find_class(module, name)


def _read_metadata(folder: Path) -> Any:
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    path = folder / _DCP_METADATA
    try:
        with open_regular(path) as stream:
            metadata = _MetadataUnpickler(stream).load()
    except Exception as error:
        # A damaged pickle raises anything.
        raise CheckpointError(
            f"{path}: could not be read as the metadata of torch.distributed.checkpoint ({error}); "
            "other objects are not unpickled, since that can run code. Consolidate the state where "
            f"it was written: accelerate merge-weights {folder} {folder.parent / 'consolidated'}"
        ) from error
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise CheckpointError(f"{path}: expected the metadata of torch.distributed.checkpoint")
    if metadata.storage_meta is None:
        metadata.storage_meta = StorageMeta()
    return metadata


def _check_shards(folder: Path, metadata: Any, wanted: Mapping[str, Any]) -> None:
    """Raise CheckpointError where the shards are not all there, or do not hold whole tensors."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    for index, place in metadata.storage_data.items():
        name = str(place.relative_path)
        if "/" in name:
            raise CheckpointError(
                f"{folder / _DCP_METADATA}: {index.fqn} would be read from {name}, elsewhere"
            )
        if index.fqn not in wanted:
            continue
        if name not in sizes:
            raise CheckpointError(f"{folder}: the shard {name} is missing, which holds {index.fqn}")
        if place.offset + place.length > sizes[name]:
            raise CheckpointError(
                f"{folder / name}: {sizes[name]:,} bytes, cut off before the end of {index.fqn}: "
                "it was written or copied only in part"
            )
    for key, stored in wanted.items():
        if sum(prod(chunk.sizes) for chunk in stored.chunks) != prod(stored.size):
            raise CheckpointError(
                f"{folder}: the shards hold only a part of {key} {tuple(stored.size)}"
            )
    # Room is made for all tensors before one is read. Compressed ones take less room on disk.
    plain = not any(
        getattr(place, "transform_descriptors", None) for place in metadata.storage_data.values()
    )
    claims = {
        key: prod(stored.size) * stored.properties.dtype.itemsize for key, stored in wanted.items()
    }
    if plain and sum(claims.values()) > sum(sizes.values()):
        key = max(claims, key=lambda key: claims[key])
        raise CheckpointError(
            f"{folder / _DCP_METADATA}: {key} {tuple(wanted[key].size)} would be {claims[key]:,} "
            f"bytes, and all files beside it hold {sum(sizes.values()):,}: it is damaged or of "
            "other shards"
        )
