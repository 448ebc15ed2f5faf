"""Compiled models: torch.compile, batches of one size, and a first call before any is timed.

A compiled function is compiled again for inputs of another shape, which takes as long as the first
time. Batches are therefore filled up to one size by repeating their last input, and what comes of
the repetitions is dropped. Kernels differ from those of the plain model, so answers agree with its
only as far as rounding goes: `compile` enters keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pytest_cepbench.errors import CepError, ModelError, named_error
from pytest_cepbench.models.torch_runtime import is_out_of_memory

BACKEND = "inductor"
"""The compiler, as torch names it."""

PROMPT_STEP = 64
"""Prompts are padded to a multiple of so many tokens: each length of a prompt makes a cache of its
own length, for which decoding would be compiled again."""

WARM_UP_SIZE = (256, 256)
"""Width and height of the image of a first call; most processors resize any to their own size."""

WARM_UP_TOKENS = 3
"""New tokens of the first call: the first follows from the prompt, the others are decoded."""

_LONGEST_REASON = 300

T = TypeVar("T")


class FullBatches:
    """Calls a model with batches of one size.

    size: inputs of a batch; None leaves batches as they are, for a model that is not compiled.
    """

    def __init__(self, size: int | None) -> None:
        self._size = size

    def call(self, inputs: Sequence[T], ask: Callable[[Sequence[T]], Any]) -> Any:
        """What `ask` makes of the inputs, one row for each.

        ask: makes rows of inputs, as a list, an array or a tensor. Where a batch that was filled up
        does not fit in memory, the size is halved as often as these inputs allow.
        """
        if self._size is None or not inputs:
            return ask(inputs)
        self._size = max(self._size, len(inputs))
        while True:
            repeated = [inputs[-1]] * (self._size - len(inputs))
            try:
                return ask([*inputs, *repeated])[: len(inputs)]
            except Exception as error:
                # The caller halves its batch, as ever; what was filled up is for this class.
                half = self._size // 2
                if not is_out_of_memory(error) or len(inputs) > half:
                    raise
            self._size = half


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function or module that is compiled when it is first called."""
    import torch

    result: Callable[..., Any] = torch.compile(function, backend=BACKEND)
    return result


def compile_module(module: Any) -> None:
    """Have a module compiled when it is first called, in its place."""
    module.compile(backend=BACKEND)


@contextmanager
def warming_up(what: str) -> Iterator[None]:
    """Call a compiled model for the first time, so that compiling is part of loading it.

    what: the model, for people. Raises ModelError where it cannot be compiled; a lack of memory
    goes on as it is.
    """
    try:
        yield
    except CepError:
        raise
    except Exception as error:
        # Compilers and the libraries that they call raise anything.
        if is_out_of_memory(error):
            raise
        reason = " ".join(named_error(error).split())[:_LONGEST_REASON]
        msg = (
            f"compile=true: {what} could not be compiled ({reason}). Leave compile out, or install "
            "what torch.compile needs here: a C++ compiler on a CPU, Triton on an accelerator"
        )
        raise ModelError(msg) from error
