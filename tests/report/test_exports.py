"""A run as a table, read back as CSV."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.exports import COLUMNS, SAMPLE_COLUMNS, csv_table
from tests.report.results import FULL, MEASURED, RESULTS, replace

RUN = {"run": "gate-7", "run_verdict": "failed", "step": 7, "model": "runs/1/step-7"}

UNMEASURED = replace(
    FULL, part="broken", verdict="error", value=None, baseline=None, difference=None, low=None,
    high=None, reasons=["no space left", "on the disk"],
)  # fmt: skip

SCORES = {"red": {"a": 0.5, "=b": 0.75}, "round": {"a": 0.5, "c": 0.25}}

SAMPLED = replace(
    FULL, measured=replace(MEASURED, scores=SCORES), differences={"=b": 0.25, "a": -0.25}
)


def _read(*cases: CaseResult, samples: bool = False) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_table(cases, RUN, samples=samples), newline="")))


def test_a_row_for_each_case() -> None:
    """Numbers as the JSON report has them; what is not known is empty."""
    regressed, unmeasured = _read(FULL, UNMEASURED)
    assert tuple(regressed) == COLUMNS
    assert {name: regressed[name] for name in RUN} == {k: str(v) for k, v in RUN.items()}
    assert (regressed["verdict"], regressed["primary"], regressed["passes"]) == (
        "regressed", "true", "false",
    )  # fmt: skip
    for name, value in FULL.numbers.items():
        assert float(regressed[name]) == value
    assert [unmeasured[name] for name in ("value", "baseline", "low")] == ["", "", ""]
    assert unmeasured["reasons"] == "no space left; on the disk"


def test_a_row_for_each_sample() -> None:
    """Those that lost most first; what was not compared has no baseline and no reference."""
    first, second, third = _read(SAMPLED, UNMEASURED, samples=True)
    assert tuple(first) == SAMPLE_COLUMNS
    names = ("suite", "sample", "categories", "value", "baseline", "difference", "reference")
    assert [first[n] for n in names] == [
        "toy", "a", "red; round", "0.5", "0.75", "-0.25", "baseline",
    ]  # fmt: skip
    assert second["sample"] == "'=b"  # a spreadsheet would compute it
    assert [third[n] for n in names[3:]] == ["0.25", "", "", ""]


@given(st.lists(RESULTS, max_size=3))
def test_csv_of_any_run_is_read_back(results: list[CaseResult]) -> None:
    """Lines, quotes and commas of names are cells, and none of them is a formula."""
    rows = _read(*results)
    assert [row["part"].removeprefix("'") for row in rows] == [
        result.part.removeprefix("'") for result in results
    ]
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())
