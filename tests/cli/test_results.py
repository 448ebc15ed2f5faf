"""Reports of runs: what is none is refused, half-written baselines; histories and exports."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
from itertools import product
from pathlib import Path

import pytest

from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.series import Entry, SeriesFile
from pytest_cepbench.replacement import JOURNAL, replace_files
from pytest_cepbench.report.history import append_run, run_record
from tests.cli.conftest import Home
from tests.cli.reports import (
    CASES,
    GATED,
    Measured,
    accept_by_hand,
    edit_report,
    result_of,
    results_of,
    write_report,
)
from tests.docs.markdown import DOCS, column, tables
from tests.documents import flat_report
from tests.interruption import at_change, in_child
from tests.plugin.project import INI, TEST_MODULE, contents, run_plainly
from tests.report.results import judged, origin, replace
from tests.special_files import a_pipe, a_sparse_file
from tests.studies.toy import write_suite

COMMANDS = {
    "accept": ["accept", "r.json", "--reason=because"],
    "compare": ["compare", "r.json"],
    "export": ["export", "r.json"],
    "prune": ["prune", "r.json"],
}


@pytest.fixture(params=COMMANDS)
def argv(request: pytest.FixtureRequest, home: Home) -> list[str]:
    """A command that reads `r.json`."""
    (home.path / "baselines").mkdir()
    return COMMANDS[request.param]


def refused(home: Home, argv: list[str], message: str) -> None:
    """Exit code 2 and one line; nothing is written."""
    ended = home.command(*argv)
    ended.refused(message, lines=1)
    assert not list((home.path / "baselines").iterdir())


def test_no_file_and_no_report(home: Home, argv: list[str]) -> None:
    """The path is named. So is what else JSON, or no JSON, can hold; of another schema it is said
    whether to run again or to install another version, whatever else is in the file.
    """
    refused(home, argv, "results 'r.json' cannot be read: No such file")
    (home.path / "r.json").mkdir()
    refused(home, argv, "results 'r.json' cannot be read: Is a directory")
    (home.path / "r.json").rmdir()
    a_pipe(home.path / "r.json")
    refused(home, argv, "results 'r.json' cannot be read: it is a named pipe")
    (home.path / "r.json").unlink()
    a_sparse_file(home.path / "r.json")
    refused(home, argv, "results 'r.json' cannot be read: it has 32,212,254,720 bytes")
    for text in (
        b"<!doctype html>",
        b"[]",
        b'{"cases": []}',
        b'{"schema": 2, "verdict": "passed", "problems": [], "cases": [{}]}',
        b'{"schema": 2, "verdict": "passed", "problems": [], "cases": NaN}',
        b'\xff\xfe{"schema": 2}',
        b"[" * 100_000,
        b'{"schema": ' + b"9" * 5_000 + b"}",
    ):
        (home.path / "r.json").write_bytes(text)
        refused(home, argv, "are not the JSON report of a run (--cep-report FILE)")
    for schema, writer in ((1, "an earlier"), (3, "a newer")):
        (home.path / "r.json").write_text(json.dumps({"schema": schema, "verdicts": "other"}))
        message = f"have schema {schema}, this version reads 2: it was written by {writer}"
        refused(home, argv, message)


def test_a_report_that_is_not_whole(home: Home, argv: list[str], measured: Measured) -> None:
    """A list, map, number or text that is gone is not taken for an empty one. A field that is not
    known could change what the others mean.

    A report from elsewhere cannot name folders outside that of the baselines.
    """
    for field in ("deaths", "cases.0.looks", "cases.0.refused", "cases.0.measurement.failures"):
        report = write_report(home.path / "r.json", [result_of(measured()[0])])
        *path, last = field.split(".")
        document = json.loads(report.read_text())
        place = document
        for key in path:
            place = place[int(key) if key.isdigit() else key]
        del place[last]
        report.write_text(json.dumps(document))
        refused(home, argv, last)
    report = write_report(home.path / "r.json", [result_of(measured()[0])])
    edit_report(report, lambda document: document["cases"][0]["measurement"].update(extra=1))
    refused(home, argv, "unknown field `extra`")
    names = ("../..", "/etc", "", "toy/x", "a\nb", ".")
    for field, name in product(("suite", "metric"), names):
        report = write_report(home.path / "r.json", [result_of(measured()[0])])
        document = json.loads(report.read_text())
        document["cases"][0][field] = name
        document["cases"][0]["measurement"]["case"] = f"{name}/color/gc"
        report.write_text(json.dumps(document))
        refused(home, argv, "are no names of a suite and its metric")


@pytest.fixture
def half(home: Home, measured: Measured) -> Home:
    """The toy suite's baselines, of which a process had replaced some when it was killed."""
    root = home.path / "baselines"
    accept_by_hand(root, measured())
    write_report(home.path / "r.json", results_of(measured("shapes:?miss=0.3")))

    def die() -> None:
        at_change(3 + 3 * CASES, lambda: os.kill(os.getpid(), signal.SIGKILL))
        files = [baseline_path(root, measurement.key) for measurement in measured()]
        replace_files(root, dict.fromkeys(files, b"new"))

    assert in_child(die) == -signal.SIGKILL
    assert (root / JOURNAL).exists()
    assert b"new" in contents(root).values()
    return home


@pytest.mark.parametrize(
    "argv", [["accept", "r.json", "--reason=x"], ["prune", "r.json"]], ids=lambda argv: argv[0]
)
def test_it_is_put_right_first(half: Home, measured: Measured, argv: list[str]) -> None:
    """And that is said; then the command does what it always does."""
    ended = half.command(*argv)
    assert ended.code == 0
    assert "as they were before" in ended.err
    assert not (half.path / "baselines" / JOURNAL).exists()
    assert b"new" not in contents(half.path / "baselines").values()
    again = half.command(*argv)
    assert (again.code, again.err) == (0, "")


def test_a_journal_that_cannot_be_used_ends_the_command(half: Home) -> None:
    """One line names it, and nothing is written."""
    (half.path / "baselines" / JOURNAL).write_text("<<<<<<< HEAD")
    before = contents(half.path / "baselines")
    half.command("accept", "r.json", "--reason=x").refused(JOURNAL, code=1, lines=1)
    assert contents(half.path / "baselines") == before


MODEL = "shapes:?miss=0.3"


@pytest.mark.slow
def test_what_was_accepted_elsewhere_holds(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a folder with nothing but a run's report: no suite, no store, no tests. The baselines are
    those of `--snapshot-update` except [accepted]; the run then passes.
    """
    machine = tmp_path_factory.mktemp("machine")
    write_suite(machine, GATED)
    (machine / "pytest.ini").write_text(INI)
    (machine / "test_toy.py").write_text(TEST_MODULE)
    assert run_plainly(machine, f"--model={MODEL}", "--cep-report=r.json") == 1
    (home.path / "suite.toml").unlink()
    shutil.copy(machine / "r.json", home.path)

    ended = home.command("accept", "r.json", "--reason=the first", "--baselines=accepted")
    assert ended.code == 0
    assert sorted(path.name for path in home.path.iterdir()) == ["accepted", "r.json"]
    assert run_plainly(machine, f"--model={MODEL}", "--snapshot-update") == 0
    written = contents(home.path / "accepted")
    assert len(written) == CASES
    assert {
        name: re.sub(rb"\n\[accepted\]\n(.+\n)+", b"", data) for name, data in written.items()
    } == contents(machine / "baselines")
    accepted = f"--cep-baselines={home.path / 'accepted'}"
    assert run_plainly(machine, f"--model={MODEL}", accepted) == 0
    report = flat_report(json.loads((machine / ".cepbench/report.json").read_text()))
    assert {case["verdict"] for case in report["cases"]} == {"held"}


# -- `cepbench history` and `export`: cases over time, and as tables -------------------------------


def test_the_table_and_the_page(home: Home) -> None:
    """The latest numbers and the course of each case, and from when on it is another.

    What the history lacks is told in a line. The page is written where it is asked for; a damaged
    line is told of.
    """
    results = [
        judged(0.75, accepted=True),
        judged(0.5, verdict="regressed"),
        judged(0.9, verdict="incomparable", identity={"samples": "60", "prompt": "describe"}),
    ]
    for number, result in enumerate(results):
        run = run_record(origin(number), [result])
        append_run(home.path / ".cepbench" / "history", run)
    ended = home.command("history")
    assert (ended.code, ended.err) == (0, "")
    (row,) = [line for line in ended.out.splitlines() if line.startswith("toy/color/gc ")]
    cells = ["incomparable", "0.9000", "0.7500", "+0.1500", "3", "▅▁|█"]
    assert row.split() == ["toy/color/gc", *cells]
    assert "2026-09-23 14:13: 1 case of toy measured otherwise: samples changed" in ended.out
    for option, code, message in (
        ("--history=none", 2, "history 'none' cannot be read: No such file"),
        ("--suite=toi", 2, "the history has no suite 'toi'. Did you mean 'toy'?"),
        ("--case=color", 2, "the history has no case 'color'."),
        ("--html=suite.toml/h.html", 1, "could not be written"),
    ):
        home.command("history", option).refused(message, code=code, lines=1)
    (path,) = (home.path / ".cepbench" / "history").glob("*.jsonl")
    with path.open("a") as stream:
        stream.write("no JSON\n")
    ended = home.command("history", "--html=pages/h.html", "--last=2")
    assert ended.code == 0
    assert ended.out == "written: pages/h.html (1 case over 2 runs)\n"
    assert "line 4 was left out" in ended.err
    assert "History of 2 runs" in (home.path / "pages" / "h.html").read_text()


def test_the_looks_of_a_series(home: Home) -> None:
    """What was spent on which checkpoint. Of another name one line has the nearest one, or what a
    name is; of a damaged record where, and what to do; options of a history are none of a series.
    """
    root = home.path / "baselines"
    for step in ("step-100", "step-200"):
        case = Entry(look=0, run=step, case="toy/overall/gc", model=step, spec=step, alpha=0.05)
        SeriesFile(root, "run-1").enter(case)
    ended = home.command("history", "--series=run-1")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["1", "step-100", "2.44%", "1"] in rows
    assert ["2", "step-200", "2.32%", "1"] in rows
    assert "the next is number 3 and has 2.21%" in ended.out

    path = root / "series" / "run-1.jsonl"
    path.write_text(path.read_text().replace('"look":1', '"look":5', 1))
    damaged = "run-1.jsonl: line 2: its digest is another one"
    for argv, message in (
        (["--series=run-2"], "unknown series 'run-2'. Did you mean 'run-1'?"),
        (["--series=../run"], "letters, digits"),
        (["--series=run-1"], damaged),
        (["--series=run-1"], "A series goes on only with its whole record"),
        (["--series=run-1", "--html=h.html"], "--html is of the history: drop it, or --series"),
    ):
        home.command("history", *argv).refused(message, lines=1)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def report(home: Home, measured: Measured) -> Path:
    """The report of a run of the toy suite."""
    return write_report(home.path / "gate.json", map(result_of, measured("shapes:")), "passed")


def test_the_place_of_an_export(home: Home, report: Path) -> None:
    """Below the folder that is kept out of git, and named on stdout; a file as it is named, into a
    folder under the report's name. Other files stay; where it cannot be written, a line says why.

    Rows of samples are the scores of the run; both files name the same cases.
    """
    ended = home.command("export", "gate.json")
    path = home.path / ".cepbench/exports/gate.csv"
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "written: .cepbench/exports/gate.csv\n"
    assert len(rows_of(path)) == 10
    assert (home.path / ".cepbench/.gitignore").exists()
    (home.path / "tables").mkdir()
    (home.path / "tables/other.csv").touch()
    for out in ("cases.csv", "tables"):
        assert home.command("export", "gate.json", f"--out={out}").code == 0
    assert {path.name for path in (home.path / "tables").iterdir()} == {"gate.csv", "other.csv"}
    assert (home.path / "cases.csv").read_bytes() == (home.path / "tables/gate.csv").read_bytes()
    for place in ("cases.csv/x.csv", f"{'x' * 300}.csv"):
        home.command("export", "gate.json", f"--out={place}").refused(code=1, lines=1)
    home.command("export", "gate.json", "--out=./gate.json").refused("is the report itself")
    for rows in ("cases", "samples"):
        assert home.command("export", "gate.json", f"--rows={rows}").code == 0
    folder = home.path / ".cepbench/exports"
    cases, samples = (rows_of(folder / name) for name in ("gate.csv", "gate-samples.csv"))
    assert {row["part"] for row in samples} <= {row["part"] for row in cases}
    overall = [
        float(row["value"]) for row in samples if (row["part"], row["metric"]) == ("overall", "gc")
    ]
    (case,) = [row for row in cases if (row["part"], row["metric"]) == ("overall", "gc")]
    assert len(overall) == int(case["n"])
    assert sum(overall) / len(overall) == pytest.approx(float(case["value"]), abs=1e-5)


def test_what_rows_say_of_the_run(home: Home, report: Path, measured: Measured) -> None:
    """Its name and its step; every row of an incomplete one says that it is. The verdict of a suite
    is there: it may be all that failed, and no table or chart may look as if nothing had.
    """
    edit_report(report, lambda document: document.update(verdict="incomplete", problems=["why"]))
    command = ("export", "gate.json", "--out=a.csv", "--name=run 1", "--step=500")
    assert home.command(*command).code == 0
    said = {(row["run"], row["step"], row["run_verdict"]) for row in rows_of(home.path / "a.csv")}
    assert said == {("run 1", "500", "incomplete")}
    cases = results_of(measured("shapes:"), verdict="held")
    pooled = replace(
        cases[0], part="suite", metric="verdict", verdict="regressed", value=None, measured=None
    )
    write_report(home.path / "pooled.json", [*cases, pooled])
    assert home.command("export", "pooled.json", "--out=b.csv").code == 0
    last = rows_of(home.path / "b.csv")[-1]
    assert (last["metric"], last["verdict"], last["value"]) == ("verdict", "regressed", "")


def test_every_column_is_documented() -> None:
    """On the page of the command, and no other."""
    from pytest_cepbench.report.writers import COLUMNS, SAMPLE_COLUMNS

    (columns,) = tables(DOCS / "report.md", "Export")
    assert set(column(columns)) == {*COLUMNS, *SAMPLE_COLUMNS}
