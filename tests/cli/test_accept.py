"""`cepbench accept`: what a run measured becomes the baselines, all of it or nothing."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from pytest_cepbench.gate import CaseKey, load_baseline, record_of
from pytest_cepbench.gate.baseline import baseline_path
from tests.cli.accepting import WORSE, accept, by_name, row
from tests.cli.conftest import Home
from tests.cli.reports import (
    CASES,
    Measured,
    accept_by_hand,
    altered,
    result_of,
)
from tests.plugin.project import contents


def test_all_cases_become_baselines(home: Home, measured: Measured) -> None:
    """Each file holds the measurement, the reason, and from which file it came."""
    ended = accept(home, [result_of(measurement) for measurement in measured()])
    root = home.path / "baselines"
    assert ended.code == 0
    assert f"{CASES} baselines written below baselines: commit them\n" in ended.out
    assert len(contents(root)) == CASES
    digest = sha256((home.path / "r.json").read_bytes()).hexdigest()[:16]
    for measurement in measured():
        path = baseline_path(root, measurement.key)
        written = load_baseline(path.read_text(), measurement.key, path.name)
        assert written.accepted == {"reason": "a better describer", "results": digest}
        assert msgspec.structs.replace(written, accepted={}) == record_of(measurement)
    value = by_name(measured())["overall/gc"].value
    assert row(ended.out, "toy/overall/gc") == [
        "new", f"{value:.4f}", "-", "16", "no-baseline", "-",
    ]  # fmt: skip


def test_changes_are_shown_before_and_after(home: Home, measured: Measured) -> None:
    """Value, difference (positive is better) and verdict of what changes; the rest is counted."""
    root = home.path / "baselines"
    accept_by_hand(root, measured())
    worse = [result_of(measurement, verdict="regressed") for measurement in measured(WORSE)]
    ended = accept(home, worse)
    before, after = by_name(measured()), by_name(measured(WORSE))
    changed = {name for name in after if record_of(after[name]) != record_of(before[name])}
    for name in ("overall/gc", "existence/gc"):
        old, new = before[name].value, after[name].value
        cells = [f"{old:.4f}", f"{new:.4f}", f"{new - old:+.4f}", str(after[name].n), "regressed"]
        assert row(ended.out, f"toy/{name}") == [*cells, "frozen"]
    assert "overall/gc" in changed
    assert f"{len(changed)} baselines written" in ended.out
    assert f"measured of: describer {WORSE}\n" in ended.out


def test_a_difference_is_turned_where_lower_is_better(home: Home, measured: Measured) -> None:
    """More failures are a negative difference."""
    (clean,) = [measurement for measurement in measured() if measurement.key.metric == "failures"]
    (failing,) = [
        measurement
        for measurement in measured("shapes:?blank=0.5")
        if measurement.key.metric == "failures"
    ]
    accept_by_hand(home.path / "baselines", [clean])
    ended = accept(home, [result_of(failing)])
    assert row(ended.out, "toy/overall/failures")[2] == f"{-failing.value:+.4f}"


def test_nothing_changed(home: Home, measured: Measured) -> None:
    """The same numbers again leave every byte, whatever reason is given now; exit code 0."""
    accept(home, [result_of(measurement) for measurement in measured()])
    before = contents(home.path / "baselines")
    ended = accept(home, [result_of(measurement) for measurement in measured()], "--reason=another")
    assert ended.code == 0
    assert ended.out.endswith(f"unchanged: {CASES} cases\n\nnothing changed\n")
    assert contents(home.path / "baselines") == before


def test_a_dry_run_writes_nothing(home: Home, measured: Measured) -> None:
    """The table is that of the real thing."""
    results = [result_of(measurement) for measurement in measured()]
    dry = accept(home, results, "--dry-run")
    assert dry.code == 0
    assert not (home.path / "baselines").exists()
    assert dry.out.endswith("\nnothing written: --dry-run\n")
    real = accept(home, results)
    assert real.out.splitlines()[:-1] == dry.out.splitlines()[:-1]


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
    assert ended.code == 2
    assert f"say which of {measurement.key}, {key}" in ended.err
    assert accept(home, [result_of(measurement), twin], f"--case={key}").code == 0
    assert list(contents(home.path / "baselines")) == [f"other/{key.file_stem}.toml"]


def test_a_file_that_cannot_be_used_is_replaced(home: Home, measured: Measured) -> None:
    """It is shown as such, with the reason: there is nothing to compare with."""
    accept(home, [result_of(measurement) for measurement in measured()])
    path = baseline_path(home.path / "baselines", measured()[0].key)
    path.write_text("<<<<<<< HEAD\n")
    ended = accept(home, [result_of(measurement) for measurement in measured()])
    assert row(ended.out, "toy/color/gc")[0] == "unusable"
    assert f"replaced, since it cannot be used: baseline {path.name} cannot be read" in " ".join(
        ended.out.split()
    )
    assert load_baseline(path.read_text(), measured()[0].key, path.name).n == 2


def test_a_write_that_fails_writes_nothing(home: Home, measured: Measured) -> None:
    """The file and the reason are said; the same command then does all of the work."""
    results = [result_of(measurement) for measurement in measured()]
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


def test_texts_of_users_reach_no_terminal_as_they_are(home: Home, measured: Measured) -> None:
    """Control characters are not printed, and are escaped in files, which can be read back."""
    measurement = altered(
        measured()[0],
        key=CaseKey("toy", "co\x1b[2Jlor\n", "gc"),
        model={"role": "describer", "spec": "a\x1b]0;b", "identity": "x"},
    )
    ended = accept(home, [result_of(measurement)], "--reason=line\n\x1b[31mred\x7f")
    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err
    path = baseline_path(home.path / "baselines", measurement.key)
    assert (
        load_baseline(path.read_text(), measurement.key, "x").accepted["reason"]
        == "line\n\x1b[31mred\x7f"
    )


def test_another_folder(home: Home, measured: Measured) -> None:
    """`--baselines`, in pytest's spelling too, names where they go."""
    results = [result_of(measurement) for measurement in measured()]
    for option in ("--baselines=one", "--cep-baselines=two"):
        assert accept(home, results, option).code == 0
    assert contents(home.path / "one") == contents(home.path / "two")
    assert not (home.path / "baselines").exists()
