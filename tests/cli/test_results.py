"""What comes before all else: no report is refused, half-written baselines are made whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from itertools import product

import pytest

from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.replacement import JOURNAL, replace_files
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
from tests.documents import flat_report
from tests.interruption import at_change, in_child
from tests.plugin.project import INI, TEST_MODULE, contents, run_plainly
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
    ended = half.command("accept", "r.json", "--reason=x")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
    assert JOURNAL in ended.err
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
