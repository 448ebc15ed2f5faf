"""A worker that has no test left: it works on what the cases of others need, until the run stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pytest_cepbench.plugin.evaluate import work_of
from pytest_cepbench.plugin.evaluator import Evaluator

_LOOK = 0.2  # seconds


def help_others(process: Evaluator) -> None:
    """Grow and read what nobody has taken; left in the middle of a shard when the run is to stop."""
    try:
        # Whoever judges the case meets the same error and tells it there; here it would end the worker.
        with suppress(Exception), interrupted(process.stopped):
            work_of(process).help()
    except KeyboardInterrupt:
        if not process.stopped():
            raise  # the user's own


@contextmanager
def interrupted(stopped: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, wherever it is, when it should stop.

    A shard of a large model takes minutes, and what is lost of it is one batch.
    """
    turn, over = threading.Lock(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while not over.wait(_LOOK):
            if stopped():
                with turn:  # not after the work has ended of itself
                    if not over.is_set():
                        # A signal also ends a sleep and a wait, as no exception from outside does.
                        signal.pthread_kill(main, signal.SIGINT)
                return

    handler = signal.getsignal(signal.SIGINT)
    if handler == signal.SIG_IGN:  # as shells have it in what they start in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=watch, name="cepbench-stop", daemon=True).start()
    try:
        yield
    finally:
        with turn:
            over.set()
        if handler == signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
