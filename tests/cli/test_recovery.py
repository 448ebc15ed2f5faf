"""Commands on a folder of baselines that a killed process left half-written."""

from __future__ import annotations

import os
import signal

import pytest

from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.replacement import JOURNAL, replace_files
from tests.cli.conftest import Home
from tests.cli.reports import CASES, Measured, accept_by_hand, results_of, write_report
from tests.interruption import at_change, in_child
from tests.plugin.project import contents


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
