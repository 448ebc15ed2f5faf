"""A run as evaluation results of a model repository on the Hugging Face Hub.

`.eval_results/*.yaml` is a list of results, each of a task of a benchmark, which is a data set of
the Hub with an `eval.yaml`. Source: https://huggingface.co/docs/hub/eval-results and
`EvalResultEntry` of huggingface_hub 2.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.errors import SpecError
from pytest_cepbench.report.exports.exported_run import ExportedRun
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import write_reports

_DATASET = re.compile(r"[\w.-]+/[\w.-]+")


def export(run: ExportedRun, path: Path) -> list[Path]:
    """Write .eval_results/SUITE.yaml below the folder for each suite; see `report.exports.Export`.

    The folder is a clone of the model's repository, or is copied into one.
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
    yield f"  value: {case.value!r}"
    yield f"  notes: {_quoted(notes)}"


def _quoted(text: str) -> str:
    """A double-quoted scalar; what YAML may not hold or takes for a line end is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
