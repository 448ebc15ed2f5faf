"""Workers that died, and the tests that they died over.

A worker's death says nothing of the model: memory ran out, a driver failed, a signal killed it. So
the case that it judged is judged once more, and the death is reported as infrastructure.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGKILL, Signals
from subprocess import TimeoutExpired
from typing import Any

import pytest

from pytest_cepbench.plugin.ledger import RETRIED, Ledger

_PATIENCE = 2.0  # seconds between a worker's last message and the end of its process


@dataclass
class Crash:
    """The death of a worker.

    worker: its name.
    how: as far as the system tells.
    fate: of the test that it died over, where that is known at once.
    retried: the case that was to be judged again.
    """

    worker: str
    how: str
    fate: str = "between tests; nothing was lost"
    retried: str | None = None


@dataclass(eq=False)
class CrashLog:
    """The workers of one run that died, in their order. retried: ids of cases judged again."""

    ledger: Ledger
    all: list[Crash] = field(default_factory=list)
    retried: set[str] = field(default_factory=set)
    _over: Counter[str] = field(default_factory=Counter)

    def note(self, node: Any, error: object) -> None:
        """Enter a worker that ended without saying why. node: xdist's controller of it."""
        if error == "keyboard-interrupt":
            self.ledger.fail(f"worker {node.gateway.id} was interrupted")
            return
        how, process = str(error), getattr(getattr(node.gateway, "_io", None), "popen", None)
        if process is not None:  # it ran on this machine
            with suppress(TimeoutExpired):
                how = explain_exit(process.wait(_PATIENCE))
        self.all.append(Crash(node.gateway.id, how))

    def settle(self, nodeid: str, report: pytest.TestReport, sched: Any) -> None:
        """Decide about the test that the last worker died over; changes xdist's report of it.

        A case is judged again once. Tests that are no cases fail, as ever under xdist.
        """
        # xdist's own scheduler for scopes cannot be asked to deal a test again.
        from pytest_cepbench.plugin.workers.scheduler import CaseScheduling

        worker = report.node.gateway.id
        crash = next((crash for crash in self.all if crash.worker == worker), None)
        if crash is None:  # interrupted, which makes the run incomplete
            return
        if nodeid not in self.ledger.expected:
            crash.fate = f"while it ran {nodeid}, which counts as failed"
        elif nodeid in self.ledger.judged:
            crash.fate = f"after it had judged {nodeid}; nothing was lost"
            # Its result came; what is missing is the end of its teardown, and the failure of none.
            report.when, report.outcome, report.longrepr = "teardown", "passed", None
        elif self._over[nodeid] or not isinstance(sched, CaseScheduling):
            crash.fate = f"while it judged {nodeid}; not judged again"
            before = ", and one before it" if self._over[nodeid] else ""
            self.ledger.fail(f"{nodeid} was not judged: a worker died over it{before}")
        else:
            crash.retried = nodeid
            self.retried.add(nodeid)
            sched.mark_test_pending(nodeid)
            report.outcome = "rerun"  # type: ignore[assignment] # the word that xdist documents
            report.cepbench = RETRIED  # type: ignore[attr-defined]
        self._over[nodeid] += 1

    def lines(self) -> list[str]:
        """A sentence for each death; to be asked at the end of the run, when retries are over."""
        lines = []
        for crash in self.all:
            fate, nodeid = crash.fate, crash.retried
            if nodeid is not None:
                begun = nodeid in self.ledger.judged or self._over[nodeid] > 1
                again = "retried alone" if begun else "not judged again"
                fate = f"while it judged {nodeid}; {again}"
            lines.append(f"worker {crash.worker} died ({crash.how}) {fate}")
        return lines


def explain_exit(code: int) -> str:
    """How a process ended, in words. code: its exit code, or minus the signal that killed it."""
    if code >= 0:
        return f"it exited with code {code}"
    name = Signals(-code).name if -code in set(Signals) else "unknown"
    why = ", as the kernel does when memory runs out" if -code == SIGKILL else f", {name}"
    return f"killed by signal {-code}{why}"
