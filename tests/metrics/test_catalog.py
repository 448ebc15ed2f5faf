"""The metrics that suites can name: what each makes of traces and failures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics import METRICS, gc_at_t

Array = npt.NDArray[np.float64]

TRACES = np.array([[0.9, 0.8, 0.7], [0.9, 0.0, 0.0]])
FAILED = np.array([False, True])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gc", gc_at_t(TRACES)), ("s", [0.7, 0.0]), ("failures", [0.0, 1.0])],
)
def test_each_metric_scores_each_chain(name: str, expected: list[float]) -> None:
    """GC@T weighs the trace, s(T) is its end, the failure rate counts chains that stopped."""
    np.testing.assert_array_equal(METRICS[name].scores(TRACES, FAILED), expected)


def test_every_metric_says_which_way_is_better() -> None:
    """More similarity is better, more failures are worse: the gate turns drifts by this."""
    assert {name: metric.higher_is_better for name, metric in METRICS.items()} == {
        "gc": True,
        "s": True,
        "failures": False,
    }


@pytest.mark.parametrize("name", sorted(METRICS))
@given(
    traces=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 5), st.just(3)), elements=st.floats(-1, 1)
    ),
    lost=st.floats(0.01, 1),
)
def test_the_direction_is_that_of_the_scores(name: str, traces: Array, lost: float) -> None:
    """A chain that drifted further, or failed, never scores better in the declared direction."""
    metric = METRICS[name]
    n = len(traces)
    before = metric.scores(traces, np.zeros(n, np.bool_))
    after = metric.scores(traces - lost, np.ones(n, np.bool_))
    assert ((before > after) if metric.higher_is_better else (before < after)).all()


def test_metrics_are_found_by_their_own_name() -> None:
    """The key in a suite's file is the metric's name, and its label tells the length."""
    assert all(metric.name == name for name, metric in METRICS.items())
    assert METRICS["gc"].label.format(T=3) == "GC@3"
    assert METRICS["s"].label.format(T=5) == "s(5)"
