"""`cepbench prune`: what no case has any more is listed, and only that is deleted when asked to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.gate import CaseKey, FreshMeasurement
from pytest_cepbench.gate.baseline import ANCHORS, anchor_path, baseline_path
from pytest_cepbench.report.result import CaseResult
from tests.cli.conftest import Ended, Home
from tests.cli.reports import (
    CASES,
    Measured,
    accept_by_hand,
    altered,
    results_of,
    write_report,
)
from tests.plugin.project import contents


@pytest.fixture
def full(home: Home, measured: Measured) -> Home:
    """The toy suite's baselines, one of a case that is no more with its anchor, a gone suite's."""
    root = home.path / "baselines"
    accept_by_hand(root, [*measured(), gone(measured)])
    path = anchor_path(root, gone(measured).key)
    path.parent.mkdir()
    path.write_bytes(baseline_path(root, gone(measured).key).read_bytes())
    anchor = anchor_path(root, measured()[0].key)
    anchor.write_bytes(baseline_path(root, measured()[0].key).read_bytes())
    accept_by_hand(root, [other(measured)])
    return home


def gone(measured: Measured) -> FreshMeasurement:
    """Of a category that the suite had once; its name has a slash."""
    return altered(measured()[0], key=CaseKey("toy", "old/weather", "gc"))


def other(measured: Measured) -> FreshMeasurement:
    """Of a suite that is gone altogether."""
    return altered(measured()[0], key=CaseKey("other", "color", "gc"))


def prune(
    home: Home, measured: Measured, *argv: str, results: list[CaseResult] | None = None
) -> Ended:
    """The command on a complete run of the toy suite, or these results."""
    judged = results_of(measured()) if results is None else results
    write_report(home.path / "r.json", judged)
    return home.command("prune", "r.json", *argv)


def test_listed_and_deleted(full: Home, measured: Measured) -> None:
    """A listing names baseline and anchor of the case that is gone, and deletes nothing; nor does a
    mistake, which is one line. Asked to delete, those two files go, every other stays as it is,
    cards of judges too, which are of no suite; then there is nothing left to find.
    """
    root = full.path / "baselines"
    (root / "judges").mkdir()
    (root / "judges/judge-0a1b2c3d4e.json").write_text("{}")
    before = contents(root)
    ended = prune(full, measured)
    stem = gone(measured).key.file_stem
    assert ended.code == 0
    assert f"\nbaselines/toy/{stem}.toml: toy/old/weather/gc\n" in ended.out
    assert f"\nbaselines/toy/{ANCHORS}/{stem}.toml: toy/old/weather/gc\n" in ended.out
    assert ended.out.count(": toy/") == 2
    assert ended.out.endswith("\nnothing deleted: say --delete\n")
    for name in ("nowhere", "suite.toml"):
        ended = prune(full, measured, "--delete", f"--baselines={name}")
        ended.refused(f"no folder of baselines at '{name}'", lines=1)
        assert ended.out == ""
    assert contents(root) == before

    ended = prune(full, measured, "--delete")
    assert (ended.code, ended.err, "judges" in ended.out) == (0, "", False)
    assert "2 of 2 deleted: commit that\n" in ended.out
    assert before.keys() - contents(root).keys() == {
        f"toy/{stem}.toml", f"toy/{ANCHORS}/{stem}.toml",
    }  # fmt: skip
    assert contents(root).items() <= before.items()
    assert "left: baselines/other: the results have no case of this suite" in ended.out
    again = prune(full, measured, "--delete")
    assert "every baseline has its case\n" in again.out


def test_runs_that_do_not_know_all_cases(full: Home, measured: Measured) -> None:
    """One that is incomplete, and a suite judged in part: what was deselected has its baselines."""
    before, results = contents(full.path / "baselines"), results_of(measured())
    write_report(full.path / "r.json", results, "incomplete", ["2 tests did not report: a, b"])
    incomplete = "the run is incomplete: 2 tests did not report: a, b; run it again"
    ended = full.command("prune", "r.json", "--delete")
    ended.refused(f"nothing is pruned: {incomplete}\n", code=1, lines=1)
    for judged in (1, CASES - 1):
        ended = prune(full, measured, "--delete", results=results[:judged])
        part = f"suite toy has {CASES} cases and the run judged {judged}: run all of it"
        ended.refused(part, code=1, lines=1)
    # Without their number a part looks like all.
    ended = prune(full, measured, results=results_of(measured(), of=0))
    ended.refused("suite toy has 0 cases and the run judged 10", code=1)
    assert contents(full.path / "baselines") == before


def test_only_baselines_are_deleted(full: Home, measured: Measured) -> None:
    """Notes, other TOML, copies under other names, folders and unreadable files: left and named."""
    folder = full.path / "baselines" / "toy"
    old = (folder / f"{gone(measured).key.file_stem}.toml").read_text()
    left = {
        "README.md": "notes",
        "pyproject.toml": "[tool]\n",
        "copy.toml": old,
        "half.toml": "<<<<<<<",
        "list.toml": "case = ['toy/x/gc']\nformat = 2\n",
        f"{CaseKey('toy', 'x', 'gc').file_stem}.toml": old.replace("toy/old/weather", "other/x"),
        ".x.toml.new": old,
        f"{gone(measured).key.file_stem}.bak": old,
    }
    for name, text in left.items():
        (folder / name).write_text(text)
    (folder / "more").mkdir()
    (folder / "more" / "x.toml").write_text(old)
    (folder / "deep.toml").mkdir()
    ended = prune(full, measured, "--delete")
    assert ended.code == 0
    assert "2 of 2 deleted" in ended.out
    for name in [*left, "more", "deep.toml"]:
        assert (folder / name).exists()
        assert f"left: baselines/toy/{name}: " in ended.flat
    assert (folder / "more" / "x.toml").exists()
    assert "copy.toml: is called otherwise than the baseline of its case" in ended.flat


def test_nothing_behind_a_symbolic_link_is_touched(
    full: Home, measured: Measured, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Links to files, to anchors and to suites are left, and so is what they lead to."""
    away: Path = tmp_path_factory.mktemp("away")
    root = full.path / "baselines"
    stem = gone(measured).key.file_stem
    (root / "toy" / f"{stem}.toml").rename(away / "file.toml")
    (root / "toy" / f"{stem}.toml").symlink_to(away / "file.toml")
    (root / "toy" / ANCHORS).rename(away / "folder")
    (root / "toy" / ANCHORS).symlink_to(away / "folder")
    (root / "other").rename(away / "suite")
    (root / "other").symlink_to(away / "suite")
    before = contents(away)
    ended = prune(full, measured, "--delete")
    assert ended.code == 0
    assert ended.out.count("a symbolic link, not a file") == 2
    assert "every baseline has its case" in ended.out
    assert contents(away) == before
    assert (root / "toy" / f"{stem}.toml").is_symlink()
