"""A run that may have cases, as one of its processes knows it: what the plugin's hooks do in it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin.cases import is_case

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.plugin.controller import Controller
    from pytest_cepbench.plugin.terminal.live import Ticker

RUN: pytest.StashKey[Run] = pytest.StashKey()
"""The run, in processes in which it has begun."""

BEGUN = pytest.StashKey[bool]()
"""Set when the session has started."""


def run_of(config: pytest.Config) -> Run:
    """The run as this process knows it, begun at the first call.

    That is when an option of ours is given, xdist's workers start, the project has baselines, or a
    case is met. Raises pytest.UsageError for a setting that is wrong.
    """
    if RUN not in config.stash:
        for name in ("run", "controller", "empty_suites", "exit_code"):
            if config.pluginmanager.is_blocked(f"cepbench_{name}"):
                raise pytest.UsageError(
                    f"-p no:cepbench_{name} leaves a gate that sees a part: drop it"
                )
        run = config.stash[RUN] = Run(config)
        config.pluginmanager.register(run, "cepbench_run")
        if BEGUN in config.stash and run.controller is not None:
            run.controller.begin()
            for report in config.pluginmanager.getplugin("cepbench_empty_suites").failed:
                run.controller.ledger.note_collection(report)
    return config.stash[RUN]


def controller_of(config: pytest.Config) -> Controller | None:
    """That of a run that has begun, in the process that the user started; else None."""
    run = config.stash.get(RUN, None)
    return None if run is None else run.controller


class Run:
    """One of the processes of a run.

    records: the tests of this process.
    controller: in the process that the user started, else None.
    ticker: the thread that writes of the progress of the run; None where there is none.
    gating: held while a case is judged; some plugins run tests in threads.
    used_evaluator: the evaluator, if this process has had a use for one.
    """

    def __init__(self, config: pytest.Config) -> None:
        """config: its settings are read. Raises pytest.UsageError for one that is wrong."""
        # Not before there is a run: a plain one of pytest is not to pay for them.
        from pytest_cepbench.plugin.controller import Controller
        from pytest_cepbench.plugin.records import Records

        self.config = config
        self.records = Records()
        self.ticker: Ticker | None = None
        self.gating = threading.Lock()
        self.used_evaluator: Evaluator | None = None
        self._making = threading.RLock()
        # An ini file that makes warnings errors means Python's, not a verdict that has its own
        # option.
        warnings = "default::pytest_cepbench.InconclusiveWarning"
        config.addinivalue_line("filterwarnings", warnings)
        # Nor syrupy's remark on a worker that died, which would end the run before it is told how.
        config.addinivalue_line("filterwarnings", "default:syrupy. received:UserWarning")
        self.controller: Controller | None = None
        if not hasattr(config, "workerinput"):
            self.controller = Controller(config, self.evaluator, self.show_progress)
            config.pluginmanager.register(self.controller, "cepbench_controller")

    def evaluator(self) -> Evaluator:
        """The suites, store and models of this process, made at the first call."""
        with self._making:
            if self.used_evaluator is None:
                from pytest_cepbench.evaluation.evaluator import Evaluator
                from pytest_cepbench.evaluation.run_context import RunContext, check_identity
                from pytest_cepbench.plugin.options import settings_of

                if self.controller is not None:
                    self.used_evaluator = Evaluator(self.controller.context)
                else:
                    sent: dict[str, Any] = self.config.workerinput  # type: ignore[attr-defined] # xdist
                    context = RunContext(
                        settings_of(self.config),
                        sent["cepbench_run"],
                        sent["cepbench_started"],
                        workers=sent["workercount"],
                        worker=sent["workerid"],
                        unleased=sent.get("cepbench_unleased"),
                    )
                    agree = partial(check_identity, context, sent["cepbench_models"])
                    self.used_evaluator = Evaluator(context, agree)
                self.used_evaluator.say = self._say
        return self.used_evaluator

    def _say(self, text: str) -> None:
        """Write a line on the terminal while a test runs, whose output is captured.

        A worker writes it to its standard error, which is that of the run; of several, the first.
        """
        context = self.evaluator().context
        if context.is_worker:
            with suppress(OSError):
                try:
                    (context.make_folder() / "waiting").touch(exist_ok=False)
                except FileExistsError:
                    return
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            if reporter is None or context.is_worker:
                sys.stderr.write(f"\ncepbench: {text}\n")
                sys.stderr.flush()
            else:
                reporter.ensure_newline()
                reporter.write_line(f"cepbench: {text}")
                reporter.flush()  # a file or a pipe would have it when the wait is over

    # -- cases and tests ---------------------------------------------------------------------------

    def select(self, cases: Sequence[pytest.Item]) -> None:
        """Take up the cases that this process collected and that were selected."""
        from pytest_cepbench.plugin.collection import assign_policies, leave_hints
        from pytest_cepbench.plugin.options import refuse_modes, usage_errors
        from pytest_cepbench.plugin.records import case_name
        from pytest_cepbench.plugin.terminal import live

        controller, evaluator = self.controller, self.evaluator()
        if controller is not None:
            controller.remove_reports()
        assign_policies(cases, evaluator)
        looks = evaluator.settings.listing or evaluator.settings.plan
        if controller is None:
            leave_hints(cases, evaluator)
            if not looks:
                with suppress(OSError):  # a folder that cannot be made has no reader
                    context = evaluator.context
                    folder = context.make_folder()
                    self.ticker = live.write_lines(evaluator.progress, folder, context.worker)
            return
        with usage_errors():
            evaluator.suites.check_names()
        if looks:
            controller.unjudged = len(cases)
            return
        refuse_modes(self.config, cases)
        with usage_errors():
            _ = evaluator.store  # or every case would say that it cannot be used
        controller.ledger.expect({item.nodeid: case_name(item) for item in cases})
        with usage_errors():
            controller.pools = evaluator.plan_pools()
        self.show_progress(  # what the threads on a cluster do changes from line to line
            lambda: [*map(live.progress_line, (evaluator.progress, evaluator.cluster_progress))]
        )

    def show_progress(self, lines: Callable[[], Sequence[str]]) -> None:
        """Write lines on the progress until the run ends. lines: gives that of each process."""
        from pytest_cepbench.plugin.terminal import live

        if self.ticker is None:
            self.ticker = live.show(self.config, lines)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """A worker that has no test left helps those that have: they share chains of all cases."""
        result = yield
        evaluator = self.used_evaluator
        going_on = not (session.shouldfail or session.shouldstop)
        if self.controller is None and going_on and evaluator is not None and evaluator.assigned:
            from pytest_cepbench.evaluation.case_runner import help_others

            help_others(evaluator)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin an attempt at a test, without what the one before left."""
        if is_case(item):
            self.records.begin(item)
            if os.getpid() != self.records.pid:
                from pytest_cepbench.plugin.options import FORKED

                pytest.fail(FORKED, pytrace=False)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put the test's record on its report, whichever plugin made that, and into the ledger."""
        self.records.put_on(report)
        if self.controller is not None:
            self.controller.ledger.note_report(report)

    # -- the end -----------------------------------------------------------------------------------

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger, for good: write nothing more of the progress."""
        if self.ticker is not None:
            self.ticker.close()

    def prepare_end(self, session: pytest.Session, exitstatus: int) -> None:
        """Before other plugins end the session; a worker sends what it did outside of cases."""
        self.pytest_enter_pdb()
        controller, evaluator = self.controller, self.used_evaluator
        if controller is not None:
            controller.stop_helpers()
            controller.pytests_code = exitstatus
            if controller.ledger.active:
                self.evaluator().leave_cluster()
            controller.mark_junit()
        elif evaluator is not None:  # what is not sent is lost, as where the worker dies
            import msgspec

            from pytest_cepbench.plugin.controller import publishing_seconds
            from pytest_cepbench.plugin.records import to_wire

            unpublished = evaluator.publish(publishing_seconds(session), None)
            sent = {
                "effort": msgspec.to_builtins(evaluator.background_usage),
                "remarks": [*evaluator.drain_messages(), *unpublished],
            }
            output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined] # xdist
            output["cepbench"] = to_wire(sent)

    def pytest_unconfigure(self) -> None:
        """Release the store, and clear away what the processes of the run told one another."""
        self.pytest_enter_pdb()
        try:
            if self.used_evaluator is not None:
                self.used_evaluator.close()
        finally:
            if self.controller is not None:
                self.controller.context.remove_folder()
