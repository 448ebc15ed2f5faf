"""Work for the cases of others ends with the run, in the middle of whatever it does."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.evaluation import work_stealing
from pytest_cepbench.evaluation.work_stealing import help_others, interrupted


def test_work_is_interrupted_when_it_should_stop() -> None:
    """A long wait ends at once."""
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted(lambda: True):
        time.sleep(30)
    assert time.monotonic() - begun < 20


def test_work_that_ends_by_itself_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while it goes on nor afterwards."""
    monkeypatch.setattr(work_stealing, "_INTERVAL", 0.001)
    stopped = False
    with interrupted(lambda: stopped):
        time.sleep(0.02)
    stopped = True
    time.sleep(0.02)


def test_interrupts_that_a_shell_has_ignored_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in what a shell starts in the background: only the work itself is interrupted."""
    monkeypatch.setattr(work_stealing, "_INTERVAL", 0.001)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted(lambda: True):
            time.sleep(30)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stopped", [True, False])
def test_an_interrupt_by_the_engineer_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    """One by the run itself ends the help, and no more."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    shards = SimpleNamespace(compute_others=interrupt)
    monkeypatch.setattr(work_stealing, "prepared_shards", lambda _: shards)
    evaluator: Any = SimpleNamespace(stop=SimpleNamespace(is_set=lambda: stopped))
    if stopped:
        help_others(evaluator)
        return
    with pytest.raises(KeyboardInterrupt):
        help_others(evaluator)


def test_an_error_while_helping_is_left_to_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that judges the case meets it too, and reports it."""

    def fail() -> None:
        msg = "the disk is full"
        raise OSError(msg)

    monkeypatch.setattr(
        work_stealing, "prepared_shards", lambda _: SimpleNamespace(compute_others=fail)
    )
    evaluator: Any = SimpleNamespace(stop=SimpleNamespace(is_set=lambda: False))
    help_others(evaluator)
