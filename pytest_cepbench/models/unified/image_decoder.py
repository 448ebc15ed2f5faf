"""What the families of unified models do each in their own way: from prompts to pixel values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class ImageDecoder(Protocol):
    """Draws with a loaded model.

    chats: whether prompts go through the checkpoint's chat template, where it has one.
    by_size: whether images of several sizes in one call would change each other's descriptions.
    """

    chats: bool
    by_size: bool

    def paint(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """(n, 3, h, w) pixel values as the checkpoint's image processor scales them.

        Each depends on its own prompt and seed. NaN where the model's scores were no numbers.
        """
        ...


@contextmanager
def configured(model: Any, config: Any) -> Iterator[None]:
    """Let a generation configuration be the model's own for a while.

    transformers fills what a call does not set from the model's own, which is there for its texts: a
    penalty of repetitions would work on image tokens too.
    """
    before = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = before


def channels_first(pixels: torch.Tensor) -> torch.Tensor:
    """(n, h, w, 3) or (n, 3, h, w) as (n, 3, h, w): image processors of transformers 5 take no other."""
    return pixels if pixels.shape[1] == 3 else pixels.permute(0, 3, 1, 2)
