"""Loading a checkpoint through a library: errors in words, gaps and broken weights detected.

Libraries fill a tensor that a checkpoint lacks with random numbers, leave out one that they do not
know, and log a line about it. A number measured with such weights looks like any other, so here
both are errors.

Weights without a model around them are read as tensors under the names of the model's own. Shards
of torch.distributed.checkpoint (DCP) are put together by torch's own reader. Their `.metadata` is a
pickle, so only the few classes that torch writes there are let in.
"""

from __future__ import annotations

import logging
import pickle
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cepbench.errors import (
    CepError,
    CheckpointError,
    DeviceMemoryError,
    MissingDependencyError,
    error_line,
    few_of,
)
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints import Checkpoint, CheckpointPart, file_options
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import own_names, unwrapped
from pytest_cepbench.models.checkpoints.checkpoint_files import refuse_ungathered, tensor_shapes
from pytest_cepbench.models.checkpoints.placement import (
    check_division,
    map_options,
    offloaded_weight,
    own_offloaded_weights,
    quantization_method,
)
from pytest_cepbench.models.checkpoints.transformers_parts import DCP_METADATA
from pytest_cepbench.models.torch_runtime import (
    check_device,
    dtype_option,
    is_out_of_memory,
    own_memory,
    plain_tensors,
    quiet,
    set_threads,
    to_torch_dtype,
    undistributed,
)

if TYPE_CHECKING:
    import torch


# Where transformers and diffusers log that tensors were missing or left over, and their words for
# it.
_DIFFUSERS = ("diffusers.models.modeling_utils", "diffusers.loaders.single_file_model")
_REPORTING_LOGGERS = ("transformers.modeling_utils", *_DIFFUSERS)
_OWN_SHARDS = "shard-*-model-*.safetensors"
"""The files that transformers' save_pretrained writes where several processes save a model."""

_MISSING_WORDS = "newly initialized"
_UNUSED_WORDS = "were not used when initializing"

# Constants that older versions of the libraries saved beside the weights.
_CONSTANT = re.compile(r"(^|[._])(masked_bias|position_ids|inv_freq|num_batches_tracked)$")


@contextmanager
def loading(plan: LoadPlan[Any]) -> Iterator[None]:
    """Load what a plan says, quietly, with its threads and on a device that is known to be there.

    Reaches the libraries imported before it is entered, as `quiet` does. Raises ModelError for a
    device that torch cannot use, and what `explained` raises.
    """
    check_device(plan.device)
    set_threads(plan.context.threads)
    with explained(plan.checkpoint), quiet():
        yield


@contextmanager
def explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what a library raises while it loads the checkpoint into an error in words.

    Raises MissingDependencyError for a package that it needs, DeviceMemoryError where it does
    not fit in memory, CheckpointError for the rest.
    """
    try:
        yield
    except CepError:
        raise
    except ImportError as error:
        line = error_line(error)
        raise MissingDependencyError(
            f"{checkpoint.path}: {checkpoint.what} needs a package that is missing: {line}"
        ) from error
    except Exception as error:
        # A damaged or foreign checkpoint makes these libraries raise anything, KeyError included.
        line = error_line(error)
        if is_out_of_memory(error):
            raise DeviceMemoryError(
                f"{checkpoint.path}: {checkpoint.what} does not fit in memory ({line}). "
                "Give dtype=bfloat16 or --cep-residency=swap, divide it among devices with "
                "device_map=auto (--cep-devices-per-worker) or leave parts in host memory with "
                "offload=, or use a larger device"
            ) from error
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} could not be loaded: {line}. Was it "
            "written completely, and by a version that the installed libraries can read?"
        ) from error


def from_pretrained(
    model_class: Any, plan: LoadPlan[Any], **options: Any
) -> tuple[Any, dict[str, set[str]]]:
    """The model of a transformers checkpoint on the plan's device, and the names of its
    `missing_keys` and `unexpected_keys`.

    plan: with `TransformersParams`. options: of the class's own from_pretrained. Raises
    CheckpointError naming the tensors whose shapes are not those of the configuration; what else
    the library raises is left to `explained`.
    """
    checkpoint, params = plan.checkpoint, plan.params
    options = {
        **dtype_option("transformers", to_torch_dtype(plan.dtype)),
        "use_safetensors": None if params.allow_pickle else True,
        "output_loading_info": True,
        **options,
    }
    if params.attn_implementation is not None:
        options["attn_implementation"] = params.attn_implementation
    if quantization_method(checkpoint) is not None:
        # Packed weights are put in their place at once. Their scales are attributes of several
        # libraries' own, which `take_weights` does not know, so the file is read and not mapped.
        options |= {"device_map": {"": plan.device}, "disable_mmap": True}
    with (
        map_options(params, plan.device) as divided,
        unwrapped(checkpoint, file_options(plan.spec)) as whole,
    ):
        model, info = _read_model(model_class, whole, {**options, **divided})
        if divided:
            what = f"{checkpoint.path}: {checkpoint.what}"
            check_division(model, params, plan.device, divided["offload_folder"], what)
        elif "device_map" not in options:
            model = model.to(plan.device)
    answer_by_names(model)
    return model.eval(), info


def answer_by_names(model: Any) -> None:
    """Have every part of a model return what it makes by names, where its config.json says tuples.

    A model that was exported once is saved so, and its own parts do not find what they look for.
    """
    for part in model.modules():
        if getattr(getattr(part, "config", None), "return_dict", None) is False:
            part.config.return_dict = True


def _read_model(
    model_class: Any, checkpoint: Checkpoint, options: dict[str, Any]
) -> tuple[Any, dict[str, set[str]]]:
    """What transformers reads of a checkpoint's folder, or of its state apart from that."""
    place: Path | None = checkpoint.path
    if checkpoint.weights_part is not None:
        place, model_class = None, _give_state(model_class, checkpoint, options)
    try:
        model, info = model_class.from_pretrained(place, **options)
    except RuntimeError as error:
        # Before transformers 5 it speaks of a size mismatch, and returns names alone.
        if not any(words in str(error) for words in ("ignore_mismatched_sizes", "size mismatch")):
            raise
        # Which ones these are is only logged, as a table; loaded once more, they are returned.
        options["ignore_mismatched_sizes"] = True
        _, info = model_class.from_pretrained(place, **options)
        keys = [(key, (), ()) if isinstance(key, str) else key for key in info["mismatched_keys"]]
        refuse_ungathered(checkpoint.path, [name for name, stored, _ in keys if 0 in stored])
        wrong = [
            f"{name} is {tuple(stored)}, expected {tuple(built)}" if built else name
            for name, stored, built in keys
        ]
        raise CheckpointError(
            f"{checkpoint.path}: weights and config.json are not of one model: {few_of(wrong)}. "
            "Save both again"
        ) from error
    if place is None:
        _read_generation_config(checkpoint, model)
    else:
        # What its own shards hold and the model does not, transformers leaves out without a word.
        stored = {name for shard in place.glob(_OWN_SHARDS) for name in tensor_shapes(shard)}
        info["unexpected_keys"] = {*info["unexpected_keys"], *(stored - model.state_dict().keys())}
    return model, info


def _give_state(model_class: Any, checkpoint: Checkpoint, options: dict[str, Any]) -> Any:
    """Add configuration and weights that lie apart to the options; returns the class that reads
    them, since the auto classes read folders only.
    """
    from transformers import AutoConfig

    if checkpoint.config.get("auto_map"):
        raise CheckpointError(
            f"{checkpoint.place}: weights apart from their model are not read for a model with "
            "code of its own: write it with save_pretrained in the training"
        )
    weights = checkpoint.weights_part
    assert weights is not None
    config = AutoConfig.from_pretrained(checkpoint.path)
    options |= {"config": config, "state_dict": read_state(weights)}
    del options["use_safetensors"]
    options.pop("trust_remote_code", None)
    classes = getattr(model_class, "_model_mapping", {type(config): model_class})[type(config)]
    named = checkpoint.config.get("architectures") or [""]
    choices = classes if isinstance(classes, tuple | list) else [classes]
    return next((choice for choice in choices if choice.__name__ == named[0]), choices[0])


def _read_generation_config(checkpoint: Checkpoint, model: Any) -> None:
    """Give a model the generation settings of its folder, from which it was not read."""
    if (checkpoint.path / "generation_config.json").is_file() and model.can_generate():
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig.from_pretrained(checkpoint.path)


@contextmanager
def no_random_weights(checkpoint: Checkpoint, *, allow_unused: bool = True) -> Iterator[None]:
    """Raise CheckpointError when a library logs that it made up tensors that the files lack.

    For loaders that return no such list themselves (pipelines); enter it inside `quiet`, which
    would otherwise keep the log line back.

    allow_unused: false raises it also for tensors that a part made by diffusers does not know. What
    transformers leaves over says nothing: text encoders are often cut out of larger models.
    """
    watch = _Watch()
    loggers = [logging.getLogger(name) for name in _REPORTING_LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(watch)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(watch)
            logger.setLevel(level)
            logger.propagate = propagate
    if watch.missing:
        raise CheckpointError(_random(checkpoint, " ".join(watch.missing)[:600]))
    if watch.unused and not allow_unused:
        raise CheckpointError(_unused(checkpoint, " ".join(watch.unused)[:600]))


def refuse_missing(checkpoint: Checkpoint, missing: Collection[str]) -> None:
    """Raise CheckpointError when tensors are missing that would be used."""
    if missing:
        raise CheckpointError(_random(checkpoint, few_of(missing)))


def refuse_unused(checkpoint: Checkpoint, unused: Collection[str]) -> None:
    """Raise CheckpointError when the files hold tensors that the architecture does not know."""
    names = [name for name in unused if not _CONSTANT.search(name)]
    if names:
        raise CheckpointError(_unused(checkpoint, few_of(names)))


class _Watch(logging.Handler):
    """Keeps the log lines that speak of tensors made up or left over."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.missing: list[str] = []
        self.unused: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        if _MISSING_WORDS in text:
            self.missing.append(text)
        elif _UNUSED_WORDS in text and record.name in _DIFFUSERS:
            self.unused.append(text)


def _random(checkpoint: Checkpoint, what: str) -> str:
    return (
        f"{checkpoint.path}: tensors of {checkpoint.what} are missing from the weights and would "
        f"be random numbers: {what}. Save the whole model again"
    )


def _unused(checkpoint: Checkpoint, what: str) -> str:
    return (
        f"{checkpoint.path}: {checkpoint.what} does not know tensors that lie in the weights and "
        f"would leave them out: {what}. An adapter that was not merged looks like this. Save the "
        "whole model again, or add allow_unused=true to its spec where they are not needed"
    )


def take_weights(checkpoint: Checkpoint, parts: Mapping[str, Any]) -> None:
    """Make the weights of a loaded model independent of its files, and look them over.

    On a CPU, safetensors leaves weights in the file and maps that into memory: a trainer that
    writes into the file changes the model that was loaded from it, between one answer and the next.

    parts: its modules by name, "" for a model that is one module; a part without weights is passed
    over. Raises and warns as `check_values`.
    """
    for module in parts.values():
        if hasattr(module, "named_parameters"):
            _copy_mapped(module)
            own_offloaded_weights(module)
    check_values(checkpoint, parts)


def _copy_mapped(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data = own_memory(parameter.data)
    for part in module.modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            own = own_memory(buffer)
            if own is not buffer:  # put in its place: it may be a view, and keep the file mapped
                setattr(part, name, own)


def check_values(checkpoint: Checkpoint, parts: Mapping[str, Any]) -> None:
    """Look over the weights of a loaded model, one reduction per tensor, on the device they are on.

    A model with NaN among its weights writes empty texts and draws nothing, which would be counted
    as so many failures of its own. It is neither better nor worse than its baseline: it is broken.

    parts: its modules by name, "" for a model that is one module; a part without weights is passed
    over. Raises CheckpointError for a parameter that holds NaN or infinity, and for a buffer that
    holds NaN (infinity has its place in masks). Warns of weight matrices that are zero throughout:
    a layer may start like that, and a damaged checkpoint may look like that.
    """
    import torch

    names: list[tuple[str, str, bool, bool]] = []  # name, precision, must be finite, is a matrix
    pairs: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for number, (name, tensor, finite) in enumerate(_tensors(parts)):
        matrix = name.endswith("weight") and sum(side > 1 for side in tensor.shape) > 1
        names.append((name, str(tensor.dtype).removeprefix("torch."), finite, matrix))
        extremes = torch.stack(torch.aminmax(tensor.detach())).float()
        pairs.setdefault(tensor.device, []).append((number, extremes))
    # Fetched together: one by one, each would wait for its device.
    fetched: dict[int, list[float]] = {}
    for numbered in pairs.values():
        numbers, tensors = zip(*numbered, strict=True)
        fetched |= zip(numbers, torch.stack(tensors).tolist(), strict=True)
    broken, empty = [], []
    for number, (name, precision, finite, matrix) in enumerate(names):
        low, high = fetched[number]
        if np.isnan(low) or (finite and not np.isfinite([low, high]).all()):
            broken.append(f"{name} ({precision})")
        elif low == high == 0 and matrix:
            empty.append(name)
    if broken:
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} holds NaN or infinite values in "
            f"{few_of(broken)}. Take a step from before the training diverged; where the file's "
            "own values are finite, give a dtype that holds them"
        )
    if empty:
        msg = (
            f"{checkpoint.path}: zero throughout: {few_of(empty)}. A layer may start so, and a "
            "damaged checkpoint may look so"
        )
        warnings.warn(msg, stacklevel=2)


def _tensors(parts: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name, tensor, whether it must be finite; of floating tensors of 16 bits and more.

    Those that were offloaded are brought in one after the other.
    """
    for part, module in parts.items():
        if not hasattr(module, "named_parameters"):
            continue
        prefix = f"{part}." if part else ""
        for listed, finite in ((module.named_parameters(), True), (module.named_buffers(), False)):
            for name, tensor in plain_tensors(_brought_in(module, listed)):
                # Lower precisions have no such reduction, and most of them no NaN.
                wide = tensor.is_floating_point() and tensor.element_size() > 1
                if wide and tensor.numel() and not tensor.is_meta:
                    yield prefix + name, tensor, finite


def _brought_in(
    module: Any, listed: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors, with the value of an offloaded one in its place."""
    for name, tensor in listed:
        weight = offloaded_weight(module, name) if tensor.is_meta else None
        yield name, tensor if weight is None else weight


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
