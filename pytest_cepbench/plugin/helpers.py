"""Processes beside pytest's own that grow chains for it, where models are small and on the CPU.

Small models gain nothing from a second thread: an operation takes microseconds, and threads wait for
one another after each. A second process with models of its own, which takes shards that nobody has as
xdist's workers do, keeps a second core busy, and waits for nobody. Whatever it stores, this process
would have stored: the same shards, in the same batches. It judges nothing.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_cepbench.errors import CepError
from pytest_cepbench.models.system_limits import free_memory, usable_cores
from pytest_cepbench.models.torch_runtime import set_threads, threads_said
from pytest_cepbench.plugin.workers.model_identity import identities_of
from pytest_cepbench.plugin.workers.run_dir import make_folder
from pytest_cepbench.report import UsageTotals
from pytest_cepbench.suites.estimate import forecast

if TYPE_CHECKING:
    from pytest_cepbench.plugin.evaluator import Evaluator
    from pytest_cepbench.plugin.run_settings import RunSettings
    from pytest_cepbench.suites import Case

MOST_PROCESSES = 4
"""This one included. Each imports torch, and has threads of its own."""

_WORTH = 1000  # model inputs: fewer are done by the time that another process has imported torch

_MEMORY = 2 << 30  # bytes that a process with torch and small models may take

_LEAVE = 10.0  # seconds for a helper to leave off


@dataclass(frozen=True)
class HelperTask:
    """What a helper is told.

    settings, run_id, started: of the run. processes: how many work on it. name: of this one. needed:
    the cases of the run: suite file, case, and how many samples of each category are looked at. models:
    as `identities_of` says them; a helper that finds others does nothing.
    """

    settings: RunSettings
    run_id: str
    started: float
    processes: int
    name: str
    needed: tuple[tuple[Path, Case, int | None], ...]
    models: Mapping[str, str]


class HelperReport(msgspec.Struct):
    """What a helper says when it leaves. remarks: on memory and models. damage: found in the store."""

    effort: UsageTotals
    remarks: list[str]
    damage: list[str]


class Helpers:
    """The helpers of one process; none until its first model is about to be loaded.

    efforts: what they did, known when they have left. lines: what happened to them and was made good.
    """

    def __init__(self, process: Evaluator) -> None:
        self._process = process
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.efforts: list[UsageTotals] = []
        self.lines: list[str] = []

    def begin(self) -> None:
        """Start as many as are wanted, and give each, this one included, its part of the cores."""
        process = self._process
        count = self._wanted()
        if not count:
            return
        make_folder(process.settings.home, process.folder)
        process.work.processes = count + 1
        for number in range(1, count + 1):
            self._start(f"helper{number}", count + 1)
        if not threads_said():
            set_threads(max(1, usable_cores() // (count + 1)))

    def _wanted(self) -> int:
        process = self._process
        asked = process.settings.helpers
        # Workers of xdist help one another, and a test of the user may ask a model before any case.
        if asked == 0 or process.is_worker or "work" not in process.__dict__:
            return 0
        if asked is None:
            return self._worthwhile()
        return asked

    def _worthwhile(self) -> int:
        """How many pay, where nobody said."""
        settings = self._process.settings
        memory = free_memory()
        most = min(usable_cores(), MOST_PROCESSES) - 1
        if memory is not None:
            most = min(most, memory // _MEMORY)
        # A user who says how many threads there may be means this process. Uploads are the slower part
        # of a run that publishes.
        if most < 1 or threads_said() or settings.publish or settings.residency == "swap":
            return 0
        try:
            return most if self._all_small() and self._missing() >= _WORTH else 0
        except CepError:  # the case that meets it says so
            return 0

    def _all_small(self) -> bool:
        process = self._process
        for path in dict.fromkeys(one.suite_file for one in process.assigned.values()):
            lineup = process.suites.get(path).lineup
            if lineup.replay is not None:
                return False
            for seat in lineup.seats.values():
                bound = process.roster.runner(seat).bound
                if not (bound.small or seat.spec.scheme == "shapes"):
                    return False
        return True

    def _missing(self) -> int:
        """Model inputs whose results the store lacks."""
        needed: dict[Path, list[tuple[Case, int | None]]] = {}
        for path, case, most in self._process.work.needed:
            needed.setdefault(path, []).append((case, most))
        return sum(
            need.inputs
            for path, cases in needed.items()
            for need in forecast(self._process.run(path), cases).needs
        )

    def _start(self, name: str, processes: int) -> None:
        process = self._process
        order = HelperTask(
            settings=replace(process.settings, helpers=0),
            run_id=process.run_id,
            started=process.started,
            processes=processes,
            name=name,
            needed=tuple(process.work.needed),
            models=identities_of(runner.bound for runner in process.runners),
        )
        # What the user's conftest put on the path is found there as well.
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        with self._log(name).open("wb") as log, suppress(OSError):  # then there is one process less
            helper = subprocess.Popen(
                [sys.executable, "-m", "pytest_cepbench.plugin.helper_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C is for this process, which ends the helper
            )
            self._running[name] = helper
            assert helper.stdin is not None
            helper.stdin.write(pickle.dumps(order))
            helper.stdin.flush()

    def _log(self, name: str) -> Path:
        return self._process.folder / f"{name}.log"

    def close(self) -> None:
        """Have them leave off, in the middle of what they are at, and hear what they did."""
        running, self._running = self._running, {}
        for helper in running.values():
            assert helper.stdin is not None
            with suppress(OSError):  # it has left
                helper.stdin.close()
        until = time.monotonic() + _LEAVE
        for name, helper in running.items():
            self._hear(name, helper, max(0.1, until - time.monotonic()))

    def _hear(self, name: str, helper: subprocess.Popen[bytes], seconds: float) -> None:
        helper.stdin = None  # it is closed, and `communicate` would flush it
        try:
            output, _ = helper.communicate(timeout=seconds)
            told = msgspec.json.decode(output, type=HelperReport)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.communicate()
            return  # what it stored is there; what it was at is given back with it
        except msgspec.MsgspecError:
            code = helper.returncode
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            said = " ".join(self._last_line(name))
            self.lines.append(
                f"{name}, a process that grew chains beside this one, died ({how}){said}; its work was "
                "done here. --cep-helpers=0 starts none"
            )
            return
        self.efforts.append(told.effort)
        self.lines += told.remarks
        self._process.store.damage.extend(told.damage)

    def _last_line(self, name: str) -> Iterator[str]:
        with suppress(OSError):
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            if last:
                yield f": {last[:300]}"
