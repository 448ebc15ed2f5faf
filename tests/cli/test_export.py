"""`cepbench export`: where files go, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.cli.conftest import Home
from tests.cli.reports import Measured, edit_report, result_of, results_of, write_report
from tests.docs.markdown import DOCS, column, tables
from tests.report.results import replace


@pytest.fixture
def report(home: Home, measured: Measured) -> Path:
    """The report of a run of the toy suite."""
    return write_report(home.path / "gate.json", map(result_of, measured("shapes:")), "passed")


def test_default_place(home: Home, report: Path) -> None:
    """Below the folder that is kept out of git; the file is named on stdout."""
    ended = home.command("export", "gate.json")
    path = home.path / ".cepbench/exports/gate.csv"
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "written: .cepbench/exports/gate.csv\n"
    with path.open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 10
    assert (home.path / ".cepbench/.gitignore").exists()


def test_named_place(home: Home, report: Path) -> None:
    """A file is written as named, into a folder under the report's name; other files stay."""
    (home.path / "tables").mkdir()
    (home.path / "tables/other.csv").touch()
    for out in ("cases.csv", "tables"):
        assert home.command("export", "gate.json", f"--out={out}").code == 0
    assert {path.name for path in (home.path / "tables").iterdir()} == {"gate.csv", "other.csv"}
    assert (home.path / "cases.csv").read_bytes() == (home.path / "tables/gate.csv").read_bytes()


def test_rows_of_samples(home: Home, report: Path) -> None:
    """The scores of the run, beside the file of its cases; both name the same cases."""
    for rows in ("cases", "samples"):
        assert home.command("export", "gate.json", f"--rows={rows}").code == 0
    tables = []
    for name in ("gate.csv", "gate-samples.csv"):
        with (home.path / ".cepbench/exports" / name).open(newline="") as stream:
            tables.append(list(csv.DictReader(stream)))
    cases, samples = tables
    assert {row["part"] for row in samples} <= {row["part"] for row in cases}
    overall = [
        float(row["value"]) for row in samples if (row["part"], row["metric"]) == ("overall", "gc")
    ]
    (case,) = [row for row in cases if (row["part"], row["metric"]) == ("overall", "gc")]
    assert len(overall) == int(case["n"])
    assert sum(overall) / len(overall) == pytest.approx(float(case["value"]), abs=1e-5)


def test_what_the_user_says_of_the_run(home: Home, report: Path) -> None:
    """Its name and its step."""
    home.command("export", "gate.json", "--out=a.csv", "--name=run 1", "--step=500")
    with (home.path / "a.csv").open(newline="") as stream:
        row = next(csv.DictReader(stream))
    assert (row["run"], row["step"]) == ("run 1", "500")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--step=last"], "--step 'last': no step of a training"),
        (["--step=-1"], "--step '-1': no step of a training"),
    ],
)
def test_mistakes(home: Home, report: Path, arguments: list[str], line: str) -> None:
    """One line, exit code 2, and no file."""
    ended = home.command("export", "gate.json", *arguments)
    ended.refused(line, lines=1)
    assert ended.out == ""
    assert not (home.path / ".cepbench/exports").exists()


def test_a_file_that_is_no_report(home: Home, report: Path) -> None:
    """Nor one that is not there, or of a schema that is not known."""
    (home.path / "other.json").write_text("[]")
    for name in ("other.json", "absent.json"):
        assert home.command("export", name).code == 2
    edit_report(report, lambda document: document.update(schema=3))
    ended = home.command("export", "gate.json")
    ended.refused("have schema 3")


def test_an_incomplete_run(home: Home, report: Path) -> None:
    """Every row says so."""
    edit_report(report, lambda document: document.update(verdict="incomplete", problems=["why"]))
    assert home.command("export", "gate.json", "--out=a.csv").code == 0
    with (home.path / "a.csv").open(newline="") as stream:
        assert {row["run_verdict"] for row in csv.DictReader(stream)} == {"incomplete"}


def test_a_place_that_cannot_be_written(home: Home, report: Path) -> None:
    """Exit code 1, and a line that says why."""
    (home.path / "file").touch()
    ended = home.command("export", "gate.json", "--out=file/x.csv")
    assert (ended.code, ended.err.count("\n")) == (1, 1)


def test_every_column_is_documented() -> None:
    """On the page of the command, and no other."""
    from pytest_cepbench.report.exports import COLUMNS, SAMPLE_COLUMNS

    (columns,) = tables(DOCS / "report.md", "Export")
    assert set(column(columns)) == {*COLUMNS, *SAMPLE_COLUMNS}


def test_the_verdict_of_a_suite_is_exported(home: Home, measured: Measured) -> None:
    """It may be all that failed, and no table or chart may look as if nothing had."""
    cases = results_of(measured("shapes:"), verdict="held")
    pooled = replace(
        cases[0], part="suite", metric="verdict", verdict="regressed", value=None, measured=None
    )
    write_report(home.path / "pooled.json", [*cases, pooled])
    assert home.command("export", "pooled.json", "--out=a.csv").code == 0
    with (home.path / "a.csv").open(newline="") as stream:
        *_, last = csv.DictReader(stream)
    assert (last["metric"], last["verdict"], last["value"]) == ("verdict", "regressed", "")
