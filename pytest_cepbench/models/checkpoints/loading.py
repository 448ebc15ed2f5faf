"""Loading a checkpoint through a library: errors in words, gaps and broken weights detected.

Libraries fill a tensor that a checkpoint lacks with random numbers, leave out one that they do not
know, and log a line about it. A number measured with such weights looks like any other, so here
both are errors.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
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
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import refuse_ungathered, tensor_shapes
from pytest_cepbench.models.checkpoints.peft_adapters import apply_adapters
from pytest_cepbench.models.checkpoints.placement import (
    divided,
    offloaded_weight,
    own_offloaded_weights,
    quantization_method,
)
from pytest_cepbench.models.checkpoints.saved_states import read_state
from pytest_cepbench.models.torch_runtime import (
    check_device,
    dtype_option,
    is_out_of_memory,
    own_memory,
    plain_tensors,
    quiet,
    set_threads,
    to_torch_dtype,
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
    """The model of a transformers checkpoint on the plan's device, with its adapters, and the names
    of its `missing_keys` and `unexpected_keys`.

    plan: with `TransformersParams`. options: of the class's own from_pretrained. Raises
    CheckpointError naming the tensors whose shapes are not those of the configuration; what else
    the library raises is left to `explained`.
    """
    checkpoint, params = plan.checkpoint, plan.params
    options = {
        **dtype_option("transformers", to_torch_dtype(plan.dtype)),
        "use_safetensors": None if checkpoint.options.allow_pickle else True,
        "output_loading_info": True,
        **options,
    }
    if params.attn_implementation is not None:
        options["attn_implementation"] = params.attn_implementation
    if quantization_method(checkpoint) is not None:
        # Packed weights are put in their place at once. Their scales are attributes of several
        # libraries' own, which `take_weights` does not know, so the file is read and not mapped.
        options |= {"device_map": {"": plan.device}, "disable_mmap": True}
    with divided(params, plan.device, checkpoint) as (map_options, check_division):
        with checkpoint.unwrapped() as whole:
            model, info = _read_model(model_class, whole, {**options, **map_options})
        if map_options:
            check_division(model)
        elif "device_map" not in options:
            model = model.to(plan.device)
    answer_by_names(model)
    model = model.eval()
    return apply_adapters(checkpoint, model) if checkpoint.adapters else model, info


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
    weights = checkpoint.weights_part
    if weights is not None:
        # They are handed over, and the class too, since the auto classes read folders only.
        from transformers import AutoConfig, GenerationConfig

        if checkpoint.config.get("auto_map"):
            raise CheckpointError(
                f"{checkpoint.place}: weights apart from their model are not read for a model with "
                "code of its own: write it with save_pretrained in the training"
            )
        config = AutoConfig.from_pretrained(checkpoint.path)
        place = None
        options |= {"config": config, "state_dict": read_state(weights)}
        del options["use_safetensors"]
        options.pop("trust_remote_code", None)
        classes = getattr(model_class, "_model_mapping", {type(config): model_class})[type(config)]
        named = checkpoint.config.get("architectures") or [""]
        choices = classes if isinstance(classes, tuple | list) else [classes]
        model_class = next((c for c in choices if c.__name__ == named[0]), choices[0])
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
        # Nor were the generation settings of the folder read.
        if (checkpoint.path / "generation_config.json").is_file() and model.can_generate():
            model.generation_config = GenerationConfig.from_pretrained(checkpoint.path)
    else:
        # What its own shards hold and the model does not, transformers leaves out without a word.
        stored = {name for shard in place.glob(_OWN_SHARDS) for name in tensor_shapes(shard)}
        info["unexpected_keys"] = {*info["unexpected_keys"], *(stored - model.state_dict().keys())}
    return model, info


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
        if not hasattr(module, "named_parameters"):
            continue
        for parameter in module.parameters():
            parameter.data = own_memory(parameter.data)
        for part in module.modules():
            for name, buffer in list(part.named_buffers(recurse=False)):
                own = own_memory(buffer)
                if (
                    own is not buffer
                ):  # put in its place: it may be a view, and keep the file mapped
                    setattr(part, name, own)
        own_offloaded_weights(module)
    check_values(checkpoint, parts)


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
            here = (
                (name, offloaded_weight(module, name) if tensor.is_meta else tensor)
                for name, tensor in listed
            )
            for name, tensor in plain_tensors(pair for pair in here if pair[1] is not None):
                # Lower precisions have no such reduction, and most of them no NaN.
                wide = tensor.is_floating_point() and tensor.element_size() > 1
                if wide and tensor.numel() and not tensor.is_meta:
                    yield prefix + name, tensor, finite
