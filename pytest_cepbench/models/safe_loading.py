"""Loading a checkpoint through a library: its faults in words, its gaps detected.

Libraries fill a tensor that a checkpoint lacks with random numbers, leave out one that they do not
know, and log a line about it. A number measured with such weights looks like any other, so here
both are errors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_cepbench.errors import (
    CepError,
    CheckpointError,
    DeviceMemoryError,
    MissingDependencyError,
)
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.load_plan import LoadPlan
from pytest_cepbench.models.torch_runtime import (
    check_device,
    is_out_of_memory,
    quiet,
    set_threads,
)

# Where transformers and diffusers log that tensors were missing or left over, and their words for
# it.
_DIFFUSERS = "diffusers.models.modeling_utils"
_REPORTING_LOGGERS = ("transformers.modeling_utils", _DIFFUSERS)
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
    set_threads(plan.context.threads)
    check_device(plan.device)
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
        msg = (
            f"{checkpoint.path}: {checkpoint.what} needs a package that is missing: {_line(error)}"
        )
        raise MissingDependencyError(msg) from error
    except Exception as error:
        # A damaged or foreign checkpoint makes these libraries raise anything, KeyError included.
        if is_out_of_memory(error):
            msg = (
                f"{checkpoint.path}: {checkpoint.what} does not fit in memory ({_line(error)}). "
                "Give dtype=bfloat16, --cep-residency=swap or a larger device"
            )
            raise DeviceMemoryError(msg) from error
        msg = (
            f"{checkpoint.path}: {checkpoint.what} could not be loaded: {_line(error)}. Was it "
            "written completely, and by a version that the installed libraries can read?"
        )
        raise CheckpointError(msg) from error


def from_pretrained(
    model_class: Any, checkpoint: Checkpoint, **options: Any
) -> tuple[Any, dict[str, set[str]]]:
    """The model of a transformers checkpoint, and the names of its `missing_keys` and
    `unexpected_keys`.

    Raises CheckpointError naming the tensors whose shapes are not those of the configuration; what
    else the library raises is left to `explained`.
    """
    options["output_loading_info"] = True
    try:
        model, info = model_class.from_pretrained(checkpoint.path, **options)
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        # Which ones these are is only logged, as a table; loaded once more, they are returned.
        options["ignore_mismatched_sizes"] = True
        _, info = model_class.from_pretrained(checkpoint.path, **options)
        wrong = [
            f"{name} is {tuple(stored)}, expected {tuple(built)}"
            for name, stored, built in info["mismatched_keys"]
        ]
        msg = (
            f"{checkpoint.path}: weights and config.json are not of one model: {few_of(wrong)}. "
            "Save both again"
        )
        raise CheckpointError(msg) from error
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


def few_of(names: Collection[str]) -> str:
    """The first five of some names, for a message, and how many more there are."""
    shown = sorted(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(shown[:5]) + more


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
        elif _UNUSED_WORDS in text and record.name == _DIFFUSERS:
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


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:400]} ..."
