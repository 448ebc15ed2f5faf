"""Spread over runs: per model, over all models, and whether runs agree on the order."""

from __future__ import annotations

import statistics
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.correlation import Method, correlation
from pytest_cepbench.metrics.variability import spread_of, spread_study

Array = npt.NDArray[np.float64]

TABLES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(2, 5)),
    elements=st.integers(-8, 8).map(lambda i: i / 8),
)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_a_spread_is_that_of_a_sample(scores: list[float]) -> None:
    """Mean, deviation by n - 1, smallest, largest and their difference."""
    found = spread_of(np.array(scores))
    assert found.runs == len(scores)
    assert found.mean == pytest.approx(statistics.fmean(scores), abs=1e-12)
    assert found.std == pytest.approx(statistics.stdev(scores), abs=1e-9)
    assert (found.low, found.high) == (min(scores), max(scores))
    assert found.range == max(scores) - min(scores)


@pytest.mark.parametrize("method", ["spearman", "kendall"])
@given(TABLES)
def test_a_study_is_the_mean_over_models_and_over_pairs_of_runs(
    method: Method, table: Array
) -> None:
    """Deviation and range average over models, rank correlation over every two different runs."""
    found = spread_study({f"model {i}": runs for i, runs in enumerate(table)}, method)
    spreads = [spread_of(runs) for runs in table]
    assert list(found.models.values()) == spreads
    assert found.mean_std == pytest.approx(np.mean([one.std for one in spreads]))
    assert found.mean_range == pytest.approx(np.mean([one.range for one in spreads]))

    pairs = [
        correlation(one, other, method) if len(table) > 1 else None
        for one, other in combinations(table.T, 2)
    ]
    values = [pair.value for pair in pairs if pair]
    if len(values) == len(pairs):
        assert found.rank_correlation == pytest.approx(np.mean(values))
    else:
        assert found.rank_correlation is None


def test_runs_with_the_same_order_agree_fully() -> None:
    """Whatever the scores: three models over three seeds that never change places."""
    study = spread_study(
        {"A": np.array([0.5, 0.52, 0.51]), "B": np.array([0.4, 0.45, 0.43]), "C": np.zeros(3)}
    )
    assert study.rank_correlation == 1.0
    assert study.method == "spearman"
    assert study.models["C"].std == 0.0


@pytest.mark.parametrize("runs", [[0.5], [], [0.5, float("nan")]])
def test_one_run_has_no_spread(runs: list[float]) -> None:
    """Nor has a run that failed: it must be left out by name."""
    with pytest.raises(ValueError, match="at least 2 runs"):
        spread_of(np.array(runs))


@pytest.mark.parametrize("lengths", [[], [2, 3]])
def test_models_of_other_runs_are_refused(lengths: list[int]) -> None:
    """Run by run the same seed, generator or encoder, or their order means nothing."""
    with pytest.raises(ValueError, match="the same runs"):
        spread_study({str(i): np.zeros(n) for i, n in enumerate(lengths)})
