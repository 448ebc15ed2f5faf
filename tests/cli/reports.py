"""Reports of runs for the commands that read them: real measurements, judged as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.evaluation.run_result import run_verdict
from pytest_cepbench.gate import FreshMeasurement, dump_baseline, record_of
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import RunOutcome, json_document
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.report.results import case_of
from tests.studies.toy import TOY, write_suite

Measured = Callable[..., tuple[FreshMeasurement, ...]]

GATED = TOY.replace('gate = "threshold"', 'gate = "regression"')
"""The toy suite, judged by statistics."""

CASES = 10
"""Of that suite."""


def measure_toy(folder: Path, model: str, text: str = GATED) -> Iterator[CaseMeasurement]:
    """Every case of a suite, as the gate measures it."""
    suite = load_suite(write_suite(folder, text))
    assignments, measures = assign_models(suite, RoleChoices(model))
    dataset = load_data(suite, {}).repeated(suite.table.chain.seeds)
    with Store(folder / "store") as store:
        run = ChainRun(suite, dataset, assignments, measures, ModelPool(store))
        for case in list_cases(measures, suite.name, dataset, suite.table.groups):
            yield run.measure(case)


def result_of(measurement: FreshMeasurement, **changes: Any) -> CaseResult:
    """What a run reports of a case; fields can be changed by name."""
    key = measurement.key
    fields: dict[str, Any] = {
        "nodeid": f"test_{key.suite}.py::test_drift[{key.part}-{key.metric}]",
        "suite": key.suite,
        "part": key.part,
        "metric": key.metric,
        "label": measurement.label,
        "verdict": "no-baseline",
        "tolerance": 0.01,
        "gate": "regression",
        "of": CASES,
        "measured": measurement.record,
    }
    return case_of(**(fields | changes))


def results_of(measurements: Iterable[FreshMeasurement], **changes: Any) -> list[CaseResult]:
    """The same of several."""
    return [result_of(measurement, **changes) for measurement in measurements]


def altered(measurement: FreshMeasurement, **changes: Any) -> FreshMeasurement:
    """A measurement with other fields."""
    made = ("format", "case", "metric", "value", "n")
    given = [name for name in measurement.__struct_fields__ if name not in made]
    fields = {name: getattr(measurement, name) for name in given}
    names: dict[str, Any] = {"key": measurement.key, "label": measurement.label}
    return type(measurement).of(**(names | fields | changes))


def write_report(
    path: Path,
    results: Iterable[CaseResult],
    verdict: str | None = None,
    problems: Iterable[str] = (),
    deaths: int = 0,
) -> Path:
    """The report of a run with these results. verdict: in place of that of the results."""
    cases, reasons = list(results), list(problems)
    run = RunOutcome(
        verdict or run_verdict(cases, reasons), problems=reasons, deaths=deaths, results=cases
    )
    path.write_text(json_document(run), encoding="utf-8")
    return path


def edit_report(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a report by hand."""
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def accept_by_hand(root: Path, measurements: Iterable[FreshMeasurement], **changes: Any) -> None:
    """Baselines as `--snapshot-update` writes them; fields can be changed by name."""
    for measurement in measurements:
        path = baseline_path(root, measurement.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = msgspec.structs.replace(record_of(measurement), **changes)
        path.write_text(dump_baseline(record), encoding="utf-8")
