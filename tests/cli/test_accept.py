"""`cepbench accept` and `prune`: a run becomes the baselines, all of it or nothing; old ones go."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_cepbench.gate import CaseKey, FreshMeasurement, Noise, load_baseline, record_of
from pytest_cepbench.gate.baseline import ANCHORS, anchor_path, baseline_path
from pytest_cepbench.measures.measure_registry import higher_is_better
from pytest_cepbench.report.result import CaseResult, ModelShown
from tests.cli.conftest import Ended, Home
from tests.cli.reports import (
    CASES,
    GATED,
    Measured,
    accept_by_hand,
    altered,
    edit_report,
    measure_toy,
    result_of,
    results_of,
    write_report,
)
from tests.plugin.project import contents

WORSE = "shapes:?miss=0.3"


def accept(home: Home, results: list[CaseResult], *argv: str, **report: Any) -> Ended:
    """The command on a report with these results."""
    write_report(home.path / "r.json", results, **report)
    return home.command("accept", "r.json", "--reason=a better describer", *argv)


def by_name(measurements: tuple[FreshMeasurement, ...]) -> dict[str, FreshMeasurement]:
    """Measurements by PART/METRIC."""
    return {f"{m.key.part}/{m.key.metric}": m for m in measurements}


def test_all_cases_become_baselines(home: Home, measured: Measured) -> None:
    """Each file holds the measurement, the reason, and from which file it came.

    The same numbers again leave every byte, whatever reason is given then. A dry run writes
    nothing, and its table is that of the real thing. A file that cannot be used is replaced, and
    shown as such with the reason: there is nothing to compare with.
    """
    root = home.path / "baselines"
    dry = accept(home, results_of(measured()), "--dry-run")
    assert dry.code == 0
    assert not root.exists()
    assert dry.out.endswith("\nnothing written: --dry-run\n")
    ended = accept(home, results_of(measured()))
    assert ended.code == 0
    assert ended.out.splitlines()[:-1] == dry.out.splitlines()[:-1]
    assert f"{CASES} baselines written below baselines: commit them\n" in ended.out
    assert len(contents(root)) == CASES
    digest = sha256((home.path / "r.json").read_bytes()).hexdigest()[:16]
    for measurement in measured():
        path = baseline_path(root, measurement.key)
        written = load_baseline(path.read_text(), measurement.key, path.name)
        assert written.accepted == {"reason": "a better describer", "results": digest}
        assert msgspec.structs.replace(written, accepted={}) == record_of(measurement)
    value = by_name(measured())["overall/gc"].value
    assert ended.row("toy/overall/gc") == [
        "new", f"{value:.4f}", "-", "16", "no-baseline", "-",
    ]  # fmt: skip
    before = contents(root)
    again = accept(home, results_of(measured()), "--reason=another")
    assert again.code == 0
    assert again.out.endswith(f"unchanged: {CASES} cases\n\nnothing changed\n")
    assert contents(root) == before
    path = baseline_path(root, measured()[0].key)
    path.write_text("<<<<<<< HEAD\n")
    ended = accept(home, results_of(measured()))
    assert ended.row("toy/color/gc")[0] == "unusable"
    assert f"replaced, since it cannot be used: baseline {path.name} cannot be read" in ended.flat
    assert load_baseline(path.read_text(), measured()[0].key, path.name).n == 2


def test_changes_are_shown_before_and_after(home: Home, measured: Measured) -> None:
    """Value, difference (positive is better) and verdict of what changes; the rest is counted. The
    noise of a case that is measured as before stays.

    More failures are a negative difference.
    """
    root = home.path / "baselines"
    accept_by_hand(root, measured(), noise=Noise(5, 2, 0.25, 0.125))
    worse = results_of(measured(WORSE), verdict="regressed")
    ended = accept(home, worse)
    before, after = by_name(measured()), by_name(measured(WORSE))
    changed = {name for name in after if record_of(after[name]) != record_of(before[name])}
    for name in ("overall/gc", "existence/gc"):
        old, new = before[name].value, after[name].value
        cells = [f"{old:.4f}", f"{new:.4f}", f"{new - old:+.4f}", str(after[name].n), "regressed"]
        assert ended.row(f"toy/{name}") == [*cells, "frozen"]
    assert "overall/gc" in changed
    assert f"{len(changed)} baselines written" in ended.out
    assert f"measured of: describer {WORSE}\n" in ended.out
    table = tomllib.loads(baseline_path(root, after["overall/gc"].key).read_text())
    assert table["noise"] == {"seeds": 5, "units": 2, "sd": 0.25, "value_sd": 0.125}
    (clean,) = [measurement for measurement in measured() if measurement.key.metric == "failures"]
    (failing,) = [
        measurement
        for measurement in measured("shapes:?blank=0.5")
        if measurement.key.metric == "failures"
    ]
    accept_by_hand(home.path / "baselines", [clean])
    ended = accept(home, [result_of(failing)])
    assert ended.row("toy/overall/failures")[2] == f"{-failing.value:+.4f}"


@pytest.mark.parametrize("name", ["overall/gc", "toy/overall/gc"])
def test_single_cases(home: Home, measured: Measured, name: str) -> None:
    """Only what was named is written, and what is wrong with the others does not matter."""
    results = [
        result_of(measurement)
        if measurement.key.part == "overall"
        else result_of(measurement, measured=None)
        for measurement in measured()
    ]
    ended = accept(home, results, f"--case={name}", "--case=overall/failures")
    assert ended.code == 0
    keys = [CaseKey("toy", "overall", metric) for metric in ("gc", "failures")]
    root = home.path / "baselines"
    assert {root / name for name in contents(root)} == {baseline_path(root, key) for key in keys}


def test_a_case_of_several_suites_needs_the_suite(home: Home, measured: Measured) -> None:
    """PART/METRIC that two suites have is no name; with the suite it is."""
    measurement = measured()[0]
    key = CaseKey("other", measurement.key.part, measurement.key.metric)
    twin = result_of(altered(measurement, key=key))
    ended = accept(home, [result_of(measurement), twin], f"--case={key.part}/{key.metric}")
    ended.refused(f"say which of {measurement.key}, {key}")
    assert accept(home, [result_of(measurement), twin], f"--case={key}").code == 0
    assert list(contents(home.path / "baselines")) == [f"other/{key.file_stem}.toml"]


def test_a_write_that_fails_writes_nothing(home: Home, measured: Measured) -> None:
    """The file and the reason are said; the same command then does all of the work."""
    results = results_of(measured())
    blocked = baseline_path(home.path / "baselines", measured()[2].key)
    blocked.mkdir(parents=True)
    ended = accept(home, results)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("cepbench: nothing is accepted: ")
    assert f"{blocked.name} could not be written: Is a directory; none of the {CASES} files" in line
    assert "commit them" not in ended.out
    assert not contents(home.path / "baselines")
    blocked.rmdir()
    again = accept(home, results)
    assert again.code == 0
    assert (
        len([name for name in contents(home.path / "baselines") if name.endswith(".toml")]) == CASES
    )


def test_what_was_accepted_first_stays_as_the_anchor(home: Home, measured: Measured) -> None:
    """The second acceptance freezes the first, byte by byte; the third leaves it alone.

    `--move-anchor` makes it what is accepted now, also of a baseline that stays; once.
    """
    root, measurement = home.path / "baselines", measured()[0]
    target, anchor = baseline_path(root, measurement.key), anchor_path(root, measurement.key)
    accept(home, [result_of(measurement)])
    first = target.read_bytes()
    assert not anchor.exists()
    last = [result_of(measured("shapes:?miss=0.9")[0])]
    second, third = accept(home, [result_of(measured(WORSE)[0])]), accept(home, last)
    assert [ended.row("toy/color/gc")[-1] for ended in (second, third)] == ["frozen", "kept"]
    assert anchor.read_bytes() == first != target.read_bytes()
    assert "stays as the anchor" in second.out
    moved = accept(home, last, "--move-anchor", "--reason=the steps were meant")
    assert moved.row("toy/color/gc")[-1] == "moved"
    assert anchor.read_text() == target.read_text()
    before = contents(root)
    again = accept(home, last, "--move-anchor", "--reason=once more")
    assert again.out.endswith("nothing changed\n")
    assert contents(root) == before


def test_something_else_than_before(home: Home, measured: Measured, tmp_path: Path) -> None:
    """The fields that differ are named, no difference is shown, and an old anchor moves along."""
    accept(home, results_of(measured()))
    accept(home, results_of(measured(WORSE)))
    seeded = GATED.replace("iterations = 2", "iterations = 2\nseed = 7")
    others = tuple(measure_toy(tmp_path, "shapes:?miss=0.5", seeded))
    ended = accept(home, [result_of(measurement) for measurement in others])
    cells = ended.row("toy/overall/gc")
    assert (cells[2], cells[-1]) == ("-", "moved")
    assert "not comparable with what was accepted before (chain): toy/" in ended.flat
    assert "and 5 more" in ended.flat


Edit = Callable[[dict[str, Any]], object]
"""Changes the document of a report."""


def refused(home: Home, ended: Ended, *message: str) -> None:
    """Exit code 1, one line for each reason, no table, no file."""
    assert (ended.code, ended.out) == (1, "")
    lines = ended.err.splitlines()
    assert len(lines) == len(message)
    for line, piece in zip(lines, message, strict=True):
        assert line.startswith("cepbench: nothing is accepted: ")
        assert piece in line
    assert not (home.path / "baselines").exists()


def test_runs_that_can_update_no_baseline(home: Home, measured: Measured) -> None:
    """Incomplete, with a worker that died, or decided early; not even those of single cases.

    Cases that were not measured are named with reasons; none of the others is accepted either. Nor
    is a run of two models in one role, also of one that was not under test: both specs are named,
    with a test of each. Of one case equal measurements are one; others contradict each other.
    """
    results = results_of(measured())
    ended = accept(home, results, verdict="incomplete", problems=["worker 'gw0' crashed"])
    refused(home, ended, "the run is incomplete: worker 'gw0' crashed")
    ended = accept(home, results, "--case=overall/gc", verdict="incomplete")
    refused(home, ended, "the run is incomplete")
    refused(home, accept(home, results, deaths=2), "2 workers died in the run, and baselines are")
    partly = accept(home, [result_of(measured()[0], partial=True)])
    refused(home, partly, "toy/color/gc: it was decided before all samples were looked at: run ag")
    color, count, *rest = measured()
    broken = result_of(color, verdict="error", measured=None, reasons=["no \x1b[31mGPU"])
    also = result_of(count, verdict="error")
    ended = accept(home, [broken, also, *map(result_of, rest)])
    words = "toy/color/gc: it was not measured: no \\x1b[31mGPU", "toy/count/gc: it was not"
    refused(home, ended, *words)
    generators = [ModelShown("generator", spec, "f" * 64, "x") for spec in ("shapes:", "other")]
    results = [
        result_of(measurement, models=[generator])
        for measurement, generator in zip(measured(), generators, strict=False)
    ]
    ended = accept(home, results)
    refused(home, ended, "generator of suite toy is shapes: in test_toy.py::test_drift[color-gc]")
    measurement, other = measured()[0], measured(WORSE)[0]
    assert measurement.value != other.value
    ended = accept(home, [result_of(measurement), result_of(other)])
    refused(home, ended, "measured different things")
    assert accept(home, [result_of(measurement), result_of(measurement)]).code == 0
    assert len(contents(home.path / "baselines")) == 1


def _of(record: str, name: str, value: object) -> Edit:
    return lambda document: document["cases"][0][record].__setitem__(name, value)


EDITS: dict[str, tuple[Edit, str]] = {
    "problems": (
        lambda document: document.update(verdict="passed", problems=["2 tests did not report"]),
        "the run is incomplete: 2 tests did not report",
    ),
    "verdict of the run": (
        lambda document: document.update(verdict="passed"),
        "the report says that the run is passed, and its cases that it is failed",
    ),
    "direction": (
        _of("measurement", "higher_is_better", False),
        "lower is better, which it is not of gc/1",
    ),
    "value": (
        _of("measurement", "value", 0.123),
        "the measurement says value = 0.123 and its scores",
    ),
    "n": (_of("measurement", "n", 200), "the measurement says n = 200"),
    "case": (_of("measurement", "case", "toy/count/gc"), "is of case 'toy/count/gc'"),
    "scores": (_of("measurement", "scores", {}), "holds no scores"),
    "format": (_of("measurement", "format", 1), "has format 1, this version writes"),
    "newer format": (_of("measurement", "format", 99), "has format 99, this version writes"),
    "noise": (
        _of("measurement", "noise", msgspec.to_builtins(Noise(2, 2, -1.0, 0.0))),
        "sd = -1.0",
    ),
    "two specs": (
        lambda document: document["cases"][1]["measurement"]["model"].update(spec="another"),
        "the describer of suite toy is shapes: in ",
    ),
    "no verdict": (_of("judgement", "verdict", "incomplete"), "toy/color/gc: it was not measured"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_reports_that_were_edited(home: Home, measured: Measured, edit: str) -> None:
    """What a report says has to agree with itself, and the direction is that of the metric."""
    results = results_of(measured())
    report = write_report(home.path / "r.json", results)
    change, message = EDITS[edit]
    edit_report(report, change)
    ended = home.command("accept", "r.json", "--reason=x")
    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    assert all(
        line.startswith("cepbench: nothing is accepted: ") for line in ended.err.splitlines()
    )
    assert not (home.path / "baselines").exists()


def test_directions_are_those_of_the_metrics() -> None:
    """As every accepted baseline of this repository has it."""
    for path in (Path(__file__).parents[2] / "baselines").rglob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        assert higher_is_better(table["identity"]["metric"]) == table["higher_is_better"], path


def test_a_mistake_is_one_line_and_exit_code_2(home: Home, measured: Measured) -> None:
    """Nothing is written; the verdict of a whole suite is no case that has a baseline."""
    verdict = result_of(measured()[0], part="suite", metric="verdict", measured=None)
    for argv, message in (
        (["--reason= "], "--reason is empty"),
        (["--case=overall/gcc"], "unknown case 'overall/gcc'. Did you mean 'toy/overall/gc'?"),
        (["--case="], "unknown case ''"),
        (["--case=suite/verdict"], "unknown case 'suite/verdict'"),
    ):
        ended = accept(home, [*map(result_of, measured()), verdict], *argv)
        ended.refused(message, lines=1)
        assert not (home.path / "baselines").exists()


def test_what_lies_at_chance(home: Home, measured: Measured) -> None:
    """It would see nothing: each such case is named, and none of the others is accepted either.

    One that cannot fail a run is remarked on, and so is what was asked for.
    """
    measurement = by_name(measured(WORSE))["overall/gc"]
    good = altered(measured(WORSE)[0], floor=0.1)
    blind = altered(measurement, floor=measurement.value - 0.001)
    ended = accept(home, [result_of(good), result_of(blind)])
    words = f"{blind.key}: {blind.value:.4g} of a range from "
    refused(home, ended, words)
    assert "sees nothing; --accept-insensitive accepts it all the same" in ended.err
    informational = accept(home, [result_of(blind, primary=False)], "--dry-run")
    asked = accept(home, [result_of(blind)], "--accept-insensitive")
    assert (informational.code, asked.code) == (0, 0)
    assert f"warning: {words}" in informational.flat
    assert "can see a drop of at most 0.001" in asked.flat


# -- `cepbench prune`: what no case has any more, deleted when asked to ----------------------------


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


def test_only_a_whole_run_lists_and_deletes(full: Home, measured: Measured) -> None:
    """One that is incomplete, and a suite judged in part: what was deselected has its baselines.

    A listing names baseline and anchor of the case that is gone, and deletes nothing; nor does a
    mistake, which is one line. Asked to delete, those two files go, every other stays as it is,
    cards of judges too, which are of no suite; then there is nothing left to find.
    """
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
