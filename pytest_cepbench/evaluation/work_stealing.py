"""Work of a process that has no case, or none left: it grows what the cases of others need."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pytest_cepbench.evaluation.case_runner import prepared_shards
from pytest_cepbench.evaluation.evaluator import Evaluator

_INTERVAL = 0.2  # seconds


def help_others(evaluator: Evaluator) -> None:
    """Grow and read shards that no process has, until none is left or the run is to stop."""
    try:
        # The process that judges the case meets the same error and reports it; here it would end
        # the worker.
        with suppress(Exception), interrupted(evaluator.stopped):
            prepared_shards(evaluator).compute_others()
    except KeyboardInterrupt:
        if not evaluator.stopped():
            raise  # the engineer's own


@contextmanager
def interrupted(stopped: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, wherever it is, when it should stop.

    A shard of a large model takes minutes, and what is lost of it is one batch.
    """
    ending, over = threading.Lock(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while not over.wait(_INTERVAL):
            if stopped():
                with ending:  # not after the work has ended of itself
                    if not over.is_set():
                        # A signal also ends a sleep and a wait, as no exception from outside does.
                        signal.pthread_kill(main, signal.SIGINT)
                return

    handler = signal.getsignal(signal.SIGINT)
    if handler == signal.SIG_IGN:  # as shells have it in what they start in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # from here on, the interrupt may come in any line
        threading.Thread(target=watch, name="cepbench-stop", daemon=True).start()
        try:
            yield
        finally:
            with ending:
                over.set()
    finally:
        if handler == signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
