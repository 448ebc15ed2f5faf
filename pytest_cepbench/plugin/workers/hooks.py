"""The hooks of a run on several workers, on xdist's controller and in its workers.

All of them are optional: nothing here is called where xdist is not installed or not used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.evaluation.run_context import CASES, STOP, UNKNOWN_NAME, write_message
from pytest_cepbench.plugin.controller import CONTROLLER, Controller, publishing_seconds
from pytest_cepbench.plugin.empty_suites import digest_files
from pytest_cepbench.plugin.fixtures import EVALUATOR
from pytest_cepbench.plugin.ledger import RETRIED
from pytest_cepbench.plugin.records import to_wire
from pytest_cepbench.plugin.run_settings import refuse_modes, settings_of, usage_errors
from pytest_cepbench.plugin.versions import colored

if TYPE_CHECKING:
    from pytest_cepbench.plugin.workers.device_leases import Leases

_LEASES: pytest.StashKey[Leases] = pytest.StashKey()
_COUNTED = pytest.StashKey[str]()

_COUNT = "PYTEST_XDIST_AUTO_NUM_WORKERS"


# -- before workers start --------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: as many workers as the models that were named have room for."""
    from pytest_cepbench.plugin.workers.device_leases import count_workers

    settings = settings_of(config)
    set_by_hand = _COUNT in os.environ or config.option.numprocesses == "logical"
    if set_by_hand or not settings.names_models:
        return None  # xdist's own number
    with usage_errors():
        count, why = count_workers(settings)
    config.stash[_COUNTED] = f"-n auto: {count}, {why}"
    return count


def pytest_sessionstart(session: pytest.Session) -> None:
    """Lease devices and cores: in time for the header, after wrong specs were reported."""
    config = session.config
    controller = config.stash.get(CONTROLLER, None)
    if controller is not None and config.getoption("tx", None):
        from pytest_cepbench.plugin.workers.device_leases import plan_leases

        with usage_errors():
            config.stash[_LEASES] = plan_leases(config, controller.settings)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how many workers there are and why, and the device of each."""
    leases = config.stash.get(_LEASES, None)
    counted = [config.stash[_COUNTED]] if _COUNTED in config.stash else []
    leased = () if leases is None else leases.lines
    return [f"cepbench: {line}" for line in (*counted, *leased)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Lease devices and cores to workers, and watch whether the run is to stop.

    Suite files are read before a worker reads them: they are to be those of the run's start.
    """
    from pytest_cepbench.plugin.workers.device_leases import concerns, places

    controller = config.stash[CONTROLLER]
    if concerns(config, controller.settings):
        files = controller.settings.digest
        for place in places(config):
            files.update(digest_files(config, place, controller.settings.baselines))
        controller.ledger.note_inputs(files, "the controller")
    leases = config.stash.get(_LEASES, None)
    if leases is not None:
        from pytest_cepbench.plugin.workers.device_leases import apply_leases

        apply_leases(leases, specs)
    config.pluginmanager.register(StopSignal(config), "cepbench_stop")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which run it belongs to."""
    controller = node.config.stash[CONTROLLER]
    node.workerinput["cepbench_run"] = controller.context.run_id
    node.workerinput["cepbench_started"] = controller.context.started
    node.workerinput["cepbench_models"] = controller.identities
    leases = node.config.stash.get(_LEASES, None)
    if leases is not None and leases.variables:
        from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS

        node.workerinput["cepbench_unleased"] = {
            name: os.environ[name] for name in (*DEVICE_VARIABLES, THREADS) if name in os.environ
        }
    node.workerinput["cepbench_progress"] = _progress_pause(node.config, controller)


def _progress_pause(config: pytest.Config, controller: Controller) -> float | None:
    """Seconds between two looks at the progress of a worker; None where no one looks."""
    from pytest_cepbench.plugin.terminal import live

    if live.is_wanted(config):
        return live.PAUSE
    return None if controller.settings.history is None else live.STATUS_PAUSE


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> Any:
    """Schedule cases by what they need, in runs that gate models."""
    controller = config.stash.get(CONTROLLER, None)
    if controller is None or config.getoption("dist") != "load":
        return None  # another scheduler is the engineer's choice
    from pytest_cepbench.plugin.workers.device_leases import concerns

    if not concerns(config, controller.settings):
        return None
    from pytest_cepbench.plugin.workers.scheduler import CaseHint, CaseScheduling, read_hints

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
    controller = node.config.stash[CONTROLLER]
    mistake = controller.context.folder / UNKNOWN_NAME
    if mistake.exists():
        controller.remove_reports()
        raise pytest.UsageError(mistake.read_text())
    controller.ledger.expect_collected(ids)
    if controller.ledger.expected:
        controller.remove_reports()
        refuse_modes(node.config)
        from pytest_cepbench.plugin.terminal import live

        def snapshots() -> list[live.ProgressSnapshot]:
            return live.read_snapshots(controller.context.folder)

        live.show(node.config, snapshots)
        if controller.settings.history is not None:
            from pytest_cepbench.plugin.run_status import write_status

            write_status(node.config, controller, snapshots)


# -- while they work -------------------------------------------------------------------------------


@dataclass(eq=False)
class StopSignal:
    """Passes on to helping workers that the run is to stop: xdist tells them nothing but tests."""

    config: pytest.Config

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
        folder = self.config.stash[CONTROLLER].context.folder
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
        evaluator = session.config.stash.get(EVALUATOR, None)
        if evaluator is not None and evaluator.assigned:
            from pytest_cepbench.evaluation.work_stealing import help_others

            help_others(evaluator)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """A worker ended, with what it did beside its cases, or died."""
    controller = node.config.stash[CONTROLLER]
    if error:
        from pytest_cepbench.plugin.terminal import live

        controller.crashes.note(node, error)
        live.forget(controller.context.folder, node.gateway.id)
    else:
        controller.record_worker(getattr(node, "workeroutput", {}).get("cepbench"))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Have the case judged again that a worker died over."""
    controller = report.node.config.stash[CONTROLLER]
    controller.crashes.settle(crashitem, report, sched)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, Any] | None:
    """Show that a case is judged again."""
    if getattr(report, "cepbench", None) != RETRIED:
        return None
    return "rerun", "R", colored("RERUN", "yellow")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker, send what was done outside of cases; it is lost where the worker dies."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    evaluator = session.config.stash.get(EVALUATOR, None)
    if output is not None and evaluator is not None:
        import msgspec

        unpublished = evaluator.publish(publishing_seconds(session), None)
        sent = {
            "effort": msgspec.to_builtins(evaluator.background_usage),
            "remarks": [*evaluator.drain_messages(), *unpublished],
        }
        output["cepbench"] = to_wire(sent)
