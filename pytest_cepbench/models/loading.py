"""Loading a checkpoint through somebody else's library: its faults in words, its gaps found out.

Libraries fill a tensor that a checkpoint lacks with random numbers and log a line about it. A number
measured with random weights looks like any other, so here that is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import (
    CepError,
    CheckpointError,
    DeviceMemoryError,
    MissingDependencyError,
)
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.plan import LoadPlan
from pytest_cepbench.models.torch_runtime import (
    check_device,
    is_out_of_memory,
    quiet,
    set_threads,
)

# Where transformers and diffusers log that tensors were missing, and the words both use for it.
_REPORTING_LOGGERS = ("transformers.modeling_utils", "diffusers.models.modeling_utils")
_REPORT_WORDS = "newly initialized"

_VOCABULARIES = (
    "tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm", "*.bpe", "*.vocab", "*.tiktoken",
)  # fmt: skip
_WITHOUT_VOCABULARY = ("ByT5", "Canine", "Perceiver")  # these read bytes or code points


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
                f"{checkpoint.path}: {checkpoint.what} does not fit in memory ({_line(error)}). Give "
                "dtype=bfloat16, --cep-residency=swap or a larger device"
            )
            raise DeviceMemoryError(msg) from error
        msg = (
            f"{checkpoint.path}: {checkpoint.what} could not be loaded: {_line(error)}. Was it "
            "written completely, and by a version that the installed libraries can read?"
        )
        raise CheckpointError(msg) from error


@contextmanager
def no_random_weights(checkpoint: Checkpoint) -> Iterator[None]:
    """Raise CheckpointError when a library logs that it made up tensors that the files lack.

    For loaders that return no such list themselves (pipelines); enter it inside `quiet`, which
    would otherwise keep the log line back.
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
    if watch.reports:
        raise CheckpointError(_random(checkpoint, " ".join(watch.reports)[:600]))


def refuse_missing(checkpoint: Checkpoint, missing: Collection[str]) -> None:
    """Raise CheckpointError when tensors are missing that would be used."""
    if missing:
        names = sorted(missing)
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise CheckpointError(_random(checkpoint, ", ".join(names[:5]) + more))


def check_vocabulary(folder: Path, tokenizer: str) -> None:
    """Raise CheckpointError when a folder holds no vocabulary for a tokenizer of this class.

    transformers 5 makes do with an empty one and maps every text to unknown tokens.
    """
    if tokenizer.startswith(_WITHOUT_VOCABULARY):
        return
    if not any(any(folder.glob(pattern)) for pattern in _VOCABULARIES):
        msg = (
            f"{folder}: no vocabulary for {tokenizer} (expected one of {', '.join(_VOCABULARIES)}). "
            "Save the tokenizer again beside the model"
        )
        raise CheckpointError(msg)


class _Watch(logging.Handler):
    """Keeps the log lines that speak of made-up tensors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reports: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _REPORT_WORDS in text:
            self.reports.append(" ".join(text.split()))


def _random(checkpoint: Checkpoint, what: str) -> str:
    return (
        f"{checkpoint.path}: tensors of {checkpoint.what} are missing from the weights and would be "
        f"random numbers: {what}. Save the whole model again"
    )


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:400]} ..."
