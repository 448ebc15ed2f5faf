"""What facts see beside similarity: the pair that is wrong and true to itself, and the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fact_checks import CODED, PAGE, Played, play, report
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices

INSTRUMENT = Path(__file__).parents[2] / "suites" / "instrument" / "suite.toml"


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The coded pair, on one scene of each category."""
    with Store(tmp_path_factory.mktemp("facts") / "store") as store:
        choices = RoleChoices(model=CODED, role="unified")
        return play("coded pair", None, INSTRUMENT, choices, store, most=1)


@pytest.mark.slow
def test_the_coded_pair_keeps_similarity_and_loses_truth(coded: Played) -> None:
    """Every picture shows the scene of the start, and no text with colors is true."""
    assert (coded.gc == 1).all()
    assert coded.kept.all()
    assert (coded.truth < 1).all()
    assert {kind.kind: kind.losses[0].lost > 0 for kind in coded.facts.kinds} == {
        "object": False, "count": False, "color": True, "size": False, "position": False,
        "relation": True,
    }  # fmt: skip


@pytest.mark.slow
def test_the_report_counts_chains_of_high_similarity(coded: Played) -> None:
    """A row for each pair: all of these keep their similarity, and none is without its scene."""
    row = next(line for line in report([coded]).splitlines() if line.startswith("| coded pair"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["8", "1.0000"]
    assert cells[4:7] == ["8", "0", "-"]


def test_the_page_has_measured_figures() -> None:
    """The tables stand between their marks."""
    page = PAGE.read_text(encoding="utf-8")
    measured = page.partition("<!-- measured: begin -->")[2].partition("<!-- measured: end -->")[0]
    assert "| step 400 | 192 | 0.7251 |" in measured
    assert "| coded pair | 192 | 1.0000 |" in measured
