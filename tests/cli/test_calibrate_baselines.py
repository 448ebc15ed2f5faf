"""`cepbench calibrate` writes into baselines of what it measured, and leaves all others alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.gate.baseline import baseline_path
from tests.cli.calibrating import MODEL, calibrate, noise_in
from tests.cli.conftest import Home
from tests.cli.reports import GATED, Measured, accept_by_hand, measure_toy
from tests.plugin.project import contents
from tests.studies.toy import write_suite


def test_without_baselines_nothing_is_written(home: Home) -> None:
    """The table is there all the same, and how to accept."""
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 0
    assert "not kept, no baseline was accepted yet: run pytest with --snapshot-update" in ended.out
    assert not (home.path / "baselines").exists()


def test_a_dry_run(home: Home, measured: Measured) -> None:
    """Which baselines would be written, and none is."""
    accept_by_hand(home.path / "baselines", measured(MODEL)[:2])
    before = contents(home.path / "baselines")
    ended = calibrate(home, "--seeds=2", "--dry-run")
    assert "to be written, but for --dry-run: color/gc, count/gc\n" in ended.out
    assert contents(home.path / "baselines") == before


def test_a_baseline_of_something_else_stays(home: Home, measured: Measured) -> None:
    """What differs is named; the cases whose baselines fit are calibrated."""
    root = home.path / "baselines"
    accept_by_hand(root, measured(MODEL)[1:])
    odd = measured(MODEL)[0]
    accept_by_hand(root, [odd], identity={**odd.identity, "generate prompt": "paint this"})
    before = baseline_path(root, odd.key).read_bytes()
    ended = calibrate(home, "--seeds=2")
    flat = " ".join(ended.out.split())
    assert ended.code == 0
    assert (
        "not kept, the baseline was made from something else: generate prompt: baseline paint"
        in flat
    )
    assert baseline_path(root, odd.key).read_bytes() == before
    assert all(noise_in(root, measurement) is not None for measurement in measured(MODEL)[1:])


def test_fewer_samples_are_something_else(home: Home, measured: Measured) -> None:
    """`--samples` calibrates what was accepted with as many."""
    root = home.path / "baselines"
    accept_by_hand(root, measured(MODEL))
    before = contents(root)
    ended = calibrate(home, "--seeds=2", "--samples=1")
    assert "samples: baseline 16 " in " ".join(ended.out.split())
    assert contents(root) == before
    assert "one independent sample shows no spread" in ended.out
    assert ended.code == 0


EDITS: dict[str, Callable[[str], str]] = {
    "more than its noise: accept it again first": lambda text: text.replace("# Acc", "# Our acc"),
    "not as this version writes it": lambda text: text.replace("\n", "\r\n"),
    "and would change in": lambda text: text.replace('"GC@2"', '"GC@2"  # why'),
    "cannot be read: ": lambda _: "<<<<<<<",
    "by a newer pytest-cepbench": lambda text: text.replace("format = ", "format = 9"),
}
"""What a remark on the file says -> how it was edited."""


def test_a_baseline_that_was_edited_stays(home: Home, measured: Measured) -> None:
    """Calibrating would change more of it than its noise; the others are calibrated."""
    root = home.path / "baselines"
    accept_by_hand(root, measured(MODEL))
    edited = {}
    for measurement, edit in zip(measured(MODEL), EDITS.values(), strict=False):
        path = baseline_path(root, measurement.key)
        path.write_bytes(edit(path.read_text()).encode())
        edited[path] = path.read_bytes()
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 0
    for sentence in EDITS:
        assert sentence in " ".join(ended.out.split())
    assert {path: path.read_bytes() for path in edited} == edited
    assert all(
        noise_in(root, measurement) is not None for measurement in measured(MODEL)[len(EDITS) :]
    )


def test_a_baseline_of_another_model(home: Home, measured: Measured) -> None:
    """Its noise is written, since checkpoints of one family are alike, and that is said."""
    root = home.path / "baselines"
    accept_by_hand(root, measured())
    ended = calibrate(home, "--seeds=2")
    assert noise_in(root, measured()[0]) is not None
    assert (
        "the baseline is of another model (shapes:) than the calibrated one: color/gc" in ended.out
    )


def test_the_suites_own_seed_is_the_first(home: Home, tmp_path: Path) -> None:
    """Seeds go on from that of the suite, whose measurement is compared with the baseline."""
    text = GATED.replace("iterations = 2", "iterations = 2\nseed = 40")
    accept_by_hand(home.path / "baselines", measure_toy(tmp_path, MODEL, text))
    write_suite(home.path, text)
    ended = calibrate(home, "--seeds=2")
    assert "seeds 40 to 41" in ended.out
    assert "\nwritten: color/gc, " in ended.out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--seeds=1"], "--seeds 1: noise shows between at least 2 seeds"),
        (["--seeds=0"], "--seeds '0': a number of at least 1"),
        (["--seeds=two"], "--seeds 'two': a number of at least 1"),
        (["--tolerance=-0.1"], "--tolerance is a number of at least 0, got -0.1"),
        (["--tolerance=nan"], "--tolerance is a number of at least 0, got nan"),
        (["--tolerance=low"], "--tolerance 'low': a number is expected"),
        (["--alpha=0"], "--alpha is a number over 0 and at most 0.5, got 0.0"),
        (["--alpha=0.6"], "--alpha is a number over 0 and at most 0.5"),
        (["--samples=0"], "--samples '0': a number of at least 1"),
        (["--data=photos"], "--data 'photos': NAME=PATH is expected"),
        (["--model=nobody/"], "nobody"),
        (["--model=replay:nowhere"], "with one seed"),
        (["--describer=shapes:"], "drop one"),
        (["--store=suite.toml/store"], "suite.toml/store"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(home: Home, argv: list[str], sentence: str) -> None:
    """Nothing is measured."""
    model = "python:tests.studies.toy:BandedDescriber"
    ended = calibrate(home, *argv, model=model)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cepbench: ")
    assert ended.err.count("\n") == 1
    assert sentence in ended.err


def test_no_suite(home: Home) -> None:
    """The path is named."""
    ended = home.command("calibrate", "nowhere", "--model=shapes:")
    assert ended.code == 2
    assert "no suite at 'nowhere'" in ended.err


def test_a_file_that_cannot_be_written(
    home: Home, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in the way of the new file: said, exit code 1, no baseline is written."""
    root = home.path / "baselines"
    accept_by_hand(root, measured(MODEL))
    path = baseline_path(root, measured()[0].key)
    path.with_name(f".{path.name}.new").mkdir()
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 1
    assert "could not be written: Is a directory; none of the" in " ".join(ended.out.split())
    assert not [
        measurement for measurement in measured() if noise_in(root, measurement) is not None
    ]
