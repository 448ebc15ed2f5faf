"""The outcome of a run: what everything after its last test reads, made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cepbench.evaluation.run_result import nothing_compared, run_verdict

if TYPE_CHECKING:
    from pytest_cepbench.gate.acceptance import Change
    from pytest_cepbench.report import CaseResult, UsageTotals

Code = int | str | None
"""An exit code, as `sys.exit` takes it."""

Acceptance = Literal["not asked", "written", "unchanged", "refused", "unwritten"]
"""What became of baselines. refused: the run gave a reason to accept none. unwritten: they could
not be written, which is one of its problems."""


@dataclass(frozen=True)
class RunOutcome:
    """A run that has ended.

    results: the judged cases, in the order of collection.
    problems: why the run is incomplete; empty when it is complete.
    skipped: node id -> why its case was not judged.
    remarks: on how cases were judged, for the whole run.
    infrastructure: what went wrong with machines and was made good, a sentence each.
    usage: of the run's processes outside of cases.
    setup: the model under test and what it is compared with, in full.
    code: the exit code of the session.
    headline: the run in one sentence.
    acceptance: whether baselines were accepted.
    changes: the baselines that were.
    written: paths of the reports.
    unreported: why there are no reports.
    unrecorded: why the run is not in the history.
    unsent: on files for a CI service that could not be written.
    """

    results: tuple[CaseResult, ...]
    problems: tuple[str, ...]
    skipped: Mapping[str, str]
    remarks: tuple[str, ...]
    infrastructure: tuple[str, ...]
    usage: tuple[UsageTotals, ...]
    setup: tuple[str, ...]
    code: Code
    headline: str = ""
    acceptance: Acceptance = "not asked"
    changes: tuple[Change, ...] = ()
    written: tuple[Path, ...] = ()
    unreported: str | None = None
    unrecorded: str | None = None
    unsent: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Of the whole run: passed, undecided, failed, or incomplete."""
        return run_verdict(self.results, self.problems)

    @property
    def nothing_compared(self) -> bool:
        """Whether there were cases and none could have failed: all skipped or informational."""
        return nothing_compared(self.results, self.skipped)

    @property
    def page(self) -> Path | None:
        """The HTML page, where it was written."""
        return next((path for path in self.written if path.suffix == ".html"), None)
