"""What goes wrong while a checkpoint is loaded, in words, by what can be done about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, MissingDependencyError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.safe_loading import explained

CHECKPOINT = Checkpoint(Path("step-8"), "transformers", "LlavaModel", (), {})


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (MemoryError(), DeviceMemoryError, "does not fit in memory .* --cep-residency=swap"),
        (RuntimeError("CUDA out of memory"), DeviceMemoryError, "step-8: LlavaModel does not fit"),
        (
            ImportError("no timm"),
            MissingDependencyError,
            "needs a package that is missing: no timm",
        ),
        (KeyError("lm_head"), CheckpointError, "could not be loaded: 'lm_head'"),
    ],
    ids=["host memory", "device memory", "package", "anything else"],
)
def test_the_error_says_what_can_be_done(
    raised: Exception, expected: type[Exception], words: str
) -> None:
    """What does not fit may fit alone, which the caller can tell by the kind of the error."""
    with pytest.raises(expected, match=words), explained(CHECKPOINT):
        raise raised
