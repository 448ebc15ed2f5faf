"""Figures of studies, against SciPy and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.studies.study import (
    Grid,
    ModelSpread,
    StudyCell,
    agreements,
    spread_over,
)

SCORES = st.lists(
    st.integers(min_value=-1000, max_value=1000).map(lambda n: n / 1000), min_size=2, max_size=8
)


def reference() -> Any:
    """SciPy's statistics."""
    return pytest.importorskip("scipy.stats", reason="the reference is SciPy's")


def cells(scores: list[float]) -> list[StudyCell]:
    """One model's row."""
    return [StudyCell("m", str(i), value=score, n=1) for i, score in enumerate(scores)]


@given(SCORES)
def test_mean_of_seeds_has_students_interval(scores: list[float]) -> None:
    """The interval of the mean is that of Student's t; equal scores have none."""
    actual = spread_over(cells(scores), sampled=True)
    assert actual.spread is not None
    assert actual.spread.std == pytest.approx(np.std(scores, ddof=1), abs=1e-12)
    if actual.spread.std == 0:
        assert (actual.low, actual.high) == (None, None)
        return
    error = reference().sem(scores)
    expected = reference().t.interval(0.95, len(scores) - 1, loc=np.mean(scores), scale=error)
    assert (actual.low, actual.high) == pytest.approx(expected, abs=1e-8)


def test_variants_picked_by_hand_have_no_interval() -> None:
    """Generators and encoders are no sample of a population."""
    actual = spread_over(cells([0.1, 0.3, 0.2]), sampled=False)
    assert (actual.low, actual.high) == (None, None)
    assert actual.spread is not None
    assert actual.spread.range == pytest.approx(0.2)


def test_a_cell_that_was_not_measured_is_left_out_of_its_row() -> None:
    """The spread is over what was measured; a single number has none."""
    row = [*cells([0.1, 0.3]), StudyCell("m", "x", error="broken")]
    spread = spread_over(row, sampled=True).spread
    assert spread is not None
    assert spread.runs == 2
    assert spread.mean == pytest.approx(0.2)
    assert spread_over(row[1:], sampled=True) == ModelSpread("m", None)


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=3, max_size=9))
def test_agreement_is_scipys(rows: list[tuple[int, int, int]]) -> None:
    """Matrix and mean of pairs are SciPy's; a constant column leaves the mean undefined."""
    stats = reference()
    columns = {name: [float(row[i]) for row in rows] for i, name in enumerate("xyz")}
    pearson, spearman, kendall = agreements(columns, ("pearson", "spearman", "kendall"))
    constant = any(len(set(column)) == 1 for column in columns.values())
    for actual, test in (
        (pearson, stats.pearsonr),
        (spearman, stats.spearmanr),
        (kendall, stats.kendalltau),
    ):
        assert actual.variants == ("x", "y", "z")
        if constant:
            assert actual.mean is None
            continue
        pairs = [("x", "y"), ("x", "z"), ("y", "z")]
        expected = [test(columns[i], columns[j]).statistic for i, j in pairs]
        cells_of_pairs = [actual.matrix[i][j] for i, j in ((0, 1), (0, 2), (1, 2))]
        assert [cell and cell.value for cell in cells_of_pairs] == pytest.approx(expected, abs=1e-9)
        assert actual.mean == pytest.approx(np.mean(expected), abs=1e-9)


@pytest.mark.parametrize(("higher_is_better", "ranks"), [(True, [1, 2, 2]), (False, [3, 1, 1])])
def test_models_that_look_the_same_share_a_rank(higher_is_better: bool, ranks: list[int]) -> None:
    """1 is best in the metric's direction; a model that was not measured has no rank."""
    measured = {"a": 0.9, "b": 0.50001, "c": 0.50003}
    grid = Grid(
        "overall",
        "gc",
        "GC@3",
        higher_is_better,
        (
            *(StudyCell(model, "0", value=value, n=1) for model, value in measured.items()),
            StudyCell("d", "0", error="broken"),
            StudyCell("a", "1", value=0.1, n=1),
        ),
    )
    assert grid.ranks("0") == dict(zip(measured, ranks, strict=True))
