"""Helper processes that grow chains for a run, where models are small and on the CPU.

Small models gain nothing from a second thread: an operation takes microseconds, and threads wait
for one another after each. A second process with models of its own, which takes shards that no
process has as xdist's workers do, keeps a second core busy and waits for nothing. Whatever it
stores, this process would have stored: the same shards, in the same batches. It judges nothing.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.evaluation.suite_cache import SuiteCache
from pytest_cepbench.models.devices import free_memory, usable_cores
from pytest_cepbench.models.torch_runtime import set_threads, threads_set_by_user
from pytest_cepbench.report import UsageTotals
from pytest_cepbench.suites import Case, ModelPool, SuiteRun
from pytest_cepbench.suites.shards import WorkQueue

MOST_PROCESSES = 4
"""Processes of a run, the first one included. Each imports torch, and has threads of its own."""

_WORTH = 1000  # model inputs: fewer are done by the time that another process has imported torch

_MEMORY = 2 << 30  # bytes that a process with torch and small models may take

_PATIENCE = 10.0  # seconds for a helper to end

NeededCase = tuple[Path, Case, int | None]
"""A suite file, a case of it, and how many samples of each category are looked at; None: all."""


@dataclass(frozen=True)
class HelperTask:
    """The work of a helper process.

    context: the run, as the helper knows it.
    needed: the cases of the run.
    models: as `identities_of` gives them; a helper that finds other models does nothing.
    """

    context: RunContext
    needed: tuple[NeededCase, ...]
    models: Mapping[str, str]


class HelperReport(msgspec.Struct):
    """What a helper process did.

    effort: usage of its models.
    remarks: on memory and models.
    damage: broken entries that it found in the store.
    """

    effort: UsageTotals
    remarks: list[str]
    damage: list[str]


def count_helpers(
    settings: RunSettings,
    suites: SuiteCache,
    models: ModelPool,
    shards: WorkQueue,
    suite_run: Callable[[Path], SuiteRun],
) -> int:
    """How many helper processes to start: as many as the settings say, else as many as pay.

    shards: knows the cases of the run.
    suite_run: gives the measuring of a suite.
    """
    if settings.helpers is not None:
        return settings.helpers
    cores, memory = usable_cores(), free_memory()
    # Inputs are counted last: that takes a look at every step of the run. A number of threads that
    # the engineer set means this process. Uploads are the slower part of a run that publishes.
    if (
        helpers_that_pay(cores, memory, sys.maxsize) == 0
        or threads_set_by_user()
        or settings.publish
        or settings.residency == "swap"
    ):
        return 0
    cases: dict[Path, list[tuple[Case, int | None]]] = {}
    for path, case, samples in shards.cases:
        cases.setdefault(path, []).append((case, samples))
    try:
        for path in cases:
            assignments = suites.get(path).assignments
            small = assignments.replay is None and all(
                models.runner(each).bound.resources.small or each.spec.scheme in ("shapes", "tones")
                for each in assignments.roles.values()
            )
            if not small:  # or not on the CPU
                return 0
        inputs = sum(
            need.inputs
            for path, needed in cases.items()
            for need in suite_run(path).forecast(needed).needs
        )
    except CepError:  # the case that meets it reports it
        return 0
    return helpers_that_pay(cores, memory, inputs)


def helpers_that_pay(cores: int, memory: int | None, inputs: int) -> int:
    """How many helper processes save more time than they cost, where models are small: 0 to 3.

    cores: that this process may keep busy; one of them is its own.
    memory: free bytes; None where the system does not say.
    inputs: that models are still to be given in this run.
    """
    if inputs < _WORTH:
        return 0
    most = min(cores, MOST_PROCESSES) - 1
    return most if memory is None else min(most, memory // _MEMORY)


class HelperProcesses:
    """The helper processes of one process; none until its first model is about to be loaded.

    usage: of their models, known when they have ended.
    messages: what happened to them and was made good, a sentence each.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.usage: list[UsageTotals] = []
        self.messages: list[str] = []

    def start(self, count: int, needed: Sequence[NeededCase], models: Mapping[str, str]) -> None:
        """Start helpers, and give each process, this one included, its part of the cores.

        needed, models: as in `HelperTask`.
        """
        self._context.make_folder()
        for number in range(1, count + 1):
            context = replace(
                self._context,
                settings=replace(self._context.settings, helpers=0),
                workers=count + 1,
                worker=f"helper{number}",
            )
            task = HelperTask(context, tuple(needed), models)
            name = task.context.worker
            # Modules that a conftest.py put on the path are found there as well.
            paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
            with (
                self._log(name).open("wb") as log,
                suppress(OSError),
            ):  # then there is one process less
                helper = subprocess.Popen(
                    [sys.executable, "-m", "pytest_cepbench.evaluation.work_stealing"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": paths},
                    start_new_session=True,  # Ctrl-C is for this process, which ends the helper
                )
                self._running[name] = helper
                assert helper.stdin is not None
                helper.stdin.write(pickle.dumps(task))
                helper.stdin.flush()
        if not threads_set_by_user():
            set_threads(max(1, usable_cores() // (count + 1)))

    def close(self) -> list[HelperReport]:
        """End the helpers, in the middle of a batch if need be; returns their reports."""
        running, self._running = self._running, {}
        for helper in running.values():
            assert helper.stdin is not None
            with suppress(OSError):  # it has ended
                helper.stdin.close()
        until = time.monotonic() + _PATIENCE
        reports = [
            self._end(name, helper, max(0.1, until - time.monotonic()))
            for name, helper in running.items()
        ]
        return [report for report in reports if report is not None]

    def _end(
        self, name: str, helper: subprocess.Popen[bytes], seconds: float
    ) -> HelperReport | None:
        helper.stdin = None  # it is closed, and `communicate` would flush it
        try:
            output, _ = helper.communicate(timeout=seconds)
            report = msgspec.json.decode(output, type=HelperReport)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.communicate()
            return None  # what it stored is there, and its locks ended with it
        except msgspec.MsgspecError:
            code = helper.returncode
            last = ""
            with suppress(OSError):
                log = self._log(name).read_text(encoding="utf-8", errors="replace")
                lines = [line for line in log.split("\n") if line.strip()]
                last = f": {lines[-1]}" if lines else ""
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            self.messages.append(
                f"{name}, a process that grew chains beside this one, died ({how})"
                f"{last[:302]}; its work was done here. --cep-helpers=0 starts none"
            )
            return None
        self.usage.append(report.effort)
        self.messages += report.remarks
        return report

    def _log(self, name: str) -> Path:
        return self._context.folder / f"{name}.log"
