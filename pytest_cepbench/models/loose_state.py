"""Weights without a model around them, read as tensors under the names of the model's own.

Shards of torch.distributed.checkpoint (DCP) are put together by torch's own reader. Their
`.metadata` is a pickle, so only the few classes that torch writes there are let in.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints import CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint import own_names
from pytest_cepbench.models.checkpoints.transformers_parts import DCP_METADATA
from pytest_cepbench.models.versions import undistributed

if TYPE_CHECKING:
    import torch

_DCP = "torch.distributed.checkpoint"

_ADMITTED = {
    *(
        (f"{_DCP}.metadata", name)
        for name in (
            "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex",
            "StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
        )
    ),
    (f"{_DCP}.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "Path"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}  # fmt: skip
"""What `.metadata` consists of: module and name of each class, beside torch's dtypes."""

_MODEL = ("model", "module", "state_dict", "app")
"""The entries of a saved state under which trainers keep the model."""

_NOT_MODEL = ("optimizer", "optim", "lr_scheduler", "scheduler", "train_state", "dataloader")


def read_state(part: CheckpointPart) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint's part "weights", on the CPU, by the names of the model's own.

    Optimizer states are left out. Raises CheckpointError for shards that are missing, cut off or
    hold anything else than tensors.
    """
    if (part.path / DCP_METADATA).is_file():
        return _read_shards(part)
    from safetensors.torch import load_file

    state: dict[str, torch.Tensor] = {}
    for name, path in part.paths():
        if name.endswith(".safetensors"):
            state |= load_file(path)
    own = own_names(state, part.path)
    return {own[name]: tensor for name, tensor in state.items()}


def _read_shards(part: CheckpointPart) -> dict[str, torch.Tensor]:
    import torch
    from torch.distributed.checkpoint import FileSystemReader, load
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    folder = part.path
    metadata = _read_metadata(folder)
    paths = {
        **{key: (key,) for key in metadata.state_dict_metadata},
        **(metadata.planner_data or {}),
    }
    wanted = {
        key: stored
        for key, stored in metadata.state_dict_metadata.items()
        if isinstance(stored, TensorStorageMetadata) and _of_model(paths[key])
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
    return _own_names(folder, {key: paths[key] for key in state}, state)


def _of_model(path: tuple[Any, ...]) -> bool:
    first = str(path[0])
    if len(path) > 1:
        return first in _MODEL
    return first.partition(".")[0] not in _NOT_MODEL


def _own_names(
    folder: Path, paths: Mapping[str, tuple[Any, ...]], state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Tensors by the names that the model itself gives them.

    paths: of each, its way through the saved state: ("model", "lm_head.weight").
    """
    names = {key: ".".join(map(str, paths[key][1:] or paths[key])) for key in state}
    own = own_names(names.values(), folder)
    return {own[names[key]]: tensor for key, tensor in state.items()}


class _MetadataUnpickler(pickle.Unpickler):
    """Reads DCP's metadata, and refuses everything that is no part of it."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return super().find_class(module, name)


def _read_metadata(folder: Path) -> Any:
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    path = folder / DCP_METADATA
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
                f"{folder / DCP_METADATA}: {index.fqn} would be read from {name}, elsewhere"
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
        if prod(stored.size) * stored.properties.dtype.itemsize > sum(
            sizes.values()
        ):  # before memory is taken for it
            raise CheckpointError(
                f"{folder}: {key} {tuple(stored.size)} is larger than all of the shards"
            )
