"""What a run that goes on leaves beside the history, once a second, for `cepbench view`.

Written by the process that controls the run, in a thread, which imports nothing: a test that reads
`sys.modules` meanwhile would fail.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.plugin.controller import Controller
from pytest_cepbench.plugin.ledger import case_of
from pytest_cepbench.plugin.terminal.live import STATUS_PAUSE, ProgressSnapshot, Ticker
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.history.file import encodable, host_name
from pytest_cepbench.report.history.running import (
    FORMAT,
    HEARTBEAT_SECONDS,
    RunningCase,
    RunningRun,
    RunningWork,
    own_process,
    remove_leftovers,
    remove_running,
    write_running,
)
from pytest_cepbench.report.number_format import printable

_MOST_FAILING = 20

_MOST_CASES = 500

_LONGEST = 300  # characters of a reason


def write_status(
    controller: Controller, snapshots: Callable[[], Sequence[ProgressSnapshot]]
) -> Ticker:
    """Keep the status of a run beside its history, until the ticker is closed.

    Nothing is said where it cannot be written: the end of the run says that of the history.

    snapshots: gives the progress of each process.
    """
    folder = controller.settings.history
    assert folder is not None  # a run that is not to be recorded has no status
    status = _Status(controller, folder, snapshots)
    return Ticker(status.write, status.remove, STATUS_PAUSE)


class _Status:
    """The status of a run, written when it changes, and as a sign of life.

    folder: of the history.
    """

    def __init__(
        self,
        controller: Controller,
        folder: Path,
        snapshots: Callable[[], Sequence[ProgressSnapshot]],
    ) -> None:
        self._controller, self._folder, self._snapshots = controller, folder, snapshots
        self._latest: RunningRun | None = None

    def write(self) -> None:
        """Write what has changed. A file system that takes nothing now may do so later."""
        now, latest = time.time(), self._latest
        run = self._run()
        if (
            latest is not None
            and now - latest.written < HEARTBEAT_SECONDS
            and replace(latest, written=0.0) == run
        ):
            return
        with suppress(OSError):
            if latest is None:
                remove_leftovers(self._folder)
            write_running(self._folder, run := replace(run, written=now))
            self._latest = run
            keep_out_of_git(self._controller.settings.home, self._folder)

    def remove(self) -> None:
        """Remove it."""
        remove_running(self._folder, self._controller.context.run_id)

    def _run(self) -> RunningRun:
        context, ledger = self._controller.context, self._controller.ledger
        results = list(ledger.results)  # a copy: the thread that runs tests adds to it
        # The models under test: as they were named, else as results have them.
        settings = self._controller.settings
        named = [settings.model] if settings.model is not None else settings.roles.values()
        specs = [*named] or [result.model.get("spec", "") for result in results]
        process, space, started = own_process()
        return RunningRun(
            format=FORMAT,
            run=context.run_id,
            started=round(context.started, 3),
            written=0.0,
            host=host_name(),
            process=process,
            process_space=space,
            process_started=started,
            checkpoint=encodable(", ".join(dict.fromkeys(filter(None, specs)))),
            expected=len(ledger.expected),
            judged=len({result.nodeid for result in results}),
            counts=dict(Counter(map(_verdict, results))),
            skipped=len(ledger.skipped),
            failing=[_case(r) for r in results if not r.passes][:_MOST_FAILING],
            cases=[_case(r) for r in results[-_MOST_CASES:]],
            work=[
                RunningWork(
                    worker=snapshot.worker,
                    case=encodable(snapshot.case),
                    samples=snapshot.samples,
                    of_samples=snapshot.of_samples,
                    step=encodable(snapshot.awaited or snapshot.step),
                    rate=snapshot.rate,
                    left=snapshot.left,
                )
                for snapshot in self._snapshots()
            ],
        )


def _verdict(result: CaseResult) -> str:
    return "accepted" if result.accepted else result.verdict


def _case(result: CaseResult) -> RunningCase:
    return RunningCase(
        case=encodable(case_of(result)),
        verdict=_verdict(result),
        value=result.value,
        difference=result.judgement.difference,
        primary=result.primary,
        passes=result.passes,
        reason=printable("; ".join(result.reasons), _LONGEST),
    )
