"""A run as results of lm-evaluation-harness, as its `EvaluationTracker` saves them.

A task is a suite's category or group, its metrics those of the suite. Source: `result_schema.py`
of lm-eval 0.4.13.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pytest_cepbench.escapes import escape_json
from pytest_cepbench.report.exports.exported_run import ExportedRun
from pytest_cepbench.report.writers import write_reports

_UNSAFE = re.compile(r"[\"<>:/|\\?*\[\]]+")
"""What the harness replaces in the name of a model's folder."""


def export(run: ExportedRun, path: Path) -> list[Path]:
    """Write MODEL/results_NAME.json below the folder; see `report.exports.Export`."""
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
