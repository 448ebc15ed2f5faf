"""A role that is played by the actors of a pool; what a bound role's `load` gives in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.chains.ray.messages import ActorReply, ActorRequest
from pytest_cepbench.chains.ray.pool import ActorPool
from pytest_cepbench.models.protocols import Battle, FloatArray, ImageLike, Reply


class RemoteModel:
    """Every role's methods; the pool's model plays those that it can.

    For one thread at a time. stopped: whether to wait no longer for what was asked.
    """

    def __init__(self, pool: ActorPool, stopped: Callable[[], bool]) -> None:
        self._pool = pool
        self._stopped = stopped
        self._last: tuple[list[str], ActorReply] | None = None

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> Sequence[str | Failure | Reply]:
        """As `Describer`."""
        found: Sequence[str | Failure | Reply] = self._ask(
            "describe", _pixels(images), prompt, list(seeds)
        ).value
        return found

    def generate(
        self, texts: Sequence[str], seeds: Sequence[int]
    ) -> Sequence[ImageLike | Failure | Reply]:
        """As `Generator`; drawings are (h, w, 3) uint8."""
        found: Sequence[ImageLike | Failure | Reply] = self._ask(
            "generate", list(texts), list(seeds)
        ).value
        return found

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """As `Encoder`."""
        found: FloatArray = self._ask("encode_images", _pixels(images)).value
        return found

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """As `Encoder`."""
        found: FloatArray = self._ask("encode_texts", list(texts)).value
        return found

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> Sequence[Detections | Failure]:
        """As `Detector`."""
        found: Sequence[Detections | Failure] = self._ask(
            "detect", _pixels(images), [list(asked) for asked in queries]
        ).value
        return found

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Sequence[Any]:
        """As `Judge`."""
        sent = [
            Battle(_plain(battle.question), _plain(battle.first), _plain(battle.second))
            for battle in battles
        ]
        found: Sequence[Any] = self._ask("judge", sent, list(seeds)).value
        return found

    def _ask(self, method: str, inputs: list[Any], *rest: Any) -> ActorReply:
        answer = self._pool.ask(ActorRequest(method, inputs, rest), self._stopped)
        self._last = (inputs, answer)
        return answer

    def _lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        if self._last is not None:
            inputs, answer = self._last
            if answer.lengths is not None and inputs == list(texts):
                return answer.lengths
        found: tuple[list[int], int] = self._ask("text_lengths", list(texts)).value
        return found


class CountingModel(RemoteModel):
    """One whose model says how long texts are: it did so with its last answer."""

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """As `CountsTokens`."""
        return self._lengths(texts)


def _pixels(images: Sequence[Image.Image]) -> list[Any]:
    return [np.asarray(image) for image in images]


def _plain(pieces: Sequence[Any]) -> list[Any]:
    return [np.asarray(one) if isinstance(one, Image.Image) else one for one in pieces]
