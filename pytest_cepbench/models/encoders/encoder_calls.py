"""Calls of an encoder's model: quiet, without gradients, in full batches where it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from PIL import Image

from pytest_cepbench.models.compilation import WARM_UP_SIZE, FullBatches, compiled, warming_up
from pytest_cepbench.models.encoders.vectors import EncoderParams, to_vectors
from pytest_cepbench.models.load_plan import LoadPlan, Placement
from pytest_cepbench.models.protocols import Encoder, FloatArray
from pytest_cepbench.models.safe_loading import loading
from pytest_cepbench.models.torch_runtime import quiet

T = TypeVar("T")


@dataclass(frozen=True)
class CompilableEncoderParams(EncoderParams):
    """Parameters of an encoder that torch can compile, with those of `EncoderParams`.

    compile: have torch compile the model, all batches being of `batch_size`.
    """

    compile: bool = False

    @property
    def decisive(self) -> dict[str, Any]:
        """Whether it is compiled, where it is."""
        return compiled_key(self)

    @property
    def compiled(self) -> bool:
        """Whether the model is compiled."""
        return self.compile


class EncoderCalls:
    """Calls the functions of a loaded encoder, as its plan says."""

    def __init__(self, plan: LoadPlan[Any]) -> None:
        self._checkpoint = plan.checkpoint
        self._compiled = plan.params.compiled
        self._batches = FullBatches(plan.params.batch_size if self._compiled else None)

    def prepare(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or a compiled one."""
        return compiled(function) if self._compiled else function

    def vectors(self, inputs: Sequence[T], read: Callable[[Sequence[T]], Any]) -> FloatArray:
        """(n, dimension) float32 vectors of inputs.

        read: makes features (n, dimension, ...) of some of them, a tensor. Raises RoleError where
        there is not one vector per input.
        """
        import torch

        with quiet(), torch.inference_mode():
            return to_vectors(self._checkpoint, self._batches.call(inputs, read))


def compiled_key(params: Placement) -> dict[str, Any]:
    """What enters keys: nothing of a model that is not compiled."""
    return {"compile": True} if params.compiled else {}


def warm_up(plan: LoadPlan[Any], encoder: Encoder) -> None:
    """Compile the encoder of images that a plan says is to be compiled.

    That of texts, which many runs never ask, is compiled at its first call. Raises ModelError where
    it cannot be.
    """
    if plan.params.compiled:
        with loading(plan), warming_up(plan.checkpoint.what):
            encoder.encode_images([Image.new("RGB", WARM_UP_SIZE)])
