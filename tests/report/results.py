"""Results to show, and strategies for them."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report import CaseResult, ChainShown, LinkShown

REGRESSED = CaseResult(
    nodeid="test_x.py::test_drift[color-gc]",
    suite="toy",
    part="color",
    metric="gc",
    label="GC@2",
    verdict="regressed",
    tolerance=0.01,
    value=0.5,
    baseline=0.75,
    difference=-0.25,
    n=2,
    curve=[0.6, 0.45],
    chains=[
        ChainShown("a.png", 0.5, 0.75, [LinkShown(image="0" * 64), LinkShown(text="a cat")]),
    ],
)

FAILURES = sorted(FAILURE_KINDS)

FRACTIONS = st.none() | st.floats(-1, 1)

LINKS = st.builds(
    LinkShown, text=st.none() | st.text(max_size=30), image=st.none(), similarity=FRACTIONS
)

CHAINS = st.builds(
    ChainShown,
    sample=st.text(max_size=30),
    score=st.floats(-1, 1),
    baseline=FRACTIONS,
    links=st.lists(LINKS, max_size=3),
    failure=st.none() | st.text(max_size=30),
    remark=st.text(max_size=30),
)

RESULTS = st.builds(
    CaseResult,
    nodeid=st.text(max_size=30),
    suite=st.sampled_from(["toy", "a-b_c"]),
    part=st.text(max_size=30),
    metric=st.sampled_from(["gc", "failures"]),
    label=st.sampled_from(["GC@3", "failure rate"]),
    verdict=st.sampled_from([verdict.value for verdict in Verdict]),
    tolerance=st.floats(0, 1),
    higher_is_better=st.booleans(),
    value=FRACTIONS,
    baseline=FRACTIONS,
    difference=FRACTIONS,
    n=st.integers(0, 1000),
    accepted=st.booleans(),
    failures=st.dictionaries(st.sampled_from(FAILURES), st.integers(1, 9), max_size=2),
    curve=st.lists(st.floats(-1, 1) | st.floats(0, 1e6), max_size=4),
    notes=st.lists(st.text(max_size=30), max_size=2),
    reasons=st.lists(st.text(max_size=30), max_size=2),
    chains=st.lists(CHAINS, max_size=2),
    damage=st.lists(st.text(max_size=9), max_size=1),
)
"""Anything that a run could report, with texts as hostile as they come."""
