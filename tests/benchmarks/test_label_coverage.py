"""The benchmark of coverage in small: a panel, battles in either order, and what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import label_coverage
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.datasets.opening.verdict_files import write_verdicts
from pytest_cepbench.metrics.arena import JudgedBattle


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Verdicts of people and of a judge who leans to `new`, who saw half of the battles swapped."""
    generator = np.random.default_rng(0)
    people, judge = [], []
    winners: tuple[Winner, ...] = ("A", "Tie(A)", "B")
    turned: dict[Winner, Winner] = {"A": "B", "B": "A", "Tie(A)": "Tie(B)"}
    for number in range(600):
        own = winners[int(generator.integers(3))]
        said = own if generator.random() < 0.5 else winners[0]
        people.append(JudgedBattle(f"q{number}", "new", "old", own))
        swapped = turned[said]
        judge.append(
            JudgedBattle(f"q{number}", "old", "new", swapped)
            if number % 2
            else JudgedBattle(f"q{number}", "new", "old", said)
        )
    write_verdicts(tmp_path / "people.json", people)
    write_verdicts(tmp_path / "judge.json", judge)
    return tmp_path / "people.json", tmp_path / "judge.json"


def test_a_panel_has_both_scores_of_each_model(files: tuple[Path, Path]) -> None:
    """One model's scores are the other's, turned; the judge's lean shows."""
    panel = label_coverage.read_panel(*files)
    assert panel["new"].shape == panel["old"].shape == (600, 2)
    assert np.array_equal(panel["new"], -panel["old"])
    lean = panel["new"][:, 1] - panel["new"][:, 0]
    assert float(lean.mean()) == pytest.approx(0.25, abs=0.05)


@pytest.mark.slow
def test_bounds_hold_a_population_and_are_wide_for_a_panel(files: tuple[Path, Path]) -> None:
    """Drawn with replacement the coverage is the nominal one, without it is more."""
    panel = label_coverage.read_panel(*files)
    drawn, panelled = (
        label_coverage.measure(panel, 200, 200, replacement=replacement)
        for replacement in (True, False)
    )
    assert drawn.coverage == pytest.approx(label_coverage.NOMINAL, abs=3 * drawn.error + 0.01)
    assert panelled.coverage > drawn.coverage
    assert drawn.judge_bias == pytest.approx(0.25, abs=0.05)
    assert "| 200 | 400 |" in label_coverage.page([drawn, panelled], "a judge", 2)


@pytest.mark.slow
def test_results_are_written(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A page and its numbers, where a folder is named."""
    label_coverage.main([*map(str, files), "--runs=2", f"--out={tmp_path}"])
    assert "2 models" in (tmp_path / "label-coverage.md").read_text("utf-8")
    assert (tmp_path / "label_coverage.json").exists()
