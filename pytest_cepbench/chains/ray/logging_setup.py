"""Ray without its noise, and this process as it was before."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

# Ray is told of these before it starts; what the user has set stands.
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # warns on stderr otherwise, an error under -W error
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
}


@contextmanager
def silenced_ray() -> Iterator[None]:
    """Keep Ray's warnings and log lines to itself: under `-W error` they would end the run."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def silence_ray() -> None:
    """Have the logs of raylets that die not printed among the test's own lines; we tell of deaths."""
    worker = sys.modules.get("ray._private.worker")
    with suppress(Exception):  # nothing of this is promised by Ray; without it there are more lines
        worker.print_worker_logs = lambda *_, **__: None  # type: ignore[union-attr]


def prepare() -> list[Callable[[], Any]]:
    """Set what variables Ray needs, and return what undoes it."""
    undo: list[Callable[[], Any]] = []
    for name, value in _SETTINGS.items():
        if name not in os.environ:
            os.environ[name] = value
            undo.append(partial(os.environ.pop, name, None))
    if "RAY_AUTH_MODE" not in os.environ:  # Ray sets it for clusters with a token
        undo.append(partial(os.environ.pop, "RAY_AUTH_MODE", None))
    return undo


def put_back(undo: list[Callable[[], Any]]) -> None:
    """Undo all of it, once."""
    while undo:
        undo.pop()()


def keep_signals() -> Callable[[], Any]:
    """What puts back the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    handler = signal.getsignal(signal.SIGTERM)
    return lambda: signal.signal(signal.SIGTERM, handler)
