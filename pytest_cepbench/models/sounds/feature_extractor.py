"""What models of sounds share: what a feature extractor lets them read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import PROCESSOR_FILES, Checkpoint
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.torch_runtime import by_kind

Wave = npt.NDArray[np.float32]
"""(frames,) samples of a sound at the rate of the model."""

T = TypeVar("T")


@dataclass(frozen=True)
class SoundReader:
    """The feature extractor of a model, and which sounds it takes.

    extractor: of transformers.
    shortest: samples that the model needs.
    longest: samples of its window, to which it pads each sound and beyond which it would cut it;
        None where it takes any length, and padding to that of a neighbour would change an answer.
    """

    extractor: Any
    shortest: int = 1
    longest: int | None = None

    @property
    def rate(self) -> int:
        """Samples a second, in Hz."""
        return int(self.extractor.sampling_rate)

    def wave(self, sound: Sound) -> Wave:
        """A sound's samples at the rate of the model."""
        return sound.resampled(self.rate).samples

    def features(self, waves: Sequence[Wave]) -> Any:
        """What the model reads of waves of one kind, on the host."""
        padding = inspect.signature(self.extractor.__call__).parameters.get("padding")
        options = {} if padding is None or padding.default is not False else {"padding": True}
        read = self.extractor(list(waves), sampling_rate=self.rate, return_tensors="pt", **options)
        if "is_longer" in read:
            # No wave is longer than the window; CLAP's, with fusion, picks a random one to be so.
            read["is_longer"].fill_(value=False)
        return read

    def ask(
        self, waves: Sequence[Wave], answer: Callable[[list[Wave], Sequence[int]], Sequence[T]]
    ) -> list[T | Failure]:
        """The answers in order; a wave that is too short or too long to be read is a failure.

        answer: given waves that go in one call, and their indices.
        """
        failures = [self._failure(wave) for wave in waves]
        # Without a window waves of one length go in one call.
        lengths = [0 if self.longest is not None else len(wave) for wave in waves]
        kinds = [fault or length for fault, length in zip(failures, lengths, strict=True)]

        def answer_alike(rows: Sequence[int]) -> Sequence[T | Failure]:
            fault = failures[rows[0]]  # that of all of them
            return answer([waves[i] for i in rows], rows) if fault is None else [fault] * len(rows)

        return by_kind(kinds, answer_alike)

    def _failure(self, wave: Wave) -> Failure | None:
        seconds = f"{len(wave) / self.rate:.3g} s long, and the model reads"
        if len(wave) < self.shortest:
            return Failure("bad-sound", f"{seconds} at least {self.shortest / self.rate:.3g} s")
        if self.longest is not None and len(wave) > self.longest:
            return Failure("bad-sound", f"{seconds} at most {self.longest / self.rate:.3g} s")
        return None

    def windows(self, wave: Wave) -> list[Wave]:
        """A wave in as few parts of equal length as the model can read."""
        return np.array_split(wave, 1 if self.longest is None else -(-len(wave) // self.longest))


def check_extractor(plan: LoadPlan[Any]) -> None:
    """Raise CheckpointError, at binding, where a checkpoint of sounds has no feature extractor.

    Without its file, or in that of an image processor, transformers makes up a default one.
    """
    if "image" in plan.checkpoint.reads:
        return
    files = [plan.checkpoint.preparation_file(name) for name in PROCESSOR_FILES[:2]]
    configs = [read_json(file) for file in files if file.is_file()]
    if not any("sampling_rate" in config.get("feature_extractor", config) for config in configs):
        raise CheckpointError(
            f"{plan.checkpoint.path}: expected the feature extractor of sounds, in a "
            f"{PROCESSOR_FILES[1]} with its sampling_rate. Save the one that the model was "
            "trained with into the folder too (feature_extractor.save_pretrained)"
        )


def load_reader(
    checkpoint: Checkpoint, folder: Path, model: Any, processor: Any = None
) -> SoundReader:
    """The feature extractor in a folder, with the limits of it and of its model.

    processor: of a model that is asked in conversations. What the library raises is left to
    `explained`.
    """
    from transformers import AutoFeatureExtractor

    extractor: Any = getattr(processor, "feature_extractor", None)
    if extractor is None:
        extractor = AutoFeatureExtractor.from_pretrained(folder, **checkpoint.options.code)
    names = ("n_samples", "nb_max_samples")  # of the window, Whisper's and CLAP's
    stated = (getattr(extractor, name, None) for name in names)
    longest = next((int(samples) for samples in stated if samples is not None), None)
    frames = getattr(extractor, "max_length", None)
    if longest is None and frames is not None:
        # AST's: frames of 25 ms, one every 10 ms.
        longest = int(extractor.sampling_rate * (0.010 * (frames - 1) + 0.025))
    if (seconds := getattr(processor, "max_audio_len", None)) is not None:
        longest = int(seconds * extractor.sampling_rate)  # it divides a sound into windows itself
    shortest = 1  # samples that convolutions before the transformer need for one frame
    sizes = [getattr(model.config, name, ()) for name in ("conv_kernel", "conv_stride")]
    if all(isinstance(own, list | tuple) for own in sizes):
        for kernel, stride in zip(*map(reversed, sizes), strict=True):
            shortest = (shortest - 1) * stride + kernel
    return SoundReader(extractor, shortest, longest)
