"""The benchmark of labels in small: its formula, its figures, and its page."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.dataset_labels import expected_wrong, main
from pytest_cepbench.construction.final_labels import vote_labels


@pytest.mark.parametrize("people", [0, 1, 2, 3, 4])
def test_the_computed_share_is_that_of_all_outcomes(people: int) -> None:
    """Each pattern of who errs, weighted by its chance, decided by the real vote."""
    model_error, person_error = 0.1, 0.05
    total = 0.0
    for model, *wrong in itertools.product((False, True), repeat=1 + people):
        chance = model_error if model else 1 - model_error
        for person in wrong:
            chance *= person_error if person else 1 - person_error
        labels = [set() if error else {"A"} for error in (model, *wrong)]
        final = vote_labels(("A",), labels[0], labels[1:])
        total += chance * (final.patterns != ("A",))

    assert expected_wrong(model_error, person_error, people) == pytest.approx(total)


def test_a_fourth_voter_is_worth_it_and_a_third_person_is_not() -> None:
    """With an odd number of people the model's vote never decides."""
    assert expected_wrong(0.3, 0.05, 3) == pytest.approx(expected_wrong(0.01, 0.05, 3))
    assert expected_wrong(0.05, 0.05, 2) == pytest.approx(expected_wrong(0.05, 0.05, 3))


@pytest.mark.slow
def test_figures_are_written_into_the_page(tmp_path: Path) -> None:
    """All promises are kept in the quick run, and every table has its place."""
    results = Path(__file__).parents[2] / "benchmarks" / "results" / "dataset-labels.md"
    page = tmp_path / "page.md"
    page.write_text(results.read_text("utf-8"), encoding="utf-8")

    assert main(["--quick", "--json", str(tmp_path / "f.json"), "--page", str(page)]) == 0
    assert "| 0.1 | 80 | 6 |" in page.read_text("utf-8")
    assert (tmp_path / "f.json").stat().st_size > 100
