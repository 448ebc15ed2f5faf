"""Models as the driver's threads hold them: calls go to a pool's actors, or to a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.chains.ray.messages import ActorReply, ActorRequest
from pytest_cepbench.errors import StoppedError
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    Question,
    StepLimit,
    VqaQuestion,
)

_LOCK_SECONDS = 0.2  # between looks at whether the run stops


class RemoteModel:
    """A model of a pool's actors, with every role's methods; the actors refuse those it lacks.

    For one thread at a time. Methods are as in the Protocols of the roles.
    ask: sends a batch and waits for its reply.
    """

    def __init__(self, ask: Callable[[ActorRequest], ActorReply]) -> None:
        self._ask = ask
        self._last: tuple[list[Any], ActorReply] | None = None

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> Any:
        """As `Describer`."""
        return self._call("describe", _pixels(images), prompt, list(seeds))

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """As `Generator`; images are (height, width, 3) uint8."""
        return self._call("generate", list(texts), list(seeds))

    def encode_images(self, images: Sequence[Any]) -> Any:
        """As `Encoder`."""
        return self._call("encode_images", _pixels(images))

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """As `Encoder`."""
        return self._call("encode_texts", list(texts))

    def detect(self, images: Sequence[Any], queries: Sequence[Sequence[str]]) -> Any:
        """As `Detector`."""
        return self._call("detect", _pixels(images), [list(words) for words in queries])

    def answer(self, pieces: Sequence[Any], questions: Sequence[Sequence[VqaQuestion]]) -> Any:
        """As `Vqa`."""
        return self._call("answer", _pixels(pieces), [list(asked) for asked in questions])

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Any:
        """As `Judge`."""
        parts = ((battle.question, battle.first, battle.second) for battle in battles)
        sent = [Battle(*map(_pixels, pieces)) for pieces in parts]
        return self._call("judge", sent, list(seeds))

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> Any:
        """As `AnswerScorer`."""
        sent = [AnsweredQuestion(_pixels(a.question), _pixels(a.answer)) for a in answers]
        return self._call("score_answers", sent, list(seeds))

    def write(self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]) -> Any:
        """As `Writer`."""
        return self._call("write", [_pixels(q) for q in questions], prompt, list(seeds))

    def edit(self, images: Sequence[Any], texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """As `Editor`; images are (height, width, 3) uint8."""
        return self._call("edit", _pixels(images), list(texts), list(seeds))

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Any:
        """As `Interleaver`; images are arrays."""
        sent = [_pixels(question) for question in questions]
        return self._call("interleave", sent, list(limits), list(seeds))

    def _call(self, method: str, inputs: list[Any], *rest: Any) -> Any:
        reply = self._ask(ActorRequest(method, inputs, rest))
        self._last = (inputs, reply)
        return reply.value


class CountingModel(RemoteModel):
    """A remote model that says how long texts are."""

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """As `CountsTokens`: from the last reply where it was for these texts, else asked for."""
        if self._last is not None:
            inputs, reply = self._last
            if reply.lengths is not None and inputs == list(texts):
                return reply.lengths
        lengths: tuple[list[int], int] = self._call("text_lengths", list(texts))
        return lengths


def _pixels(pieces: Sequence[Any]) -> list[Any]:
    """Images as arrays, texts as they are."""
    return [np.asarray(piece) if isinstance(piece, Image.Image) else piece for piece in pieces]


# -- models behind a server ----------------------------------------------------------------------


class SerializedModel:
    """A model of the driver that is loaded once, and called by one thread at a time.

    So a server has as many requests at once, and as many a minute, as in a run in one process.
    seconds: in its code.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._model: Any = None
        self._lock = Lock()
        self.seconds = 0.0

    @property
    def loads(self) -> int:
        """How often the model was loaded: 0 or 1."""
        return int(self._model is not None)

    @contextmanager
    def turn(self, stopped: Callable[[], bool]) -> Iterator[Any]:
        """The model, for this thread alone.

        stopped: whether to stop waiting. Raises StoppedError, and what loading raises.
        """
        while not self._lock.acquire(timeout=_LOCK_SECONDS):
            if stopped():
                raise StoppedError("the run stops")
        started = time.perf_counter()
        try:
            if self._model is None:
                self._model = self._load()
            yield self._model
        finally:
            self.seconds += time.perf_counter() - started
            self._lock.release()


class ApiProxy:
    """The roles of a model behind a server, one call at a time; methods as in their Protocols.

    stopped: whether to stop waiting.
    """

    def __init__(self, model: SerializedModel, stopped: Callable[[], bool]) -> None:
        self._serialized = model
        self._stopped = stopped

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> Any:
        """As `Describer`."""
        with self._serialized.turn(self._stopped) as model:
            return model.describe(images, prompt, seeds)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """As `Generator`."""
        with self._serialized.turn(self._stopped) as model:
            return model.generate(texts, seeds)

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Any:
        """As `Judge`."""
        with self._serialized.turn(self._stopped) as model:
            return model.judge(battles, seeds)

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> Any:
        """As `AnswerScorer`."""
        with self._serialized.turn(self._stopped) as model:
            return model.score_answers(answers, seeds)

    def write(self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]) -> Any:
        """As `Writer`."""
        with self._serialized.turn(self._stopped) as model:
            return model.write(questions, prompt, seeds)

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Any:
        """As `Interleaver`."""
        with self._serialized.turn(self._stopped) as model:
            return model.interleave(questions, limits, seeds)
