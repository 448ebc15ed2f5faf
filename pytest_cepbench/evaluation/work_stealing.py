"""Work of a process that has no case, or none left: it grows what the cases of others need.

Run as a module this is a helper process. Its task comes over standard input, whose end says that
the run is over, however it ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from pytest_cepbench.evaluation.case_evaluation import prepared_shards
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.helpers import HelperReport, HelperTask
from pytest_cepbench.evaluation.run_context import IdentityAgreement

_INTERVAL = 0.2  # seconds


def help_others(evaluator: Evaluator) -> None:
    """Grow and read shards that no process has, until none is left or the run is to stop."""
    try:
        # The process that judges the case meets the same error and reports it; here it would end
        # the worker.
        with suppress(Exception), interrupted(evaluator.stop.is_set):
            prepared_shards(evaluator).compute_others()
    except KeyboardInterrupt:
        if not evaluator.stop.is_set():
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


def main() -> None:
    """Work as a helper process until the run is over, then write a report to standard output."""
    report_file = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no report
    task: HelperTask = pickle.load(sys.stdin.buffer)  # noqa: S301 # from the process that began it
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, name="cepbench-over", daemon=True).start()
    evaluator = Evaluator(task.context, IdentityAgreement(task.context, task.models).check)
    evaluator.say = lambda _: None  # the run says it
    try:
        # The process that judges the case meets the same error and reports it.
        with suppress(Exception), interrupted(over.is_set):
            for needed in task.needed:
                evaluator.shards.add(*needed)
            evaluator.shards.compute_others()
    except KeyboardInterrupt:
        pass  # by the run, or by its engineer, who ends both
    report = HelperReport(evaluator.usage, evaluator.drain_messages(), list(evaluator.damage))
    with os.fdopen(report_file, "wb") as stream:
        stream.write(msgspec.json.encode(report))
    evaluator.close()
    sys.stdout.flush()
    os._exit(0)  # the thread that waits holds standard input


if __name__ == "__main__":
    main()
