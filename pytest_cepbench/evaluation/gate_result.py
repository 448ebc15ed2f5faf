"""The result of `gate_checkpoint`: verdicts that print, and tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.run_result import (
    NOTHING_COMPARED,
    exit_code,
    nothing_compared,
    run_verdict,
    unmeasured_lines,
)
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.case_table import HEADS, cells_of
from pytest_cepbench.report.text import (
    explain,
    promise_lines,
    refusal_lines,
    summary_table,
    warning_lines,
)

_COLUMNS = (
    "suite", "part", "metric", "verdict", "passes", "primary", "value", "baseline", "difference",
    "low", "high", "tolerance", "alpha", "gate", "n", "units", "visible", "floor",
)  # fmt: skip


@dataclass(frozen=True)
class GateResult:
    """The verdicts of one checkpoint.

    cases: the judged cases, in the order of their suites.
    skipped: suite -> why none of its cases was judged.
    problems: why the run is incomplete; empty when it is complete.
    infrastructure: what went wrong with machines and was made good.
    reports: paths of the reports that were written.
    changed: paths of the baselines that were written.
    """

    cases: tuple[CaseResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    infrastructure: tuple[str, ...] = ()
    reports: tuple[Path, ...] = ()
    changed: tuple[Path, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything was measured that was asked for, and no case fails."""
        return self.exit_code == 0

    @property
    def verdict(self) -> str:
        """Of the whole run: passed, failed, or incomplete."""
        if nothing_compared(self.cases, self.skipped):
            return "incomplete"
        return run_verdict(self.cases, self.problems)

    @property
    def exit_code(self) -> int:
        """The exit code that pytest ends such a run with; 0 only where it passed."""
        code = exit_code(self.cases, lambda: self.problems)
        if code == 0 and (not self.cases or nothing_compared(self.cases, self.skipped)):
            return NOTHING_COMPARED
        return code

    def __getitem__(self, case: str) -> CaseResult:
        """A case by its name, `suite/part/metric`. Raises KeyError."""
        for result in self.cases:
            if f"{result.suite}/{result.part}/{result.metric}" == case:
                return result
        raise KeyError(case)

    def __str__(self) -> str:
        """The table of verdicts, and why each failing case fails."""
        return "\n".join(map(visible, self._lines()))

    def _lines(self) -> Iterator[str]:
        if self.cases:
            yield from (line for line, _ in summary_table(self.cases))
            yield from promise_lines(self.cases)
            yield from (f"warning: {line}" for line in warning_lines(self.cases))
            yield from (f"refused: {line}" for line in refusal_lines(self.cases))
            yield from (f"informational: {line}" for line in unmeasured_lines(self.cases))
        yield from self._notes()
        for result in self.cases:
            if not result.passes:
                yield ""
                yield from explain(result).splitlines()

    def _notes(self) -> Iterator[str]:
        """The run as a whole, below its table."""
        for suite, reason in self.skipped.items():
            yield f"skipped: {suite}: {reason}"
        yield from (f"infrastructure: {line}" for line in self.infrastructure)
        yield from (f"INCOMPLETE: {problem}" for problem in self.problems)
        yield f"verdict: {self.verdict}"

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row per case. Raises MissingDependencyError without pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            msg = "GateResult.to_frame() needs the package pandas: pip install pandas"
            raise MissingDependencyError(msg) from error
        rows = [{name: getattr(case, name) for name in _COLUMNS} for case in self.cases]
        return pandas.DataFrame(rows, columns=list(_COLUMNS))

    def _repr_html_(self) -> str:
        """The table of verdicts for notebooks."""
        heads = "".join(f"<th>{escape(head)}</th>" for head in HEADS)
        rows = "".join(
            f"<tr>{''.join(f'<td{_style(result, place)}>{_shown(cell)}</td>' for place, cell in enumerate(cells_of(result)))}</tr>"
            for result in self.cases
        )
        notes = "".join(f"<div>{_shown(line)}</div>" for line in self._notes())
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _style(result: CaseResult, place: int) -> str:
    """Attributes of a cell: the verdict, which comes first, has the color of its meaning."""
    if place:
        return ""
    color = "green" if result.accepted else result.presentation.color
    return f' style="color: {"darkgoldenrod" if color == "yellow" else color}"'


def _shown(text: Any) -> str:
    return escape(visible(str(text)))
