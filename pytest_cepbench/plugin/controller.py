"""The process that the user started: header, workers, acceptance of baselines, reports, exit code.

Hooks of xdist are optional: none of them is called where xdist is not installed or not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.errors import SpecError, WriteError
from pytest_cepbench.evaluation import run_result
from pytest_cepbench.evaluation.run_context import RunContext, identities_of
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.plugin.ledger import NO_CHANGE, Ledger
from pytest_cepbench.plugin.options import (
    SHORT_TAKEN,
    mistyped_variables,
    settings_of,
    updating,
    usage_errors,
)
from pytest_cepbench.plugin.terminal.header import (
    HeaderLine,
    series_line,
    setup_lines,
    shown_location,
    suite_lines,
)
from pytest_cepbench.plugin.workers.crashes import CrashLog

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.plugin.workers.device_leases import Leases
    from pytest_cepbench.plugin.workers.scheduler import CaseHint
    from pytest_cepbench.report.result import UsageTotals
    from pytest_cepbench.report.writers import Acceptance, RunOutcome

Code = int | str | None
"""An exit code, as `sys.exit` takes it."""

COUNTED = pytest.StashKey[str]()
"""How many workers `-n auto` starts, and why."""

_OWNER = "cepbench: "  # of a line in pytest's header

_NOTHING_RAN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


class Controller:
    """One per run, in the process that the user started.

    context: the run, as this process knows it.
    evaluator: gives this process's suites, store and models; called only when they are needed.
    show_progress: writes lines, which it is given a function for, until the run ends.
    crashes: the workers that died.
    leases: devices and cores of the workers, once they are planned.
    setup: the model under test and what it is compared with.
    background_usage: usage of the run's processes outside of cases.
    remarks: on memory, from workers that helped.
    pools: the pools of a cluster, in a line.
    pytests_code: the exit code that pytest itself gave the session; None before its end.
    unjudged: cases of a run that only plans or lists them.
    outcome: of a run that has cases; None before its end.
    """

    def __init__(
        self,
        config: pytest.Config,
        evaluator: Callable[[], Evaluator],
        show_progress: Callable[[Callable[[], Sequence[str]]], None],
    ) -> None:
        """config: its settings are read. Raises pytest.UsageError for one that is wrong."""
        settings = settings_of(config)
        self.config, self.evaluator, self.context = config, evaluator, RunContext(settings)
        self.show_progress = show_progress
        self.ledger = Ledger(config.rootpath, settings.allow_skips)
        self.crashes = CrashLog(self.ledger)
        self.leases: Leases | None = None
        self.setup: list[HeaderLine] = []
        self.background_usage: list[UsageTotals] = []
        self.remarks: list[str] = []
        self.pools: str | None = None
        self.pytests_code: int | None = None
        self.unjudged = 0
        self.outcome: RunOutcome | None = None
        self._unremoved: str | None = None
        self._distributes = False
        if settings.plan:  # a plan needs no workers
            self._lease_devices()
            # syrupy counts the latter
            config.option.dist, config.option.numprocesses = "no", None

    @property
    def settings(self) -> RunSettings:
        """What the engineer asked for."""
        return self.context.settings

    # -- the beginning -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Resolve what the user named, so that a wrong name or parameter stops the run here.

        Raises pytest.UsageError for what is wrong with it.
        """
        workers = bool(self.config.getoption("tx", None))
        with usage_errors():
            try:
                self._resolve(workers=workers)
            except BaseException:
                self.remove_reports()
                raise
        if workers and self.leases is None:  # in time for the header, after wrong specs
            self._lease_devices()

    def _resolve(self, *, workers: bool) -> None:
        """workers: whether models work in processes of xdist, which have devices of their own."""
        settings = self.settings
        source = settings.sources.get("baselines", "ini ")
        judges = not (updating(self.config) or settings.plan or settings.listing)
        if judges and not source.startswith("ini ") and not settings.baselines.is_dir():
            from pytest_cepbench.errors import BaselineError

            raise BaselineError(
                f"{source}={settings.baselines}: no such folder. Name the folder of accepted "
                "baselines, or add --snapshot-update to accept what is measured as the first ones"
            )
        # A plain pytest run has no baselines, and imports nothing more.
        if settings.baselines.is_dir():
            from pytest_cepbench.replacement import recover

            recovered = recover(settings.baselines)
            self.remarks += [] if recovered is None else [recovered]
        if settings.series is not None and not settings.names_models:
            file = self.evaluator().series
            assert file is not None  # since it has a name
            self.setup = [HeaderLine(series_line(file))]
        if settings.names_models:
            taken = self.config.stash.get(SHORT_TAKEN, ())
            self.setup = list(setup_lines(settings, self.evaluator(), taken, workers=workers))
            if self.evaluator().engine is None:
                from pytest_cepbench.models.devices import visible_devices

                for bound in (runner.bound for runner in self.evaluator().runners):
                    if str(bound.device).startswith("cuda") and not visible_devices():
                        raise SpecError(
                            f"{bound.spec}: device {bound.device!r}, and this machine has no "
                            "accelerator that torch can use. Give device=cpu, or install a torch "
                            "build that fits the driver"
                        )

    def _lease_devices(self) -> None:
        """Plan what workers may use. Raises pytest.UsageError where there are too few devices."""
        from pytest_cepbench.plugin.workers.device_leases import plan_leases

        with usage_errors():
            self.leases = plan_leases(self.config, self.settings)

    def pytest_report_header(self) -> list[str]:
        """What is gated against what; the device of each worker."""
        lines = [line.full if line.short is None else line.short for line in self.setup]
        counted = self.config.stash.get(COUNTED, "")
        leases = () if self.leases is None or self.settings.plan else self.leases.lines
        whole = [f"{_OWNER}{line}" for line in (counted, *leases) if line]
        return [*self._headed([*filter(None, lines), *mistyped_variables()]), *whole]

    def pytest_report_collectionfinish(self) -> list[str]:
        """A line for each suite that is about to be gated, below that of a cluster's pools."""
        if not self.ledger.expected:
            return []
        selected = set(self.ledger.cases.values())
        lines = suite_lines(self.settings, self.evaluator(), selected)
        return self._headed([*filter(None, [self.pools]), *lines])

    def _headed(self, lines: Iterable[str]) -> list[str]:
        """Lines as wide as the terminal, continued below their text."""
        lines = [f"{_OWNER}{line}" for line in lines]
        if not lines:  # a plain pytest run, which imports nothing more
            return []
        from pytest_cepbench.plugin.terminal.summary import SummaryOutput

        output = SummaryOutput(self.config.pluginmanager.getplugin("terminalreporter"))
        indent = " " * len(_OWNER)
        return [piece for line in lines for piece in output.wrap(line, indent, shortened=True)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Under `--cep-plan` print the plan and run nothing; errors of collection go on as ever."""
        if session.testsfailed or not self.settings.plan:
            return None
        from pytest_cepbench.plugin.terminal.plan_mode import plan_lines
        from pytest_cepbench.plugin.terminal.summary import SummaryOutput

        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_sep("=", "cepbench plan")
        output = SummaryOutput(reporter)
        assert self.leases is not None  # since it is a plan
        for line in plan_lines(self.evaluator(), self.leases, output.table_columns):
            if isinstance(line, str):
                output.write_sentences([(line, "")])
            else:
                output.write([line])
        return True

    # -- workers -----------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True, trylast=True)  # what a conftest.py sets is no lease
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        """Lease devices and cores to workers.

        Suite files are read before a worker reads them: they are to be those of the run's start.
        """
        from pytest_cepbench.files import MOST_TEXT, read_regular
        from pytest_cepbench.plugin.cases import walk
        from pytest_cepbench.plugin.workers.device_leases import concerns, places

        self._distributes = True
        if concerns(config, self.settings):
            from hashlib import sha256

            read = self.settings.digest
            for folder, names in (at for place in places(config) for at in walk(config, place)):
                if folder.is_relative_to(self.settings.baselines):
                    continue
                for path in ((folder / name).resolve() for name in names if name.endswith(".toml")):
                    with suppress(OSError):  # whoever needs it says what is wrong with it
                        read[str(path)] = sha256(read_regular(path, MOST_TEXT)).hexdigest()
            self.ledger.note_inputs(read, "the controller")
        variables = () if self.leases is None else self.leases.variables
        for spec, own in zip(specs, variables, strict=False):
            spec.env.update(own)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which run it belongs to, and how it has to find the models named."""
        sent = node.workerinput
        sent["cepbench_run"] = self.context.run_id
        sent["cepbench_started"] = self.context.started
        named = self.evaluator().runners if self.settings.names_models else ()
        sent["cepbench_models"] = identities_of(runner.bound for runner in named)
        if self.leases is not None and self.leases.variables:
            from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS

            known = (*DEVICE_VARIABLES, THREADS)
            sent["cepbench_unleased"] = {n: os.environ[n] for n in known if n in os.environ}

    @pytest.hookimpl(optionalhook=True, trylast=True)  # after those of a conftest.py
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Any:
        """Schedule cases by what they need, in runs that gate models."""
        from pytest_cepbench.plugin.workers.device_leases import concerns

        # Another scheduler is the engineer's choice.
        if config.getoption("dist") != "load" or not concerns(config, self.settings):
            return None
        from pytest_cepbench.plugin.workers.scheduler import CaseScheduling, read_hints

        def hints(nodeids: Sequence[str]) -> list[CaseHint]:
            known = read_hints(self.context.folder, nodeids)
            # Also cases outside a suite's folder, which no id gives away.
            pairs = zip(nodeids, known, strict=True)
            self.ledger.expect({nodeid: None for nodeid, hint in pairs if hint.models})
            return known

        scheduler = CaseScheduling(config, hints)
        config.pluginmanager.register(scheduler, "cepbench_scheduler")
        return scheduler

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Enter what a worker collected in the ledger."""
        from pytest_cepbench.evaluation.run_context import UNKNOWN_NAME

        mistake = self.context.folder / UNKNOWN_NAME
        if mistake.exists():
            self.remove_reports()
            raise pytest.UsageError(mistake.read_text())
        self.ledger.expect_collected(ids)
        if self.ledger.expected:
            from pytest_cepbench.plugin.options import refuse_modes
            from pytest_cepbench.plugin.terminal import live

            self.remove_reports()
            refuse_modes(self.config)
            self.show_progress(lambda: live.read_lines(self.context.folder))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """A worker ended, with what it did outside of cases, or died."""
        sent = getattr(node, "workeroutput", {}).get("cepbench")
        if error:
            from pytest_cepbench.plugin.terminal import live

            self.crashes.note(node, error)
            live.forget(self.context.folder, node.gateway.id)
        elif sent is not None:
            import msgspec

            from pytest_cepbench.report.result import UsageTotals

            self.background_usage.append(msgspec.convert(sent["effort"], UsageTotals))
            self.remarks += sent["remarks"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Have the case judged again that a worker died over."""
        self.crashes.settle(crashitem, report, sched)

    def pytest_runtest_logfinish(self) -> None:
        """After each test; xdist decides about `-x` and `--maxfail` just before."""
        if getattr(self.config.pluginmanager.getplugin("dsession"), "shouldstop", False):
            self.stop_helpers()

    def stop_helpers(self) -> None:
        """Tell helping workers that the run is to stop: xdist tells them nothing but tests."""
        from pytest_cepbench.evaluation.run_context import CASES, STOP, write_message

        folder = self.context.folder
        if self._distributes and folder.exists() and not (folder / STOP).exists():
            try:
                write_message(folder, STOP, "")
            except OSError:  # a full disk: a name can be changed there still
                with suppress(OSError):
                    (folder / CASES).rename(folder / STOP)

    # -- what makes the run incomplete -------------------------------------------------------------

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A suite whose module could not be collected has cases that will not be judged."""
        self.ledger.note_collection(report)

    def pytest_internalerror(self, excrepr: object) -> None:
        """A run with an internal error is incomplete, whatever its exit code would be."""
        self.ledger.fail(f"internal error: {str(excrepr).splitlines()[-1]}")

    # -- the end -----------------------------------------------------------------------------------

    def remove_reports(self) -> None:
        """Remove the reports of an earlier run, unless this one is not to judge anything."""
        if self._judges:
            self._unremoved = run_result.remove_reports(self.settings)

    def end(self, session: pytest.Session) -> None:
        """Close the books: exit status, accepted baselines, reports, a warning of undecided cases.

        One warning for all of them.
        """
        ledger, accepting = self.ledger, updating(self.config)
        if not ledger.results and (ledger.active or self._names_untested):
            self.remove_reports()
        if not ledger.active:
            return
        place = self.settings.publish
        if place is not None or self.settings.shared:

            def waiting(left: int) -> None:
                reporter = self.config.pluginmanager.getplugin("terminalreporter")
                if reporter is not None and place is not None:
                    reporter.ensure_newline()
                    reporter.write_line(
                        f"cepbench: {left:,} results are being uploaded to "
                        f"{shown_location(place)}; interrupt it to keep the rest in this store "
                        "alone"
                    )

            self.remarks += self.evaluator().publish(publishing_seconds(session), waiting)
        if accepting and self.crashes.all:
            ledger.fail(
                "a worker died, and baselines are accepted only from a run in which none did: run "
                "it again, what was computed is in the store"
            )
        ledger.close()
        outcome = self._judged(session.exitstatus)
        if accepting:
            outcome = self._accepted(outcome)
        session.exitstatus = outcome.code  # type: ignore[assignment] # an int
        outcome = replace(outcome, headline=outcome.headline or self._headline(outcome))
        if outcome.results:
            outcome = self._reported(outcome)
        from pytest_cepbench.plugin.terminal.summary import QuietSections
        from pytest_cepbench.report.headline import undecided

        if (summary := os.environ.get(_STEP_SUMMARY)) and self._judges:
            from pytest_cepbench.report.ci_reports import append_step_summary, markdown_summary

            try:
                append_step_summary(Path(summary), markdown_summary(outcome))
            except OSError as error:
                line = f"nothing was written for {_STEP_SUMMARY}: {error.strerror or error}"
                outcome = replace(outcome, unwritten=(*outcome.unwritten, line))
        self.outcome = outcome
        self.config.pluginmanager.register(QuietSections(), "cepbench_quiet_sections")
        results = outcome.results
        if all(result.passes for result in results) and undecided(results):
            from pytest_cepbench.errors import InconclusiveWarning
            from pytest_cepbench.report.text import undecided_line

            # A mark can ignore it for a test, in a run where `-W error` raises it.
            with suppress(InconclusiveWarning):
                warning = InconclusiveWarning(undecided_line(results))
                self.config.issue_config_time_warning(warning, 2)

    @pytest.hookimpl(tryfirst=True)  # before the sections of other plugins
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """The headline and the table of verdicts; why there are none, where a model was named."""
        reporter = terminalreporter
        if self.ledger.active or self.unjudged:
            from pytest_cepbench.plugin.terminal.summary import write_summary

            write_summary(self.outcome, self.settings, self.unjudged, reporter)
            github = os.environ.get("GITHUB_ACTIONS") == "true"
            if self.outcome is not None and self._judges and github:
                from pytest_cepbench.report.ci_reports import annotation_lines

                root = self.ledger.root
                workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root)
                results, problems = self.outcome.results, self.outcome.problems
                reporter.ensure_newline()  # a command is read where it begins a line
                for line in annotation_lines(results, problems, root, workspace):
                    reporter.write_line(line)
            quiet = self.config.pluginmanager.getplugin("cepbench_quiet_sections")
            if quiet is not None:  # a run that judges
                quiet.end_sections(reporter)
        elif self.settings.names_models and exitstatus in _NOTHING_RAN:
            from pytest_cepbench.plugin.terminal.summary import write_nothing_found

            if exitstatus != pytest.ExitCode.USAGE_ERROR:  # which pytest explains
                write_nothing_found(self.config, reporter)

    @property
    def _judges(self) -> bool:
        """Whether cases are to be judged, and not only planned or listed."""
        return not (self.settings.plan or self.settings.listing)

    def _judged(self, code: Code) -> RunOutcome:
        """The run as it stands. code: exit code of the session."""
        from pytest_cepbench.report.writers import RunOutcome

        ledger = self.ledger
        own = [self.evaluator().background_usage] if ledger.results else []
        made_good = [*self.crashes.lines(), *ledger.repeated, *self.remarks]
        made_good += self.evaluator().infrastructure if ledger.active else []
        return RunOutcome(
            run_result.run_verdict(ledger.results, problems := ledger.problems()),
            setup=[line.full for line in self.setup],
            problems=problems,
            infrastructure=list(dict.fromkeys(made_good)),
            usage=[*self.background_usage, *own],
            deaths=len(self.crashes.all),
            results=list(ledger.results),
            skipped=ledger.skipped,
            remarks=list(dict.fromkeys(ledger.remarks)),
            code=self.exit_code(code),
            unwritten=() if self._unremoved is None else (f"no report: {self._unremoved}",),
        )

    def exit_code(self, code: Code) -> Code:
        """What the run ends with: this code of pytest's or a plugin's, unless there is a worse one.

        A code that says that something is wrong is left as it is; where nothing was collected since
        suites are written wrongly, it says so, as it does of a wrong option.
        """
        ledger = self.ledger
        nothing = pytest.ExitCode.NO_TESTS_COLLECTED
        # Not collected: pytest's own code says that it was interrupted, xdist's that a test failed.
        uncollected = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)
        if code in uncollected and ledger.mistakes == {True} and not ledger.reported:
            return pytest.ExitCode.USAGE_ERROR
        # The system passes on the lowest eight bits alone.
        harmless = not code or (isinstance(code, int) and code % 256 in (0, nothing))
        if not harmless or self.settings.plan or self.settings.listing:
            return code
        worst = run_result.exit_code(
            ledger.results, lambda: ledger.problems() if ledger.active else ()
        )
        if worst:
            return worst
        compared = not run_result.nothing_compared(ledger.results, ledger.skipped)
        return code if compared and not self._names_untested else nothing

    @property
    def _names_untested(self) -> bool:
        """Whether no test ran of the models that were named; who names one wants to know of it."""
        nothing = pytest.ExitCode.NO_TESTS_COLLECTED
        return self.settings.names_models and self.pytests_code == nothing

    def _headline(self, outcome: RunOutcome) -> str:
        """The run in one sentence."""
        from pytest_cepbench.report.headline import headline

        code, results, problems = outcome.code, outcome.results, outcome.problems
        own = run_result.exit_code(results, lambda: problems)
        harmless = (0, int(pytest.ExitCode.NO_TESTS_COLLECTED))
        other = int(code) if not own and isinstance(code, int) and code not in harmless else 0
        return headline(results, problems, skipped=outcome.skipped, other_code=other)

    def _accepted(self, outcome: RunOutcome) -> RunOutcome:
        """The run after its baselines were accepted, or why they were not."""
        results = outcome.results
        acceptance: Acceptance = "refused"
        failing = not all(result.passes for result in results)
        if not (outcome.problems or failing or outcome.code or self.pytests_code):
            try:
                changes = run_result.accept_baselines(results, self.settings.baselines)
            except WriteError as error:
                self.ledger.fail(f"nothing was accepted: {error}")
                acceptance = "unwritten"
                # What was to be accepted fails no run: this one has not done what it was told.
                outcome = self._judged(outcome.code)
                outcome = replace(outcome, headline=self._headline(outcome))
            else:
                if changes:
                    return replace(outcome, changes=tuple(changes), acceptance="written")
                compared = [result for result in results if result.primary and not result.accepted]
                again = not compared and any(result.accepted for result in results)
                headline = f"Nothing to accept: {NO_CHANGE}" if again else ""
                return replace(outcome, acceptance="unchanged", headline=headline)
        from msgspec.structs import replace as replace_fields

        self.ledger.results[:] = [replace_fields(result, accepted=False) for result in results]
        return replace(self._judged(outcome.code), acceptance=acceptance, headline=outcome.headline)

    def _reported(self, outcome: RunOutcome) -> RunOutcome:
        """The run after its reports were written, and it was entered in the history."""
        try:
            command = ["pytest", *self.config.invocation_params.args]
            outcome = run_result.write_run_reports(self.evaluator(), outcome, command)
            outcome = replace(outcome, unwritten=())
        except WriteError as error:  # the run is judged, and its exit code says how
            outcome = replace(outcome, unwritten=(f"no report: {error}",))
        try:
            run_result.record_run(self.context, outcome)
        except WriteError as error:
            line = f"not in the history: {error}"
            outcome = replace(outcome, unwritten=(*outcome.unwritten, line))
        return outcome

    def mark_junit(self) -> None:
        """Put verdict and headline of the run into pytest's JUnit file, if it writes one.

        That is before baselines are accepted, so what is to be accepted is only announced.
        """
        from _pytest.junitxml import xml_key  # the stash key that pytest's own fixture uses

        xml = self.config.stash.get(xml_key, None)
        if xml is not None and self.ledger.active:
            outcome = self._judged(self.pytests_code)
            xml.add_global_property("cepbench_verdict", outcome.verdict)
            accepted = sum(result.accepted for result in outcome.results)
            failing = not all(result.passes for result in outcome.results)
            if accepted and not (failing or outcome.problems or self.pytests_code):
                line = (
                    f"To be accepted: {accepted} of {len(outcome.results)} cases; the JSON report "
                    "says whether they were"
                )
            else:
                line = self._headline(replace(outcome, code=self.pytests_code))
            xml.add_global_property("cepbench_headline", line)
            # What a dead worker began stays there as a test without an outcome, beside its retry.
            for (nodeid, _), begun in xml.node_reporters.items():
                if str(nodeid) in self.crashes.retried and not begun.nodes:
                    xml.node_reporters_ordered.remove(begun)


def publishing_seconds(session: pytest.Session) -> float | None:
    """How long the end of a run waits for uploads; None: as long as they go on."""
    return 5.0 if session.exitstatus == pytest.ExitCode.INTERRUPTED else None
