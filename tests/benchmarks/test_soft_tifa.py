"""benchmarks/soft_tifa.py: what its tables say of VQA models whose faults are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soft_tifa import ask, controls
from pytest_cepbench.store import Store

pytestmark = pytest.mark.slow


def test_scores_follow_what_is_drawn(tmp_path: Path) -> None:
    """Exact drawings have 1 in both means, and lossy ones as much GM as scenes or more."""
    with Store(tmp_path / "store") as store:
        exact = ask(tmp_path, store, 1, "shapes:", "shapes:")
        lossy = ask(tmp_path, store, 3, "shapes:?miss=0.4", "shapes:")
    assert (exact.gm, exact.am, exact.kept) == (1.0, 1.0, 1.0)
    assert lossy.gm is not None
    assert lossy.am is not None
    assert lossy.kept <= lossy.gm < lossy.am < 1


def test_a_model_that_says_yes_more_often_than_not_is_refused(tmp_path: Path) -> None:
    """The table has a score for the others, and the share of controls of all."""
    with Store(tmp_path / "store") as store:
        _, table = controls(tmp_path, store, 2)
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    refused = {row[0].strip("| "): row[-1].strip("| ") for row in rows}
    assert refused["0"] == refused["0.4"] == "measured"
    assert refused["0.75"] == refused["1"] == "refused"
    assert all("absent" in row[1] for row in rows)
