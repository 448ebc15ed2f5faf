"""Models whose losses are known hop by hop: perfect but for the generations they are told to spoil.

A model that knows the seeds of a step's generation needs no memory to spoil only that one. What the
models were asked is counted by their names, so that a test can see who was not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.shapes import (
    Degradation,
    caption,
    degrade_scene,
    parse_caption,
    parse_image,
    render,
)
from tests.suites.world import overlapping, uneven_tasks

ASKED: Counter[str] = Counter()
"""Inputs by who was asked, such as "describer 3-5"."""

_LOSS = Degradation(recolor=1.0, miss=0.3)


@dataclass(frozen=True)
class Spoiler:
    """at: the generations that it spoils. mute: whether it spoils by saying nothing."""

    name: str
    at: tuple[int, ...]
    mute: bool

    @property
    def fingerprint(self) -> str:
        """Names what it spoils."""
        return f"spoiler/1 {self.name} {self.at} {self.mute}"

    def _spoils(self, seed: int) -> bool:
        return seed in _seeds(self.at)

    def _lose(self, scene: Any, seed: int) -> Any:
        return degrade_scene(scene, _LOSS, seed) if self._spoils(seed) else scene


class Describer(Spoiler):
    """Says what it sees."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One caption per image."""
        ASKED[self.name] += len(images)
        return [self._one(image, seed) for image, seed in zip(images, seeds, strict=True)]

    def _one(self, image: Image.Image, seed: int) -> str:
        if self.mute and self._spoils(seed):
            return ""
        return caption(self._lose(parse_image(ImageArtifact.from_pil(image)), seed))


class Generator(Spoiler):
    """Draws what it reads."""

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """One picture per text."""
        ASKED[self.name] += len(texts)
        return [
            render(self._lose(parse_caption(text), seed), seed).pixels
            for text, seed in zip(texts, seeds, strict=True)
        ]


def describer(at: str = "", mute: str = "") -> Describer:
    """A describer that spoils the generations named, such as "3-5"; mute: by saying nothing."""
    return Describer(f"describer {at}".strip(), _numbers(at), bool(mute))


def generator(at: str = "") -> Generator:
    """A generator that spoils the generations named."""
    return Generator(f"generator {at}".strip(), _numbers(at), mute=False)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(generation) for generation in text.split("-") if generation)


@cache
def _seeds(generations: tuple[int, ...]) -> frozenset[int]:
    """The seeds of these generations, of every sample of the tests' data sets."""
    names = [sample.id for data in (overlapping(), uneven_tasks()) for sample in data.samples]
    return frozenset(derive_seed(0, name, at) for name in names for at in generations)
