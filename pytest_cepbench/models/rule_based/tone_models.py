"""The rule-based describer, generator and encoder of tunes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.datasets.tones import (
    TONES_VERSION,
    ToneKnobs,
    degrade_tune,
    features,
    parse_sound,
    parse_text,
    render,
    tune_text,
)
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.protocols import FloatArray


@dataclass(frozen=True)
class TonesDescriber:
    """Describes the tune that it hears, degraded by its parameters."""

    versions: ClassVar = {"world": TONES_VERSION}
    knobs: ToneKnobs

    def describe(
        self,
        images: Sequence[Sound],
        prompt: str,  # noqa: ARG002 - the Protocol's; there is one way to describe a tune
        seeds: Sequence[int],
    ) -> list[str]:
        """The text of each sound; the empty text where the answer is blank."""
        tunes = (
            degrade_tune(parse_sound(sound), self.knobs, seed)
            for sound, seed in zip(images, seeds, strict=True)
        )
        return ["" if tune is None else tune_text(tune) for tune in tunes]


@dataclass(frozen=True)
class TonesGenerator:
    """Plays the tune of a text, degraded by its parameters; the seed also decides the jitter."""

    versions: ClassVar = {"world": TONES_VERSION}
    knobs: ToneKnobs

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Sound]:
        """A sound of each text; all zeros where the answer is blank."""
        return [
            render(degrade_tune(parse_text(text), self.knobs, seed) or (), seed)
            for text, seed in zip(texts, seeds, strict=True)
        ]


@dataclass(frozen=True)
class TonesEncoder:
    """Features of the tune that a sound plays or a text tells of, in one space."""

    versions: ClassVar = {"world": TONES_VERSION}

    def encode_sounds(self, sounds: Sequence[Sound]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(parse_sound(sound)) for sound in sounds])

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(parse_text(text)) for text in texts])

    def encode_images(self, _: Sequence[object]) -> FloatArray:
        """Raises RoleError."""
        raise RoleError("tones: hears sounds and reads texts; it sees no images")
