"""`[gate] looks = "betting"` in whole runs: battles judged until bets decide; small sets whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import CaseResult, gate_checkpoint
from pytest_cepbench.gate.policy import BETTING

SUITE = Path(__file__).parents[2] / "suites" / "arena" / "instrument.toml"

MORE: dict[str, Any] = {"inconclusive": "more", "attribute": 0}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of 400 questions with the answers of a model that misses one object in five."""
    root = tmp_path_factory.mktemp("bets")
    text = SUITE.read_text(encoding="utf-8")
    few = text.replace("samples_per_category = 24", "samples_per_category = 40")
    bets = few.replace("[gate]", '[gate]\nlooks = "betting"')
    assert len({text, few, bets}) == 3
    (root / "suite.toml").write_text(bets, encoding="utf-8")
    result = gate_checkpoint(
        root / "suite.toml", root=root, snapshot_update=True, model="shapes:?miss=0.2"
    )
    assert result.passed
    return root


def win_rate(root: Path, model: str, options: dict[str, Any], part: str = "overall") -> CaseResult:
    """The case of the win rate of a gated model."""
    result = gate_checkpoint(root / "suite.toml", root=root, model=model, **options)
    return result[f"arena-instrument/{part}/win_rate"]


def test_a_clear_drop_ends_early(accepted: Path) -> None:
    """At the first look, by bets at the case's whole alpha; the report says what that means."""
    case = win_rate(accepted, "shapes:?miss=0.6", MORE)

    assert (case.verdict, case.judgement.method, case.looks, case.partial) == (
        "regressed",
        BETTING,
        [50],
        True,
    )
    assert case.judgement.alpha == case.alpha
    assert any("overstated" in note for note in case.notes)


def test_a_case_that_decides_nothing_is_looked_at_once(accepted: Path) -> None:
    """A category's win rate is informational: 25 battles, by bounds."""
    case = win_rate(accepted, "shapes:?miss=0.6", MORE, part="swap")
    assert (case.primary, case.looks) == (False, [25])
    assert case.judgement.method != BETTING


def test_looks_come_more_often_than_bounds_could_afford(accepted: Path) -> None:
    """A small drop is looked at until it is decided, each look by a quarter larger."""
    case = win_rate(accepted, "shapes:?miss=0.22", MORE)

    assert case.judgement.method == BETTING
    assert case.looks[0] == 50
    assert all(b <= 1.5 * a for a, b in zip(case.looks, case.looks[1:], strict=False))
    assert case.looks[-1] == 400 or case.verdict != "inconclusive"


def test_without_further_looks_bounds_judge_all(accepted: Path) -> None:
    """Bets are for looking again: one look is judged by bounds."""
    once = win_rate(accepted, "shapes:?miss=0.6", {"attribute": 0})

    assert (once.verdict, once.judgement.method, once.looks) == ("regressed", "Gaffke", [400])


def test_small_sets_are_judged_whole(accepted: Path, tmp_path: Path) -> None:
    """Bounds of 200 samples at one look say more than bets on them."""
    text = (accepted / "suite.toml").read_text(encoding="utf-8")
    small = text.replace("samples_per_category = 40", "samples_per_category = 20")
    (tmp_path / "suite.toml").write_text(small, encoding="utf-8")
    gate_checkpoint(
        tmp_path / "suite.toml", root=tmp_path, snapshot_update=True, model="shapes:?miss=0.2"
    )
    case = win_rate(tmp_path, "shapes:?miss=0.6", MORE)

    assert (case.verdict, case.judgement.method, case.looks) == ("regressed", "Gaffke", [200])
