"""Exports of a run, each read back by the library whose format it is."""

from __future__ import annotations

import csv
import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import SpecError
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.exports import (
    COLUMNS,
    EXPORTERS,
    SAMPLE_COLUMNS,
    ExportedRun,
    results_document,
)
from tests.report.results import FULL, MEASURED, RESULTS, replace

MODEL = {"role": "describer", "spec": "runs/1/step-7", "identity": "vlm"}

HELD = replace(FULL, part="shape", verdict="held", difference=0.0, model=MODEL)

UNMEASURED = replace(
    FULL, part="broken", verdict="error", value=None, baseline=None, difference=None, low=None,
    high=None, reasons=["no space left", "on the disk"],
)  # fmt: skip

RUN = ExportedRun(
    "gate-7", "/out/gate.json", "failed", (), (FULL, HELD, UNMEASURED), 7, "team/shapes"
)


def _export(name: str, run: ExportedRun, path: Path) -> list[Path]:
    return [Path(place) for place in EXPORTERS[name].write(run, path)]


def _library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the export is read back by {name}")


# -- tables ----------------------------------------------------------------------------------------


def test_csv_has_a_row_for_each_case(tmp_path: Path) -> None:
    """Numbers as the JSON report has them; what is not known is empty."""
    (path,) = _export("csv", RUN, tmp_path / "cases.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        regressed, held, unmeasured = csv.DictReader(stream)
    assert [*regressed] == [*COLUMNS]
    assert (regressed["run"], regressed["step"], regressed["model"]) == (
        "gate-7", "7", "runs/1/step-7",
    )  # fmt: skip
    assert float(regressed["difference"]) == FULL.judgement.difference
    assert (regressed["verdict"], regressed["passes"], held["passes"]) == (
        "regressed", "false", "true",
    )  # fmt: skip
    assert (unmeasured["value"], unmeasured["reasons"]) == ("", "no space left; on the disk")


@given(st.lists(RESULTS, max_size=3), st.sampled_from(["=1+1", "@x", "+x", "-x", "\ty", 'a","b']))
def test_csv_of_any_run_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, results: list[CaseResult], begin: str
) -> None:
    """Numbers exactly, and no cell is a formula."""
    cases = tuple(replace(case, part=f"{begin}{case.part}") for case in results)
    path = tmp_path_factory.mktemp("csv") / "cases.csv"
    _export("csv", ExportedRun("r", "s", "failed", (), cases), path)
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(cases)
    for row, case in zip(rows, cases, strict=True):
        assert (float(row["value"]) if row["value"] else None) == case.value
        assert row["part"].removeprefix("'") == case.part
        assert row["part"][0] not in "=@+-\t"


def test_parquet_has_types(tmp_path: Path) -> None:
    """The rows of the CSV table; null stands for what is not known."""
    parquet = _library("pyarrow.parquet")
    (path,) = _export("parquet", RUN, tmp_path / "new" / "cases.parquet")
    table = parquet.read_table(path)
    assert table.column_names == [*COLUMNS]
    assert table["difference"].to_pylist() == [-0.25, 0.0, None]
    assert table["primary"].to_pylist() == [True, True, True]
    assert [str(table.schema.field(name).type) for name in ("value", "n", "accepted")] == [
        "double", "int64", "bool",
    ]  # fmt: skip
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["cases.parquet"]


SCORES = {"red": {"a": 0.5, "=b": 0.75}, "round": {"a": 0.5, "c": 0.25}}

SAMPLED = replace(
    FULL,
    measured=replace(MEASURED, scores=SCORES),
    differences={"=b": 0.25, "a": -0.25},
)

SAMPLES = dataclasses.replace(RUN, cases=(SAMPLED, UNMEASURED), rows="samples")


def test_csv_has_a_row_for_each_sample(tmp_path: Path) -> None:
    """Those that lost most first; what was not compared has no baseline and no reference."""
    (path,) = _export("csv", SAMPLES, tmp_path / "samples.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        first, second, third = csv.DictReader(stream)
    assert [*first] == [*SAMPLE_COLUMNS]
    assert (first["suite"], first["part"], first["metric"]) == ("toy", "color", "gc")
    assert (first["sample"], first["categories"], first["reference"]) == (
        "a", "red; round", "baseline",
    )  # fmt: skip
    assert [float(first[name]) for name in ("value", "baseline", "difference")] == [
        0.5, 0.75, -0.25,
    ]  # fmt: skip
    assert second["sample"] == "'=b"
    assert [third[name] for name in ("value", "baseline", "difference", "reference")] == [
        "0.25", "", "", "",
    ]  # fmt: skip


def test_a_run_without_scores_of_samples_is_refused(tmp_path: Path) -> None:
    """A table without rows would be taken for a run without samples."""
    run = dataclasses.replace(SAMPLES, cases=(UNMEASURED,))
    with pytest.raises(SpecError, match="--rows=cases exports its cases"):
        _export("csv", run, tmp_path / "samples")
    assert not list(tmp_path.iterdir())


# -- formats without verdicts ----------------------------------------------------------------------


def test_harness_results_have_the_fields_of_the_harness(tmp_path: Path) -> None:
    """Tasks with metrics and filters, as its own table and leaderboards read them."""
    (path,) = _export("lm-eval", RUN, tmp_path)
    assert path == tmp_path / "runs__1__step-7" / "results_gate-7.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["results"] == {
        f"toy/{part}": {"alias": f"toy/{part}", "gc,none": 0.5, "gc_stderr,none": "N/A"}
        for part in ("color", "shape")
    }
    assert document["higher_is_better"]["toy/color"] == {"gc": True}
    assert document["n-samples"]["toy/color"] == {"original": 50, "effective": 50}
    assert document["model_name"] == "runs/1/step-7"


def test_the_harness_reads_its_results() -> None:
    """Its own table has a line for each case; every field is one of its schema."""
    utils = _library("lm_eval.utils")
    _library("pytablewriter")
    schema = import_module("lm_eval.result_schema")
    document = results_document(RUN)
    assert set(document) <= set(schema.EvalResults.__annotations__)
    assert document["model_name_sanitized"] == utils.sanitize_model_name("runs/1/step-7")
    rows = [line.split("|") for line in utils.make_table(document).splitlines()[2:]]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["toy/color", "1", "none", "0", "gc", "↑", "0.5", "±", "N/A"],
        ["toy/shape", "1", "none", "0", "gc", "↑", "0.5", "±", "N/A"],
    ]


def test_hub_results_are_read_by_the_hub_s_library(tmp_path: Path) -> None:
    """A result for each case that can fail the run, of tasks of the benchmark."""
    hub, yaml = _library("huggingface_hub"), _library("yaml")
    # YAML 1.1 reads `5e-05`, which has no point, as a text.
    odd = replace(FULL, part='red: "#1" \x85\u2028\U0001f600', label="GC@2\n- x", value=5e-05)
    informational = replace(FULL, part="informational", primary=False)
    run = ExportedRun(
        "r", "s", "failed", (), (HELD, odd, informational, UNMEASURED), 0, "team/shapes"
    )
    (path,) = _export("hf-eval-results", run, tmp_path)
    assert path == tmp_path / ".eval_results" / "toy.yaml"
    held, other = hub.parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert held == hub.EvalResultEntry(
        dataset_id="team/shapes",
        task_id="toy/shape/gc",
        value=0.5,
        notes="pytest-cepbench, GC@2, higher is better, n = 50",
    )
    assert (other.task_id, other.value) == (f"toy/{odd.part}/gc", 5e-05)
    assert "GC@2\n- x" in other.notes


@pytest.mark.parametrize("dataset", ["", "shapes", "a/b/c", "team/sha pes"])
def test_hub_results_need_a_benchmark(tmp_path: Path, dataset: str) -> None:
    """The Hub shows no result without one."""
    run = ExportedRun("r", "s", "passed", (), (HELD,), 0, dataset)
    with pytest.raises(SpecError, match=r"name its data set, --dataset ORGANIZATION/NAME"):
        _export("hf-eval-results", run, tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["lm-eval", "hf-eval-results"])
def test_what_was_not_measured_is_not_published(tmp_path: Path, name: str) -> None:
    """Neither an incomplete run, nor one without values: these formats have no verdicts."""
    incomplete = ExportedRun("r", "s", "incomplete", ("a worker died",), (HELD,), 0, "team/shapes")
    with pytest.raises(SpecError, match="incomplete \\(a worker died\\): run it again"):
        _export(name, incomplete, tmp_path)
    empty = ExportedRun("r", "s", "failed", (), (UNMEASURED,), 0, "team/shapes")
    with pytest.raises(SpecError, match="no case of s was measured"):
        _export(name, empty, tmp_path)
    assert [*tmp_path.iterdir()] == []
