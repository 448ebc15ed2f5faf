"""A run in the formats of other tools: tables and evaluation harnesses."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import escape_json, escape_toml
from pytest_cepbench.report.case_table import sample_values
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import write_reports


@dataclass(frozen=True)
class ExportedRun:
    """The report of a run, and what the user says of it.

    name: of the run, for files.
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


COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str,
    "verdict": str, "accepted": bool, "passes": bool, "primary": bool, "higher_is_better": bool,
    "value": float, "baseline": float, "difference": float, "p": float, "low": float, "high": float,
    "method": str, "tolerance": float, "alpha": float, "gate": str, "n": int, "units": int,
    "visible": float, "floor": float, "anchor": float, "reasons": str, "nodeid": str,
}  # fmt: skip
"""Column -> its type; docs/report.md says what each is. None stands for what is not known."""


SAMPLE_COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str, "higher_is_better": bool,
    "sample": str, "categories": str,
    "value": float, "baseline": float, "difference": float, "reference": str,
}  # fmt: skip
"""Column -> its type; docs/report.md says what each is. None stands for what is not known."""


def table_of(run: ExportedRun) -> tuple[dict[str, type], list[dict[str, Any]]]:
    """Columns with their types, and the rows that the user asked for: one for each case, or for
    each of its samples, those that lost most first.

    Raises SpecError where the report has no score of a sample.
    """
    columns = COLUMNS if run.rows == "cases" else SAMPLE_COLUMNS
    rows = []
    for case in run.cases:
        known: dict[str, Any] = {
            "run": run.name,
            "run_verdict": run.verdict,
            "step": run.step,
            "model": run.model,
            "verdict": str(case.verdict),
            "method": case.judgement.method,
            "reasons": "; ".join(case.reasons),
            **case.numbers,
        }
        own: list[dict[str, Any]] = [{}]
        if run.rows != "cases":
            own = [
                {
                    "sample": values.sample,
                    "categories": "; ".join(values.categories),
                    "value": values.value,
                    "baseline": values.baseline,
                    "difference": values.difference,
                    "reference": None if values.difference is None else case.judgement.reference,
                }
                for values in sample_values(case)
            ]
        for row in own:
            cells = known | row
            rows.append({c: cells[c] if c in cells else getattr(case, c) for c in columns})
    if not rows and run.rows != "cases":
        raise SpecError(
            f"{run.source} has no scores of samples: no case was measured, or all have one score "
            "of a whole set. --rows=cases exports its cases"
        )
    return columns, rows


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute: such a text stands behind an apostrophe."""


def export_csv(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table, as of RFC 4180; see `Export`. What is not known is empty."""
    columns, rows = table_of(run)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(columns)
    for row in rows:
        cells = []
        for value in row.values():
            if isinstance(value, bool):
                cells.append("true" if value else "false")
            elif isinstance(value, str) and value.startswith(_FORMULA):
                cells.append(f"'{value}")
            else:
                cells.append(value)
        writer.writerow(cells)
    return write_reports(path, {path.suffix: stream.getvalue()})


def export_parquet(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table; see `Export`."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()
    }  # fmt: skip
    columns, rows = table_of(run)
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    table = pa.Table.from_pylist(rows, schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    parquet.write_table(table, fresh)
    fresh.replace(path)
    return [path]


_UNSAFE = re.compile(r"[\"<>:/|\\?*\[\]]+")
"""What the harness replaces in the name of a model's folder."""


def export_lm_eval(run: ExportedRun, path: Path) -> list[Path]:
    """Write MODEL/results_NAME.json below the folder; see `Export`.

    As the harness' `EvaluationTracker` saves them: a task is a suite's category or group, its
    metrics those of the suite. Source: `result_schema.py` of lm-eval 0.4.13.
    """
    folder = _UNSAFE.sub("__", run.model).lstrip(".") or "model"
    name = _UNSAFE.sub("__", run.name)
    text = json.dumps(results_document(run), indent=2, ensure_ascii=False, allow_nan=False)
    target = path / folder[-200:] / f"results_{name}.json"
    return write_reports(target, {".json": escape_json(text) + "\n"})


def results_document(run: ExportedRun) -> dict[str, Any]:
    """The document. Standard errors are "N/A", as in the harness where there is none."""
    results: dict[str, dict[str, Any]] = {}
    better: dict[str, dict[str, bool]] = {}
    samples: dict[str, dict[str, int]] = {}
    for case in run.measured:
        task = f"{case.suite}/{case.part}"
        entry = results.setdefault(task, {"alias": task})
        entry[f"{case.metric},none"] = case.value
        entry[f"{case.metric}_stderr,none"] = "N/A"
        better.setdefault(task, {})[case.metric] = case.higher_is_better
        samples[task] = {"original": case.n, "effective": case.n}
    return {
        "results": results,
        "group_subtasks": {task: [] for task in results},
        "configs": {task: {"task": task, "metadata": {"source": run.source}} for task in results},
        "versions": dict.fromkeys(results, 1),
        "n-shot": dict.fromkeys(results, 0),
        "higher_is_better": better,
        "n-samples": samples,
        "config": {"model": "pytest-cepbench", "model_args": run.model},
        "model_source": "pytest-cepbench",
        "model_name": run.model,
        "model_name_sanitized": _UNSAFE.sub("__", run.model),
    }


_DATASET = re.compile(r"[\w.-]+/[\w.-]+")


def export_hf_eval_results(run: ExportedRun, path: Path) -> list[Path]:
    """Write .eval_results/SUITE.yaml below the folder for each suite; see `Export`.

    The folder is a clone of the model's repository, or is copied into one. Each file is a list of
    results, each of a task of a benchmark, which is a data set of the Hub with an `eval.yaml`.
    Source: https://huggingface.co/docs/hub/eval-results, `EvalResultEntry` of huggingface_hub 2.4.
    """
    if not _DATASET.fullmatch(run.dataset):
        given = f"--dataset {run.dataset!r}" if run.dataset else "no --dataset"
        raise SpecError(
            f"{given} was given: results belong to a benchmark on the Hub, name its data set, "
            "--dataset ORGANIZATION/NAME"
        )
    suites: dict[str, list[str]] = {}
    for case in run.measured:
        if not case.primary:
            continue
        better = "higher" if case.higher_is_better else "lower"
        task = f"{case.suite}/{case.part}/{case.metric}"
        notes = f"pytest-cepbench, {case.label}, {better} is better, n = {case.n}"
        # YAML 1.1 reads Python's `5e-05`, which has no point, as a text.
        mantissa, e, exponent = repr(case.value or 0.0).partition("e")
        suites.setdefault(case.suite, []).append(
            f"- dataset:\n    id: {_quoted(run.dataset)}\n    task_id: {_quoted(task)}\n"
            f"  value: {mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}\n"
            f"  notes: {_quoted(notes)}\n"
        )
    if not suites:
        raise SpecError(f"{run.source} has informational cases only: there is nothing to publish")
    folder = path / ".eval_results"
    return [
        write_reports(folder / f"{suite}.yaml", {".yaml": "".join(entries)})[0]
        for suite, entries in suites.items()
    ]


def _quoted(text: str) -> str:
    """A JSON string, which YAML reads; what it may not hold or takes for a line end is escaped."""
    return escape_toml(json.dumps(text, ensure_ascii=False))


Export = Callable[[ExportedRun, Path], Sequence[Path]]
"""Writes a run to a file, or below a folder; returns what was written.

Raises SpecError for a run that the format cannot hold, and WriteError or OSError for files that
cannot be written.
"""


@dataclass(frozen=True)
class Exporter:
    """A format.

    about: what is written, for the help and the documentation.
    write: the function that writes it.
    suffix: of the file that is written by default; empty for a folder.
    packages: that have to be installed, as pip names them.
    tables: whether it has rows, which may be those of samples.
    """

    about: str
    write: Export
    suffix: str = ""
    packages: tuple[str, ...] = ()
    tables: bool = False


EXPORTERS = {
    "csv": Exporter("a row for each case", export_csv, ".csv", tables=True),
    "parquet": Exporter(
        "the same rows with types", export_parquet, ".parquet", ("pyarrow",), tables=True
    ),
    "lm-eval": Exporter("the results of lm-evaluation-harness, `results_*.json`", export_lm_eval),
    "hf-eval-results": Exporter(
        "evaluation results of a model repository on the Hugging Face Hub, `.eval_results/*.yaml`",
        export_hf_eval_results,
    ),
}
"""Name, as users type it -> format."""
