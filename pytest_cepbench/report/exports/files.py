"""A run as files of other tools: CSV, Parquet, lm-evaluation-harness, the Hugging Face Hub."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.report.exports.rows import ExportedRun, table_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import write_reports

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute."""


def export_csv(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table, as of RFC 4180; see `report.exports.Export`."""
    table = table_of(run)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(table.columns)
    writer.writerows([_cell(row[name]) for name in table.columns] for row in table.rows)
    return write_reports(path, {path.suffix: stream.getvalue()})


def _cell(value: Any) -> Any:
    """A value as it is written: numbers that Python reads back, empty for what is not known.

    A text that a spreadsheet would compute is a text after an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def export_parquet(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table; see `report.exports.Export`."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()
    }  # fmt: skip
    rows = table_of(run)
    schema = pa.schema([(name, types[kind]) for name, kind in rows.columns.items()])
    table = pa.Table.from_pylist(rows.rows, schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    parquet.write_table(table, fresh)
    fresh.replace(path)
    return [path]


_UNSAFE = re.compile(r"[\"<>:/|\\?*\[\]]+")
"""What the harness replaces in the name of a model's folder."""


def export_lm_eval(run: ExportedRun, path: Path) -> list[Path]:
    """Write MODEL/results_NAME.json below the folder; see `report.exports.Export`.

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
    """Write .eval_results/SUITE.yaml below the folder for each suite; see `report.exports.Export`.

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
    suites: dict[str, list[CaseResult]] = {}
    for case in run.measured:
        if case.primary:
            suites.setdefault(case.suite, []).append(case)
    if not suites:
        raise SpecError(f"{run.source} has informational cases only: there is nothing to publish")
    return [
        write_reports(
            path / ".eval_results" / f"{suite}.yaml",
            {".yaml": "\n".join(line for case in cases for line in _entry(run, case)) + "\n"},
        )[0]
        for suite, cases in suites.items()
    ]


def _entry(run: ExportedRun, case: CaseResult) -> Iterator[str]:
    """A result. Texts are JSON strings, which YAML reads."""
    better = "higher" if case.higher_is_better else "lower"
    task = f"{case.suite}/{case.part}/{case.metric}"
    notes = f"pytest-cepbench, {case.label}, {better} is better, n = {case.n}"
    yield "- dataset:"
    yield f"    id: {_quoted(run.dataset)}"
    yield f"    task_id: {_quoted(task)}"
    yield f"  value: {_number(case.value or 0.0)}"
    yield f"  notes: {_quoted(notes)}"


def _number(value: float) -> str:
    """A number that YAML 1.1 reads as one: Python's `5e-05` has no point, and would be a text."""
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}"


def _quoted(text: str) -> str:
    """A double-quoted scalar; what YAML may not hold or takes for a line end is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
