"""Work for the cases of others ends with the run, in the middle of whatever it does."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation import run_context
from pytest_cepbench.evaluation.case_runner import help_others, prepared_shards
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import STOP, RunContext, interrupted, write_message
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.suites.gate_config import Overrides
from tests.studies.toy import TOY, write_suite


class Describer:
    """A model that tests interrupt in its calls: `before` comes first in each."""

    fingerprint = "interrupted/1"
    seeded = False

    def before(self) -> None:
        """Nothing."""

    def describe(self, images: Sequence[Image.Image], _: str, __: Sequence[int]) -> list[str]:
        """The same for every image."""
        self.before()
        return ["a red circle"] * len(images)


@contextmanager
def _helping(folder: Path) -> Iterator[Evaluator]:
    """A process of a run of the toy suite's cases, which `Describer` grows."""
    describer = "python:tests.evaluation.test_work_stealing:Describer"
    path = write_suite(folder, TOY.replace('describer = "shapes:"', f'describer = "{describer}"'))
    evaluator = Evaluator(RunContext(read_settings({}, {}, folder), workers=2, worker="gw0"))
    cases = evaluator.suites.get(path).cases
    evaluator.assign({case.id: (path, case, Overrides()) for case in cases})
    yield evaluator
    evaluator.close()


def test_work_that_ends_by_itself_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while it goes on nor afterwards."""
    monkeypatch.setattr(run_context, "_INTERVAL", 0.001)
    interrupts: list[int] = []
    asked, stop = threading.Event(), threading.Event()

    def stopped() -> bool:
        asked.set()
        return stop.is_set()

    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        with interrupted(stopped):
            assert asked.wait(20)
            (watch,) = [t for t in threading.enumerate() if t.name == "cepbench-stop"]
        stop.set()
        watch.join(20)
    finally:
        signal.signal(signal.SIGINT, before)

    assert not watch.is_alive()
    assert interrupts == []


@pytest.mark.parametrize("interval", [0, 0.001])
def test_interrupts_that_a_shell_has_ignored_stay_ignored(
    monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    """As in what a shell starts in the background: only the work itself is interrupted.

    However early the interrupt comes: without an interval, before the work has begun.
    """
    monkeypatch.setattr(run_context, "_INTERVAL", interval)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted(lambda: True):
            time.sleep(30)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_by_the_engineer_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a model's call."""
    monkeypatch.setattr(Describer, "before", lambda _: signal.raise_signal(signal.SIGINT))

    with _helping(tmp_path) as evaluator, pytest.raises(KeyboardInterrupt):
        help_others(evaluator)


def test_an_interrupt_by_the_run_ends_the_help_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller says so in the middle of a model's call."""
    monkeypatch.setattr(run_context, "_INTERVAL", 0.001)
    begun: list[float] = []

    with _helping(tmp_path) as evaluator:

        def stop(_: object) -> None:
            begun.append(time.monotonic())
            write_message(evaluator.context.make_folder(), STOP, "")
            time.sleep(30)

        monkeypatch.setattr(Describer, "before", stop)
        help_others(evaluator)

    assert len(begun) == 1
    assert time.monotonic() - begun[0] < 20


def test_an_error_while_helping_is_left_to_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that judges the case meets it too, and reports it."""

    def read_fingerprint(_: object) -> str:
        return (tmp_path / "no-such-file").read_text()

    monkeypatch.setattr(Describer, "fingerprint", property(read_fingerprint))
    with _helping(tmp_path) as evaluator:
        help_others(evaluator)
        path, case, _ = prepared_shards(evaluator).cases[0]
        with pytest.raises(SpecError, match=r"Describer\.fingerprint raised FileNotFoundError"):
            evaluator.shards.compute(path, case)
