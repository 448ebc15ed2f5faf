"""Models behind a server, which the threads of the driver ask themselves, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pytest_cepbench.errors import StoppedError

_LOOK = 0.2  # seconds


class SerializedModel:
    """A model that is loaded once, and called by one thread at a time.

    seconds: in its code. So a server has as many requests at once, and as many a minute, as in a run in one process.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._model: Any = None
        self._lock = Lock()
        self.seconds = 0.0

    @property
    def loads(self) -> int:
        """How often the model was loaded."""
        return int(self._model is not None)

    @contextmanager
    def turn(self, stopped: Callable[[], bool]) -> Iterator[Any]:
        """The model, for this thread alone. Raises StoppedError, and what loading raises."""
        while not self._lock.acquire(timeout=_LOOK):
            if stopped():
                msg = "the run stops"
                raise StoppedError(msg)
        started = time.perf_counter()
        try:
            if self._model is None:
                self._model = self._load()
            yield self._model
        finally:
            self.seconds += time.perf_counter() - started
            self._lock.release()


class ApiProxy:
    """The roles that a server plays, in turns. stopped: whether to wait no longer for one."""

    def __init__(self, turns: SerializedModel, stopped: Callable[[], bool]) -> None:
        self._turns = turns
        self._stopped = stopped

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> Any:
        """As `Describer`."""
        with self._turns.turn(self._stopped) as model:
            return model.describe(images, prompt, seeds)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """As `Generator`."""
        with self._turns.turn(self._stopped) as model:
            return model.generate(texts, seeds)

    def judge(self, *asked: Any) -> Any:
        """As `Judge`."""
        with self._turns.turn(self._stopped) as model:
            return model.judge(*asked)
