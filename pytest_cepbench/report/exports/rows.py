"""A run as exporters are given it: its rows as tables, and its numbers for trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.errors import SpecError
from pytest_cepbench.report.chain_pairs import SampleValue, sample_values
from pytest_cepbench.report.result import CaseResult

_OUTCOMES = {"passed": 1, "undecided": 0, "regressed": -1, "unknown": -2}

_VERDICTS = {"improved": 2, "held": 1, "inconclusive": 0, "regressed": -1}

_UNKNOWN = -2  # nothing is known of the checkpoint


@dataclass(frozen=True)
class ExportedRun:
    """The report of a run, and what the user says of it.

    name: of the run, for trackers and files.
    source: path of the report.
    verdict: of the run: passed, undecided, failed, or incomplete.
    problems: why it is incomplete.
    cases: judged ones, in order, and the verdicts of whole suites, which have no value.
    step: of the training.
    dataset: id of a benchmark on the Hugging Face Hub; empty where none was named.
    rows: what a row of a table is: `cases` or `samples`.
    """

    name: str
    source: str
    verdict: str
    problems: tuple[str, ...]
    cases: tuple[CaseResult, ...]
    step: int = 0
    dataset: str = ""
    rows: str = "cases"

    @property
    def model(self) -> str:
        """Spec of the model under test, as far as a case names it."""
        return next((case.model["spec"] for case in self.cases if "spec" in case.model), self.name)

    @property
    def measured(self) -> tuple[CaseResult, ...]:
        """The cases that have a value. Raises SpecError for an incomplete run, and for none.

        For formats that have no place for a verdict: what they hold is taken for a measurement.
        """
        if self.verdict == "incomplete":
            why = "; ".join(self.problems) or "no case was judged"
            raise SpecError(f"the run of {self.source} is incomplete ({why}): run it again")
        cases = tuple(case for case in self.cases if case.value is not None)
        if not cases:
            raise SpecError(f"no case of {self.source} was measured: run it again")
        return cases


def table_row(
    run: ExportedRun, case: CaseResult, columns: Iterable[str], own: Mapping[str, Any]
) -> dict[str, Any]:
    """A row about a case: facts of the run, what is the row's own, and else fields of the case."""
    known = {
        "run": run.name,
        "run_verdict": run.verdict,
        "step": run.step,
        "model": run.model,
        **own,
    }
    return {name: known[name] if name in known else getattr(case, name) for name in columns}


def tracked_values(run: ExportedRun) -> dict[str, float | str]:
    """What trackers are given of a run, by the names that gates in a training log.

    `cepbench/outcome`: 1 passed, 0 inconclusive, -1 regressed, -2 not measured. Of each case that
    can fail a run, below `cepbench/SUITE/PART/METRIC/`: its numbers, where they are known, and
    `verdict`: 2 improved, 1 held, 0 inconclusive, -1 regressed, -2 not measured.
    """
    values: dict[str, float | str] = {
        "cepbench/outcome": _OUTCOMES[_outcome(run)],
        "cepbench/verdict": run.verdict,
        "cepbench/report": run.source,
        "cepbench/model": run.model,
    }
    for case in run.cases:
        if not case.primary:
            continue
        name = f"cepbench/{case.suite}/{case.part}/{case.metric}"
        for field in ("value", "baseline", "difference", "low", "high"):
            number = getattr(case, field)
            if number is not None:
                values[f"{name}/{field}"] = number
        if case.verdict != "no-baseline":  # of the first checkpoint, compared with nothing
            values[f"{name}/verdict"] = _VERDICTS.get(case.verdict, _UNKNOWN)
    return values


def _outcome(run: ExportedRun) -> str:
    if run.verdict == "incomplete":
        return "unknown"
    failing = [case for case in run.cases if not case.passes]
    verdicts = {case.verdict for case in failing}
    if run.verdict in ("passed", "undecided"):
        gating = {case.verdict for case in run.cases if case.gates}
        return "undecided" if "inconclusive" in gating else "passed"
    if "regressed" in verdicts and max(case.presentation.exit_code for case in failing) == 1:
        return "regressed"
    return "undecided" if verdicts == {"inconclusive"} else "unknown"


COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str,
    "verdict": str, "accepted": bool, "passes": bool, "primary": bool, "higher_is_better": bool,
    "value": float, "baseline": float, "difference": float, "p": float, "low": float, "high": float,
    "method": str, "tolerance": float, "alpha": float, "gate": str, "n": int, "units": int,
    "visible": float, "floor": float, "anchor": float, "reasons": str, "nodeid": str,
}  # fmt: skip
"""Column -> its type; docs/exports.md says what each is. None stands for what is not known."""


def case_rows(run: ExportedRun) -> list[dict[str, Any]]:
    """A row for each case, with every column."""
    return [_case_row(run, case) for case in run.cases]


def _case_row(run: ExportedRun, case: CaseResult) -> dict[str, Any]:
    own = {
        "anchor": None if case.anchor is None else case.anchor.value,
        "reasons": "; ".join(case.reasons),
    }
    return table_row(run, case, COLUMNS, own)


SAMPLE_COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str, "higher_is_better": bool,
    "sample": str, "categories": str,
    "value": float, "baseline": float, "difference": float, "reference": str,
}  # fmt: skip
"""Column -> its type; docs/exports.md says what each is. None stands for what is not known."""


def sample_rows(run: ExportedRun) -> list[dict[str, Any]]:
    """A row for each sample of each case, with every column; those that lost most come first.

    Raises SpecError where the report has no score of a sample.
    """
    rows = [_sample_row(run, case, values) for case in run.cases for values in sample_values(case)]
    if not rows:
        raise SpecError(
            f"{run.source} has no scores of samples: no case was measured, or all have one score "
            "of a whole set. --rows=cases exports its cases"
        )
    return rows


def _sample_row(run: ExportedRun, case: CaseResult, values: SampleValue) -> dict[str, Any]:
    own = {
        "sample": values.sample,
        "categories": "; ".join(values.categories),
        "value": values.value,
        "baseline": values.baseline,
        "difference": values.difference,
        "reference": None if values.difference is None else case.reference,
    }
    return table_row(run, case, SAMPLE_COLUMNS, own)


@dataclass(frozen=True)
class Table:
    """Rows with columns of one type each.

    columns: name -> type of its values, in order.
    rows: column -> value; None for what is not known.
    """

    columns: Mapping[str, type]
    rows: list[dict[str, Any]]


_KINDS: Mapping[str, tuple[Mapping[str, type], Callable[[ExportedRun], list[dict[str, Any]]]]] = {
    "cases": (COLUMNS, case_rows),
    "samples": (SAMPLE_COLUMNS, sample_rows),
}


def table_of(run: ExportedRun) -> Table:
    """The table of the rows that the user asked for. Raises SpecError where there are none."""
    columns, rows = _KINDS[run.rows]
    return Table(columns, rows(run))
