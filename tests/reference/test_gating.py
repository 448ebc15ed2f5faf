"""The gate of a training: what it accepts, lets pass and stops, on models whose loss is known."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from gating import reference_gate

from pytest_cepbench.integrations import Outcome

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]

TEST = f"{ROOT}/suites/instrument/test_instrument.py::test_drift[overall-gc]"


def model(miss: float) -> Path:
    """A describer that misses this share of all objects, in the place of a checkpoint."""
    return Path(f"shapes:?miss={miss}")


def test_each_checkpoint_is_held_to_the_last_accepted_one(tmp_path: Path) -> None:
    """The first is accepted, a better one too; what would have passed against the first then stops.

    The first baseline stays as the anchor.
    """
    gate = reference_gate(tmp_path / "gate", TEST)
    first, better, worse = model(0.4), model(0.05), model(0.3)

    verdicts = [gate(checkpoint) for checkpoint in (first, better, worse)]

    assert [verdict.outcome for verdict in verdicts] == ["accepted", "accepted", "regressed"]
    assert [verdict.stops for verdict in verdicts] == [False, False, True]
    assert [verdict.accepted for verdict in verdicts] == [first, better, better]
    (anchor,) = (tmp_path / "gate/baselines/instrument/anchors").glob("overall-gc-*.toml")
    assert tomllib.loads(anchor.read_text())["model"]["spec"] == str(first)
    last = verdicts[-1]
    assert last.code == 1
    assert last.report.exists()
    for line in (
        "1 of 1 gating case regressed; worst instrument/overall GC@3",
        f"{worse}: regressed, the training stops here",
        f"last accepted checkpoint: {better}",
        f"report: {last.report}",
    ):
        assert line in last.summary


def test_what_the_samples_do_not_tell_goes_on_and_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inconclusive checkpoint stops nothing and moves no baseline, also for a gate made anew."""
    monkeypatch.setenv("CEPBENCH_SAMPLES", "1")
    first, alike = model(0.1), model(0.12)
    assert reference_gate(tmp_path, TEST)(first).outcome is Outcome.ACCEPTED
    before = {path: path.read_text() for path in (tmp_path / "baselines").rglob("*.toml")}

    verdict = reference_gate(tmp_path, TEST)(alike)  # as a training that is started again

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert (verdict.stops, verdict.accepted) == (False, first)
    assert {path: path.read_text() for path in (tmp_path / "baselines").rglob("*.toml")} == before
