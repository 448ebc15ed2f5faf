"""The pytest plugin: hooks and fixtures, each handing over to the module that does the work.

Only the standard library and pytest are imported before a cepbench option or test is met.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.plugin import records
from pytest_cepbench.plugin.controller import CONTROLLER, Controller, ExitCode
from pytest_cepbench.plugin.empty_suites import EmptySuites
from pytest_cepbench.plugin.fixtures import (
    EVALUATOR,
    BareFixtures,
    cep_case,
    cep_describer,
    cep_detector,
    cep_editor,
    cep_encoder,
    cep_gate,
    cep_generator,
    cep_interleaver,
    cep_judge,
    cep_vqa,
    cep_writer,
    evaluator_of,
)
from pytest_cepbench.plugin.ledger import MISTAKE, Ledger
from pytest_cepbench.plugin.options import (
    add_options,
    add_short_options,
    are_named,
    check_names,
    hide_short_values,
    suggest_options,
)
from pytest_cepbench.plugin.records import RECORDS, Records, case_name, is_case
from pytest_cepbench.plugin.run_settings import (
    refuse_modes,
    settings_of,
    updating,
    usage_errors,
)
from pytest_cepbench.plugin.versions import names_in_ini, verbosity
from pytest_cepbench.plugin.workers import hooks as workers_hooks

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.plugin.workers.device_leases import Leases

# pytest finds fixtures as names of a plugin's module.
__all__ = [
    "cep_case",
    "cep_describer",
    "cep_detector",
    "cep_editor",
    "cep_encoder",
    "cep_gate",
    "cep_generator",
    "cep_interleaver",
    "cep_judge",
    "cep_vqa",
    "cep_writer",
]

_LEASES: pytest.StashKey[Leases] = pytest.StashKey()
"""Of the workers that a plan is about."""

_TAKEN = pytest.StashKey[Sequence[str]]()

_OWNER = "cepbench: "  # of a line in pytest's header

_NOTHING_RAN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


# -- options and set-up ----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register `--cep-...` and the ini keys, and the hooks that have modules of their own."""
    add_options(parser)
    pluginmanager.register(workers_hooks, "cepbench_workers")
    pluginmanager.register(records, "cepbench_verdict_reports")
    pluginmanager.register(BareFixtures(), "cepbench_bare_names")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None]:
    """Offer `--model` and its siblings last, when it is known which of them others own.

    A conftest.py that gives up by `sys.exit()` ("no GPU") would end the run as a pass; in a run
    that has nothing to do with models that is its own affair.
    """
    hide_short_values(early_config, args)
    try:
        yield
    except SystemExit as leaving:
        if leaving.code or not are_named(early_config, args):
            raise
        raise pytest.UsageError(
            "a conftest.py called sys.exit() while pytest started: no case was judged"
        ) from leaving
    early_config.stash[_TAKEN] = add_short_options(parser)
    suggest_options(parser, args)
    early_config.pluginmanager.register(ExitCode(), "cepbench_exit_code")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; on the controlling side, read the settings before anything runs."""
    config.addinivalue_line(
        "markers",
        "cep(suite, categories, metrics, tolerance): which cases of a suite.toml are gated; put by "
        "itself on every test that uses cep_gate",
    )
    # An ini file that makes warnings errors means Python's, not a verdict that has its own option.
    config.addinivalue_line("filterwarnings", "default::pytest_cepbench.InconclusiveWarning")
    # Nor syrupy's remark on a worker that died, which would end the run before it is told how.
    config.addinivalue_line("filterwarnings", "default:syrupy. received:UserWarning")
    if not hasattr(config, "workerinput"):
        check_names(_unknown_ini_names(config))
        settings = settings_of(config)
        ledger = Ledger(config.rootpath, settings.allow_skips)
        controller = Controller(RunContext(settings), lambda: evaluator_of(config), ledger=ledger)
        if settings.plan:  # a plan needs no workers
            with usage_errors():
                from pytest_cepbench.plugin.workers.device_leases import plan_leases

                config.stash[_LEASES] = plan_leases(config, settings)
            config.option.dist, config.option.numprocesses = "no", None  # syrupy counts the latter
        config.stash[CONTROLLER] = controller
        # Hooks that get no config are the ledger's own methods.
        config.pluginmanager.register(ledger, "cepbench_ledger")
    # After the ledger, so that it is asked before it: what a report carries, it puts there.
    config.stash[RECORDS] = Records()
    config.pluginmanager.register(config.stash[RECORDS], "cepbench_records")
    empty_suites = EmptySuites(config, lambda: evaluator_of(config))
    config.pluginmanager.register(empty_suites, "cepbench_empty_suites")


def _unknown_ini_names(config: pytest.Config) -> Iterator[str]:
    """Names in the ini file that no plugin registered; pytest warns of them after collection."""
    for name in names_in_ini(config):
        try:
            config.getini(name)
        except ValueError:
            yield name


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Resolve the models that were named, so that a mistake costs a second, not a night."""
    controller = session.config.stash.get(CONTROLLER, None)
    if controller is not None:
        with usage_errors():
            taken = session.config.stash.get(_TAKEN, ())
            try:
                controller.start(
                    taken,
                    workers=bool(session.config.getoption("tx", None)),
                    updating=updating(session.config),
                )
            except BaseException:
                controller.remove_reports()
                raise


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is gated against what."""
    controller = config.stash.get(CONTROLLER, None)
    if controller is None:
        return []
    verbose = verbosity(config) > 0
    return _headed(config, filter(None, controller.header_lines(verbose=verbose)), verbose=verbose)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say of each suite which models it gates, also where none was named."""
    controller = config.stash.get(CONTROLLER, None)
    if controller is None:
        return []
    verbose = verbosity(config) > 0
    return _headed(config, controller.suite_lines(verbose=verbose), verbose=verbose)


def _headed(config: pytest.Config, lines: Iterable[str], *, verbose: bool) -> list[str]:
    """Lines of a header as wide as the terminal, continued below their text.

    verbose: with words that have no room on a line of their own left whole.
    """
    lines = [f"{_OWNER}{line}" for line in lines]
    if not lines:  # a plain pytest run, which imports nothing more
        return []
    from pytest_cepbench.plugin.terminal.summary import Output

    output = Output(config.pluginmanager.getplugin("terminalreporter"))
    indent = " " * len(_OWNER)
    wrapped = (output.wrap(line, indent, shortened=not verbose) for line in lines)
    return list(chain.from_iterable(wrapped))


# -- collection ------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the cases of a suite into parameters of `cep_case`."""
    if "cep_case" in metafunc.fixturenames:
        from pytest_cepbench.plugin.collection import parametrize

        parametrize(metafunc, evaluator_of(metafunc.config))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Mark the report on a module whose suite is written wrongly, for the exit code."""
    report = yield
    call = getattr(report, "call", None)
    raised = None if call is None or call.excinfo is None else call.excinfo.value
    if isinstance(raised, pytest.Collector.CollectError):
        setattr(report, MISTAKE, isinstance(raised.__cause__, SpecError | SuiteError))
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is a case, so that `-m cep` selects all of them."""
    if is_case(item):
        item.add_marker("cep")


@pytest.hookimpl(tryfirst=True)  # the terminal asks for its lines in the same hook
def pytest_collection_finish(session: pytest.Session) -> None:
    """Divide alpha among the selected cases, and enter them in the ledger.

    xdist's controller hears of them by its own hook.
    """
    cases = [item for item in session.items if is_case(item)]
    if not cases:
        return
    from pytest_cepbench.plugin.collection import (
        assign_policies,
        write_case_hints,
        write_unknown_names,
    )

    config, evaluator = session.config, evaluator_of(session.config)
    if CONTROLLER in config.stash:
        config.stash[CONTROLLER].remove_reports()
    assign_policies(cases, evaluator)
    if hasattr(config, "workerinput"):
        write_case_hints(cases, evaluator)
        write_unknown_names(evaluator)
    else:
        with usage_errors():
            evaluator.suites.check_names()
    controller = config.stash.get(CONTROLLER, None)
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
    _show_progress(config, evaluator)


def _show_progress(config: pytest.Config, evaluator: Evaluator) -> None:
    from pytest_cepbench.plugin.terminal import live

    def snapshots() -> list[live.ProgressSnapshot]:
        return live.own_snapshots(evaluator.progress, evaluator.cluster_progress)

    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        live.show(config, snapshots)
        if evaluator.settings.history is not None:
            from pytest_cepbench.plugin.run_status import write_status

            write_status(config, config.stash[CONTROLLER], snapshots)
    elif worker["cepbench_progress"] is not None:
        with suppress(OSError):  # a folder that cannot be made has no reader
            live.write_snapshots(
                config,
                evaluator.progress,
                evaluator.context.make_folder(),
                worker["workerid"],
                worker["cepbench_progress"],
            )


def _remove_status(config: pytest.Config) -> None:
    module = sys.modules.get("pytest_cepbench.plugin.run_status")
    if module is not None:
        module.close(config)


def _clear_terminal(config: pytest.Config) -> None:
    module = sys.modules.get("pytest_cepbench.plugin.terminal.live")
    if module is not None:
        module.close(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Under `--cep-plan`, print the plan and run nothing; errors of collection go on as ever."""
    controller = session.config.stash.get(CONTROLLER, None)
    if controller is None or not controller.settings.plan or session.testsfailed:
        return None
    from pytest_cepbench.plugin.terminal.plan_mode import plan_lines
    from pytest_cepbench.plugin.terminal.summary import Output

    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    reporter.write_sep("=", "cepbench plan")
    output = Output(reporter)
    leases, rule = session.config.stash[_LEASES], output.glyphs.rule
    for line in plan_lines(evaluator_of(session.config), leases, output.table_columns, rule):
        if isinstance(line, str):
            output.write_sentences([(line, "")])
        else:
            output.write([line])
    return True


# -- the end ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None]:
    """Judge the run as a whole, accept baselines, write reports.

    After all others, who may change the exit status, and also when one of them raises.
    """
    _clear_terminal(session.config)
    controller = session.config.stash.get(CONTROLLER, None)
    if controller is not None:
        controller.pytests_code = exitstatus
        if controller.ledger.active:
            evaluator_of(session.config).dismiss_helpers()
        controller.mark_junit(session.config)
    try:
        yield
    finally:
        if controller is not None:
            controller.finish(session, updating=updating(session.config))
            if controller.ledger.active:
                from pytest_cepbench.plugin.ci_services import write_files
                from pytest_cepbench.plugin.terminal.summary import QuietSections

                write_files(controller)
                session.config.pluginmanager.register(QuietSections(), "cepbench_quiet_sections")
            _remove_status(session.config)
            _warn_of_undecided(session.config, controller)


def _warn_of_undecided(config: pytest.Config, controller: Controller) -> None:
    """One warning for all inconclusive cases that pass, in a run that passes."""
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


def pytest_enter_pdb(config: pytest.Config) -> None:
    """Leave the terminal to the debugger, for good."""
    _clear_terminal(config)


@pytest.hookimpl(tryfirst=True)  # before syrupy's report, which leaves out what is told here
def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """The headline and the table of verdicts; why there are none, where a model was named."""
    controller = config.stash.get(CONTROLLER, None)
    if controller is None:
        return
    if controller.ledger.active or controller.unjudged:
        from pytest_cepbench.plugin.ci_services import write_annotations
        from pytest_cepbench.plugin.terminal.summary import leave_out_cases, write_summary

        leave_out_cases(config, controller.settings.baselines)
        write_summary(controller, terminalreporter)
        write_annotations(controller, terminalreporter)
        quiet = config.pluginmanager.getplugin("cepbench_quiet_sections")
        if quiet is not None:  # a run that judges
            quiet.end_sections(terminalreporter)
    elif controller.settings.names_models and exitstatus in _NOTHING_RAN:
        from pytest_cepbench.plugin.terminal.summary import write_nothing_found

        write_nothing_found(config, terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Release the store, and clear away what the processes of the run told one another."""
    _clear_terminal(config)
    _remove_status(config)
    controller = config.stash.get(CONTROLLER, None)
    try:
        if EVALUATOR in config.stash:
            config.stash[EVALUATOR].close()
    finally:
        if controller is not None:
            controller.context.remove_folder()
