"""What loaded encoders share: how features become vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.loaded_checks import TruncationNotice
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.sounds.feature_extractor import SoundReader, Wave
from pytest_cepbench.models.torch_runtime import quiet

if TYPE_CHECKING:
    import torch


def to_vectors(checkpoint: Checkpoint, features: Any) -> FloatArray:
    """(n, dimension) float32 vectors out of a library's features.

    Raises RoleError where there is not one vector per input.
    """
    if features.ndim > 2 and set(features.shape[2:]) == {1}:
        features = features.flatten(1)  # convolutional poolers keep height and width of 1
    array = features.float().cpu().numpy()
    if array.ndim != 2:
        raise RoleError(
            f"{checkpoint.path}: {checkpoint.what} gives features of shape {array.shape}; an "
            "encoder gives one vector per input"
        )
    result: FloatArray = np.asarray(array, dtype=np.float32)
    return result


@dataclass(frozen=True)
class LoadedEncoder:
    """A loaded encoder of images, texts or sounds; satisfies the Encoder Protocol.

    checkpoint: what was loaded.
    model: the torch module that `move` moves.
    embed_images, embed_texts: features as the library gives them; None for an encoder that reads
        none.
    count_tokens: tokens of each text, special ones included, and the most that the model reads, by
        the tokenizer alone.
    reader: what it reads of sounds; None for an encoder that hears none.
    embed_waves: features of waves of one kind, of those of `reader`.
    """

    checkpoint: Checkpoint
    model: Any
    embed_images: Callable[[Sequence[Image.Image]], torch.Tensor] | None = None
    embed_texts: Callable[[Sequence[str]], torch.Tensor] | None = None
    count_tokens: Callable[[Sequence[str]], tuple[list[int], int]] | None = None
    reader: SoundReader | None = None
    embed_waves: Callable[[Sequence[Wave]], torch.Tensor] | None = None

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float32 features of RGB images, not normalised. Raises RoleError where the
        model sees none.
        """
        import torch

        if self.embed_images is None:
            own = "texts" if self.reader is None else "sounds"
            raise RoleError(
                f"{self.checkpoint.path}: {self.checkpoint.what} embeds {own} only and sees no "
                "images. Give a dual encoder (CLIP, SigLIP, open_clip) to compare images with "
                "texts, or a vision model to compare images"
            )
        with quiet(), torch.inference_mode():
            return to_vectors(self.checkpoint, self.embed_images(images))

    def encode_sounds(self, sounds: Sequence[Sound]) -> FloatArray:
        """(n, dimension) float32 features of sounds, not normalised.

        Of a sound that is longer than the model reads, the mean over as few windows of equal length
        as it can read; NaN of one that is too short. Raises RoleError where the model hears none.
        """
        import torch

        reader, embed = self.reader, self.embed_waves
        if reader is None or embed is None:
            raise RoleError(
                f"{self.checkpoint.path}: {self.checkpoint.what} hears no sounds. Give CLAP to "
                "compare sounds with texts, or a model of sounds (wav2vec 2.0, HuBERT, AST)"
            )
        windows = [reader.windows(reader.wave(sound)) for sound in sounds]
        owners = [i for i, parts in enumerate(windows) for _ in parts]
        waves = [wave for parts in windows for wave in parts]
        with quiet(), torch.inference_mode():
            vectors = reader.ask(
                waves, lambda own, _: list(to_vectors(self.checkpoint, embed(own)))
            )
        width = max((len(v) for v in vectors if not isinstance(v, Failure)), default=1)
        result = np.zeros((len(sounds), width), dtype=np.float32)
        for owner, vector in zip(owners, vectors, strict=True):
            own = np.nan if isinstance(vector, Failure) else vector
            result[owner] += own / len(windows[owner])
        return result

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float32 features of texts, in the space of the images where there are any.

        Texts longer than the model reads are cut, which is said once in a warning. Raises RoleError
        where it reads none.
        """
        import torch

        lengths = self.text_lengths(texts)
        assert self.embed_texts is not None
        self._notice.check(*lengths)
        with quiet(), torch.inference_mode():
            return to_vectors(self.checkpoint, self.embed_texts(texts))

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """As `CountsTokens`. Raises RoleError where the model reads no texts."""
        if self.count_tokens is None:
            raise RoleError(
                f"{self.checkpoint.path}: {self.checkpoint.what} embeds images only and reads no "
                "texts. Give a dual encoder (CLIP, SigLIP, open_clip) to compare images with "
                "texts, or a sentence-transformers model to compare texts"
            )
        with quiet():
            return self.count_tokens(texts)

    @cached_property
    def _notice(self) -> TruncationNotice:
        return TruncationNotice(self.checkpoint.what)
