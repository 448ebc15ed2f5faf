"""The hooks of xdist: of its controller, and of workers that help one another.

All of them are optional: nothing here is called where xdist is not installed or not used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin.hooks import RUN, run_of

if TYPE_CHECKING:
    from pytest_cepbench.plugin.controller import Controller
    from pytest_cepbench.plugin.workers.scheduler import CaseHint

_COUNT = "PYTEST_XDIST_AUTO_NUM_WORKERS"


def _controller(config: pytest.Config) -> Controller:
    controller = run_of(config).controller
    assert controller is not None  # workers start no workers
    return controller


# -- before workers start --------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: as many workers as the models that were named have room for."""
    from pytest_cepbench.plugin.controller import COUNTED
    from pytest_cepbench.plugin.run_settings import settings_of, usage_errors
    from pytest_cepbench.plugin.workers.device_leases import count_workers

    settings = settings_of(config)
    set_by_hand = _COUNT in os.environ or config.option.numprocesses == "logical"
    if set_by_hand or not settings.names_models:
        return None  # xdist's own number
    with usage_errors():
        count, why = count_workers(settings)
    config.stash[COUNTED] = f"-n auto: {count}, {why}"
    return count


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Lease devices and cores to workers, and watch whether the run is to stop.

    Suite files are read before a worker reads them: they are to be those of the run's start.
    """
    from pytest_cepbench.files import MOST_TEXT, read_regular
    from pytest_cepbench.plugin.empty_suites import walk
    from pytest_cepbench.plugin.workers.device_leases import concerns, places

    controller = _controller(config)
    settings = controller.settings
    if concerns(config, settings):
        from hashlib import sha256

        read = settings.digest
        for folder, names in (found for place in places(config) for found in walk(config, place)):
            if folder.is_relative_to(settings.baselines):
                continue
            for path in ((folder / name).resolve() for name in names if name.endswith(".toml")):
                with suppress(OSError):  # whoever needs it says what is wrong with it
                    read[str(path)] = sha256(read_regular(path, MOST_TEXT)).hexdigest()
        controller.ledger.note_inputs(read, "the controller")
    for spec, variables in zip(
        specs, () if controller.leases is None else controller.leases.variables, strict=False
    ):
        spec.env.update(variables)
    config.pluginmanager.register(StopSignal(config), "cepbench_stop")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which run it belongs to."""
    controller = _controller(node.config)
    sent = node.workerinput
    sent["cepbench_run"] = controller.context.run_id
    sent["cepbench_started"] = controller.context.started
    sent["cepbench_models"] = controller.identities
    if controller.leases is not None and controller.leases.variables:
        from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS

        sent["cepbench_unleased"] = {
            name: os.environ[name] for name in (*DEVICE_VARIABLES, THREADS) if name in os.environ
        }


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> Any:
    """Schedule cases by what they need, in runs that gate models."""
    controller = run_of(config).controller
    if controller is None or config.getoption("dist") != "load":
        return None  # another scheduler is the engineer's choice
    from pytest_cepbench.plugin.workers.device_leases import concerns

    if not concerns(config, controller.settings):
        return None
    from pytest_cepbench.plugin.workers.scheduler import CaseScheduling, read_hints

    def hints(nodeids: Sequence[str]) -> list[CaseHint]:
        known = read_hints(controller.context.folder, nodeids)
        # Also cases outside a suite's folder, which no id gives away.
        pairs = zip(nodeids, known, strict=True)
        controller.ledger.expect({nodeid: None for nodeid, hint in pairs if hint.models})
        return known

    scheduler = CaseScheduling(config, hints)
    config.pluginmanager.register(scheduler, "cepbench_scheduler")
    return scheduler


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """Enter what a worker collected in the ledger."""
    from pytest_cepbench.evaluation.run_context import UNKNOWN_NAME

    controller = _controller(node.config)
    mistake = controller.context.folder / UNKNOWN_NAME
    if mistake.exists():
        controller.remove_reports()
        raise pytest.UsageError(mistake.read_text())
    controller.ledger.expect_collected(ids)
    if controller.ledger.expected:
        from pytest_cepbench.plugin.run_settings import refuse_modes
        from pytest_cepbench.plugin.terminal import live

        controller.remove_reports()
        refuse_modes(node.config)
        run_of(node.config).show_progress(lambda: live.read_lines(controller.context.folder))


# -- while they work -------------------------------------------------------------------------------


class StopSignal:
    """Passes on to helping workers that the run is to stop: xdist tells them nothing but tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logfinish(self) -> None:
        """After each test; xdist decides about `-x` and `--maxfail` just before."""
        if getattr(self.config.pluginmanager.getplugin("dsession"), "shouldstop", False):
            self.write()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Before xdist ends its workers, which may still help when the run was interrupted."""
        self.write()

    def write(self) -> None:
        """Write the message, where the run has a folder."""
        from pytest_cepbench.evaluation.run_context import CASES, STOP, write_message

        folder = _controller(self.config).context.folder
        if folder.exists() and not (folder / STOP).exists():
            try:
                write_message(folder, STOP, "")
            except OSError:  # a full disk: a name can be changed there still
                with suppress(OSError):
                    (folder / CASES).rename(folder / STOP)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """A worker that has no test left helps those that have: they share the chains of all cases."""
    result = yield
    if hasattr(session.config, "workerinput") and not (session.shouldfail or session.shouldstop):
        run = session.config.stash.get(RUN, None)
        evaluator = None if run is None else run.used_evaluator
        if evaluator is not None and evaluator.assigned:
            from pytest_cepbench.evaluation.work_stealing import help_others

            help_others(evaluator)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """A worker ended, with what it did beside its cases, or died."""
    controller = _controller(node.config)
    if error:
        from pytest_cepbench.plugin.terminal import live

        controller.crashes.note(node, error)
        live.forget(controller.context.folder, node.gateway.id)
    else:
        controller.record_worker(getattr(node, "workeroutput", {}).get("cepbench"))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Have the case judged again that a worker died over."""
    _controller(report.node.config).crashes.settle(crashitem, report, sched)
