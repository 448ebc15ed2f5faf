"""The pytest plugin: the hooks of every run, which are there before it is known to have cases.

A run that names no option of ours and collects no case imports nothing more than this; in any other
one they hand over to its `Run`, which `run_of` begins.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin import fixtures
from pytest_cepbench.plugin.cases import is_case
from pytest_cepbench.plugin.empty_suites import EmptySuites
from pytest_cepbench.plugin.hooks import BEGUN, RUN, controller_of, run_of
from pytest_cepbench.plugin.options import (
    SHORT_TAKEN,
    add_options,
    add_short_options,
    are_named,
    check_names,
    hide_short_values,
)

if TYPE_CHECKING:
    from pytest_cepbench.plugin.controller import Code

# -- options and set-up ----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register `--cep-...` and the ini keys."""
    add_options(parser)


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
    early_config.stash[SHORT_TAKEN] = add_short_options(parser)
    early_config.pluginmanager.register(ExitCode(), "cepbench_exit_code")


class ExitCode:
    """The exit code of the process: pytest's own, unless the ledger knows of something worse.

    Registered after the conftest.py files of the command line, so that nothing comes after it:
    hooks at the end of a session may set its exit status to whatever they like.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Code, Code]:
        """Settle what the process, or `pytest.main`, returns."""

        def judged(code: Code) -> Code:
            controller = controller_of(config)
            return code if controller is None else controller.exit_code(code)

        try:
            code = yield
        except SystemExit as leaving:  # a hook at the end of the session called sys.exit
            raise SystemExit(judged(leaving.code)) from leaving
        return judged(code)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; read the settings before anything runs, where there are any."""
    config.addinivalue_line(
        "markers",
        "cep(suite, categories, metrics, tolerance): which cases of a suite.toml are gated; put by "
        "itself on every test that uses cep_gate",
    )
    # Baselines may lie beside snapshots, where syrupy deletes what it finds and has not written.
    ignored = getattr(config.option, "ignore_file_extensions", None) or ()
    config.option.ignore_file_extensions = [*ignored, "toml", "jsonl"]
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        check_names(config)
    # Of a project that has baselines some may be half written.
    project = is_worker or (config.rootpath / "baselines").is_dir()
    workers = getattr(config.option, "tx", None) or getattr(config.option, "numprocesses", None)
    if project or workers or are_named(config, config.invocation_params.args):
        run_of(config)
    config.pluginmanager.register(EmptySuites(config), "cepbench_empty_suites")
    config.pluginmanager.register(fixtures, "cepbench_fixtures")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Resolve the models that were named, so that a mistake costs a second, not a night."""
    session.config.stash[BEGUN] = True
    controller = controller_of(session.config)
    if controller is not None:
        controller.begin()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: as many workers as the models that were named have room for."""
    from pytest_cepbench.plugin.controller import COUNTED
    from pytest_cepbench.plugin.options import settings_of, usage_errors
    from pytest_cepbench.plugin.workers.device_leases import count_workers

    settings = settings_of(config)
    set_by_hand = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    if set_by_hand or config.option.numprocesses == "logical" or not settings.names_models:
        return None  # xdist's own number
    with usage_errors():
        count, why = count_workers(settings)
    config.stash[COUNTED] = f"-n auto: {count}, {why}"
    return count


# -- collection ------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the cases of a suite into parameters of `cep_case`."""
    if "cep_case" in metafunc.fixturenames:
        from pytest_cepbench.plugin.collection import parametrize

        parametrize(metafunc, run_of(metafunc.config).evaluator())


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
    if cases:
        run_of(session.config).select(cases)


# -- tests -----------------------------------------------------------------------------------------
# Registered before any conftest.py, whose hooks see what these have made of a report.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the phase with a verdict that does not pass, whatever the test did with it."""
    report = yield
    run = item.config.stash.get(RUN, None)
    return report if run is None else run.records.judge(item, call, report)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, Any] | None:
    """Show the verdict in the place of PASSED and FAILED, or that a case is judged again."""
    payload = getattr(report, "cepbench", None)
    if payload is None:
        return None
    from pytest_cepbench.plugin.records import status_of

    return status_of(report, payload)


# -- the end ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None]:
    """Judge the run as a whole, accept baselines, write reports.

    After all others, who may change the exit status, and also when one of them raises.
    """
    run = session.config.stash.get(RUN, None)
    if run is None:
        return (yield)
    run.prepare_end(session, exitstatus)
    try:
        yield
    finally:
        if run.controller is not None:
            run.controller.end(session)
