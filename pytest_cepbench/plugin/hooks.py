"""A run that may have cases, as one of its processes knows it: what the plugin's hooks do in it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin.cases import is_case
from pytest_cepbench.plugin.options import SHORT_TAKEN
from pytest_cepbench.plugin.versions import verbosity

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.plugin.controller import Controller
    from pytest_cepbench.plugin.terminal.live import Ticker

_OWNER = "cepbench: "  # of a line in pytest's header

_NOTHING_RAN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)

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
        run = config.stash[RUN] = Run(config)
        config.pluginmanager.register(run, "cepbench_run")
        if BEGUN in config.stash:
            run.begin()
            for report in config.pluginmanager.getplugin("cepbench_empty_suites").failed:
                run.pytest_collectreport(report)
    return config.stash[RUN]


class Run:
    """One of the processes of a run.

    records: the tests of this process.
    controller: in the process that the user started, else None.
    ticker: the thread that writes of the progress of the run; None where there is none.
    gating: held while a case is judged; some plugins run tests in threads.
    """

    def __init__(self, config: pytest.Config) -> None:
        """config: its settings are read. Raises pytest.UsageError for one that is wrong."""
        # Not before there is a run: a plain one of pytest is not to pay for them.
        from pytest_cepbench.evaluation.run_context import RunContext
        from pytest_cepbench.plugin.controller import Controller
        from pytest_cepbench.plugin.ledger import Ledger
        from pytest_cepbench.plugin.records import Records
        from pytest_cepbench.plugin.run_settings import settings_of

        self.config = config
        self.records = Records()
        self.controller: Controller | None = None
        self.ticker: Ticker | None = None
        self.gating = threading.Lock()
        self._making = threading.RLock()
        self._evaluator: Evaluator | None = None
        # An ini file that makes warnings errors means Python's, not a verdict that has its own
        # option.
        warnings = "default::pytest_cepbench.InconclusiveWarning"
        config.addinivalue_line("filterwarnings", warnings)
        # Nor syrupy's remark on a worker that died, which would end the run before it is told how.
        config.addinivalue_line("filterwarnings", "default:syrupy. received:UserWarning")
        if not hasattr(config, "workerinput"):
            settings = settings_of(config)
            ledger = Ledger(config.rootpath, settings.allow_skips)
            self.controller = Controller(RunContext(settings), self.evaluator, ledger)
            if settings.plan:  # a plan needs no workers
                self.controller.lease_devices(config)
                # syrupy counts the latter
                config.option.dist, config.option.numprocesses = "no", None

    def evaluator(self) -> Evaluator:
        """The suites, store and models of this process, made at the first call."""
        with self._making:
            if self._evaluator is None:
                from pytest_cepbench.evaluation.evaluator import Evaluator
                from pytest_cepbench.evaluation.run_context import IdentityAgreement, RunContext
                from pytest_cepbench.plugin.run_settings import settings_of

                if self.controller is not None:
                    self._evaluator = Evaluator(self.controller.context)
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
                    agreement = IdentityAgreement(context, sent["cepbench_models"])
                    self._evaluator = Evaluator(context, agreement.check)
                self._evaluator.say = self._say
        return self._evaluator

    @property
    def used_evaluator(self) -> Evaluator | None:
        """The evaluator, if this process has had a use for one."""
        return self._evaluator

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

    # -- the beginning -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Resolve what the user named. Raises pytest.UsageError for what is wrong with it."""
        controller, config = self.controller, self.config
        if controller is None:
            return
        from pytest_cepbench.plugin.run_settings import updating, usage_errors

        with usage_errors():
            taken, workers = config.stash.get(SHORT_TAKEN, ()), config.getoption("tx", None)
            try:
                controller.start(taken, workers=bool(workers), updating=updating(config))
            except BaseException:
                controller.remove_reports()
                raise
        if workers and controller.leases is None:  # in time for the header, after wrong specs
            controller.lease_devices(config)

    def header(self) -> list[str]:
        """Lines for pytest's header: what is gated against what; the device of each worker."""
        if self.controller is None:
            return []
        verbose = verbosity(self.config) > 0
        lines = filter(None, self.controller.header_lines(verbose=verbose))
        leases = [f"{_OWNER}{line}" for line in self.controller.lease_lines(self.config)]
        return [*self._headed(lines, verbose=verbose), *leases]

    def suite_header(self) -> list[str]:
        """A line for each suite that is about to be gated."""
        if self.controller is None:
            return []
        verbose = verbosity(self.config) > 0
        return self._headed(self.controller.suite_lines(verbose=verbose), verbose=verbose)

    def _headed(self, lines: Iterable[str], *, verbose: bool) -> list[str]:
        """Lines as wide as the terminal, continued below their text.

        verbose: with words that have no room on a line of their own left whole.
        """
        lines = [f"{_OWNER}{line}" for line in lines]
        if not lines:  # a plain pytest run, which imports nothing more
            return []
        from pytest_cepbench.plugin.terminal.summary import SummaryOutput

        output = SummaryOutput(self.config.pluginmanager.getplugin("terminalreporter"))
        indent = " " * len(_OWNER)
        wrapped = (output.wrap(line, indent, shortened=not verbose) for line in lines)
        return list(chain.from_iterable(wrapped))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A suite whose module could not be collected has cases that will not be judged."""
        if self.controller is not None:
            self.controller.ledger.note_collection(report)

    # -- the cases ---------------------------------------------------------------------------------

    def select(self, cases: Sequence[pytest.Item]) -> None:
        """Take up the cases that this process collected and that were selected."""
        from pytest_cepbench.plugin.collection import assign_policies, leave_hints
        from pytest_cepbench.plugin.records import case_name
        from pytest_cepbench.plugin.run_settings import refuse_modes, usage_errors

        config, controller, evaluator = self.config, self.controller, self.evaluator()
        if controller is not None:
            controller.remove_reports()
        assign_policies(cases, evaluator)
        if controller is None:
            leave_hints(cases, evaluator)
        else:
            with usage_errors():
                evaluator.suites.check_names()
        if evaluator.settings.listing or evaluator.settings.plan:
            if controller is not None:
                controller.unjudged = len(cases)
            return
        if controller is not None:
            refuse_modes(config, cases)
            with usage_errors():
                _ = evaluator.store  # or every case would say that it cannot be used
            controller.ledger.expect({item.nodeid: case_name(item) for item in cases})
            with usage_errors():
                controller.pools = evaluator.plan_pools()
        from pytest_cepbench.plugin.terminal import live

        if controller is not None:
            self.show_progress(
                lambda: live.own_snapshots(evaluator.progress, evaluator.cluster_progress)
            )
            return
        sent: dict[str, Any] = config.workerinput  # type: ignore[attr-defined] # xdist adds it
        with suppress(OSError):  # a folder that cannot be made has no reader
            folder = evaluator.context.make_folder()
            self.ticker = live.write_snapshots(evaluator.progress, folder, sent["workerid"])

    def show_progress(self, snapshots: Any) -> None:
        """Write lines on the progress until the run ends.

        snapshots: gives the progress of each process.
        """
        from pytest_cepbench.plugin.terminal import live

        if self.ticker is None:
            self.ticker = live.show(self.config, snapshots)

    def print_plan(self) -> bool | None:
        """Print the plan, if that is all that was asked for; None else."""
        if self.controller is None or not self.controller.settings.plan:
            return None
        from pytest_cepbench.plugin.terminal.plan_mode import plan_lines
        from pytest_cepbench.plugin.terminal.summary import SummaryOutput

        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_sep("=", "cepbench plan")
        output, leases = SummaryOutput(reporter), self.controller.leases
        assert leases is not None  # since it is a plan
        columns, rule = output.table_columns, output.glyphs.rule
        for line in plan_lines(self.evaluator(), leases, columns, rule):
            if isinstance(line, str):
                output.write_sentences([(line, "")])
            else:
                output.write([line])
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin an attempt at a test, without what the one before left."""
        if is_case(item):
            self.records.begin(item)
            if os.getpid() != self.records.pid:
                from pytest_cepbench.plugin.run_settings import FORKED

                pytest.fail(FORKED, pytrace=False)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put the test's record on its report, whichever plugin made that, and into the ledger."""
        self.records.put_on(report)
        if self.controller is not None:
            self.controller.ledger.note_report(report)

    def pytest_internalerror(self, excrepr: object) -> None:
        """A run with an internal error is incomplete, whatever its exit code would be."""
        if self.controller is not None:
            self.controller.ledger.fail(f"internal error: {str(excrepr).splitlines()[-1]}")

    # -- the end -----------------------------------------------------------------------------------

    def clear_terminal(self) -> None:
        """Write nothing more of the progress."""
        if self.ticker is not None:
            self.ticker.close()

    def prepare_end(self, session: pytest.Session, exitstatus: int) -> None:
        """Before other plugins end the session; a worker sends what it did outside of cases."""
        self.clear_terminal()
        controller, evaluator = self.controller, self._evaluator
        if controller is not None:
            controller.pytests_code = exitstatus
            if controller.ledger.active:
                self.evaluator().leave_cluster()
            controller.mark_junit(self.config)
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

    def end(self, session: pytest.Session) -> None:
        """Judge the run, accept baselines, write reports; one warning for all undecided cases."""
        controller, config = self.controller, self.config
        if controller is None:
            return
        from pytest_cepbench.plugin.run_settings import updating

        controller.finish(session, updating=updating(config))
        if controller.ledger.active:
            from pytest_cepbench.plugin.ci_services import write_files
            from pytest_cepbench.plugin.terminal.summary import QuietSections

            write_files(controller)
            config.pluginmanager.register(QuietSections(), "cepbench_quiet_sections")
        outcome = controller.outcome
        if outcome is None or not all(result.passes for result in outcome.results):
            return
        from pytest_cepbench.report.headline import undecided

        if undecided(outcome.results):
            from pytest_cepbench.errors import InconclusiveWarning
            from pytest_cepbench.report.text import shortage_warning

            # A mark can ignore it for a test, in a run where `-W error` raises it.
            with suppress(InconclusiveWarning):
                warning = InconclusiveWarning(shortage_warning(outcome.results))
                config.issue_config_time_warning(warning, 2)

    def summarize(self, reporter: Any, exitstatus: int) -> None:
        """Write the section of the run. reporter: pytest's terminal reporter."""
        controller, config = self.controller, self.config
        if controller is None:
            return
        if controller.ledger.active or controller.unjudged:
            from pytest_cepbench.plugin.ci_services import write_annotations
            from pytest_cepbench.plugin.terminal.summary import leave_out_cases, write_summary

            leave_out_cases(config, controller.settings.baselines)
            write_summary(controller, reporter)
            write_annotations(controller, reporter)
            quiet = config.pluginmanager.getplugin("cepbench_quiet_sections")
            if quiet is not None:  # a run that judges
                quiet.end_sections(reporter)
        elif controller.settings.names_models and exitstatus in _NOTHING_RAN:
            from pytest_cepbench.plugin.terminal.summary import write_nothing_found

            refused = exitstatus == pytest.ExitCode.USAGE_ERROR
            write_nothing_found(config, reporter, refused=refused)

    def close(self) -> None:
        """Release the store, and clear away what the processes of the run told one another."""
        self.clear_terminal()
        try:
            if self._evaluator is not None:
                self._evaluator.close()
        finally:
            if self.controller is not None:
                self.controller.context.remove_folder()
