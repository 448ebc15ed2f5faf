"""The suite `arena`: its accepted writer holds, and an early one is caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reference.shipped import assert_holds, copy_suite, gate

pytestmark = [pytest.mark.models, pytest.mark.slow]

SAME = 0.01
"""How far the mean truth may move on another processor: one part of one of few answers."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the suite with its baselines and checkpoints, for all tests with one store."""
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    return copy_suite("arena", tmp_path_factory.mktemp("arena"))


def cases(all_cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The cases over all categories, by metric."""
    return {case["metric"]: case for case in all_cases if case["part"] == "overall"}


def test_the_accepted_writer_holds_against_its_own_answers(place: Path) -> None:
    """It answers anew, and what it says is as true as what was accepted; so does the instrument."""
    report = assert_holds(place, "arena")
    answered = [case for case in report["cases"] if case["suite"] == "arena"]
    judged = cases(answered)
    assert abs(judged["truth"]["difference"]) <= SAME
    assert judged["truth"]["value"] > 0.85
    assert sum(case["effort"]["inputs"] for case in answered) > 40


def test_the_early_writer_regresses(place: Path) -> None:
    """It loses its battles and is farther from the truth, by its texts; the instrument, which no
    writer can answer alone, says that it is not concerned.
    """
    code, _, report = gate(
        place, "suites/arena", "--model=reference/checkpoints/planner-early",
        "--cep-samples=5", "--cep-pairing=common",
    )  # fmt: skip
    judged = cases(report["cases"])
    assert code == 1
    assert {judged[name]["verdict"] for name in ("win_rate", "truth")} == {"regressed"}
    assert judged["win_rate"]["value"] < 0.4
    # Of 50 questions without a failure no share as small as the tolerance is excluded.
    for name in ("failures", "judge_failures"):
        assert (judged[name]["difference"], judged[name]["verdict"]) == (0.0, "inconclusive")
    assert {case["suite"] for case in report["cases"]} == {"arena"}
